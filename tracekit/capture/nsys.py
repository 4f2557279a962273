"""Captures with Nsight Systems, imports what it leaves, exports it to SQLite, and says what went wrong."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracekit.capture import command, process, tools
from tracekit.capture.process import Ended
from tracekit.capture.tools import Search, Tool
from tracekit.errors import CaptureError, InputError

IMPORT_LIMIT_S: Final = 600.0
STREAM_SUFFIX: Final = ".qdstrm"
REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep")
NOT_ENOUGH_SPACE: Final = ("no space left", "disk quota", "not enough space", "disk full", "disk is full")
_GENERATING: Final = re.compile(r"Generating '([^'\n]+\.qdstrm)'")
_DROPPED: Final = "errors occurred while processing the raw events"
_UNKNOWN_CALL: Final = re.compile(r"unknown (runtime|driver) api function index", re.IGNORECASE)


@dataclass(frozen=True)
class Captured:
    """What a capture left: a report, or the stream that an importer of the same version makes one of."""

    report: Path | None
    stream: Path | None
    ended: Ended


def capture(
    nsys: Tool,
    folder: Path,
    child: Sequence[str],
    *,
    limit_s: float,
    environment: Mapping[str, str],
    trace: Sequence[str] = ("cuda", "nvtx"),
    window: command.Window = command.Window.NONE,
    graphs: command.Graphs | None = None,
) -> Captured:
    """Runs a program under nsys; its report or stream lies in ``folder``. Raises CaptureError with nsys's own lines."""
    report = folder / "report.nsys-rep"
    argv = command.nsys_profile(nsys.path, report, child, trace=trace, window=window, graphs=graphs)
    ended = process.run(argv, limit_s=limit_s, environment=environment)
    elsewhere = [Path(found) for found in _GENERATING.findall(ended.output)]  # its stream lies in $TMPDIR first
    try:
        return _left(folder, elsewhere, ended, window)
    finally:
        for path in elsewhere:
            path.unlink(missing_ok=True)


def _left(folder: Path, elsewhere: Sequence[Path], ended: Ended, window: command.Window) -> Captured:
    """What lies there after a run, or the error that its ending is."""
    report = folder / "report.nsys-rep"
    streams = sorted((*folder.glob("*.qdstrm"), *elsewhere), key=_size)
    whole = next((path for path in (report, report.with_suffix(".qdrep")) if path.is_file() and _size(path)), None)
    if ended.timed_out:
        raise CaptureError(
            f"nsys {ended.how}; it and all that it started were ended",
            remedy="raise --limit, or run fewer --iterations; a program that never returns cannot be captured",
            quoted=ended.quoted(3),
        )
    if full := _no_space(ended):
        raise full
    if ended.code < 0 or ended.code == 127:
        raise CaptureError(f"nsys {ended.how}", remedy="see its lines above", quoted=ended.quoted())
    if whole is None and streams and _size(streams[-1]):
        kept = folder / "report.qdstrm"
        shutil.move(streams[-1], kept)
        return Captured(None, kept, ended)
    if whole is None:
        raise CaptureError(
            f"nsys {ended.how} and left no report",
            remedy="a program that never calls cudaProfilerStart leaves none in its window: capture with --window none"
            if window is command.Window.PROFILER_API
            else "see its lines above; does the program run without nsys?",
            quoted=ended.quoted(),
        )
    if ended.code != 0:  # nsys passes its program's exit code on, with a report of it
        raise CaptureError(
            f"nsys {ended.how}, which is also how a failing program ends under it",
            remedy="run the program without nsys first; it must end with exit code 0",
            quoted=ended.quoted(),
        )
    return Captured(whole, None, ended)


