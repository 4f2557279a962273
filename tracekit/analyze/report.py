"""Runs the room's functions in order on one trace and assembles their results into a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyze.attribution import KERNEL, KINDS, Operations, attribute
from tracekit.analyze.blocks import kernel_blocks
from tracekit.analyze.counters import UNKNOWN_KIND, RegionTree, join_counters
from tracekit.analyze.gaps import measure
from tracekit.analyze.intervals import NONE, Ints
from tracekit.analyze.latency import latencies
from tracekit.analyze.launches import Launches, group_launches, is_collective
from tracekit.analyze.nesting import Nesting, nest
from tracekit.analyze.profile import profile_regions
from tracekit.analyze.regions import Regions, roll_up
from tracekit.analyze.summary import summarize
from tracekit.errors import InputError
from tracekit.model import tables
from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.report import Coverage, KernelTotal, Report
from tracekit.model.trace import Trace


def analyze(trace: Trace) -> Report:
    """The report of a trace. With a timeline, counters join to its regions; without one, they make the regions."""
    trace.notes.sort()  # tables load concurrently, and one capture must always give one report
    latency, phases = latencies(trace)
    if not trace.has_timeline:
        regions, notes = profile_regions(trace.counters)
        return Report(
            capture=_capture(trace),
            coverage=Coverage(0, 0, 0),
            regions=regions,
            kernels=(),
            latency=latency,
            phases=phases,
            notes=(*trace.notes, *notes),
        )
    ranges, calls, copies = (trace.table(name) for name in ("ranges", "calls", "copies"))
    try:
        nesting = nest(ranges)
        operations = attribute(trace, nesting)
        timeline = measure(trace, operations)
        launches = group_launches(trace, operations)
        rolled = roll_up(ranges, nesting, timeline, launches, trace.absent)
    except OverflowError as error:
        raise InputError(
            trace.source,
            expected="event times within one capture",
            found=f"times or ids too far apart ({error})",
            remedy="the file is damaged or joins several captures; export the report again",
        ) from None
    paths = (*nesting.paths, (UNATTRIBUTED,))
    tree = RegionTree(
        paths=nesting.paths,
        parent=nesting.path_parent,
        domain=nesting.path_domain,
        sequence=_sequences(operations, nesting, launches, rolled.instances),
    )
    joined = join_counters(trace.counters, tree, launches)
    ran = trace.manifest.ran if trace.manifest else {}
    launches = launches.told(joined.launches).compiled(ran.get("kernels", ()))
    regions = summarize(paths, _preorder(nesting), rolled, launches, trace.table("gpus"), joined)
    coverage = Coverage(
        operations=len(operations),
        attributed=int((operations.range >= 0).sum()),
        without_call=int((operations.call < 0).sum()),
    )
    if not len(operations):
        trace.note("The capture holds no device work: every figure about the device is missing or zero.")
    if coverage.without_call:
        is_kernel = operations.kind == KERNEL
        kernels = f"{int((is_kernel & (operations.call < 0)).sum()):,} of {int(is_kernel.sum()):,} kernels"
        trace.note(
            f"{coverage.without_call:,} of {coverage.operations:,} operations ({kernels}) have no launch call in the "
            "capture; they are kept, outside every region."
        )
    capture = _capture(trace)
    return Report(
        capture=capture,
        coverage=coverage,
        regions=regions,
        kernels=_kernels(rolled, launches),
        latency=latency,
        phases=phases,
        notes=(*trace.notes, *joined.notes),
        frames=_Frames(
            {
                "operations": lambda: timeline.frame(*_names(launches), launches.code),
                "instances": lambda: _instances(rolled, paths),
                "launches": lambda: _launches(launches, operations),
                "launch_bytes": lambda: _launch_bytes(joined.bytes, paths),
                "blocks": lambda: kernel_blocks(_launches(launches, operations), capture["gpus"]),
                "ranges": lambda: ranges,
                "calls": lambda: calls,
                "copies": lambda: copies,
            }
        ),
    )


def _names(launches: Launches) -> tuple[list[str], Ints]:
    """The distinct names of the launch configurations, and which of them each operation has."""
    code, names = pd.factorize(launches.frame["name"])
    return list(names), code.astype(np.int64)[launches.code]


def _instances(regions: Regions, paths: Sequence[Path]) -> pd.DataFrame:
    """Table instances."""
    known = regions.instances
    data: dict[str, Any] = {name: known[name] for name in tables.INSTANCES.names if name in known}
    by_number = np.empty(len(paths), object)
    by_number[:] = paths
    data["path"] = by_number[known["path_id"].to_numpy()]
    for name in ("range_id", "parent"):
        data[name] = known[name].astype("Int64").mask(known[name] < 0)
    return tables.INSTANCES.conform(data, source="instances")


def _launches(launches: Launches, operations: Operations) -> pd.DataFrame:
    """Table launches."""
    durations = pd.Series(operations.end - operations.start).groupby(launches.code)
    data: dict[str, Any] = {name: launches.frame[name] for name in tables.LAUNCHES.names if name in launches.frame}
    data |= {
        "launch": launches.frame.index.to_numpy(),
        "kind": launches.frame["kind"].map(dict(enumerate(KINDS))).astype(object),
        "collective": launches.frame["name"].map(is_collective).to_numpy(bool),
        "execution_count": durations.size().to_numpy(),
        "median_ns": durations.median().to_numpy(),
    }
    return tables.LAUNCHES.conform(data, source="launches")


def _launch_bytes(found: Mapping[tuple[int, int], Mapping[str, tuple[float, str]]], paths: Sequence[Path]) -> Any:
    """Table launch_bytes."""
    rows = [
        {
            "launch": launch,
            "path": paths[path_id],
            "kind": None if kind == UNKNOWN_KIND else kind,
            **{name: value for name, (value, _) in medians.items()},
        }
        for (path_id, launch), medians in found.items()
        for kind in dict.fromkeys(kind for _, kind in medians.values())
    ]
    data = {name: [row.get(name) for row in rows] for name in tables.LAUNCH_BYTES.names}
    return tables.LAUNCH_BYTES.conform(data, source="launch_bytes")


class _Frames(Mapping[str, pd.DataFrame]):
    """Derived tables by name, each made when first asked for."""

    def __init__(self, makers: dict[str, Callable[[], pd.DataFrame]]) -> None:
        self._makers = makers
        self._made: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Any:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _preorder(nesting: Nesting) -> list[int]:
    """Path ids as one reads a tree: every path before those inside it; then what lies outside every range."""
    children: dict[int, list[int]] = {}
    for path_id, parent in enumerate(nesting.path_parent.tolist()):
        children.setdefault(parent, []).append(path_id)
    order: list[int] = []
    pending = children.get(NONE, [])[::-1]
    while pending:
        path_id = pending.pop()
        order.append(path_id)
        pending += children.get(path_id, [])[::-1]
    return [*order, len(nesting.paths)]


def _sequences(
    operations: Operations, nesting: Nesting, launches: Launches, instances: pd.DataFrame
) -> Callable[[int], Ints]:
    """The launch configurations of a typical instance of a path: the first with the most common number of kernels."""
    path_of = instances["path_id"].to_numpy()
    kernels_of = instances["kernel_count"].to_numpy(np.int64, na_value=0)

    def sequence(path_id: int) -> Ints:
        own = np.flatnonzero(path_of == path_id)
        counts, seen = np.unique(kernels_of[own], return_counts=True)
        instance = own[kernels_of[own] == counts[seen.argmax()]][0]
        at = np.flatnonzero((operations.kind == KERNEL) & (operations.range >= 0))
        above = operations.range[at]
        while (deeper := nesting.depth[above] > nesting.depth[instance]).any():
            above = np.where(deeper, nesting.parent[above], above)
        inside = at[above == instance]
        in_order = inside[np.lexsort((operations.start[inside], operations.call[inside]))]
        found: Ints = launches.code[in_order]
        return found

    return sequence


def _kernels(regions: Regions, launches: Launches) -> tuple[KernelTotal, ...]:
    """Totals by name over the whole capture, most time first: what a plain SQL sum over the export gives."""
    top = regions.kernels[regions.kernels["path_id"].isin(_root_paths(regions))]
    names = launches.frame["name"].to_numpy(object)[top["launch"]]
    totals = top.assign(name=names).groupby("name", sort=False)[["count", "busy_ns", "duration_ns"]].sum()
    totals = totals.sort_values("duration_ns", ascending=False, kind="stable")
    return tuple(
        KernelTotal(str(name), int(row["count"]), int(row["busy_ns"]), int(row["duration_ns"]))
        for name, row in totals.to_dict("index").items()
    )


def _root_paths(regions: Regions) -> Ints:
    instances = regions.instances
    return instances["path_id"].to_numpy()[instances["depth"].to_numpy() == 0]  # type: ignore[no-any-return]


def _capture(trace: Trace) -> dict[str, Any]:
    """What was captured, in words and figures that a reader of a report needs."""
    manifest = trace.manifest
    return {
        "source": trace.source,
        "capture_id": manifest.capture_id if manifest else None,
        "workload": manifest.workload if manifest else None,
        "variant": manifest.variant if manifest else None,
        "description": manifest.description if manifest else None,
        "conditions": dict(trace.conditions),
        "environment": dict(manifest.environment) if manifest else {},
        "quality": _rows(trace.table("quality")),
        "lower_bound_bytes": manifest.ran.get("lower_bound_bytes") if manifest else None,
        "flops": manifest.ran.get("flops") if manifest else None,
        "tool": trace.tool,
        "tool_version": trace.tool_version,
        "graph_trace": trace.graph_trace,
        "hidden_graph_launches": trace.hidden_graph_launches,
        "rejected": dict(sorted(trace.rejected.items())),
        "gpus": _rows(trace.table("gpus")) or _gpus_of(trace.counters),
        "counters": [
            {
                "source": frame.attrs.get("source"),
                "results": len(frame),
                "kinds": sorted({str(kind) for kind in frame["kind"].dropna().unique()}),
            }
            for frame in trace.counters
        ],
    }


def _gpus_of(counters: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """The GPUs that Nsight Compute results name, where there is no timeline that describes them."""
    columns = ["gpu", "sm_count", "cc_major", "cc_minor", "gpu_l2_bytes"]
    frames = [frame[columns].astype(object) for frame in counters if len(frame)]
    if not frames:
        return []
    distinct = pd.concat(frames).drop_duplicates().rename(columns={"gpu": "name", "gpu_l2_bytes": "l2_bytes"})
    return _rows(distinct)


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a small table, None where a value is missing."""
    return [
        {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]
