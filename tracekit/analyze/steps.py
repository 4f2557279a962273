"""Finds steps without NVTX ranges, from the repeating sequence of launches; else takes each trace as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from tracekit.analyze.intervals import Ints, count_by, sum_by
from tracekit.analyze.summary import whole
from tracekit.model.labels import UNATTRIBUTED
from tracekit.model.report import KernelTotal, Metric, Region, Report
from tracekit.model.schema import integers, text_codes
from tracekit.model.tables import GAP_PARTS, INSTANCES, REGION_METRICS
from tracekit.model.units import Unit

STEP: Final = "<step>"
REST: Final = "<outside steps>"
TRACE: Final = "<trace>"

_FEWEST: Final = 3
"""A sequence must come this often to be called repeating."""
_ALIKE: Final = 0.9
_CANDIDATES: Final = 12
_SUMMED: Final = ("kernel_count", "copy_count", "busy_ns", "device_ns", "gap_ns", *(f"gap_{p}_ns" for p in GAP_PARTS))
_QUANTILES: Final = (0.5, 0.2, 0.8)


@dataclass(frozen=True)
class _Repeats:
    """Where each repetition begins, in operations in order of start; and where the last ends."""

    bounds: Ints

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def merged(self, count: int) -> _Repeats:
        """As ``count`` repetitions: each of several of these, without what is left over at the end."""
        return _Repeats(self.bounds[:: self.count // count][: count + 1])


def without_ranges(base: Report, test: Report) -> tuple[Report, Report, str, tuple[str, ...]]:
    """Both reports with regions that do not need NVTX, where a side has no range: what was used, and notes.

    Steps where both sides repeat a sequence of launches equally often, or one a whole multiple of the other (then its
    repetitions are layers of a step, and are put together), give or take one; else each trace as one region. Unchanged
    where both sides have ranges, or a side has no device work.
    """
    sides = (base, test)
    if all(_has_ranges(report) for report in sides) or not all(_operations(report) is not None for report in sides):
        return base, test, "ranges", ()
    frames = [_ordered(report) for report in sides]
    found = [_repeats(frame) for frame in frames]
    lacking = [name for name, report in zip(("base", "test"), sides, strict=True) if not _has_ranges(report)]
    why = f"No NVTX range holds device work on the {' and the '.join(lacking)} side: "
    if found[0] is not None and found[1] is not None:
        few, many = sorted((found[0].count, found[1].count))
        # A capture may begin or end in the middle of a step: as many parts as make one may be left over.
        if many % few <= many // few:
            found = [one.merged(few) if one is not None else None for one in found]
            made = [
                _stepped(report, frame, repeats)
                for report, frame, repeats in zip(sides, frames, found, strict=True)
                if repeats is not None
            ]
            note = f"{why}regions are the {few} repetitions of the sequence of launches, which may be steps or parts."
            return made[0], made[1], "steps", (note,)
    made = [_stepped(report, frame, None) for report, frame in zip(sides, frames, strict=True)]
    return made[0], made[1], "trace", (f"{why}no sequence of launches repeats alike, so whole traces are compared.",)


def _has_ranges(report: Report) -> bool:
    return any(region.path != (UNATTRIBUTED,) and region.kernels for region in report.regions)


def _operations(report: Report) -> pd.DataFrame | None:
    frame = report.frames.get("operations")
    return frame if frame is not None and len(frame) else None


def _ordered(report: Report) -> pd.DataFrame:
    """The operations in order of start, over all devices."""
    frame = report.frames["operations"]
    start = frame["start_ns"].to_numpy()
    if (np.diff(start) >= 0).all():
        return frame
    return frame.iloc[np.argsort(start, kind="stable")].reset_index(drop=True)


def _repeats(frame: pd.DataFrame) -> _Repeats | None:
    """The longest stretch in which one sequence of names repeats, cut where the device idles longest within it.

    The period is how far apart the executions of a rare name are: names that come once a repetition mark it.
    """
    code, names = text_codes(frame["name"])
    counts = np.bincount(code, minlength=len(names))
    rare_first = np.argsort(counts, kind="stable")
    for name in rare_first[counts[rare_first] >= _FEWEST][:_CANDIDATES]:
        distances = np.diff(np.flatnonzero(code == name))
        periods, seen = np.unique(distances, return_counts=True)
        period = int(periods[seen.argmax()])
        same = code[period:] == code[:-period]
        if len(same) < (_FEWEST - 1) * period or same.mean() < _ALIKE:
            continue
        begin, end = _longest_run(same)
        if end - begin < (_FEWEST - 1) * period:
            continue
        gaps = frame["gap_ns"].to_numpy(np.int64)[begin : end + period]
        rows = len(gaps) // period
        phase = int(np.median(gaps[: rows * period].reshape(rows, period), axis=0).argmax())
        bounds = np.arange(begin + phase, end + period + 1, period)
        return _Repeats(bounds) if len(bounds) > _FEWEST else None
    return None


def _longest_run(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, int]:
    """Begin and end of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    longest = int((ends - begins).argmax()) if len(begins) else 0
    return (int(begins[longest]), int(ends[longest])) if len(begins) else (0, 0)


