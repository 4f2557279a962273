"""Writes bundles that are whole or absent, and tells whole ones from others."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tracekit.errors import CaptureError, InputError, TracekitError, UsageError
from tracekit.model import manifest as manifests
from tracekit.model.manifest import CounterEntry, FileEntry, Manifest

LOCK: Final = ".tracekit-capture.lock"
_PARTIAL: Final = ".partial"
_REPLACED: Final = ".replaced"


class Draft:
    """A bundle in the making: a hidden folder beside the place where it will appear, whole, when it is finished."""

    def __init__(self, target: Path) -> None:
        self.target = target = target.absolute()
        self.folder = target.with_name(f".{target.name}{_PARTIAL}")
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: {error.strerror}", remedy="name a folder that can be written") from None

    def finish(self, manifest: Manifest) -> Path:
        """Writes the manifest, with the SHA-256 of every file, and moves the folder to its place.

        Files that the manifest does not list, and are no report kept on purpose, are left out.
        """
        whole = hashed(manifest, self.folder)
        kept = {manifests.FILE_NAME, *(entry.file for entry in listed(whole))}
        for path in self.folder.iterdir():
            if path.name not in kept and path.suffix not in (".nsys-rep", ".qdrep"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_json(self.folder / manifests.FILE_NAME, whole.to_dict())
        put_in_place(self.folder, self.target)
        return self.target

    def discard(self) -> None:
        """Removes what was made so far."""
        shutil.rmtree(self.folder, ignore_errors=True)


def put_in_place(made: Path, target: Path) -> None:
    """Renames a finished folder to its place; one that is there already goes only when the new one stands ready."""
    _sync(made)
    old = target.with_name(f".{target.name}{_REPLACED}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.rename(target, old)
    os.rename(made, target)
    shutil.rmtree(old, ignore_errors=True)


def clean(folder: Path) -> None:
    """Removes what an interrupted capture left: half-made bundles, never whole ones."""
    for path in folder.glob(f".*{_PARTIAL}"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(f".*{_REPLACED}"):
        target = path.with_name(path.name.removeprefix(".").removesuffix(_REPLACED))
        if target.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:  # ended between the two renames: the old one is still whole
            os.rename(path, target)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a bundle, or None where there is none that can be read."""
    path = folder / manifests.FILE_NAME
    try:
        return Manifest.from_dict(json.loads(path.read_text("utf-8")), source=str(path))
    except (OSError, ValueError, TracekitError):
        return None


def is_whole(folder: Path) -> bool:
    """Whether every file that the manifest lists is there, with the SHA-256 that it records."""
    manifest = read_manifest(folder)
    if manifest is None:
        return False
    entries = listed(manifest)
    return bool(entries) and all(
        (folder / entry.file).is_file() and entry.sha256 == digest(folder / entry.file) for entry in entries
    )


def listed(manifest: Manifest) -> list[FileEntry]:
    """The files of a bundle."""
    return [entry for entry in (manifest.timeline, *manifest.counters, manifest.bench, manifest.quality) if entry]


def hashed(manifest: Manifest, folder: Path) -> Manifest:
    """The manifest with the SHA-256 of its files as they are in the folder."""

    def entry(each: FileEntry | None) -> FileEntry | None:
        return None if each is None else replace(each, sha256=digest(folder / each.file))

    counters: list[CounterEntry] = [replace(each, sha256=digest(folder / each.file)) for each in manifest.counters]
    return replace(
        manifest, timeline=entry(manifest.timeline), counters=tuple(counters), bench=entry(manifest.bench),
        quality=entry(manifest.quality),
    )  # fmt: skip


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes JSON; CaptureError where the disk does not take it."""
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}", remedy="free space there, or name another folder") from None


def read_record(path: Path) -> Manifest | None:
    """What the program wrote about itself, a manifest without files; None where it wrote nothing."""
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            path,
            expected="the program's record of what it ran, a manifest as JSON",
            found=str(error),
            remedy="write it whole (to a temporary name, then rename), or not at all",
        ) from None
    return Manifest.from_dict({"schema_version": 1, "capture_id": "record", **data}, source=str(path))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps a second capture out of the folder; where the file system has no locks, nothing does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", remedy="name a folder that can be written with -o") from None
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{folder}: another capture is writing there", remedy="wait for its end, or name another folder"
            ) from None
        except (ImportError, OSError):
            pass
        yield
    finally:
        os.close(handle)  # The file stays: removing it could take it from under a capture that just opened it.


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
