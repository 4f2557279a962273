"""Runs a capture from its plan to verified bundles: resumes, goes on after a failure, and tells what became of each."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from tracekit.capture import bundle, bytecode, ncu, nsys, process, verify
from tracekit.capture.bundle import Draft
from tracekit.capture.command import Graphs, Kind, Window, chosen_metrics, nvtx_filter
from tracekit.capture.finish import cache_folder
from tracekit.capture.plan import Step, Target, steps, targets
from tracekit.capture.tools import Search, Tool
from tracekit.capture.verify import Counts, Finding, Level
from tracekit.errors import CaptureError, TracekitError, UsageError
from tracekit.model.labels import RootLabel
from tracekit.model.manifest import CounterEntry, FileEntry, Manifest

GIVE_UP_AFTER: Final = 2
"""Failures one after the other before the rest is not tried: what failed twice fails forty times."""

NEEDED_BYTES: Final = 200 * 10**6
"""Free space below which no capture starts."""


@dataclass(frozen=True)
class Request:
    """What to capture and how. ``workload`` names one of ``python -m workloads``; else ``command`` is the program."""

    output: Path
    workload: str | None = None
    command: tuple[str, ...] = ()
    label: str | None = None
    variants: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    dtype: str = "bfloat16"
    iterations: int = 20
    counter_iterations: int = 2
    tool: str | None = None
    repeats: int = 1
    counter_repeats: int = 1
    graphs: Graphs | None = None
    with_construction: bool = False
    kinds: tuple[Kind, ...] = (Kind.IN_MODEL, Kind.COLD)
    metrics: tuple[str, ...] = ("traffic", "spills", "occupancy", "limits")
    region: str | None = None
    skip: int = 0
    count: int | None = None
    clock_control: str = "none"
    window: Window | None = None
    trace: tuple[str, ...] = ("cuda", "nvtx")
    limit_s: float = 300.0
    seed: int = 0
    blocks: int = 10
    processes: int | None = None
    quality: bool = True
    keep_report: bool = False
    force: bool = False
    python: str = sys.executable
    conditions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of one bundle: ``state`` is captured, kept or failed."""

    name: str
    state: str
    seconds: float
    findings: tuple[Finding, ...] = ()
    error: str = ""
    counts: Counts | None = None
    counters: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[Finding]:
        """The findings that a reader must know."""
        return [finding for finding in self.findings if finding.level is not Level.OK]


class Observer(Protocol):
    """Is told how far a capture is."""

    def begin(self, total: int) -> None:
        """So many steps are to come."""

    def step(self, text: str) -> None:
        """A step starts."""

    def advice(self, text: str) -> None:
        """Something worth a line on stderr."""

    def end(self) -> None:
        """All is done, or given up."""


def run(request: Request, observer: Observer, search: Search | None = None) -> list[Outcome]:
    """Captures everything that was asked for and is not there yet; one outcome a bundle, in order of the plan.

    Raises UsageError, before anything runs, where the request or the machine cannot do it. What fails later is told in
    its outcome; the rest goes on until :data:`GIVE_UP_AFTER` failures follow one another.
    """
    session = _Session(request, observer, search or Search.here())
    with bundle.locked(request.output):
        bundle.clean(request.output)
        try:
            return session.run()
        finally:
            observer.end()


