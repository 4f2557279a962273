"""Copies traces without what is private, keeps every figure, and lists what it removed."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tracekit.capture import bundle
from tracekit.capture.finish import SUFFIXES
from tracekit.errors import InputError, UsageError
from tracekit.model.manifest import FILE_NAME, CounterEntry, FileEntry, Manifest

KEPT_TABLES: Final = frozenset(
    {
        "StringIds", "PROCESSES", "NVTX_EVENTS", "CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS", "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_CUDA_NULL_STREAM", "TARGET_INFO_CUDA_CONTEXT_INFO",
        "TARGET_INFO_CUDA_STREAM", "META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA", "PROFILER_OVERHEAD",
    }
)  # fmt: skip
"""Tables that stay, beside CUPTI_ACTIVITY_KIND_* and the static ENUM_*; every other one goes, whatever it holds."""

KEPT_META: Final = re.compile(
    r"EXPORT_(PRODUCT_VERSION|SCHEMA_VERSION|SCHEMA_VERSION_(MAJOR|MINOR|MICRO)|(PARAM_)?LAZY|PARAM_[A-Z_]+)"
    r"|(PROCESS_\d+:)?CUDA_GRAPH_TRACE_OPTIONS:MODE|RUN_DURATION_MS|(CAPTURE_)?EVENT_TYPE"
)
"""Names in the META_DATA tables whose values say how the export was made and not where."""

NAME_COLUMNS: Final = frozenset({"demangledName", "shortName", "mangledName", "nameId", "textId"})
"""Columns whose string ids name kernels, API calls and NVTX labels: the only strings that stay."""

RANGE_TYPES: Final = "(59, 60, 70, 71, 75, 76)"
"""NVTX events that figures come from: ranges and domains. Marks, categories and thread names go."""

_UUID: Final = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_PATH: Final = re.compile(r"(?<![\w./@])(?:~|/[\w.+@%=-]+)(?:/[\w.+@%=-]*)+|\b[A-Za-z]:\\[^\s\"']+")
_WHOLE_PATH: Final = re.compile(r"(~|\.{1,2})?/|~$|[A-Za-z]:\\|\\\\")
"""How a text begins that is a path and nothing else."""
_PRIVATE_KEYS: Final = re.compile(
    r"host|user|home|cwd|folder|directory|path|argv|command|cmdline|environ|uuid|serial", re.IGNORECASE
)
_PRIVATE_NAMES: Final = frozenset({"USER", "LOGNAME", "USERNAME", "HOSTNAME", "HOME", "PWD", "SUDO_USER", "EMAIL"})
_PRIVATE_META: Final = re.compile(r"USER|HOST|PATH|COMMAND|DIR", re.I)
_MACHINE_COLUMNS: Final = re.compile(
    r"(nvlink|numa|c2clink|pcie?)__|device__attribute_(?!compute_capability_m|multiprocessor_count|display_name|l2_cache)"
)
_PLACEHOLDER: Final = "removed"


SMALL_EXPORT: Final = 4 * 10**6
"""Bytes below which an export is packed into smaller pages."""


@dataclass
class Removed:
    """What was taken out, by kind, as counts; and what was kept although it may tell something."""

    counts: dict[str, int] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, kind: str, count: int = 1) -> None:
        """Counts what was removed."""
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count

    def keep(self, sentence: str) -> None:
        """Notes once what stays."""
        if sentence not in self.kept:
            self.kept.append(sentence)


def scrub(source: Path, target: Path, *, force: bool = False) -> Removed:
    """Writes a copy of a bundle, an SQLite export or an ncu CSV at ``target`` without what is private.

    Raises InputError for what cannot be scrubbed (.nsys-rep, .qdstrm, .ncu-rep), with what can.
    """
    _may_write(source, target, force)
    removed = Removed()
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    try:
        made = scratch / target.name
        if os.path.isdir(source):
            made.mkdir()
            _bundle(source, made, removed)
            bundle.put_in_place(made, target.absolute())
        else:
            _file(source, made, removed)
            os.chmod(made, 0o644)
            os.replace(made, target)
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            source,
            expected="a file that can be copied",
            found=getattr(error, "strerror", None) or str(error),
            remedy="see whether the disk is full and the export whole",
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return removed


def as_text(removed: Removed) -> str:
    """What was removed, left out and kept, a line each."""
    lines = [f"removed {count:,} {kind}" for kind, count in removed.counts.items()] or ["nothing to remove"]
    lines += [f"left out {item}" for item in removed.left_out]
    return "\n".join([*lines, *(f"kept: {sentence}" for sentence in removed.kept)])


def as_json(removed: Removed) -> str:
    """The same as JSON."""
    data = {"schema_version": 1, "removed": removed.counts, "left_out": removed.left_out, "kept": removed.kept}
    return json.dumps(data, indent=1)


def _may_write(source: Path, target: Path, force: bool) -> None:
    if os.path.realpath(source) == os.path.realpath(target) or os.path.realpath(target).startswith(
        os.path.realpath(source) + os.sep
    ):
        raise UsageError(f"{target}: is the input, or lies in it", remedy="name another place with -o")
    if os.path.lexists(target) and not force:
        raise UsageError(f"{target}: exists already", remedy="name another place with -o, or overwrite it with --force")
    if os.path.lexists(target) and os.path.isdir(target) and not (target / FILE_NAME).is_file():
        raise UsageError(f"{target}: is a folder and no bundle", remedy="name another place with -o")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target.parent}: no such folder", remedy="make it, or name another place with -o")


def _file(source: Path, target: Path, removed: Removed) -> None:
    _refuse(source)
    with source.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"SQLite format 3\0"):
        _sqlite(source, target, removed)
    elif head.startswith(b"NVR\0") or source.suffix == ".ncu-rep":
        raise _ncu_report(source)
    elif head.lstrip()[:1] in (b"{", b"["):
        data = _read_json(source)
        target.write_text(json.dumps(_json(data, removed), indent=1) + "\n", "utf-8")
    else:
        _csv(source, target, removed)


def _refuse(source: Path) -> None:
    if not source.is_file() or not source.stat().st_size:
        raise InputError(
            source,
            expected="a trace bundle, an nsys .sqlite export or an ncu CSV",
            found="an empty file" if source.is_file() else "no such file or folder",
            remedy="check the path",
        )
    if source.suffix in SUFFIXES:
        raise InputError(
            source,
            expected="a trace bundle, an nsys .sqlite export or an ncu CSV",
            found=f"a report of Nsight Systems ({source.suffix}), which cannot be scrubbed",
            remedy=f"scrub its export: tracekit read {source.name} -o {source.stem}.sqlite && tracekit scrub "
            f"{source.stem}.sqlite -o OUT",
        )


def _ncu_report(source: Path) -> InputError:
    return InputError(
        source,
        expected="a trace bundle, an nsys .sqlite export or an ncu CSV",
        found="an .ncu-rep, which embeds the folder, the command line and source paths and cannot be scrubbed",
        remedy=f"scrub its CSV: ncu --import {source.name} --csv --page raw --print-units base > {source.stem}.ncu.csv",
    )


# Bundles


def _bundle(source: Path, target: Path, removed: Removed) -> None:
    data = _read_json(source / FILE_NAME)
    manifest = Manifest.from_dict(data, source=str(source / FILE_NAME))

    def one(entry: FileEntry | None) -> FileEntry | None:
        if entry is None:
            return None
        made = target / entry.file
        made.parent.mkdir(parents=True, exist_ok=True)
        _file(source / entry.file, made, removed)
        return replace(entry, sha256=bundle.digest(made))

    counters = [replace(entry, sha256=one(entry).sha256) for entry in manifest.counters]  # type: ignore[union-attr]
    kept: tuple[CounterEntry, ...] = tuple(counters)
    clean = replace(
        manifest,
        description=_text(manifest.description, removed) if manifest.description else None,
        conditions=_json(dict(manifest.conditions), removed),
        environment=_json(dict(manifest.environment), removed),
        ran=_json(dict(manifest.ran), removed),
        timeline=one(manifest.timeline), counters=kept, bench=one(manifest.bench), quality=one(manifest.quality),
    )  # fmt: skip
    listed = {FILE_NAME, *(entry.file for entry in bundle.listed(manifest))}
    others = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    removed.left_out += [str(path) for path in others if str(path) not in listed]
    bundle.write_json(target / FILE_NAME, clean.to_dict())


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            path, expected="JSON", found=getattr(error, "strerror", None) or str(error), remedy="check the bundle"
        ) from None


def _json(data: Any, removed: Removed) -> Any:
    """The data with private keys gone, and paths and UUIDs in its texts replaced."""
    if isinstance(data, dict):
        out = {}
        for key, value in data.items():
            if _PRIVATE_KEYS.search(str(key)) and isinstance(value, str | list | dict):
                removed.add("private JSON fields")
            else:
                out[key] = _json(value, removed)
        return out
    if isinstance(data, list):
        return [_json(value, removed) for value in data]
    return _text(data, removed) if isinstance(data, str) else data


def _text(text: str, removed: Removed) -> str:
    if _WHOLE_PATH.match(text):  # Whatever it holds: a folder's name may have spaces.
        removed.add("paths in JSON")
        return _PLACEHOLDER
    text, paths = _PATH.subn(_PLACEHOLDER, text)
    text, uuids = _UUID.subn(lambda found: pseudonym(found[0]), text)
    removed.add("paths in JSON", paths)
    removed.add("UUIDs", uuids)
    return text


def pseudonym(uuid: str) -> str:
    """Another UUID, the same for the same one, so that devices and captures remain distinct and comparable."""
    digits = hashlib.sha256(f"tracekit {uuid.lower().removeprefix('gpu-')}".encode()).hexdigest()
    own = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
    return f"GPU-{own}" if uuid.startswith("GPU-") else own


# Nsight Compute's CSV


def _csv(source: Path, target: Path, removed: Removed) -> None:
    raw = source.read_bytes()
    text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.replace('"', "").startswith("ID,")), None)
    if start is None:
        raise InputError(
            source,
            expected="a trace bundle, an nsys .sqlite export or an ncu CSV",
            found="a file without a row of CSV headings",
            remedy="name one of these",
        )
    removed.add("lines of ncu and its program", sum(1 for line in lines[:start] if line.strip()))
    kept = [line for line in lines[start:] if not line.startswith("==")]
    removed.add("lines of ncu and its program", len(lines) - start - len(kept))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header: list[str] | None = None
    names: dict[str, str] = {}
    for cells in csv.reader(kept):
        if header is None:
            header = cells
            stays = [_MACHINE_COLUMNS.match(name) is None for name in header]
            removed.add("columns about the machine's slots, links and driver", stays.count(False))
        elif len(cells) != len(header):
            removed.add("lines of ncu and its program", bool(cells))
            continue
        else:
            cells = [_cell(name, cell, names, removed) for name, cell in zip(header, cells, strict=True)]
        writer.writerow(itertools.compress(cells, stays))
    target.write_text(out.getvalue(), "utf-8")


def _cell(heading: str, cell: str, names: dict[str, str], removed: Removed) -> str:
    if not cell:
        return cell
    if heading == "Process Name":
        removed.add("process names")
        return names.setdefault(cell, f"process-{len(names) + 1}")
    if heading == "Host Name":
        removed.add("host names")
        return "host"
    if "uuid" in heading.lower():
        removed.add("UUIDs")
        return pseudonym(cell)
    return cell


# Exports of Nsight Systems


def _sqlite(source: Path, target: Path, removed: Removed) -> None:
    shutil.copyfile(source, target)
    database = sqlite3.connect(target, isolation_level=None)
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    try:
        database.execute("PRAGMA journal_mode = MEMORY")
        database.execute("PRAGMA secure_delete = ON")
        columns = _columns(database)
        known = {"StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"}
        if not known & set(columns):
            raise InputError(
                source,
                expected="an export of Nsight Systems",
                found="another SQLite database",
                remedy="name a file made by: nsys export --type sqlite",
            )
        words = _private_words(database, columns)
        database.execute("BEGIN")
        _drop_tables(database, columns, removed)
        _clean_metadata(database, columns, removed)
        _clean_processes(database, columns, removed)
        _clean_nvtx(database, columns, removed)
        _clean_devices(database, columns, removed)
        _clean_strings(database, columns, removed)
        database.execute("COMMIT")
        if target.stat().st_size < SMALL_EXPORT:
            database.execute("PRAGMA page_size = 1024")  # Some 70 tables, most of them empty, take a page each.
        database.execute("VACUUM")
        _note_names(database, columns, words, removed)
    finally:
        database.close()


def _columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    query = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    out: dict[str, list[str]] = {}
    for table, column in database.execute(query):
        out.setdefault(table, []).append(column)
    return out


def _drop_tables(database: sqlite3.Connection, columns: dict[str, list[str]], removed: Removed) -> None:
    for kind, name in list(database.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')")):
        database.execute(f'DROP {kind.upper()} "{name}"')
    for table in list(columns):
        if table.startswith(("CUPTI_ACTIVITY_KIND_", "ENUM_", "sqlite_")) or table in KEPT_TABLES:
            continue
        rows = database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
        database.execute(f'DROP TABLE "{table}"')
        removed.add(f"rows of table {table}", rows)
        del columns[table]


def _clean_metadata(database: sqlite3.Connection, columns: Mapping[str, list[str]], removed: Removed) -> None:
    for table in ("META_DATA_EXPORT", "META_DATA_CAPTURE", "EXPORT_META_DATA"):
        if table in columns:
            for row, name, value in list(database.execute(f"SELECT rowid, name, value FROM {table}")):
                private = _PATH.search(str(value)) or _UUID.search(str(value))
                if private or not KEPT_META.fullmatch(str(name)):
                    database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
                    removed.add(f"rows of table {table}")


def _clean_processes(database: sqlite3.Connection, columns: Mapping[str, list[str]], removed: Removed) -> None:
    if "name" in columns.get("PROCESSES", ()):
        done = database.execute("UPDATE PROCESSES SET name = 'process-' || rowid WHERE name IS NOT NULL")
        removed.add("process names", done.rowcount)


def _clean_nvtx(database: sqlite3.Connection, columns: Mapping[str, list[str]], removed: Removed) -> None:
    if "NVTX_EVENTS" not in columns:
        return
    done = database.execute(f"DELETE FROM NVTX_EVENTS WHERE eventType NOT IN {RANGE_TYPES}")
    removed.add("NVTX marks, categories and thread names", done.rowcount)
    for column in ("jsonText", "jsonTextId", "binaryData"):
        if column in columns["NVTX_EVENTS"]:
            done = database.execute(f"UPDATE NVTX_EVENTS SET {column} = NULL WHERE {column} IS NOT NULL")
            removed.add("NVTX payloads", done.rowcount)


def _clean_devices(database: sqlite3.Connection, columns: Mapping[str, list[str]], removed: Removed) -> None:
    for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"):
        if "uuid" in columns.get(table, ()):
            for (uuid,) in list(database.execute(f"SELECT DISTINCT uuid FROM {table} WHERE uuid IS NOT NULL")):
                if isinstance(uuid, str) and set(uuid) <= set("0-"):
                    continue  # Somebody scrubbed it before: a name of its own would tell apart what is not known.
                own: Any = (
                    hashlib.sha256(uuid).digest()[: len(uuid)] if isinstance(uuid, bytes) else pseudonym(str(uuid))
                )
                done = database.execute(f"UPDATE {table} SET uuid = ? WHERE uuid = ?", (own, uuid))
                removed.add("GPU UUIDs, each replaced by one of its own", done.rowcount)
        if "luid" in columns.get(table, ()):
            database.execute(f"UPDATE {table} SET luid = 0 WHERE luid IS NOT NULL")


def _clean_strings(database: sqlite3.Connection, columns: Mapping[str, list[str]], removed: Removed) -> None:
    if "StringIds" not in columns:
        return
    used = [
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
        for table, own in columns.items()
        for column in own
        if column in NAME_COLUMNS
    ]
    where = f"WHERE id NOT IN ({' UNION '.join(used)})" if used else ""
    done = database.execute(f"DELETE FROM StringIds {where}")
    removed.add("strings that no kernel, call or range is named by", done.rowcount)


def _private_words(database: sqlite3.Connection, columns: Mapping[str, list[str]]) -> set[str]:
    """User, host and folder as the export itself tells them, to look for in the names that stay."""
    words: set[str] = set()
    for table, private in (
        ("TARGET_INFO_SYSTEM_ENV", lambda name: name.upper() in _PRIVATE_NAMES or _PRIVATE_META.search(name)),
        ("META_DATA_CAPTURE", _PRIVATE_META.search),
        ("META_DATA_EXPORT", _PRIVATE_META.search),
    ):
        if {"name", "value"} <= set(columns.get(table, ())):
            words |= _values(database.execute(f"SELECT name, value FROM {table}"), private)
    return {word for word in words if len(word) >= 4}


def _values(rows: Iterable[tuple[Any, Any]], private: Callable[[str], Any]) -> set[str]:
    return {str(value) for name, value in rows if value and private(str(name)) and len(str(value)) < 200}


def _note_names(
    database: sqlite3.Connection, columns: Mapping[str, list[str]], words: set[str], removed: Removed
) -> None:
    """Names that regions and kernels are told apart by stay; where one looks private, the user must know."""
    texts: set[str] = set()
    if "StringIds" in columns:
        texts |= {str(value) for (value,) in database.execute("SELECT value FROM StringIds")}
    if "text" in columns.get("NVTX_EVENTS", ()):
        texts |= {str(v) for (v,) in database.execute("SELECT DISTINCT text FROM NVTX_EVENTS WHERE text IS NOT NULL")}
    for text in sorted(texts):
        if _PATH.search(text) or _UUID.search(text) or any(word in text for word in words):
            removed.keep(f"the name {text[:200]!r} looks private, but figures are told apart by it: rename the range")
