"""Examines a machine: its tools, pairs known to fail, and whether a trial capture holds its rows."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tracekit.capture import bundle, ncu, nsys, probe, process, verify
from tracekit.capture.command import Graphs, Kind
from tracekit.capture.tools import Search, Tool, same_version
from tracekit.capture.verify import Level
from tracekit.errors import TracekitError, UsageError
from tracekit.model.manifest import Manifest

PACKAGES: Final = ("nvtx", "triton", "torch", "ncu-report")
LITTLE_SPACE: Final = 2 * 10**9
TRIAL_LIMIT_S: Final = 60.0
_MODULE_PARAMETERS: Final = Path("/proc/driver/nvidia/params")
_PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")


@dataclass(frozen=True)
class Check:
    """One line of the doctor's: ok, warn or fail, what was found, and the remedy."""

    name: str
    level: Level
    found: str
    remedy: str = ""


def examine(*, try_capture: bool = True, search: Search | None = None) -> list[Check]:
    """All checks, in the order in which they build on each other."""
    search = search or Search.here()
    checks = [Check("python", Level.OK, f"{platform.python_version()} ({sys.executable})")]
    try:
        found_nsys = search.nsys()
    except UsageError as error:
        return [*checks, Check("nsys", Level.FAIL, error.message, error.remedy)]
    checks += _nsys(found_nsys, search)
    found_ncu = search.ncu()
    gpu = _gpu()
    checks += _ncu(found_ncu, gpu)
    checks += gpu
    checks += _packages(found_nsys)
    checks += [*_permission(gpu), *_paranoid(), _space()]
    if try_capture and found_nsys is not None:
        checks += _trial(found_nsys, found_ncu, search, has_gpu=gpu[-1].level is Level.OK)
    return checks


def exit_code(checks: Sequence[Check]) -> int:
    """1 where a check fails."""
    return 1 if any(check.level is Level.FAIL for check in checks) else 0


def as_text(checks: Sequence[Check]) -> str:
    """A line a check, its remedy below it where there is something to do."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.level:<4}  {check.name:<{width}}  {check.found}")
        if check.remedy and check.level is not Level.OK:
            lines.append(f"      {'':<{width}}  remedy: {check.remedy}")
    levels = [check.level for check in checks]
    lines.append(", ".join(f"{levels.count(level)} {level}" for level in Level))
    return "\n".join(lines)


def as_json(checks: Sequence[Check]) -> str:
    """The checks as JSON: name, level, found, remedy."""
    return json.dumps({"schema_version": 1, "checks": [asdict(check) for check in checks]}, indent=1)


def _nsys(found: Tool | None, search: Search) -> Iterator[Check]:
    if found is None:
        yield Check(
            "nsys",
            Level.FAIL,
            "not in $NSYS_HOME, on PATH or under /opt/nvidia and /usr/local",
            "install Nsight Systems (Debian: nsight-systems in non-free), or set NSYS_HOME",
        )
        return
    yield Check(
        "nsys", Level.OK if found.version else Level.WARN, f"{found.version or 'tells no version'} ({found.path})"
    )
    importers = search.importers()
    matching = [tool for tool in importers if same_version(tool.version, found.version)]
    if matching:
        yield Check("importer", Level.OK, f"{matching[0].version} ({matching[0].path})")
    elif importers:
        have = ", ".join(sorted({tool.version or "of unknown version" for tool in importers}))
        yield Check(
            "importer",
            Level.WARN,
            f"{have}, and nsys is {found.version}: another version's drops CUDA rows without a word",
            f"install Nsight Systems {found.version} whole, or read captures on a machine that has it",
        )
    else:
        yield Check(
            "importer",
            Level.WARN,
            f"none beside nsys {found.version}",
            "a wrapper may find its own; else captures stay .qdstrm, to be read where Nsight Systems "
            f"{found.version} is whole: tracekit read TRACE",
        )


def _ncu(found: Tool | None, gpu: Sequence[Check]) -> Iterator[Check]:
    if found is not None:
        yield Check("ncu", Level.OK, f"{found.version or 'tells no version'} ({found.path})")
    else:
        here = gpu[-1].level is Level.OK
        yield Check("ncu", Level.WARN, "not found: no DRAM bytes, no spills", "install Nsight Compute" if here else
                    "install Nsight Compute where the GPU is")  # fmt: skip


def _gpu() -> list[Check]:
    """The driver and the GPU; the last check is the GPU's."""
    smi = shutil.which("nvidia-smi")
    absent = "without one NVTX is all that can be captured; run it where the GPU is"
    if smi is None:
        here = Path("/proc/driver/nvidia/version").exists()
        found = "a driver, and no nvidia-smi" if here else "no NVIDIA driver"
        return [Check("driver", Level.WARN, found, absent), Check("gpu", Level.WARN, "none seen", absent)]
    ended = process.run(
        [smi, "--query-gpu=driver_version,name,compute_cap", "--format=csv,noheader"], limit_s=TRIAL_LIMIT_S
    )
    rows = [[cell.strip() for cell in line.split(",")] for line in ended.lines]
    rows = [row for row in rows if len(row) == 3]
    if ended.code or not rows:
        said = "; ".join(ended.quoted(1)) or ended.how
        return [Check("driver", Level.FAIL, said, "repair the driver"), Check("gpu", Level.WARN, "none seen", absent)]
    names = ", ".join(f"{name} (compute capability {capability})" for _, name, capability in rows)
    return [Check("driver", Level.OK, rows[0][0]), Check("gpu", Level.OK, names)]


