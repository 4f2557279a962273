"""Reads an Nsight Systems SQLite export, of any schema since 2020, by the names of its columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.errors import InputError
from tracekit.model import labels, tables
from tracekit.model.trace import Trace
from tracekit.read.nsys_devices import Devices, find_devices
from tracekit.read.sqlite import SqliteFile

Ints = npt.NDArray[np.int64]
Raw = dict[str, Any]

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"

_PLACE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")
KERNEL_COLUMNS = (
    *_PLACE,
    "demangledName", "shortName", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "clusterX", "clusterY", "clusterZ", "staticSharedMemory", "dynamicSharedMemory", "sharedMemoryExecuted",
    "localMemoryPerThread",
)  # fmt: skip
CALL_COLUMNS = ("start", "end", "globalTid", "correlationId", "nameId")
RANGE_COLUMNS = ("start", "end", "eventType", "globalTid", "textId", "domainId")
_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "managed HtoD", 12: "managed DtoH", 13: "managed DtoD",
}  # fmt: skip
_PUSH_POP = (59, 70)
_START_END = (60, 71)
_DOMAIN_CREATE = 75
_VERSION_SUFFIX = re.compile(r"_v\d+$")
_DAY_NS = 24 * 3600 * 10**9
_MONTH_NS = 30 * _DAY_NS
_PID_BITS = 24
NO_ID = -1


def read_nsys_sqlite(path: Path) -> Trace:
    """The timeline in the export at ``path``. Tables are read when first asked for.

    Raises InputError where the file is truncated, damaged or no Nsight Systems export. A table that the export lacks
    is an empty table with a note that says why it may be so.
    """
    return _Export(path).trace


class _Export:
    """One export file and what its tables share: names, devices, rejected rows."""

    def __init__(self, path: Path) -> None:
        self.file = SqliteFile(path)
        self._require_nsys()
        meta = self._metadata()
        self.trace = Trace(
            source=str(path),
            tool="nsys",
            tool_version=meta.get("EXPORT_PRODUCT_VERSION"),
            graph_trace=meta.get("GRAPH_TRACE"),
            has_timeline=True,
            loaders={
                "gpus": lambda: self._devices.frame,
                "kernels": self._kernels,
                "copies": self._copies,
                "graphs": self._graphs,
                "graph_nodes": self._graph_nodes,
                "calls": self._calls,
                "ranges": self._ranges,
            },
        )
        self._note_what_is_missing(meta)

    # What the file is

    def _require_nsys(self) -> None:
        known = {"StringIds", KERNEL, RUNTIME, NVTX, "META_DATA_EXPORT", "EXPORT_META_DATA"}
        found = sorted(self.file.columns)
        if not known & set(found):
            listing = ", ".join(found[:8]) + (" ..." if len(found) > 8 else "")
            raise InputError(
                self.file.path,
                expected="an Nsight Systems export (tables StringIds, CUPTI_ACTIVITY_KIND_KERNEL, NVTX_EVENTS)",
                found=f"a SQLite database with {listing}" if found else "a SQLite database without tables",
                remedy="name a file made by: nsys export --type sqlite",
            )
        for table in set(_NEEDED) & set(found):
            present = self.file.columns[table]
            together = _ALL_OR_NONE.get(table, ())
            needed = (*_NEEDED[table], *(together if set(together) & set(present) else ()))
            missing = [name for name in needed if name not in present]
            if missing:
                raise InputError(
                    self.file.path,
                    expected=f"columns {', '.join(needed)} in table {table}",
                    found=f"no {', '.join(missing)}",
                    remedy="export the report again with a current nsys; this schema is not known",
                )

    def _metadata(self) -> dict[str, str]:
        out: dict[str, str] = {}
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE"):
            if table in self.file.columns:
                for name, value in self.file.rows(f'SELECT name, value FROM "{table}"'):
                    out.setdefault(str(name), str(value))
                    if str(name).endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE"):
                        out.setdefault("GRAPH_TRACE", str(value).lower())
        return out

    def _note_what_is_missing(self, meta: Mapping[str, str]) -> None:
        partial = [
            f"{what} {meta[key]}"
            for key, what in (("EXPORT_PARAM_TABLES_TO_EXPORT", "tables"), ("EXPORT_PARAM_TIMES_TO_EXPORT", "times"))
            if meta.get(key)
        ]
        if partial:
            self.trace.note(f"The export is partial ({'; '.join(partial)}): what lies outside is missing, not zero.")
        if not any(table in self.file.columns for table in (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE)):
            self.trace.absent |= {"kernels", "copies", "graphs"}
            self.trace.note(
                "No table of device work in the export: CUDA was not traced (nsys profile --trace=cuda,nvtx), nothing "
                "was launched while capturing, or an importer of another nsys version dropped it."
            )
        if RUNTIME not in self.file.columns:
            self.trace.absent.add("calls")
            self.trace.note("No CUDA API calls in the export: gaps cannot be split by what the host did.")
        if NVTX not in self.file.columns:
            self.trace.note(
                "No NVTX ranges in the export: nothing was annotated, --trace lacked nvtx, or the ranges were lost "
                "(nsys 2023.4 loses those of the nvtx package 0.2.12 and newer; install 0.2.11)."
            )

    # Names

    @cached_property
    def _strings(self) -> tuple[Ints, list[str]]:
        """Sorted ids of StringIds and their texts; text that is not UTF-8 is decoded with replacement."""
        if "StringIds" not in self.file.columns:
            return np.empty(0, np.int64), []
        raw = self.file.read("StringIds", ("id",), text=("value",))
        ids = _ints(raw["id"], -1)
        texts = [(value or b"").decode("utf-8", "replace") for value in raw["value"].to_pylist()]
        order = np.argsort(ids, kind="stable")
        return ids[order], [texts[i] for i in order]

    def _named(self, ids: pa.Array, edit: Callable[[str], str] = str) -> pa.DictionaryArray:
        """String ids as text, each distinct text edited once. An id without a string is named as such."""
        codes, distinct = pd.factorize(_ints(ids, NO_ID))
        known, texts = self._strings
        position = np.searchsorted(known, distinct)
        named = []
        for id_, at in zip(distinct.tolist(), position.tolist(), strict=True):
            if at < len(known) and known[at] == id_:
                named.append(edit(texts[at]))
            elif id_ == NO_ID:
                named.append("<unnamed>")
            else:
                named.append(f"<string {id_} is not in the export>")
                self.trace.note("Some names are missing from the export (StringIds is partial).")
        return _dictionary(codes, named)

    # Device work

    @cached_property
    def _device_work(self) -> dict[str, Raw]:
        """The raw rows of every table of device work, read concurrently, with bad times rejected and counted."""
        wanted: dict[str, Sequence[str]] = {
            KERNEL: KERNEL_COLUMNS,
            MEMCPY: (*_PLACE, "bytes", "copyKind"),
            MEMSET: (*_PLACE, "bytes"),
            GRAPH_TRACE: (*_PLACE, "graphId"),
        }
        present = {table: columns for table, columns in wanted.items() if table in self.file.columns}
        with ThreadPoolExecutor() as pool:
            read = pool.map(lambda item: self.file.read(*item), present.items())
        return {table: self._accept(table, raw) for table, raw in zip(present, read, strict=True)}

    def _accept(self, table: str, raw: Raw) -> Raw:
        """The rows with possible times, in order of start. What is rejected is counted by its reason."""
        start, end = _ints(raw["start"], 0), _ints(raw["end"], 0)
        none = (start == 0) & (end == 0)
        if raw["start"].null_count or raw["end"].null_count:
            none |= np.asarray(raw["start"].is_null()) | np.asarray(raw["end"].is_null())
        backwards = ~none & (end < start)
        reasons = {
            "without a time": none,
            "that end before they start": backwards,
            "longer than a day": ~none & ~backwards & ((end - start > _DAY_NS) | (end - start < 0)),
        }
        kept = ~np.logical_or.reduce(list(reasons.values()))
        if kept.any() and float(start[kept].max()) - float(start[kept].min()) > _MONTH_NS:
            # The many outvote a stray row; in a tie, times count from the session's start.
            times = start.astype(np.float64)
            near = {c: int((np.abs(times[kept] - c) <= _MONTH_NS).sum()) for c in (0.0, float(np.median(times[kept])))}
            centre = max(near, key=lambda c: near[c])
            far = np.abs(times - centre) > _MONTH_NS
            reasons["more than a month from the others"] = kept & far
            kept &= ~far
        for reason, mask in reasons.items():
            if count := int(mask.sum()):
                what = f"{table.removeprefix('CUPTI_ACTIVITY_KIND_').lower()} rows {reason}"
                self.trace.rejected[what] = count
                self.trace.note(f"{count} {what} were left out.")
        if not kept.all():
            raw = _take(raw, np.flatnonzero(kept))
            start = start[kept]
        if (start[1:] < start[:-1]).any():
            raw = _take(raw, np.argsort(start, kind="stable"))
        return raw

    @cached_property
    def _only_process(self) -> int:
        """The process of rows that name none: the only one of the file, else 0, which no call can match."""
        if "PROCESSES" in self.file.columns:
            found = set(_ints(self.file.read("PROCESSES", ("globalPid",))["globalPid"], 0).tolist())
        elif RUNTIME in self.file.columns:
            found = {tid & ~0xFFFFFF for (tid,) in self.file.rows(f"SELECT DISTINCT globalTid FROM {RUNTIME}") if tid}
        else:
            found = set()
        return found.pop() if len(found) == 1 else 0

    def _processes(self, raw: Raw) -> Ints:
        column = raw.get("globalPid")
        if column is None:
            return np.full(len(raw["start"]), self._only_process, np.int64)
        return _ints(column, self._only_process if column.null_count else 0)

    def _place(self, raw: Raw) -> Raw:
        """The columns that every table of device work shares."""
        processes = self._processes(raw)
        absent = pa.nulls(len(processes), pa.int64())
        return {
            "process": processes,
            "device_id": self._device_ids(processes, _ints(raw["deviceId"], NO_ID)),
            "context": raw["contextId"],
            "stream": raw["streamId"],
            "correlation": raw.get("correlationId", absent),
            "graph_node": raw.get("graphNodeId", absent),
            "start_ns": _ints(raw["start"], 0),
            "end_ns": _ints(raw["end"], 0),
        }

    def _kernels(self) -> pd.DataFrame:
        raw = self._device_work.get(KERNEL)
        if raw is None:
            return tables.KERNELS.empty()
        cluster = None
        if "clusterX" in raw:
            cluster = pc.multiply(pc.multiply(raw["clusterX"], raw["clusterY"]), raw["clusterZ"])
        local = raw.get("localMemoryPerThread")
        data = {
            "kernel_id": np.arange(len(raw["start"])),
            "name": self._named(raw["demangledName"]),
            "short_name": self._named(raw["shortName"]),
            **self._place(raw),
            **{f"grid_{axis}": raw[f"grid{axis.upper()}"] for axis in "xyz"},
            **{f"block_{axis}": raw[f"block{axis.upper()}"] for axis in "xyz"},
            "registers_count": raw["registersPerThread"],
            "static_smem_bytes": raw["staticSharedMemory"],
            "dynamic_smem_bytes": raw["dynamicSharedMemory"],
        }
        if cluster is not None:
            data["cluster_blocks"] = cluster
        if "sharedMemoryExecuted" in raw:
            data["configured_smem_bytes"] = raw["sharedMemoryExecuted"]
        if local is not None:
            data["local_thread_bytes"] = pc.if_else(pc.equal(local, 0), pa.scalar(None, pa.int64()), local)
        return self._conform(tables.KERNELS, data)

    def _copies(self) -> pd.DataFrame:
        parts = []
        for table in (MEMCPY, MEMSET):
            raw = self._device_work.get(table)
            if raw is None:
                continue
            if "copyKind" in raw:
                kinds, distinct = pd.factorize(_ints(raw["copyKind"], -1))
                name = _dictionary(kinds, [f"[memcpy {_COPY_KINDS.get(k, f'kind {k}')}]" for k in distinct.tolist()])
            else:
                name = _dictionary(np.zeros(len(raw["start"]), np.int64), ["[memset]"])
            data = {
                "copy_id": np.arange(len(raw["start"])),
                "name": name,
                **self._place(raw),
                "copied_bytes": raw["bytes"],
            }
            parts.append(self._conform(tables.COPIES, data))
        if not parts:
            return tables.COPIES.empty()
        if len(parts) == 1:
            return parts[0]
        both = pd.concat([part.astype({"name": "object"}) for part in parts], ignore_index=True)
        both = both.sort_values("start_ns", kind="stable", ignore_index=True)
        both["copy_id"] = np.arange(len(both))
        return self._conform(tables.COPIES, both)

    def _graphs(self) -> pd.DataFrame:
        raw = self._device_work.get(GRAPH_TRACE)
        if raw is None:
            return tables.GRAPHS.empty()
        data = {"graph_exec_id": np.arange(len(raw["start"])), **self._place(raw)}
        if "graphId" in raw:
            data["graph"] = raw["graphId"]
        return self._conform(tables.GRAPHS, data)

    def _graph_nodes(self) -> pd.DataFrame:
        # To 2023.4 CUDA_GRAPH_EVENTS holds node creation; later it holds graphs, and nodes have a table of their own.
        for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"):
            if "graphNodeId" in self.file.columns.get(table, ()):
                raw = self.file.read(
                    table, ("graphNodeId", "originalGraphNodeId", "globalTid", "start"),
                    where="graphNodeId IS NOT NULL AND globalTid IS NOT NULL",
                )  # fmt: skip
                return self._conform(
                    tables.GRAPH_NODES,
                    {
                        "graph_node": raw["graphNodeId"],
                        "original_graph_node": raw["originalGraphNodeId"],
                        "thread": raw["globalTid"],
                        "start_ns": raw["start"],
                    },
                )
        return tables.GRAPH_NODES.empty()

    # The host

    def _calls(self) -> pd.DataFrame:
        if RUNTIME not in self.file.columns:
            return tables.CALLS.empty()
        raw = self.file.read(RUNTIME, CALL_COLUMNS)
        raw = self._accept(RUNTIME, raw)
        data = {
            "call_id": np.arange(len(raw["start"])),
            "name": self._named(raw["nameId"], lambda name: _VERSION_SUFFIX.sub("", name)),
            "thread": raw["globalTid"],
            "correlation": raw["correlationId"],
            "start_ns": raw["start"],
            "end_ns": raw["end"],
        }
        return self._conform(tables.CALLS, data)

    def _ranges(self) -> pd.DataFrame:
        if NVTX not in self.file.columns:
            return tables.RANGES.empty()
        types = ", ".join(map(str, (*_PUSH_POP, *_START_END)))
        raw = self.file.read(
            NVTX, RANGE_COLUMNS, text=("text",),
            where=f"(eventType IN ({types}) OR typeof(eventType) <> 'integer') AND globalTid IS NOT NULL",
        )  # fmt: skip
        open_ = np.asarray(raw["end"].is_null())
        if open_.any():
            raw["end"] = raw["end"].fill_null(max(self._last_event(), int(pc.max(raw["start"]).as_py() or 0)))
        raw = self._accept(NVTX, raw | {"open": pa.array(open_)})
        open_ = np.asarray(raw["open"])
        if count := int(open_.sum()):
            self.trace.note(f"{count} NVTX ranges were still open when the capture ended; they end there.")
        thread = _ints(raw["globalTid"], 0)
        data = {
            "range_id": np.arange(len(thread)),
            "domain": self._domains(thread, raw.get("domainId")),
            "label": self._texts(raw, len(thread), labels.normalize),
            "thread": thread,
            "start_ns": raw["start"],
            "end_ns": raw["end"],
            "start_end": np.isin(_ints(raw["eventType"], 0), _START_END),
            "open": open_,
        }
        return self._conform(tables.RANGES, data)

    def _texts(self, raw: Raw, rows: int, edit: Callable[[str], str] = str) -> pa.DictionaryArray:
        """The text of each row, inline or by string id, and then edited; each distinct text once."""
        registered = self._named(raw.get("textId", pa.nulls(rows, pa.int64())), edit)
        inline = raw.get("text")
        if inline is None or inline.null_count == len(inline):
            return registered
        encoded = inline.dictionary_encode()
        texts = [edit(value.decode("utf-8", "replace")) for value in encoded.dictionary.to_pylist()]
        codes = np.where(
            ~np.asarray(inline.is_null()),
            _ints(encoded.indices, 0) + len(registered.dictionary),
            np.asarray(registered.indices).astype(np.int64),
        )
        return _dictionary(codes, [*registered.dictionary.to_pylist(), *texts])

    def _domains(self, thread: Ints, domain: pa.Array | None) -> pa.DictionaryArray:
        """The domain name of each range; ids are numbered per process, 0 is the default domain."""
        if domain is None:
            return _dictionary(np.zeros(len(thread), np.int64), [""])
        made = self.file.read(
            NVTX, ("globalTid", "domainId", "textId"), text=("text",),
            where=f"eventType = {_DOMAIN_CREATE} AND globalTid IS NOT NULL AND domainId IS NOT NULL",
        )  # fmt: skip
        keys = zip(_ints(made["globalTid"], 0) >> _PID_BITS, _ints(made["domainId"], 0), strict=True)
        names_made = self._texts(made, len(made["globalTid"])).to_pylist()
        created = {(int(process), int(id_)): name for (process, id_), name in zip(keys, names_made, strict=True)}
        process_codes, processes = pd.factorize(thread >> _PID_BITS)
        domain_codes, domains = pd.factorize(_ints(domain, 0))
        pair_codes, pairs = pd.factorize(process_codes * max(1, len(domains)) + domain_codes)
        names = []
        for pair in pairs.tolist():
            process, id_ = processes[pair // len(domains)], domains[pair % len(domains)]
            names.append("" if id_ == 0 else created.get((int(process), int(id_)), f"domain {id_}"))
        return _dictionary(pair_codes, names)

    def _last_event(self) -> int:
        """When the last event of the capture ended: where ranges end that were still open."""
        ends = [0]
        for table in (KERNEL, MEMCPY, MEMSET, GRAPH_TRACE, RUNTIME, NVTX):
            if table in self.file.columns:
                bound = f'"end" - start BETWEEN 0 AND {_DAY_NS}'
                ends.append(self.file.rows(f'SELECT max("end") FROM "{table}" WHERE {bound}')[0][0] or 0)
        return max(ends)

    # Devices

    @cached_property
    def _devices(self) -> Devices:
        """The GPUs of the capture and which of them every (process, ordinal) pair of its device work is."""
        pairs: set[tuple[int, int]] = set()
        for raw in self._device_work.values():
            columns = {"process": self._processes(raw), "ordinal": _ints(raw["deviceId"], NO_ID)}
            pairs |= set(pd.DataFrame(columns).drop_duplicates().itertuples(index=False, name=None))
        return find_devices(self.file, self.trace, sorted(pairs))

    def _device_ids(self, processes: Ints, ordinals: Ints) -> Ints:
        ids = self._devices.ids
        if len(set(ids.values())) == 1 or not len(ordinals):
            return np.full(len(ordinals), next(iter(ids.values()), NO_ID), np.int64)
        process_codes, distinct = pd.factorize(processes)
        ordinal_codes, distinct_ordinals = pd.factorize(ordinals)
        lookup = np.array([[ids.get((int(p), int(o)), NO_ID) for o in distinct_ordinals] for p in distinct], np.int64)
        return lookup[process_codes, ordinal_codes]

    def _conform(self, table: Any, data: Any) -> pd.DataFrame:
        return table.conform(data, source=str(self.file.path))  # type: ignore[no-any-return]


_NEEDED = {
    KERNEL: (
        "start", "end", "deviceId", "contextId", "streamId", "demangledName", "shortName", "registersPerThread",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
    ),
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
    NVTX: ("start", "end", "eventType", "globalTid", "text"),
    MEMCPY: ("start", "end", "deviceId", "contextId", "streamId", "bytes", "copyKind"),
    MEMSET: ("start", "end", "deviceId", "contextId", "streamId", "bytes"),
    GRAPH_TRACE: ("start", "end", "deviceId", "contextId", "streamId"),
    "CUDA_GRAPH_NODE_EVENTS": ("graphNodeId", "originalGraphNodeId", "globalTid", "start"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "PROCESSES": ("globalPid",),
    "META_DATA_EXPORT": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "EXPORT_META_DATA": ("name", "value"),
    "StringIds": ("id", "value"),
}  # fmt: skip
_ALL_OR_NONE = {KERNEL: ("clusterX", "clusterY", "clusterZ")}


def _ints(array: pa.Array, missing: int) -> Ints:
    """An Arrow integer column as numpy, with a stand-in where a value is missing."""
    if array.null_count:
        array = array.fill_null(missing)
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _take(raw: Raw, rows: Ints) -> Raw:
    return {name: array.take(pa.array(rows)) for name, array in raw.items()}


def _dictionary(codes: Ints, values: Sequence[str]) -> pa.DictionaryArray:
    """Codes into texts that may repeat, as a dictionary column whose texts do not."""
    distinct = {text: code for code, text in enumerate(dict.fromkeys(values))}
    merged = np.array([distinct[text] for text in values], np.int32)
    indices = merged[codes] if len(codes) else codes
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(list(distinct), pa.string()))
