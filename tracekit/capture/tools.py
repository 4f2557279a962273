"""Finds nsys, ncu and the importers of this machine, and tells their versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracekit.capture import process
from tracekit.errors import UsageError

ROOTS: Final = ("/opt/nvidia", "/usr/local", "/usr/lib/nsight-systems", "/usr/lib/nsight-compute")
"""Where NVIDIA's and Debian's packages put their tools."""

_VERSION: Final = re.compile(r"[Vv]ersion:?\s+(\d{4}\.\d+(?:\.\d+)?)")
_IN_FILE: Final = re.compile(rb"(20\d\d)@(\d+)@(\d+)@")
_ASK_LIMIT_S: Final = 30.0

_NSYS_PLACES: Final = (
    "nsight-systems/*/bin/nsys", "nsight-systems/*/target-linux-*/nsys", "nsight-systems-cli/*/bin/nsys",
    "nsight-compute/*/host/target-linux-*/nsys", "cuda*/bin/nsys", "cuda*/nsight-systems*/bin/nsys",
    "cuda*/nsight-compute*/host/target-linux-*/nsys", "bin/nsys",
)  # fmt: skip
_NCU_PLACES: Final = ("nsight-compute/*/ncu", "cuda*/bin/ncu", "cuda*/nsight-compute*/ncu", "bin/ncu", "ncu")
_IMPORTER_PLACES: Final = (
    "nsight-systems/*/host-linux-*/QdstrmImporter", "cuda*/nsight-systems*/host-linux-*/QdstrmImporter",
    "host-linux-*/QdstrmImporter",
)  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """A program of this machine; ``version`` is ``2023.4.4``, or None where it does not tell."""

    name: str
    path: Path
    version: str | None

    def __str__(self) -> str:
        return f"{self.name} {self.version or 'of unknown version'} ({self.path})"


@dataclass(frozen=True)
class Search:
    """Where to look: an environment and the folders of :data:`ROOTS`."""

    environment: Mapping[str, str]
    roots: tuple[str, ...] = ROOTS

    @classmethod
    def here(cls) -> Search:
        """This process's environment; ``TRACEKIT_TOOL_ROOTS`` replaces the folders, joined as in PATH."""
        own = os.environ.get("TRACEKIT_TOOL_ROOTS")
        return cls(os.environ, tuple(filter(None, own.split(os.pathsep))) if own is not None else ROOTS)

    def nsys(self) -> Tool | None:
        """The nsys to capture and export with: $NSYS_HOME, then PATH, then the newest of the folders."""
        return self._first("nsys", self._named("nsys", _NSYS_PLACES))

    def ncu(self) -> Tool | None:
        """The ncu to collect counters with: PATH, then the newest of the folders."""
        return self._first("ncu", self._named("ncu", _NCU_PLACES))

    def every_nsys(self) -> list[Tool]:
        """All that are here, in order of preference."""
        return [_asked("nsys", path) for path in self._named("nsys", _NSYS_PLACES)]

    def importers(self) -> list[Tool]:
        """All programs that turn a .qdstrm into a report, with the version of the nsys that they came with."""
        found: dict[Path, None] = {}
        for nsys in self._named("nsys", _NSYS_PLACES):
            for base in dict.fromkeys((nsys.parent.parent, nsys.resolve().parent.parent)):
                for importer in sorted(base.glob("host-linux-*/QdstrmImporter")):
                    found[importer.resolve()] = None
        for path in self._in_roots(_IMPORTER_PLACES):
            found[path.resolve()] = None
        return [_asked("QdstrmImporter", path) for path in found]

    def _first(self, name: str, paths: Sequence[Path]) -> Tool | None:
        return _asked(name, paths[0]) if paths else None

    def _named(self, name: str, places: Sequence[str]) -> list[Path]:
        found: dict[Path, None] = {}
        for path in (*self._home(name), *self._on_path(name), *self._in_roots(places)):
            if path.is_file() and os.access(path, os.X_OK):
                found[path] = None
        return list(found)

    def _home(self, name: str) -> Iterator[Path]:
        home = self.environment.get("NSYS_HOME") if name == "nsys" else None
        if home:
            for place in ("bin/nsys", "nsys", "target-linux-x64/nsys", "target-linux-sbsa-armv8/nsys"):
                if (Path(home) / place).is_file():
                    yield Path(home) / place
                    return
            raise UsageError(
                f"NSYS_HOME is {home}, and no nsys is there",
                remedy="set it to the folder of Nsight Systems that holds bin/nsys, or unset it",
            )

    def _on_path(self, name: str) -> Iterator[Path]:
        for folder in self.environment.get("PATH", "").split(os.pathsep):
            if folder and os.access(Path(folder) / name, os.X_OK):
                yield Path(folder) / name

    def _in_roots(self, places: Sequence[str]) -> Iterator[Path]:
        for place in places:
            for root in self.roots:
                yield from sorted(Path(root).glob(place), key=_newest_first, reverse=True)


def version_of(path: Path, *, name: str = "") -> str | None:
    """What a program calls its own version, or None."""
    ended = process.run([str(path), "--version"], limit_s=_ASK_LIMIT_S)
    found = _VERSION.search(ended.output)
    return found[1] if found else None


def written_by(report: Path) -> str | None:
    """The version of Nsight Systems that wrote a .qdstrm or .nsys-rep, where its first bytes tell (from 2023.4)."""
    with report.open("rb") as file:
        found = _IN_FILE.search(file.read(4096))
    return ".".join(part.decode() for part in found.groups()) if found else None


def same_version(a: str | None, b: str | None) -> bool:
    """Whether both are known and of one release: 2023.4.4 and 2023.4.4.54."""
    return a is not None and b is not None and a.split(".")[:3] == b.split(".")[:3]


def number(version: str | None) -> tuple[int, ...]:
    """A version to compare by: (2023, 4, 4); empty where unknown, which is before all others."""
    return tuple(int(part) for part in re.findall(r"\d+", version or "")[:3])


def _asked(name: str, path: Path) -> Tool:
    version = version_of(path)
    if version is None:  # An importer tells no version of its own: it has that of the folder it came in.
        named = re.search(r"(20\d\d\.\d+(?:\.\d+)?)", str(path.resolve()))
        version = named[1] if named else None
        for target in sorted(path.parent.parent.glob("target-linux-*/nsys")) if name != "nsys" else ():
            version = version_of(target) or version
    return Tool(name, path, version)


def _newest_first(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(path)))
