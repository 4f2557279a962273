"""Opens a trace: tells the format of a path, reads it, and puts the files of a bundle together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tracekit.errors import InputError, UsageError
from tracekit.model import manifest as manifests
from tracekit.model import tables
from tracekit.model.manifest import FileEntry, Manifest
from tracekit.model.tables import DRAM_KINDS
from tracekit.model.trace import Trace
from tracekit.read.identify import Format, identify, read_head

_HASHED_UP_TO = 64 * 2**20
"""Larger files are not hashed at every reading: it would take longer than reading them."""


def read_trace(path: Path, *, timeline: Path | None = None) -> Trace:
    """The trace at ``path``, of any format that :func:`~tracekit.read.identify.identify` knows.

    ``timeline`` stands in for a report that no reader can use: the export made of a bundle's .qdstrm or .nsys-rep, or
    of a bare one at ``path``.
    """
    if timeline is not None and not path.is_dir():
        trace = read_trace(timeline)
        trace.source = str(path)
        return _told(trace, [{"file": str(path), "tool": "nsys", "tool_version": trace.tool_version}])
    match identify(path):
        case Format.BUNDLE:
            return _read_bundle(path, timeline)
        case Format.NSYS_SQLITE:
            from tracekit.read.nsys_sqlite import read_nsys_sqlite

            trace = read_nsys_sqlite(path)
            return _told(trace, [{"file": str(path), "tool": "nsys", "tool_version": trace.tool_version}])
        case _:
            trace = Trace(source=str(path), tool="ncu")
            add_counters(trace, str(path))
            return _told(trace, [{"file": str(path), "tool": "ncu"}])


def add_counters(trace: Trace, item: str) -> None:
    """Adds an Nsight Compute file to a trace; ``KIND=FILE`` tells the cache state that the file does not record."""
    kind, _, file = item.partition("=")
    if file and kind in DRAM_KINDS:
        _add(trace, Path(file), kind)
    else:
        _add(trace, Path(item), None)


def _add(trace: Trace, path: Path, kind: str | None) -> None:
    match identify(path):
        case Format.NCU_REP:
            from tracekit.read.ncu_rep import read_ncu_rep

            frame = read_ncu_rep(path, kind=kind)
        case Format.NCU_CSV:
            from tracekit.read.ncu_csv import read_ncu_csv

            frame = read_ncu_csv(path, kind=kind)
        case other:
            raise UsageError(
                f"{path}: counters come from an .ncu-rep or an ncu CSV, and this is an {other}",
                remedy="name the timeline as TRACE and the Nsight Compute file with --counters",
            )
    frame.attrs["source"] = str(path)
    trace.counters.append(frame)
    for note in frame.attrs.get("notes", ()):
        trace.note(f"{path.name}: {note}")
    if frame["kind"].isna().any() and frame[["dram_read_bytes", "dram_write_bytes"]].notna().any(axis=None):
        trace.note(
            f"{path.name} does not record the cache state that its DRAM bytes were counted in. Tell it: --counters "
            f"cold={path.name} (kernel replay with flushed caches, which is ncu's default) or "
            f"replay_warm={path.name} (--cache-control none)."
        )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle, without its files."""
    file = folder / manifests.FILE_NAME
    return Manifest.from_dict(_json(file), source=str(file))


def _read_bundle(folder: Path, timeline: Path | None) -> Trace:
    source = str(folder / manifests.FILE_NAME)
    manifest = read_manifest(folder)
    if manifest.timeline is None and not manifest.counters:
        raise InputError(
            source,
            expected="a timeline or counters",
            found="neither",
            remedy="capture the bundle again, or name a report file instead",
        )
    if manifest.timeline is not None:
        recorded = _file(folder, manifest.timeline, source)
        trace = read_trace(timeline or recorded)
        if not trace.has_timeline:
            raise InputError(
                folder / manifest.timeline.file,
                expected="an Nsight Systems SQLite export as the bundle's timeline",
                found="an Nsight Compute file",
                remedy="correct the manifest",
            )
    else:
        trace = Trace(source=str(folder), tool="ncu")
    trace.source = str(folder)
    trace.manifest = manifest
    for entry in manifest.counters:
        _add(trace, _file(folder, entry, source), entry.kind)
    for name, file, read in (("bench", manifest.bench, read_bench), ("quality", manifest.quality, read_quality)):
        if file is not None:
            trace.loaders = {**trace.loaders, name: partial(read, _file(folder, file, source))}
    return _told(trace, _files(folder, manifest, trace.tool_version))


def _told(trace: Trace, rows: list[dict[str, str | None]]) -> Trace:
    """The trace with its table captures."""
    data = {name: [row.get(name) for row in rows] for name in tables.CAPTURES.names}
    trace.loaders = {**trace.loaders, "captures": lambda: tables.CAPTURES.conform(data, source=trace.source)}
    return trace


