"""Nests NVTX ranges: the range that encloses each, its path and its instance; and what is open at a launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analyze.intervals import NONE, Axis, Ints, last_reaching, nearest_enclosing
from tracekit.model.labels import Path
from tracekit.model.schema import text_codes


@dataclass(frozen=True)
class _Family:
    """Ranges of one kind (push/pop or start/end) in order of (thread, start, -end), on the axis of threads."""

    row: Ints
    start: Ints
    end: Ints
    enclosing: Ints

    @classmethod
    def of(cls, row: Ints, start: Ints, end: Ints) -> _Family:
        return cls(row, start, end, nearest_enclosing(end))

    def innermost(self, first_guess: Ints, beyond: Ints) -> Ints:
        """Rows of the innermost ranges at or before the guess that last until ``beyond``; NONE where none does."""
        if not len(self.row):
            return np.full(len(first_guess), NONE, np.int64)
        found = last_reaching(self.end, self.enclosing, first_guess, beyond)
        return np.where(found >= 0, self.row[found], NONE)


@dataclass(frozen=True)
class Nesting:
    """How the ranges of a capture nest. All arrays are by row of table ranges.

    ``parent`` is the enclosing range or -1, ``depth`` 0 for roots, ``path_id`` indexes ``paths``, ``instance`` counts
    the ranges of a path in order of start. ``path_parent`` and ``path_domain`` are by path: the enclosing path or -1,
    and the domain of its innermost label.

    Domains nest into each other by containment in time. Where ranges of two domains cross without containing each
    other, neither is the other's parent. A start/end range encloses push/pop ranges of the thread that started it
    only where no push/pop range does.
    """

    parent: Ints
    depth: Ints
    path_id: Ints
    instance: Ints
    paths: tuple[Path, ...]
    path_parent: Ints
    path_depth: Ints
    path_domain: tuple[str, ...]
    threads: pd.Index
    axis: Axis
    push_pop: _Family
    start_end: _Family

    def innermost(self, thread: Ints, time: Ints) -> Ints:
        """The innermost range open on each thread at each time, as a row of table ranges, or -1.

        Open means start <= time < end. A start/end range never beats the thread's push/pop ranges.
        """
        lane = self.threads.get_indexer(pd.Index(thread)).astype(np.int64)
        inside = (time >= self.axis.origin) & (time < self.axis.origin + self.axis.span)
        known = (lane >= 0) & inside
        position = np.where(known, self.axis.place(lane, np.where(known, time, self.axis.origin)), NONE)
        found = np.full(len(thread), NONE, np.int64)
        for family in (self.push_pop, self.start_end):
            open_ = np.flatnonzero(known & (found == NONE))
            at = position[open_]
            guess = np.searchsorted(family.start, at, side="right") - 1
            found[open_] = family.innermost(guess, at + 1)
        return found


def nest(ranges: pd.DataFrame) -> Nesting:
    """The nesting of table ranges (n rows, in order of start). O(n log n); no loop over rows.

    Raises OverflowError where the times span more than 63 bits can hold for all threads.
    """
    rows = len(ranges)
    lane, threads = pd.factorize(ranges["thread"].to_numpy())
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    axis = Axis.over(len(threads), start, end)
    key_start, key_end = axis.place(lane, start), axis.place(lane, end)
    order = np.lexsort((-key_end, key_start))
    rank = np.empty(rows, np.int64)
    rank[order] = np.arange(rows)
    is_start_end = ranges["start_end"].to_numpy()
    in_push_pop, in_start_end = order[~is_start_end[order]], order[is_start_end[order]]
    push_pop = _Family.of(in_push_pop, key_start[in_push_pop], key_end[in_push_pop])
    start_end = _Family.of(in_start_end, key_start[in_start_end], key_end[in_start_end])

    parent = np.full(rows, NONE, np.int64)
    parent[in_push_pop] = np.where(push_pop.enclosing >= 0, in_push_pop[push_pop.enclosing], NONE)
    for children, families in (
        (in_push_pop[parent[in_push_pop] == NONE], (start_end,)),
        (in_start_end, (push_pop, start_end)),
    ):
        for family in families:
            orphans = children[parent[children] == NONE]
            guess = np.searchsorted(rank[family.row], rank[orphans]) - 1
            parent[orphans] = family.innermost(guess, key_end[orphans])

    depth, path_id, paths, path_parent, path_depth, path_domain = _paths(ranges, parent)
    return Nesting(
        parent=parent,
        depth=depth,
        path_id=path_id,
        instance=_ordinals(path_id),
        paths=paths,
        path_parent=path_parent,
        path_depth=path_depth,
        path_domain=path_domain,
        threads=pd.Index(threads),
        axis=axis,
        push_pop=push_pop,
        start_end=start_end,
    )


def _paths(ranges: pd.DataFrame, parent: Ints) -> tuple[Ints, Ints, tuple[Path, ...], Ints, Ints, tuple[str, ...]]:
    """Depth and path of every range, level by level from the roots; paths are numbered in order of appearance."""
    rows = len(parent)
    label_code, label_texts = text_codes(ranges["label"])
    domain_code, domain_texts = text_codes(ranges["domain"])
    depth = np.full(rows, NONE, np.int64)
    path_id = np.full(rows, NONE, np.int64)
    paths: list[Path] = []
    path_parent: list[int] = []
    path_depth: list[int] = []
    path_domain: list[str] = []
    level, current = 0, np.flatnonzero(parent == NONE)
    children = np.argsort(parent, kind="stable")
    first_child = np.searchsorted(parent[children], np.arange(rows + 1))
    while len(current):
        depth[current] = level
        above = np.where(parent[current] >= 0, path_id[parent[current]], NONE)
        code, first = _distinct(above + 1, label_code[current], len(label_texts))
        path_id[current] = code + len(paths)
        for row in current[first].tolist():
            up = int(path_id[parent[row]]) if parent[row] >= 0 else NONE
            paths.append((*(paths[up] if up >= 0 else ()), label_texts[label_code[row]]))
            path_parent.append(up)
            path_depth.append(level)
            path_domain.append(domain_texts[domain_code[row]])
        low, high = first_child[current], first_child[current + 1]
        current = np.sort(children[_expand(low, high)])
        level += 1
    return (
        depth,
        path_id,
        tuple(paths),
        np.array(path_parent, np.int64),
        np.array(path_depth, np.int64),
        tuple(path_domain),
    )


def _distinct(first: Ints, second: Ints, seconds: int) -> tuple[Ints, Ints]:
    """Codes of the (first, second) pairs in order of appearance, and where each pair first appears."""
    code, values = pd.factorize(first * max(1, seconds) + second)
    where = np.full(len(values), len(code), np.int64)
    np.minimum.at(where, code, np.arange(len(code)))
    return code.astype(np.int64), where


def _expand(low: Ints, high: Ints) -> Ints:
    """All integers of the half-open intervals [low, high), one after the other."""
    lengths = high - low
    total = int(lengths.sum())
    steps = np.ones(total, np.int64)
    kept = lengths > 0
    low, lengths = low[kept], lengths[kept]
    if not total:
        return np.empty(0, np.int64)
    begins = np.cumsum(lengths) - lengths
    steps[begins] = low - np.concatenate([[0], (low + lengths - 1)[:-1]])
    return np.cumsum(steps)


def _ordinals(group: Ints) -> Ints:
    """For rows in order: how many earlier rows are of the same group."""
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    begins = np.flatnonzero(np.concatenate([[True], sorted_group[1:] != sorted_group[:-1]])) if len(group) else order
    lengths = np.diff(np.concatenate([begins, [len(group)]]))
    out = np.empty(len(group), np.int64)
    out[order] = np.arange(len(group)) - np.repeat(begins, lengths)
    return out
