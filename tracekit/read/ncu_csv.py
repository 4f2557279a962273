"""Reads the CSV that Nsight Compute prints, wide (raw page) or long (a row a metric), into table counters."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracekit.errors import InputError
from tracekit.read.identify import read_head
from tracekit.read.ncu_metrics import COLUMN_OF, LABELS, Cell, Stacks, counters_table, nvtx_stacks

if TYPE_CHECKING:
    import pandas as pd

_EXPECTED: Final = 'the output of ncu --csv: a header with "ID" and "Kernel Name", then a row a launch or a metric'
_EXPORT: Final = "ncu --import REPORT --csv --page raw --print-units base"
_REMEDIES: Final = {
    "ERR_NVGPUCTRPERM": "allow performance counters: run ncu as root, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0; a container needs --cap-add=SYS_ADMIN",
    "No kernels were profiled": "check that the program launches kernels on the GPU and that -k, --nvtx-include, "
    "--launch-skip or --target-processes do not leave all of them out",
}

_LOG = re.compile(r"\s*==(PROF|WARNING|ERROR)==\s*(.*)")
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*")
# "domain:label:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg". A label may hold colons and quotes, so the fixed tail
# finds its end; a registered label is repeated there, which settles where a domain with colons ends, too.
_NVTX_RANGE = re.compile(
    r'"(?P<domain>.*?):(?P<label>.*?):\w+:[^:"]*:(?:none:none|A?RGB:\w+)'
    r':(?:none:none|\w+:(?P=label)|(?!REGISTERED)\w+:[^":]*)"(?=\s*$|\s+")',
    re.DOTALL,
)
_NVTX_START_STOP, _NVTX_PUSH_POP = "Id:Domain:Start/Stop_Range", "thread Domain:Push/Pop_Range"


def read_ncu_csv(path: Path, *, kind: str | None) -> pd.DataFrame:
    """Table counters from the output of ``ncu --csv``, wide or long, in base or scaled units.

    ``kind`` is the cache state that bytes were counted in, which the file does not tell; rows of an application range
    are always ``in_model``. ``attrs`` are those of :func:`~tracekit.read.ncu_metrics.counters_table`; log lines and
    output of the program between the rows are counted in ``dropped_lines``. Raises InputError where the file is no
    such CSV, holds log lines only (with ncu's own reason), or shows a number that can be read in two ways.
    """
    page = _parse(_decode(path), path)
    launches, cells, numbers = _long(page) if "Metric Name" in page.header else _wide(page)
    identity, notes = _identity(page, launches)
    frame = counters_table(identity, cells, kind=kind, decimal=_decimal_mark(numbers, path), source=str(path))
    frame.attrs["dropped_lines"] = page.dropped
    frame.attrs["notes"] += notes
    return frame


@dataclass(frozen=True)
class _Page:
    """The table in the output: ``rows`` are (fields, units of the fields)."""

    header: list[str]
    rows: list[tuple[list[str], list[str]]]
    errors: list[str]
    dropped: int
    damaged: int


def _wide(page: _Page) -> tuple[list[list[str]], dict[str, list[Cell]], set[str]]:
    """A row of each launch, its metrics, and the cells that hold numbers, from a row a launch."""
    wanted = {name: i for i, name in enumerate(page.header) if name in COLUMN_OF}
    cells = {name: [(row[i], units[i]) for row, units in page.rows] for name, i in wanted.items()}
    numbers = {text for column in cells.values() for text, _ in column}
    numbers |= {text for row, units in page.rows for text, unit in zip(row, units, strict=True) if unit}
    return [row for row, _ in page.rows], cells, numbers


def _long(page: _Page) -> tuple[list[list[str]], dict[str, list[Cell]], set[str]]:
    """The same from a row a metric. Where sections share a metric, its first row counts."""
    at = {name: i for i, name in enumerate(page.header)}
    first: dict[tuple[str, str], list[str]] = {}
    values: dict[str, dict[tuple[str, str], Cell]] = {}
    numbers: set[str] = set()
    for row, _ in page.rows:
        launch = row[at.get("Process ID", 0)], row[0]
        first.setdefault(launch, row)
        metric = LABELS.get(row[at["Metric Name"]], row[at["Metric Name"]])
        cell = row[at["Metric Value"]], row[at["Metric Unit"]]
        if cell[1] or metric in COLUMN_OF:
            numbers.add(cell[0])
        if metric in COLUMN_OF:
            values.setdefault(metric, {}).setdefault(launch, cell)
    cells = {metric: [of.get(launch, ("", "")) for launch in first] for metric, of in values.items()}
    return list(first.values()), cells, numbers


def _identity(page: _Page, launches: list[list[str]]) -> tuple[dict[str, list[Any]], list[str]]:
    """What each launch is, by column of table counters, and notes about the file."""
    at = {name: i for i, name in enumerate(page.header)}

    def column(name: str) -> list[str]:
        return [row[at[name]] if name in at else "" for row in launches]

    # A start/stop range never beats push/pop, so it stands outside.
    nvtx_at = [i for kind in (_NVTX_START_STOP, _NVTX_PUSH_POP) for name, i in at.items() if name.startswith(kind)]
    stacks = [_nvtx(*(row[i] for i in nvtx_at)) for row in launches]
    names = column("Kernel Name")
    out: dict[str, list[Any]] = {
        "workload_type": [
            name if name in ("range", "graph") and not stream.strip().isdecimal() else "kernel"
            for name, stream in zip(names, column("Stream"), strict=True)
        ],
        "nvtx": [stack or () for stack in stacks],
        "process": [
            int(digits) if (digits := cell.replace(",", "")).isdecimal() else None for cell in column("Process ID")
        ],
        "name": names,
    }
    for columns, source in (
        (("grid_x", "grid_y", "grid_z"), "Grid Size"),
        (("block_x", "block_y", "block_z"), "Block Size"),
        (("cc_major", "cc_minor"), "CC"),
    ):
        sizes = [_sizes(cell, len(columns)) for cell in column(source)]
        out |= {name: [size[i] for size in sizes] for i, name in enumerate(columns)}
    notes = [f"ncu said: {error}" for error in dict.fromkeys(page.errors)]
    if page.damaged:
        notes.append(f"{page.damaged} rows are cut or damaged and were left out")
    if not page.rows:
        notes.append("the file has a header and no rows: nothing was profiled")
    if "Metric Name" not in at and any(not any(units) for _, units in page.rows):
        notes.append("the file has no row of units: its figures are taken as ns, bytes and percent")
    if not nvtx_at:
        notes.append("the file has no NVTX columns: collect with ncu --nvtx, so that launches join to ranges")
    if None in stacks:
        notes.append(f"the NVTX ranges of {stacks.count(None)} of {len(stacks)} results could not be read")
    return out, notes


def _decode(path: Path) -> str:
    """The file's text; PowerShell redirects write UTF-16, and bytes that are not UTF-8 are replaced."""
    head = read_head(path)
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if b"\x00" in head and not is_utf16:
        raise InputError(
            path,
            expected=_EXPECTED,
            found=f"a binary file that begins with {head[:8]!r}",
            remedy=f"export the report as text: {_EXPORT}",
        )
    return path.read_bytes().decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace").replace("\r\n", "\n")


def _parse(text: str, path: Path) -> _Page:
    """The table in ``text``, or InputError that says why there is none."""
    lines = text.split("\n")
    said = [(match[1], match[2]) for line in lines if (match := _LOG.match(line))]
    heads = [i for i, line in enumerate(lines) if _is_header(line)]
    if not heads:
        first = next((line.strip() for line in lines if line.strip()), "")
        raise _no_rows(path, said, "log lines only" if said else f"text that begins with {first[:80]!r}")
    header = _fields(lines[heads[0]])
    if other := [i for i in heads if _fields(lines[i]) != header]:
        raise InputError(
            path,
            expected="one table",
            found=f"a second one with other columns in line {other[0] + 1}",
            remedy="split the file there",
        )
    # The details page ends a metric's row early: it leaves out the columns about rules.
    least = header.index("Metric Value") + 1 if "Metric Value" in header else len(header)
    rows: list[tuple[list[str], list[str]]] = []
    units = [""] * len(header)
    damaged, used = 0, len(heads)
    for record in _records(lines[heads[0] + 1 :], header, quoted=lines[heads[0]].startswith('"')):
        fields = _fields(record)
        if not least <= len(fields) <= len(header):
            damaged += 1
            continue
        used += sum(bool(line.strip()) for line in record.split("\n"))
        if fields[0] or fields[header.index("Kernel Name")]:
            rows.append((fields, units))
        else:
            units = fields
    if not rows and (damaged or any(level == "ERROR" for level, _ in said)):
        raise _no_rows(path, said, "a header and no whole row")
    errors = [message for level, message in said if level == "ERROR"]
    return _Page(header, rows, errors, sum(bool(line.strip()) for line in lines) - used, damaged)


def _is_header(line: str) -> bool:
    fields = _fields(line) if "Kernel Name" in line else []
    is_long, whole = "Metric Name" in fields, {"Metric Unit", "Metric Value"} <= set(fields)
    return fields[:1] == ["ID"] and (whole or not is_long)


def _fields(record: str) -> list[str]:
    """The cells of a row; none where it is cut inside of one."""
    try:
        return [] if record.count('"') % 2 else next(csv.reader([record]), [])
    except csv.Error:
        return []


def _records(lines: Iterable[str], header: list[str], *, quoted: bool) -> Iterator[str]:
    """The rows as text, whole or cut. A row begins with its ids and goes on while a quote is open: names may hold
    newlines. What the program printed without a final newline may stand before a row."""
    ids = 2 if header[1:2] == ["Process ID"] else 1
    begins = re.compile(r'"[\d,]*",' * ids if quoted else "^" + r"\d*," * ids)
    row: list[str] = []
    quotes = 0
    for line in lines:
        begin = begins.match(line) if row else begins.search(line)
        if begin:
            if row:
                yield "\n".join(row)
            row, quotes = [line[begin.start() :]], 0
        elif row:
            row.append(line)
        else:
            continue
        quotes += row[-1].count('"')
        if quotes % 2 == 0:
            yield "\n".join(row)
            row = []
    if row:
        yield "\n".join(row)


def _no_rows(path: Path, said: list[tuple[str, str]], found: str) -> InputError:
    """The error for a file without a table, with ncu's own reason where it gave one."""
    reasons = [message for wanted in ("ERROR", "WARNING") for level, message in said if level == wanted]
    known = [(reason, remedy) for key, remedy in _REMEDIES.items() for reason in reasons if key in reason]
    unknown = (reasons[0], "mend what ncu complains about and capture again") if reasons else ("", "")
    reason, remedy = known[0] if known else unknown
    return InputError(
        path,
        expected=_EXPECTED,
        found=f'{found}; ncu said: "{reason}"' if reason else found,
        remedy=remedy or f"export the report: {_EXPORT}",
    )


def _sizes(cell: str, count: int) -> tuple[int | None, ...]:
    """The numbers of a cell such as ``(32,768, 66, 1)`` or ``9.0``; None each where it holds others."""
    parts = re.split(r",\s+|\.", cell.strip(" ()"))
    digits = [part.replace(",", "") for part in parts]
    return tuple(map(int, digits)) if len(parts) == count and all(map(str.isdecimal, digits)) else (None,) * count


@lru_cache(maxsize=4096)
def _nvtx(*cells: str) -> Stacks | None:
    """The stacks in the NVTX cells of a row, or None where they cannot be read without guessing."""
    ranges: list[tuple[str, str]] = []
    for cell in cells:
        ranges += [(match["domain"], match["label"]) for match in _NVTX_RANGE.finditer(cell)]
        if re.search(r"[^\d\s]", _NVTX_RANGE.sub("", cell)):
            return None
    # A range whose tail is unknown swallows the one after it.
    return None if any(re.search(r'"\s+"', label) for _, label in ranges) else nvtx_stacks(ranges)


def _decimal_mark(numbers: Iterable[str], path: Path) -> str | None:
    """The decimal mark that the file's numbers prove, or None. Raises InputError where they prove both."""
    proofs = {mark: cell for cell in sorted(numbers) if (mark := _proven_mark(cell.strip()))}
    if len(proofs) > 1:
        raise InputError(
            path,
            expected="one decimal mark in the whole file",
            found=" and ".join(repr(cell) for cell in proofs.values()),
            remedy="export the report again with LC_ALL=C and --print-units base",
        )
    return next(iter(proofs), None)


def _proven_mark(cell: str) -> str | None:
    """The decimal mark that a number proves alone: ``1,234.5``, ``1,234,567``, ``9.50`` and ``0.125`` prove a point,
    ``1,234`` and ``1.234`` nothing."""
    marks = re.sub("[^.,]", "", cell)
    if not marks or not _NUMBER.fullmatch(cell):
        return None
    if len(set(marks)) > 1:
        return marks[-1]
    if len(marks) > 1:
        return "." if marks[0] == "," else ","
    may_group = re.fullmatch(r"[-+]?[1-9]\d{0,2}[.,]\d{3}", cell)
    return None if may_group else marks
