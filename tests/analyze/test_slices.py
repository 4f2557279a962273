"""Windows of a timeline: counts and times are conserved at every resolution, and gaps keep their cause."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit import pipeline
from tracekit.analyze.slices import DIRECT, OUTSIDE, Lane, _cut, cut, density, lanes, window_of
from tracekit.model.report import Window

ENTRIES = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 300)), max_size=60)


def lane(entries: list[tuple[int, int]]) -> Lane:
    start = np.array([begin for begin, _ in entries], np.int64)
    length = np.array([size for _, size in entries], np.int64)
    return Lane.of("a", "operations", start, start + length, np.arange(len(entries)))


@given(ENTRIES, st.integers(0, 2200), st.integers(1, 2400), st.integers(1, 50))
def test_counts_and_times_are_conserved(entries, low, length, most):
    high = low + length
    start, end, _, count, busy = _cut(lane(entries), low, high, most)
    inside = [(max(b, low), min(b + n, high)) for b, n in entries if b < high and b + n > low]
    assert count.sum() == len(inside)
    assert busy.sum() == sum(e - b for b, e in inside)
    assert (start >= low).all()
    assert (end <= high).all()
    assert (count >= 1).all()
    assert (busy[count == 1] == (end - start)[count == 1]).all()


@given(ENTRIES, st.integers(1, 20))
def test_what_is_wide_enough_stays_a_slice_of_its_own(entries, most):
    start, end, _, count, _ = _cut(lane(entries), 0, 2400, most)
    part = -(-2400 // most)
    for begin, size in entries:
        if size >= part:
            assert any((s, e, c) == (begin, begin + size, 1) for s, e, c in zip(start, end, count, strict=True))


@pytest.fixture(scope="module")
def decode(samples):
    report = pipeline.report(samples / "decode_unfused")
    return report, lanes(report)


def test_the_median_step_of_a_capture(decode):
    report, drawn = decode
    path = ("unfused/T1/iter",)
    window = window_of(report, drawn, path)
    walls = report.frames["instances"].query("depth == 0")["wall_ns"].to_list()
    assert window.end_ns - window.start_ns == sorted(walls)[(len(walls) - 1) // 2]
    assert (walls[window.instance], window.instances) == (window.end_ns - window.start_ns, 20)
    shown = cut(report, drawn, window, path)
    work = shown.frame[shown.frame["kind"] == "operations"]
    assert work["count"].sum() == 64
    assert set(work["group"]) == {"layer0", "layer1", "layer2", "layer3"}
    assert shown.frame["start_ns"].min() == 0
    first = work.iloc[0]
    kernel = report.frames["kernels"].iloc[
        report.frames["operations"].query("start_ns >= @window.start_ns").iloc[0]["source_id"]
    ]
    assert (first["name"], first["registers_count"]) == (kernel["name"], kernel["registers_count"])
    assert first["grid"] == f"{kernel['grid_x']} × {kernel['grid_y']} × {kernel['grid_z']}"


def test_gaps_are_those_of_the_analysis(decode):
    report, drawn = decode
    whole = Window(drawn.start_ns, drawn.end_ns, None, 0)
    gaps = cut(report, drawn, whole, None, most=10**6).frame.query("kind == 'gaps'")
    operations = report.frames["operations"]
    assert gaps["busy_ns"].sum() == operations["gap_ns"].sum()
    assert len(gaps) == (operations["gap_ns"] > 0).sum()
    by_cause = gaps.groupby("name")["busy_ns"].sum()
    assert set(by_cause.index) <= {"host", "sync", "other_call", "launch_call", "launch_latency", "dispatch", "unknown"}


def test_a_long_window_is_merged_and_a_short_one_is_not(decode):
    report, drawn = decode
    whole = Window(drawn.start_ns, drawn.end_ns, None, 0)
    coarse = cut(report, drawn, whole, ("unfused/T1/iter",), most=50).frame
    fine = cut(report, drawn, whole, ("unfused/T1/iter",), most=10**6).frame
    assert len(coarse) < len(fine) / 5
    for kind in ("ranges", "calls", "operations", "gaps"):
        both = [frame[frame["kind"] == kind] for frame in (coarse, fine)]
        assert both[0]["count"].sum() == both[1]["count"].sum()
        assert both[0]["busy_ns"].sum() == both[1]["busy_ns"].sum()
    assert coarse.loc[coarse["count"] > 1, "grid"].isna().all()


def test_groups_are_the_regions_inside_the_chosen_one(decode):
    report, drawn = decode
    window = window_of(report, drawn, ("unfused/T1/iter", "layer1"))
    shown = cut(report, drawn, window, ("unfused/T1/iter", "layer1"))
    groups = set(shown.frame.query("kind == 'operations'")["group"])
    assert {"residual_rmsnorm", "swiglu_ffn"} <= groups <= {"residual_rmsnorm", "swiglu_ffn", DIRECT, OUTSIDE}


def test_how_busy_the_device_is_adds_up(decode):
    report, drawn = decode
    whole = Window(drawn.start_ns, drawn.end_ns, None, 0)
    parts = density(drawn, whole, bins=37)
    busy = ((parts["end_ns"] - parts["start_ns"]) * parts["busy_ratio"]).sum()
    operations = report.frames["operations"]
    assert busy == pytest.approx((operations["end_ns"] - operations["start_ns"]).sum(), rel=1e-9)
    assert parts["busy_ratio"].between(0, 1).all()


def test_a_capture_without_a_timeline_has_no_lanes(samples):
    report = pipeline.report(samples / "decode_unfused" / "cold.ncu.csv")
    drawn = lanes(report)
    assert (drawn.lanes, drawn.notes) == ((), ("there is no timeline in this capture",))
    assert not len(cut(report, drawn, window_of(report, drawn, None), None).frame)


def test_streams_and_threads_beyond_the_drawn_ones_are_told(nsys):
    file = nsys().gpu()
    for stream in range(12):
        file.launch((10 * stream, 10 * stream + 2), (20 * stream + 300, 20 * stream + 310), stream=stream)
    file.write()
    report = pipeline.report(file.path)
    drawn = lanes(report)
    assert sum(lane.kind == "operations" for lane in drawn.lanes) == 8
    assert any("4 of 12 streams are not drawn" in note for note in drawn.notes)
