"""Cuts a capture into lanes, and a window of a lane into as many slices as a screen can show: what is narrow is merged.

Lanes are indexed once a capture (:class:`Tracks`); a window then costs a few passes over the rows inside it, and every
figure stays exact: counts and busy time of a lane's slices sum to those of the lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from tracekit.analyze.gaps import is_synchronizing
from tracekit.analyze.intervals import NONE, Cover, Ints, running_end, sum_by
from tracekit.analyze.places import Places
from tracekit.model import tables
from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.schema import DType, Table, integers, text_codes
from tracekit.model.tables import GAP_PARTS
from tracekit.model.timeline import Activity, Lane, LeftOut, Place, View

MARKS: Final = 900
"""At most so many slices a lane."""
THREADS: Final = 3
DEPTHS: Final = 6
DEVICES: Final = 4
STREAMS: Final = 4
"""Lanes drawn at most: threads, NVTX depths of a thread, devices, and streams of a device."""

_DENSE: Final = 4_000_000
"""Cells of a table of sums that may be mostly empty; a larger one is made sparse."""
_GEOMETRY: Final = tuple(
    name for name in tables.SLICES.names if name.startswith(("grid_", "block_", "registers_", "static_", "dynamic_"))
)


@dataclass(frozen=True)
class Group:
    """What rows have in common: a name, a region, a role, and of a graph's nodes the region that they were built in."""

    name: str
    path: Path | None
    role: str
    built_in: Path | None = None


