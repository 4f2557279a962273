"""The device timeline: the busy time and the gap of each operation, and what the host did about the gap."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from tracekit.analyze.attribution import KINDS, Operations
from tracekit.analyze.intervals import Axis, Bools, Cover, Ints, running_end
from tracekit.model import tables
from tracekit.model.schema import text_codes
from tracekit.model.tables import GAP_PARTS
from tracekit.model.trace import Trace

_BLOCKING_COPY = re.compile(r"(cuda|cu)Memcpy(?!.*Async)")


def is_synchronizing(call: str) -> bool:
    """Whether an API function waits for the device: ``*Synchronize*`` and the blocking memory copies."""
    return "Synchronize" in call or _BLOCKING_COPY.match(call) is not None


@dataclass(frozen=True)
class Timeline:
    """The idle and busy time of every device, by operation (rows as in :class:`Operations`); all in ns.

    ``covered_until`` is the end of all earlier operations of the device; for a device's first operation, which ends no
    gap, it is its own start. ``charged`` is the operation's time past that; ``gap`` the idle time before it.
    ``parts`` splits the gap by :data:`tracekit.model.tables.GAP_PARTS`, summing to it exactly.
    """

    operations: Operations
    covered_until: Ints
    charged: Ints
    gap: Ints
    parts: Mapping[str, Ints]
    host: Host
    host_is_distorted: Bools

    def frame(self, names: Sequence[str], name_of: Ints, launch: Ints) -> pd.DataFrame:
        """Table operations; ``names[name_of[i]]`` is the name of operation i, ``launch[i]`` its launch."""
        ops = self.operations
        data = {
            "operation_id": np.arange(len(ops)),
            "kind": pd.Series(np.array(KINDS, dtype=object)[ops.kind] if len(ops) else [], dtype="str"),
            "name": pa.DictionaryArray.from_arrays(pa.array(name_of, pa.int32()), pa.array(names, pa.string())),
            "source_id": ops.source,
            "device_id": ops.device,
            "process": ops.process,
            "context": ops.context,
            "stream": ops.stream,
            "launch": launch,
            "start_ns": ops.start,
            "end_ns": ops.end,
            **{
                name: pd.Series(values).where(values >= 0, None).astype("Int64")
                for name, values in (
                    ("call_id", ops.call),
                    ("range_id", ops.range),
                    ("built_in_range_id", ops.built_in),
                )
            },
            "charged_busy_ns": self.charged,
            "gap_ns": self.gap,
            **{f"gap_{part}_ns": self.parts[part] for part in GAP_PARTS},
        }
        return tables.OPERATIONS.conform(data, source="operations")


@dataclass(frozen=True)
class Host:
    """What every thread was doing: the union of its API calls, and of its synchronizing calls, per thread."""

    threads: pd.Index
    axis: Axis
    lane: Ints
    start: Ints
    end: Ints
    in_call: Cover
    in_sync: Cover

    @classmethod
    def of(cls, calls: pd.DataFrame) -> Host:
        """From table calls, in order of start."""
        start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
        lane, threads = pd.factorize(calls["thread"].to_numpy())
        axis = Axis.over(len(threads), start, end)
        low, high = axis.place(lane, start), axis.place(lane, end)
        codes, texts = text_codes(calls["name"])
        sync = np.isin(codes, [code for code, text in enumerate(texts) if is_synchronizing(text)])
        return cls(
            threads=pd.Index(threads),
            axis=axis,
            lane=lane.astype(np.int64),
            start=start,
            end=end,
            in_call=Cover.of(low, high),
            in_sync=Cover.of(low[sync], high[sync]),
        )

    def split(self, call: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
        """For the threads of these calls: time in [low, high) outside CUDA, in waiting calls, in other calls."""
        length = np.maximum(high - low, 0)
        first, last = self.axis.origin, self.axis.origin + self.axis.span - 1
        lane = self.lane[call]
        a = self.axis.place(lane, np.clip(low, first, last))
        b = np.maximum(a, self.axis.place(lane, np.clip(high, first, last)))
        sync = np.minimum(self.in_sync.between(a, b), length)
        either = np.minimum(self.in_call.between(a, b), length)
        return length - either, sync, either - sync


def measure(trace: Trace, operations: Operations) -> Timeline:
    """The gaps of every device and their parts.

    A device's timeline is the union of its operations over all streams. For each operation in order of start the gap
    is ``start - max(end of all earlier operations)`` where positive; there is no threshold.
    """
    host = Host.of(trace.table("calls"))
    count = len(operations)
    axis = Axis.over(operations.devices, operations.start, operations.end)
    before = running_end(axis.place(operations.device, operations.end))
    first = np.ones(count, bool)
    first[1:] = operations.device[1:] != operations.device[:-1]
    covered = before - operations.device * axis.span + axis.origin
    covered = np.where(first, operations.start, covered) if count else covered
    gap = np.maximum(operations.start - covered, 0)
    charged = np.maximum(operations.end - np.maximum(operations.start, covered), 0)
    distorted = _distorted(trace, operations)
    rows = np.flatnonzero(gap > 0)
    ended = covered[rows]
    split = gap_parts(operations, host, distorted, rows, ended, ended)
    parts = {name: np.zeros(count, np.int64) for name in GAP_PARTS}
    for name, values in split.items():
        parts[name][rows] = values
    return Timeline(operations, covered, charged, gap, parts, host, distorted)


def gap_parts(
    operations: Operations,
    host: Host,
    distorted: Bools,
    rows: Ints,
    gap_start: Ints,
    low: Ints,
) -> dict[str, Ints]:
    """The parts of ``[low, start)`` for the gaps ``[gap_start, start)`` that these operations end; ``low`` clips.

    Which part applies is decided by the whole gap, how long it is by the clipped one. The parts sum to
    ``start - low`` exactly.
    """
    start = operations.start[rows]
    call = operations.call[rows]
    length = start - low
    out = {name: np.zeros(len(rows), np.int64) for name in GAP_PARTS}

    in_graph = operations.graph_node[rows] & ~first_of_launch(operations)[rows]
    has_call = (call >= 0) & ~in_graph
    call_start = np.where(has_call, host.start[call] if len(host.start) else 0, 0)
    call_end = np.where(has_call, host.end[call] if len(host.end) else 0, 0)
    dispatched = has_call & (call_end <= gap_start)
    late = has_call & ~dispatched & ~distorted[rows]

    out["in_graph"] = np.where(in_graph, length, 0)
    out["dispatch"] = np.where(dispatched, length, 0)
    out["unknown"] = np.where(in_graph | dispatched | late, 0, length)
    at = np.flatnonzero(late)
    a, s, cs, ce = low[at], start[at], call_start[at], call_end[at]
    called = np.clip(cs, a, s)
    returned = np.clip(ce, called, s)
    out["host"][at], out["sync"][at], out["other_call"][at] = host.split(call[at], a, called)
    out["launch_call"][at] = returned - called
    out["launch_latency"][at] = s - returned
    return out


def first_of_launch(operations: Operations) -> Bools:
    """Whether an operation is the first of its launch on its device; a graph launch has many."""
    first = np.ones(len(operations), bool)
    nodes = np.flatnonzero(operations.graph_node)
    if len(nodes):
        pairs = pd.DataFrame({"launch": operations.launch[nodes], "device": operations.device[nodes]})
        first[nodes] = ~pairs.duplicated().to_numpy()
    return first


def _distorted(trace: Trace, operations: Operations) -> Bools:
    """Operations whose launch call the tracer itself stretched: tracing a graph by node slows its launch tenfold."""
    if operations.graph_node.any():
        trace.note(
            "The capture traces CUDA graphs by node, which slows each graph launch: for the gap before a graph's first "
            "node the host's part is unknown, and traced wall time is longer than untraced latency."
        )
    return operations.graph_node.copy()
