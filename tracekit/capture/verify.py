"""Compares what a workload says that it did with what the report of its capture holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tracekit.capture.tools import number
from tracekit.errors import InputError
from tracekit.model import labels

KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
DEVICE_TABLES: Final = (
    KERNEL, "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)  # fmt: skip
NVTX: Final = "NVTX_EVENTS"
LOSES_NVTX: Final = (2023, 4, 4)
"""nsys up to this version loses push/pop ranges of nvtx from :data:`LOST_NVTX` on; later ones were not measured."""
LOST_NVTX: Final = (0, 2, 12)
NVTX_REMEDY: Final = "pip install nvtx==0.2.11, or capture with a newer Nsight Systems"

_PUSH_POP = "(59, 70)"
_SLOW_LAUNCH_NS: Final = 50_000


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One comparison: what was looked at, what was expected and found, and what to do."""

    level: Level
    what: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


@dataclass(frozen=True)
class Counts:
    """The rows of an export. ``ranges`` are push/pop ranges by (domain, label)."""

    ranges: Mapping[tuple[str, str], int]
    kernels: Mapping[str, int]
    device_rows: int
    calls: int
    graph_launches: int
    graph_launch_ns: int
    graph_nodes: int
    gpus: tuple[str, ...]
    version: str | None

    def in_domain(self, domain: str) -> int:
        """Push/pop ranges of a domain."""
        return sum(count for (own, _), count in self.ranges.items() if own == domain)

    @property
    def all_ranges(self) -> int:
        """Push/pop ranges of every domain."""
        return sum(self.ranges.values())

    @property
    def all_kernels(self) -> int:
        """Kernel rows."""
        return sum(self.kernels.values())


