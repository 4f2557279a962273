"""Summarizes a capture: the metrics of every region over its instances, with a reason for each that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyze.attribution import KERNEL
from tracekit.analyze.counters import OF_KERNEL, SUMMED, UNKNOWN_KIND, Joined, RegionCounters
from tracekit.analyze.launches import Launches
from tracekit.analyze.occupancy import active_blocks, is_known
from tracekit.analyze.regions import ADDITIVE, LEDGER, Regions
from tracekit.model.labels import Path
from tracekit.model.report import KernelTotal, Metric, Region
from tracekit.model.schema import DType
from tracekit.model.tables import DRAM_KINDS, HOST_PARTS, REGION_METRICS
from tracekit.model.units import Unit

MEASURED = ("host_ns", "device_span_ns", "busy_ns", *ADDITIVE)
"""Metrics that every instance of a region has, from the timeline."""

OF_LAUNCH = (
    "registers_count", "static_smem_bytes", "dynamic_smem_bytes", "local_thread_bytes",
    "active_blocks_count", "occupancy_limiter", "sm_fill_ratio", "waves",
)  # fmt: skip
"""Metrics of the dominant kernel's launch configuration: one value, the same for every instance."""

_NOT_ADDED = {"device_span_ns"}
_WHOLE = {Unit.NS, Unit.BYTES, Unit.COUNT}
_NO_COUNTERS = "dram_*, spill_instruction_count, tensor_pipe_ratio, achieved_occupancy_ratio: {}"


@dataclass(frozen=True)
class Dominant:
    """The launch configuration with the most busy time in a region, and its metrics of :data:`OF_LAUNCH`."""

    launch: int
    name: str
    values: Mapping[str, float | str | None]
    notes: tuple[str, ...]


def summarize(
    paths: Sequence[Path],
    order: Sequence[int],
    regions: Regions,
    launches: Launches,
    gpus: pd.DataFrame,
    joined: Joined,
) -> tuple[Region, ...]:
    """The regions of a capture, in the given ``order`` of path ids."""
    quantiles = _over_instances(regions.instances, (*MEASURED, *LEDGER))
    dominant = _dominant(regions.kernels, launches, gpus)
    kernels = _kernel_totals(regions.kernels, launches)
    return tuple(
        _region(
            paths[path_id], path_id, quantiles, dominant.get(path_id), kernels.get(path_id, ()),
            joined.regions.get(path_id), joined, len(paths[path_id]) == 1,
        )
        for path_id in order
        if path_id in quantiles.rows
    )  # fmt: skip


def whole(value: float | None, unit: str) -> float | int | None:
    """A figure as an integer where its unit is counted in whole numbers and it is one; None for NaN."""
    if value is None or np.isnan(value):
        return None
    return int(value) if unit in _WHOLE and float(value).is_integer() else float(value)


@dataclass(frozen=True)
class _Quantiles:
    """Median, p20 and p80 over the instances of each path: arrays (paths, metrics, 3); and exact sums (paths, metrics).

    ``rows`` maps a path id to its row. NaN where no instance has the metric.
    """

    metrics: Sequence[str]
    rows: Mapping[int, int]
    instances: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    sums: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]


def _over_instances(instances: pd.DataFrame, metrics: Sequence[str]) -> _Quantiles:
    """Linear quantiles over instances: all paths with the same number of instances at once."""
    code, path_ids = pd.factorize(instances["path_id"].to_numpy())
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code, minlength=len(path_ids))
    begins = np.cumsum(counts) - counts
    cells = np.empty((len(order), len(metrics)), np.float64)
    sums = np.zeros((len(path_ids), len(metrics)), np.int64)
    known = np.zeros((len(path_ids), len(metrics)), np.int64)
    for at, name in enumerate(metrics):
        column = instances[name]
        exact = column.to_numpy(np.int64, na_value=0)[order]
        present = ~column.isna().to_numpy()[order]
        cells[:, at] = np.where(present, exact, np.nan)
        sums[:, at] = np.add.reduceat(np.where(present, exact, 0), begins)
        known[:, at] = np.add.reduceat(present.astype(np.int64), begins)
    values = np.full((len(path_ids), len(metrics), 3), np.nan)
    for count in np.unique(counts).tolist():
        members = np.flatnonzero(counts == count)
        block = cells[begins[members][:, None] + np.arange(count)]
        values[members] = np.moveaxis(_quantiles(block), 0, -1)
    rows = {int(path_id): row for row, path_id in enumerate(path_ids)}
    return _Quantiles(metrics, rows, counts, values, sums, known)


