"""Summarizes a capture: the metrics of every region over its instances, with a reason for each that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyze.counters import INSTRUCTIONS, OF_KERNEL, SUMMED, UNKNOWN_KIND, Joined, RegionCounters, bound_by
from tracekit.analyze.dominant import OF_LAUNCH, Dominant, dominant_kernels
from tracekit.analyze.launches import Launches
from tracekit.analyze.regions import ADDITIVE, LEDGER, Regions, Unknown
from tracekit.model.labels import Path
from tracekit.model.report import KernelTotal, Metric, Region
from tracekit.model.tables import DRAM_KINDS, REGION_METRICS
from tracekit.model.units import Unit

MEASURED = ("host_ns", "device_span_ns", "busy_ns", *ADDITIVE)
"""Metrics that every instance of a region has, from the timeline."""

_LEVELS = (0.5, 0.2, 0.8)
_NOT_ADDED = {"device_span_ns"}
_WHOLE = {Unit.NS, Unit.BYTES, Unit.COUNT}


def summarize(
    paths: Sequence[Path],
    order: Sequence[int],
    regions: Regions,
    launches: Launches,
    gpus: pd.DataFrame,
    joined: Joined,
) -> tuple[Region, ...]:
    """The regions of a capture, in the given ``order`` of path ids."""
    measured = _over_instances(regions.instances, MEASURED)
    ledger = _over_instances(regions.instances[regions.instances["depth"] == 0], LEDGER)
    dominant = dominant_kernels(regions.kernels, launches, gpus)
    kernels = _kernel_totals(regions.kernels, launches)
    out = []
    for path_id in order:
        if path_id not in measured.rows:
            continue
        leader = dominant.get(path_id)
        of_kernel = joined.kernels.get((path_id, leader.launch), {}) if leader else {}
        metrics, notes = _metrics(
            path_id, measured, ledger, regions.unknown, leader, of_kernel, joined.regions.get(path_id)
        )
        instances = int(measured.instances[measured.rows[path_id]])
        out.append(Region(paths[path_id], instances, metrics, kernels.get(path_id, ()), notes))
    return tuple(out)


def _metrics(
    path_id: int,
    measured: _Quantiles,
    ledger: _Quantiles,
    rules: Sequence[Unknown],
    leader: Dominant | None,
    of_kernel: Mapping[str, tuple[float, str]],
    counters: RegionCounters | None,
) -> tuple[dict[str, Metric], tuple[str, ...]]:
    """The metrics of one region in the order of their declaration, and its notes: a reason for each that is missing."""
    unknown: dict[str, str] = {}
    for paths, columns, reason in rules:
        if path_id in paths:
            unknown = dict.fromkeys(columns, reason) | unknown
    metrics = measured.of(path_id) | ledger.of(path_id)
    metrics |= counter_metrics(counters.sums if counters else {})
    metrics |= {name: same_for_all(name, None) for name in (*OF_LAUNCH, *OF_KERNEL)}
    notes = []
    if leader is not None:
        metrics |= {name: same_for_all(name, value) for name, value in leader.values.items()}
        metrics |= {
            name: same_for_all(name, ratio, None if kind == UNKNOWN_KIND else kind)
            for name, (ratio, kind) in of_kernel.items()
        }
        notes += [f"registers, shared memory, active blocks and waves are those of {leader.name}", *leader.notes]
    metrics["bound_by"] = same_for_all("bound_by", bound_of(metrics))
    if counters is not None:
        notes += counters.notes
        notes += [
            f"{kind}: sums of counters are over profiled instances: {len(next(iter(sums.values())))}"
            for kind, sums in counters.sums.items()
            if sums
        ]
    notes += [*measured.partly_known(path_id), *ledger.partly_known(path_id)]
    missing = [name for name, metric in metrics.items() if metric.value is None]
    notes += explain((name, _reason(name, metrics, unknown, leader, counters)) for name in missing)
    ordered = {column.name: metrics[column.name] for column in REGION_METRICS if column.name in metrics}
    return ordered, tuple(dict.fromkeys(notes))


def _reason(
    name: str,
    metrics: Mapping[str, Metric],
    unknown: Mapping[str, str],
    leader: Dominant | None,
    counters: RegionCounters | None,
) -> str:
    """Why a metric of a region is missing."""
    if name in LEDGER and metrics["wall_ns"].value is None and "wall_ns" not in unknown:
        return "there is no range, it launched no device work, or its work ran on several devices"
    if name in unknown:
        return unknown[name]
    if name == "host_ns":
        return "no NVTX range was open"
    if name == "device_span_ns":
        return "no device work was launched"
    if name in OF_LAUNCH:
        return leader.reasons.get(name, "the capture lacks it") if leader else "no kernel was launched"
    if counters is None:
        return "no Nsight Compute result belongs to this region"
    if name in SUMMED:
        return "not profiled, or not for every launch of the region"
    if name == "bound_by":
        return "throughput of DRAM and tensor pipe is not known for the dominant kernel"
    return "not profiled for the dominant kernel" if leader else "no kernel was launched"


def bound_of(metrics: Mapping[str, Metric]) -> str | None:
    """What bounds the dominant kernel, by the metrics of its region."""
    ratios = [metrics[name].value for name in ("dram_throughput_ratio", "tensor_pipe_ratio")]
    return bound_by(*(float(ratio) if isinstance(ratio, int | float) else None for ratio in ratios))


def explain(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Notes of the form ``metric, metric: reason`` from (metric, reason) pairs."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons:
        by_reason.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


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

    def of(self, path_id: int) -> dict[str, Metric]:
        """The metrics of one path; none where it has no row."""
        row = self.rows.get(path_id)
        out: dict[str, Metric] = {}
        for at, name in enumerate(self.metrics if row is not None else ()):
            unit = REGION_METRICS[name].unit
            value, p20, p80 = (whole(v, unit) for v in self.values[row, at].tolist())
            adds_up = value is not None and name not in _NOT_ADDED
            out[name] = Metric(value, unit, p20, p80, int(self.sums[row, at]) if adds_up else None)
        return out

    def partly_known(self, path_id: int) -> list[str]:
        """A note for metrics that some instances lack, though not all."""
        row = self.rows.get(path_id)
        if row is None:
            return []
        total = int(self.instances[row])
        return explain(
            (name, f"known for {known} of {total} instances")
            for name, known in zip(self.metrics, self.known[row].tolist(), strict=True)
            if 0 < known < total
        )


def _over_instances(instances: pd.DataFrame, metrics: Sequence[str]) -> _Quantiles:
    """Linear quantiles over instances: all paths with the same number of instances at once."""
    code, path_ids = pd.factorize(instances["path_id"].to_numpy())
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code, minlength=len(path_ids))
    begins = np.cumsum(counts) - counts
    columns = [(instances[name].to_numpy(np.int64, na_value=0), instances[name].notna().to_numpy()) for name in metrics]
    shape = (len(path_ids), len(metrics))
    values = np.full((*shape, len(_LEVELS)), np.nan)
    sums, known = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for count in np.unique(counts).tolist():
        members = np.flatnonzero(counts == count)
        rows = order[begins[members][:, None] + np.arange(count)]
        for at, (cells, present) in enumerate(columns):
            block, there = cells[rows], present[rows]
            sums[members, at] = np.where(there, block, 0).sum(axis=1)
            known[members, at] = there.sum(axis=1)
            values[members, at] = _quantiles(np.where(there, block, np.nan)).T
    numbers = {int(path_id): row for row, path_id in enumerate(path_ids)}
    return _Quantiles(metrics, numbers, counts, values, sums, known)


def _quantiles(block: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Quantiles 0.5, 0.2, 0.8 along the last axis, linear, over the cells that are not NaN; NaN where all are."""
    missing = np.isnan(block)
    if not missing.any():
        return np.quantile(block, _LEVELS, axis=-1)
    out = np.full((len(_LEVELS), *block.shape[:-1]), np.nan)
    some = ~missing.all(axis=-1)
    out[:, some] = np.nanquantile(block[some], _LEVELS, axis=-1)
    return out


