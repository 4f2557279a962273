"""Attribution, gaps and the ledger against an oracle that walks the timeline nanosecond by nanosecond."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.analyze.attribution import attribute
from tracekit.analyze.gaps import is_synchronizing, measure
from tracekit.analyze.launches import group_launches
from tracekit.analyze.nesting import nest
from tracekit.analyze.regions import ADDITIVE, LEDGER, roll_up
from tracekit.analyze.report import analyze
from tracekit.model import tables
from tracekit.model.tables import GAP_PARTS, HOST_PARTS
from tracekit.model.trace import Trace

PROCESSES = (1 << 24, 2 << 24)
CALL_NAMES = ("cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpy", "cudaMemcpyAsync", "cudaEventRecord")
LONGEST = 40


@st.composite
def nested(draw, low, high, depth=0):
    """Properly nested (start, end) pairs inside [low, high], as push and pop on one thread and domain make them."""
    out = []
    at = low
    while at < high and draw(st.booleans()) and len(out) < 3:
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        out.append((start, end))
        if depth < 2:
            out += draw(nested(start, end, depth + 1))
        at = end
    return out


@st.composite
def traces(draw):
    ranges, calls, kernels, copies = [], [], [], []
    for process in PROCESSES[: draw(st.integers(1, 2))]:
        correlation = 0
        for thread in (process + 1, process + 2)[: draw(st.integers(1, 2))]:
            for domain in ("", "tracekit"):
                ranges += [
                    (domain, draw(st.sampled_from("abc")), thread, s, e, False) for s, e in draw(nested(0, LONGEST))
                ]
            for _ in range(draw(st.integers(0, 2))):
                start = draw(st.integers(0, LONGEST))
                ranges.append(("", draw(st.sampled_from("xy")), thread, start, draw(st.integers(start, LONGEST)), True))
            at = 0
            for _ in range(draw(st.integers(0, 6))):
                start = draw(st.integers(at, at + 4))
                at = end = draw(st.integers(start, start + 6))
                name = draw(st.sampled_from(CALL_NAMES))
                calls.append((name, thread, correlation, start, end))
                for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
                    began = start + draw(st.integers(0, 12))
                    node = draw(st.none() | st.just(7)) if name == "cudaLaunchKernel" else None
                    ended = began + draw(st.integers(0, 8))
                    device = draw(st.integers(0, 1))
                    row = (process, device, correlation if draw(st.integers(0, 9)) else None, node, began, ended)
                    (kernels if draw(st.booleans()) else copies).append(row)
                correlation += 1
    return build(ranges, calls, kernels, copies)


def build(ranges, calls, kernels, copies) -> Trace:
    """A trace straight from rows, without a file."""
    ranges = sorted(ranges, key=lambda r: r[3])
    calls = sorted(calls, key=lambda r: r[3])
    kernels, copies = (sorted(rows, key=lambda r: r[4]) for rows in (kernels, copies))

    def columns(rows, names):
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    place = ("process", "device_id", "correlation", "graph_node", "start_ns", "end_ns")
    shape = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
    sizes = {"registers_count": 32, "static_smem_bytes": 0, "dynamic_smem_bytes": 0, "context": 1, "stream": 7}
    frames = {
        "ranges": tables.RANGES.conform(
            {
                "range_id": range(len(ranges)),
                **columns(ranges, ("domain", "label", "thread", "start_ns", "end_ns", "start_end")),
                "open": [False] * len(ranges),
            },
            source="test",
        ),
        "calls": tables.CALLS.conform(
            {"call_id": range(len(calls)), **columns(calls, ("name", "thread", "correlation", "start_ns", "end_ns"))},
            source="test",
        ),
        "kernels": tables.KERNELS.conform(
            {
                "kernel_id": range(len(kernels)),
                "name": [f"k{row[4] % 3}" for row in kernels],
                "short_name": ["k"] * len(kernels),
                **columns(kernels, place),
                **{name: [value] * len(kernels) for name, value in {**shape, **sizes}.items()},
            },
            source="test",
        ),
        "copies": tables.COPIES.conform(
            {
                "copy_id": range(len(copies)),
                "name": ["[memset]"] * len(copies),
                **columns(copies, place),
                **{name: [1] * len(copies) for name in ("context", "stream", "copied_bytes")},
            },
            source="test",
        ),
        "gpus": tables.GPUS.conform(
            {"device_id": [0, 1], "ordinal": [0, 1], "sm_count": [132, 132], "cc_major": [9, 9], "cc_minor": [0, 0]},
            source="test",
        ),
    }
    loaders = {name: (lambda frame=frame: frame) for name, frame in frames.items()}
    return Trace(source="test", tool="nsys", has_timeline=True, loaders=loaders)


def innermost(ranges: pd.DataFrame, thread: int, time: int) -> int:
    """The oracle of attribution: of the ranges open on the thread, the one opened last; push/pop before start/end."""
    for start_end in (False, True):
        open_ = [
            (row.start_ns, -row.end_ns, row.range_id)
            for row in ranges.itertuples()
            if row.thread == thread and row.start_end == start_end and row.start_ns <= time < row.end_ns
        ]
        if open_:
            return max(open_)[2]
    return -1


@settings(max_examples=60, deadline=None)
@given(traces())
def test_operations_find_their_call_and_range(trace: Trace) -> None:
    ranges, calls = trace.table("ranges"), trace.table("calls")
    nesting = nest(ranges)
    operations = attribute(trace, nesting)
    assert len(operations) == len(trace.table("kernels")) + len(trace.table("copies"))
    by_id = {(row.thread & ~0xFFFFFF, row.correlation): row for row in calls.itertuples()}
    for at in range(len(operations)):
        source = trace.table(("kernels", "copies")[operations.kind[at]]).iloc[operations.source[at]]
        assert (source["start_ns"], source["end_ns"]) == (operations.start[at], operations.end[at])
        call = None if pd.isna(source["correlation"]) else by_id[source["process"], source["correlation"]]
        assert operations.call[at] == (-1 if call is None else call.call_id)
        expected = -1 if call is None else innermost(ranges, call.thread, call.start_ns)
        assert operations.range[at] == expected


@settings(max_examples=60, deadline=None)
@given(traces())
def test_parents_contain_their_children_and_paths_follow_them(trace: Trace) -> None:
    ranges = trace.table("ranges")
    nesting = nest(ranges)
    seen = defaultdict(int)
    for at in range(len(ranges)):
        row, parent = ranges.iloc[at], nesting.parent[at]
        path = nesting.paths[nesting.path_id[at]]
        assert path[-1] == row["label"]
        assert len(path) == nesting.depth[at] + 1
        assert nesting.instance[at] == seen[path]
        seen[path] += 1
        if parent < 0:
            assert len(path) == 1
        else:
            above = ranges.iloc[parent]
            assert above["thread"] == row["thread"]
            assert above["start_ns"] <= row["start_ns"] <= row["end_ns"] <= above["end_ns"]
            assert nesting.paths[nesting.path_id[parent]] == path[:-1]


def part_at(trace: Trace, operations, at: int, gap_start: int | None, time: int) -> str:
    """The oracle of gap parts: what the host did in nanosecond [time, time + 1) about operation ``at``."""
    calls = trace.table("calls")
    row = operations.call[at]
    if operations.graph_node[at]:
        same = (operations.launch == operations.launch[at]) & (operations.device == operations.device[at])
        if np.flatnonzero(same & operations.graph_node)[0] != at:
            return "in_graph"
    if row < 0:
        return "unknown"
    call = calls.iloc[row]
    if gap_start is not None and call["end_ns"] <= gap_start:
        return "dispatch"
    if operations.graph_node[at]:
        return "unknown"
    if time >= call["start_ns"]:
        return "launch_call" if time < call["end_ns"] else "launch_latency"
    inside = [
        other["name"]
        for _, other in calls.iterrows()
        if other["thread"] == call["thread"] and other["start_ns"] <= time < other["end_ns"]
    ]
    if any(is_synchronizing(name) for name in inside):
        return "sync"
    return "other_call" if inside else "host"


@settings(max_examples=60, deadline=None)
@given(traces())
def test_gaps_and_parts_are_those_of_the_oracle(trace: Trace) -> None:
    operations = attribute(trace, nest(trace.table("ranges")))
    timeline = measure(trace, operations)
    covered: dict[int, int] = {}
    for at in range(len(operations)):
        start, end, device = operations.start[at], operations.end[at], operations.device[at]
        until = covered.get(device, start)
        assert timeline.gap[at] == max(0, start - until)
        assert timeline.charged[at] == max(0, end - max(start, until))
        parts = defaultdict(int)
        for time in range(until, start):
            parts[part_at(trace, operations, at, until, time)] += 1
        assert {part: int(timeline.parts[part][at]) for part in GAP_PARTS if timeline.parts[part][at]} == dict(parts)
        covered[device] = max(until, end)


@settings(max_examples=60, deadline=None)
@given(traces())
def test_charged_time_is_additive_and_busy_time_is_a_union(trace: Trace) -> None:
    ranges = trace.table("ranges")
    nesting = nest(ranges)
    operations = attribute(trace, nesting)
    timeline = measure(trace, operations)
    launches = group_launches(trace, operations)
    regions = roll_up(ranges, nesting, timeline, launches)
    instances = regions.instances
    outside = len(ranges)
    owner = np.where(operations.range >= 0, operations.range, outside)

    def below(instance: int) -> list[int]:
        found = []
        for at, range_ in enumerate(owner):
            while range_ not in (-1, instance):
                range_ = nesting.parent[range_] if range_ < outside else -1
            found += [at] if range_ == instance else []
        return found

    if instances["busy_ns"].isna().any():
        assert len(operations.silent)
        return
    for instance in range(len(instances)):
        own = below(instance)
        row = instances.iloc[instance]
        busy = {time for at in own for time in range(operations.start[at], operations.end[at])}
        assert row["busy_ns"] == len(busy)
        assert row["kernel_count"] == sum(operations.kind[at] == 0 for at in own)
        assert row["launch_call_count"] == len({operations.call[at] for at in own} - {-1})
        assert row["device_ns"] == sum(int(timeline.charged[at] + timeline.gap[at]) for at in own)
        children = instances[instances["parent"] == instance] if instance < outside else instances.iloc[:0]
        direct = [at for at in own if owner[at] == instance]
        calls = {operations.call[at] for at in direct} - {-1}
        of_direct = {
            "kernel_count": sum(operations.kind[at] == 0 for at in direct),
            "copy_count": sum(operations.kind[at] == 1 for at in direct),
            "launch_call_count": len(calls),
            "device_ns": sum(int(timeline.charged[at] + timeline.gap[at]) for at in direct),
            "gap_ns": sum(int(timeline.gap[at]) for at in direct),
            **{f"gap_{part}_ns": sum(int(timeline.parts[part][at]) for at in direct) for part in GAP_PARTS},
        }
        for metric in ADDITIVE:
            told = [row[metric], *children[metric]]
            if any(pd.isna(value) for value in told):
                assert operations.graph_node.any()
                continue
            assert told[0] == sum(told[1:]) + of_direct[metric], metric
    total = instances[instances["depth"] == 0]["device_ns"].sum()
    spans = [
        operations.end[operations.device == d].max() - operations.start[operations.device == d].min()
        for d in np.unique(operations.device)
    ]
    assert total == sum(spans)
    for path_id, rows in regions.kernels.groupby("path_id"):
        own = instances[instances["path_id"] == path_id]
        assert rows["busy_ns"].sum() == own["busy_ns"].sum()
        kernels = rows[launches.frame["kind"].to_numpy()[rows["launch"]] == 0]
        assert kernels["count"].sum() == own["kernel_count"].sum()


@settings(max_examples=60, deadline=None)
@given(traces())
def test_the_ledger_accounts_for_every_nanosecond(trace: Trace) -> None:
    ranges = trace.table("ranges")
    nesting = nest(ranges)
    operations = attribute(trace, nesting)
    timeline = measure(trace, operations)
    instances = roll_up(ranges, nesting, timeline, group_launches(trace, operations)).instances
    root_of = operations.range.copy()
    while len(ranges) and (inner := (root_of >= 0) & (nesting.parent[root_of] >= 0)).any():
        root_of = np.where(inner, nesting.parent[root_of], root_of)
    for root in np.flatnonzero(nesting.depth == 0).tolist():
        row = instances.iloc[root]
        if pd.isna(row["busy_ns"]):  # a launch inside left no device rows
            assert len(operations.silent)
            continue
        own = np.flatnonzero(root_of == root)
        devices = set(operations.device[own].tolist())
        if len(devices) > 1 or (not devices and operations.devices != 1):
            assert row[list(LEDGER)].isna().all()
            continue
        device = devices.pop() if devices else 0
        low = min([ranges["start_ns"][root], *operations.start[own]])
        high = max([ranges["end_ns"][root], *operations.end[own]])
        last = max([low, *operations.end[own]])
        on = np.flatnonzero(operations.device == device)
        wall = defaultdict(int)
        for time in range(low, high):
            running = [at for at in on if operations.start[at] <= time < operations.end[at]]
            if set(running) & set(own.tolist()):
                wall["busy"] += 1
            elif running:
                wall["other_busy"] += 1
            elif time >= last:
                wall["tail"] += 1
            else:
                ends = next(at for at in on if operations.start[at] > time)
                before = [operations.end[at] for at in on if operations.start[at] <= time]
                wall[part_at(trace, operations, ends, max(before) if before else None, time)] += 1
        assert row["wall_ns"] == high - low
        assert row["wall_ns"] == row["busy_ns"] + row["other_busy_ns"] + row["wall_gap_ns"] + row["tail_ns"]
        assert row["busy_ns"] == wall["busy"]
        assert row["other_busy_ns"] == wall["other_busy"]
        assert row["tail_ns"] == wall["tail"]
        for part in GAP_PARTS:
            told = row[f"wall_gap_{part}_ns"]
            if pd.isna(told):
                assert part in HOST_PARTS
                assert operations.graph_node.any()
            else:
                assert told == wall[part], part


@settings(max_examples=30, deadline=None)
@given(traces())
def test_every_missing_metric_of_a_report_has_a_reason(trace: Trace) -> None:
    report = analyze(trace)
    for region in report.regions:
        for name, metric in region.metrics.items():
            assert metric.value is not None or any(name in note for note in region.notes), name
    assert report.coverage.operations == report.frames["operations"].shape[0]