def _quantiles(block: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Quantiles 0.5, 0.2, 0.8 along axis 1, linear, over the cells that are not NaN."""
    missing = np.isnan(block)
    if not missing.any():
        return np.quantile(block, (0.5, 0.2, 0.8), axis=1)
    filled = ~missing.all(axis=1)
    out = np.full((3, block.shape[0], block.shape[2]), np.nan)
    whole_cells = np.moveaxis(block, 1, 2)[filled]
    out[:, filled] = np.nanquantile(whole_cells, (0.5, 0.2, 0.8), axis=1)
    return out


def _region(
    path: Path,
    path_id: int,
    quantiles: _Quantiles,
    dominant: Dominant | None,
    kernels: tuple[KernelTotal, ...],
    counters: RegionCounters | None,
    joined: Joined,
    is_root: bool,
) -> Region:
    row = quantiles.rows[path_id]
    instances = int(quantiles.instances[row])
    metrics: dict[str, Metric] = {}
    for at, name in enumerate(quantiles.metrics):
        if name in LEDGER and not is_root:
            continue
        unit = REGION_METRICS[name].unit
        value, p20, p80 = (whole(v, unit) for v in quantiles.values[row, at].tolist())
        adds_up = value is not None and name not in _NOT_ADDED
        metrics[name] = Metric(value, unit, p20, p80, int(quantiles.sums[row, at]) if adds_up else None)
    notes = list(_timeline_notes(metrics, quantiles, row, is_root))
    metrics |= counter_metrics(counters.sums if counters else {})
    notes += counters.notes if counters else ()
    if counters is None:
        notes.append(_NO_COUNTERS.format("no Nsight Compute result belongs to this region"))
    metrics |= {name: Metric(None, REGION_METRICS[name].unit) for name in (*OF_LAUNCH, *OF_KERNEL)}
    if dominant is not None:
        for name, own in dominant.values.items():
            metrics[name] = same_for_all(name, own)
        for name, (ratio, kind) in joined.kernels.get((path_id, dominant.launch), {}).items():
            metrics[name] = same_for_all(name, ratio, None if kind == UNKNOWN_KIND else kind)
        notes.append(f"registers, shared memory, active blocks and waves are those of {dominant.name}")
        notes += dominant.notes
    else:
        notes.append("no kernels: registers, shared memory, active blocks and waves are missing")
    ordered = {column.name: metrics[column.name] for column in REGION_METRICS if column.name in metrics}
    return Region(path, instances, ordered, kernels, tuple(dict.fromkeys(notes)))


def same_for_all(name: str, value: float | str | None, kind: str | None = None) -> Metric:
    """A metric that is the same in every instance."""
    unit = REGION_METRICS[name].unit
    if value is None or isinstance(value, str):
        return Metric(value, unit)
    shown = whole(value, unit)
    return Metric(shown, unit, shown, shown, kind=kind)


def _timeline_notes(metrics: Mapping[str, Metric], quantiles: _Quantiles, row: int, is_root: bool) -> Iterator[str]:
    if metrics["gap_host_ns"].value is None:
        parts = ", ".join(f"gap_{part}_ns" for part in HOST_PARTS)
        yield f"{parts}: tracing the graph by node slows its launch, so the host's part in the gap is unknown"
    if metrics["device_span_ns"].value is None:
        yield "device_span_ns: it launched no device work"
    if is_root and metrics["wall_ns"].value is None:
        yield "wall_ns, other_busy_ns, wall_gap_*, tail_ns: it has no range, or its work ran on several devices"
    if metrics["host_ns"].value is None:
        yield "host_ns: no NVTX range was open"
    if is_root and metrics["wall_ns"].value is not None:
        at = list(quantiles.metrics).index("wall_ns")
        if (known := int(quantiles.known[row, at])) < int(quantiles.instances[row]):
            yield f"wall_ns and its parts cover {known} of {int(quantiles.instances[row])} instances"


def counter_metrics(sums: Mapping[str, Mapping[str, tuple[float, ...]]]) -> dict[str, Metric]:
    """The summed counters by kind and metric; DRAM bytes in the preferred kind, with every captured kind beside it."""
    out: dict[str, Metric] = {}
    kinds = [kind for kind in (*DRAM_KINDS, UNKNOWN_KIND) if kind in sums]
    for name in SUMMED:
        unit = REGION_METRICS[name].unit
        by_kind = {kind: _metric_of(sums[kind][name], unit, kind) for kind in kinds if name in sums[kind]}
        if name == "spill_instruction_count":
            # The instructions that a launch executes do not depend on the state of its caches.
            best = next(iter(by_kind.values()), None)
            out[name] = Metric(best.value, unit, best.p20, best.p80, best.sum) if best else Metric(None, unit)
        elif by_kind:
            best = next(iter(by_kind.values()))
            out[name] = Metric(best.value, unit, best.p20, best.p80, best.sum, best.kind, by_kind)
        else:
            out[name] = Metric(None, unit)
    return out


def _metric_of(values: tuple[float, ...], unit: str, kind: str) -> Metric:
    median, p20, p80 = np.quantile(np.array(values), (0.5, 0.2, 0.8)).tolist()
    label = None if kind == UNKNOWN_KIND else kind
    total = whole(float(sum(values)), unit)
    return Metric(whole(median, unit), unit, whole(p20, unit), whole(p80, unit), total, label)


def _dominant(kernels: pd.DataFrame, launches: Launches, gpus: pd.DataFrame) -> dict[int, Dominant]:
    """The kernel with the most busy time of each path; the earlier one where two tie."""
    only = kernels[launches.frame["kind"].to_numpy(int)[kernels["launch"]] == KERNEL] if len(kernels) else kernels
    top = only.sort_values(["path_id", "busy_ns"], ascending=[True, False], kind="stable").drop_duplicates("path_id")
    values, notes = launch_metrics(launches.frame, gpus)
    return {
        int(path_id): Dominant(
            int(launch), str(launches.frame["short_name"].iloc[launch]), values[launch], notes[launch]
        )
        for path_id, launch in zip(top["path_id"], top["launch"], strict=True)
    }


def launch_metrics(
    launches: pd.DataFrame, gpus: pd.DataFrame
) -> tuple[list[dict[str, float | str | None]], list[tuple[str, ...]]]:
    """The metrics of :data:`OF_LAUNCH` for each launch configuration, with notes on what limits their truth."""
    frame = launches.assign(
        threads=launches["block_x"] * launches["block_y"] * launches["block_z"],
        grid_blocks=launches["grid_x"] * launches["grid_y"] * launches["grid_z"],
    )
    computed = []
    for device, own in frame.groupby("device_id", sort=False):
        gpu = gpus[gpus["device_id"] == device].iloc[0]
        cc = (int(gpu["cc_major"]), int(gpu["cc_minor"])) if pd.notna(gpu["cc_major"]) else (0, 0)
        sms = int(gpu["sm_count"]) if pd.notna(gpu["sm_count"]) else None
        computed.append(active_blocks(own, cc=cc, sm_count=sms).assign(known_cc=is_known(cc), has_cc=cc != (0, 0)))
    if not computed:
        return [], []
    blocks = pd.concat(computed).sort_index()
    values: list[dict[str, float | str | None]] = []
    notes: list[tuple[str, ...]] = []
    columns = {
        name: (frame if name in frame else blocks)[name].astype(object).where(lambda s: s.notna(), None).tolist()
        for name in OF_LAUNCH
    }
    for row in range(len(frame)):
        values.append({
            name: cells[row] if cells[row] is None or REGION_METRICS[name].dtype is DType.TEXT else float(cells[row])
            for name, cells in columns.items()
        })  # fmt: skip
        notes.append(tuple(_launch_notes(blocks.iloc[row], values[row])))
    return values, notes


def _launch_notes(blocks: pd.Series, values: Mapping[str, float | str | None]) -> Iterator[str]:
    if values["local_thread_bytes"] is None:
        yield "local_thread_bytes: the timeline gives 0 or nothing, which means unknown"
    if values["active_blocks_count"] is None:
        if not blocks["has_cc"]:
            yield "active_blocks_count: the capture does not describe the GPU"
        elif not blocks["known_cc"]:
            yield "active_blocks_count: the limits of this GPU's compute capability are not known"
        else:
            yield "active_blocks_count: the capture lacks registers or block size"
    elif blocks["upper_bound"]:
        yield "active_blocks_count is an upper bound: clusters or named barriers are not in the timeline"


def _kernel_totals(kernels: pd.DataFrame, launches: Launches) -> dict[int, tuple[KernelTotal, ...]]:
    """Totals by name of each path, most busy time first."""
    if not len(kernels):
        return {}
    names = launches.frame["name"].to_numpy(object)[kernels["launch"]]
    named = kernels.assign(name=names).groupby(["path_id", "name"], sort=False, as_index=False)
    totals = named[["count", "busy_ns", "duration_ns"]].sum()
    totals = totals.sort_values(["path_id", "busy_ns", "name"], ascending=[True, False, True], kind="stable")
    out: dict[int, list[KernelTotal]] = {}
    for path_id, *cells in totals[["path_id", "name", "count", "busy_ns", "duration_ns"]].itertuples(index=False):
        out.setdefault(int(path_id), []).append(KernelTotal(*cells))
    return {path_id: tuple(rows) for path_id, rows in out.items()}
