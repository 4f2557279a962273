"""The dashboard's logic, run without a browser: what is picked, compared, cached and refused."""

from __future__ import annotations

import itertools
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from tracekit import pipeline
from tracekit.model.report import Change, RegionPair
from tracekit.model.tables import GAP_PARTS
from tracekit.model.units import write_change
from tracekit.render.charts.gaps import gap_chart
from tracekit.render.charts.latency import latency_chart
from tracekit.render.charts.palette import GAP_COLORS, SIDE_COLORS
from tracekit.render.pages import elements, regions

SCRIPT = str(Path(__file__).parents[2] / "app.py")
UNFUSED = "unfused/T1/iter"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, samples: Path) -> Callable[..., AppTest]:
    """Opens the page on a folder, by default that of the fixture ``samples``, with the given query parameters."""

    def start(folder: Path | str | None = None, **query: str | list[str]) -> AppTest:
        monkeypatch.setattr(sys, "argv", [SCRIPT, *([str(folder or samples)] if folder != "" else [])])
        app = AppTest.from_file(SCRIPT, default_timeout=30)
        app.query_params.update(query)
        return app.run()

    return start


def pick(app: AppTest, **choices: str) -> AppTest:
    for key, value in choices.items():
        app.selectbox(key=key).set_value(value)
    return app.run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.text, *app.markdown, *app.caption, *app.header, *app.subheader))


def test_opens_on_the_samples_without_an_argument(page: Callable[..., AppTest]) -> None:
    app = page("")
    assert not app.exception
    assert not app.error
    assert (app.selectbox(key="base").value, app.selectbox(key="test").value) == ("request_eager", "request_fused")
    assert app.header[0].value == "`eager` → `fused`"


def test_opens_on_the_usual_pair_of_a_folder(page: Callable[..., AppTest], expected: Any, samples: Path) -> None:
    app = page()
    assert not app.exception
    assert not app.error
    assert (app.selectbox(key="base").value, app.selectbox(key="test").value) == ("decode_unfused", "decode_fused")
    assert app.selectbox(key="base").options == sorted(path.parent.name for path in samples.glob("*/manifest.json"))
    assert app.header[0].value == "`unfused` → `fused`"
    shown = texts(app)
    for word in (
        "NVIDIA H200",
        "bfloat16",
        "no drift between the captures",
        "64 kernels, synchronized after every step",
    ):
        assert word in shown
    want = expected(samples / "decode_unfused", samples / "decode_fused")
    change = want.data["latency"]["synchronized"]
    assert change["ratio"] == pytest.approx(0.651, abs=5e-4)
    assert (
        "Untraced step latency **750.8 us → 488.6 us** (−34.9 %), synchronized, median over processes: "
        "6 of the base, 6 of the test." in shown
    )


def test_shows_the_figures_of_every_region(
    page: Callable[..., AppTest], expected: Any, samples: Path, cells: Any
) -> None:
    app = page()
    want = expected(samples / "decode_unfused", samples / "decode_fused")
    for path in [(UNFUSED,), (UNFUSED, "layer0"), (UNFUSED, "layer2", "residual_rmsnorm")]:
        pick(app, region="/".join(label.replace("/", r"\/") for label in path))
        assert [row[:8] for row in cells(app, "metric")] == want.metrics(*path)
        pair = next(pair for pair in want.comparison.regions if pair.path == path)
        rows = pipeline.findings(want.comparison, pair)
        assert [[*row[:4], row[6]] for row in cells(app, "compare")] == [
            [row.topic, row.base, row.test, row.delta, row.meaning] for row in rows
        ]
        latency = cells(app, "compare")[-1]
        interval = want.data["latency"]["synchronized"]["estimate"]["interval"]
        assert latency[4] == f"{write_change(interval['low'])} to {write_change(interval['high'])}"
        assert latency[5] == f"latency {want.data['latency']['synchronized']['verdict']}"


def test_draws_or_refuses_every_pair_of_samples(page: Callable[..., AppTest], samples: Path, cells: Any) -> None:
    app = page()
    names = sorted(pipeline.list_traces(samples))
    assert len(names) == 6
    refused = 0
    for base, test in itertools.product(names, names):
        pick(app, base=base, test=test)
        assert not app.exception, (base, test)
        assert app.query_params["base"] == base
        assert app.query_params["test"] == test
        if app.error:
            refused += 1
            assert "Not comparable" in app.error[0].value
        else:
            assert len(cells(app, "compare")) == 5
    graph, prefill = 2 * 3, 2 * 2 * 4
    assert refused == graph + prefill