def import_stream(stream: Path, folder: Path, search: Search, *, written_by: str | None = None) -> Path:
    """The report that the matching importer makes of a .qdstrm, in ``folder``.

    Raises InputError where none of that version is here: one of another version writes a report without CUDA rows.
    """
    version = tools.written_by(stream) or written_by
    importers = search.importers()
    matching = [tool for tool in importers if tools.same_version(tool.version, version)]
    if not matching:
        have = ", ".join(sorted({tool.version or "of unknown version" for tool in importers}))
        raise InputError(
            stream,
            expected=f"a QdstrmImporter of Nsight Systems {version or 'as old as the capture'} on this machine",
            found=f"importers {have}, and another version's would drop CUDA rows" if have else "none",
            remedy=f"install Nsight Systems {version or 'of that version'} (set NSYS_HOME if it is not on PATH), or "
            "finish the capture where it is: tracekit read TRACE",
        )
    local = folder / "report.qdstrm"
    if stream != local:
        _linked(stream, local)
    ended = process.run(command.nsys_import(matching[0].path, local), limit_s=IMPORT_LIMIT_S)
    if stream != local:
        local.unlink()
    made = next((path for suffix in REPORT_SUFFIXES if (path := local.with_suffix(suffix)).is_file()), None)
    if full := _no_space(ended):
        raise full
    if ended.timed_out or ended.code or made is None or _DROPPED in ended.output.lower():
        what = "processed the events with errors" if made and not ended.code and not ended.timed_out else ended.how
        if _UNKNOWN_CALL.search(ended.output):
            raise CaptureError(
                f"{stream}: QdstrmImporter {matching[0].version} met a call of a CUDA that is newer than itself, "
                "and drops every event after it",
                remedy="capture with a newer Nsight Systems, or keep that call out of the window: without "
                "--with-construction, or with --window profiler-api around the steps alone",
                quoted=[line for line in ended.lines if _UNKNOWN_CALL.search(line)][:1] or ended.quoted(),
            )
        raise CaptureError(
            f"{stream}: QdstrmImporter {matching[0].version} {what}",
            remedy="capture again with this version of nsys",
            quoted=ended.quoted(),
        )
    return made


def export(report: Path, target: Path, nsys: Tool) -> Path:
    """Exports a report to SQLite at ``target``; raises CaptureError with nsys's own lines."""
    argv = command.nsys_export(nsys.path, report, target)
    ended = process.run(argv, limit_s=IMPORT_LIMIT_S, environment=_quiet())
    if full := _no_space(ended):
        raise full
    if ended.timed_out or ended.code or not target.is_file() or not _size(target):
        writer = tools.written_by(report)
        newer = tools.number(writer) > tools.number(nsys.version)
        raise CaptureError(
            f"{report}: nsys {nsys.version or ''} export {ended.how} and left "
            + ("no export" if not target.is_file() else "an export that cannot be trusted"),
            remedy=f"the report is of Nsight Systems {writer}, which an older one refuses: install that or a newer one"
            if newer
            else "see its lines above, or capture again",
            quoted=ended.quoted(),
        )
    return target


def exporter(report: Path, search: Search) -> Tool:
    """An nsys that can export this report: not older than the one that wrote it. Raises InputError where none is."""
    writer = tools.written_by(report)
    found = search.every_nsys()
    for tool in found:
        if tools.number(tool.version) >= tools.number(writer):
            return tool
    have = ", ".join(tool.version or "of unknown version" for tool in found)
    raise InputError(
        report,
        expected=f"Nsight Systems {writer or 'of any recent version'}"
        f"{' or newer' if writer else ''} on this machine, to export the report",
        found=f"nsys {have}" if have else "no nsys",
        remedy="install it (set NSYS_HOME if it is not on PATH), or export the report where it is: "
        f"nsys export --type sqlite --lazy=false -o {report.stem}.sqlite {report.name}",
    )


def _quiet() -> dict[str, str]:
    """The environment with a fixed locale, so that messages are the known ones."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _no_space(ended: Ended) -> CaptureError | None:
    if any(words in ended.output.lower() for words in NOT_ENOUGH_SPACE):
        return CaptureError(
            f"{Path(ended.command[0]).name} found no space left on the disk",
            remedy="free space where -o points to, or run fewer --iterations",
            quoted=ended.quoted(),
        )
    return None


def _linked(source: Path, target: Path) -> None:
    """The file under another name: a link where both are on one file system, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
