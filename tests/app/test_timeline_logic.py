"""The timeline's part of the page without a browser: what is sent, and what a reader may choose."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tracekit import pipeline
from tracekit.model.report import Comparison, Report
from tracekit.model.tables import GAP_PARTS
from tracekit.model.timeline import Activity
from tracekit.model.units import MISSING, Unit, write
from tracekit.render.charts.palette import REGION_COLORS
from tracekit.render.charts.timeline import COPIES, OTHER, Palette, Shown, overview_chart, timeline_chart
from tracekit.render.pages.timeline import palette

SCRIPT = str(Path(__file__).parents[2] / "app.py")


@pytest.fixture
def open_timeline(monkeypatch: pytest.MonkeyPatch, samples: Path) -> Callable[..., AppTest]:
    """Opens the timeline of the usual pair of captures, or of a folder."""

    def start(folder: Path | None = None, **query: str) -> AppTest:
        monkeypatch.setattr(sys, "argv", [SCRIPT, str(folder or samples)])
        app = AppTest.from_file(SCRIPT, default_timeout=60)
        app.query_params.update({"page": "timeline", **query})
        app.run()
        assert not app.exception, app.exception
        return app

    return start


def window(app: AppTest) -> tuple[int, int]:
    return int(app.query_params["from"]), int(app.query_params["to"])


def said(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.text, *app.markdown, *app.caption))


def sent(app: AppTest) -> str:
    """The text of everything in the charts' specifications."""
    return " ".join(chart.proto.spec for chart in app.get("vega_lite_chart"))


def click(app: AppTest, name: str) -> AppTest:
    app.button(key=f"window-{name}").click().run()
    assert not app.exception, app.exception
    return app


@pytest.fixture(scope="module")
def comparison(samples: Path) -> Comparison:
    return pipeline.diff(samples / "decode_unfused", samples / "decode_fused")


@pytest.fixture(scope="module")
def shown(comparison: Comparison) -> list[Shown]:
    sources = {"base": pipeline.timeline(comparison.base), "test": pipeline.timeline(comparison.test)}
    places = pipeline.places(comparison, pipeline.main_region(comparison), sources, {})
    return [
        Shown(side, place, sources[side].view(place.start_ns, place.end_ns, place=place))
        for side, place in places.items()
    ]


def test_the_chart_shows_the_frames_of_the_report(comparison: Comparison, shown: list[Shown]) -> None:
    low, high = 0, max(one.place.end_ns - one.place.origin_ns for one in shown)
    data = timeline_chart(shown, palette(comparison), low, high)["datasets"]
    checked = 0
    for report, one in zip((comparison.base, comparison.test), shown, strict=True):
        operations = report.frames["operations"]
        inside = operations[(operations["start_ns"] < one.place.end_ns) & (operations["end_ns"] > one.place.start_ns)]
        top, bottom = (
            {lane["t"] for lane in data["lanes"].to_dict("records")} & set(rows["t"])
            for rows in (data["operations"], data["gaps"])
        )
        assert top
        assert bottom
        for operation in inside.to_dict("records"):
            begin = operation["start_ns"] - one.place.origin_ns
            marks = data["operations"][data["operations"]["a"] == begin / 1e3]
            if begin < 0 or not len(marks):
                continue  # cut by the window's start, or merged with others
            mark = marks.iloc[0]
            if " operations, most: " in mark["what"]:
                continue
            launch = report.frames["launches"].set_index("launch").loc[operation["launch"]]
            duration = operation["end_ns"] - operation["start_ns"]
            assert mark["time"] == write(duration, Unit.NS)
            assert mark["b"] == pytest.approx((begin + duration) / 1e3)
            assert mark["grid"] == f"{launch['grid_x']:,} × {launch['grid_y']:,} × {launch['grid_z']:,}"
            assert mark["registers"] == write(int(launch["registers_count"]), Unit.COUNT)
            checked += 1
    assert checked > 40
    measured = data["operations"][data["operations"]["dram"] != MISSING]
    assert len(measured) > 10
    assert measured["dram"].str.endswith("(cold)").all()
    assert (data["operations"]["copied"] == MISSING).all()


