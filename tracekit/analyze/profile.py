"""Makes regions of Nsight Compute results alone, where there is no timeline to join them to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

import numpy as np
import pandas as pd

from tracekit.analyze.counters import OF_KERNEL, SUMMED, UNKNOWN_KIND
from tracekit.analyze.dominant import OF_LAUNCH, launch_metrics
from tracekit.analyze.regions import LEDGER
from tracekit.analyze.summary import MEASURED, bound_of, counter_metrics, explain, same_for_all
from tracekit.model import labels
from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.report import KernelTotal, Metric, Region
from tracekit.model.tables import REGION_METRICS

_NO_TIMES = "an Nsight Compute report has no times"
_ONE_INSTANCE = (
    "An Nsight Compute report has no times and no instances: the launches of a region count as one instance."
)


def profile_regions(files: Sequence[pd.DataFrame]) -> tuple[tuple[Region, ...], tuple[str, ...]]:
    """The regions of counters tables, with the metrics that launches alone tell; and notes on how they were made.

    A result of a whole range is an instance of its own.
    """
    if not files:
        return (), ("The capture holds neither a timeline nor Nsight Compute results.",)
    results = pd.concat([frame.assign(file=number) for number, frame in enumerate(files)], ignore_index=True)
    paths = _paths(results["nvtx"])
    is_kernel = (results["workload_type"] == "kernel").to_numpy(bool)
    regions = []
    for path in _preorder(paths):
        inside = np.array([own[: len(path)] == path for own in paths])
        exactly = np.array([own == path for own in paths])
        regions.append(_region(path, results[inside & is_kernel], results[exactly & ~is_kernel]))
    return tuple(regions), (_ONE_INSTANCE,)


def _paths(nvtx: pd.Series) -> list[Path]:
    """One path for each result.

    A report tells how each domain nests, not how domains interleave: the domain that most results have is taken as
    the outer one.
    """
    seen = Counter(domain for stacks in nvtx for domain, stack in stacks if stack)
    rank = {domain: place for place, (domain, _) in enumerate(seen.most_common())}
    paths = []
    for stacks in nvtx:
        ordered = sorted((item for item in stacks if item[1]), key=lambda item: rank[item[0]])
        path = tuple(labels.normalize(label) for _, stack in ordered for label in stack)
        paths.append(path or (UNATTRIBUTED,))
    whole = {path: _only_longer(path, set(paths)) for path in set(paths)}
    return [whole[path] for path in paths]


def _only_longer(path: Path, paths: Set[Path]) -> Path:
    """The one longer path that ends in ``path``: a replayed range is mostly reported without what encloses it."""
    longer = [other for other in paths if len(other) > len(path) and other[-len(path) :] == path]
    return longer[0] if len(longer) == 1 else path


def _preorder(paths: Sequence[Path]) -> list[Path]:
    """Every path and what encloses it, each before those inside it, siblings in order of appearance."""
    seen: dict[Path, int] = {}
    for path in paths:
        for length in range(1, len(path) + 1):
            seen.setdefault(path[:length], len(seen))
    return sorted(seen, key=lambda path: [seen[path[:length]] for length in range(1, len(path) + 1)])


def _region(path: Path, launches: pd.DataFrame, ranges: pd.DataFrame) -> Region:
    """One region from the launches inside it and the results that measured it as a whole."""
    first = launches[launches["file"] == launches["file"].min()]
    metrics = {name: same_for_all(name, None) for name in (*MEASURED, *OF_LAUNCH, *OF_KERNEL)}
    metrics |= counter_metrics(_sums(launches, ranges))
    reasons: dict[str, str] = dict.fromkeys(MEASURED, _NO_TIMES)
    reasons |= dict.fromkeys(
        (*OF_LAUNCH, *OF_KERNEL), "several kernels, and no durations that tell which of them is dominant"
    )
    reasons |= dict.fromkeys(SUMMED, "not among the profiled metrics")
    notes: list[str] = []
    if len(first):
        metrics["kernel_count"] = same_for_all("kernel_count", float(len(first)))
    if len(first) and (first["duration_ns"].notna().any() or _one_configuration(first)):
        own, own_reasons, own_notes = _dominant(first)
        metrics |= own
        reasons |= own_reasons
        notes += own_notes
    metrics["bound_by"] = same_for_all("bound_by", bound_of(metrics))
    reasons["bound_by"] = "throughput of DRAM and tensor pipe is not known for the dominant kernel"
    ordered = {
        column.name: metrics[column.name]
        for column in REGION_METRICS
        if column.name in metrics and column.name not in LEDGER
    }
    notes += explain((name, reasons[name]) for name, metric in ordered.items() if metric.value is None)
    kernels = tuple(KernelTotal(name, count, None, None) for name, count in Counter(first["name"].astype(str)).items())
    return Region(path, 1 if len(first) else max(1, len(ranges)), ordered, kernels, tuple(notes))


def _sums(launches: pd.DataFrame, ranges: pd.DataFrame) -> dict[str, dict[str, tuple[float, ...]]]:
    """Summed counters by kind and metric: one value of all launches, or one value a measured range."""
    sums: dict[str, dict[str, tuple[float, ...]]] = {}
    for rows, whole_range in ((launches, False), (ranges, True)):
        for _, own in rows.groupby("file"):
            kind = own["kind"].iloc[0]
            known = sums.setdefault(UNKNOWN_KIND if pd.isna(kind) else str(kind), {})
            for metric in SUMMED:
                if own[metric].notna().all():
                    values = own[metric].astype(float)
                    known.setdefault(metric, tuple(values) if whole_range else (float(values.sum()),))
    return sums


def _one_configuration(launches: pd.DataFrame) -> bool:
    """Whether all launches are of one kernel with one grid, block and resources: then it needs no duration to lead."""
    identity = ["name", *(f"{of}_{axis}" for of in ("grid", "block") for axis in "xyz"), "registers_count"]
    return len(launches[identity].astype(object).drop_duplicates()) == 1


def _dominant(launches: pd.DataFrame) -> tuple[dict[str, Metric], dict[str, str], list[str]]:
    """The metrics of the longest launch of the name with the most time, reasons for those missing, and notes."""
    own = launches.assign(name=launches["name"].astype(object), duration_ns=launches["duration_ns"].astype(float))
    of_name = own.groupby("name")["duration_ns"].transform("sum")
    ranked = own.assign(of_name=of_name).sort_values(["of_name", "duration_ns"], ascending=False, kind="stable")
    leader = launches.loc[ranked.index[:1]].reset_index(drop=True)
    leader = leader.assign(device_id=0, local_thread_bytes=pd.array([pd.NA], dtype="Int64"))
    if leader["waves"].isna().all():
        leader = leader.drop(columns="waves")  # Then it is computed, as for a timeline.
    values, reasons, notes = launch_metrics(leader, leader)
    metrics = {name: same_for_all(name, value) for name, value in values[0].items()}
    for name in OF_KERNEL:
        ratio = leader[name].iloc[0]
        metrics[name] = same_for_all(name, None if pd.isna(ratio) else float(ratio))
    told = f"registers, shared memory, active blocks and waves are those of {leader['short_name'].iloc[0]}"
    not_profiled = dict.fromkeys((*OF_KERNEL, *OF_LAUNCH), "not among the profiled metrics")
    not_there = dict.fromkeys(("local_thread_bytes", "frame_bytes"), "an Nsight Compute report does not tell")
    return metrics, not_profiled | reasons[0] | not_there, [told, *notes[0]]
