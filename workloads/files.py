"""What the commands take and leave: lists of names, and JSON files that are whole or absent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracekit.errors import InputError, UsageError


def chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    """The names of a comma-separated list, all known ones where there is none; UsageError with the valid ones."""
    if not text:
        return list(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"no {what} is named {name!r}", remedy=f"use one of: {', '.join(known)}")
    return list(dict.fromkeys(names))


def may_write(path: Path, *, force: bool) -> None:
    """Raises UsageError where a file must not or cannot be written: to be asked before an hour of work, not after."""
    if path.exists() and not force:
        raise UsageError(f"{path}: exists already", remedy="name another file, or overwrite it with --force")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder", remedy="name a file")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder", remedy="make it, or name another file")


def write_text(path: Path, text: str, *, force: bool = True) -> None:
    """Writes a file whole or not at all, and over another one only with ``force``."""
    may_write(path, force=force)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"{path}: {error.strerror}", remedy="name a file that can be written") from None


def write_json(path: Path, data: Any, *, force: bool = True) -> None:
    """Writes JSON as :func:`write_text` does; ValueError where a number is none, which JSON cannot hold."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n", force=force)


def read_json(path: Path, expected: str) -> Any:
    """A JSON file; InputError where there is none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(path, expected=expected, found=str(error), remedy="make it again") from None
