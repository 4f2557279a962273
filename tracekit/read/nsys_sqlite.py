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
_LONGEST_NS = 24 * 3600 * 10**9
_PID_BITS = 24
_NO_STRING = -1


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
                "gpus": lambda: self._devices[0],
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
        for table, needed in _NEEDED.items():
            missing = [name for name in needed if table in found and name not in self.file.columns[table]]
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
            self.trace.note(
                "No table of device work in the export: CUDA was not traced (nsys profile --trace=cuda,nvtx), nothing "
                "was launched while capturing, or an importer of another nsys version dropped it."
            )
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
        codes, distinct = pd.factorize(_ints(ids, _NO_STRING))
        known, texts = self._strings
        position = np.searchsorted(known, distinct)
        named = []
        for id_, at in zip(distinct.tolist(), position.tolist(), strict=True):
            if at < len(known) and known[at] == id_:
                named.append(edit(texts[at]))
            elif id_ == _NO_STRING:
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
        reasons = {
            "without a time": (start == 0) & (end == 0),
            "that end before they start": (end < start) & ~((start == 0) & (end == 0)),
            "longer than a day": (end > start) & ((end - start > _LONGEST_NS) | (end - start < 0)),
        }
        bad = np.zeros(len(start), bool)
        for reason, mask in reasons.items():
            if count := int(mask.sum()):
                what = f"{table.removeprefix('CUPTI_ACTIVITY_KIND_').lower()} rows {reason}"
                self.trace.rejected[what] = count
                self.trace.note(f"{count} {what} were left out.")
                bad |= mask
        if bad.any():
            raw = _take(raw, np.flatnonzero(~bad))
            start = start[~bad]
        if (start[1:] < start[:-1]).any():
            raw = _take(raw, np.argsort(start, kind="stable"))
        return raw

    @cached_property
    def _process(self) -> int:
        """The process of rows that name none: the only one of the file, else 0, which no call can match."""
        if "PROCESSES" in self.file.columns:
            found = self.file.rows("SELECT DISTINCT globalPid FROM PROCESSES WHERE globalPid IS NOT NULL LIMIT 2")
            if len(found) == 1:
                return int(found[0][0])
        return 0

    def _place(self, raw: Raw) -> Raw:
        """The columns that every table of device work shares."""
        processes = _ints(raw["globalPid"], self._process) if "globalPid" in raw else None
        if processes is None:
            processes = np.full(len(raw["start"]), self._process)
        return {
            "process": processes,
            "device_id": self._device_ids(processes, _ints(raw["deviceId"], -1)),
            "context": raw["contextId"],
            "stream": raw["streamId"],
            "correlation": raw.get("correlationId", pa.nulls(len(processes), pa.int64())),
            "graph_node": raw.get("graphNodeId", pa.nulls(len(processes), pa.int64())),
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
            self.trace.note("No CUDA API calls in the export: gaps cannot be split by what the host did.")
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
            where=f"eventType IN ({types}) AND globalTid IS NOT NULL",
        )  # fmt: skip
        open_ = np.asarray(raw["end"].is_null())
        if open_.any():
            raw["end"] = raw["end"].fill_null(max(self._last_event(), int(pc.max(raw["start"]).as_py())))
        raw = self._accept(NVTX, raw | {"open": pa.array(open_)})
        open_ = np.asarray(raw["open"])
        if count := int(open_.sum()):
            self.trace.note(f"{count} NVTX ranges were still open when the capture ended; they end there.")
        thread = _ints(raw["globalTid"], 0)
        data = {
            "range_id": np.arange(len(thread)),
            "domain": self._domains(thread, raw.get("domainId")),
            "label": self._labels(raw),
            "thread": thread,
            "start_ns": raw["start"],
            "end_ns": raw["end"],
            "start_end": np.isin(_ints(raw["eventType"], 0), _START_END),
            "open": open_,
        }
        return self._conform(tables.RANGES, data)

    def _labels(self, raw: Raw) -> pa.DictionaryArray:
        """The text of each range, inline or by string id, and then normalized; each distinct text once."""
        by_id = raw.get("textId", pa.nulls(len(raw["start"]), pa.int64()))
        registered = self._named(by_id, labels.normalize)
        inline = raw.get("text")
        if inline is None or inline.null_count == len(inline):
            return registered
        encoded = inline.dictionary_encode()
        texts = [labels.normalize(value.decode("utf-8", "replace")) for value in encoded.dictionary.to_pylist()]
        has_text = ~np.asarray(inline.is_null())
        offset = len(registered.dictionary)
        codes = np.where(
            has_text,
            _ints(encoded.indices, 0) + offset,
            np.asarray(registered.indices).astype(np.int64),
        )
        return _dictionary(codes, [*registered.dictionary.to_pylist(), *texts])

    def _domains(self, thread: Ints, domain: pa.Array | None) -> pa.DictionaryArray:
        """The domain name of each range; ids are numbered per process, 0 is the default domain."""
        if domain is None:
            return _dictionary(np.zeros(len(thread), np.int64), [""])
        text = "COALESCE(e.text, s.value)" if "textId" in self.file.columns[NVTX] else "e.text"
        join = "LEFT JOIN StringIds s ON s.id = e.textId" if "textId" in self.file.columns[NVTX] else ""
        created = {
            (int(tid) >> _PID_BITS, int(id_)): str(name)
            for tid, id_, name in self.file.rows(
                f"SELECT e.globalTid, e.domainId, {text} FROM {NVTX} e {join} WHERE e.eventType = {_DOMAIN_CREATE} "
                "AND e.globalTid IS NOT NULL AND e.domainId IS NOT NULL"
            )
        }
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
                bound = f'"end" - start BETWEEN 0 AND {_LONGEST_NS}'
                ends.append(self.file.rows(f'SELECT max("end") FROM "{table}" WHERE {bound}')[0][0] or 0)
        return max(ends)

    # Devices

    @cached_property
    def _devices(self) -> tuple[pd.DataFrame, dict[tuple[int, int], int]]:
        """Table gpus, and the device of each (process, ordinal) pair of the device work."""
        seen: set[tuple[int, int]] = set()
        for raw in self._device_work.values():
            processes = _ints(raw["globalPid"], self._process) if "globalPid" in raw else None
            ordinals = _ints(raw["deviceId"], -1)
            if processes is None:
                processes = np.full(len(ordinals), self._process)
            pairs = pd.DataFrame({"process": processes, "ordinal": ordinals}).drop_duplicates()
            seen |= set(pairs.itertuples(index=False, name=None))
        gpus = self._gpu_rows()
        mapped = self._physical(sorted(seen), gpus)
        keys: list[tuple[int, int, int]] = []  # (gpu or -1, process, ordinal)
        ids: dict[tuple[int, int], int] = {}
        for pair in sorted(seen, key=lambda p: (mapped.get(p, -1), p)):
            key = (mapped[pair], -1, pair[1]) if pair in mapped else (-1, *pair)
            known = [k for k in keys if k[0] == key[0] and key[0] >= 0]
            if not known:
                keys.append(key)
            ids[pair] = keys.index(known[0] if known else key)
        alike = len({tuple(sorted((k, v) for k, v in gpu.items() if k in _LIMITS)) for gpu in gpus.values()}) == 1
        rows = []
        for number, (gpu, process, ordinal) in enumerate(keys):
            spec = gpus[gpu] if gpu >= 0 else (next(iter(gpus.values())) if alike else {})
            rows.append({
                "device_id": number, "process": None if gpu >= 0 else process, "ordinal": ordinal,
                "uuid": spec.get("uuid") if gpu >= 0 else None, **{to: spec.get(to) for to in _LIMITS},
            })  # fmt: skip
        if not gpus and seen:
            self.trace.note(
                "The export does not describe the GPU (no TARGET_INFO_GPU): active blocks cannot be computed."
            )
        data = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        return self._conform(tables.GPUS, data), ids

    def _gpu_rows(self) -> dict[int, dict[str, Any]]:
        table = "TARGET_INFO_GPU"
        have = self.file.columns.get(table, ())
        if "id" not in have:
            return {}
        columns = {
            "id": "id", "cuDevice": "cu_device", "uuid": "uuid", "name": "name", "smCount": "sm_count",
            "computeMajor": "cc_major", "computeMinor": "cc_minor", "l2CacheSize": "l2_bytes",
            "totalMemory": "memory_bytes", "memoryBandwidth": "memory_bytes_per_second",
        }  # fmt: skip
        present = [column for column in columns if column in have]
        rows = self.file.rows(f'SELECT {", ".join(present)} FROM "{table}" ORDER BY id')
        out = {}
        for row in rows:
            gpu = dict(zip((columns[name] for name in present), row, strict=True))
            if set(str(gpu.get("uuid") or "0")) <= set("0-"):
                gpu["uuid"] = None  # scrubbed
            out[int(gpu["id"])] = gpu
        return out

    def _physical(
        self, pairs: Sequence[tuple[int, int]], gpus: Mapping[int, Mapping[str, Any]]
    ) -> dict[tuple[int, int], int]:
        """The physical GPU of each (process, ordinal) pair, where the export tells."""
        if "TARGET_INFO_CUDA_DEVICE" in self.file.columns:
            rows = self.file.rows("SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE")
            told = {(int(pid), int(ordinal)): int(gpu) for pid, ordinal, gpu in rows if None not in (pid, ordinal, gpu)}
            mapped = {
                (process, ordinal): told[key]
                for process, ordinal in pairs
                if (key := ((process >> _PID_BITS) & 0xFFFFFF, ordinal)) in told and told[key] in gpus
            }
            if len(mapped) == len(pairs):
                return mapped
        if len(gpus) == 1:
            return dict.fromkeys(pairs, next(iter(gpus)))
        if len({process for process, _ in pairs}) == 1 and gpus:
            by_ordinal = {gpu.get("cu_device", id_): id_ for id_, gpu in gpus.items()}
            return {pair: by_ordinal[pair[1]] for pair in pairs if pair[1] in by_ordinal}
        if len({process for process, _ in pairs}) > 1:
            self.trace.note(
                "Several processes, and the export does not map their device ordinals to GPUs: a device here is a "
                "(process, ordinal) pair, and two of them may be one GPU."
            )
        return {}

    def _device_ids(self, processes: Ints, ordinals: Ints) -> Ints:
        ids = self._devices[1]
        if len(set(ids.values())) == 1:
            return np.full(len(ordinals), next(iter(ids.values())), np.int64)
        process_codes, distinct = pd.factorize(processes)
        ordinal_codes, distinct_ordinals = pd.factorize(ordinals)
        lookup = np.array(
            [[ids.get((int(p), int(o)), -1) for o in distinct_ordinals] for p in distinct], np.int64
        ).reshape(len(distinct), -1)
        return lookup[process_codes, ordinal_codes] if len(ordinals) else np.empty(0, np.int64)

    def _conform(self, table: Any, data: Any) -> pd.DataFrame:
        return table.conform(data, source=str(self.file.path))  # type: ignore[no-any-return]


_LIMITS = ("name", "sm_count", "cc_major", "cc_minor", "l2_bytes", "memory_bytes", "memory_bytes_per_second")
_NEEDED = {
    KERNEL: ("start", "end", "deviceId", "contextId", "streamId", "demangledName", "shortName", "registersPerThread"),
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
    NVTX: ("start", "end", "eventType", "globalTid"),
    MEMCPY: ("start", "end", "deviceId", "contextId", "streamId", "bytes", "copyKind"),
    MEMSET: ("start", "end", "deviceId", "contextId", "streamId", "bytes"),
    GRAPH_TRACE: ("start", "end", "deviceId", "contextId", "streamId"),
    "StringIds": ("id", "value"),
}


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
