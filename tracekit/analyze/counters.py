"""Joins Nsight Compute results to the regions of a timeline, and sums them per region instance.

Results have no times. They join by their NVTX stacks, one a domain, and by their order inside a region instance; and
the join is verified: short name, grid and block of every launch must be those that the timeline shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tracekit.analyze.attribution import KERNEL
from tracekit.analyze.intervals import NONE, Ints
from tracekit.analyze.launches import Launches
from tracekit.model import labels
from tracekit.model.labels import Path
from tracekit.model.tables import DRAM_KINDS

INSTRUCTIONS = ("spill_instruction_count", "local_load_instruction_count", "local_store_instruction_count")
"""What a launch executes, in whatever state its caches are."""

SUMMED = ("dram_read_bytes", "dram_write_bytes", *INSTRUCTIONS)
"""Counters that add up over the launches of a region."""

OF_KERNEL = ("dram_throughput_ratio", "tensor_pipe_ratio", "achieved_occupancy_ratio")
"""Counters of one launch, reported for a region's dominant kernel."""

OF_EXECUTION = ("dram_read_bytes", "dram_write_bytes")
"""Counters that each execution of a launch configuration has of its own."""

UNKNOWN_KIND = "unknown"
"""Stands for the kind of results whose cache state nobody recorded."""

OF_LAUNCH = ("cluster_blocks", "barriers_count")
"""What results tell of a launch configuration that a timeline of an older nsys does not."""

_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")

Stacks = frozenset[tuple[str, Path]]
Sums = dict[str, dict[str, tuple[float, ...]]]