@dataclass(frozen=True)
class Cut:
    """A window of a track. ``row`` is the track's row of a slice of one row, and -1 of a merged one.

    ``first`` has the place in ``rows`` (rows of the track that touch the window) at which each slice begins.
    ``group`` has the most busy time of a slice, ``share`` of it.
    """

    rows: Ints
    first: Ints
    start: Ints
    end: Ints
    count: Ints
    busy: Ints
    row: Ints
    group: Ints
    share: np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Track:
    """A lane's rows in order of start: their times, numbers in their table and groups.

    A row's own time is [``begin``, ``reach``): what it covers and no earlier row does; ``reach`` is the latest end so
    far, and ``before`` the own time of all earlier rows. Own times are disjoint and in order, which makes sums exact
    and search logarithmic.
    """

    lane: Lane
    start: Ints
    end: Ints
    number: Ints
    group: Ints
    begin: Ints
    reach: Ints
    before: Ints

    @classmethod
    def of(cls, lane: Lane, start: Ints, end: Ints, number: Ints, group: Ints) -> Track:
        """From rows in any order."""
        if (start[1:] < start[:-1]).any():
            order = np.lexsort((-end, start))
            start, end, number, group = start[order], end[order], number[order], group[order]
        earlier = running_end(end)
        begin, reach = np.maximum(start, earlier), np.maximum(end, earlier)
        if (begin == start).all() and (reach == end).all():  # Nothing overlaps: a million rows need no second copy.
            begin, reach = start, end
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(reach - begin)])
        return cls(lane, start, end, number.astype(np.int32), group.astype(np.int32), begin, reach, before)

    def busy(self, low: int, high: int) -> int:
        """How much of [low, high) is covered."""
        return self._until(high) - self._until(low)

    def _until(self, time: int) -> int:
        """How much is covered before a time."""
        at = int(np.searchsorted(self.begin, time, side="right")) - 1
        if at < 0:
            return 0
        return int(self.before[at] + min(time - self.begin[at], self.reach[at] - self.begin[at]))

    def touching(self, low: int, high: int) -> slice | Ints:
        """The rows of which a part lies in [low, high), as a slice where nothing lies between; one of no length counts
        where it begins."""
        first, last = np.searchsorted(self.start, (low, high), side="left").tolist()
        reaching = min(int(np.searchsorted(self.reach, low, side="right")), first)
        carried = reaching + np.flatnonzero(self.end[reaching:first] > low)
        if len(carried) == first - reaching:
            return slice(reaching, last)
        return np.concatenate([carried, np.arange(first, last, dtype=np.int64)])

    def cut(self, low: int, high: int, marks: int = MARKS) -> Cut:
        """At most ``marks`` slices of the window [low, high): rows of at least a pixel alone, the others by pixel.

        A pixel is the window's third of ``marks``: at most that many rows are a pixel wide, and each of them splits
        the narrow ones of a pixel at most once.
        """
        pixels = max(1, marks // 3)
        at = self.touching(low, high)
        start, begin, reach = self.start[at], self.begin[at], self.reach[at]
        rows = np.arange(at.start, at.stop, dtype=np.int64) if isinstance(at, slice) else at
        busy = reach - begin
        for across in (np.flatnonzero(begin < low), np.flatnonzero(reach > high)):
            busy[across] = np.clip(reach[across], low, high) - np.clip(begin[across], low, high)
        wide = np.flatnonzero(busy >= -(-(high - low) // pixels))
        edges = low + (np.arange(1, pixels, dtype=np.int64) * (high - low)) // pixels
        first = np.unique(np.concatenate([[0], np.searchsorted(start, edges, side="left"), wide, wide + 1]))
        first = first[first < len(rows)]
        if not len(first):
            none = np.empty(0, np.int64)
            return Cut(rows, none, none, none, none, none, none, none, np.empty(0))
        count = np.diff(np.append(first, len(rows)))
        total = np.add.reduceat(busy, first)
        alone = count == 1
        # Own times are in order: that of a slice begins with its first row's and ends at its last row's reach.
        from_, to = np.maximum(start[first], low), np.minimum(self.end[rows[first]], high)
        own = ~alone & (total > 0)
        group, share = _leading(self.group[at], busy, first, count, total)
        return Cut(
            rows=rows,
            first=first,
            start=np.where(own, np.maximum(begin[first], low), from_),
            end=np.where(own, np.minimum(reach[first + count - 1], high), np.where(alone, to, from_)),
            count=count,
            busy=total,
            row=np.where(alone, rows[first], -1),
            group=group,
            share=share,
        )


def _leading(group: Ints, busy: Ints, first: Ints, count: Ints, total: Ints) -> tuple[Ints, Any]:
    """The group with the most busy time of each slice, the first one where none has any; and its share."""
    leader = group[first]
    most = busy[first]
    merged = np.flatnonzero(count > 1)
    if not group.any():
        most = total
    elif len(merged):
        groups = int(group.max()) + 1
        own = np.where(count > 1, np.cumsum(count > 1) - 1, -1)
        key = np.repeat(own, count) * groups + group
        if len(merged) < len(count):
            inside = np.repeat(count > 1, count)
            key, busy = key[inside], busy[inside]
        if len(merged) * groups <= _DENSE:
            sums = sum_by(key, busy, len(merged) * groups).reshape(len(merged), groups)
            top = sums.argmax(axis=1)
            found = sums[np.arange(len(merged)), top]
        else:
            keys, code = np.unique(key, return_inverse=True)
            totals = sum_by(code, busy, len(keys))
            order = np.lexsort((-totals, keys // groups))
            best = order[np.searchsorted((keys // groups)[order], np.arange(len(merged)))]
            top, found = keys[best] % groups, totals[best]
        leader[merged] = np.where(found > 0, top, leader[merged])
        most[merged] = found
    return leader, np.divide(most, total, out=np.full(len(total), np.nan), where=total > 0)


@dataclass(frozen=True)
class Tracks:
    """The lanes of a capture, indexed; made once a report.

    ``ranges`` are by thread and depth, ``calls`` by thread, ``operations`` by device and stream, ``gaps`` and
    ``devices`` (the union of a device's operations) by device.
    """

    ranges: Mapping[int, tuple[Track, ...]]
    calls: Mapping[int, Track]
    operations: Mapping[int, tuple[Track, ...]]
    gaps: Mapping[int, Track]
    devices: Mapping[int, Cover]
    groups: tuple[Group, ...]
    places: Places
    frames: Mapping[str, pd.DataFrame]

    @classmethod
    def of(cls, frames: Mapping[str, pd.DataFrame]) -> Tracks | None:
        """From a report's frames; None where they have no timeline."""
        if "operations" not in frames:
            return None
        operations, ranges, calls, instances = (frames[n] for n in ("operations", "ranges", "calls", "instances"))
        places, known = pd.factorize(instances["path"].to_numpy())
        paths: list[Path] = list(known)
        if (UNATTRIBUTED,) not in paths:
            paths.append((UNATTRIBUTED,))
        outside = paths.index((UNATTRIBUTED,))
        path_of_range = np.full(len(ranges), outside, np.int64)
        depth = np.zeros(len(ranges), np.int64)
        at = integers(instances["range_id"], -1)
        path_of_range[at[at >= 0]] = places[at >= 0]
        depth[at[at >= 0]] = instances["depth"].to_numpy()[at >= 0]

        groups = [Group(path[-1], path, "range") for path in paths]
        range_tracks = _range_tracks(ranges, depth, path_of_range)
        call_code, call_names = text_codes(calls["name"])
        call_group = call_code + len(groups)
        groups += [Group(name, None, call_role(name)) for name in call_names]
        owner, builder = (integers(operations[name], -1) for name in ("range_id", "built_in_range_id"))
        path_code = np.append(path_of_range, outside)[owner]
        built_code = np.append(path_of_range, len(paths))[builder]
        built_in: list[Path | None] = [*paths, None]
        name_code, names = text_codes(operations["name"])
        kind_code, kinds = text_codes(operations["kind"])
        shape = (max(1, len(kinds)), len(paths), len(built_in), max(1, len(names)))
        code, distinct = pd.factorize(np.ravel_multi_index((kind_code, path_code, built_code, name_code), shape))
        operation_group = code + len(groups)
        groups += [
            Group(names[name], paths[path], operation_role(kinds[kind], names[name]), built_in[built])
            for kind, path, built, name in zip(*(c.tolist() for c in np.unravel_index(distinct, shape)), strict=True)
        ]
        return cls(
            ranges=range_tracks,
            calls=_call_tracks(calls, call_group),
            operations=_operation_tracks(operations, operation_group),
            gaps=_gap_tracks(operations),
            devices=_device_covers(operations),
            groups=tuple(groups),
            places=Places.of(frames),
            frames=frames,
        )

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The devices that have work, in order."""
        return tuple(sorted(self.operations))

    def find(self, path: Path | None, instance: int | None = None) -> Place | None:
        """The instance of a region, by default the median one; the whole capture for None. None where there is none."""
        return self.whole if path is None else self.places.find(path, instance)

    @cached_property
    def whole(self) -> Place | None:
        """The whole capture, aligned at its first event; None for one without any."""
        tracks = [*self._host_tracks(), *(track for own in self.operations.values() for track in own)]
        if not tracks:
            return None
        low = min(int(track.start[0]) for track in tracks)
        high = max(int(track.reach[-1]) for track in tracks)
        return Place(path=None, instance=0, instances=1, origin_ns=low, start_ns=low, end_ns=high)

    def _host_tracks(self) -> Iterable[Track]:
        yield from (track for own in self.ranges.values() for track in own)
        yield from self.calls.values()

    def activity(self, low: int, high: int, bins: int) -> Activity:
        """How busy the devices are in each of so many bins of [low, high)."""
        edges = low + (np.arange(bins + 1, dtype=np.int64) * (high - low)) // bins
        if not self.devices or high - low < bins:
            return Activity(low, high, ())
        busy = sum(np.diff(cover.until(edges)) for cover in self.devices.values())
        return Activity(low, high, tuple((busy / (np.diff(edges) * len(self.devices))).tolist()))

    def view(
        self, low: int, high: int, *, place: Place | None = None, devices: Collection[int] = (), marks: int = MARKS
    ) -> View:
        """The window [low, high): its lanes, and in each at most ``marks`` slices.

        Which lanes are drawn goes by activity in the window and in ``place``, so that they stay while one zooms; the
        thread of ``place`` comes first. Where ``devices`` are named, the capture's others are not asked for.
        """
        if high <= low:
            raise ValueError(f"a window of {high - low} ns")
        spans = [(low, high), *([(place.start_ns, place.end_ns)] if place and place.end_ns > place.start_ns else [])]
        tracks, left_out = self._chosen(spans, place.thread if place else None, devices)
        lanes: list[Lane] = []
        slices: list[dict[str, Any]] = []
        gaps: list[dict[str, Any]] = []
        for number, track in enumerate(tracks):
            cut = track.cut(low, high, marks)
            lanes.append(replace(track.lane, count=len(cut.rows), busy_ns=int(cut.busy.sum())))
            (gaps if track.lane.kind == "gaps" else slices).append(self._described(number, track, cut))
        return View(low, high, tuple(lanes), _table(tables.SLICES, slices), _table(tables.GAP_SLICES, gaps), left_out)

    def _chosen(
        self, spans: Sequence[tuple[int, int]], first: int | None, wanted: Collection[int]
    ) -> tuple[list[Track], LeftOut]:
        """The tracks to draw, from top to bottom."""

        def busy(tracks: Iterable[Track | None]) -> int:
            return sum(track.busy(low, high) for track in tracks if track is not None for low, high in spans)

        out: list[Track] = []
        threads = {
            thread: busy([*self.ranges.get(thread, ())[:1], self.calls.get(thread)])
            for thread in dict.fromkeys([*self.ranges, *self.calls])
        }
        active = _ranked(threads, first)
        depths = 0
        for thread in active[:THREADS]:
            levels = [track for track in self.ranges.get(thread, ()) if busy([track])]
            depths += max(0, len(levels) - DEPTHS)
            out += levels[:DEPTHS]
            out += [self.calls[thread]] if thread in self.calls else []
        asked = [device for device in self.device_ids if device in wanted] or self.device_ids
        devices = _ranked({device: busy(self.operations[device]) for device in asked})
        streams = 0
        for device in sorted(devices[:DEVICES]):
            own = _ranked({number: busy([track]) for number, track in enumerate(self.operations[device])})
            streams += max(0, len(own) - STREAMS)
            out += [self.operations[device][number] for number in sorted(own[:STREAMS])]
            out += [self.gaps[device]] if device in self.gaps else []
        return out, LeftOut(
            threads=max(0, len(active) - THREADS),
            depths=depths,
            devices=max(0, len(devices) - DEVICES),
            streams=streams,
        )

    def _described(self, number: int, track: Track, cut: Cut) -> dict[str, Any]:
        """The columns of a cut, with what is known of its rows."""
        alone = cut.row >= 0
        row = np.where(alone, track.number[cut.row] if len(track.number) else 0, -1)
        out: dict[str, Any] = {
            "lane": np.full(len(cut.first), number, np.int64), "start_ns": cut.start, "end_ns": cut.end,
            "row_count": cut.count, "busy_ns": cut.busy, "row": row,
        }  # fmt: skip
        if track.lane.kind == "gaps":
            ended = track.number[cut.rows]
            sums = [
                np.add.reduceat(self._gap_parts[part][ended], cut.first)
                if part in self._gap_parts and len(cut.first)
                else np.zeros(len(cut.first), np.int64)
                for part in GAP_PARTS
            ]
            out["start_ns"] = np.where(alone, track.start[cut.row] if len(track.start) else 0, cut.start)
            out["end_ns"] = np.where(alone, track.end[cut.row] if len(track.end) else 0, cut.end)
            out["part"] = np.array(GAP_PARTS, object)[np.argmax(sums, axis=0)]
            return out | {f"gap_{part}_ns": values for part, values in zip(GAP_PARTS, sums, strict=True)}
        groups = [self.groups[code] for code in cut.group.tolist()]
        duration = np.where(alone, (track.end - track.start)[cut.row] if len(track.end) else 0, -1)
        out |= {
            "name": [group.name for group in groups],
            "path": [group.path for group in groups],
            "built_in_path": [group.built_in for group in groups],
            "role": [group.role for group in groups],
            "share_ratio": cut.share,
            "duration_ns": duration,
        }
        if track.lane.kind == "operations":
            return out | self._of_operations(row, out)
        if track.lane.kind == "ranges":
            still_open = self.frames["ranges"]["open"].to_numpy(bool)
            return out | {"open": [bool(still_open[at]) if at >= 0 else None for at in row.tolist()]}
        return out

    def _of_operations(self, row: Ints, out: Mapping[str, Any]) -> dict[str, Any]:
        """Grid, block, resources, sizes and DRAM bytes of operations; NA for those that are merged (row -1)."""
        operations, launches, copies = (self.frames[name] for name in ("operations", "launches", "copies"))
        known = np.flatnonzero(row >= 0)
        launch = np.full(len(row), -1, np.int64)
        launch[known] = operations["launch"].to_numpy()[row[known]]
        found: dict[str, Any] = {
            name: np.where(launch >= 0, np.append(integers(launches[name], NONE), NONE)[launch], NONE)
            for name in _GEOMETRY
        }
        role = np.array(out["role"], object)
        is_copy = known[np.isin(role[known], ["copy", "memset"])]
        size = np.full(len(row), -1, np.int64)
        size[is_copy] = copies["copied_bytes"].to_numpy()[operations["source_id"].to_numpy()[row[is_copy]]]
        found["copied_bytes"] = size
        cells = [
            _nearest(self._bytes, number, path) if number >= 0 else _NO_BYTES
            for number, path in zip(launch.tolist(), out["path"], strict=True)
        ]
        for place, name in enumerate(("dram_read_bytes", "dram_write_bytes", "dram_kind")):
            found[name] = [cell[place] for cell in cells]
        return found

    @cached_property
    def _gap_parts(self) -> Mapping[str, Ints]:
        """Each part of the gap that an operation ends, by operation; those that the capture has."""
        parts = {part: self.frames["operations"][f"gap_{part}_ns"].to_numpy() for part in GAP_PARTS}
        return {part: values for part, values in parts.items() if values.any()}

    @cached_property
    def _bytes(self) -> Mapping[tuple[int, Path], _Bytes]:
        """DRAM bytes by launch configuration and region; the first kind where there are several."""
        frame = self.frames["launch_bytes"]
        columns = (frame[name].astype(object) for name in ("dram_read_bytes", "dram_write_bytes", "kind"))
        cells = [tuple(None if pd.isna(v) else v for v in row) for row in zip(*columns, strict=True)]
        keys = zip(frame["launch"].tolist(), frame["path"], strict=True)
        return dict(reversed(list(zip(keys, cells, strict=True))))


_Bytes = tuple[Any, ...]
_NO_BYTES: Final[_Bytes] = (None, None, None)


def _nearest(measured: Mapping[tuple[int, Path], _Bytes], launch: int, path: Path | None) -> _Bytes:
    """What was measured in the region itself, or in the nearest around it."""
    while path:
        if (found := measured.get((launch, path))) is not None:
            return found
        path = path[:-1]
    return _NO_BYTES


def call_role(name: str) -> str:
    """What an API call does: launch, sync (it waits for the device) or other."""
    return "sync" if is_synchronizing(name) else "launch" if "Launch" in name else "other"


def operation_role(kind: str, name: str) -> str:
    """kernel, copy, memset or graph."""
    return "memset" if kind == "copy" and name.startswith("[memset") else kind


def _ranked(busy: Mapping[int, int], first: int | None = None) -> list[int]:
    """Those with any activity, the most active first; ``first`` before all others."""
    return sorted((key for key in busy if busy[key]), key=lambda key: (key != first, -busy[key], key))


def _split(lane: Ints) -> tuple[Ints, Ints]:
    """An order that brings rows of one lane together, and where each lane begins in it."""
    order = np.argsort(lane, kind="stable")
    ordered = lane[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(lane) else order
    return order, begins


def _of(values: Ints, rows: Ints) -> Ints:
    """These rows of an array, which are in order: the array itself where they are all of it."""
    return values if len(rows) == len(values) else values[rows]


def _parts(order: Ints, begins: Ints) -> list[Ints]:
    return np.split(order, begins[1:]) if len(begins) else []


def _range_tracks(ranges: pd.DataFrame, depth: Ints, group: Ints) -> dict[int, tuple[Track, ...]]:
    thread, start, end = (ranges[name].to_numpy() for name in ("thread", "start_ns", "end_ns"))
    code, threads = pd.factorize(thread)
    levels = int(depth.max(initial=0)) + 1
    out: dict[int, list[Track]] = {}
    for rows in _parts(*_split(code * levels + depth)):
        lane = Lane("ranges", thread=int(threads[code[rows[0]]]), depth=int(depth[rows[0]]))
        track = Track.of(lane, _of(start, rows), _of(end, rows), rows, _of(group, rows))
        out.setdefault(int(threads[code[rows[0]]]), []).append(track)
    return {thread: tuple(tracks) for thread, tracks in out.items()}


def _call_tracks(calls: pd.DataFrame, group: Ints) -> dict[int, Track]:
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    code, threads = pd.factorize(calls["thread"].to_numpy())
    return {
        int(threads[code[rows[0]]]): Track.of(
            Lane("calls", thread=int(threads[code[rows[0]]])), _of(start, rows), _of(end, rows), rows, _of(group, rows)
        )
        for rows in _parts(*_split(code))
    }


def _operation_tracks(operations: pd.DataFrame, group: Ints) -> dict[int, tuple[Track, ...]]:
    keys = ("device_id", "process", "context", "stream")
    columns = {name: operations[name].to_numpy() for name in (*keys, "start_ns", "end_ns")}
    code = np.zeros(len(operations), np.int64)
    for name in keys:
        own, values = pd.factorize(columns[name], sort=True)
        code = pd.factorize(code * max(1, len(values)) + own, sort=True)[0].astype(np.int64)
    out: dict[int, list[Track]] = {}
    for rows in _parts(*_split(code)):
        lane = Lane("operations", **{name: int(columns[name][rows[0]]) for name in keys})
        start, end = (_of(columns[name], rows) for name in ("start_ns", "end_ns"))
        track = Track.of(lane, start, end, rows, _of(group, rows))
        out.setdefault(int(columns["device_id"][rows[0]]), []).append(track)
    return {device: tuple(tracks) for device, tracks in out.items()}


def _gap_tracks(operations: pd.DataFrame) -> dict[int, Track]:
    gap, start, device = (operations[name].to_numpy() for name in ("gap_ns", "start_ns", "device_id"))
    ends = np.flatnonzero(gap > 0)
    return {
        int(device[rows[0]]): Track.of(
            Lane("gaps", device_id=int(device[rows[0]])),
            start[rows] - gap[rows], start[rows], rows, np.zeros(len(rows), np.int64),
        )
        for order, begins in (_split(device[ends]),)
        for rows in (ends[part] for part in _parts(order, begins))
    }  # fmt: skip


def _device_covers(operations: pd.DataFrame) -> dict[int, Cover]:
    start, end, device = (operations[name].to_numpy() for name in ("start_ns", "end_ns", "device_id"))
    return {int(device[rows[0]]): Cover.of(start[rows], end[rows]) for rows in _parts(*_split(device))}


def _table(declared: Table, parts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The parts below one another, as the declared table; -1 and absent columns are NA where a column is nullable."""
    if not parts:
        return declared.empty()
    data: dict[str, Any] = {}
    for column in declared:
        cells = [part.get(column.name, [None] * len(part["lane"])) for part in parts]
        if column.dtype is not DType.INT:
            data[column.name] = [cell for values in cells for cell in values]
            continue
        values = np.concatenate([np.full(len(c), NONE) if isinstance(c, list) else c for c in cells])
        data[column.name] = pd.Series(pd.arrays.IntegerArray(values, values < 0)) if column.nullable else values
    return declared.conform(data, source=declared.name)
