"""Builds the command lines of nsys, its importer and exporter, and ncu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tracekit.errors import UsageError
from tracekit.model import labels


class Window(StrEnum):
    """When nsys records."""

    PROFILER_API = "profiler-api"
    """Between the program's own cudaProfilerStart and cudaProfilerStop."""
    NONE = "none"
    """From its start to its end."""


class Graphs(StrEnum):
    """How nsys traces CUDA graphs."""

    NODE = "node"
    """Every node is a kernel row, and the launch of a graph takes ten times as long."""
    GRAPH = "graph"
    """One row a launch (none at all with older versions), and launches as fast as untraced."""


class Kind(StrEnum):
    """How counters are collected, which decides what their DRAM bytes mean."""

    IN_MODEL = "in_model"
    """The program runs again for every pass and the region is measured as it runs in the model."""
    COLD = "cold"
    """Each kernel is replayed, caches flushed before."""
    REPLAY_WARM = "replay_warm"
    """Each kernel is replayed, caches left as its own last pass left them."""

    @property
    def replay_mode(self) -> str:
        """ncu's ``--replay-mode``."""
        return "app-range" if self is Kind.IN_MODEL else "kernel"

    @property
    def cache_control(self) -> str:
        """ncu's ``--cache-control``."""
        return "all" if self is Kind.COLD else "none"


@dataclass(frozen=True)
class Purpose:
    """Metrics and sections that answer one question; ``in_range`` where they exist for a range of kernels too."""

    metrics: tuple[str, ...]
    sections: tuple[str, ...] = ()
    in_range: bool = False


PURPOSES: Final[dict[str, Purpose]] = {
    "traffic": Purpose(
        (
            "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum", "gpu__time_duration.sum",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        ),
        in_range=True,
    ),
    "spills": Purpose(
        (
            "sass__inst_executed_register_spilling", "sass__inst_executed_local_loads",
            "sass__inst_executed_local_stores", "smsp__sass_inst_executed_op_local_ld.sum",
            "smsp__sass_inst_executed_op_local_st.sum",
        ),
        ("MemoryWorkloadAnalysis",),  # Without it some versions leave the count of spills out, and tell the loads.
    ),
    "occupancy": Purpose((), ("LaunchStats", "Occupancy")),
    "limits": Purpose(("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",), ("SpeedOfLight",)),
}  # fmt: skip
"""What ``--metrics`` names; a metric's own name (with two underscores) may stand beside these."""

_DELIMITERS: Final = "\\@,[]/*"


def nsys_profile(
    nsys: Path,
    report: Path,
    child: Sequence[str],
    *,
    trace: Sequence[str] = ("cuda", "nvtx"),
    window: Window = Window.NONE,
    graphs: Graphs | None = None,
) -> list[str]:
    """``nsys profile``, without ``osrt``, sampling and context switches: with them nsys hangs at exit."""
    command = [str(nsys), "profile", f"--trace={','.join(trace)}", "--sample=none", "--cpuctxsw=none"]
    if window is Window.PROFILER_API:
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if graphs is not None and "cuda" in trace:
        command.append(f"--cuda-graph-trace={graphs}")
    return [*command, "--force-overwrite=true", f"--output={report.with_suffix('')}", *child]


def nsys_import(importer: Path, stream: Path) -> list[str]:
    """``QdstrmImporter``: it writes the .nsys-rep beside the .qdstrm."""
    return [str(importer), "-i", str(stream)]


def nsys_export(nsys: Path, report: Path, export: Path) -> list[str]:
    """``nsys export`` with every table, so that an absent one is absent and not merely empty."""
    return [
        str(nsys), "export", "--type=sqlite", "--lazy=false", "--force-overwrite=true", f"--output={export}",
        str(report),
    ]  # fmt: skip


def ncu_profile(
    ncu: Path,
    log: Path,
    child: Sequence[str],
    *,
    kind: Kind,
    metrics: Sequence[str],
    include: str | None = None,
    window: Window = Window.NONE,
    clock_control: str = "none",
    skip: int = 0,
    count: int | None = None,
) -> list[str]:
    """``ncu`` with its raw page as CSV in a log file, so that what the program prints does not mix with it.

    ``metrics`` are names of :data:`PURPOSES` or of metrics. An .ncu-rep would embed every cubin: 58 MB, not 100 kB.
    """
    names, sections = chosen_metrics(metrics, kind)
    command = [str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), "--nvtx"]
    command += ["--target-processes", "all", "--replay-mode", kind.replay_mode, "--cache-control", kind.cache_control]
    command += ["--clock-control", clock_control]
    if include is not None:
        command += ["--nvtx-include", include]
    if window is Window.PROFILER_API and kind is not Kind.IN_MODEL:
        command += ["--profile-from-start", "off"]
    if skip:
        command += ["--launch-skip", str(skip)]
    if count is not None:
        command += ["--launch-count", str(count)]
    for section in sections:
        command += ["--section", section]
    return [*command, "--metrics", ",".join(names), *child]


def chosen_metrics(asked: Sequence[str], kind: Kind) -> tuple[list[str], list[str]]:
    """The metrics and sections of that kind: instructions and occupancy are a kernel's, never a range's."""
    names: dict[str, None] = {}
    sections: dict[str, None] = {}
    for item in asked:
        if item in PURPOSES:
            purpose = PURPOSES[item]
            if purpose.in_range or kind is not Kind.IN_MODEL:
                names |= dict.fromkeys(purpose.metrics)
                sections |= dict.fromkeys(purpose.sections)
        elif "__" in item:
            names[item] = None
        else:
            raise UsageError(
                f"no metrics are named {item!r}",
                remedy=f"use {', '.join(PURPOSES)}, or the name of a metric such as dram__bytes_read.sum",
            )
    names.setdefault("gpu__time_duration.sum")
    return list(names), list(sections)


def nvtx_filter(label: str, domain: str = labels.DOMAIN) -> str:
    """The expression for push/pop ranges of that label: ``tracekit@layer1/``, with ncu's delimiters escaped."""
    prefix = f"{_escaped(domain)}@" if domain else ""
    return f"{prefix}{_escaped(label)}/"


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in _DELIMITERS else c for c in text)
