"""Text: hostile names are shown literally, missing is a dash, and nothing is computed here."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tracekit import pipeline
from tracekit.model.report import Region, Report
from tracekit.model.units import MISSING, write, write_change
from tracekit.render.text import diff_text, gaps_text, show_text

SAMPLES = Path(__file__).parents[1] / "captures"
HOSTILE = ("[red]layer[/red]", ":warning: a::b::c", "$x^2$", "λ\nnew line", "<b>", "a" * 400)


@pytest.fixture(scope="module")
def report() -> Report:
    return pipeline.report(SAMPLES / "decode_unfused")


def printed(renderable: object, width: int = 160) -> str:
    file = io.StringIO()
    Console(file=file, width=width, markup=False, emoji=False, highlight=False).print(renderable)
    return file.getvalue()


def test_show_prints_the_tree_with_its_figures(report: Report) -> None:
    text = printed(show_text(report))
    line = next(line for line in text.splitlines() if "unfused/T1/iter" in line)
    for figure in ("64", "437.7 us", "604.9 us", "1,411.7 MB", "registers and shared"):
        assert figure in line
    assert "1,280 of 1,280 device operations are inside a range" in text


def test_depth_cuts_the_tree(report: Report) -> None:
    text = printed(show_text(report, depth=1))
    assert "unfused/T1/iter" in text
    assert "layer0" not in text


def test_a_hostile_name_is_shown_as_it_is(report: Report) -> None:
    regions = tuple(Region((name,), 1, report.regions[0].metrics) for name in HOSTILE)
    text = printed(show_text(replace(report, regions=regions)), width=900)
    for name in HOSTILE[:3]:
        assert name in text


def test_a_comparison_prints_the_five_rows_first(report: Report) -> None:
    comparison = pipeline.diff(report, pipeline.report(SAMPLES / "decode_fused"))
    rows = pipeline.findings(comparison)
    text = printed(diff_text(comparison, rows, pipeline.main_region(comparison)))
    assert text.index("Full request latency") < text.index("Regions (medians over instances)")
    assert "replaced" in text


def test_gaps_print_causes_that_sum_to_the_idle_time(report: Report) -> None:
    data = pipeline.idle_report(report)
    assert sum(data["parts"].values()) == sum(device["gap_ns"] for device in data["devices"])
    assert sum(bin_["gap_ns"] for bin_ in data["histogram"]) == data["devices"][0]["gap_ns"]
    assert sum(bin_["gaps"] for bin_ in data["histogram"]) == data["devices"][0]["gaps"]
    text = printed(gaps_text(data))
    assert write(data["devices"][0]["gap_ns"], "ns") in text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (437_738.5, "ns", "437.7 us"),
        (2_500_000_000, "ns", "2.500 s"),
        (1_411_702_784, "bytes", "1,411.7 MB"),
        (30_720, "bytes", "30.7 kB"),
        (4_096, "bytes", "4,096 B"),
        (0.259, "ratio", "25.9 %"),
        (64, "count", "64"),
        (64.5, "count", "64.5"),
        (0, "count", "0"),
        (None, "ns", MISSING),
        ("registers", "text", "registers"),
    ],
)
def test_figures_are_written_with_their_unit(value: float | str | None, unit: str, text: str) -> None:
    assert write(value, unit) == text


def test_changes_are_signed() -> None:
    assert write(-40, "count", signed=True) == "\N{MINUS SIGN}40"
    assert write(1000, "ns", signed=True) == "+1.0 us"
    assert write_change(0.86) == "\N{MINUS SIGN}14.0 %"
    assert write_change(None) == MISSING


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert write_change(0.99999) == write_change(1.00001) == write_change(1.0) == "0.0 %"
    assert write(-3, "ns", signed=True) == "0.0 us"


def test_escape_sequences_never_reach_the_terminal(report: Report) -> None:
    name = "\x1b[2Jgone\x07\u202e\x9b"
    hostile = replace(report, regions=(Region((name,), 1, report.regions[0].metrics),), notes=(name,))
    text = printed(show_text(hostile), width=300)
    assert not any(code in text for code in "\x1b\x07\u202e\x9b")
    assert "\\x1b[2Jgone\\x07" in text


def test_a_threshold_leaves_gaps_out_and_says_how_many(report: Report, tracekit) -> None:
    whole = pipeline.idle_report(report)
    some = pipeline.idle_report(report, at_least_ns=10_000)
    kept = sum(bin_["gaps"] for bin_ in some["histogram"])
    assert 0 < kept < sum(bin_["gaps"] for bin_ in whole["histogram"])
    assert kept + some["filter"]["gaps_left_out"] == sum(bin_["gaps"] for bin_ in whole["histogram"])
    assert some["filter"]["gap_left_out_ns"] + sum(some["parts"].values()) == sum(whole["parts"].values())
    assert whole["filter"]["gaps_left_out"] == 0
    layer = next(region for region in report.regions if region.path[-1] == "layer1")
    inside = pipeline.idle_report(report, within=layer.path)
    assert sum(inside["parts"].values()) == layer.metrics["gap_ns"].sum
    longest = whole["longest"][0]
    assert sum(call["inside_ns"] for call in longest["calls"]) <= longest["gap_ns"]


def test_a_region_that_is_not_there_is_named_with_those_that_are(tracekit) -> None:
    code, out, err = tracekit("gaps", SAMPLES / "decode_fused", "--region", "layer9")
    assert (code, out) == (2, "")
    assert "no region is named 'layer9'" in err
    assert "layer" in err.split("remedy:")[1]
    code, out, _ = tracekit("gaps", SAMPLES / "decode_fused", "--region", r"fused\/T1\/iter/layer1", "--at-least", "5")
    assert code == 0
