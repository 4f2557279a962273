"""Rolls operations up into region instances: counts, busy and charged time, gap parts, kernels, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analyze.attribution import COPY, KERNEL
from tracekit.analyze.gaps import Timeline, gap_parts
from tracekit.analyze.intervals import NONE, Axis, Bools, Cover, Ints, count_by, running_end, sum_by
from tracekit.analyze.launches import Launches
from tracekit.analyze.nesting import Nesting
from tracekit.model.tables import GAP_PARTS, HOST_PARTS

ADDITIVE = (
    "kernel_count",
    "copy_count",
    "launch_call_count",
    "device_ns",
    "gap_ns",
    *(f"gap_{part}_ns" for part in GAP_PARTS),
)
"""Metrics of which children and direct operations sum to the parent, exactly."""

LEDGER = ("wall_ns", "other_busy_ns", "wall_gap_ns", "tail_ns", *(f"wall_gap_{part}_ns" for part in GAP_PARTS))
"""Metrics of roots: wall_ns = busy_ns + other_busy_ns + wall_gap_ns + tail_ns; the parts sum to wall_gap_ns."""


@dataclass(frozen=True)
class Regions:
    """``instances`` has a row a range (of table ranges, plus one for what lies outside every range, if anything does).

    Its columns: range_id (-1 for the pseudo region), path_id, parent, depth, instance, host_ns, device_span_ns,
    busy_ns, those of :data:`ADDITIVE` and, for roots, of :data:`LEDGER`; nullable integers throughout.
    ``kernels`` has a row for each (path_id, launch) pair: count, duration_ns and busy_ns, exact totals over instances.
    """

    instances: pd.DataFrame
    kernels: pd.DataFrame


def roll_up(ranges: pd.DataFrame, nesting: Nesting, timeline: Timeline, launches: Launches) -> Regions:
    """The metrics of every region instance. A region's operations include those of the regions inside it."""
    ops = timeline.operations
    outside = len(ranges)  # the pseudo region of operations outside every range
    count = outside + 1
    owner = np.where(ops.range >= 0, ops.range, outside)
    parent = np.append(nesting.parent, NONE)
    depth = np.append(nesting.depth, 0)
    path_id = np.append(nesting.path_id, len(nesting.paths))

    totals = _direct_totals(timeline, owner, count)
    span_low = np.full(count, np.iinfo(np.int64).max)
    span_high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(span_low, owner, ops.start)
    np.maximum.at(span_high, owner, ops.end)
    busy = np.zeros(count, np.int64)
    kernels: list[pd.DataFrame] = []
    current = owner
    for members, rows in _levels(parent, depth):
        at = np.flatnonzero(depth[current] == depth[members[0]]) if len(members) else np.empty(0, np.int64)
        covered = _charged_within(current[at], ops.device[at], ops.start[at], ops.end[at])
        busy += sum_by(current[at], covered, count)
        kernels.append(_by_launch(path_id[current[at]], launches, at, covered, ops.end[at] - ops.start[at]))
        if len(rows):
            up = parent[rows]
            for values in totals.values():
                np.add.at(values, up, values[rows])
            np.minimum.at(span_low, up, span_low[rows])
            np.maximum.at(span_high, up, span_high[rows])
            inner = depth[current] == depth[rows[0]]
            current = np.where(inner, parent[current], current)

    has_work = span_high >= span_low
    host = np.append(ranges["end_ns"].to_numpy() - ranges["start_ns"].to_numpy(), 0)
    frame = pd.DataFrame(
        {
            "range_id": np.append(np.arange(outside), NONE),
            "path_id": path_id,
            "parent": parent,
            "depth": depth,
            "instance": np.append(nesting.instance, 0),
            "host_ns": _nullable(host, np.arange(count) < outside),
            "device_span_ns": _nullable(span_high - np.where(has_work, span_low, span_high), has_work),
            "busy_ns": busy,
            **{name: totals[name] for name in ADDITIVE},
        },
        copy=False,
    )
    roots = np.flatnonzero(depth[:outside] == 0)
    ledger, closed = _ledger(ranges, roots, timeline, span_low, span_high, busy, _root_of(owner, parent))
    for name in LEDGER:
        values = np.zeros(count, np.int64)
        known = np.zeros(count, bool)
        values[roots], known[roots] = ledger[name], closed
        frame[name] = _nullable(values, known)
    # One rule a path, since a median over the few instances that happen to know would mislead.
    distorted = count_by(path_id[totals["distorted"] > 0], len(nesting.paths) + 1)[path_id] > 0
    if distorted.any():
        for part in HOST_PARTS:
            for name in (f"gap_{part}_ns", f"wall_gap_{part}_ns"):
                frame[name] = frame[name].astype("Int64").mask(distorted)
    if not (owner == outside).any():
        frame = frame.iloc[:outside]
    return Regions(frame, pd.concat(kernels, ignore_index=True))