def test_the_parts_of_a_gap_are_drawn_one_after_the_other(comparison: Comparison, shown: list[Shown]) -> None:
    data = timeline_chart(shown, palette(comparison), 0, 10**6)["datasets"]["gaps"]
    shortest = min(one.place.end_ns - one.place.origin_ns for one in shown) / 1e3
    checked = 0
    for (_, when, parts), marks in data.groupby(["t", "at", "parts"]):
        if marks["what"].iloc[0] != "a gap" or marks["a"].min() <= 0 or marks["b"].max() >= shortest:
            continue  # merged, or cut by the window
        checked += 1
        ordered = marks.sort_values("a")
        assert ordered["a"].tolist()[1:] == pytest.approx(ordered["b"].tolist()[:-1])
        assert set(ordered["key"]) <= set(GAP_PARTS)
        assert write(round((ordered["b"].iloc[-1] - ordered["a"].iloc[0]) * 1e3), Unit.NS) == ordered["time"].iloc[0]
        assert parts.count(",") == len(marks) - 1, when
    assert checked > 10


def test_both_sides_have_one_axis_and_one_colour_for_a_region(comparison: Comparison, shown: list[Shown]) -> None:
    colors = palette(comparison)
    for pair in comparison.regions:
        keys = {
            colors.key({"role": "range", "path": path, "name": path[-1]})
            for path in (pair.base_path, pair.test_path)
            if path is not None
        }
        assert len(keys) == 1
    assert len(colors.colors) <= len(REGION_COLORS)
    assert colors.key({"role": "memset", "path": None, "name": "[memset]"}) == COPIES
    assert colors.key({"role": "kernel", "path": ("never seen",), "name": "k"}) == OTHER


def test_the_axis_spans_the_window_and_is_all_that_a_zoom_changes(comparison: Comparison, samples: Path) -> None:
    colors = palette(comparison)
    sources = {"base": pipeline.timeline(comparison.base), "test": pipeline.timeline(comparison.test)}
    places = pipeline.places(comparison, pipeline.main_region(comparison), sources, {})
    specs = []
    for low, high in ((-20_000, 500_000), (100_000, 400_000), (100_000, 101_000)):
        views = [
            Shown(side, place, sources[side].view(place.origin_ns + low, place.origin_ns + high, place=place))
            for side, place in places.items()
        ]
        specs.append(timeline_chart(views, colors, low, high))
        data = specs[-1].pop("datasets")
        spanned = [frame for frame in data.values() if "a" in frame and len(frame)]
        assert min(frame["a"].min() for frame in spanned) == low / 1e3
        assert max(frame["b"].max() for frame in spanned if "b" in frame) == high / 1e3
        assert all(frame["a"].max() <= high / 1e3 for frame in spanned)
    assert specs[0] == specs[1] == specs[2]


def test_kernels_that_are_the_same_on_both_sides_share_a_colour(comparison: Comparison) -> None:
    colors = palette(comparison, "kernel")
    assert colors.kernels
    for pair in comparison.regions:
        for match in pair.kernels:
            if match.match in ("same", "renamed"):
                assert len({colors.kernels[kernel.name] for kernel in (*match.base, *match.test)}) == 1


def test_a_colour_that_is_not_there_is_other() -> None:
    labels = {(str(number),): str(number) for number in range(20)}
    colors = Palette.of_regions(labels)
    keys = [colors.key({"role": "kernel", "path": path, "name": "k"}) for path in labels]
    assert keys == [*map(str, range(len(REGION_COLORS))), *[OTHER] * (20 - len(REGION_COLORS))]


def test_the_strip_marks_the_window_within_what_it_shows() -> None:
    spec = overview_chart({"base": Activity(1000, 5000, (0.5, 1.0, 0.0, 0.25))}, {"base": 2000}, -5000, 2500)
    rows = spec["datasets"]["activity"]
    assert rows["a"].tolist() == [-1.0, 0.0, 1.0, 2.0]
    assert rows["figure"].tolist() == ["50.0 %", "100.0 %", "0.0 %", "25.0 %"]
    assert spec["datasets"]["window"][["a", "b"]].iloc[0].tolist() == [-1.0, 2.5]
    assert overview_chart({"base": Activity(0, 10, ())}, {"base": 0}, 0, 10) is None


