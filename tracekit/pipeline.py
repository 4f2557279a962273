"""Composes the rooms: open a trace, analyze it, compare two. The only module that knows them all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from os.path import isfile
from pathlib import Path

from tracekit.analyze import analyze
from tracekit.analyze import idle_report as idle_report
from tracekit.capture import finish
from tracekit.compare import compare
from tracekit.compare import findings as findings
from tracekit.compare import main_region as main_region
from tracekit.errors import InputError
from tracekit.model import manifest
from tracekit.model.report import Comparison, Report
from tracekit.model.trace import Trace
from tracekit.read import add_counters, read_trace

_SLOW_TABLES = ("kernels", "calls", "ranges")
_BARE_FILES = {".sqlite", ".ncu-rep", ".csv", *finish.SUFFIXES}


def open_trace(path: str | PathLike[str], *, counters: Sequence[str | PathLike[str]] = ()) -> Trace:
    """The trace at ``path``: a bundle folder, an nsys ``.sqlite``, an ``.ncu-rep`` or an ncu CSV.

    A ``.qdstrm`` or ``.nsys-rep``, bare or a bundle's timeline, is finished first by this machine's Nsight Systems, and
    its export kept in the user's cache.
    ``counters`` adds Nsight Compute files to it; ``cold=FILE``, ``replay_warm=FILE`` or ``in_model=FILE`` tells the
    cache state that a CSV does not record. Raises InputError for a file that cannot be used.
    """
    trace = read_trace(Path(path), timeline=_finished(Path(path)))
    for item in counters:
        add_counters(trace, str(item))
    return trace


def report(trace: Trace | str | PathLike[str], *, counters: Sequence[str | PathLike[str]] = ()) -> Report:
    """The report of a trace: every region's metrics, with coverage and notes. Times in ns, sizes in bytes."""
    if not isinstance(trace, Trace):
        trace = open_trace(trace, counters=counters)
    if trace.has_timeline:
        with ThreadPoolExecutor(len(_SLOW_TABLES)) as pool:
            list(pool.map(trace.table, _SLOW_TABLES))
    return analyze(trace)


def diff(
    base: Report | Trace | str | PathLike[str],
    test: Report | Trace | str | PathLike[str],
    *,
    rename: Sequence[tuple[str, str]] = (),
    waive: Sequence[str] = (),
) -> Comparison:
    """``test`` against ``base``: regions paired by path, kernels many to many, every metric's delta and ratio.

    ``rename`` maps labels of the base to labels of the test. ``waive`` names conditions that may differ. Raises
    NotComparableError where another condition differs.
    """
    reports = [side if isinstance(side, Report) else report(side) for side in (base, test)]
    return compare(reports[0], reports[1], rename=rename, waive=waive)


def _finished(path: Path) -> Path | None:
    """The export of a report that is none yet; None where nothing is to be finished."""
    report = finish.unfinished(path)
    return None if report is None else finish.cached_export(report, written_by=finish.tool_version(path))


def samples_directory() -> Path:
    """The bundled sample traces: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    places = (package / "sample_traces", package.parent / "sample_traces")
    for place in places:
        if place.is_dir():
            return place
    raise InputError(
        places[0],
        expected="the bundled sample traces",
        found="no such folder",
        remedy="install tracekit again, or name a folder of traces",
    )


def list_traces(directory: str | PathLike[str]) -> dict[str, Path]:
    """The traces in a folder by name: bundles and bare report files, and the folder itself where it is a bundle.

    Lists by name alone; a file that cannot be used says so when it is opened. Raises InputError for what is no folder.
    """
    folder = Path(directory)
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            folder,
            expected="a folder of traces",
            found=(error.strerror or str(error)).lower(),
            remedy="name a folder that holds trace bundles or report files",
        ) from None
    own = {folder.resolve().name: folder} if _is_bundle(folder) else {}
    return own | {
        entry.name: entry for entry in entries if _is_bundle(entry) or (entry.suffix in _BARE_FILES and isfile(entry))
    }


def _is_bundle(folder: Path) -> bool:
    """Whether a manifest can be seen there; os.path, since pathlib raises for a folder that one may not enter."""
    return isfile(folder / manifest.FILE_NAME)