def _packages(found: Tool | None) -> Iterator[Check]:
    for name in PACKAGES:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            needed = name == "nvtx"
            yield Check(
                name,
                Level.WARN if needed else Level.OK,
                "not installed" + ("" if needed else ", and not needed to capture"),
                "pip install nvtx==0.2.11; without it workloads push no ranges" if needed else "",
            )
            continue
        if name == "nvtx" and found and verify.known_to_lose(found.version, installed):
            text = f"{installed}: nsys {found.version} loses its push/pop ranges"
            yield Check(name, Level.FAIL, text, verify.NVTX_REMEDY)
        else:
            yield Check(name, Level.OK, installed)


def _permission(gpu: Sequence[Check]) -> Iterator[Check]:
    if gpu[-1].level is not Level.OK:
        return
    try:
        text = _MODULE_PARAMETERS.read_text()
    except OSError:
        yield Check("counter permission", Level.WARN, "the driver does not tell", "the trial below shows it")
        return
    restricted = "RmProfilingAdminOnly: 1" in text
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if restricted and not root:
        yield Check("counter permission", Level.WARN, "for administrators only", ncu.HOW_TO_GRANT)
    else:
        yield Check("counter permission", Level.OK, "for administrators, which this is" if restricted else "for all")


def _paranoid() -> Iterator[Check]:
    try:
        value = int(_PARANOID.read_text())
    except (OSError, ValueError):
        return
    if value > 2:
        text = f"{value}: no CPU sampling, which tracekit does not use"
        yield Check("perf_event_paranoid", Level.WARN, text, "to sample CPUs too: sysctl kernel.perf_event_paranoid=2")
    else:
        yield Check("perf_event_paranoid", Level.OK, str(value))


def _space() -> Check:
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:,.1f} GB free in {place}"
    remedy = "free space, or set TMPDIR: reports take 1 to 100 MB each, and some hundreds with osrt"
    return Check("disk", Level.OK if free > LITTLE_SPACE else Level.WARN, found, remedy)


