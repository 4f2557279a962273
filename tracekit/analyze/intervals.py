"""Interval arithmetic on whole arrays: which interval encloses which, which is open at a time, how much is covered.

Lanes (threads, devices, groups) are laid end to end on one axis by :class:`Axis`, so that one sort serves all of them
and no interval of one lane can meet a time of another. Times are integers; every result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1
"""Stands for "no such interval" in an array of indices."""


@dataclass(frozen=True)
class Axis:
    """Places (lane, time) pairs on one integer axis: lane by lane, each lane as long as the whole span of times."""

    origin: int
    span: int

    @classmethod
    def over(cls, lanes: int, *times: Ints) -> Axis:
        """An axis for lanes 0..lanes-1 and every time in ``times``; OverflowError if 63 bits cannot hold it."""
        filled = [t for t in times if len(t)]
        low = min((int(t.min()) for t in filled), default=0)
        high = max((int(t.max()) for t in filled), default=0)
        span = high - low + 2
        if span * max(1, lanes) >= 2**62:
            raise OverflowError(f"{lanes} lanes of {span} ns do not fit on one axis")
        return cls(low, span)

    def place(self, lane: Ints, time: Ints) -> Ints:
        """Positions of the (lane, time) pairs."""
        return lane * self.span + (time - self.origin)


def running_end(end: Ints) -> Ints:
    """For intervals in order of start: the latest end of all earlier ones; the first has none (smallest int64)."""
    before = np.empty_like(end)
    if len(end):
        before[0] = np.iinfo(np.int64).min
        np.maximum.accumulate(end[:-1], out=before[1:])
    return before


def nearest_enclosing(end: Ints) -> Ints:
    """For intervals in order of (start, -end): the nearest earlier one that ends no sooner, or NONE.

    That is the innermost interval that contains it, for nested and for crossing intervals alike. Pointer jumping:
    everything between an interval and its candidate ends sooner than the interval, and this stays true when the
    candidate is replaced by the candidate's own candidate; so all candidates may jump at once.
    """
    candidate = np.arange(-1, len(end) - 1, dtype=np.int64)
    pending = np.flatnonzero(candidate >= 0)
    while len(pending):
        pending = pending[end[candidate[pending]] < end[pending]]
        candidate[pending] = candidate[candidate[pending]]
        pending = pending[candidate[pending] >= 0]
    return candidate


def last_reaching(end: Ints, enclosing: Ints, first_guess: Ints, beyond: Ints) -> Ints:
    """For each query: the last interval at or before ``first_guess`` that ends at or after ``beyond``, or NONE.

    ``enclosing`` is :func:`nearest_enclosing` of ``end``: whatever lies between an interval and its enclosing one
    ends sooner than it, so a search may skip to the enclosing one.
    """
    found = first_guess.copy()
    pending = np.flatnonzero(found >= 0)
    while len(pending):
        pending = pending[end[found[pending]] < beyond[pending]]
        found[pending] = enclosing[found[pending]]
        pending = pending[found[pending] >= 0]
    return found


@dataclass(frozen=True)
class Cover:
    """The union of intervals on an axis, ready to be measured."""

    start: Ints
    length: Ints
    before: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Cover:
        """The union of the intervals [start, end), in any order."""
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        begin = np.maximum(start, running_end(end))
        length = end - begin
        kept = length > 0
        begin, length = begin[kept], length[kept]
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
        return cls(begin, length, before)

    def until(self, position: Ints) -> Ints:
        """How much of the axis below each position is covered."""
        if not len(self.start):
            return np.zeros(len(position), np.int64)
        at = np.searchsorted(self.start, position, side="right") - 1
        inside = np.minimum(position - self.start[at], self.length[at])
        return np.where(at >= 0, self.before[at] + inside, 0)

    def between(self, low: Ints, high: Ints) -> Ints:
        """How much of [low, high) is covered."""
        return self.until(high) - self.until(low)


def sum_by(group: Ints, values: Ints, groups: int) -> Ints:
    """Exact integer sums of ``values`` per group; a negative group is left out."""
    if (group < 0).any():
        inside = group >= 0
        group, values = group[inside], values[inside]
    if len(values) and float(np.abs(values).max()) * len(values) >= 2**53:
        out = np.zeros(groups, np.int64)
        np.add.at(out, group, values)
        return out
    # bincount adds in float64, which is exact while no partial sum reaches 2**53.
    return np.bincount(group, weights=values, minlength=groups).astype(np.int64)


def count_by(group: Ints, groups: int) -> Ints:
    """Rows per group; a negative group is left out."""
    return np.bincount(group[group >= 0], minlength=groups).astype(np.int64)