def test_buttons_move_the_window_and_the_address_has_it(open_timeline: Callable[..., AppTest]) -> None:
    app = open_timeline()
    assert "from" not in app.query_params
    assert app.button(key="window-fit").disabled
    low, high = window(click(app, "in"))
    nearer = window(click(app, "in"))
    assert low < nearer[0] < nearer[1] < high
    assert nearer[1] - nearer[0] == pytest.approx((high - low) / 2, rel=0.01)
    later = window(click(app, "right"))
    assert later[0] > nearer[0]
    assert later[1] - later[0] == nearer[1] - nearer[0]
    assert window(click(app, "left")) == nearer
    wider = window(click(app, "out"))
    assert wider[1] - wider[0] == pytest.approx(high - low, rel=0.01)
    linked = open_timeline(**{"from": str(nearer[0]), "to": str(nearer[1])})
    assert window(linked) == nearer
    assert f"{write(nearer[0], Unit.NS, signed=True)} to {write(nearer[1], Unit.NS, signed=True)}" in said(linked)
    whole = window(click(app, "all"))
    assert whole[0] < 0
    assert app.button(key="window-all").disabled
    assert "from" not in click(app, "fit").query_params


def test_an_instance_is_chosen_by_its_number(open_timeline: Callable[..., AppTest]) -> None:
    app = open_timeline()
    click(app, "in")
    app.number_input(key="instance-of-base").set_value(1).run()
    assert not app.exception
    assert app.query_params["base_instance"] == "0"
    assert "from" not in app.query_params, "the window of another instance"
    assert "test_instance" not in app.query_params
    linked = open_timeline(base_instance="0")
    assert linked.number_input(key="instance-of-base").value == 1
    assert linked.number_input(key="instance-of-test").value is None
    app.number_input(key="instance-of-base").set_value(None).run()
    assert "base_instance" not in app.query_params


def test_another_region_is_fitted(open_timeline: Callable[..., AppTest]) -> None:
    app = click(open_timeline(), "in")
    region = next(name for name in app.selectbox(key="region").options if "residual" in name)
    app.selectbox(key="region").select(region).run()
    assert not app.exception
    assert "from" not in app.query_params


def test_colours_go_by_kernel_where_asked(open_timeline: Callable[..., AppTest]) -> None:
    app = open_timeline(colour="kernel")
    assert "other kernels" in sent(app)
    app.button_group(key="colours").set_value("region").run()
    assert "colour" not in app.query_params
    assert OTHER in sent(app)


def test_without_a_timeline_the_page_says_why(
    open_timeline: Callable[..., AppTest], samples: Path, tmp_path: Path
) -> None:
    counters = next(samples.glob("*/*.ncu.csv"))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(counters.read_bytes())
    app = open_timeline(tmp_path)
    assert said(app).count("there is no timeline") == 2
    assert not app.get("vega_lite_chart")


def test_a_region_of_one_side_is_stood_in_for(
    open_timeline: Callable[..., AppTest], nsys: Callable[..., Any], tmp_path: Path
) -> None:
    for side in ("a", "b"):
        file = nsys(file=f"{side}.sqlite").gpu().range(0, 900, "step")
        if side == "a":
            file.range(10, 100, "only here")
        file.launch((20, 30), (40, 50)).write()
    app = open_timeline(tmp_path, region="step/only here")
    assert "The test has no step / only here: step, which is around it, is shown." in said(app)


def test_what_has_no_lane_is_said(
    open_timeline: Callable[..., AppTest], nsys: Callable[..., Any], tmp_path: Path
) -> None:
    for side in ("a", "b"):
        file = nsys(file=f"{side}.sqlite")
        for number in range(20):
            file.gpu(number)
            file.range(0, 900, "step", thread=200 + number)
            file.launch((20, 30), (40, 50), device=number, thread=200 + number)
        file.write()
    words = said(open_timeline(tmp_path))
    assert "Base: 17 threads, 16 devices with less activity left out for lack of room." in words
    assert "Test: 17 threads, 16 devices" in words


