"""Every part of the page without a browser: its figures are the JSON's, and no trace breaks it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tracekit import pipeline
from tracekit.app.page import PARTS
from tracekit.model.units import Unit, write
from tracekit.render.charts.gaps import histogram_charts
from tracekit.render.json import show_json
from tracekit.render.pages import elements

ROOT = Path(__file__).parents[2]
BUNDLES = ROOT / "sample_traces"
SCRIPT = str(ROOT / "app.py")


@pytest.fixture
def open_part(monkeypatch: pytest.MonkeyPatch, samples: Path) -> Callable[..., AppTest]:
    """Opens a part of the page on a folder, with the given query parameters; nothing may have failed."""

    def start(part: str, folder: Path | None = None, **query: str) -> AppTest:
        monkeypatch.setattr(sys, "argv", [SCRIPT, str(folder or samples)])
        app = AppTest.from_file(SCRIPT, default_timeout=60)
        app.query_params.update({"page": part, **query})
        app.run()
        assert not app.exception, app.exception
        return app

    return start


def said(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.text, *app.markdown, *app.caption))


@pytest.mark.parametrize("part", PARTS)
def test_every_part_opens_and_is_in_the_address(open_part: Callable[..., AppTest], part: str) -> None:
    app = open_part(part)
    assert not app.error
    assert app.query_params["page"] == part
    assert app.query_params["base"] == "decode_unfused"


def test_another_part_is_chosen_in_the_first_row(open_part: Callable[..., AppTest]) -> None:
    app = open_part("gaps", at_least="5")
    app.button_group(key="page").set_value("kernels").run()
    assert not app.exception
    assert app.query_params["page"] == "kernels"
    assert "at_least" not in app.query_params, "what belonged to the part that was left"


@pytest.mark.parametrize(
    "query",
    [
        {"page": "../../etc"}, {"at_least": "nan"}, {"at_least": "1e400"}, {"at_least": "-3"},
        {"at_least": "9e17"}, {"base_instance": "-1"},
        {"test_instance": "10000000"}, {"colour": "x"}, {"devices": "-1,x,,99"},
        {"from": "x", "to": "y"}, {"from": "5", "to": "1"}, {"from": "-1e30", "to": "1e30"}, {"launch": "base:99999"},
        {"series": "<script>"}, {"region": "a" * 5000}, {"base": "/etc/passwd"},
    ],
)  # fmt: skip
def test_what_an_address_cannot_mean_is_ignored(open_part: Callable[..., AppTest], query: dict[str, str]) -> None:
    for part in ("timeline", "gaps", "occupancy", "sweep") if "page" not in query else ("",):
        app = open_part(part or "overview", **query)
        assert not app.error
        assert app.query_params["base"] == "decode_unfused"


def test_gaps_are_those_of_the_command(
    open_part: Callable[..., AppTest], samples: Path, tracekit: Any, cells: Any
) -> None:
    region = r"unfused\/T1\/iter/layer1"
    code, out, err = tracekit(
        "gaps", samples / "decode_unfused", "--region", region, "--at-least", "5", "--format", "json"
    )
    assert code == 0, err
    told = json.loads(out)
    app = open_part("gaps", region=region, at_least="5")
    shown = cells(app, "gap")
    assert [row[0] for row in shown] == [write(gap["gap_ns"], Unit.NS) for gap in told["longest"]]
    assert len(shown[0]) == 5
    left = told["filter"]
    assert f"leaves out {left['gaps_left_out']:,} gaps, {write(left['gap_left_out_ns'], Unit.NS)}" in said(app)
    causes = sorted(((value, name) for name, value in told["parts"].items() if value), reverse=True)
    words = [f"{name.removeprefix('gap_').removesuffix('_ns')} {write(value, Unit.NS)}" for value, name in causes]
    assert f"base: {' · '.join(words)}" in said(app)
    assert app.number_input(key="threshold").value == 5, "the field shows what the link asks"
    app.number_input(key="threshold").set_value(None).run()
    assert not app.exception
    assert "at_least" not in app.query_params
    assert "leaves out" not in said(app), "nothing is hidden by default"


def test_the_histogram_is_that_of_the_command(samples: Path, tracekit: Any) -> None:
    sides = {}
    for side, name in (("base", "decode_unfused"), ("test", "decode_fused")):
        code, out, err = tracekit("gaps", samples / name, "--format", "json")
        assert code == 0, err
        sides[side] = json.loads(out)
    charts = histogram_charts(sides)
    assert charts is not None
    for chart in charts:
        (bars,) = chart.to_dict()["datasets"].values()
        for side, data in sides.items():
            drawn = {bar["from"]: (bar["gaps"], round(bar["us"] * 1000)) for bar in bars if bar["side"] == side}
            known = {row["from_ns"]: (row["gaps"], row["gap_ns"]) for row in data["histogram"]}
            assert {low: known[low] for low in drawn} == drawn
            assert all(known[low] == (0, 0) for low in known.keys() - drawn.keys()), "only empty ends are left out"
    assert histogram_charts({"base": None, "test": None}) is None


def test_memory_shows_every_kind_beside_its_bounds(open_part: Callable[..., AppTest], cells: Any) -> None:
    base, test = "swiglu_t2048_eager", "swiglu_t2048_two_kernel"
    comparison = pipeline.diff(BUNDLES / base, BUNDLES / test)
    app = open_part("memory", BUNDLES, base=base, test=test)
    rows = cells(app, "kind")
    own = [entry for entry in comparison.traffic if len(entry.path) == 1]
    assert [[row[0], row[1], row[2], row[3], row[4]] for row in rows] == [
        [
            entry.kind.replace("_", " "), entry.side, write(int(entry.read_bytes), Unit.BYTES),
            write(int(entry.write_bytes), Unit.BYTES), write(int(entry.least_bytes), Unit.BYTES),
        ]
        for entry in own
    ]  # fmt: skip
    assert rows[0][5] == f"{own[0].achieved_bytes_per_second / 1e9:,.0f} GB/s"
    assert "no point on the roofline" not in said(app)
    assert "no point on the roofline" in said(open_part("memory")), "those captures tell no FLOPs"


def test_occupancy_shows_the_launches_of_the_json(open_part: Callable[..., AppTest], samples: Path, cells: Any) -> None:
    app = open_part("occupancy", base="decode_unfused", test="decode_spilling")
    report = pipeline.report(samples / "decode_spilling")
    told = json.loads(show_json(report))["launches"]
    frame = app.dataframe[1].value
    assert frame["active blocks"].tolist() == [row["active_blocks_count"] for row in told][: len(frame)]
    assert frame["limited by"].tolist() == [row["occupancy_limiter"] for row in told][: len(frame)]
    launch = next(row for row in told if row["short_name"] == "deep")
    app = open_part("occupancy", base="decode_unfused", test="decode_spilling", launch=f"test:{launch['launch']}")
    rows = cells(app, "launch")
    assert [row[1] for row in rows] == ["255", "255"]
    assert [row[4] for row in rows] == ["2", "2"]
    app.slider(key=f"r-test-{launch['launch']}").set_value(64).run()
    assert not app.exception
    rows = cells(app, "launch")
    asked = pipeline.what_if(report, launch["launch"], registers=64)["here"].iloc[0]
    assert rows[1][1:5] == ["64", rows[0][2], rows[0][3], str(int(asked["active_blocks_count"]))]
    assert int(rows[1][4]) > 2


def test_barriers_that_counters_tell_hold_in_the_table_and_in_what_if(
    open_part: Callable[..., AppTest], cells: Any
) -> None:
    name = "swiglu_t1_one_kernel_spilling"
    (row,) = pipeline.report(BUNDLES / name).frames["blocks"].to_dict("records")
    assert not row["upper_bound"]
    app = open_part("occupancy", BUNDLES, base=name, test=name)
    frame = app.dataframe[0].value
    assert frame["by barriers"].tolist() == [row["limit_barriers_count"]]
    assert "have an upper bound" not in said(app)
    assert [line[4] for line in cells(app, "launch")] == [str(int(row["active_blocks_count"]))] * 2


def test_spills_stand_in_their_own_rows(open_part: Callable[..., AppTest], cells: Any) -> None:
    app = open_part("occupancy", BUNDLES, base="swiglu_t1_eager", test="swiglu_t1_one_kernel_spilling")
    rows = cells(app, "source")
    assert [row[:3] for row in rows] == [
        ["spill_instruction_count", "–", "–"],
        ["local_load_instruction_count", "0", "3,972,864"],
        ["local_store_instruction_count", "0", "3,117,632"],
        ["frame_bytes", "–", "2,152 B"],
        ["local_thread_bytes", "–", "–"],
    ]
    assert "which means unknown" in said(app)


def test_the_sweep_is_the_matrix(open_part: Callable[..., AppTest], cells: Any) -> None:
    matrix = pipeline.diff_matrix(BUNDLES)
    app = open_part("sweep", BUNDLES)
    rows = cells(app, "input_tokens")
    longest = max(matrix.crossovers, key=lambda found: len(found.points))
    assert [(row[0], row[1]) for row in rows] == [(f"{size:,g}", str(verdict)) for size, verdict, _ in longest.points]
    assert len(rows) == 4
    assert "One size is no sweep" in said(open_part("sweep", BUNDLES / "request_repeats"))


def test_kernels_are_searched_by_any_part_of_their_names(
    open_part: Callable[..., AppTest], expected: Any, samples: Path
) -> None:
    want = expected(samples / "decode_unfused", samples / "decode_fused")
    app = open_part("kernels")
    frame = app.dataframe[0].value
    groups = want.pair("unfused/T1/iter")["kernels"]
    assert len(frame) == sum(
        1 if group["match"] == "same" else len(group["base"]) + len(group["test"]) for group in groups
    )
    for side in ("base", "test"):
        totals = [kernel for group in groups for kernel in group[side]]
        assert frame[f"{side}_count"].sum() == sum(kernel["count"] for kernel in totals)
        assert frame[f"{side}_busy_ns"].sum() * 1000 == pytest.approx(sum(kernel["busy_ns"] for kernel in totals))
    assert frame["test_count"].isna().any(), "a kernel that a side has not is missing there, not zero"
    app.text_input(key="search").set_value("ADD_RMS").run()
    found = app.dataframe[0].value
    assert 0 < len(found) < len(frame)
    assert found["kernel"].str.contains("add_rms").all()
    assert app.query_params["search"] == "ADD_RMS"
    linked = open_part("kernels", search="ADD_RMS")
    assert linked.text_input(key="search").value == "ADD_RMS"
    assert linked.dataframe[0].value.equals(found)
    app.text_input(key="search").set_value("[").run()
    assert not app.exception


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["no_nvtx.sqlite", "no_device.sqlite", "many.sqlite", "counters.csv"])
def test_no_trace_breaks_a_part(open_part: Callable[..., AppTest], odd: Path, part: str, name: str) -> None:
    for base, test in ((name, name), (name, "many.sqlite")):
        app = open_part(part, odd, base=base, test=test)
        assert app.query_params["base"] == base


def test_an_upload_is_kept_and_chosen_by_name(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import streamlit as st

    from tracekit.app import traces

    class File:
        def __init__(self, name: str, data: bytes) -> None:
            self.name, self.data = name, data

        def getbuffer(self) -> bytes:
            return self.data

    state: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", state)
    whole = (samples / "decode_fused" / "cold.ncu.csv").read_bytes()
    broken = b"SQLite format 3\0" + b"x" * 50
    traces.take([File("../../../etc/x y.csv", whole), File("cut.sqlite", broken), File("run.qdstrm", b"x")])
    known = traces.listed(samples)
    good, cut = known["uploaded: x_y.csv"], known["uploaded: cut.sqlite"]
    assert good.parent.parent == cut.parent.parent == Path(state["upload_folder"].name)
    assert "decode_fused" in known
    assert traces.report(good).regions
    assert not any("qdstrm" in name for name in known), "no other program is started for an upload"
    assert [error.source.rpartition("/")[2] for error in traces.problems()] == ["run.qdstrm", "cut.sqlite"]
    folder = Path(state["upload_folder"].name)
    state["upload_folder"].cleanup()
    assert not folder.exists()


def test_names_that_come_twice_are_uploaded_again(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import streamlit as st

    from tracekit.app import traces

    data = (samples / "decode_fused" / "cold.ncu.csv").read_bytes()

    def file(name: str) -> Any:
        return SimpleNamespace(name=name, getbuffer=lambda: data)

    monkeypatch.setattr(st, "session_state", {})
    traces.take([file("a.csv"), file("a.csv")])
    traces.take([file("a.csv")])
    traces.take([file("b.csv")])
    assert sorted(traces.uploads()) == ["uploaded: a.csv", "uploaded: b.csv"]
    assert traces.problems() == []
    st.session_state["upload_folder"].cleanup()


def test_a_device_whose_limits_are_unknown_has_dashes(
    open_part: Callable[..., AppTest], nsys: Callable[..., Any], tmp_path: Path
) -> None:
    file = nsys(file="two.sqlite").gpu(id=0).gpu(id=1, cc=(6, 1), name="an old one").range(0, 1000, "step")
    for device, blocks in ((0, 1_234_567), (1, 7)):
        file.launch((10 + device, 12 + device), (30, 60 + device), device=device, grid=(blocks, 1, 1))
    file.write()
    app = open_part("occupancy", tmp_path)
    frame = app.dataframe[0].value
    rows = {row["grid"]: row for row in frame.to_dict("records")}
    assert (rows[7]["limited by"], rows[7]["active blocks"], rows[7]["SM fill"]) == ("–", "–", "–")
    assert rows[1_234_567]["SM fill"] == "100.0 %"
    assert rows[1_234_567]["limited by"] != "–"
    assert rows[1_234_567]["waves"] != "–"


def test_gaps_of_steps_that_were_found_without_ranges(
    open_part: Callable[..., AppTest], samples: Path, tmp_path: Path, cells: Any
) -> None:
    for name in ("decode_unfused", "decode_fused"):
        shutil.copy(samples / name / "timeline.sqlite", tmp_path / f"{name}.sqlite")
        with sqlite3.connect(tmp_path / f"{name}.sqlite") as database:
            database.execute("DELETE FROM NVTX_EVENTS")
    comparison = pipeline.diff(tmp_path / "decode_unfused.sqlite", tmp_path / "decode_fused.sqlite")
    assert comparison.matching == "steps"
    for pair in comparison.regions:
        idle = pipeline.idle_report(comparison.base, within=pair.base_path)
        assert sum(idle["parts"].values()) == comparison.base.region(pair.base_path).metrics["gap_ns"].sum
    app = open_part("gaps", tmp_path, base="decode_unfused.sqlite", test="decode_fused.sqlite")
    assert "No gap is known here" not in said(app)
    assert cells(app, "gap")


def test_a_slider_holds_from_its_first_step_on(open_part: Callable[..., AppTest], cells: Any) -> None:
    app = open_part("occupancy")
    launch = app.selectbox(key="launch").value
    slider = app.slider(key=f"s-{launch.replace(':', '-')}")
    before = cells(app, "launch")
    assert before[0][1:] == before[1][1:], "nothing was moved"
    slider.set_value(slider.value + 256).run()
    after = cells(app, "launch")
    assert after[0] == before[0]
    assert after[1][2] == write(int(slider.value), Unit.BYTES)


def test_the_latency_row_is_judged_under_the_protocol_that_it_shows(
    open_part: Callable[..., AppTest], samples: Path, tmp_path: Path, cells: Any
) -> None:
    for name in ("decode_unfused", "decode_fused"):
        shutil.copytree(samples / name, tmp_path / name)
    path = tmp_path / "decode_fused" / "bench.json"
    bench = json.loads(path.read_text())
    bench["samples"] = [sample for sample in bench["samples"] if sample["protocol"] == "pipelined"]
    path.write_text(json.dumps(bench))
    manifest = tmp_path / "decode_fused" / "manifest.json"
    told = json.loads(manifest.read_text())
    del told["bench"]["sha256"]
    manifest.write_text(json.dumps(told))
    comparison = pipeline.diff(tmp_path / "decode_unfused", tmp_path / "decode_fused")
    app = open_part("overview", tmp_path, base="decode_unfused", test="decode_fused")
    row = cells(app, "compare")[-1]
    assert row[5] == f"latency {comparison.latency['pipelined'].verdict}"
    assert row[4] != "–"


@pytest.mark.parametrize(
    "text", [":rocket: x", "see www.evil.example", "a http://x.y b", "a\n- b", ":material/home:", "x -> y", "a@b.c"]
)
def test_what_escapes_do_not_hold_back_is_shown_literally(text: str) -> None:
    shown = elements.prose(text)
    assert shown == elements.literal(text)
    assert "`" in shown
    assert elements.prose("a *plain* sentence, of 5 %: done.") == r"a \*plain\* sentence, of 5 %: done."