def _root_of(owner: Ints, parent: Ints) -> Ints:
    """The root range above each operation's range."""
    root = owner
    while (inner := parent[root] >= 0).any():
        root = np.where(inner, parent[root], root)
    return root


def _levels(parent: Ints, depth: Ints) -> Iterator[tuple[Ints, Ints]]:
    """From the deepest level to the roots: the members of the level, and those of them that have a parent."""
    for level in range(int(depth.max(initial=0)), -1, -1):
        members = np.flatnonzero(depth == level)
        if len(members):
            yield members, members[parent[members] >= 0]


def _direct_totals(timeline: Timeline, owner: Ints, count: int) -> dict[str, Ints]:
    """Sums over the operations directly inside each range, by metric."""
    ops = timeline.operations
    caller = np.full(0, NONE, np.int64)
    launching = np.flatnonzero(ops.call >= 0)
    if len(launching):
        first = ~pd.Series(ops.call[launching]).duplicated().to_numpy()
        caller = owner[launching[first]]
    ends_gap = timeline.gap > 0
    gaps = np.flatnonzero(ends_gap)
    unsplit = timeline.host_is_distorted[gaps] & (timeline.parts["unknown"][gaps] > 0)
    return {
        "kernel_count": count_by(owner[ops.kind == KERNEL], count),
        "copy_count": count_by(owner[ops.kind == COPY], count),
        "launch_call_count": count_by(caller, count),
        "device_ns": sum_by(owner, timeline.charged + timeline.gap, count),
        "gap_ns": sum_by(owner, timeline.gap, count),
        **{f"gap_{part}_ns": sum_by(owner[gaps], timeline.parts[part][gaps], count) for part in GAP_PARTS},
        "distorted": count_by(owner[gaps][unsplit], count),
    }


def _charged_within(group: Ints, device: Ints, start: Ints, end: Ints) -> Ints:
    """Each operation's time not covered by earlier operations of the same group and device; order as given."""
    if not len(group):
        return np.empty(0, np.int64)
    devices = int(device.max()) + 1
    lane = group * devices + device
    order = None
    if (lane[1:] < lane[:-1]).any():
        order = np.argsort(lane, kind="stable")
        lane, start, end = lane[order], start[order], end[order]
    # Lanes are runs now: number them densely, so that the axis stays short.
    lane = np.cumsum(np.concatenate([[0], (lane[1:] != lane[:-1]).astype(np.int64)]))
    axis = Axis.over(int(lane[-1]) + 1, start, end)
    low, high = axis.place(lane, start), axis.place(lane, end)
    charged = np.maximum(high - np.maximum(low, running_end(high)), 0)
    if order is None:
        return charged
    out = np.empty_like(charged)
    out[order] = charged
    return out