def test_names_are_data_and_never_part_of_an_expression(
    open_timeline: Callable[..., AppTest], nsys: Callable[..., Any], tmp_path: Path
) -> None:
    name = '"]+alert(1)+[" `q` <img src=x onerror=alert(1)> {{x}}'
    for side in ("a", "b"):
        nsys(file=f"{side}.sqlite").gpu().range(0, 900, name).launch((20, 30), (40, 850), name=name).write()
    app = open_timeline(tmp_path)
    for chart in app.get("vega_lite_chart"):
        expressions = [
            value for key, value in walk(json.loads(chart.proto.spec)) if key in ("labelExpr", "expr", "filter")
        ]
        assert expressions
        assert not any("alert" in value for value in expressions)


def walk(node: Any) -> list[tuple[str, str]]:
    if isinstance(node, dict):
        return [
            item for key, value in node.items() for item in ([(key, value)] if isinstance(value, str) else walk(value))
        ]
    return [item for value in node for item in walk(value)] if isinstance(node, list) else []


def drawn(report: Report, colours: Palette) -> dict[str, Any]:
    """What the chart of a whole capture holds, by kind of mark."""
    source = pipeline.timeline(report)
    place = source.find(None)
    one = Shown("base", place, source.view(place.start_ns, place.end_ns, place=place))
    return timeline_chart([one], colours, 0, place.end_ns - place.origin_ns)["datasets"]


@pytest.mark.parametrize("generation", ["2023.4", "2025.5"])
def test_a_node_of_a_graph_has_the_colour_of_where_it_was_built(nsys: Callable[..., Any], generation: str) -> None:
    builder = nsys(generation).gpu().range(0, 100, "build").range(10, 50, "layer0").range(50, 90, "head")
    builder.range(200, 300, "replay").graph_node(1, 20).graph_node(2, 60)
    builder.call(210, 220, "cudaGraphLaunch_v10000", correlation=9)
    for node, (start, end) in {1: (230, 240), 2: (250, 270), 3: (280, 290)}.items():
        builder.kernel(start, end, correlation=9, graph_node=node)
    report = pipeline.report(builder.write())
    found = drawn(report, palette(pipeline.diff(report, report)))["operations"]
    assert found["key"].tolist() == ["layer0", "head", "replay"]
    assert found["region"].tolist() == ["replay, built in build / layer0", "replay, built in build / head", "replay"]


def test_a_range_that_never_ended_says_so(nsys: Callable[..., Any]) -> None:
    report = pipeline.report(
        nsys().gpu().range(0, 100, "done").range(120, None, "cut").launch((150, 160), (170, 180)).write()
    )
    found = drawn(report, palette(pipeline.diff(report, report)))["ranges"]
    assert sorted(found["what"]) == ["cut, still open when the capture ended", "done"]


def test_the_gpus_that_are_named_are_drawn(open_timeline: Callable[..., AppTest], odd: Path) -> None:
    app = open_timeline(odd, base="many.sqlite", test="many.sqlite")
    assert "16 devices with less activity left out" in said(app)
    assert app.multiselect(key="gpus").options == [f"GPU {device}" for device in range(20)]
    app.multiselect(key="gpus").set_value([17, 4]).run()
    assert not app.exception
    assert app.query_params["devices"] == "4,17"
    assert "left out" not in said(app), "what was not asked for"
    assert "GPU 17 stream" in sent(app)
    assert "GPU 3 stream" not in sent(app)
    linked = open_timeline(odd, base="many.sqlite", test="many.sqlite", devices="4,17")
    assert linked.multiselect(key="gpus").value == [4, 17]
    linked.multiselect(key="gpus").set_value([]).run()
    assert "devices" not in linked.query_params
    assert "16 devices with less activity left out" in said(linked)
    assert not [box for box in open_timeline().multiselect if box.key == "gpus"], "one GPU is no choice"