def _trial(found: Tool, found_ncu: Tool | None, search: Search, *, has_gpu: bool) -> Iterator[Check]:
    """A capture of :mod:`tracekit.capture.probe`: whether NVTX and CUDA rows arrive, and counters."""
    program = [sys.executable, probe.__file__]
    with tempfile.TemporaryDirectory(prefix="tracekit-doctor-") as scratch:
        folder = Path(scratch)
        record = folder / "record.json"
        environment = {**os.environ, "TRACEKIT_RECORD": str(record)}
        try:
            captured = nsys.capture(
                found, folder, program, limit_s=TRIAL_LIMIT_S, environment=environment, graphs=Graphs.NODE
            )
            report = captured.report
            if report is None:
                assert captured.stream is not None
                if not any(same_version(tool.version, found.version) for tool in search.importers()):
                    yield from _trial_stream(captured.stream, found, bundle.read_record(record), has_gpu=has_gpu)
                    if has_gpu and found_ncu is not None:
                        yield _trial_counters(found_ncu, folder, program)
                    return
                report = nsys.import_stream(captured.stream, folder, search, written_by=found.version)
            export = nsys.export(report, folder / "export.sqlite", found)
            counts = verify.counts(export)
            told = bundle.read_record(record)
        except TracekitError as error:
            yield Check("trial capture", Level.FAIL, error.message, error.remedy)
            return
        ran = told.ran if told else {}
        yield _trial_ranges(counts, ran, found, told.environment.get("nvtx") if told else None)
        if has_gpu:
            yield _trial_kernels(counts, ran, str(told.environment.get("gpu_error", "")) if told else "")
            if found_ncu is not None:
                yield _trial_counters(found_ncu, folder, program)
        else:
            yield Check("trial: CUDA", Level.WARN, "not tried: no GPU", "run the doctor where the GPU is")


def _trial_stream(stream: Path, found: Tool, told: Manifest | None, *, has_gpu: bool) -> Iterator[Check]:
    """What a capture shows where there is no importer: that it ends and leaves a stream, to be counted later."""
    yield Check(
        "trial capture",
        Level.WARN,
        f"left a .qdstrm of {stream.stat().st_size:,} bytes; its rows cannot be counted without an importer",
        f"capture here, and read where Nsight Systems {found.version} is whole, which counts them: tracekit read TRACE",
    )
    if has_gpu and told is not None and not told.ran.get("launches"):
        yield _no_launch(str(told.environment.get("gpu_error", "")))


def _trial_ranges(counts: verify.Counts, ran: Any, found: Tool, nvtx_version: Any) -> Check:
    pushed = ran.get("ranges_pushed")
    if not pushed:
        return Check("trial: NVTX", Level.WARN, "not tried: no nvtx package", "pip install nvtx==0.2.11")
    own = verify.compare(counts, ran, trace=("nvtx",), nsys_version=found.version, nvtx_version=str(nvtx_version))
    failed = [finding for finding in own if finding.level is Level.FAIL]
    if failed:
        return Check("trial: NVTX", Level.FAIL, failed[0].text, failed[0].remedy)
    return Check("trial: NVTX", Level.OK, f"{pushed} ranges pushed, all in the report")


def _trial_kernels(counts: verify.Counts, ran: Any, why: str) -> Check:
    launched = ran.get("launches")
    if not launched:
        return _no_launch(why)
    if counts.all_kernels == launched:
        return Check("trial: CUDA", Level.OK, f"{launched} kernels launched, all in the report")
    return Check(
        "trial: CUDA",
        Level.FAIL,
        f"{launched} kernels launched, {counts.all_kernels} in the report",
        "nsys and the driver, or nsys and its importer, do not fit each other: install a newer Nsight Systems",
    )


def _no_launch(why: str) -> Check:
    return Check("trial: CUDA", Level.FAIL, f"nothing launched: {why}", "see whether CUDA programs run here at all")


def _trial_counters(found: Tool, folder: Path, program: Sequence[str]) -> Check:
    try:
        rows = ncu.collect(
            found, folder / "trial.csv", program, kind=Kind.REPLAY_WARM, metrics=["dram__bytes_read.sum"],
            limit_s=TRIAL_LIMIT_S, environment=dict(os.environ), count=1,
        )  # fmt: skip
    except ncu.CountersRefusedError as error:
        return Check("trial: counters", Level.WARN, error.message.splitlines()[0], error.remedy)
    except TracekitError as error:
        return Check("trial: counters", Level.FAIL, error.message, error.remedy)
    return Check("trial: counters", Level.OK, f"{rows} kernel profiled")