def _by_launch(path_id: Ints, launches: Launches, at: Ints, busy: Ints, duration: Ints) -> pd.DataFrame:
    """Totals of each (path, launch configuration) pair."""
    kinds = max(1, len(launches.frame))
    code, pairs = pd.factorize(path_id * kinds + launches.code[at])
    return pd.DataFrame(
        {
            "path_id": pairs // kinds,
            "launch": pairs % kinds,
            "count": count_by(code, len(pairs)),
            "busy_ns": sum_by(code, busy, len(pairs)),
            "duration_ns": sum_by(code, duration, len(pairs)),
        }
    )


def _ledger(
    ranges: pd.DataFrame, roots: Ints, timeline: Timeline, span_low: Ints, span_high: Ints, busy: Ints, root_of: Ints
) -> tuple[dict[str, Ints], Bools]:
    """Accounts for every nanosecond of each root instance's wall time.

    The wall I is [range start, max(range end, end of its last operation)]; GPU and CPU clocks agree only to about a
    microsecond, so it begins with the first operation where that appears to be earlier. Known only for roots whose
    operations ran on one device.
    """
    ops = timeline.operations
    low = ranges["start_ns"].to_numpy()[roots]
    high = ranges["end_ns"].to_numpy()[roots]
    has_work = span_high[roots] >= span_low[roots]
    low = np.where(has_work, np.minimum(low, span_low[roots]), low)
    high = np.where(has_work, np.maximum(high, span_high[roots]), high)
    last = np.where(has_work, span_high[roots], low)
    device = np.full(len(ranges) + 1, NONE, np.int64)
    device[root_of] = ops.device
    several = np.zeros(len(ranges) + 1, bool)
    several[root_of[ops.device != device[root_of]]] = True
    device = device[roots]
    if ops.devices == 1:
        device = np.where(has_work, device, 0)
    known = (device >= 0) & ~several[roots]

    out = {name: np.zeros(len(roots), np.int64) for name in LEDGER}
    for number in range(ops.devices):
        on = np.flatnonzero(known & (device == number))
        if not len(on):
            continue
        first_op, end_op = np.searchsorted(ops.device, [number, number + 1])
        start, end = ops.start[first_op:end_op], ops.end[first_op:end_op]
        cover = Cover.of(start, end)
        a, b, z = low[on], high[on], last[on]
        out["wall_ns"][on] = b - a
        out["other_busy_ns"][on] = cover.between(a, b) - busy[roots[on]]
        out["tail_ns"][on] = (b - z) - cover.between(z, b)
        out["wall_gap_ns"][on] = (z - a) - cover.between(a, z)
        parts = _parts_between(timeline, int(first_op), start, a, z)
        for part in GAP_PARTS:
            out[f"wall_gap_{part}_ns"][on] = parts[part]
    return out, known


def _parts_between(timeline: Timeline, first_op: int, start: Ints, low: Ints, high: Ints) -> dict[str, Ints]:
    """Gap parts of one device inside each [low, high]: whole gaps by running sums, plus the one that low cuts."""
    begin = np.searchsorted(start, low, side="right")
    end = np.searchsorted(start, high, side="right")
    inside = begin < end
    cut = np.minimum(begin, max(0, len(start) - 1)) + first_op
    gap_start = timeline.covered_until[cut]
    # The device's first operation ends no gap of its own, but the wall before it is idle all the same.
    gap_start = np.where(cut == first_op, np.iinfo(np.int64).min, gap_start)
    clipped = np.minimum(np.maximum(gap_start, low), timeline.operations.start[cut])
    rows = np.flatnonzero(inside)
    split = gap_parts(
        timeline.operations, timeline.host, timeline.host_is_distorted, cut[rows], gap_start[rows], clipped[rows]
    )
    out = {}
    for part in GAP_PARTS:
        running = np.concatenate([[0], np.cumsum(timeline.parts[part][first_op : first_op + len(start)])])
        whole = running[end] - running[np.minimum(begin + 1, end)]
        out[part] = whole
        out[part][rows] += split[part]
    return out


def _nullable(values: Ints, known: Bools) -> pd.Series:
    return pd.Series(pd.arrays.IntegerArray(values, ~known), copy=False)
