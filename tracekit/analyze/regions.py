"""Rolls operations up into region instances: counts, busy and charged time, gap parts, kernels, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analyze.attribution import COPY, GRAPH, KERNEL
from tracekit.analyze.gaps import Timeline, gap_parts
from tracekit.analyze.intervals import NONE, Bools, Cover, Ints, count_by, running_end, sum_by
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


Unknown = tuple[Set[int], tuple[str, ...], str]


@dataclass(frozen=True)
class Regions:
    """``instances`` has a row a range (of table ranges, plus one for what lies outside every range, if anything does).

    Its columns: range_id (-1 for the pseudo region), path_id, parent, depth, instance, host_ns, device_start_ns,
    device_span_ns, busy_ns, those of :data:`ADDITIVE` and, for roots, of :data:`LEDGER`; nullable integers throughout.
    ``kernels`` has a row for each (path_id, launch) pair: count, duration_ns and busy_ns, exact totals over instances.
    ``unknown`` says why columns of ``instances`` are NA: (path ids, columns, reason).
    """

    instances: pd.DataFrame
    kernels: pd.DataFrame
    unknown: Sequence[Unknown]


def roll_up(
    ranges: pd.DataFrame, nesting: Nesting, timeline: Timeline, launches: Launches, absent: Set[str] = frozenset()
) -> Regions:
    """The metrics of every region instance. A region's operations include those of the regions inside it.

    ``absent`` names the tables that were not traced: what they would tell is NA.
    """
    ops = timeline.operations
    tree = _Tree.of(nesting)
    owner = np.where(ops.range >= 0, ops.range, tree.outside)
    totals = _direct_totals(timeline, owner, tree.count)
    for values in totals.values():
        tree.add_up(values)
    span_low, span_high = tree.extent(owner, ops.start, ops.end)
    busy, kernels = _busy(tree, nesting, timeline, owner, launches)

    has_work = span_high >= span_low
    is_range = np.arange(tree.count) < tree.outside
    host = np.append(ranges["end_ns"].to_numpy() - ranges["start_ns"].to_numpy(), 0)
    frame = pd.DataFrame(
        {
            "range_id": np.where(is_range, np.arange(tree.count), NONE),
            "path_id": tree.path_id,
            "parent": tree.parent,
            "depth": tree.depth,
            "instance": np.append(nesting.instance, 0),
            "host_ns": _nullable(host, is_range),
            "device_start_ns": _nullable(span_low, has_work),
            "device_span_ns": _nullable(span_high - np.where(has_work, span_low, span_high), has_work),
            "busy_ns": busy,
            **{name: totals[name] for name in ADDITIVE},
        },
        copy=False,
    )
    roots = np.flatnonzero(is_range & (tree.depth == 0))
    ledger, closed = _ledger(ranges, roots, timeline, span_low, span_high, busy, tree.root_of(owner))
    for name in LEDGER:
        values, known = np.zeros(tree.count, np.int64), np.zeros(tree.count, bool)
        values[roots], known[roots] = ledger[name], closed
        frame[name] = _nullable(values, known)
    unknown = _hide(frame, tree, totals, absent)
    if not (owner == tree.outside).any() and not (ops.silent < 0).any():
        frame = frame.iloc[: tree.outside]
    return Regions(frame, kernels, unknown)


def _hide(frame: pd.DataFrame, tree: _Tree, totals: Mapping[str, Ints], absent: Set[str]) -> list[Unknown]:
    """Sets to NA, in place, what the capture cannot tell; and says why, by column.

    One rule a path, since a median over the few instances that happen to know would mislead.
    """
    anywhere = np.ones(tree.count, bool)
    in_ranges = np.arange(tree.count) < tree.outside
    measured = ("device_start_ns", "device_span_ns", "busy_ns", *ADDITIVE, *LEDGER)
    rules: list[tuple[Bools, tuple[str, ...], str]] = [
        (
            tree.paths_with(totals["distorted"]),
            tuple(f"{kind}_{part}_ns" for part in HOST_PARTS for kind in ("gap", "wall_gap")),
            "tracing the graph by node slows its launch, so the host's part in the gap is unknown",
        ),
        (
            tree.paths_with(totals["whole_graphs"]),
            ("kernel_count",),
            "a CUDA graph was traced whole, without its kernels",
        ),
    ]
    if "calls" in absent:
        rules.append((in_ranges, measured, "API calls were not traced, so no work can be attributed to a range"))
        rules.append((anywhere, ("launch_call_count",), "API calls were not traced"))
    if "kernels" in absent:
        rules.append((anywhere, measured, "device work was not traced"))
    rules.append((tree.paths_with(totals["silent"]), measured, "launches inside left no device rows: not traced"))
    unknown: list[Unknown] = []
    for rows, columns, reason in rules:
        if rows.any():
            for name in columns:
                frame[name] = frame[name].astype("Int64").mask(rows)
            unknown.append((frozenset(tree.path_id[rows].tolist()), columns, reason))
    return unknown


@dataclass(frozen=True)
class _Tree:
    """The range instances, and one pseudo instance (number ``outside``) for what lies outside every range.

    Arrays by instance; ``levels`` are the instances that have a parent, from the deepest level up.
    """

    outside: int
    parent: Ints
    depth: Ints
    path_id: Ints
    levels: tuple[Ints, ...]

    @classmethod
    def of(cls, nesting: Nesting) -> _Tree:
        parent, depth = np.append(nesting.parent, NONE), np.append(nesting.depth, 0)
        levels = tuple(np.flatnonzero(depth == level) for level in range(int(depth.max()), 0, -1))
        return cls(len(nesting.parent), parent, depth, np.append(nesting.path_id, len(nesting.paths)), levels)

    @property
    def count(self) -> int:
        return self.outside + 1

    def add_up(self, values: Ints) -> None:
        """Adds, in place, the value of every instance to those that enclose it."""
        for rows in self.levels:
            np.add.at(values, self.parent[rows], values[rows])

    def extent(self, owner: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """First start and last end of the operations in and below each instance; low > high where there are none."""
        low = np.full(self.count, np.iinfo(np.int64).max)
        high = np.full(self.count, np.iinfo(np.int64).min)
        np.minimum.at(low, owner, start)
        np.maximum.at(high, owner, end)
        for rows in self.levels:
            np.minimum.at(low, self.parent[rows], low[rows])
            np.maximum.at(high, self.parent[rows], high[rows])
        return low, high

    def paths_with(self, values: Ints) -> Bools:
        """All instances of those paths of which some instance has a value above 0."""
        return count_by(self.path_id[values > 0], int(self.path_id.max()) + 1)[self.path_id] > 0

    def root_of(self, owner: Ints) -> Ints:
        """The root instance above each of the given ones."""
        while (inner := self.parent[owner] >= 0).any():
            owner = np.where(inner, self.parent[owner], owner)
        return owner


def _busy(
    tree: _Tree, nesting: Nesting, timeline: Timeline, owner: Ints, launches: Launches
) -> tuple[Ints, pd.DataFrame]:
    """Busy time of every instance, and totals of every (path, launch configuration) pair."""
    ops = timeline.operations
    kinds = max(1, len(launches.frame))
    duration = ops.end - ops.start
    if ops.devices <= 1 and (timeline.charged == duration).all():
        # No two operations overlap, so that unions are sums, and these add up.
        busy = sum_by(owner, duration, tree.count)
        tree.add_up(busy)
        return busy, _up_the_paths(_by_launch(tree.path_id[owner], launches.code, duration, duration, kinds), nesting)
    busy = np.zeros(tree.count, np.int64)
    kernels = []
    for level in range(int(tree.depth.max()), -1, -1):
        at = np.flatnonzero(tree.depth[owner] == level)
        covered = _charged_within(owner[at], ops.start[at], ops.end[at])
        busy += sum_by(owner[at], covered, tree.count)
        kernels.append(_by_launch(tree.path_id[owner[at]], launches.code[at], covered, duration[at], kinds))
        inner = (tree.depth[owner] == level) & (tree.parent[owner] >= 0)
        owner = np.where(inner, tree.parent[owner], owner)
    return busy, pd.concat(kernels, ignore_index=True)


def _by_launch(path_id: Ints, launch: Ints, busy: Ints, duration: Ints, kinds: int) -> pd.DataFrame:
    """Totals over operations of each (path, launch configuration) pair; configurations are 0..kinds-1."""
    code, pairs = pd.factorize(path_id * kinds + launch)
    return pd.DataFrame(
        {
            "path_id": pairs // kinds,
            "launch": pairs % kinds,
            "count": count_by(code, len(pairs)),
            "busy_ns": sum_by(code, busy, len(pairs)),
            "duration_ns": sum_by(code, duration, len(pairs)),
        }
    )


def _up_the_paths(direct: pd.DataFrame, nesting: Nesting) -> pd.DataFrame:
    """Totals of paths from those of the operations directly inside each."""
    above = np.append(nesting.path_parent, NONE)
    layers = [direct]
    while len(layers[-1]):
        up = above[layers[-1]["path_id"].to_numpy()]
        layers.append(layers[-1].assign(path_id=up)[up >= 0])
    return pd.concat(layers).groupby(["path_id", "launch"], sort=False, as_index=False).sum()


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
        "whole_graphs": count_by(owner[ops.kind == GRAPH], count),
        "silent": count_by(np.where(ops.silent >= 0, ops.silent, count - 1), count),
    }


def _charged_within(group: Ints, start: Ints, end: Ints) -> Ints:
    """Each operation's time not covered by earlier operations of the same group, on any device."""
    if not len(group):
        return np.empty(0, np.int64)
    order = np.lexsort((start, group))
    group, low, high = group[order], start[order], end[order]
    # Groups are laid end to end, each as long as itself, so that one running maximum serves them all.
    begins = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    spans = np.maximum.reduceat(high, begins) - low[begins] + 1
    shift = np.repeat(np.cumsum(spans) - spans - low[begins], np.diff(np.append(begins, len(group))))
    out = np.empty_like(low)
    out[order] = np.maximum(high + shift - np.maximum(low + shift, running_end(high + shift)), 0)
    return out


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
