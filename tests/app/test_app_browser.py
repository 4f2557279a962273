"""The dashboard in Chromium: a reader sees what the command line's JSON says, and nothing leaves the machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import TimeoutError

from tracekit import pipeline
from tracekit.app.page import PARTS
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import Unit, write, write_change

pytestmark = pytest.mark.browser

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
SAMPLES = Path(__file__).parents[2] / "sample_traces"
ROOT = "unfused/T1/iter"
HOSTILE = (
    "a_b*c*_d_ <b>x</b><img src=x onerror=alert(1)> $x^2$ `q` :fire: :red[z] :material/home: http://x.example -> &amp;"
    r" a|b \| \\| \\\| |"
)


# What is wider than its place: the page itself, tables and their cells, charts.
OVERFLOWING = """() => [
    ...[...document.querySelectorAll('[data-testid=stMain], [data-testid=stMarkdown]:has(table), .stMarkdown td')]
        .filter(e => e.scrollWidth > e.clientWidth + 1),
    ...[...document.querySelectorAll('[data-testid=stVegaLiteChart] svg')].filter(e => {
        const place = e.closest('[data-testid=stColumn], .stMainBlockContainer').getBoundingClientRect();
        return e.getBoundingClientRect().right > place.right + 1;
    }),
].map(e => `${e.tagName} ${e.scrollWidth} > ${e.clientWidth}: ${e.textContent.slice(0, 60)}`)"""


def test_the_page_shows_the_figures_of_the_json(
    open_page: Callable[..., Any], dashboard: Callable[..., str], expected: Any, samples: Path
) -> None:
    page = open_page(dashboard())
    want = expected(samples / "decode_unfused", samples / "decode_fused")
    for path in ((ROOT,), (ROOT, "layer1", "residual_rmsnorm")):
        if len(path) > 1:
            page.choose("region", " › ".join(path))
            page.wait_for_address("residual_rmsnorm")
        metrics = want.metrics(*path)
        assert len(metrics) >= 30
        assert [row[:8] for row in page.table("metrics")[1:]] == metrics

        pair = next(pair for pair in want.comparison.regions if pair.path == path)
        rows = pipeline.findings(want.comparison, pair)
        assert [[*row[:4], row[6]] for row in page.table("findings")[1:]] == [
            [r.topic, r.base, r.test, r.delta, r.meaning] for r in rows
        ]

    assert [[row[0], *row[3:]] for row in page.tree()] == want.tree()
    assert len(want.latency()) == 4
    assert page.table("latency")[1:] == want.latency()
    change = want.data["latency"]["synchronized"]
    lead = page.tab.locator(".st-key-lead").text_content()
    assert (
        f"{write(change['base'], Unit.NS)} → {write(change['test'], Unit.NS)} ({write_change(change['ratio'])})" in lead
    )

    page.part("Kernels")
    replaced = [page.table(f"kernels-0-{side}")[1:] for side in ("base", "test")]
    assert replaced == [want.kernels("replaced", side, *path) for side in ("base", "test")]
    page.part("Gaps")
    for path in ((ROOT, "layer1", "residual_rmsnorm"), (ROOT,)):
        page.choose("region", " › ".join(path))
        inner = len(path) > 1
        page.tab.wait_for_url(lambda url, inner=inner: ("layer1" in url) == inner)
        page.settle()
        known = {row[0]: row[1:5] for row in want.metrics(*path)}
        parts = [
            [part, *known[f"gap_{part}_ns"], REGION_METRICS[f"gap_{part}_ns"].doc]
            for part in GAP_PARTS
            if any(want.pair(*path)["metrics"][f"gap_{part}_ns"][side] for side in ("base", "test"))
        ]
        gaps = page.table("gap-parts")[1:]
        assert [row[1:] for row in gaps[:-1]] == parts
        assert gaps[-1][1:6] == ["all gaps", *known["gap_ns"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", PARTS)
def test_nothing_overflows_and_nothing_leaves_the_machine(
    open_page: Callable[..., Any], dashboard: Callable[..., str], part: str, scheme: str
) -> None:
    url = dashboard(str(SAMPLES))
    page = open_page(f"{url}/?page={part}&base=swiglu_t2048_eager&test=swiglu_t2048_two_kernel", scheme)
    charts = {"overview": 3, "timeline": 2, "gaps": 3, "memory": 4, "occupancy": 3, "sweep": 1}.get(part, 0)
    drawn = "document.querySelectorAll('[data-testid=stVegaLiteChart] :is(svg, canvas)')"
    page.tab.wait_for_function(f"{drawn}.length == {charts}")
    try:
        page.tab.wait_for_function(f"!({OVERFLOWING})().length", timeout=3000)
    except TimeoutError:
        assert page.tab.evaluate(OVERFLOWING) == []
    assert page.hosts - {""} == {url.removeprefix("http://")}
    background = page.tab.locator("[data-testid=stApp]").evaluate("e => getComputedStyle(e).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    ARTIFACTS.mkdir(exist_ok=True)
    page.tab.screenshot(path=ARTIFACTS / f"{part}-{scheme}.png")


def test_a_click_on_the_tree_selects_a_region(open_page: Callable[..., Any], dashboard: Callable[..., str]) -> None:
    page = open_page(dashboard())
    assert page.tree()[2][0] == "residual_rmsnorm"
    grid = page.tab.locator(".st-key-tree .dvn-scroller")
    grid.click(position={"x": 80, "y": 34 + 2 * 31 + 15})
    page.wait_for_address("layer0%2Fresidual_rmsnorm")
    assert page.tab.locator(".st-key-region input").input_value() == f"{ROOT} › layer0 › residual_rmsnorm"
    assert page.table("metrics")[1][:3] == ["kernel_count", "10", "1"]
    linked = open_page(page.tab.url)
    assert linked.table("metrics") == page.table("metrics")
    page.tab.go_back()
    page.wait_for_address("region=unfused%5C%2FT1%5C%2Fiter")
    page.tab.wait_for_function("document.querySelector('.st-key-metrics tbody tr td:nth-child(2)').textContent == '64'")


def test_refuses_and_waives(
    open_page: Callable[..., Any], dashboard: Callable[..., str], expected: Any, samples: Path
) -> None:
    page = open_page(f"{dashboard()}/?base=decode_unfused&test=decode_unfused_graph")
    assert "Not comparable" in page.tab.locator("[data-testid=stAlert]").text_content()
    assert page.table("mismatches")[1:] == [["graph_mode", "none", "cuda graph", "no"]]
    page.choose("waive", "graph_mode")
    page.wait_for_address("waive=graph_mode")
    page.tab.locator(".st-key-metrics table").wait_for()
    want = expected(samples / "decode_unfused", samples / "decode_unfused_graph", waive=["graph_mode"])
    assert [row[:8] for row in page.table("metrics")[1:]] == want.metrics(ROOT)


def test_names_are_shown_literally(
    open_page: Callable[..., Any], dashboard: Callable[..., str], nsys: Callable[..., Any], tmp_path: Path
) -> None:
    file = f"{HOSTILE[:9]}.sqlite"
    for name, kernel in ((file, HOSTILE), ("plain.sqlite", "plain")):
        nsys(file=name).gpu().range(0, 100, HOSTILE).launch((10, 20), (30, 40), name=kernel).write()
    page = open_page(f"{dashboard(str(tmp_path))}/?page=kernels&base={file}&test=plain.sqlite")
    assert page.table("kernels-0-base")[1][:2] == [HOSTILE, "1"]
    assert page.table("kernels-0-test")[1][:2] == ["plain", "1"]
    assert page.tab.locator(".st-key-region input").input_value() == HOSTILE
    for part in ("Timeline", "Gaps", "Memory and math", "Occupancy", "Data", "Overview"):
        page.part(part)
        assert page.tab.locator(".stMainBlockContainer").locator("b, img, a[href*=example], .katex").count() == 0
    assert page.tree()[0][0] == HOSTILE
    assert page.tab.locator("h2").text_content() == f"{file} → plain.sqlite"


def test_a_file_that_cannot_be_used_leaves_the_page_usable(
    open_page: Callable[..., Any], dashboard: Callable[..., str], samples: Path, tmp_path: Path
) -> None:
    whole = (samples / "decode_fused" / "timeline.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "whole.sqlite").write_bytes(whole)
    page = open_page(dashboard(str(tmp_path)))
    alert = page.tab.locator("[data-testid=stAlert]")
    for word in ("Cannot use cut.sqlite", "expected: ", "found: ", "remedy: "):
        assert word in alert.text_content()
    page.choose("base", "whole.sqlite")
    page.wait_for_address("base=whole.sqlite")
    page.tab.locator(".st-key-findings table").wait_for()
    assert alert.count() == 0


def test_a_good_and_a_broken_file_are_uploaded(
    open_page: Callable[..., Any], dashboard: Callable[..., str], samples: Path, tmp_path: Path
) -> None:
    page = open_page(f"{dashboard()}/?page=data")
    whole = (samples / "decode_fused" / "timeline.sqlite").read_bytes()
    (tmp_path / "mine.sqlite").write_bytes(whole)
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    counters = SAMPLES / "swiglu_t1_one_kernel_spilling" / "spilling.ncu-rep"
    page.tab.locator(".st-key-upload input[type=file]").set_input_files(
        [tmp_path / "mine.sqlite", tmp_path / "cut.sqlite", counters]
    )
    alert = page.tab.locator("[data-testid=stAlert]")
    alert.wait_for()
    for word in ("Cannot use cut.sqlite", "expected: ", "found: ", "remedy: "):
        assert word in alert.text_content()
    uploaded = page.tab.locator(".st-key-muted-uploaded").text_content()
    assert "mine.sqlite" in uploaded
    assert "spilling.ncu-rep" in uploaded
    page.choose("test", "uploaded: mine.sqlite")
    page.wait_for_address("test=uploaded")
    page.part("Overview")
    assert page.table("metrics")[1][:3] == ["kernel_count", "64", "24"]
    other = open_page(page.tab.url)
    assert other.tab.locator(".st-key-test input").input_value() == "decode_fused", "an upload is of one session alone"


def test_what_is_taken_away_is_what_the_command_writes(
    open_page: Callable[..., Any], dashboard: Callable[..., str], expected: Any, samples: Path
) -> None:
    page = open_page(f"{dashboard()}/?page=data&base=decode_unfused&test=decode_fused")
    want = expected(samples / "decode_unfused", samples / "decode_fused")
    found = {}
    for label in ("HTML report", "JSON", "CSV of regions"):
        with page.tab.expect_download() as download:
            page.tab.get_by_role("button", name=label, exact=True).click()
        found[label] = Path(download.value.path()).read_text()
    told = json.loads(found["JSON"])
    assert told["regions"] == want.data["regions"]
    assert told["answer"] == want.data["answer"]
    assert found["HTML report"].startswith("<!doctype html>")
    assert "Fusion helped decode" in found["HTML report"]
    assert found["CSV of regions"].splitlines()[0].startswith("path,")
    assert len(found["CSV of regions"].splitlines()) > 100

    page.part("Kernels")
    with page.tab.expect_download() as download:
        page.tab.get_by_role("button", name="Download CSV").click()
    rows = pd.read_csv(download.value.path())
    groups = want.pair(ROOT)["kernels"]
    for side in ("base", "test"):
        totals = [kernel for group in groups for kernel in group[side]]
        for name in ("count", "busy_ns"):
            assert rows[f"{side}_{name}"].sum() == sum(kernel[name] for kernel in totals)
    assert rows["kernel"].nunique() == len({kernel["name"] for g in groups for kernel in (*g["base"], *g["test"])})


def test_a_chart_is_taken_away_by_keyboard(open_page: Callable[..., Any], dashboard: Callable[..., str]) -> None:
    page = open_page(f"{dashboard()}/?page=gaps")
    page.tab.locator("[data-testid=stVegaLiteChart] :is(svg, canvas)").first.wait_for()
    button = page.tab.get_by_role("button", name="Download as PNG").first
    button.focus()
    with page.tab.expect_download() as download:
        page.tab.keyboard.press("Enter")
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["no_nvtx.sqlite", "no_device.sqlite", "many.sqlite", "counters.csv"])
def test_no_trace_breaks_a_part_in_the_browser(
    open_page: Callable[..., Any], dashboard: Callable[..., str], odd: Path, name: str
) -> None:
    page = open_page(f"{dashboard(str(odd))}/?base={name}&test={name}")
    for part in PARTS.values():
        page.part(part.title)
        assert page.tab.locator("[data-testid=stException]").count() == 0
        assert page.tab.locator(".stMainBlockContainer").text_content()
    ARTIFACTS.mkdir(exist_ok=True)
    page.part("Gaps")
    page.tab.screenshot(path=ARTIFACTS / f"gaps-{Path(name).stem}.png")


def test_a_deep_link_opens_the_window_that_was_looked_at(
    open_page: Callable[..., Any], dashboard: Callable[..., str]
) -> None:
    page = open_page(f"{dashboard()}/?page=timeline&base=decode_unfused&test=decode_fused")
    words = "document.querySelector('.st-key-window [data-testid=stText]').textContent"
    for button in ("Zoom in", "Later"):
        before, address = page.tab.evaluate(words), page.tab.url
        page.tab.get_by_role("button", name=button).click()
        page.tab.wait_for_function(f"before => {words} !== before", arg=before)
        page.tab.wait_for_url(lambda url, address=address: url != address and "from=" in url)
    page.settle()
    shown = page.tab.locator(".st-key-window [data-testid=stText]").text_content()
    linked = open_page(page.tab.url)
    assert linked.tab.locator(".st-key-window [data-testid=stText]").text_content() == shown
    assert not shown.startswith("\N{MINUS SIGN}20.8 us")


def test_the_keyboard_reaches_the_parts(open_page: Callable[..., Any], dashboard: Callable[..., str]) -> None:
    page = open_page(dashboard())
    page.tab.get_by_role("radio", name="Overview").focus()
    page.tab.keyboard.press("ArrowRight")
    page.tab.keyboard.press("Enter")
    page.wait_for_address("page=timeline")
