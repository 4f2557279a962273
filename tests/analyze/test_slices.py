"""Windows of a timeline: however much is merged, counts and busy time are exact; and what a slice says is so."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import pipeline
from tracekit.analyze import slices
from tracekit.analyze.intervals import Cover
from tracekit.analyze.slices import Group, Track, Tracks, call_role, operation_role
from tracekit.model.tables import GAP_PARTS
from tracekit.model.timeline import Lane

SAMPLES = Path(__file__).parents[1] / "captures"

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=40)
WINDOWS = st.tuples(st.integers(-5, 80), st.integers(1, 70)).map(lambda w: (w[0], w[0] + w[1]))


def track(intervals: list[tuple[int, int]]) -> Track:
    start = np.array([begin for begin, _ in intervals], np.int64)
    end = start + np.array([length for _, length in intervals], np.int64)
    number = np.arange(len(start))
    return Track.of(Lane("operations"), start, end, number, number % 3)


def touches(begin: int, length: int, low: int, high: int) -> bool:
    return begin < high and (begin + length > low or begin >= low)


def covered(intervals: list[tuple[int, int]], low: int, high: int) -> set[int]:
    return {t for begin, length in intervals for t in range(begin, begin + length) if low <= t < high}


@given(INTERVALS, WINDOWS, st.integers(1, 60))
def test_counts_and_busy_time_of_any_window_are_exact(
    intervals: list[tuple[int, int]], window: tuple[int, int], marks: int
) -> None:
    low, high = window
    cut = track(intervals).cut(low, high, marks)
    assert cut.busy.sum() == len(covered(intervals, low, high))
    assert cut.count.sum() == len(cut.rows) == sum(touches(*one, low, high) for one in intervals)
    assert (cut.count > 0).all()
    assert (cut.busy >= 0).all()
    assert ((low <= cut.start) & (cut.start <= cut.end) & (cut.end <= high)).all()
    assert len(cut.count) <= max(3, marks)


@given(INTERVALS, WINDOWS)
def test_what_a_pixel_can_hold_stands_alone(intervals: list[tuple[int, int]], window: tuple[int, int]) -> None:
    low, high = window
    own = track(intervals)
    cut = own.cut(low, high, marks=3 * 20)
    alone = cut.row >= 0
    assert (alone == (cut.count == 1)).all()
    row = cut.row[alone]
    assert (cut.start[alone] == np.maximum(own.start[row], low)).all()
    assert (cut.end[alone] == np.minimum(own.end[row], high)).all()
    # Merged rows are narrower than a pixel each: those of an own time of a pixel are all alone.
    own_time = np.clip(own.reach, low, high) - np.clip(own.begin, low, high)
    wide = set(np.flatnonzero(own_time * 20 >= high - low).tolist()) & set(cut.rows.tolist())
    assert wide <= set(row.tolist())


@given(INTERVALS, WINDOWS, st.booleans())
def test_a_merged_slice_is_told_by_the_group_with_the_most_time(
    intervals: list[tuple[int, int]], window: tuple[int, int], sparse: bool
) -> None:
    low, high = window
    own = track(intervals)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "_DENSE", 0 if sparse else 4_000_000)
        cut = own.cut(low, high, marks=9)
    own_time = np.clip(own.reach, low, high) - np.clip(own.begin, low, high)
    for rows, group, share in zip(np.split(cut.rows, cut.first[1:]), cut.group, cut.share, strict=False):
        sums = [int(own_time[rows[own.group[rows] == g]].sum()) for g in range(3)]
        if sum(sums):
            assert sums[group] == max(sums)
            assert share == max(sums) / sum(sums)
        else:
            assert np.isnan(share)


@lru_cache
def tracks(name: str) -> Tracks:
    found = Tracks.of(pipeline.report(SAMPLES / name).frames)
    assert found is not None
    return found


def a_bundle() -> str:
    return sorted(path.parent.name for path in SAMPLES.glob("*/manifest.json"))[0]


@settings(deadline=None, max_examples=40)
@given(st.floats(-0.1, 1.1), st.floats(1e-4, 1.2), st.integers(3, 900))
def test_the_lanes_of_a_view_sum_to_the_report_frames(begin: float, length: float, marks: int) -> None:
    found = tracks(a_bundle())
    whole = found.find(None)
    span = whole.end_ns - whole.start_ns
    low = whole.start_ns + int(begin * span)
    high = low + max(1, int(length * span))
    view = found.view(low, high, place=whole, marks=marks)
    for number, lane in enumerate(view.lanes):
        table = view.gaps if lane.kind == "gaps" else view.slices
        own = table[table["lane"] == number]
        assert own["row_count"].sum() == lane.count
        assert own["busy_ns"].sum() == lane.busy_ns
        assert len(own) <= max(3, marks)
    operations = found.frames["operations"]
    streams = [lane for lane in view.lanes if lane.kind == "operations"]
    inside = operations[(operations["start_ns"] < high) & (operations["end_ns"] > low)]
    assert sum(lane.count for lane in streams) == len(inside)
    cover = Cover.of(inside["start_ns"].to_numpy().clip(low, high), inside["end_ns"].to_numpy().clip(low, high))
    if len(streams) == 1:
        assert streams[0].busy_ns == cover.before[-1]
    gap_start = operations["start_ns"] - operations["gap_ns"]
    idle = (operations["start_ns"].clip(low, high) - gap_start.clip(low, high)).sum()
    assert sum(lane.busy_ns for lane in view.lanes if lane.kind == "gaps") == idle
    bins = found.activity(low, high, 50)
    edges = low + np.arange(51) * (high - low) // 50
    if bins.ratio:
        busy = float((np.array(bins.ratio) * np.diff(edges)).sum())
        assert busy == pytest.approx(float(cover.before[-1]), rel=1e-9, abs=1e-3)


def test_a_single_slice_tells_what_its_tables_tell() -> None:
    found = tracks(a_bundle())
    place = next(place for path in found.places.rows if (place := found.find(path)) is not None)
    view = found.view(place.start_ns, place.end_ns, place=place)
    operations, launches = found.frames["operations"], found.frames["launches"].set_index("launch")
    single = view.slices[view.slices["row"].notna() & view.slices["role"].isin(["kernel"]).to_numpy()]
    assert len(single) > 5
    for _, row in single.iterrows():
        operation = operations.iloc[int(row["row"])]
        launch = launches.loc[operation["launch"]]
        assert row["name"] == operation["name"]
        assert row["duration_ns"] == operation["end_ns"] - operation["start_ns"]
        for name in ("grid_x", "block_y", "registers_count", "dynamic_smem_bytes"):
            assert row[name] == launch[name]
    gaps = view.gaps[view.gaps["row"].notna()]
    assert len(gaps) > 5
    for _, row in gaps.iterrows():
        operation = operations.iloc[int(row["row"])]
        parts = [f"gap_{part}_ns" for part in GAP_PARTS]
        assert row[parts].tolist() == operation[parts].tolist()
        assert row["end_ns"] - row["start_ns"] == operation["gap_ns"] == row[parts].sum()


def test_dram_bytes_are_those_of_the_nearest_region_that_was_profiled() -> None:
    known = {(3, ("step",)): (10.0, 2.0, "cold"), (3, ("step", "a")): (11.0, None, None)}
    assert slices._nearest(known, 3, ("step", "a", "b")) == (11.0, None, None)
    assert slices._nearest(known, 3, ("step", "c")) == (10.0, 2.0, "cold")
    assert slices._nearest(known, 3, ("other",)) == slices._nearest(known, 4, ("step",)) == (None, None, None)


def report_tracks(file: Any) -> Tracks:
    found = Tracks.of(pipeline.report(file.write()).frames)
    assert found is not None
    return found


def test_lanes_are_threads_streams_and_devices(nsys: Callable[..., Any]) -> None:
    file = nsys().gpu(0).gpu(1)
    file.range(0, 1000, "step").range(10, 400, "inner").range(0, 900, "worker", thread=102)
    file.launch((20, 30), (40, 140)).launch((31, 35), (100, 200), stream=8)
    file.launch((500, 510), (600, 700), thread=102, device=1)
    view = report_tracks(file).view(0, 1000)
    kinds = [(lane.kind, lane.depth, lane.device_id, lane.stream) for lane in view.lanes]
    assert kinds == [
        ("ranges", 0, None, None), ("ranges", 1, None, None), ("calls", None, None, None),
        ("ranges", 0, None, None), ("calls", None, None, None),
        ("operations", None, 0, 7), ("operations", None, 0, 8), ("operations", None, 1, 7),
    ]  # fmt: skip
    assert [lane.thread and lane.thread & 0xFFFFFF for lane in view.lanes][:5] == [101, 101, 101, 102, 102]
    assert [lane.busy_ns for lane in view.lanes] == [1000, 390, 14, 900, 10, 100, 100, 100]
    inner = view.slices[view.slices["lane"] == 5].iloc[0]
    assert inner["path"] == ("step", "inner")


def test_what_has_no_lane_is_counted(nsys: Callable[..., Any]) -> None:
    file = nsys()
    for number in range(7):
        file.gpu(number)
        file.launch((10 + number, 20 + number), (40, 50 + number), thread=110 + number, device=number)
        file.launch((30, 31), (60, 70), stream=20 + number)
    for depth in range(9):
        file.range(depth, 1000 - depth, f"level {depth}")
    view = report_tracks(file).view(0, 1000)
    left = view.left_out
    assert (left.threads, left.depths, left.devices) == (8 - slices.THREADS, 9 - slices.DEPTHS, 7 - slices.DEVICES)
    assert left.streams == 8 - slices.STREAMS
    assert sum(lane.kind == "operations" for lane in view.lanes) == slices.STREAMS + slices.DEVICES - 1


def test_the_nodes_of_a_graph_are_operations_of_its_launch(nsys: Callable[..., Any]) -> None:
    file = nsys("2024.5").gpu().range(0, 1000, "step")
    file.call(10, 30, "cudaGraphLaunch_v10000", correlation=7)
    for at in range(3):
        file.kernel(100 + 20 * at, 110 + 20 * at, correlation=7, graph_node=at + 1)
    view = report_tracks(file).view(0, 1000)
    own = view.slices[view.slices["lane"] == 2]
    assert [lane.kind for lane in view.lanes] == ["ranges", "calls", "operations", "gaps"]
    assert own["row_count"].sum() == 3
    assert set(own["path"]) == {("step",)}
    assert view.gaps["gap_in_graph_ns"].sum() == view.gaps["busy_ns"].sum() == 20


def test_roles() -> None:
    assert [call_role(n) for n in ("cudaLaunchKernel", "cuGraphLaunch", "cudaStreamSynchronize", "cudaMemcpy")] == [
        "launch", "launch", "sync", "sync",
    ]  # fmt: skip
    assert call_role("cudaMalloc") == call_role("cudaMemcpyAsync") == "other"
    assert operation_role("copy", "[memset]") == "memset"
    assert operation_role("copy", "[memcpy HtoD]") == "copy"
    assert operation_role("graph", "[CUDA graph]") == "graph"
    assert Group("a", None, "other").path is None


def test_a_capture_without_a_timeline_has_no_tracks(samples: Path) -> None:
    counters = next(samples.glob("*/*.ncu.csv"))
    assert pipeline.timeline(pipeline.report(counters)) is None


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        tracks(a_bundle()).view(5, 5)


# Places


def test_the_median_instance_is_the_lower_median_of_the_wall(nsys: Callable[..., Any]) -> None:
    file = nsys().gpu()
    for at, length in ((0, 500), (1000, 100), (2000, 300), (3000, 200)):
        file.range(at, at + length, "step").launch((at + 10, at + 20), (at + 30, at + 40))
    found = report_tracks(file)
    place = found.find(("step",))
    assert (place.instance, place.instances, place.measure, place.value_ns) == (3, 4, "wall_ns", 200)
    assert (place.origin_ns, place.start_ns, place.end_ns) == (3000, 3000, 3200)
    assert found.find(("step",), 0).value_ns == 500
    assert found.find(("step",), 4) is found.find(("other",)) is None
    instances = found.frames["instances"]
    assert place.value_ns == instances["wall_ns"].sort_values().iloc[1]


def test_a_place_holds_its_work_on_the_device(nsys: Callable[..., Any]) -> None:
    file = nsys().gpu().range(100, 1000, "step").range(150, 200, "inner").launch((160, 170), (500, 700))
    place = report_tracks(file).find(("step", "inner"))
    assert (place.origin_ns, place.start_ns, place.end_ns) == (150, 150, 700)
    assert place.measure == "device_ns"
    assert place.thread is not None


def test_a_region_without_device_work_is_placed_by_its_range(nsys: Callable[..., Any]) -> None:
    file = nsys().gpu().range(100, 1000, "step").range(150, 250, "host only").launch((260, 270), (500, 700))
    place = report_tracks(file).find(("step", "host only"))
    assert (place.start_ns, place.end_ns) == (150, 250)


def test_steps_found_without_ranges_have_places(nsys: Callable[..., Any]) -> None:
    reports = []
    for side in ("base", "test"):
        file = nsys(file=f"{side}.sqlite").gpu()
        for step in range(6):
            for number, name in enumerate(("a", "b", "c")):
                at = 1000 * step + 50 * number
                file.launch((at, at + 5), (at + 10, at + 40), name=name)
        reports.append(pipeline.report(file.write()))
    comparison = pipeline.diff(*reports)
    assert comparison.matching == "steps"
    pair = pipeline.main_region(comparison)
    sources = {"base": pipeline.timeline(comparison.base), "test": pipeline.timeline(comparison.test)}
    places = pipeline.places(comparison, pair, sources, {"base": 1})
    assert places["base"].instance == 1
    assert places["base"].instances == pair.base_instances
    assert {place.path for place in places.values()} == {pair.base_path}
    assert places["base"].end_ns - places["base"].start_ns == 30 + 2 * 50


def test_a_region_of_one_side_is_stood_in_for_by_the_one_around_it(nsys: Callable[..., Any]) -> None:
    files = [nsys(file=f"{side}.sqlite").gpu() for side in ("base", "test")]
    for file in files:
        for at in (0, 1000):
            file.range(at, at + 900, "step").launch((at + 20, at + 30), (at + 40, at + 50))
    files[0].range(10, 100, "only base")
    comparison = pipeline.diff(*(file.write() for file in files))
    pair = next(pair for pair in comparison.regions if pair.path == ("step", "only base"))
    sources = {"base": pipeline.timeline(comparison.base), "test": pipeline.timeline(comparison.test)}
    places = pipeline.places(comparison, pair, sources, {})
    assert {side: place.path for side, place in places.items()} == {"base": ("step", "only base"), "test": ("step",)}
    everything = pipeline.places(comparison, None, sources, {})
    assert {place.path for place in everything.values()} == {None}