def _stepped(report: Report, frame: pd.DataFrame, repeats: _Repeats | None) -> Report:
    """The report with a region for the repetitions and one for the rest; or one for everything."""
    if repeats is None:
        groups = [(TRACE, np.zeros(len(frame), np.int64))]
    else:
        step = np.searchsorted(repeats.bounds, np.arange(len(frame)), side="right") - 1
        inside = (step >= 0) & (step < repeats.count)
        groups = [(STEP, np.where(inside, step, -1)), (REST, np.where(inside, -1, 0))]
    regions = [_region(report, frame, label, group) for label, group in groups if (group >= 0).any()]
    paths = pd.DataFrame({"operation_id": frame["operation_id"].to_numpy(np.int64), "path": None})
    for label, group in groups:
        paths.loc[group >= 0, "path"] = pd.Series([(label,)] * int((group >= 0).sum()), index=paths.index[group >= 0])
    frames = _With({"steps": _places(frame, groups[0]), "step_of": paths}, report.frames)
    return replace(report, regions=tuple(regions), frames=frames)


class _With(Mapping[str, pd.DataFrame]):
    """Frames with some more, of which none is made before it is asked for."""

    def __init__(self, more: Mapping[str, pd.DataFrame], frames: Mapping[str, pd.DataFrame]) -> None:
        self._more, self._frames = more, frames

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self._more[name] if name in self._more else self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._frames), **self._more})

    def __len__(self) -> int:
        return len({*self._frames, *self._more})


def _places(frame: pd.DataFrame, group: tuple[str, Ints]) -> pd.DataFrame:
    """Table instances for the steps: when each began, how long it took."""
    label, number = group
    at = np.flatnonzero(number >= 0)
    begins = np.flatnonzero(np.diff(number[at], prepend=-1))
    start, end, charged, gap = (
        frame[name].to_numpy(np.int64)[at] for name in ("start_ns", "end_ns", "charged_busy_ns", "gap_ns")
    )
    data = {
        "path": [(label,)] * len(begins),
        "depth": np.zeros(len(begins), np.int64),
        "instance": np.arange(len(begins)),
        "device_start_ns": start[begins],
        "device_span_ns": np.maximum.reduceat(end, begins) - start[begins],
        "device_ns": np.add.reduceat(charged + gap, begins),
    }
    return INSTANCES.conform(data, source="steps")


def _region(report: Report, frame: pd.DataFrame, label: str, group: Ints) -> Region:
    """A region whose instances are the groups from 0 on, in order; operations of group -1 are outside."""
    at = np.flatnonzero(group >= 0)
    begins = np.flatnonzero(np.diff(group[at], prepend=-1))
    start, end, charged = (frame[name].to_numpy(np.int64)[at] for name in ("start_ns", "end_ns", "charged_busy_ns"))
    kind = text_codes(frame["kind"])
    is_kind = {name: kind[0][at] == code for code, name in enumerate(kind[1])}
    none = np.zeros(len(at), bool)
    values = {name: frame[name].to_numpy(np.int64)[at] for name in frame.columns if name.startswith("gap_")}
    values |= {
        "kernel_count": is_kind.get("kernel", none).astype(np.int64),
        "copy_count": is_kind.get("copy", none).astype(np.int64),
        "busy_ns": charged,
        "device_ns": charged + values["gap_ns"],
    }
    sums = {name: np.add.reduceat(values[name], begins) for name in _SUMMED}
    sums["device_span_ns"] = np.maximum.reduceat(end, begins) - start[begins]
    sums["launch_call_count"] = _distinct(group[at], integers(frame["call_id"], -1)[at], len(begins))
    metrics = {name: _metric(name, sums[name]) for name in REGION_METRICS.names if name in sums}
    if is_kind.get("graph", none).any():
        metrics["kernel_count"] = Metric(None, Unit.COUNT)
    metrics |= _of_kernel(report)
    ordered = {name: metrics[name] for name in REGION_METRICS.names if name in metrics}
    code, names = text_codes(frame["name"])
    kernels = _kernels(code[at], names, charged, end - start)
    return Region((label,), len(begins), ordered, kernels, _notes(label))


def _distinct(group: Ints, calls: Ints, groups: int) -> Ints:
    """How many calls each group has; an operation without a call has none."""
    known = calls >= 0
    pairs = pd.unique(group[known] * (calls.max(initial=0) + 1) + calls[known])
    return np.bincount(pairs // (calls.max(initial=0) + 1), minlength=groups).astype(np.int64)


def _metric(name: str, values: Ints) -> Metric:
    unit = REGION_METRICS[name].unit
    median, p20, p80 = (whole(float(value), unit) for value in np.quantile(values, _QUANTILES))
    return Metric(median, unit, p20, p80, None if name == "device_span_ns" else int(values.sum()))


def _of_kernel(report: Report) -> dict[str, Metric]:
    """What the whole capture's dominant kernel tells, where nothing lies inside a range: it is that of a step, too."""
    if [region.path for region in report.regions] != [(UNATTRIBUTED,)]:
        return {}
    taken = [column.name for column in REGION_METRICS if column.doc.startswith("Dominant kernel")]
    return {name: metric for name, metric in report.regions[0].metrics.items() if name in taken}


def _kernels(code: Ints, names: Sequence[str], busy: Ints, duration: Ints) -> tuple[KernelTotal, ...]:
    """Totals by name, most busy time first."""
    counts = count_by(code, len(names))
    times = [sum_by(code, values, len(names)) for values in (busy, duration)]
    order = [at for at in np.argsort(-times[0], kind="stable").tolist() if counts[at]]
    return tuple(KernelTotal(names[at], int(counts[at]), int(times[0][at]), int(times[1][at])) for at in order)


def _notes(label: str) -> tuple[str, ...]:
    words = {
        STEP: "a repetition of the sequence of launches, cut where the device idles longest",
        REST: "what no whole repetition holds",
        TRACE: "everything in the capture",
    }
    return (f"{label} is {words[label]}; busy_ns is charged time: overlap with what came before is not in it",)
