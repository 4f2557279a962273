"""Opens a trace: tells the format of a path, reads it, and puts the files of a bundle together."""

from __future__ import annotations

import hashlib
import json
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


def read_trace(path: Path) -> Trace:
    """The trace at ``path``, of any format that :func:`~tracekit.read.identify.identify` knows."""
    match identify(path):
        case Format.BUNDLE:
            return _read_bundle(path)
        case Format.NSYS_SQLITE:
            from tracekit.read.nsys_sqlite import read_nsys_sqlite

            return read_nsys_sqlite(path)
        case _:
            trace = Trace(source=str(path), tool="ncu")
            add_counters(trace, str(path))
            return trace


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
    if frame["kind"].isna().any():
        trace.note(
            f"{path.name} does not record the cache state that its DRAM bytes were counted in. Tell it: --counters "
            f"cold={path.name} (kernel replay with flushed caches, which is ncu's default) or "
            f"replay_warm={path.name} (--cache-control none)."
        )


def _read_bundle(folder: Path) -> Trace:
    source = str(folder / manifests.FILE_NAME)
    manifest = Manifest.from_dict(_json(folder / manifests.FILE_NAME), source=source)
    if manifest.timeline is None and not manifest.counters:
        raise InputError(
            source,
            expected="a timeline or counters",
            found="neither",
            remedy="capture the bundle again, or name a report file instead",
        )
    if manifest.timeline is not None:
        trace = read_trace(_file(folder, manifest.timeline, source))
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
    if manifest.bench is not None:
        bench = _file(folder, manifest.bench, source)
        trace.loaders = {**trace.loaders, "bench": lambda: read_bench(bench)}
    return trace


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
    """Table bench from a bundle's ``bench.json``: samples with process, variant, protocol and latency in us."""
    data = _json(path)
    samples = data.get("samples") if isinstance(data, dict) else None
    if not isinstance(samples, list) or data.get("unit") != "us":
        raise InputError(
            path,
            expected='an object with "unit": "us" and a list "samples"',
            found=type(data).__name__ if not isinstance(data, dict) else f"keys {', '.join(sorted(data))}",
            remedy="bench again, or correct the file",
        )
    rows = []
    for number, sample in enumerate(samples):
        try:
            rows.append((
                number, str(sample["variant"]), int(sample["process"]), str(sample["protocol"]),
                float(sample["latency_us"]) * 1000.0,
            ))  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                path,
                expected="variant, process, protocol and latency_us in every sample",
                found=f"{error!r} in sample {number}",
                remedy="bench again, or correct the file",
            ) from None
    columns = list(zip(*rows, strict=True)) or [()] * len(tables.BENCH.names)
    return tables.BENCH.conform(
        {name: list(values) for name, values in zip(tables.BENCH.names, columns, strict=True)}, source=str(path)
    )


def _json(path: Path) -> Any:
    read_head(path)
    try:
        return json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(
            path, expected="JSON", found=str(error), remedy="correct the file, or capture the bundle again"
        ) from None
