"""Cuts a window out of a timeline, lane by lane, and merges what is narrower than a pixel: what a chart can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from tracekit.analyze.intervals import Ints
from tracekit.model.labels import Path
from tracekit.model.report import Report, Slices, Window
from tracekit.model.tables import GAP_PARTS

THREADS: Final = 2
DEPTHS: Final = 6
STREAMS: Final = 8
"""How many threads, levels of ranges and streams are lanes of their own; a note tells of more."""

DIRECT: Final = "(direct)"
"""The group of operations that are in the region but in none inside it."""

OUTSIDE: Final = "(outside)"
"""The group of operations that are not in the region."""

_COLUMNS: Final = (
    "lane", "kind", "start_ns", "end_ns", "name", "group", "count", "busy_ns", "grid", "block", "registers_count",
    "smem_bytes", "bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """What one row of a timeline holds, in order of start: times in ns, ``row`` in the table that ``kind`` names.

    ``reach`` is the latest end so far: it never falls, so that a window's first entry is found by bisection.
    """

    name: str
    kind: str
    start: Ints
    end: Ints
    reach: Ints
    row: Ints

    @classmethod
    def of(cls, name: str, kind: str, start: Ints, end: Ints, row: Ints) -> Lane:
        """The lane of entries in any order."""
        order = np.argsort(start, kind="stable")
        start, end, row = start[order], end[order], row[order]
        return cls(name, kind, start, end, np.maximum.accumulate(end) if len(end) else end, row)

    def between(self, low: int, high: int) -> tuple[int, int]:
        """The first entry that may reach into [low, high), and the one after the last that starts in it."""
        return int(np.searchsorted(self.reach, low, side="right")), int(np.searchsorted(self.start, high, side="left"))


@dataclass(frozen=True)
class Lanes:
    """Every lane of a capture, in the order to draw them, with notes on what is left out."""

    lanes: tuple[Lane, ...]
    start_ns: int
    end_ns: int
    notes: tuple[str, ...]


def lanes(report: Report) -> Lanes:
    """The lanes of a capture: per thread its NVTX ranges by depth and its API calls, per device and stream its work,
    and per device the gaps. None where it has no timeline."""
    found: list[Lane] = []
    notes: list[str] = []
    frames = report.frames
    if "operations" not in frames:
        return Lanes((), 0, 0, ("there is no timeline in this capture",))
    _host(frames["ranges"], frames["instances"], frames["calls"], found, notes)
    _devices(frames["operations"], frames["kernels"], frames["copies"], found, notes)
    start = min((int(lane.start[0]) for lane in found if len(lane.start)), default=0)
    end = max((int(lane.reach[-1]) for lane in found if len(lane.start)), default=0)
    return Lanes(tuple(lane for lane in found if len(lane.start)), start, end, tuple(notes))


def _host(
    ranges: pd.DataFrame, instances: pd.DataFrame, calls: pd.DataFrame, found: list[Lane], notes: list[str]
) -> None:
    known = instances[instances["range_id"].notna()]
    depth = known.set_index("range_id")["depth"].reindex(ranges["range_id"]).fillna(0).to_numpy(int)
    weight = ranges["thread"].value_counts().add(calls["thread"].value_counts(), fill_value=0)
    busiest = weight.sort_values(ascending=False, kind="stable").index.tolist()
    for number, thread in enumerate(busiest[:THREADS], start=1):
        host = "host" if len(busiest) == 1 else f"host {number}"
        own = ranges["thread"].to_numpy() == thread
        for level in range(min(DEPTHS, int(depth[own].max(initial=-1)) + 1)):
            picked = ranges[own & (depth == level)]
            found.append(_lane(f"{host} NVTX {level}", "ranges", picked, "range_id"))
        if own.any() and depth[own].max(initial=-1) >= DEPTHS:
            notes.append(f"{host}: ranges nested deeper than {DEPTHS} levels are not drawn")
        found.append(_lane(f"{host} calls", "calls", calls[calls["thread"].to_numpy() == thread], "call_id"))
    if len(busiest) > THREADS:
        notes.append(f"{len(busiest) - THREADS} of {len(busiest)} threads are not drawn: those with the fewest calls")


def _devices(
    operations: pd.DataFrame, kernels: pd.DataFrame, copies: pd.DataFrame, found: list[Lane], notes: list[str]
) -> None:
    source = operations["source_id"].to_numpy(int)
    stream = np.full(len(operations), -1, np.int64)
    for kind, table in (("kernel", kernels), ("copy", copies)):
        of_kind = operations["kind"].to_numpy(object) == kind
        if of_kind.any():
            stream[of_kind] = table["stream"].to_numpy(np.int64)[source[of_kind]]
    device = operations["device_id"].to_numpy(np.int64)
    length = (operations["end_ns"] - operations["start_ns"]).to_numpy(np.int64)
    work = pd.DataFrame({"device": device, "stream": stream, "length": length}).groupby(["device", "stream"])
    busiest = work["length"].sum().sort_values(ascending=False, kind="stable").index.tolist()
    several = len({place for place, _ in busiest}) > 1
    kept = sorted(busiest[:STREAMS])
    for place in sorted({place for place, _ in kept}):
        name = f"GPU {place}" if several else "GPU"
        for own_device, own_stream in kept:
            if own_device == place:
                picked = operations[(device == place) & (stream == own_stream)]
                called = f"{name} stream {own_stream}" if own_stream >= 0 else f"{name} graphs"
                found.append(_lane(called, "operations", picked, "operation_id"))
        gaps = operations[(device == place) & (operations["gap_ns"].to_numpy() > 0)]
        ends = gaps["start_ns"].to_numpy(np.int64)
        starts = ends - gaps["gap_ns"].to_numpy(np.int64)
        found.append(Lane.of(f"{name} gaps", "gaps", starts, ends, gaps["operation_id"].to_numpy(np.int64)))
    if len(busiest) > STREAMS:
        left = len(busiest) - STREAMS
        notes.append(f"{left} of {len(busiest)} streams are not drawn: those with the least device time")


def _lane(name: str, kind: str, frame: pd.DataFrame, key: str) -> Lane:
    columns = (frame[column].to_numpy(np.int64) for column in ("start_ns", "end_ns", key))
    return Lane.of(name, kind, *columns)


def window_of(report: Report, drawn: Lanes, path: Path | None, instance: int | None = None) -> Window:
    """The time of one instance of a region, by default the median one by wall or host time; else of the whole capture.

    It lasts until the region's last operation ends, and ``origin_ns`` is the start of its range.
    """
    if not drawn.lanes or "instances" not in report.frames:
        return Window(drawn.start_ns, drawn.end_ns, None, 0)
    instances = report.frames["instances"]
    chosen = instances["path"].map(lambda own: own == path).to_numpy(bool) & instances["range_id"].notna().to_numpy(
        bool
    )
    of_region = instances[chosen] if path else instances[:0]
    if not len(of_region):
        return Window(drawn.start_ns, drawn.end_ns, None, 0)
    if instance is None or not 0 <= instance < len(of_region):
        length = of_region["wall_ns"].fillna(of_region["host_ns"]).to_numpy(float)
        instance = int(np.argsort(length, kind="stable")[(len(length) - 1) // 2])
    ranges = report.frames["ranges"].set_index("range_id")
    own = ranges.loc[of_region["range_id"].to_numpy(int)[instance]]
    start, end = (int(own[name]) for name in ("start_ns", "end_ns"))
    inside = ranges[
        (ranges["thread"] == own["thread"]) & (ranges["start_ns"] >= start) & (ranges["end_ns"] <= end)
    ].index
    operations = report.frames["operations"]
    last = operations.loc[operations["range_id"].isin(inside), "end_ns"].max()
    return Window(start, max(end, int(last)) if pd.notna(last) else end, instance, len(of_region))


def groups(report: Report, path: Path | None) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """By range: which region inside ``path`` it belongs to, as a place in the labels that are the second result."""
    if "instances" not in report.frames:
        return np.zeros(1, np.int64), (OUTSIDE,)
    instances = report.frames["instances"]
    ranges = report.frames["ranges"]
    depth = len(path or ())
    code, paths = pd.factorize(instances["path"].astype(object), use_na_sentinel=False)
    names = [
        (own[depth] if len(own) > depth else DIRECT) if own[:depth] == (path or ()) else OUTSIDE
        for own in paths.tolist()
    ]
    labels = tuple(dict.fromkeys([OUTSIDE, *names]))
    place = np.array([labels.index(name) for name in names], np.int64)
    out = np.zeros(int(ranges["range_id"].max()) + 1 if len(ranges) else 1, np.int64)
    of_range = instances["range_id"].notna().to_numpy(bool)  # What lies outside every range is an instance without one.
    if of_range.any():
        out[instances["range_id"][of_range].to_numpy(np.int64)] = place[code[of_range]]
    return out, labels


def cut(
    report: Report, drawn: Lanes, window: Window, path: Path | None, *, most: int = 400, grouped: Any = None
) -> Slices:
    """What each lane shows in a window: at most about two times ``most`` slices a lane, times in ns from its origin.

    An entry at least as wide as the window's ``most``-th part is a slice of its own, clipped to the window; narrower
    ones that begin in the same part become one slice, which tells how many they are (``count``) and how long they
    last in all (``busy_ns``). So counts and times are conserved whatever the resolution.
    """
    by_range, labels = grouped if grouped is not None else groups(report, path)
    frames = [
        _described(report, lane, *_cut(lane, window.start_ns, window.end_ns, most), by_range, labels)
        for lane in drawn.lanes
    ]
    frame = pd.concat([each for each in frames if len(each)]) if any(map(len, frames)) else _empty()
    origin = window.start_ns if window.origin_ns is None else window.origin_ns
    frame = frame.assign(start_ns=frame["start_ns"] - origin, end_ns=frame["end_ns"] - origin)
    names = tuple(lane.name for lane in drawn.lanes)
    return Slices(frame.reset_index(drop=True), names, labels, window, drawn.notes)


def _cut(lane: Lane, low: int, high: int, most: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Start, end, first row, count and busy time of each slice of a lane in [low, high)."""
    first, last = lane.between(low, high)
    own = np.arange(first, last)
    own = own[lane.end[first:last] > low]
    start = np.maximum(lane.start[own], low)
    end = np.minimum(lane.end[own], high)
    part = max(1, -(-(high - low) // most))
    narrow = end - start < part
    if len(own) <= most or not narrow.any():
        return start, end, own, np.ones(len(own), np.int64), end - start
    # A slice of its own for each wide entry; one for every part with narrow ones between two wide ones.
    key = np.where(narrow, (start - low) // part, -1)
    begins = np.ones(len(own), bool)
    begins[1:] = (key[1:] != key[:-1]) | ~narrow[1:]
    at = np.flatnonzero(begins)
    return (
        start[at],
        np.maximum.reduceat(end, at),
        own[at],
        np.diff(np.append(at, len(own))),
        np.add.reduceat(end - start, at),
    )


def _described(
    report: Report, lane: Lane, start: Ints, end: Ints, own: Ints, count: Ints, busy: Ints, by_range: Ints,
    labels: tuple[str, ...],
) -> pd.DataFrame:  # fmt: skip
    """The slices of a lane with what a reader asks of them; figures of one launch are NA for merged ones."""
    row = lane.row[own]
    frame = pd.DataFrame({"lane": lane.name, "kind": lane.kind, "start_ns": start, "end_ns": end})
    frame = frame.assign(count=count, busy_ns=busy, grid=None, block=None, bytes=None)
    frame = frame.assign(registers_count=None, smem_bytes=None, group="")
    names = np.array(labels, object)
    frames = report.frames
    if lane.kind == "ranges":
        frame = frame.assign(name=frames["ranges"]["label"].to_numpy(object)[row], group=names[by_range[row]])
    elif lane.kind == "calls":
        frame = frame.assign(name=frames["calls"]["name"].to_numpy(object)[row])
    else:
        operations = frames["operations"].iloc[row]
        inner = operations["range_id"].fillna(-1).to_numpy(np.int64)
        group = names[np.where(inner >= 0, by_range[np.maximum(inner, 0)], 0)]
        if lane.kind == "gaps":
            parts = operations[[f"gap_{part}_ns" for part in GAP_PARTS]].to_numpy(float)
            frame = frame.assign(name=np.array(GAP_PARTS, object)[parts.argmax(axis=1)], group=group)
        else:
            frame = frame.assign(name=operations["name"].to_numpy(object), group=group)
            frame = _of_launch(frame, operations, frames["kernels"], frames["copies"])
    return frame[list(_COLUMNS)]


def _of_launch(
    frame: pd.DataFrame, operations: pd.DataFrame, kernels: pd.DataFrame, copies: pd.DataFrame
) -> pd.DataFrame:
    """Adds grid, block, registers and shared memory of single kernels, and the bytes of single copies."""
    source, kind = operations["source_id"].to_numpy(int), operations["kind"].to_numpy(object)
    single = frame["count"].to_numpy() == 1
    at = np.flatnonzero(single & (kind == "kernel"))
    if len(at):
        own = kernels.iloc[source[at]]
        for column, axes in (("grid", "grid_{}"), ("block", "block_{}")):
            parts = [own[axes.format(axis)].astype(str).to_numpy(object) for axis in "xyz"]
            cells = np.full(len(frame), None, object)
            cells[at] = parts[0] + " × " + parts[1] + " × " + parts[2]
            frame[column] = cells
        for column, values in (
            ("registers_count", own["registers_count"]),
            ("smem_bytes", own["static_smem_bytes"] + own["dynamic_smem_bytes"]),
        ):
            figures = np.full(len(frame), None, object)
            figures[at] = values.astype(object).where(values.notna(), None).to_numpy(object)
            frame[column] = figures
    at = np.flatnonzero(single & (kind == "copy"))
    if len(at):
        moved = np.full(len(frame), None, object)
        moved[at] = copies["copied_bytes"].iloc[source[at]].astype(object).to_numpy(object)
        frame["bytes"] = moved
    return frame


def _empty() -> pd.DataFrame:
    return pd.DataFrame({name: [] for name in _COLUMNS})


def density(drawn: Lanes, window: Window, *, bins: int = 160) -> pd.DataFrame:
    """How busy the devices are along a window: ``start_ns``, ``end_ns`` from its origin, ``busy_ratio`` of each part.

    The busy time of all drawn streams over the part's length, so that overlapping streams may exceed 1.
    """
    edges = np.linspace(window.start_ns, window.end_ns, bins + 1).astype(np.int64)
    total = np.zeros(bins + 1)
    for lane in drawn.lanes:
        if lane.kind == "operations":
            before = np.concatenate([[0], np.cumsum(lane.end - lane.start)])
            at = np.searchsorted(lane.start, edges, side="right")
            open_ = np.maximum(lane.end[np.maximum(at - 1, 0)] - edges, 0) * (at > 0)
            total += before[at] - open_
    origin = window.start_ns if window.origin_ns is None else window.origin_ns
    length = np.maximum(np.diff(edges), 1)
    return pd.DataFrame(
        {"start_ns": edges[:-1] - origin, "end_ns": edges[1:] - origin, "busy_ratio": np.diff(total) / length}
    )
