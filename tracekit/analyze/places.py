"""Finds where the instances of a region lie in a capture, and which of them is the median one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tracekit.analyze.intervals import Ints
from tracekit.model.labels import Path
from tracekit.model.schema import integers
from tracekit.model.timeline import Place

MEASURES: Final = ("wall_ns", "device_ns", "host_ns")
"""By which instances of a region are ordered: the first that is known of any."""

_UNKNOWN: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Places:
    """The instances of a capture's regions, indexed by path: rows of table instances in order of start."""

    frame: pd.DataFrame
    ranges: pd.DataFrame
    rows: Mapping[Path, Ints]

    @classmethod
    def of(cls, frames: Mapping[str, pd.DataFrame]) -> Places:
        """From a report's frames: NVTX ranges, and steps where regions were found without any."""
        known = [frames["instances"], *([frames["steps"]] if "steps" in frames else [])]
        frame = known[0] if len(known) == 1 else pd.concat(known, ignore_index=True)
        code, paths = pd.factorize(frame["path"].to_numpy())
        order = np.argsort(code, kind="stable")
        rows = np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(order) else []
        return cls(frame, frames["ranges"], dict(zip(paths, rows, strict=True)))

    def find(self, path: Path, instance: int | None = None) -> Place | None:
        """The instance of that number, by default the median one; None where there is none with a place in time.

        Median is the lower median of the first of :data:`MEASURES` that is known; else the middle one in time.
        """
        rows = self.rows.get(path)
        if rows is None or (instance is not None and not 0 <= instance < len(rows)):
            return None
        measure, values = self._measured(rows)
        median = _median(values)
        number = median if instance is None else instance
        row = rows[number]
        range_id = int(integers(self.frame["range_id"].iloc[[row]], -1)[0])
        begin, span = (int(integers(self.frame[n].iloc[[row]], -1)[0]) for n in ("device_start_ns", "device_span_ns"))
        if range_id < 0 and span < 0:
            return None
        start, end, thread = begin, begin + span, None
        if range_id >= 0:
            start, end, thread = (int(self.ranges[n].iloc[range_id]) for n in ("start_ns", "end_ns", "thread"))
        return Place(
            path=path,
            instance=number,
            instances=len(rows),
            origin_ns=start,
            start_ns=min(start, begin) if span >= 0 else start,
            end_ns=max(end, begin + span) if span >= 0 else end,
            measure=measure,
            value_ns=None if measure is None or values[number] == _UNKNOWN else int(values[number]),
            is_median=number == median,
            thread=thread,
        )

    def _measured(self, rows: Ints) -> tuple[str | None, Ints]:
        values = np.full(len(rows), _UNKNOWN)
        for name in MEASURES:
            values = integers(self.frame[name].iloc[rows], _UNKNOWN)
            if (values != _UNKNOWN).any():
                return name, values
        return None, values


def _median(values: Ints) -> int:
    """The place of the lower median of the known values, the earliest where several tie; the middle place without."""
    order = np.argsort(values, kind="stable")
    known = order[values[order] != _UNKNOWN]
    if not len(known):
        return (len(values) - 1) // 2
    return int(np.flatnonzero(values == values[known[(len(known) - 1) // 2]])[0])
