"""Makes regions of Nsight Compute results alone, where there is no timeline to join them to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tracekit.analyze.counters import OF_KERNEL, SUMMED, UNKNOWN_KIND
from tracekit.analyze.summary import OF_LAUNCH, counter_metrics, launch_metrics, same_for_all
from tracekit.model import labels
from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.report import KernelTotal, Metric, Region
from tracekit.model.tables import REGION_METRICS

_NOTE = (
    "an Nsight Compute report has no times: durations, gaps and instances are unknown; launches count as one instance"
)


def profile_regions(files: Sequence[pd.DataFrame]) -> tuple[tuple[Region, ...], tuple[str, ...]]:
    """The regions of counters tables, with the metrics that launches alone tell; and notes on how they were made."""
    frames = [frame.assign(file=number) for number, frame in enumerate(files)]
    if not frames:
        return (), ("no Nsight Compute results",)
    results = pd.concat(frames, ignore_index=True)
    paths = _paths(results["nvtx"])
    order = list(dict.fromkeys(prefix for path in paths for prefix in (path[: n + 1] for n in range(len(path)))))
    regions = []
    for path in sorted(order, key=lambda p: _position(p, order)):
        inside = np.array([own[: len(path)] == path for own in paths])
        exactly = np.array([own == path for own in paths])
        is_kernel = (results["workload_type"] == "kernel").to_numpy(bool)
        regions.append(_region(path, results[inside & is_kernel], results[exactly & ~is_kernel]))
    return tuple(regions), (_NOTE,)


def _position(path: Path, order: Sequence[Path]) -> list[int]:
    return [order.index(path[: n + 1]) for n in range(len(path))]


def _paths(nvtx: pd.Series) -> list[Path]:
    """One path for each result. A report tells how each domain nests, not how domains interleave: the domain that
    most results have is taken as the outer one."""
    seen = Counter(domain for stacks in nvtx for domain, stack in stacks if stack)
    rank = {domain: place for place, (domain, _) in enumerate(seen.most_common())}
    paths = []
    for stacks in nvtx:
        ordered = sorted((item for item in stacks if item[1]), key=lambda item: rank[item[0]])
        path = tuple(labels.normalize(label) for _, stack in ordered for label in stack)
        paths.append(path or (UNATTRIBUTED,))
    return paths


def _region(path: Path, launches: pd.DataFrame, ranges: pd.DataFrame) -> Region:
    sums: dict[str, dict[str, tuple[float, ...]]] = {}
    notes = []
    for _, rows in launches.groupby("file"):
        kind = rows["kind"].iloc[0]
        known = sums.setdefault(UNKNOWN_KIND if pd.isna(kind) else str(kind), {})
        for metric in SUMMED:
            if rows[metric].notna().all():
                known.setdefault(metric, (float(rows[metric].sum()),))
    for _, rows in ranges.groupby("file"):
        for metric in SUMMED:
            if len(measured := rows[metric].dropna()):
                sums.setdefault("in_model", {}).setdefault(metric, tuple(measured.astype(float)))
    metrics = {name: Metric(None, REGION_METRICS[name].unit) for name in (*OF_LAUNCH, *OF_KERNEL)}
    metrics |= counter_metrics(sums)
    first = launches[launches["file"] == launches["file"].min()]
    if len(first):
        metrics["kernel_count"] = same_for_all("kernel_count", float(len(first)))
        longest = first["duration_ns"].to_numpy(float, na_value=-1.0).argmax()
        dominant = first.iloc[[longest]].assign(device_id=0)
        gpus = dominant[["device_id", "cc_major", "cc_minor", "sm_count"]]
        values, launch_notes = launch_metrics(dominant.assign(local_thread_bytes=pd.NA).reset_index(drop=True), gpus)
        for name, own in values[0].items():
            metrics[name] = same_for_all(name, own)
        for name in OF_KERNEL:
            value = dominant[name].iloc[0]
            metrics[name] = same_for_all(name, None if pd.isna(value) else float(value))
        notes += [f"registers, shared memory, active blocks and waves are those of {dominant['short_name'].iloc[0]}"]
        notes += launch_notes[0]
    ordered = {column.name: metrics[column.name] for column in REGION_METRICS if column.name in metrics}
    instances = max(1, len(ranges)) if not len(first) else 1
    counts = Counter(first["name"].astype(str))
    kernels = tuple(KernelTotal(name, count, None, None) for name, count in counts.most_common())
    return Region(path, instances, ordered, kernels, (_NOTE, *notes))