class _Session:
    def __init__(self, request: Request, observer: Observer, search: Search) -> None:
        self.request, self.observer, self.search = request, observer, search
        self.environment = {**os.environ}
        if request.workload and Path(request.python).resolve() == Path(sys.executable).resolve():
            self.environment |= bytecode.environment(cache_folder() / "bytecode")
        self.listed = _listed(request) if request.workload else None
        self.variants, self.shapes = self._chosen()
        self.window = request.window or (Window.PROFILER_API if request.workload else Window.NONE)
        self.nsys, self.ncu = self._tools()
        if self.ncu:
            for kind in request.kinds:
                chosen_metrics(request.metrics, kind)
        self.counter_repeats = request.counter_repeats if self.nsys else request.repeats
        self.drafts: dict[str, _Open] = {}
        self.refused = ""

    # What is asked for

    def _chosen(self) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
        if self.listed is None:
            if not self.request.command:
                raise UsageError(
                    "nothing to capture", remedy="name a workload, or a program after --: -- python serve.py"
                )
            return (None,), (None,)
        variants, shapes = (tuple(item["name"] for item in self.listed[what]) for what in ("variants", "shapes"))
        if strange := [name for name in self.request.variants if name not in variants]:
            raise UsageError(
                f"{self.request.workload} has no variants {', '.join(strange)}", remedy=f"use of: {', '.join(variants)}"
            )
        return self.request.variants or variants, self.request.shapes or shapes[:1]

    def _tools(self) -> tuple[Tool | None, Tool | None]:
        asked = self.request.tool
        found_nsys = self.search.nsys() if asked in (None, "nsys", "both") else None
        found_ncu = self.search.ncu() if asked in (None, "ncu", "both") and "cuda" in self.request.trace else None
        if found_nsys is None and asked != "ncu":
            raise UsageError(
                "no nsys on this machine: not in $NSYS_HOME, on PATH or under /opt/nvidia and /usr/local",
                remedy="install Nsight Systems, or set NSYS_HOME; tracekit doctor shows what is here",
            )
        if found_ncu is None and asked in ("ncu", "both"):
            raise UsageError(
                "no ncu on this machine: not on PATH or under /opt/nvidia and /usr/local",
                remedy="install Nsight Compute, or capture without counters: --tool nsys",
            )
        if asked is None and found_ncu is None and "cuda" in self.request.trace:
            self.observer.advice("no ncu on this machine: capturing without counters (DRAM bytes, spills)")
        return found_nsys, found_ncu

    @property
    def label(self) -> str:
        """The first part of a bundle's name."""
        if self.request.workload:
            return self.request.workload
        if self.request.label:
            return self.request.label
        words = [word for word in self.request.command if not word.startswith("-")]
        scripts = [word for word in words[1:] if word.endswith((".py", ".sh"))]
        return Path((scripts or words)[0]).stem

    # Running

    def run(self) -> list[Outcome]:
        request = self.request
        wanted = targets(
            self.label, self.variants, self.shapes, graph=request.graphs is not None and bool(request.workload),
            repeats=request.repeats,
        )  # fmt: skip
        outcomes: dict[str, Outcome] = {}
        for target in wanted:
            if outcome := self._kept(target):
                outcomes[target.name] = outcome
        missing = [target for target in wanted if target.name not in outcomes]
        planned = steps(
            missing, timeline=self.nsys is not None, kinds=request.kinds if self.ncu else (),
            counter_repeats=self.counter_repeats, seed=request.seed,
        )  # fmt: skip
        extras = [shape for shape in self.shapes if missing] if request.workload else []
        self.observer.begin(len(planned) + len(extras) * (1 + request.quality))
        with tempfile.TemporaryDirectory(prefix="tracekit-") as scratch:
            kept = [target for target in wanted if target.name in outcomes]
            made = {shape: self._bench_and_quality(shape, kept, Path(scratch)) for shape in extras}
            try:
                self._steps(planned, made, outcomes)
            finally:
                for draft in self.drafts.values():
                    draft.draft.discard()
        for target in missing:
            outcomes.setdefault(target.name, Outcome(target.name, "failed", 0.0, error="not tried: others failed"))
        return [outcomes[target.name] for target in wanted]

    def _steps(
        self, planned: Sequence[Step], made: Mapping[str | None, list[Path]], outcomes: dict[str, Outcome]
    ) -> None:
        failures = 0
        left = {step.target.name: sum(other.target is step.target for other in planned) for step in planned}
        for step in planned:
            name = step.target.name
            if name in outcomes:
                continue
            self.observer.step(f"{name}: {step.tool}")
            if free := _too_full(self.request.output):
                raise free
            started = time.monotonic()
            draft = self.drafts.get(name) or self._begin(step.target, made.get(step.target.shape, []))
            try:
                self._one(step, draft)
                left[name] -= 1
                draft.seconds += time.monotonic() - started
                if not left[name]:
                    outcomes[name] = self._finish(draft)
                    failures = 0
            except (TracekitError, OSError) as error:
                outcomes[name] = self._failed(draft, _as_error(error), draft.seconds + time.monotonic() - started)
                failures += 1
                if failures >= GIVE_UP_AFTER:
                    return

    def _kept(self, target: Target) -> Outcome | None:
        """The outcome of a bundle that is whole already and was made by the same request."""
        place = self.request.output / target.name
        if self.request.force or not place.exists():
            return None
        manifest = bundle.read_manifest(place)
        if manifest is None and any(place.iterdir()):
            raise UsageError(
                f"{place}: exists already and is no bundle",
                remedy="name another folder with -o, or replace it with --force",
            )
        if manifest is None or not bundle.is_whole(place):
            return None
        if manifest.ran.get("capture") != self._settings(target):
            raise UsageError(
                f"{place}: exists already and was captured with other settings",
                remedy="name another folder with -o, or capture it again with --force",
            )
        return Outcome(target.name, "kept", 0.0, counters=tuple(entry.kind or "?" for entry in manifest.counters))

    def _settings(self, target: Target) -> dict[str, Any]:
        """What a bundle depends on besides its name; recorded, so that another request does not keep it."""
        request = self.request
        out: dict[str, Any] = {"trace": list(request.trace), "window": str(self.window), "seed": request.seed}
        if self.ncu and target.repeat <= self.counter_repeats:
            out |= {
                "counters": [str(kind) for kind in request.kinds], "metrics": list(request.metrics),
                "region": request.region, "skip": request.skip, "count": request.count,
                "clock_control": request.clock_control, "counter_iterations": request.counter_iterations,
            }  # fmt: skip
        if request.workload:
            out |= {"dtype": request.dtype, "iterations": request.iterations}
        else:
            # Told apart by what it was given, without telling it: arguments may be secrets.
            given = hashlib.sha256("\0".join(request.command).encode("utf-8", "surrogateescape")).hexdigest()
            out |= {"program": Path(request.command[0]).name, "program_sha256": given}
        if request.conditions:
            out["conditions"] = dict(request.conditions)
        if request.graphs:
            out |= {"graphs": str(request.graphs), "with_construction": request.with_construction}
        return out

    # One bundle

    def _begin(self, target: Target, extras: Sequence[Path]) -> _Open:
        draft = Draft(self.request.output / target.name)
        for path in extras:
            shutil.copyfile(path, draft.folder / path.name)
        self.drafts[target.name] = _Open(target, draft)
        return self.drafts[target.name]

    def _one(self, step: Step, open_: _Open) -> None:
        if step.kind is None:
            self._timeline(open_)
        elif not self.refused:
            self._counters(open_, step.kind)

    def _timeline(self, open_: _Open) -> None:
        request, folder = self.request, open_.draft.folder / "nsys"
        folder.mkdir()
        assert self.nsys is not None
        record = folder / "record.json"
        captured = nsys.capture(
            self.nsys, folder, self._child(open_.target, request.iterations), limit_s=request.limit_s,
            environment=self._environment(record), trace=request.trace, window=self.window,
            graphs=request.graphs or (None if request.workload else Graphs.NODE),
        )  # fmt: skip
        open_.record = bundle.read_record(record)
        if request.workload and open_.record is None:
            raise CaptureError(
                f"{request.workload} did not record what it ran",
                remedy="see its lines above; it must end with exit code 0",
                quoted=captured.ended.quoted(),
            )
        written = f"Nsight Systems {self.nsys.version}" if self.nsys.version else "Nsight Systems"
        if captured.report is None:
            assert captured.stream is not None
            os.replace(captured.stream, open_.draft.folder / "timeline.qdstrm")
            open_.timeline = FileEntry("timeline.qdstrm", tool=written)
            open_.findings.append(
                Finding(
                    Level.WARN,
                    "report",
                    f"no importer here: kept as timeline.qdstrm, {_size(open_.draft.folder / 'timeline.qdstrm')}, "
                    "and not yet compared with what ran",
                    f"read it where Nsight Systems {self.nsys.version} is whole: tracekit read {open_.target.name}",
                )
            )
        else:
            nsys.export(captured.report, open_.draft.folder / "timeline.sqlite", self.nsys)
            open_.timeline = FileEntry("timeline.sqlite", tool=written)
            if request.keep_report:
                os.replace(captured.report, open_.draft.folder / f"timeline{captured.report.suffix}")
            open_.counts = verify.counts(open_.draft.folder / "timeline.sqlite")
            found = self._compared(open_)
            open_.findings += found
            if failed := [finding for finding in found if finding.level is Level.FAIL]:
                raise CaptureError(
                    "the report does not hold what ran: " + "; ".join(map(str, failed)),
                    remedy=verify.remedies(failed),
                    quoted=captured.ended.errors(3),
                )
        shutil.rmtree(folder)

    def _compared(self, open_: _Open) -> list[Finding]:
        assert open_.counts is not None
        assert self.nsys is not None
        record = open_.record
        graphs = self.request.graphs or (None if self.request.workload else Graphs.NODE)
        told = record.environment.get("nvtx") if record else None
        own = self.request.workload or Path(self.request.command[0]).name.startswith("python")
        return verify.compare(
            open_.counts,
            record.ran if record else {},
            trace=self.request.trace,
            nsys_version=self.nsys.version,
            nvtx_version=str(told) if told else self._nvtx() if own else None,
            graph_trace=str(graphs) if graphs else None,
        )

    def _counters(self, open_: _Open, kind: Kind) -> None:
        request, target = self.request, f"{kind}.ncu.csv"
        assert self.ncu is not None
        include = self._region(open_.target)
        record = open_.draft.folder / "ncu-record.json"
        path = open_.draft.folder / target
        try:
            rows = ncu.collect(
                self.ncu, path, self._child(open_.target, request.counter_iterations), kind=kind,
                metrics=request.metrics, limit_s=request.limit_s, environment=self._environment(record),
                include=include, window=self.window, clock_control=request.clock_control, skip=request.skip,
                count=request.count,
            )  # fmt: skip
        except ncu.CountersRefusedError as error:
            if self.nsys is None:
                raise
            self.refused = error.message.splitlines()[0]
            self.observer.advice(
                f"{self.refused}: going on without counters; active blocks come from the timeline's launch columns.\n"
                f"  remedy: {error.remedy}"
            )
            path.unlink(missing_ok=True)
            return
        finally:
            if record.is_file() and open_.record is None:
                open_.ncu_record = bundle.read_record(record)
            record.unlink(missing_ok=True)
        open_.counters.append(
            CounterEntry(
                target, tool=f"Nsight Compute {self.ncu.version}" if self.ncu.version else "Nsight Compute",
                replay_mode=kind.replay_mode, cache_control=kind.cache_control, clock_control=request.clock_control,
                nvtx_include=include,
            )
        )  # fmt: skip
        open_.findings.append(Finding(Level.OK, f"ncu {kind}", f"{rows} profiled"))

    def _finish(self, open_: _Open) -> Outcome:
        record = open_.record or open_.ncu_record
        if self.refused and self.counter_repeats >= open_.target.repeat:
            open_.findings.append(Finding(Level.WARN, "counters", self.refused, ncu.HOW_TO_GRANT))
        base = record or Manifest(capture_id=open_.target.name)
        ran = {**base.ran, "capture": self._settings(open_.target)}
        environment: dict[str, Any] = dict(base.environment)
        for name, tool in (("nsys", self.nsys), ("ncu", self.ncu if open_.counters else None)):
            if tool is not None and tool.version:
                environment[name] = tool.version
        if self.request.graphs:
            environment["graph_trace"] = str(self.request.graphs)
        environment["date"] = datetime.date.today().isoformat()
        order = list(Kind)
        have = {path.name for path in open_.draft.folder.iterdir()}
        manifest = replace(
            base,
            capture_id=open_.target.name,
            workload=base.workload or self.label,
            variant=base.variant or open_.target.variant or (None if self.request.workload else self.label),
            conditions={**base.conditions, **self.request.conditions},
            environment=environment,
            ran=ran,
            timeline=open_.timeline,
            counters=tuple(sorted(open_.counters, key=lambda entry: order.index(Kind(str(entry.kind))))),
            bench=FileEntry("bench.json") if "bench.json" in have else None,
            quality=FileEntry("quality.json") if "quality.json" in have else None,
        )
        open_.draft.finish(manifest)
        del self.drafts[open_.target.name]
        _log(self.request.output, open_.target.name).unlink(missing_ok=True)
        return Outcome(
            open_.target.name, "captured", open_.seconds, tuple(open_.findings), counts=open_.counts,
            counters=tuple(str(entry.kind) for entry in manifest.counters),
        )  # fmt: skip

    def _failed(self, open_: _Open, error: TracekitError, seconds: float) -> Outcome:
        open_.draft.discard()
        self.drafts.pop(open_.target.name, None)
        try:
            _log(self.request.output, open_.target.name).write_text(f"{error}\n", "utf-8", "replace")
        except OSError as full:
            self.observer.advice(f"{_log(self.request.output, open_.target.name)}: {full.strerror}")
        self.observer.advice(f"{open_.target.name}: {error}")
        return Outcome(
            open_.target.name, "failed", seconds, tuple(open_.findings), error=error.message.splitlines()[0],
            counts=open_.counts,
        )  # fmt: skip

    # What runs

    def _child(self, target: Target, iterations: int) -> list[str]:
        request = self.request
        if not request.workload:
            return list(request.command)
        command = [request.python, "-m", "workloads", "run", request.workload]
        command += ["--variant", str(target.variant), "--shape", str(target.shape), "--dtype", request.dtype]
        command += ["--iterations", str(iterations), "--graph" if target.graph else "--no-graph"]
        command += ["--seed", str(request.seed)]
        return command + (["--with-construction"] if request.with_construction else [])

    def _environment(self, record: Path) -> dict[str, str]:
        return {**self.environment, "TRACEKIT_RECORD": str(record.absolute())}

    def _region(self, target: Target) -> str | None:
        """The NVTX filter of counters: the region asked for, or the workload's root range; None for all launches."""
        if self.request.region is not None:
            return nvtx_filter(self.request.region, domain="tracekit" if self.request.workload else "")
        if self.listed is None:
            return None
        tokens = next(shape["tokens"] for shape in self.listed["shapes"] if shape["name"] == target.shape)
        return nvtx_filter(str(RootLabel(str(target.variant), int(tokens), str(self.listed.get("phase", "iter")))))

    def _nvtx(self) -> str | None:
        """The version of nvtx that a program run by the same interpreter imports."""
        if Path(self.request.python).resolve() != Path(sys.executable).resolve():
            return None
        try:
            return importlib.metadata.version("nvtx")
        except importlib.metadata.PackageNotFoundError:
            return None

    def _processes(self) -> int:
        """Fresh processes of the bench, since the process is the unit of repetition; 0 for blocks in one."""
        request = self.request
        if request.processes is None:
            return request.repeats if request.repeats > 1 else 0
        return request.processes

    def _bench_options(self) -> list[str]:
        """How the bench is run; empty where it is not."""
        processes = self._processes()
        if not self.request.blocks:
            return []
        return ["--processes", str(processes)] if processes else ["--blocks", str(self.request.blocks)]

    def _kept_bench(self, shape: str | None, kept: Sequence[Target]) -> Path | None:
        """The bench of a kept bundle of that shape, where it has every variant as often as asked.

        A resumed set goes on with it: samples of another run would not be interleaved with those that are there.
        """
        asked = self._processes() or self.request.blocks
        for target in kept:
            path = self.request.output / target.name / "bench.json"
            try:
                samples = json.loads(path.read_text("utf-8"))["samples"]
                times = {
                    name: len({(s["process"], s["block"]) for s in samples if s["variant"] == name})
                    for name in self.variants
                }
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if target.shape == shape and all(count >= asked for count in times.values()):
                return path
        return None

    def _bench_and_quality(self, shape: str | None, kept: Sequence[Target], scratch: Path) -> list[Path]:
        """bench.json and quality.json of all variants at one shape; advice where one of them cannot be made."""
        request, made = self.request, []
        common = ["--variants", ",".join(map(str, self.variants)), "--shapes", str(shape), "--dtype", request.dtype]
        graph = "--graph" if request.graphs else "--no-graph"
        how = self._bench_options()
        wanted = {"bench": [*common, *how, graph, "--seed", str(request.seed)]} if how else {}
        if wanted and (there := self._kept_bench(shape, kept)):
            made.append(there)
            del wanted["bench"]
        if request.quality:
            wanted["quality"] = common
        for what, options in wanted.items():
            self.observer.step(f"{request.workload} {shape}: {what}")
            folder = scratch / str(len(list(scratch.iterdir())))
            folder.mkdir()
            path = folder / f"{what}.json"
            command = [request.python, "-m", "workloads", what, str(request.workload), *options, "-o", str(path)]
            limit_s = request.limit_s * max(1, self._processes())
            ended = process.run(command, limit_s=limit_s, environment=self.environment)
            if path.is_file() and (ended.code == 0 or what == "quality"):
                made.append(path)
            if ended.code != 0:
                self.observer.advice(
                    f"{what} of {request.workload} at {shape} {ended.how}"
                    + ("" if path.is_file() else f": the bundles have no {what}.json")
                    + "".join(f"\n  | {line}" for line in ended.quoted(4))
                )
        return made


