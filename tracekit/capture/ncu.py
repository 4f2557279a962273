"""Collects counters with Nsight Compute as a small CSV, and tells a refusal of the machine from a failure."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tracekit.capture import command, process
from tracekit.capture.command import Kind, Window
from tracekit.capture.nsys import NOT_ENOUGH_SPACE
from tracekit.capture.process import Ended
from tracekit.capture.tools import Tool
from tracekit.errors import CaptureError

HOW_TO_GRANT: Final = (
    "let everyone read counters: put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/ and "
    "reboot; or run as root; in a container add --cap-add=SYS_ADMIN. Some sandboxed containers refuse for good"
)
_REFUSED: Final = ("err_nvgpuctrperm", "does not have permission to access nvidia gpu performance counters")
_UNSUPPORTED: Final = ("profiling is not supported on", "failed to initialize the profiler", "gvisor")
_BUSY: Final = ("driver resource was unavailable", "dcgm")


class CountersRefusedError(CaptureError):
    """The machine does not let this user read counters: no counters, and everything else goes on."""


def collect(
    ncu: Tool,
    target: Path,
    child: Sequence[str],
    *,
    kind: Kind,
    metrics: Sequence[str],
    limit_s: float,
    environment: Mapping[str, str],
    include: str | None = None,
    window: Window = Window.NONE,
    clock_control: str = "none",
    skip: int = 0,
    count: int | None = None,
) -> int:
    """Writes the CSV at ``target`` and returns how many launches or ranges it holds.

    Raises CountersRefusedError where the machine refuses, CaptureError where nothing was profiled.
    """
    argv = command.ncu_profile(
        ncu.path, target, child, kind=kind, metrics=metrics, include=include, window=window,
        clock_control=clock_control, skip=skip, count=count,
    )  # fmt: skip
    ended = process.run(argv, limit_s=limit_s, environment=environment)
    log = target.read_text("utf-8", "replace") if target.is_file() else ""
    said = _with_log(ended, log)
    lower = said.output.lower()
    if any(words in lower for words in _REFUSED):
        raise CountersRefusedError(
            "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM)", remedy=HOW_TO_GRANT, quoted=said.quoted(2)
        )
    if any(words in lower for words in NOT_ENOUGH_SPACE):
        raise CaptureError(
            "ncu found no space left on the disk", remedy="free space where -o points to", quoted=said.quoted()
        )
    if ended.timed_out:
        raise CaptureError(
            f"ncu ({kind}) {ended.how}; it and all that it started were ended",
            remedy="raise --limit, or measure less: --metrics traffic, --count 10",
            quoted=said.quoted(3),
        )
    rows = profiled(log)
    if any(words in lower for words in _UNSUPPORTED) and not rows:
        raise CountersRefusedError(
            "ncu cannot profile on this machine", remedy="use another machine for counters", quoted=said.quoted(3)
        )
    if ended.code:
        busy = any(words in lower for words in _BUSY)
        raise CaptureError(
            f"ncu ({kind}) {ended.how}",
            remedy="another profiler or DCGM holds the counters: end it, or `dcgmi profile --pause`"
            if busy
            else "see its lines above; does the program run without ncu?",
            quoted=said.quoted(),
        )
    if not rows:
        raise CaptureError(
            f"ncu ({kind}) ended with exit code 0 and profiled nothing"
            + (f" in {include}" if include is not None else ""),
            remedy="the filter must name a push/pop range that holds launches: --region LABEL; NVTX may be lost, "
            "which tracekit doctor shows",
            quoted=said.quoted(3),
        )
    return rows


def profiled(log: str) -> int:
    """The launches or ranges in a raw CSV, wherever ncu's own lines stand between."""
    rows, header = 0, None
    for cells in csv.reader(line for line in log.splitlines() if not line.startswith("==")):
        if header is None:
            header = cells if cells[:1] == ["ID"] else None
        elif len(cells) == len(header) and cells[0].isdigit():
            rows += 1
    return rows


def _with_log(ended: Ended, log: str) -> Ended:
    """The end of the run with what ncu wrote to its log about itself."""
    own = "\n".join(line for line in log.splitlines() if line.startswith("=="))
    return Ended(ended.command, ended.code, ended.timed_out, ended.seconds, f"{ended.output}\n{own}"[-65536:])