def test_refuses_by_name_and_lets_waive_by_name(page: Callable[..., AppTest], samples: Path, cells: Any) -> None:
    app = page(base="decode_unfused", test="decode_unfused_graph")
    assert cells(app, "condition") == [["graph_mode", "none", "cuda graph", "no"]]
    assert not [box for box in app.selectbox if box.key == "region"]
    app.multiselect(key="waive").select("graph_mode").run()
    assert not app.exception
    assert not app.error
    assert app.query_params["waive"] == "graph_mode"
    assert "graph_mode none → cuda graph" in texts(app)
    assert ["graph_mode", "none", "cuda graph", "differs, waived"] in cells(app, "condition")
    app.multiselect(key="waive").unselect("graph_mode").run()
    assert "Not comparable" in app.error[0].value
    assert "waive" not in app.query_params
    assert not page(base="decode_unfused", test="decode_unfused_graph", waive="graph_mode").error


def test_an_address_restores_the_page(page: Callable[..., AppTest]) -> None:
    app = page(base="prefill_unfused", test="prefill_fused", region=r"unfused\/T2048\/iter/layer1")
    assert app.selectbox(key="region").value == r"unfused\/T2048\/iter/layer1"
    assert page(**app.query_params).selectbox(key="region").value == app.selectbox(key="region").value


@pytest.mark.parametrize("name", ["../decode_fused", "/etc/passwd", "README.md", "decode_fused/timeline.sqlite", ""])
def test_an_address_opens_no_path_that_is_not_listed(page: Callable[..., AppTest], name: str, monkeypatch: Any) -> None:
    streamlit.cache_resource.clear()
    opened: list[str] = []
    report = pipeline.report
    monkeypatch.setattr(pipeline, "report", lambda path: opened.append(Path(path).name) or report(path))
    app = page(base=name, test=name, region=name, waive=name)
    assert not app.exception
    assert app.query_params["base"] == "decode_unfused"
    assert app.selectbox(key="test").value == "decode_fused"
    assert "waive" not in app.query_params
    assert opened == ["decode_unfused", "decode_fused"]