@dataclass
class _Open:
    """A bundle between its first step and its last."""

    target: Target
    draft: Draft
    record: Manifest | None = None
    ncu_record: Manifest | None = None
    timeline: FileEntry | None = None
    counts: Counts | None = None
    seconds: float = 0.0
    counters: list[CounterEntry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def _listed(request: Request) -> dict[str, Any]:
    """What ``python -m workloads list`` tells of the workload, with the shapes asked for."""
    command = [request.python, "-m", "workloads", "list", str(request.workload), "--format", "json"]
    ended = process.run(command + (["--shapes", ",".join(request.shapes)] if request.shapes else []), limit_s=60)
    start = re.search(r"^\[", ended.output, re.MULTILINE)
    try:
        found = json.JSONDecoder().raw_decode(ended.output[start.start() :])[0] if start and not ended.code else None
        listed = found[0] if found else None
    except (ValueError, TypeError, LookupError):
        listed = None
    if refused := re.search(r"^error: (.+?)(?:\n +remedy: (.+))?$", ended.output, re.MULTILINE) if ended.code else None:
        own = "; or your own program: tracekit capture -o DIR -- COMMAND"
        raise UsageError(refused[1], remedy=(refused[2] or "see python -m workloads list") + own)
    if listed is None:
        raise UsageError(
            f"`python -m workloads list` {ended.how}" + "".join(f"\n  | {line}" for line in ended.quoted(2)),
            remedy="run it in a checkout of tracekit, whose workloads it captures; your own program: "
            "tracekit capture -o DIR -- COMMAND",
        )
    return dict(listed)


def _too_full(folder: Path) -> CaptureError | None:
    free = shutil.disk_usage(folder).free
    if free >= NEEDED_BYTES:
        return None
    return CaptureError(
        f"{folder}: {free / 1e6:,.0f} MB are free, and a capture can take {NEEDED_BYTES / 1e6:,.0f} MB",
        remedy="free space there, or name another folder with -o; finished bundles are kept",
    )


def _as_error(error: TracekitError | OSError) -> TracekitError:
    if isinstance(error, TracekitError):
        return error
    where = f"{error.filename}: " if error.filename else ""
    return CaptureError(f"{where}{error.strerror or error}", remedy="free space there, or name another folder with -o")


def _log(folder: Path, name: str) -> Path:
    """Where the reason of a failure is kept."""
    return folder / f"{name}.failed.log"


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:,.1f} MB"