def same_for_all(name: str, value: float | str | None, kind: str | None = None) -> Metric:
    """A metric that is the same in every instance."""
    unit = REGION_METRICS[name].unit
    if value is None or isinstance(value, str):
        return Metric(value, unit)
    shown = whole(value, unit)
    return Metric(shown, unit, shown, shown, kind=kind)


def counter_metrics(sums: Mapping[str, Mapping[str, tuple[float, ...]]]) -> dict[str, Metric]:
    """The summed counters by kind and metric; DRAM bytes in the preferred kind, with every captured kind beside it."""
    out: dict[str, Metric] = {}
    kinds = [kind for kind in (*DRAM_KINDS, UNKNOWN_KIND) if kind in sums]
    for name in SUMMED:
        unit = REGION_METRICS[name].unit
        by_kind = {kind: _metric_of(sums[kind][name], unit, kind) for kind in kinds if name in sums[kind]}
        if name in INSTRUCTIONS:
            best = next(iter(by_kind.values()), None)
            out[name] = Metric(best.value, unit, best.p20, best.p80, best.sum) if best else Metric(None, unit)
        elif by_kind:
            best = next(iter(by_kind.values()))
            out[name] = Metric(best.value, unit, best.p20, best.p80, best.sum, best.kind, by_kind)
        else:
            out[name] = Metric(None, unit)
    return out


def _metric_of(values: tuple[float, ...], unit: str, kind: str) -> Metric:
    median, p20, p80 = np.quantile(np.array(values), _LEVELS).tolist()
    label = None if kind == UNKNOWN_KIND else kind
    total = whole(float(sum(values)), unit)
    return Metric(whole(median, unit), unit, whole(p20, unit), whole(p80, unit), total, label)


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