def test_a_file_that_cannot_be_used_says_so_and_leaves_the_page_usable(
    page: Callable[..., AppTest], samples: Path, tmp_path: Path, cells: Any
) -> None:
    whole = (samples / "decode_fused" / "timeline.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "whole.sqlite").write_bytes(whole)
    (tmp_path / "empty.csv").touch()
    app = page(tmp_path, base="cut.sqlite", test="empty.csv")
    assert not app.exception
    for error, name in zip(app.error, ("cut.sqlite", "empty.csv"), strict=True):
        for part in (f"`{name}`", "- expected: `", "- found: `", "- remedy: `"):
            assert part in error.value
    pick(app, base="whole.sqlite", test="whole.sqlite")
    assert not app.error
    assert cells(app, "compare")


def test_a_folder_without_traces_says_so(page: Callable[..., AppTest], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    for folder in (tmp_path, tmp_path / "absent"):
        app = page(folder)
        assert not app.exception
        assert "- remedy: `" in app.error[0].value


def test_a_bundle_itself_can_be_the_folder(page: Callable[..., AppTest], samples: Path) -> None:
    app = page(samples / "decode_fused")
    assert app.selectbox(key="base").options[0] == "decode_fused"
    assert not app.exception
    assert not app.error


def test_reads_a_trace_once_and_again_after_it_changed(
    page: Callable[..., AppTest], samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: Any
) -> None:
    read: list[str] = []
    report = pipeline.report
    monkeypatch.setattr(pipeline, "report", lambda path: read.append(Path(path).name) or report(path))
    shutil.copy(samples / "decode_fused" / "cold.ncu.csv", tmp_path / "a.csv")
    shutil.copytree(samples / "decode_fused", tmp_path / "b")
    app = page(tmp_path, base="a.csv", test="b").run()
    page(tmp_path, base="a.csv", test="b")
    assert read == ["a.csv", "b"]
    assert cells(app, "metric")[0][:3] == ["kernel_count", "24", "24"]
    shutil.copy(samples / "decode_unfused" / "cold.ncu.csv", tmp_path / "a.csv")
    app.run()
    assert read == ["a.csv", "b", "a.csv"]
    assert cells(app, "metric")[0][:3] == ["kernel_count", "64", "24"]
    shutil.copy(samples / "decode_unfused" / "timeline.sqlite", tmp_path / "b" / "timeline.sqlite")
    app.run()
    assert "SHA-256" in app.error[0].value


def test_traces_of_other_people(page: Callable[..., AppTest], public_cases: Path, cells: Any) -> None:
    app = page(public_cases)
    names = app.selectbox(key="base").options
    assert len(names) == 3
    for base, test in itertools.product(names, names):
        pick(app, base=base, test=test)
        assert not app.exception, (base, test)
        assert not app.error
        assert len(cells(app, "compare")) == 5


def test_counters_alone_need_no_timeline(page: Callable[..., AppTest], samples: Path, tmp_path: Path) -> None:
    for name in ("unfused", "fused"):
        shutil.copy(samples / f"prefill_{name}" / "layer1_in_model.ncu.csv", tmp_path / f"{name}.csv")
    shutil.copy(samples / "decode_spilling" / "spilling.ncu-rep", tmp_path)
    app = page(tmp_path)
    for base, test in itertools.product(app.selectbox(key="base").options, repeat=2):
        pick(app, base=base, test=test)
        assert not app.exception
        assert not app.error
        assert app.selectbox(key="base").options == ["fused.csv", "spilling.ncu-rep", "unfused.csv"]


HOSTILE = (
    "`a`",
    "``",
    " x ",
    ":material/home:",
    "a:material/b:material/c",
    "**b** $x$ <i>",
    "",
    "a\nb\tc",
    "`",
    "\x00",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_literal_markdown_is_made_of_code_alone(text: str) -> None:
    shown = elements.literal(text)
    assert "\n" not in shown
    assert ":material/" not in shown
    spans = re.findall(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", shown)
    outside = re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", shown)
    if text:
        assert outside.strip("*") == ""
        inside = "".join(s[1:-1] if s[:1] == s[-1:] == " " and s.strip() else s for _, s in spans)
        assert inside.translate({0x2400 + code: code for code in range(32)}) == text


def test_a_region_of_one_side_stands_under_its_parent() -> None:
    def pair(path: str, base: str | None, test: str | None) -> RegionPair:
        base_path, test_path = (None if side is None else tuple(side.split("/")) for side in (base, test))
        return RegionPair(tuple(path.split("/")), base_path, test_path, 1, 1, {}, ())

    pairs = [
        pair("r", "r", "s"), pair("r/a", "r/a", "s/a"), pair("r/b", "r/b", None), pair("q", "q", "q"),
        pair("s/c", None, "s/c"), pair("s/a/d", None, "s/a/d"),
    ]  # fmt: skip
    assert [(depth, "/".join(p.path)) for depth, p in regions.in_tree_order(pairs)] == [
        (0, "r"), (1, "r/a"), (2, "s/a/d"), (1, "r/b"), (1, "s/c"), (0, "q"),
    ]  # fmt: skip


def drawn(chart: Any) -> list[list[dict[str, Any]]]:
    """The rows of data behind each layer of a chart."""
    spec = chart.to_dict()
    return [spec["datasets"][layer["data"]["name"]] for layer in spec["layer"]]


def gap_pair(**parts: float | None) -> RegionPair:
    metrics = {f"gap_{part}_ns": Change(value, value, 0, 1.0, "ns", "lower") for part, value in parts.items()}
    total = sum(value or 0 for value in parts.values())
    metrics["gap_ns"] = Change(total, None, None, None, "ns", "lower")
    return RegionPair(("r",), ("r",), ("r",), 1, 1, metrics, ())


def test_the_gap_chart_draws_the_parts_it_is_given_and_no_others() -> None:
    chart = gap_chart([("r", gap_pair(host=3000, sync=0, dispatch=None, in_graph=500))])
    assert chart is not None
    bars, words = drawn(chart)
    assert [(bar["side"], bar["part"], bar["us"], bar["figure"]) for bar in bars] == [
        (side, part, us, figure)
        for side in ("base", "test")
        for part, us, figure in (("host", 3.0, "3.0 us"), ("in_graph", 0.5, "0.5 us"))
    ]
    assert [word["figure"] for word in words] == ["base  3.5 us"]
    assert gap_chart([("r", gap_pair())]) is None


def test_every_gap_part_has_a_colour_of_its_own() -> None:
    assert tuple(GAP_COLORS) == GAP_PARTS
    assert len({*GAP_COLORS.values(), *SIDE_COLORS.values()}) == len(GAP_PARTS) + 2


def test_the_latency_chart_shows_every_process(samples: Path) -> None:
    reports = [pipeline.report(samples / name) for name in ("decode_unfused", "decode_fused")]
    chart = latency_chart(*reports)
    assert chart is not None
    _, dots, medians = drawn(chart)
    assert len(dots) == sum(len(entry.samples_ns) for report in reports for entry in report.latency) == 24
    assert max(dot["us"] for dot in dots) == pytest.approx(1090.0, abs=0.5)
    assert [median["figure"] for median in medians] == ["750.8 us", "713.2 us", "488.6 us", "456.4 us"]


def test_the_command_and_the_renderers_do_without_streamlit() -> None:
    code = "import sys, tracekit.cli, tracekit.render, tracekit.render.text; print('streamlit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_app_refuses_what_is_no_folder(tracekit: Any, tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.touch()
    for path in (tmp_path / "absent", file):
        code, out, err = tracekit("app", path, "--no-browser", "--port", "1")
        assert (code, out) == (2, "")
        assert str(path) in err
        assert "remedy: " in err


def test_app_refuses_a_port_that_is_taken(tracekit: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, out, err = tracekit("app", "--no-browser", "--port", taken.getsockname()[1])
    assert (code, out) == (2, "")
    assert str(taken) not in err
    assert "--port" in err