@dataclass(frozen=True)
class RegionCounters:
    """What the results say of one region: per kind and metric, one value for each profiled instance."""

    sums: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Joined:
    """Counters by path id, and the medians of :data:`OF_KERNEL` with their kind by (path id, launch configuration).

    ``bytes`` are those of :data:`OF_EXECUTION`, all of one kind for a pair.

    ``launches`` has :data:`OF_LAUNCH` by launch configuration, for those that were profiled.
    """

    regions: Mapping[int, RegionCounters]
    kernels: Mapping[tuple[int, int], Mapping[str, tuple[float, str]]]
    launches: pd.DataFrame
    notes: tuple[str, ...]
    bytes: Mapping[tuple[int, int], Mapping[str, tuple[float, str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class RegionTree:
    """What the join needs of a timeline's regions, by path id.

    ``sequence`` gives the launch configurations of a typical instance of a region, in order of launch: the pattern
    that profiled launches must repeat.
    """

    paths: Sequence[Path]
    parent: Ints
    domain: Sequence[str]
    sequence: Callable[[int], Ints]


NEAR_PEAK = 0.6
"""A unit this near its peak bounds a kernel; Nsight Compute's speed-of-light rules draw the line here, too."""


def bound_by(dram_throughput: float | None, tensor_pipe: float | None) -> str | None:
    """What bounds a kernel by the roofline: memory, math, or latency where neither is near its peak."""
    near = {"memory": dram_throughput, "math": tensor_pipe}
    known = {name: ratio for name, ratio in near.items() if ratio is not None}
    highest = max(known, key=lambda name: known[name], default=None)
    if highest is not None and known[highest] >= NEAR_PEAK:
        return highest
    return "latency" if len(known) == len(near) else None


def join_counters(files: Sequence[pd.DataFrame], tree: RegionTree, launches: Launches) -> Joined:
    """The results of every counters table joined to the regions of ``tree``.

    A region's sums are known where its profiled launches repeat the sequence of its timeline, one or more times; else
    a note says what differs. The first table that knows a metric of a kind is taken.
    """
    by_stacks = _paths_by_stacks(tree)
    sums: dict[int, Sums] = defaultdict(lambda: defaultdict(dict))
    region_notes: dict[int, list[str]] = defaultdict(list)
    of_kernel: dict[tuple[int, int], dict[str, tuple[float, str]]] = defaultdict(dict)
    of_execution: dict[tuple[int, int], dict[str, tuple[float, str]]] = {}
    facts: list[pd.DataFrame] = []
    notes: list[str] = []
    for results in sorted(files, key=_preference):
        placed = _place(results, by_stacks)
        if unplaced := int((placed == NONE).sum()):
            notes.append(f"{unplaced} of {len(results)} Nsight Compute results match no region of the timeline.")
        is_kernel = (results["workload_type"] == "kernel").to_numpy(bool)
        ranges = np.flatnonzero(~is_kernel & (placed >= 0))
        for path in np.unique(placed[ranges]).tolist():
            _add(sums[path], results, ranges[placed[ranges] == path].reshape(-1, 1))
        code, launch_code = _signature_codes(results, launches.frame)
        kernels = np.flatnonzero(is_kernel & (placed >= 0))
        facts.append(_of_launches(results, kernels, code, launch_code))
        for path, rows in _below(placed, kernels, tree.parent).items():
            sequence = tree.sequence(path)
            note = _differs(results, rows, code, launch_code[sequence])
            if note is None:
                _add(sums[path], results, rows.reshape(-1, len(sequence)))
            else:
                region_notes[path].append(note)
            for launch, medians in _medians(results, rows, code, launch_code, OF_KERNEL).items():
                of_kernel[path, launch] = medians | of_kernel[path, launch]
            for launch, medians in _medians(results, rows, code, launch_code, OF_EXECUTION).items():
                if medians:
                    of_execution.setdefault((path, launch), medians)
    regions = {
        path: RegionCounters(
            {kind: dict(metrics) for kind, metrics in sums.get(path, {}).items()},
            tuple(dict.fromkeys(region_notes.get(path, ()))),
        )
        for path in {*sums, *region_notes}
    }
    told = pd.concat(facts) if facts else pd.DataFrame()
    return Joined(regions, of_kernel, told[~told.index.duplicated()], tuple(notes), of_execution)


def _preference(results: pd.DataFrame) -> int:
    """Cold before warm, where both tell a metric that is reported only once."""
    return (*DRAM_KINDS, UNKNOWN_KIND).index(_kind(results, 0)) if len(results) else 0


def _kind(results: pd.DataFrame, row: int) -> str:
    kind = results["kind"].iloc[row]
    return UNKNOWN_KIND if pd.isna(kind) else str(kind)


def _paths_by_stacks(tree: RegionTree) -> dict[Stacks, list[int]]:
    """The paths of each set of per-domain stacks: a report tells how a domain nests, not how domains interleave."""
    stacks: list[dict[str, Path]] = []
    out: dict[Stacks, list[int]] = defaultdict(list)
    for path_id, path in enumerate(tree.paths):
        above = stacks[tree.parent[path_id]] if tree.parent[path_id] >= 0 else {}
        domain = tree.domain[path_id]
        own = above | {domain: (*above.get(domain, ()), path[-1])}
        stacks.append(own)
        out[frozenset(own.items())].append(path_id)
    return out


def _place(results: pd.DataFrame, by_stacks: Mapping[Stacks, list[int]]) -> Ints:
    """The path of each result, or -1 where none or several fit."""
    is_kernel = (results["workload_type"] == "kernel").to_numpy(bool)
    code, distinct = pd.factorize(results["nvtx"])
    placed = np.full((2, len(distinct)), NONE, np.int64)
    for number, nvtx in enumerate(distinct):
        stacks = frozenset((domain, tuple(map(labels.normalize, stack))) for domain, stack in nvtx if stack)
        exact = by_stacks.get(stacks, [])
        for whole_range, found in ((False, exact), (True, exact or _ending_in(stacks, by_stacks))):
            if len(found) == 1:
                placed[int(whole_range), number] = found[0]
    return placed[(~is_kernel).astype(int), code] if len(code) else np.empty(0, np.int64)


def _ending_in(stacks: Stacks, by_stacks: Mapping[Stacks, list[int]]) -> list[int]:
    """Paths that end in the given stack: replaying a range reports the range itself, not what encloses it."""
    if len(stacks) != 1:
        return []
    ((domain, stack),) = stacks
    return [
        path
        for candidate, paths in by_stacks.items()
        for path in paths
        if len(candidate) == 1 and all(d == domain and s[-len(stack) :] == stack for d, s in candidate)
    ]


def _add(sums: Sums, results: pd.DataFrame, rows: Ints) -> None:
    """Adds the sums over each line of ``rows``, one line an instance; a metric with a missing cell is left out."""
    known = sums[_kind(results, int(rows[0, 0]))]
    for metric in SUMMED:
        values = results[metric].to_numpy(float, na_value=np.nan)[rows].sum(axis=1)
        if not np.isnan(values).any():
            known.setdefault(metric, tuple(values.tolist()))


def _below(placed: Ints, rows: Ints, parent: Ints) -> dict[int, Ints]:
    """For each path with profiled launches in or below it: their rows, in order of launch."""
    out: dict[int, list[Ints]] = defaultdict(list)
    for direct in np.unique(placed[rows]).tolist():
        own, path = rows[placed[rows] == direct], direct
        while path >= 0:
            out[path].append(own)
            path = int(parent[path])
    return {path: np.sort(np.concatenate(parts)) for path, parts in out.items()}


def _differs(results: pd.DataFrame, rows: Ints, code: Ints, expected: Ints) -> str | None:
    """Why the profiled launches of a region are not its timeline's sequence, repeated; None where they are."""
    kind = _kind(results, int(rows[0]))
    if not len(expected) or len(rows) % len(expected):
        return f"{kind}: {len(rows)} launches profiled of {len(expected)} in the region; its sums are unknown"
    differing = np.argwhere(code[rows].reshape(-1, len(expected)) != expected)
    if not len(differing):
        return None
    repeat, position = differing[0].tolist()
    name = results["short_name"].iloc[int(rows[repeat * len(expected) + position])]
    return f"{kind}: launch {position} of the region was another one when profiled ({name}); its sums are unknown"


def _signature_codes(results: pd.DataFrame, launches: pd.DataFrame) -> tuple[Ints, Ints]:
    """Codes of results and of launch configurations that agree where short name, grid and block do."""
    names = pd.concat([results["short_name"].astype(object), launches["short_name"].astype(object)])
    columns = [pd.factorize(names)[0]]
    for name in _SHAPE:
        cells = [frame[name].to_numpy(float, na_value=np.nan) for frame in (results, launches)]
        columns.append(pd.factorize(np.concatenate(cells))[0])
    code = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    own = code[len(results) :]
    own[launches["kind"].to_numpy(int) != KERNEL] = NONE
    return code[: len(results)], own


def _fitting(rows: Ints, code: Ints, launch_code: Ints) -> tuple[Ints, dict[int, int]]:
    """Those results that exactly one launch configuration fits, and the configuration of each signature."""
    codes, counts = np.unique(launch_code, return_counts=True)
    fits = rows[np.isin(code[rows], codes[counts == 1])]
    return fits, {int(c): launch for launch, c in enumerate(launch_code.tolist())}


def _of_launches(results: pd.DataFrame, rows: Ints, code: Ints, launch_code: Ints) -> pd.DataFrame:
    """:data:`OF_LAUNCH` by launch configuration."""
    fits, launch_of = _fitting(rows, code, launch_code)
    first = results.iloc[fits][list(OF_LAUNCH)].astype("Int64").groupby(code[fits]).first()
    return first.set_axis([launch_of[signature] for signature in first.index.tolist()])


def _medians(
    results: pd.DataFrame, rows: Ints, code: Ints, launch_code: Ints, metrics: Sequence[str]
) -> dict[int, dict[str, tuple[float, str]]]:
    """Medians over single launches by launch configuration, with their kind."""
    fits, launch_of = _fitting(rows, code, launch_code)
    kind = _kind(results, int(rows[0]))
    by_code = results.iloc[fits][list(metrics)].astype(float).groupby(code[fits]).median()
    return {
        launch_of[signature]: {name: (cells[name], kind) for name in metrics if not np.isnan(cells[name])}
        for signature, cells in zip(by_code.index.tolist(), by_code.to_dict("records"), strict=True)
    }
