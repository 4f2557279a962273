"""Finishes a capture that lacks its export: imports the stream, exports the report, compares it with what ran."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from tracekit.capture import bundle, nsys, verify
from tracekit.capture.bundle import Draft
from tracekit.capture.tools import Search, Tool
from tracekit.capture.verify import Level
from tracekit.errors import CaptureError, InputError, UsageError
from tracekit.model.manifest import FILE_NAME, FileEntry, Manifest

SUFFIXES: Final = (nsys.STREAM_SUFFIX, *nsys.REPORT_SUFFIXES)
"""What is a report of Nsight Systems and no export yet."""


def unfinished(path: Path) -> Path | None:
    """The report at ``path``, or the one that is the timeline of a bundle; None where there is nothing to finish."""
    if os.path.isdir(path):
        manifest = bundle.read_manifest(path)
        if manifest is None or manifest.timeline is None or not manifest.timeline.file.endswith(SUFFIXES):
            return None
        return path / manifest.timeline.file
    if path.suffix not in SUFFIXES or not os.path.isfile(path):
        return None
    try:
        with path.open("rb") as file:
            return None if file.read(16).startswith(b"SQLite format 3") else path
    except OSError:
        return None  # its reader says what is wrong with it


def cached_export(report: Path, *, written_by: str | None = None, search: Search | None = None) -> Path:
    """The SQLite export of a report, from the user's cache, where it is kept by the report's content.

    An .sqlite beside a report may belong to another run; the cache's cannot. Raises InputError where the report is
    empty, or where the tools that finish it are not on this machine, with the version that is needed.
    """
    _refuse_unusable(report)
    search = search or Search.here()
    folder = cache_folder()
    target = folder / f"{bundle.digest(report)}.sqlite"
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".finishing-", dir=folder) as scratch:
            try:
                export, _ = _exported(report, Path(scratch), search, written_by)
            except CaptureError as error:
                found = str(error).removesuffix(f"\n  remedy: {error.remedy}")
                raise InputError(
                    report,
                    expected="a report that Nsight Systems can export",
                    found=found.removeprefix(f"{report}: ").removeprefix(f"{report.absolute()}: "),
                    remedy=error.remedy,
                ) from None
            os.replace(export, target)
    except OSError as error:
        raise InputError(
            folder,
            expected="a cache folder that can be written",
            found=(error.strerror or str(error)).lower(),
            remedy="set XDG_CACHE_HOME to one, or finish the capture in its place: tracekit read TRACE",
        ) from None
    return target


def cache_folder() -> Path:
    """``tracekit`` in $XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def tool_version(path: Path) -> str | None:
    """The version of Nsight Systems that a bundle's manifest says its timeline was captured with."""
    manifest = bundle.read_manifest(path) if os.path.isdir(path) else None
    return _version(manifest) if manifest else None


def finish(path: Path, output: Path | None, *, force: bool = False, search: Search | None = None) -> list[str]:
    """Finishes a bundle in its place, or writes the export of a bare report; what was done, a line each."""
    search = search or Search.here()
    report = unfinished(path)
    if report is None:
        if os.path.isdir(path) and bundle.read_manifest(path) is not None:
            return [f"{path}: nothing to do, its timeline is an export already"]
        raise InputError(
            path,
            expected=f"a bundle folder, or a report ({', '.join(SUFFIXES)})",
            found="no such file or folder" if not os.path.lexists(path) else "something else",
            remedy=f"name the folder with the {FILE_NAME}, or the report that nsys left",
        )
    _refuse_unusable(report)
    if report == path:
        return [_finish_file(path, output or path.with_suffix(".sqlite"), force, search)]
    if output is not None:
        raise UsageError("a bundle is finished in its place", remedy="leave -o out, or name the report inside")
    return _finish_bundle(path, report, search)