def _files(folder: Path, manifest: Manifest, tool_version: str | None) -> list[dict[str, str | None]]:
    """Rows of table captures: the timeline and every counters file."""
    same = {"capture_id": manifest.capture_id, "workload": manifest.workload, "variant": manifest.variant}
    rows: list[dict[str, str | None]] = []
    if manifest.timeline is not None:
        timeline = manifest.timeline
        rows.append(same | {"file": str(folder / timeline.file), "tool": "nsys", "sha256": timeline.sha256})
        rows[-1]["tool_version"] = tool_version
    for entry in manifest.counters:
        how = {"replay_mode": entry.replay_mode, "cache_control": entry.cache_control}
        how |= {"clock_control": entry.clock_control, "tool_version": entry.tool, "sha256": entry.sha256}
        rows.append(same | how | {"file": str(folder / entry.file), "tool": "ncu"})
    return rows


def _file(folder: Path, entry: FileEntry, source: str) -> Path:
    """The path of a bundle's file, checked against its recorded hash."""
    path = folder / entry.file
    read_head(path)
    if entry.sha256 and path.stat().st_size <= _HASHED_UP_TO:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != entry.sha256.lower():
            raise InputError(
                path,
                expected=f"SHA-256 {entry.sha256[:12]}..., as {source} records it",
                found=f"SHA-256 {found[:12]}...",
                remedy="the file changed since the capture; restore it, capture again, or correct the manifest",
            )
    return path


def read_bench(path: Path) -> pd.DataFrame:
    """Table bench from a bundle's ``bench.json``: samples with process, variant, protocol and latency in us.

    What else a sample tells (phase, shape, block, order, clock, power, temperature) is NA where it is not recorded.
    """
    samples = _objects(path, "samples", ("variant", "process", "protocol", "latency_us"), unit="us")
    run = _json(path).get("run")
    if run is not None and not isinstance(run, str):
        raise InputError(
            path, expected="a text as run", found=repr(run), remedy="run the workload again, or correct the file"
        )
    for number, sample in enumerate(samples):
        latency = sample["latency_us"]
        if isinstance(latency, bool) or not isinstance(latency, int | float) or not 0 < latency < 1e15:
            raise InputError(
                path,
                expected="a latency_us above 0 in every member of samples",
                found=f"{latency!r} in number {number}",
                remedy="run the workload again, or correct the file",
            )
    data = {name: [sample[name] for sample in samples] for name in ("variant", "process", "protocol")}
    latency = [sample["latency_us"] * 1000.0 for sample in samples]
    more = {column.name for column in tables.BENCH if column.nullable} - {"latency_ns"}
    data |= {name: [sample.get(name) for sample in samples] for name in more}
    data["run"] = [run] * len(samples)
    numbers = list(range(len(samples)))
    return tables.BENCH.conform(data | {"sample": numbers, "latency_ns": latency}, source=str(path))


def read_quality(path: Path) -> pd.DataFrame:
    """Table quality from a bundle's ``quality.json``: checks with reference, error, tolerance and passed."""
    checks = _objects(path, "checks", tables.QUALITY.names)
    data = {name: [check[name] for check in checks] for name in tables.QUALITY.names}
    return tables.QUALITY.conform(data, source=str(path))


def _objects(path: Path, name: str, fields: Sequence[str], unit: str | None = None) -> list[dict[str, Any]]:
    """The list ``name`` of a JSON file, whose members must have the given fields; and the file's unit, if any."""
    data = _json(path)
    members = data.get(name) if isinstance(data, dict) else None
    if not isinstance(members, list) or (unit and data.get("unit") != unit):
        raise InputError(
            path,
            expected=f'an object with a list "{name}"' + (f' and "unit": "{unit}"' if unit else ""),
            found=f"an object with {', '.join(sorted(data))}" if isinstance(data, dict) else type(data).__name__,
            remedy="run the workload again, or correct the file",
        )
    for number, member in enumerate(members):
        missing = [field for field in fields if not isinstance(member, dict) or field not in member]
        if missing:
            raise InputError(
                path,
                expected=f"{', '.join(fields)} in every member of {name}",
                found=f"no {', '.join(missing)} in number {number}",
                remedy="run the workload again, or correct the file",
            )
    return members


def _json(path: Path) -> Any:
    """A JSON file, strictly: NaN and Infinity are no JSON."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"the value {constant}, which JSON does not have")

    read_head(path)
    try:
        return json.loads(path.read_bytes(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(
            path, expected="JSON", found=str(error), remedy="correct the file, or capture the bundle again"
        ) from None