def counts(export: Path) -> Counts:
    """Counts the rows of an SQLite export; raises InputError where it cannot be read to its end."""
    with _opened(export) as database:
        columns = _columns(database)
        if not columns:
            raise InputError(
                export,
                expected="the tables of an Nsight Systems export",
                found="a database without tables",
                remedy="capture again; the tool that wrote it failed",
            )
        launches = _graph_launches(database, columns)
        return Counts(
            ranges=_ranges(database, columns),
            kernels=_kernels(database, columns),
            device_rows=sum(_rows(database, columns, table) for table in DEVICE_TABLES),
            calls=_rows(database, columns, RUNTIME),
            graph_launches=len(launches),
            graph_launch_ns=sorted(launches)[len(launches) // 2] if launches else 0,
            graph_nodes=_nodes(database, columns),
            gpus=_gpus(database, columns),
            version=_version(database, columns),
        )


def compare(
    found: Counts,
    ran: Mapping[str, Any],
    *,
    trace: Sequence[str] = ("cuda", "nvtx"),
    nsys_version: str | None = None,
    nvtx_version: str | None = None,
    graph_trace: str | None = None,
) -> list[Finding]:
    """Findings about a report, against ``ran`` of a manifest; what ``ran`` does not tell is not compared.

    A report without any range and any CUDA row is a failure whatever ran, and so is one of a CUDA trace without rows
    of device work, unless a graph traced as a whole explains it.
    """
    findings = [*_cuda(found, ran, graph_trace)] if "cuda" in trace else []
    if "nvtx" in trace:
        findings += _nvtx(found, ran, nsys_version, nvtx_version)
    if not found.all_ranges and not found.device_rows and not found.calls:
        findings.append(Finding(Level.FAIL, "report", "it is empty: no NVTX range, no CUDA call, no device work"))
    return findings


def _cuda(found: Counts, ran: Mapping[str, Any], graph_trace: str | None) -> Iterator[Finding]:
    launched = [kernel for kernel in ran.get("kernels") or () if isinstance(kernel, dict)]
    if not found.device_rows and found.graph_launches:
        yield Finding(
            Level.WARN,
            "kernels",
            f"{found.graph_launches} graph launches and no row of device work: tracing graphs as a whole hid them",
            "capture with --graphs node",
        )
    elif not found.device_rows:
        yield Finding(
            Level.FAIL,
            "kernels",
            f"{found.calls} CUDA API calls and no row of device work",
            "the program launched nothing while nsys recorded (is it on the GPU; does its cudaProfilerStart window "
            "hold any work?), or an importer of another nsys version dropped the rows; a program without CUDA: "
            "--trace nvtx",
        )
    elif not (found.graph_launches and graph_trace == "graph"):
        yield from _launches(found, ran, launched)
    if found.graph_launches and graph_trace == "graph" and found.device_rows:
        yield Finding(
            Level.WARN,
            "graphs",
            f"{found.graph_launches} graph launches traced as a whole: the kernels inside are hidden",
            "capture with --graphs node to see them",
        )
    if found.graph_launches and graph_trace == "node" and found.graph_launch_ns > _SLOW_LAUNCH_NS:
        yield Finding(
            Level.WARN,
            "graphs",
            f"tracing every node stretches the launch of a graph to {found.graph_launch_ns / 1000:,.0f} us: "
            "the host's time is not what it is untraced",
            "judge latency by the untraced bench; --graphs graph keeps launches short and hides kernels",
        )


def _launches(found: Counts, ran: Mapping[str, Any], launched: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    total = ran.get("launches")
    if isinstance(total, int):
        level = Level.OK if found.all_kernels == total else Level.FAIL
        yield Finding(level, "kernels", f"{total} launched, {found.all_kernels} in the report", _LOST_KERNELS)
        return
    steps = ran.get("iterations") if isinstance(ran.get("iterations"), int) else 0
    short: list[tuple[str, int, int]] = []
    for kernel in launched:
        name, each = str(kernel.get("name", "")), kernel.get("launches")
        if not name or not isinstance(each, int):
            continue
        expected = sum(
            int(other.get("launches") or 0) for other in launched if str(other.get("name", "")) == name
        ) * int(steps or 0)
        seen = sum(count for own, count in found.kernels.items() if own == name or own.startswith(f"{name}_"))
        if seen < expected and name not in [other for other, *_ in short]:
            short.append((name, expected, seen))
    for name, expected, seen in short:
        yield Finding(Level.FAIL, "kernels", f"{name}: {expected} launched, {seen} in the report", _LOST_KERNELS)
    if not short:
        yield Finding(Level.OK, "kernels", f"{found.all_kernels} in the report")


_LOST_KERNELS: Final = "capture fewer iterations, and end the program only after the device is done (synchronize)"


def _nvtx(
    found: Counts, ran: Mapping[str, Any], nsys_version: str | None, nvtx_version: str | None
) -> Iterator[Finding]:
    pushed = ran.get("ranges_pushed")
    if not isinstance(pushed, int):
        if not found.all_ranges:
            yield Finding(
                Level.WARN,
                "NVTX ranges",
                "none in the report, and the program did not say whether it pushed any",
                f"annotate a step (torch.cuda.nvtx.range_push); {_cause(nsys_version, nvtx_version)[1]}",
            )
        else:
            yield Finding(Level.OK, "NVTX ranges", f"{found.all_ranges} in the report")
        return
    own = found.in_domain(str(ran.get("domain", labels.DOMAIN)))
    if own == pushed:
        yield Finding(Level.OK, "NVTX ranges", f"{own} pushed, all in the report")
    elif own < pushed:
        cause, remedy = _cause(nsys_version, nvtx_version)
        yield Finding(Level.FAIL, "NVTX ranges", f"{pushed} pushed, {own} in the report: {cause}", remedy)
    else:
        yield Finding(
            Level.FAIL,
            "NVTX ranges",
            f"{pushed} pushed in the capture window, {own} in the report: more than the window was recorded",
            "capture with --window profiler-api, and let the program count what it pushes inside",
        )
    roots, root = ran.get("roots"), ran.get("root")
    if own and isinstance(roots, int) and isinstance(root, str):
        seen = sum(count for (_, label), count in found.ranges.items() if label == root)
        if seen != roots:
            yield Finding(Level.FAIL, "iterations", f"{roots} of {root} run, {seen} in the report", _LOST_KERNELS)
        else:
            yield Finding(Level.OK, "iterations", f"{roots}, all in the report")


def remedies(findings: Sequence[Finding]) -> str:
    """What to do about all of them, each once."""
    return "; ".join(dict.fromkeys(finding.remedy for finding in findings if finding.remedy)) or "capture again"


def known_to_lose(nsys_version: str | None, nvtx_version: str | None) -> bool:
    """Whether that nsys is known to lose the push/pop ranges of that nvtx package."""
    return bool(number(nsys_version)) and number(nsys_version) <= LOSES_NVTX and number(nvtx_version) >= LOST_NVTX


def _cause(nsys_version: str | None, nvtx_version: str | None) -> tuple[str, str]:
    if known_to_lose(nsys_version, nvtx_version):
        return f"nsys {nsys_version} loses those of nvtx {nvtx_version} (0.2.12 and newer)", NVTX_REMEDY
    if nvtx_version is None:
        return (
            "lost on the way; without the nvtx package nothing is pushed, and nsys 2023.4 loses those of 0.2.12 on",
            f"see which nvtx the program imports (pip show nvtx); {NVTX_REMEDY}",
        )
    return (
        f"lost on the way between nvtx {nvtx_version} and nsys {nsys_version or 'of unknown version'}",
        f"tracekit doctor shows whether ranges arrive here; {NVTX_REMEDY}",
    )


# Reading the export


@contextmanager
def _opened(export: Path) -> Iterator[sqlite3.Connection]:
    try:
        database = sqlite3.connect(f"file://{quote(str(export.absolute()))}?mode=ro&immutable=1", uri=True)
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            yield database
        finally:
            database.close()
    except sqlite3.Error as error:
        raise InputError(
            export,
            expected="a whole SQLite export",
            found=f"a damaged one ({error})",
            remedy="export the report again: nsys export --type sqlite; see whether the disk is full",
        ) from None


def _columns(database: sqlite3.Connection) -> dict[str, set[str]]:
    query = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    out: dict[str, set[str]] = {}
    for table, column in database.execute(query):
        out.setdefault(table, set()).add(column)
    return out


def _rows(database: sqlite3.Connection, columns: Mapping[str, set[str]], table: str) -> int:
    return int(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]) if table in columns else 0


def _ranges(database: sqlite3.Connection, columns: Mapping[str, set[str]]) -> dict[tuple[str, str], int]:
    if NVTX not in columns:
        return {}
    registered = "textId" in columns[NVTX] and "StringIds" in columns
    text = "coalesce(e.text, s.value)" if registered else "e.text"
    join = "LEFT JOIN StringIds s ON s.id = e.textId" if registered else ""
    domain, process = ("e.domainId" if "domainId" in columns[NVTX] else "0"), "e.globalTid >> 24"
    made = {
        (owner, number): name or ""
        for owner, number, name in database.execute(
            f"SELECT {process}, {domain}, {text} FROM {NVTX} e {join} WHERE e.eventType = 75"
        )
    }
    out: dict[tuple[str, str], int] = {}
    for owner, number_, label, count in database.execute(
        f"SELECT {process}, {domain}, {text}, count(*) FROM {NVTX} e {join} WHERE e.eventType IN {_PUSH_POP} "
        "GROUP BY 1, 2, 3"
    ):
        key = ("" if not number_ else made.get((owner, number_), f"domain {number_}"), label or "")
        out[key] = out.get(key, 0) + count
    return out


def _kernels(database: sqlite3.Connection, columns: Mapping[str, set[str]]) -> dict[str, int]:
    if KERNEL not in columns or "StringIds" not in columns:
        return {}
    return dict(
        database.execute(
            f"SELECT coalesce(s.value, ''), count(*) FROM {KERNEL} k LEFT JOIN StringIds s ON s.id = k.shortName "
            "GROUP BY 1"
        )
    )


def _graph_launches(database: sqlite3.Connection, columns: Mapping[str, set[str]]) -> list[int]:
    if RUNTIME not in columns or "StringIds" not in columns:
        return []
    query = f"""SELECT r."end" - r.start FROM {RUNTIME} r JOIN StringIds s ON s.id = r.nameId
                WHERE s.value LIKE 'cudaGraphLaunch%' OR s.value LIKE 'cuGraphLaunch%'"""
    return [int(duration or 0) for (duration,) in database.execute(query)]


def _nodes(database: sqlite3.Connection, columns: Mapping[str, set[str]]) -> int:
    for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"):
        if "graphNodeId" in columns.get(table, ()):
            return _rows(database, columns, table)
    return 0


def _gpus(database: sqlite3.Connection, columns: Mapping[str, set[str]]) -> tuple[str, ...]:
    if "name" not in columns.get("TARGET_INFO_GPU", ()):
        return ()
    return tuple(name for (name,) in database.execute("SELECT DISTINCT name FROM TARGET_INFO_GPU") if name)


def _version(database: sqlite3.Connection, columns: Mapping[str, set[str]]) -> str | None:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        if table in columns:
            query = f"SELECT value FROM {table} WHERE name = 'EXPORT_PRODUCT_VERSION'"
            for (value,) in database.execute(query):
                return str(value)
    return None