def _finish_file(report: Path, target: Path, force: bool, search: Search) -> str:
    if os.path.lexists(target) and not force:
        raise UsageError(f"{target}: exists already", remedy="name another file with -o, or overwrite it with --force")
    try:
        with tempfile.TemporaryDirectory(prefix=".finishing-", dir=target.absolute().parent) as scratch:
            export, tool = _exported(report, Path(scratch), search, None)
            os.replace(export, target)
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror}", remedy="name a file that can be written with -o") from None
    return f"{target}: exported by nsys {tool.version}"


def _finish_bundle(folder: Path, report: Path, search: Search) -> list[str]:
    manifest = bundle.read_manifest(folder)
    assert manifest is not None
    assert manifest.timeline is not None
    if manifest.timeline.sha256 and bundle.digest(report) != manifest.timeline.sha256:
        raise InputError(
            report,
            expected=f"SHA-256 {manifest.timeline.sha256[:12]}..., as the manifest records it",
            found="another one",
            remedy="copy the bundle again",
        )
    draft = Draft(folder)
    try:
        for entry in (*manifest.counters, manifest.bench, manifest.quality):
            if entry is not None:
                (draft.folder / entry.file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / entry.file, draft.folder / entry.file)
        scratch = draft.folder / "scratch"
        scratch.mkdir()
        export, tool = _exported(report, scratch, search, _version(manifest))
        os.replace(export, draft.folder / "timeline.sqlite")
        counts = verify.counts(draft.folder / "timeline.sqlite")
        findings = verify.compare(
            counts,
            manifest.ran,
            trace=_traced(manifest),
            nsys_version=_version(manifest),
            nvtx_version=manifest.environment.get("nvtx"),
            graph_trace=manifest.environment.get("graph_trace"),
        )
        if failed := [finding for finding in findings if finding.level is Level.FAIL]:
            raise CaptureError(
                f"{folder}: the report does not hold what ran: " + "; ".join(map(str, failed)),
                remedy=verify.remedies(failed),
            )
        finished = replace(manifest, timeline=FileEntry("timeline.sqlite", tool=manifest.timeline.tool))
        draft.finish(finished)
    except BaseException:
        draft.discard()
        raise
    done = f"{folder}: imported and exported by Nsight Systems {tool.version}"
    return [done, *(f"  {finding.level}: {finding}" for finding in findings)]


def _exported(report: Path, scratch: Path, search: Search, written_by: str | None) -> tuple[Path, Tool]:
    """The export of a stream or report, made in the scratch folder, and the nsys that made it."""
    if report.suffix == nsys.STREAM_SUFFIX:
        report = nsys.import_stream(report, scratch, search, written_by=written_by)
    tool = nsys.exporter(report, search)
    return nsys.export(report.absolute(), scratch.absolute() / "export.sqlite", tool), tool


def _refuse_unusable(report: Path) -> None:
    size = report.stat().st_size if report.is_file() else None
    if not size:
        raise InputError(
            report,
            expected="a report of Nsight Systems",
            found="no such file" if size is None else "an empty file",
            remedy="capture again; the tool that wrote it failed" if size == 0 else "copy the whole bundle",
        )
    with report.open("rb") as file:
        head = file.read(40)
    if head.startswith(b"version https://git-lfs"):
        raise InputError(
            report,
            expected="a report of Nsight Systems",
            found="a Git LFS pointer, not the file itself",
            remedy="fetch the file: git lfs pull",
        )


def _version(manifest: Manifest) -> str | None:
    told = manifest.environment.get("nsys")
    if isinstance(told, str):
        return told
    tool = manifest.timeline.tool if manifest.timeline else None
    return tool.rpartition(" ")[2] if tool else None


def _traced(manifest: Manifest) -> tuple[str, ...]:
    capture = manifest.ran.get("capture")
    trace = capture.get("trace") if isinstance(capture, dict) else None
    return tuple(trace) if isinstance(trace, list) else ("cuda", "nvtx")
