"""Opens the traces of the served folder and those a reader uploads, and keeps what the pipeline makes of them."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import streamlit as st

from tracekit import pipeline
from tracekit.errors import InputError, TracekitError
from tracekit.model.report import Comparison, Matrix, Report
from tracekit.model.timeline import Source

ACCEPTED: Final = (".sqlite", ".ncu-rep", ".csv")
"""The files that a reader may upload: those that are read as they are, by no other program."""

UPLOADED: Final = "uploaded: "
"""Stands before the name of an uploaded file, so that it is never taken for one of the folder."""

# Name, time of change and size of every file of a trace: what a cached report is valid for.
Stamp = tuple[tuple[str, int, int], ...]


def listed(folder: Path) -> dict[str, Path]:
    """The folder's traces by name, then this session's uploads. Raises InputError for what is no folder."""
    return pipeline.list_traces(folder) | uploads()


def uploads() -> dict[str, Path]:
    """This session's uploaded files by name."""
    found: dict[str, Path] = st.session_state.setdefault("uploads", {})
    return found


def take(files: Sequence[Any]) -> None:
    """Keeps uploaded files in a folder of this session alone, which goes with it; refuses those of other kinds."""
    st.session_state["upload_refused"] = [
        InputError(
            file.name,
            expected=f"a name that ends in {', '.join(ACCEPTED)}",
            found="another kind of file",
            remedy="export a report of Nsight Systems: nsys export --type sqlite FILE",
        )
        for file in files
        if Path(file.name).suffix.lower() not in ACCEPTED
    ]
    files = [file for file in files if Path(file.name).suffix.lower() in ACCEPTED]
    if "upload_folder" not in st.session_state:
        st.session_state["upload_folder"] = tempfile.TemporaryDirectory(prefix="tracekit-upload-")
    folder = Path(st.session_state["upload_folder"].name)
    known = uploads()
    for file in files:
        name = re.sub(r"[^\w.+-]", "_", Path(file.name).name)[-100:] or "file"
        place = Path(tempfile.mkdtemp(dir=folder))
        (place / name).write_bytes(file.getbuffer())
        known[f"{UPLOADED}{name}"] = place / name


def report(path: Path) -> Report:
    """The report of a trace as its files are now; raises InputError for one that cannot be used."""
    return _report(str(path), _stamp(path))


def comparison(base: Path, test: Path, waive: Sequence[str]) -> Comparison:
    """Two traces compared; raises NotComparableError where conditions differ that are not waived."""
    return _comparison(str(base), _stamp(base), str(test), _stamp(test), tuple(waive))


def matrix(folder: Path) -> Matrix:
    """Every variant of the folder against its baseline; raises InputError where it holds no such bundles."""
    stamps = tuple(_stamp(path) for path in pipeline.list_traces(folder).values())
    return _matrix(str(folder), stamps)


def warm(folder: Path, usual: Callable[[Mapping[str, Path]], Mapping[str, str]]) -> None:
    """Reads the pair that the page opens with, so that it is there when the page asks."""
    logging.getLogger("streamlit").setLevel(logging.ERROR)  # There is no page yet, which is as it should be.
    with suppress(TracekitError):
        known = pipeline.list_traces(folder)
        pair = usual(known)
        if known:
            comparison(known[pair["base"]], known[pair["test"]], ())


def problems() -> list[TracekitError]:
    """The errors of the uploads that cannot be used, and of those that were refused last."""
    found: list[TracekitError] = list(st.session_state.get("upload_refused", ()))
    for path in uploads().values():
        try:
            report(path)
        except TracekitError as error:
            found.append(error)
    return found


@st.cache_resource(max_entries=16, show_spinner="Reading the capture")
def _report(path: str, stamp: Stamp) -> Report:
    """A resource, since a report is immutable and shared, and large."""
    return pipeline.report(path)


@st.cache_resource(max_entries=32, show_spinner=False)
def _comparison(base: str, base_stamp: Stamp, test: str, test_stamp: Stamp, waive: tuple[str, ...]) -> Comparison:
    return pipeline.diff(_report(base, base_stamp), _report(test, test_stamp), waive=waive)


@st.cache_resource(max_entries=4, show_spinner="Comparing every variant of the folder")
def _matrix(folder: str, stamps: tuple[Stamp, ...]) -> Matrix:
    return pipeline.diff_matrix(folder)


def timelines(found: Comparison, base: Path, test: Path) -> dict[str, Source | None]:
    """The timelines of both sides of a comparison, indexed; None for a capture without one."""
    reports = {"base": (found.base, base), "test": (found.test, test)}
    # Steps that were found without ranges are of the pair; everything else is of a capture alone.
    pair = () if found.matching == "ranges" else (str(base), _stamp(base), str(test), _stamp(test))
    return {side: _timeline(str(path), _stamp(path), pair, report) for side, (report, path) in reports.items()}


@st.cache_resource(max_entries=16, show_spinner=False)
def _timeline(path: str, stamp: Stamp, pair: tuple[object, ...], _report: Report) -> Source | None:
    return pipeline.timeline(_report)


def _stamp(path: Path) -> Stamp:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    try:
        stats = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
