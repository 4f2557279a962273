"""Finds the launch call and the NVTX range of every device operation: table operations, without its gaps."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tracekit.analyze.intervals import NONE, Bools, Ints
from tracekit.analyze.nesting import Nesting
from tracekit.model.schema import integers, text_codes
from tracekit.model.trace import Trace

KERNEL, COPY, GRAPH = 0, 1, 2
KINDS = ("kernel", "copy", "graph")
TABLES = ("kernels", "copies", "graphs")

_KERNEL_LAUNCH = re.compile(r"(cuda|cu)Launch")
_THREAD_BITS = np.int64(0xFFFFFF)


@dataclass(frozen=True)
class Operations:
    """Device operations by device and then by start, as arrays of one length; -1 stands for none.

    ``call`` and ``range`` are rows of tables calls and ranges. ``launch`` numbers the launches: operations with one
    (process, correlation id) share it; an operation without a correlation id has its own. ``graph_node`` is true for
    operations that a CUDA graph launched. ``silent`` has the ranges (or -1) of launches that left no device rows.
    """

    kind: Ints
    source: Ints
    device: Ints
    process: Ints
    context: Ints
    stream: Ints
    start: Ints
    end: Ints
    call: Ints
    range: Ints
    built_in: Ints
    launch: Ints
    graph_node: Bools
    silent: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def devices(self) -> int:
        """Number of devices, counting from 0."""
        return int(self.device.max()) + 1 if len(self.device) else 0


def attribute(trace: Trace, nesting: Nesting) -> Operations:
    """The operations of a timeline with their calls and ranges.

    An operation belongs to the API call of the same process and correlation id (ids repeat between processes), and to
    the innermost range open on the calling thread when that call starts. Adds notes to the trace about calls and
    ranges that could not be found.
    """
    names = ("kind", "source", "device", "process", "context", "stream", "start", "end", "correlation", "node")
    columns: dict[str, list[Ints]] = {name: [] for name in names}
    for kind, table in enumerate(TABLES):
        frame = trace.table(table)
        if not len(frame):
            continue
        columns["kind"].append(np.full(len(frame), kind, np.int64))
        columns["source"].append(np.arange(len(frame), dtype=np.int64))
        columns["device"].append(frame["device_id"].to_numpy())
        columns["process"].append(frame["process"].to_numpy())
        columns["context"].append(frame["context"].to_numpy())
        columns["stream"].append(frame["stream"].to_numpy())
        columns["start"].append(frame["start_ns"].to_numpy())
        columns["end"].append(frame["end_ns"].to_numpy())
        columns["correlation"].append(integers(frame["correlation"], NONE))
        columns["node"].append(
            integers(frame["graph_node"], NONE) if "graph_node" in frame else np.full(len(frame), NONE, np.int64)
        )
    ops = {
        name: (parts[0] if len(parts) == 1 else np.concatenate(parts)) if parts else np.empty(0, np.int64)
        for name, parts in columns.items()
    }
    if len(columns["kind"]) > 1 or (ops["device"] != 0).any():
        order = np.lexsort((ops["start"], ops["device"]))
        ops = {name: values[order] for name, values in ops.items()}
    calls = trace.table("calls")
    call, launch = _find_calls(ops["process"], ops["correlation"], calls)
    owner = np.full(len(call), NONE, np.int64)
    launched = np.flatnonzero(call >= 0)
    called = call[launched]
    owner[launched] = nesting.innermost(calls["thread"].to_numpy()[called], calls["start_ns"].to_numpy()[called])
    built_in = _built_in(trace, nesting, ops["process"], ops["node"])
    operations = Operations(
        kind=ops["kind"],
        source=ops["source"],
        device=ops["device"],
        process=ops["process"],
        context=ops["context"],
        stream=ops["stream"],
        start=ops["start"],
        end=ops["end"],
        call=call,
        range=owner,
        built_in=built_in,
        launch=launch,
        graph_node=ops["node"] >= 0,
        silent=_silent_launches(trace, nesting, calls, call, ops["process"]),
    )
    if count := int((operations.kind == GRAPH).sum()):
        trace.note(
            f"{count} CUDA graphs were traced whole, so their kernels are not in the capture; to see them, capture "
            "again with --cuda-graph-trace=node."
        )
    return operations


def _find_calls(process: Ints, correlation: Ints, calls: pd.DataFrame) -> tuple[Ints, Ints]:
    """For each operation the row of its call, or -1; and the number of its launch.

    Where several calls share an id, the earliest is taken: it encloses the others.
    """
    call_process = calls["thread"].to_numpy() & ~_THREAD_BITS
    call_correlation = integers(calls["correlation"], NONE)
    rows = len(process)
    if not rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    processes = pd.Index(np.unique(np.concatenate([pd.unique(process), pd.unique(call_process)])))
    ids = [correlation, call_correlation]
    width = max(int(values.max()) for values in ids if len(values)) + 2
    key = _place(processes, process, width) + correlation
    call_key = _place(processes, call_process, width) + call_correlation
    usable = np.flatnonzero(call_correlation >= 0)
    if len(usable) < len(call_key) or (call_key[1:] <= call_key[:-1]).any():
        usable = usable[np.argsort(call_key[usable], kind="stable")]
        call_key = call_key[usable]
    at = np.minimum(np.searchsorted(call_key, key), max(0, len(call_key) - 1))
    matches = (call_key[at] == key) & (correlation >= 0) if len(call_key) else np.zeros(rows, bool)
    call = np.where(matches, usable[at], NONE) if len(call_key) else np.full(rows, NONE, np.int64)
    alone = correlation < 0
    if alone.any():  # no id: every such operation is a launch of its own
        key = key.copy()
        key[alone] = -2 - np.arange(int(alone.sum()))
    return call, key


def _place(processes: pd.Index, process: Ints, width: int) -> Ints:
    if len(processes) == 1:
        return np.zeros(len(process), np.int64)
    if len(processes) * width >= 2**62:
        raise OverflowError(f"{len(processes)} processes with correlation ids up to {width}")
    return processes.get_indexer(pd.Index(process)).astype(np.int64) * width


def _built_in(trace: Trace, nesting: Nesting, process: Ints, node: Ints) -> Ints:
    """For each graph node operation: the range in which its node was created, through clones, or -1."""
    out = np.full(len(node), NONE, np.int64)
    created = trace.table("graph_nodes")
    if not len(created) or not (node >= 0).any():
        return out
    created_process = created["thread"].to_numpy() & ~_THREAD_BITS
    nodes = pd.MultiIndex.from_arrays([created_process, created["graph_node"].to_numpy()])
    first = ~nodes.duplicated()
    created, nodes, created_process = created[first], nodes[first], created_process[first]
    original = integers(created["original_graph_node"], NONE)
    above = nodes.get_indexer(pd.MultiIndex.from_arrays([created_process, original]))
    origin = np.where(above >= 0, above, np.arange(len(nodes)))
    for _ in range(len(nodes).bit_length()):  # doubles the clones followed each time; ends on a cycle, too
        origin = origin[origin]
    created_in = nesting.innermost(created["thread"].to_numpy(), created["start_ns"].to_numpy())[origin]
    is_node = np.flatnonzero(node >= 0)
    found = nodes.get_indexer(pd.MultiIndex.from_arrays([process[is_node], node[is_node]]))
    out[is_node] = np.where(found >= 0, created_in[found], NONE)
    return out


def _silent_launches(trace: Trace, nesting: Nesting, calls: pd.DataFrame, call: Ints, process: Ints) -> Ints:
    """The ranges of launches whose work is not in the capture; noted. A process without any device rows is one case,
    a graph launch without rows the other; a single kernel's launch may have failed, and proves nothing."""
    codes, texts = text_codes(calls["name"])
    has_work = np.zeros(len(calls), bool)
    has_work[call[call >= 0]] = True
    call_process = calls["thread"].to_numpy() & ~_THREAD_BITS
    graph_launch = np.isin(codes, [i for i, text in enumerate(texts) if "GraphLaunch" in text])
    silent = graph_launch & ~has_work
    if silent.any():  # a call inside another of the same id launched the same work, and is not silent
        ids = integers(calls["correlation"], NONE)
        rows = np.flatnonzero(silent)
        alike = np.flatnonzero(has_work & np.isin(ids, ids[rows]))
        worked = pd.MultiIndex.from_arrays([call_process[alike], ids[alike]])
        silent[rows] = ~pd.MultiIndex.from_arrays([call_process[rows], ids[rows]]).isin(worked)
    if count := int(silent.sum()):
        trace.hidden_graph_launches = count
        trace.note(
            f"{count} of {int(graph_launch.sum())} CUDA graph launches have no device rows: their kernels are not in "
            "the capture and idle time is not reliable. Capture again with --cuda-graph-trace=node."
        )
    launch = np.isin(codes, [i for i, text in enumerate(texts) if _KERNEL_LAUNCH.match(text)])
    with_rows = set(pd.unique(process).tolist())
    for pid in pd.unique(call_process[launch]).tolist():
        if pid not in with_rows:
            silent |= launch & (call_process == pid)
            trace.note(
                f"Process {(pid >> 24) & 0xFFFFFF} launched kernels but has no device rows: its GPU was not traced."
            )
    rows = np.flatnonzero(silent)
    return nesting.innermost(calls["thread"].to_numpy()[rows], calls["start_ns"].to_numpy()[rows])
