"""Groups kernel executions by what was launched: name, grid, block, registers and shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyze.attribution import COPY, GRAPH, KERNEL, Operations
from tracekit.analyze.intervals import Ints
from tracekit.model.schema import integers, text_codes
from tracekit.model.trace import Trace

GRAPH_NAME = "[CUDA graph]"

_COLLECTIVE = re.compile(r"\b(nccl|rccl|msccl)", re.IGNORECASE)

SIGNATURE = (
    "process", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "cluster_blocks", "registers_count",
    "static_smem_bytes", "dynamic_smem_bytes", "configured_smem_bytes", "local_thread_bytes",
)  # fmt: skip


def is_collective(name: str) -> bool:
    """Whether a kernel is a collective of NCCL and the like: busy by time, but one that spins is waiting."""
    return _COLLECTIVE.search(name) is not None


@dataclass(frozen=True)
class Launches:
    """``code`` is, by operation, a row of ``frame``: one row a distinct launch configuration (or kind of copy).

    ``frame`` has columns name, short_name, kind (kernel, copy, graph), device_id and, for kernels, those of
    :data:`SIGNATURE` as nullable integers.
    """

    code: Ints
    frame: pd.DataFrame

    def told(self, facts: pd.DataFrame) -> Launches:
        """The same with what counters tell of some launches (rows by launch): cluster_blocks, barriers_count."""
        frame = self.frame.assign(barriers_count=pd.Series(pd.NA, index=self.frame.index, dtype="Int64"))
        for name in facts:
            frame[name] = frame[name].fillna(facts[name].astype("Int64").reindex(frame.index))
        return Launches(self.code, frame)

    def compiled(self, kernels: Iterable[Mapping[str, Any]]) -> Launches:
        """The same with frame_bytes from what a workload's manifest says that its compiler made.

        A launch is told by name and registers; where two compilations agree in both and differ in their frame, neither
        is taken.
        """
        frames: dict[tuple[str, int], set[float]] = {}
        for kernel in kernels:
            name, registers, frame = (kernel.get(field) for field in ("name", "registers", "frame_bytes"))
            if name is not None and registers is not None and frame is not None:
                frames.setdefault((str(name), int(registers)), set()).add(float(frame))
        only = {key: next(iter(found)) for key, found in frames.items() if len(found) == 1}
        own: list[float | None] = [None] * len(self.frame)
        if only and "registers_count" in self.frame:
            counts = integers(self.frame["registers_count"], -1).tolist()
            names = self.frame["short_name"].astype(object)
            own = [only.get(key) for key in zip(names, counts, strict=True)]
        return Launches(self.code, self.frame.assign(frame_bytes=pd.array(own, dtype="Float64")))


def group_launches(trace: Trace, operations: Operations) -> Launches:
    """The distinct launch configurations of a timeline, in order of appearance."""
    code = np.zeros(len(operations), np.int64)
    frames: list[pd.DataFrame] = []
    total = 0
    for kind, table, columns in ((KERNEL, "kernels", SIGNATURE), (COPY, "copies", ()), (GRAPH, "graphs", ())):
        at = np.flatnonzero(operations.kind == kind)
        if not len(at):
            continue
        source = trace.table(table)
        arrays = [integers(source[name], -1) for name in columns]
        arrays += [source["device_id"].to_numpy()]
        arrays += [text_codes(source["name"])[0]] if "name" in source else []
        own, first = _distinct_rows(arrays, len(source))
        code[at] = own[operations.source[at]] + total
        kept = source.iloc[first]
        names = kept["name"].astype(object) if "name" in kept else GRAPH_NAME
        frame = pd.DataFrame(
            {
                "name": names,
                "short_name": kept["short_name"].astype(object) if "short_name" in kept else names,
                "kind": kind,
                "device_id": kept["device_id"],
                **{name: kept[name].astype("Int64") for name in columns},
            }
        )
        frames.append(frame.reset_index(drop=True))
        total += len(frame)
    if not frames:
        empty = {name: pd.Series([], dtype="Int64") for name in ("kind", "device_id", *SIGNATURE)}
        text = {name: pd.Series([], dtype=object) for name in ("name", "short_name")}
        return Launches(code, pd.DataFrame(text | empty))
    frame = pd.concat(frames, ignore_index=True)
    for name in SIGNATURE:
        if name not in frame:
            frame[name] = pd.Series(pd.NA, index=frame.index, dtype="Int64")
    return Launches(code, frame)


def _distinct_rows(columns: list[Ints], rows: int) -> tuple[Ints, Ints]:
    """A code for each distinct row of the columns, in order of appearance, and where each first appears."""
    mixed = np.zeros(rows, np.uint64)
    for column in columns:
        mixed = (mixed ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    code, first = _codes(mixed)
    if any((column != column[first][code]).any() for column in columns):
        # Two different rows share a hash (never seen): tell them apart column by column.
        code = np.zeros(rows, np.int64)
        for column in columns:
            own, values = pd.factorize(column)
            code, _ = _codes(code * len(values) + own)
        code, first = _codes(code)
    return code, first


def _codes(values: np.ndarray[tuple[int], np.dtype[np.uint64 | np.int64]]) -> tuple[Ints, Ints]:
    code, distinct = pd.factorize(values)
    first = np.full(len(distinct), len(code), np.int64)
    np.minimum.at(first, code, np.arange(len(code)))
    return code.astype(np.int64, copy=False), first
