"""Deltas, ratios, cache states, conditions and the five rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.compare.comparison import change
from tracekit.errors import NotComparableError, UsageError
from tracekit.model.report import Metric, Report
from tracekit.model.tables import REGION_METRICS

SAMPLES = Path(__file__).parents[1] / "captures"


@pytest.fixture(scope="module")
def unfused() -> Report:
    return pipeline.report(SAMPLES / "decode_unfused")


@pytest.fixture(scope="module")
def fused() -> Report:
    return pipeline.report(SAMPLES / "decode_fused")


def conditioned(report: Report, **conditions: object) -> Report:
    return replace(report, capture={**report.capture, "conditions": {**report.capture["conditions"], **conditions}})


def test_a_delta_is_test_minus_base_and_zero_has_no_ratio() -> None:
    made = change("kernel_count", Metric(4, "count"), Metric(3, "count"))
    assert (made.delta, made.ratio, made.better) == (-1, 0.75, "lower")
    assert change("copy_count", Metric(0, "count"), Metric(3, "count")).ratio is None


@pytest.mark.parametrize("missing", [None, Metric(None, "ns")])
def test_a_missing_side_makes_no_difference(missing: Metric | None) -> None:
    made = change("busy_ns", Metric(4, "ns"), missing)
    assert (made.base, made.test, made.delta, made.ratio) == (4, None, None, None)


def test_words_are_compared_by_nobody() -> None:
    made = change("occupancy_limiter", Metric("registers", "text"), Metric("grid", "text"))
    assert (made.base, made.test, made.delta) == ("registers", "grid", None)


def dram(**kinds: float) -> Metric:
    by_kind = {kind: Metric(value, "bytes", kind=kind) for kind, value in kinds.items()}
    first = next(iter(by_kind.values()))
    return replace(first, kinds=by_kind)


def test_dram_bytes_are_compared_in_a_kind_that_both_sides_have() -> None:
    made = change("dram_read_bytes", dram(in_model=10, cold=20), dram(cold=15, replay_warm=1))
    assert (made.base, made.test, made.delta, made.kind) == (20, 15, -5, "cold")


def test_dram_bytes_of_different_kinds_are_never_subtracted() -> None:
    made = change("dram_read_bytes", dram(in_model=10), dram(cold=15))
    assert (made.base, made.test, made.delta, made.ratio) == (10, 15, None, None)


def test_every_metric_carries_its_declared_direction(unfused: Report, fused: Report) -> None:
    for pair in pipeline.diff(unfused, fused).regions:
        for name, made in pair.metrics.items():
            assert made.better == REGION_METRICS[name].better
            assert made.unit == REGION_METRICS[name].unit


@pytest.mark.parametrize("name", ["dtype", "batch", "input_tokens", "graph_mode", "model"])
def test_a_differing_condition_is_refused_by_name_unless_waived(name: str, unfused: Report, fused: Report) -> None:
    other = conditioned(fused, **{name: "another"})
    with pytest.raises(NotComparableError) as caught:
        pipeline.diff(unfused, other)
    assert caught.value.exit_code == 3
    assert name in caught.value.message
    assert f"--waive {name}" in caught.value.remedy
    waived = pipeline.diff(unfused, other, waive=[name])
    assert [m.condition for m in waived.mismatches] == [name]
    assert waived.mismatches[0].waived
    assert any(name in note for note in waived.notes)


def test_a_different_gpu_is_refused_even_for_bare_files(unfused: Report, fused: Report) -> None:
    bare = replace(fused, capture={**fused.capture, "conditions": {}, "gpus": [{"name": "NVIDIA B200"}]})
    with pytest.raises(NotComparableError, match="gpu"):
        pipeline.diff(unfused, bare)


def test_what_is_not_known_is_listed(unfused: Report, fused: Report) -> None:
    bare = replace(fused, capture={**fused.capture, "conditions": {}})
    comparison = pipeline.diff(unfused, bare)
    assert comparison.comparable
    assert {"model", "dtype", "batch"} <= set(comparison.unknown)
    assert "gpu" not in comparison.unknown


def test_an_unknown_waiver_lists_the_conditions(unfused: Report, fused: Report) -> None:
    with pytest.raises(UsageError, match="graph_mode"):
        pipeline.diff(unfused, fused, waive=["weather"])


def test_the_five_rows_cite_the_figures(unfused: Report, fused: Report) -> None:
    comparison = pipeline.diff(unfused, fused)
    rows = pipeline.findings(comparison)
    assert len(rows) == 5
    launches, dram_row, _, blocks, latency = rows
    assert launches.base == "64 kernels, 604.9 us idle"
    assert launches.meaning.startswith("40 fewer kernels")
    assert dram_row.base == "1,411.7 MB read, 29.2 MB written"
    assert "about the same" in dram_row.meaning
    assert "spills unknown" in blocks.test
    assert latency.delta == "\N{MINUS SIGN}262.1 us (\N{MINUS SIGN}34.9 %)"


def test_drift_is_said_when_shared_kernels_changed(unfused: Report, fused: Report) -> None:
    assert "no drift" in pipeline.diff(unfused, fused).drift.sentence
    launches = fused.frames["launches"]
    slower = replace(fused, frames={**fused.frames, "launches": launches.assign(median_ns=launches["median_ns"] * 1.1)})
    drift = pipeline.diff(unfused, slower).drift
    assert drift.ratio == pytest.approx(1.1, abs=0.02)
    assert "no drift" not in drift.sentence


def test_a_sliver_of_shared_time_is_no_drift_control(fused: Report) -> None:
    drift = pipeline.diff(fused, pipeline.report(SAMPLES / "decode_spilling")).drift
    assert drift.kernels == 1
    assert "too little to tell" in drift.sentence


def test_bare_results_of_unknown_cache_state_are_not_subtracted_and_a_note_says_why() -> None:
    bare = [pipeline.report(SAMPLES / name / "cold.ncu.csv") for name in ("decode_unfused", "decode_fused")]
    comparison = pipeline.diff(*bare)
    root = comparison.regions[0]
    assert root.metrics["dram_read_bytes"].base == 1_411_702_784
    assert root.metrics["dram_read_bytes"].delta is None
    assert any("cache state" in note for note in root.notes)
    assert "gpu" not in comparison.unknown
    told = [pipeline.report(SAMPLES / name, counters=()) for name in ("decode_unfused", "decode_fused")]
    assert pipeline.diff(*told).regions[0].metrics["dram_read_bytes"].delta == 1_410_403_328 - 1_411_702_784
