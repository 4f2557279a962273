"""Tells what kind of file a path is by its first bytes, and refuses what no reader can use."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path

from tracekit.errors import InputError
from tracekit.model import manifest


class Format(StrEnum):
    """The inputs that tracekit reads."""

    BUNDLE = "trace bundle"
    NSYS_SQLITE = "Nsight Systems SQLite export"
    NCU_REP = "Nsight Compute report"
    NCU_CSV = "Nsight Compute CSV"


READABLE = "a trace bundle folder, an Nsight Systems .sqlite export, an .ncu-rep, or an ncu CSV"

_SQLITE = b"SQLite format 3\x00"
_NCU_REP = b"NVR\x00"
_LFS = b"version https://git-lfs"
_NSYS_REP_SUFFIXES = {".nsys-rep", ".qdrep", ".qdstrm"}
_OTHER_KINDS = {
    b"PAR1": "an Apache Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip-compressed file",
    b"PK\x03\x04": "a zip archive",
    b"\x7fELF": "a program",
}


def identify(path: Path) -> Format:
    """The format of the file or folder at ``path``; raises InputError where it is none that tracekit reads."""
    # os.path asks without raising, whatever is wrong with the path; reading it then says what.
    if os.path.isdir(path):
        if os.path.isfile(path / manifest.FILE_NAME):
            return Format.BUNDLE
        raise InputError(
            path,
            expected=f"a {manifest.FILE_NAME} in the folder",
            found="a folder without one",
            remedy=f"name a bundle folder, or one report file: {READABLE}",
        )
    head = read_head(path)
    if head.startswith(_SQLITE):
        return Format.NSYS_SQLITE
    if head.startswith(_NCU_REP):
        return Format.NCU_REP
    if path.suffix in _NSYS_REP_SUFFIXES:
        raise InputError(
            path,
            expected=READABLE,
            found=f"an Nsight Systems report ({path.suffix})",
            remedy=f"export it: nsys export --type sqlite --lazy=false -o {path.stem}.sqlite {path.name}",
        )
    for magic, kind in _OTHER_KINDS.items():
        if head.startswith(magic):
            raise InputError(path, expected=READABLE, found=kind, remedy="name one of these")
    if path.suffix in {".sqlite", ".db"}:
        raise InputError(
            path,
            expected="an SQLite database",
            found=f"a file that begins with {head[:16]!r}",
            remedy="export the report again: nsys export --type sqlite",
        )
    if path.suffix == ".ncu-rep":
        raise InputError(
            path,
            expected="an Nsight Compute report",
            found=f"a file that begins with {head[:16]!r}",
            remedy="copy the report again, or collect it again with ncu -o",
        )
    if head.lstrip()[:1] in (b"{", b"["):
        raise InputError(
            path,
            expected=READABLE,
            found="a JSON file",
            remedy="tracekit reads Nsight reports; PyTorch profiler traces are not among them",
        )
    return Format.NCU_CSV


def read_head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a file; raises InputError where it is missing, unreadable, empty or a Git LFS pointer."""
    try:
        # A pipe or a device would block, or never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(
                path,
                expected="a regular file",
                found="a folder" if path.is_dir() else "a pipe or a device",
                remedy="name a file that holds the report",
            )
        with path.open("rb") as file:
            head = file.read(size)
    except FileNotFoundError:
        raise InputError(path, expected=READABLE, found="no such file or folder", remedy="check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(
            path,
            expected="a readable file",
            found=getattr(error, "strerror", None) or str(error),
            remedy="check the path and its permissions",
        ) from None
    if not head:
        raise InputError(
            path,
            expected=READABLE,
            found="an empty file",
            remedy="capture or export it again; the tool that wrote it failed",
        )
    if head.startswith(_LFS):
        raise InputError(
            path,
            expected=READABLE,
            found="a Git LFS pointer, not the file itself",
            remedy="fetch the file: git lfs pull",
        )
    return head
