"""The manifest of a trace bundle: what ran, under which conditions, and which file holds what.

Standard library only, since the capture side writes it. A manifest holds what reports do not: the variant and its
shape, precision and model, and the replay mode, cache and clock control of an Nsight Compute run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tracekit.errors import InputError

SCHEMA_VERSION: Final = 1
FILE_NAME: Final = "manifest.json"

CONDITIONS: Final[tuple[str, ...]] = (
    "model",
    "dtype",
    "gpu",
    "batch",
    "input_tokens",
    "kv_tokens",
    "tensor_parallel",
    "graph_mode",
    "compile_mode",
    "l2_state",
)
"""What must agree before two captures are compared. Absent means unknown, which is a warning and not a refusal."""

_REMEDY = "correct the manifest, or capture the bundle again"


@dataclass(frozen=True)
class FileEntry:
    """A file of the bundle, relative to its folder, with its SHA-256 where recorded."""

    file: str
    sha256: str | None = None
    tool: str | None = None


@dataclass(frozen=True)
class CounterEntry(FileEntry):
    """An Nsight Compute file and how it was collected, since the file itself does not tell."""

    replay_mode: str | None = None
    cache_control: str | None = None
    clock_control: str | None = None
    nvtx_include: str | None = None

    @property
    def kind(self) -> str | None:
        """The kind of DRAM bytes that the file holds: in_model, cold, replay_warm; None where unknown."""
        match self.replay_mode, self.cache_control:
            case (("app-range" | "range" | "application-range"), ("none" | None)):
                return "in_model"
            case "kernel", "all":
                return "cold"
            case "kernel", "none":
                return "replay_warm"
            case _:
                return None


@dataclass(frozen=True)
class Manifest:
    """A parsed manifest. ``conditions`` maps names of :data:`CONDITIONS` to values; absent is unknown.

    ``ran`` is what the workload says of itself: ``baseline``, the variant that others are judged against,
    ``lower_bound_bytes``, the DRAM bytes of a step that no implementation can avoid, and what it did inside the capture
    window, which a capture is checked against:
    ``ranges_pushed`` and ``iterations`` (counts), and ``kernels``, a list of what Triton compiled (``name``,
    ``registers``, ``frame_bytes``, ``shared_bytes``, ``warps``, ``grid``, ``launches``, ``region``), where known.
    """

    capture_id: str
    workload: str | None = None
    variant: str | None = None
    description: str | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    ran: Mapping[str, Any] = field(default_factory=dict)
    timeline: FileEntry | None = None
    counters: tuple[CounterEntry, ...] = ()
    bench: FileEntry | None = None
    quality: FileEntry | None = None

    @classmethod
    def from_dict(cls, data: Any, *, source: str) -> Manifest:
        """The manifest in ``data``, as parsed from JSON; raises InputError naming ``source`` and the field."""
        root = _Fields(data, source, "the manifest")
        version = root.take("schema_version", int)
        if version != SCHEMA_VERSION:
            raise InputError(
                source,
                expected=f"schema_version {SCHEMA_VERSION}",
                found=f"schema_version {version}",
                remedy="use a tracekit of the version that wrote it, or capture the bundle again",
            )
        conditions = root.take("conditions", dict, optional=True) or {}
        unknown = sorted(set(conditions) - set(CONDITIONS))
        if unknown:
            raise InputError(
                source,
                expected=f"conditions among {', '.join(CONDITIONS)}",
                found=", ".join(unknown),
                remedy=_REMEDY,
            )
        manifest = cls(
            capture_id=root.take("capture_id", str),
            workload=root.take("workload", str, optional=True),
            variant=root.take("variant", str, optional=True),
            description=root.take("description", str, optional=True),
            conditions=conditions,
            environment=root.take("environment", dict, optional=True) or {},
            ran=root.take("ran", dict, optional=True) or {},
            timeline=_entry(root, "timeline"),
            counters=tuple(
                CounterEntry(**_counter_fields(item, source))
                for item in root.take("counters", list, optional=True) or []
            ),
            bench=_entry(root, "bench"),
            quality=_entry(root, "quality"),
        )
        root.finish()
        return manifest

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON-ready data; absent fields are left out."""
        out: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "capture_id": self.capture_id}
        for name in ("workload", "variant", "description"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        if self.conditions:
            out["conditions"] = dict(self.conditions)
        if self.environment:
            out["environment"] = dict(self.environment)
        if self.ran:
            out["ran"] = dict(self.ran)
        for name in ("timeline", "bench", "quality"):
            entry = getattr(self, name)
            if entry is not None:
                out[name] = _present(entry)
        if self.counters:
            out["counters"] = [_present(entry) for entry in self.counters]
        return out


class _Fields:
    """Takes typed fields from a JSON object and reports what does not fit, and what is left over."""

    def __init__(self, data: Any, source: str, where: str) -> None:
        if not isinstance(data, dict):
            raise InputError(
                source,
                expected=f"an object as {where}",
                found=type(data).__name__,
                remedy=_REMEDY,
            )
        self.data = dict(data)
        self.source = source
        self.where = where

    def take(self, name: str, kind: type, *, optional: bool = False) -> Any:
        value = self.data.pop(name, None)
        if value is None and optional:
            return None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(
                self.source,
                expected=f"{kind.__name__} as {name} of {self.where}",
                found="nothing" if value is None else repr(value),
                remedy=_REMEDY,
            )
        return value

    def finish(self) -> None:
        if self.data:
            raise InputError(
                self.source,
                expected=f"only known fields in {self.where}",
                found=", ".join(sorted(self.data)),
                remedy=_REMEDY,
            )


def _entry(root: _Fields, name: str) -> FileEntry | None:
    data = root.take(name, dict, optional=True)
    return None if data is None else FileEntry(**_file_fields(_Fields(data, root.source, name)))


def _file_fields(fields: _Fields, *more: str) -> dict[str, Any]:
    out = {"file": fields.take("file", str)}
    parts = out["file"].replace("\\", "/").split("/")
    if ".." in parts or out["file"].startswith(("/", "\\")) or ":" in parts[0] or "\0" in out["file"]:
        raise InputError(
            fields.source,
            expected=f"a file inside the bundle as file of {fields.where}",
            found=out["file"],
            remedy=_REMEDY,
        )
    for name in ("sha256", "tool", *more):
        out[name] = fields.take(name, str, optional=True)
    fields.finish()
    return out


def _counter_fields(data: Any, source: str) -> dict[str, Any]:
    names = ("replay_mode", "cache_control", "clock_control", "nvtx_include")
    return _file_fields(_Fields(data, source, "counters"), *names)


def _present(entry: FileEntry) -> dict[str, str]:
    return {name: value for name, value in vars(entry).items() if value is not None}
