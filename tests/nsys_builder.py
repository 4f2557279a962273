"""Builds small Nsight Systems SQLite exports of any generation, for tests: real tables, column names and order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

GENERATIONS = ("2020.5", "2021.3", "2022.2", "2023.1", "2023.3", "2023.4", "2024.5", "2025.5", "2026.1", "2026.2")
"""Exporters whose schemas differ in a table that is built here."""

_SCHEMA_VERSIONS = {
    "2022.2": "2.9.1", "2023.1": "3.1.2", "2023.3": "3.4.0", "2023.4": "3.7.2", "2024.5": "3.13.2", "2025.5": "3.24.0",
    "2026.1": "3.24.14", "2026.2": "3.25.0",
}  # fmt: skip

# NAME@SINCE is a column that a later exporter added, NAME<UNTIL one that it dropped.
_TABLES = {
    "StringIds": "id value",
    "PROCESSES@2022.2": "globalPid pid name",
    "ThreadNames": "nameId priority globalTid",
    "CUPTI_ACTIVITY_KIND_KERNEL": """
        start end deviceId contextId greenContextId@2023.4 streamId correlationId globalPid demangledName shortName
        mangledName@2022.2 launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ
        staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted
        graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone@2025.5 qmdPreexitDone@2025.5 qmdLastCtaDone@2025.5
        graphId@2025.5 clusterX@2025.5 clusterY@2025.5 clusterZ@2025.5 clusterSchedulingPolicy@2025.5
        maxPotentialClusterSize@2025.5 maxActiveClusters@2025.5 sharedMemoryRequestedPercentage@2026.1
        tensorSizeMinusOneElements@2026.2""",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": """
        start end deviceId contextId greenContextId@2023.4 streamId correlationId globalPid bytes copyKind
        deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause graphNodeId
        virtualAddress@2022.2 copyCount@2025.5""",
    "CUPTI_ACTIVITY_KIND_MEMSET": """
        start end deviceId contextId greenContextId@2023.4 streamId correlationId globalPid value bytes graphNodeId
        memKind""",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE@2024.5": """
        start end deviceId contextId greenContextId streamId correlationId globalPid graphId graphExecId""",
    "CUDA_GRAPH_EVENTS": """
        start end eventClass globalTid nameId graphNodeId<2024.5 originalGraphNodeId<2024.5 graphId@2024.5
        originalGraphId@2024.5 graphExecId@2024.5""",
    "CUDA_GRAPH_NODE_EVENTS@2024.5": "start end eventClass globalTid nameId graphNodeId originalGraphNodeId",
    "NVTX_EVENTS": """
        start end eventType rangeId category color text globalTid endGlobalTid textId@2021.3 domainId uint64Value
        int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData@2026.2""",
    "TARGET_INFO_GPU": """
        vmId deviceId<2021.3 id@2021.3 name busLocation isDiscrete l2CacheSize@2021.3 totalMemory@2021.3
        memoryBandwidth@2021.3 clockRate@2021.3 smCount@2021.3 pwGpuId@2021.3 uuid@2021.3 luid@2021.3 chipName@2021.3
        cuDevice@2021.3 maxRegistersPerSm@2021.3 maxShmemPerSm@2021.3 maxWarpsPerSm@2021.3 maxBlocksPerSm@2021.3
        computeMajor@2021.3 computeMinor@2021.3 smMajor@2021.3 smMinor@2021.3""",
    "TARGET_INFO_CUDA_DEVICE@2025.5": "gpuId cudaId pid uuid@2025.6 numMultiprocessors@2025.6",
    "EXPORT_META_DATA@2022.2<2023.3": "name value",
    "META_DATA_EXPORT@2023.3": "name value",
    "META_DATA_CAPTURE@2023.3": "name value",
}
_TEXT = {
    "value",
    "name",
    "text",
    "jsonText",
    "binaryData",
    "busLocation",
    "uuid",
    "chipName",
    "tensorSizeMinusOneElements",
}
_INTEGER_DESPITE_ITS_NAME = {("CUPTI_ACTIVITY_KIND_MEMSET", "value")}
_REAL = {"doubleValue", "floatValue"}

PUSH_POP, START_END, MARK, DOMAIN_CREATE = 59, 60, 34, 75

Text = str | bytes
"""Bytes are written as text all the same, UTF-8 or not."""


def global_id(pid: int, tid: int = 0, *, hw: int = 0, vm: int = 1) -> int:
    """A packed id as SQLite shows it: negative where the hardware id fills the top bit."""
    packed = hw << 56 | vm << 48 | pid << 24 | tid
    return packed - 2**64 if packed >= 2**63 else packed


class NsysFile:
    """An export in the making. Every method adds rows in the order called and returns the file.

    ``process`` and ``thread`` are plain pid and tid, packed on writing; None is NULL. A table is written if it has
    rows (``lazy``), as nsys does by default.
    """

    def __init__(
        self,
        path: Path,
        generation: str = "2023.4",
        *,
        lazy: bool = True,
        hw: int = 0,
        graph_trace: str | None = None,
        meta: Sequence[tuple[str, str]] = (),
    ) -> None:
        if generation not in GENERATIONS:
            raise ValueError(generation)
        self.path = path
        self.generation = generation
        self.lazy = lazy
        self.hw = hw
        self.tables = dict(_columns(generation))
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.statements: list[tuple[str, tuple[Any, ...]]] = []
        self._strings: dict[Text, int] = {}
        self._domains: dict[tuple[int, Text], int] = {}
        self._next_correlation = 1000
        self.string("[unknown]")  # no export is without names
        version = _SCHEMA_VERSIONS.get(generation)
        if version is not None:
            table = "META_DATA_EXPORT" if "META_DATA_EXPORT" in self.tables else "EXPORT_META_DATA"
            for name, value in (
                ("EXPORT_PRODUCT_VERSION", f"{generation}.1.1"),
                ("EXPORT_SCHEMA_VERSION", version),
                *meta,
            ):
                self._add(table, name=name, value=value)
        if graph_trace is not None:
            self._add("META_DATA_CAPTURE", name="PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", value=graph_trace)

    # Device work

    def kernel(
        self,
        start: int | None,
        end: int | None,
        *,
        correlation: int | None = None,
        process: int | None = 100,
        device: int = 0,
        stream: int = 7,
        name: Text = "void add<float>(float*)",
        short_name: Text | None = None,
        grid: tuple[int, int, int] = (132, 1, 1),
        block: tuple[int, int, int] = (128, 1, 1),
        registers: int = 32,
        graph_node: int | None = None,
        **more: Any,
    ) -> NsysFile:
        """A kernel execution; ``more`` sets columns by their names."""
        short = short_name if short_name is not None else name
        return self._add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **self._place(start, end, correlation, process, device, stream, graph_node),
            **dict(zip(("gridX", "gridY", "gridZ"), grid, strict=True)),
            **dict(zip(("blockX", "blockY", "blockZ"), block, strict=True)),
            **{
                "demangledName": self.string(name), "shortName": self.string(short), "mangledName": self.string(name),
                "launchType": 1, "cacheConfig": 1, "registersPerThread": registers, "staticSharedMemory": 0,
                "dynamicSharedMemory": 0, "localMemoryPerThread": 0, "localMemoryTotal": 250871808, "gridId": 1,
                "sharedMemoryExecuted": 32768, "sharedMemoryLimitConfig": 0, "clusterX": 0, "clusterY": 0,
                "clusterZ": 0, "tensorSizeMinusOneElements": "[]",
                **more,
            },
        )  # fmt: skip

    def copy(
        self,
        start: int,
        end: int,
        *,
        bytes: int = 4096,
        kind: int = 1,
        correlation: int | None = None,
        process: int | None = 100,
        device: int = 0,
        stream: int = 7,
        graph_node: int | None = None,
    ) -> NsysFile:
        """A memcpy; kind 1 is host to device."""
        place = self._place(start, end, correlation, process, device, stream, graph_node)
        return self._add("CUPTI_ACTIVITY_KIND_MEMCPY", **place, bytes=bytes, copyKind=kind, srcKind=1, dstKind=2)

    def memset(
        self,
        start: int,
        end: int,
        *,
        bytes: int = 4,
        correlation: int | None = None,
        process: int | None = 100,
        device: int = 0,
        stream: int = 7,
        graph_node: int | None = None,
    ) -> NsysFile:
        """A memset."""
        place = self._place(start, end, correlation, process, device, stream, graph_node)
        return self._add("CUPTI_ACTIVITY_KIND_MEMSET", **place, value=0, bytes=bytes, memKind=2)

    def graph(
        self,
        start: int,
        end: int,
        *,
        graph: int = 1,
        correlation: int | None = None,
        process: int | None = 100,
        device: int = 0,
        stream: int = 7,
    ) -> NsysFile:
        """An execution of a whole graph; from 2024 on."""
        place = self._place(start, end, correlation, process, device, stream, None)
        return self._add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **place, graphId=graph, graphExecId=graph + 100)

    def _place(
        self,
        start: int | None,
        end: int | None,
        correlation: int | None,
        process: int | None,
        device: int,
        stream: int,
        graph_node: int | None,
    ) -> dict[str, Any]:
        return {
            "start": start, "end": end, "deviceId": device, "contextId": 1, "greenContextId": 0, "streamId": stream,
            "correlationId": correlation, "globalPid": self.pid(process), "graphNodeId": graph_node,
        }  # fmt: skip

    # The host

    def call(
        self,
        start: int,
        end: int,
        name: Text = "cudaLaunchKernel_v7000",
        *,
        correlation: int | None = None,
        thread: int = 101,
        process: int = 100,
    ) -> NsysFile:
        """A CUDA API call."""
        return self._add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start, end=end, eventClass=0, globalTid=self.tid(process, thread), correlationId=correlation,
            nameId=self.string(name), returnValue=0,
        )  # fmt: skip

    def launch(
        self,
        call: tuple[int, int],
        kernel: tuple[int, int],
        *,
        api: str = "cudaLaunchKernel_v7000",
        thread: int = 101,
        process: int = 100,
        **more: Any,
    ) -> NsysFile:
        """A call and the kernel that it launched, with a correlation id of their own."""
        self._next_correlation += 1
        number = self._next_correlation
        self.call(*call, api, correlation=number, thread=thread, process=process)
        return self.kernel(*kernel, correlation=number, process=process, **more)

    def graph_node(
        self,
        node: int,
        start: int,
        *,
        original: int | None = None,
        thread: int = 101,
        process: int = 100,
    ) -> NsysFile:
        """The creation of a graph node: in CUDA_GRAPH_EVENTS to 2023.4, beside which it means graphs later."""
        row = {
            "start": start, "end": start, "eventClass": 77, "globalTid": self.tid(process, thread),
            "nameId": self.string("cudaGraphAddKernelNode"), "graphNodeId": node, "originalGraphNodeId": original,
        }  # fmt: skip
        if "CUDA_GRAPH_NODE_EVENTS" not in self.tables:
            return self._add("CUDA_GRAPH_EVENTS", **row)
        self._add("CUDA_GRAPH_EVENTS", **row, graphId=node >> 32, graphExecId=7)
        return self._add("CUDA_GRAPH_NODE_EVENTS", **row)

    def range(
        self,
        start: int,
        end: int | None,
        label: Text | None,
        *,
        domain: Text = "",
        domain_id: int | None = None,
        kind: str = "push_pop",
        text_id: bool = False,
        thread: int = 101,
        end_thread: int | None = None,
        process: int = 100,
        event_type: int | None = None,
    ) -> NsysFile:
        """An NVTX range; its text is registered (``text_id``) or inline. ``domain_id`` overrules the domain."""
        if domain_id is None:
            domain_id = self.domain(domain, thread=thread, process=process) if domain else 0
        types = {"push_pop": PUSH_POP, "start_end": START_END, "mark": MARK}
        return self._add(
            "NVTX_EVENTS",
            start=start, end=end, eventType=event_type or types[kind], globalTid=self.tid(process, thread),
            endGlobalTid=None if end_thread is None else self.tid(process, end_thread), domainId=domain_id,
            text=None if text_id else label, textId=self.string(label) if text_id and label is not None else None,
        )  # fmt: skip

    def domain(
        self, name: Text, *, id: int | None = None, text_id: bool = False, thread: int = 101, process: int = 100
    ) -> int:
        """Creates a domain in a process, once, and returns its id; ids are numbered per process."""
        key = (process, name)
        if key not in self._domains:
            used = [number for (owner, _), number in self._domains.items() if owner == process]
            self._domains[key] = id if id is not None else max(used, default=0) + 1
            self._add(
                "NVTX_EVENTS",
                start=0, end=None, eventType=DOMAIN_CREATE, globalTid=self.tid(process, thread),
                domainId=self._domains[key], text=None if text_id else name,
                textId=self.string(name) if text_id else None,
            )  # fmt: skip
        return self._domains[key]

    # Devices

    def gpu(
        self,
        id: int = 0,
        *,
        name: str = "NVIDIA H200",
        cu_device: int | None = None,
        uuid: str | None = None,
        sm_count: int = 132,
        cc: tuple[int, int] = (9, 0),
    ) -> NsysFile:
        """A GPU of the host."""
        return self._add(
            "TARGET_INFO_GPU",
            vmId=1 << 48, deviceId=id, id=id, name=name, busLocation=f"0000:0{id}:00.0", isDiscrete=1,
            l2CacheSize=62914560, totalMemory=150109880320, memoryBandwidth=4814304000000, clockRate=1980000000,
            smCount=sm_count, pwGpuId=id, uuid=uuid, luid=0, chipName="GH100",
            cuDevice=id if cu_device is None else cu_device, maxRegistersPerSm=65536, maxShmemPerSm=233472,
            maxWarpsPerSm=64, maxBlocksPerSm=32, computeMajor=cc[0], computeMinor=cc[1], smMajor=cc[0], smMinor=cc[1],
        )  # fmt: skip

    def cuda_device(self, process: int, ordinal: int, gpu: int) -> NsysFile:
        """Which GPU a process sees as which ordinal; from 2025.5 on."""
        return self._add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=ordinal, pid=process)

    # Ids and names

    def pid(self, process: int | None) -> int | None:
        """The global process id of a pid; the first use lists it in PROCESSES."""
        if process is None:
            return None
        packed = global_id(process, hw=self.hw)
        known = self.rows.get("PROCESSES", [])
        if "PROCESSES" in self.tables and all(row["globalPid"] != packed for row in known):
            self._add("PROCESSES", globalPid=packed, pid=process, name="python3")
        return packed

    def tid(self, process: int, thread: int) -> int:
        """The global thread id of a tid."""
        self.pid(process)
        return global_id(process, thread, hw=self.hw)

    def string(self, text: Text) -> int:
        """The id of a string, registered at first use."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self._add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    # The file

    def sql(self, statement: str, *parameters: Any) -> NsysFile:
        """A statement to run at the end, for damage that no other method does."""
        self.statements.append((statement, parameters))
        return self

    def write(self, *, without: Iterable[str] = (), without_columns: Iterable[str] = ()) -> Path:
        """Writes the file and returns its path; ``without`` names tables to leave out, ``without_columns`` columns."""
        connection = sqlite3.connect(self.path)
        try:
            for table, columns in self.tables.items():
                rows = self.rows.get(table, [])
                if table in without or (self.lazy and not rows):
                    continue
                kept = [name for name in columns if name not in without_columns]
                connection.execute(f'CREATE TABLE "{table}" ({", ".join(_declared(table, name) for name in kept)})')
                for row in rows:
                    values = [row.get(name) for name in kept]
                    # SQLite checks no text: bytes cast to text are kept as they are.
                    marks = ", ".join("CAST(? AS TEXT)" if isinstance(value, bytes) else "?" for value in values)
                    connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', values)
            for statement, parameters in self.statements:
                connection.execute(statement, parameters)
            connection.commit()
        finally:
            connection.close()
        return self.path

    def _add(self, table: str, **row: Any) -> NsysFile:
        if table not in self.tables:
            raise ValueError(f"{self.generation} has no table {table}")
        self.rows.setdefault(table, []).append(row)
        return self


def _declared(table: str, column: str) -> str:
    if table == "StringIds" and column == "id":
        return "id INTEGER NOT NULL PRIMARY KEY"
    if column in _TEXT and (table, column) not in _INTEGER_DESPITE_ITS_NAME:
        return f'"{column}" TEXT'
    return f'"{column}" {"REAL" if column in _REAL else "INTEGER"}'


def _columns(generation: str) -> Iterator[tuple[str, list[str]]]:
    now = _number(generation)
    for table, columns in _TABLES.items():
        for name in _current([table], now):
            yield name, list(_current(columns.split(), now))


def _current(names: Iterable[str], now: tuple[int, ...]) -> Iterator[str]:
    for declared in names:
        rest, _, until = declared.partition("<")
        name, _, since = rest.partition("@")
        if (not since or now >= _number(since)) and (not until or now < _number(until)):
            yield name


def _number(generation: str) -> tuple[int, ...]:
    return tuple(map(int, generation.split(".")))
