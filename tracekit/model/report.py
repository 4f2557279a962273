"""What analysis and comparison end in: plain immutable results that every renderer reads and none computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.model.labels import Path
from tracekit.model.verdict import MARGIN, Verdict

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Metric:
    """A metric of a region over its instances.

    ``value`` is the median (or a text, for metrics that are words), ``p20`` and ``p80`` are linear quantiles,
    ``sum`` is exact over all instances and only given where instances add up. None is missing; the region's notes
    say why. ``kind`` labels DRAM bytes; ``kinds`` holds the same metric in every kind that was captured.
    """

    value: float | int | str | None
    unit: str
    p20: float | int | None = None
    p80: float | int | None = None
    sum: int | float | None = None
    kind: str | None = None
    kinds: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelTotal:
    """All executions of one kernel name in a region: exact totals over all instances.

    ``busy_ns`` is their time not covered by earlier operations of the same region instance, so that the names of a
    region sum to its busy time; ``duration_ns`` is the plain sum of end - start. Both are None without a timeline.
    """

    name: str
    count: int
    busy_ns: int | None
    duration_ns: int | None


@dataclass(frozen=True)
class Region:
    """A path of NVTX labels with its metrics."""

    path: Path
    instances: int
    metrics: Mapping[str, Metric]
    kernels: tuple[KernelTotal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """How much of the device's work found its launch call and its range."""

    operations: int
    attributed: int
    without_call: int


@dataclass(frozen=True)
class Latency:
    """Untraced latency of a step under one protocol: quantiles over processes, in ns.

    ``samples_ns`` has one figure a process, in the order run, and ``blocks`` the interleaved block of each (None where
    not recorded). ``sm_clock_mhz`` is the median clock of the SMs after the samples, where recorded. ``phase`` is the
    part of a request that it is the latency of; None for the whole step or request. ``run`` is the run of the bench:
    samples of two runs were not interleaved, whatever their blocks are called. None where not recorded.
    """

    protocol: str
    processes: int
    median_ns: float
    p20_ns: float
    p80_ns: float
    samples_ns: tuple[float, ...]
    blocks: tuple[int | None, ...] = ()
    sm_clock_mhz: float | None = None
    phase: str | None = None
    run: str | None = None


@dataclass(frozen=True)
class Report:
    """One capture, analyzed. ``phases`` are the untraced latencies of the parts of a request, where measured.

    ``frames`` holds the derived tables by name, for scripts and charts.
    """

    capture: Mapping[str, Any]
    coverage: Coverage
    regions: tuple[Region, ...]
    kernels: tuple[KernelTotal, ...]
    latency: tuple[Latency, ...] = ()
    notes: tuple[str, ...] = ()
    phases: tuple[Latency, ...] = ()
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def region(self, path: Path) -> Region:
        """The region of that path; KeyError where there is none."""
        for region in self.regions:
            if region.path == path:
                return region
        raise KeyError(path)


@dataclass(frozen=True)
class Interval:
    """A ratio test / base (or a level, where so said) with its confidence interval; ends are None where not known."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Outlier:
    """A process far from the others of its side: shown and kept."""

    side: str
    value_ns: float
    block: int | None


@dataclass(frozen=True)
class Estimate:
    """The ratio test / base of an untraced latency, from repeated processes, and the verdict on it.

    ``interval`` is the one that decides: ``student``, or ``robust`` where outliers made ``decided_by`` so. ``method``
    is paired, unpaired, identical (both sides are the same samples), single, too_few or none. ``spread`` holds standard
    deviations of logarithms: of the paired ratios, or of each side. ``detectable_ratio`` is the smallest relative
    change that these repeats would find; ``more_repeats`` how many more would settle this one (None: above 1,000).
    ``cannot_tell`` is a code for what the samples leave open: one_side_only, single_process, too_few, few_processes.
    """

    method: str
    verdict: Verdict
    base_processes: int
    test_processes: int
    margin: float = MARGIN
    confidence: float = 0.95
    pairs: int | None = None
    interval: Interval | None = None
    student: Interval | None = None
    robust: Interval | None = None
    decided_by: str | None = None
    outliers: tuple[Outlier, ...] = ()
    spread: tuple[float, ...] = ()
    detectable_ratio: float | None = None
    more_repeats: int | None = None
    cannot_tell: str | None = None


@dataclass(frozen=True)
class Change:
    """A metric on both sides. ``delta`` is test - base and ``ratio`` test / base; None where either is missing.

    ``verdict`` is None where the figures differ and no direction is better. Without an ``estimate`` it says that these
    two captures differ, not that other processes would.
    """

    base: float | int | str | None
    test: float | int | str | None
    delta: float | int | None
    ratio: float | None
    unit: str
    better: str
    kind: str | None = None
    verdict: Verdict | None = None
    estimate: Estimate | None = None


@dataclass(frozen=True)
class KernelMatch:
    """A group of kernels of one region: ``same`` name, ``renamed`` (equal by ``rules``), ``replaced`` by others,
    ``only_base`` or ``only_test``."""

    match: str
    base: tuple[KernelTotal, ...]
    test: tuple[KernelTotal, ...]
    rules: tuple[str, ...] = ()

    @property
    def busy_delta_ns(self) -> int | None:
        """Busy time of the group, test - base; None where a side has none or does not know it."""
        sides = [[kernel.busy_ns for kernel in side] for side in (self.base, self.test)]
        known = [[value for value in side if value is not None] for side in sides]
        whole = all(side and len(own) == len(side) for side, own in zip(sides, known, strict=True))
        return sum(known[1]) - sum(known[0]) if whole else None


@dataclass(frozen=True)
class RegionPair:
    """A region on both sides. A side's path is None where the region exists on the other side only."""

    path: Path
    base_path: Path | None
    test_path: Path | None
    base_instances: int
    test_instances: int
    metrics: Mapping[str, Change]
    kernels: tuple[KernelMatch, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mismatch:
    """A condition that differs between the two captures."""

    condition: str
    base: Any
    test: Any
    waived: bool


@dataclass(frozen=True)
class DriftControl:
    """Kernels that both sides run alike: their change shows clocks or temperature, not the kernel change.

    ``ratio`` is the test side's median durations over the base side's, weighted by base time; None without any.
    ``enough`` is whether they are enough of the base's kernel time to tell anything.
    """

    kernels: int
    base_ns: float
    test_ns: float
    ratio: float | None
    sentence: str
    enough: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure that a reason or a finding cites. ``side`` is base, test, delta (test - base), ratio, both or limit."""

    name: str
    value: float | int | str | None
    unit: str
    side: str


@dataclass(frozen=True)
class Reason:
    """Why a step became faster or slower: a code, the figures it rests on, and what it adds to a step where known.

    ``role`` is because (it goes the way of the whole change), although (against it), limit (it bounds what the change
    could do) or doubt (it weakens the comparison). ``effect_ns`` is negative where it saves time; ``measured`` is
    False where it is an estimate from a model and not a difference of measured times.
    """

    code: str
    role: str
    effect_ns: float | None
    measured: bool
    figures: tuple[Figure, ...]
    path: Path | None = None

    def figure(self, name: str, side: str) -> float | int | str | None:
        """The value of a figure; None where it is missing or not cited."""
        return figure(self.figures, name, side)


@dataclass(frozen=True)
class Finding:
    """A row of the five-row table as data: its topic's code, the figures of both sides, and codes of what they mean.

    ``topic`` is launches, dram, resources, blocks or latency. ``path`` is the region that the figures are from.
    """

    topic: str
    figures: tuple[Figure, ...]
    meaning: tuple[str, ...]
    reasons: tuple[Reason, ...]
    path: Path

    def figure(self, name: str, side: str) -> float | int | str | None:
        """The value of a figure; None where it is missing or not cited."""
        return figure(self.figures, name, side)


def figure(figures: tuple[Figure, ...], name: str, side: str) -> float | int | str | None:
    """The value of the figure of that name and side; None where there is none."""
    return next((item.value for item in figures if (item.name, item.side) == (name, side)), None)


@dataclass(frozen=True)
class Step:
    """A step of a waterfall: what changed, and by how many ns from base to test. ``measured`` as of a reason."""

    name: str
    delta_ns: int
    measured: bool


@dataclass(frozen=True)
class Waterfall:
    """From the base's time to the test's: ``base_ns`` plus every step's ``delta_ns`` is ``test_ns``, exactly.

    ``basis`` is untraced (medians of untraced latency, under ``protocol``) or traced (the ledger of ``instances`` root
    instances of each side, those closest to the median wall: totals over them). ``idle_parts`` are the traced gap parts
    of both sides a step, (name, base, test): they explain exposed time and do not measure it. ``dilation`` is each
    side's traced wall over its untraced latency. ``figures`` are what the split of busy time was computed from.
    """

    basis: str
    protocol: str | None
    path: Path
    instances: int
    base_ns: int
    test_ns: int
    steps: tuple[Step, ...]
    idle_parts: tuple[tuple[str, float | None, float | None], ...] = ()
    dilation: tuple[float | None, float | None] = (None, None)
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class RegionDelta:
    """Charged device time of a region over the traced waterfall's instances of both sides, in ns.

    ``direct_delta_ns`` leaves out the regions inside it: over all regions of a root they sum to the root's delta.
    """

    path: Path
    base_ns: int
    test_ns: int
    delta_ns: int
    direct_delta_ns: int


@dataclass(frozen=True)
class Answer:
    """Did it help? The verdict of the whole comparison, what it rests on, and the reasons in order of contribution.

    ``basis`` is untraced or traced (then nothing untraced was measured on both sides), or none. ``change`` is fusion
    where fewer kernels remain, else change; ``subject`` request, decode, prefill or step. ``interval`` is the ratio
    test / base.
    """

    verdict: Verdict
    basis: str
    protocol: str | None
    change: str
    subject: str
    path: Path | None
    interval: Interval | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class GateCheck:
    """One match of a gate's rule, judged: passed, failed, undetermined, or unmeasured beside others that are measured.

    ``path`` is None for figures of the whole request, of which ``protocol`` says which. ``found`` is what was held
    against ``limit``: a relative change, a difference or the test's figure, as ``kind`` says; ``low`` and ``high`` are
    its interval where there is one.
    """

    rule: str
    metric: str
    path: Path | None
    protocol: str | None
    kind: str
    outcome: str
    found: float | None
    low: float | None
    high: float | None
    limit: float
    unit: str
    base: float | int | str | None
    test: float | int | str | None


@dataclass(frozen=True)
class Gate:
    """Every check of a gate. ``outcome`` is failed, undetermined or passed: the worst of its rules."""

    checks: tuple[GateCheck, ...]
    failed_quality: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """Failed where a check or the test's quality failed."""
        found = {check.outcome for check in self.checks}
        if self.failed_quality or "failed" in found:
            return "failed"
        return "undetermined" if "undetermined" in found else "passed"

    @property
    def exit_code(self) -> int:
        """0 where all passed, 1 where one failed, 4 where one cannot be told."""
        return {"passed": 0, "failed": 1, "undetermined": 4}[self.outcome]


@dataclass(frozen=True)
class Traffic:
    """DRAM bytes of one side of a region in one kind; None is missing. ``achieved_bytes_per_second`` is of busy time,
    and only of in-model bytes. ``least_bytes`` is the workload's lower bound of reads and writes together."""

    path: Path
    side: str
    kind: str
    read_bytes: float | None
    write_bytes: float | None
    least_bytes: float | None
    busy_ns: float | None
    achieved_bytes_per_second: float | None


@dataclass(frozen=True)
class RoofPoint:
    """A side's root on the roofline: FLOPs a byte of in-model DRAM traffic, and FLOPs a second of busy time."""

    path: Path
    side: str
    flops_per_byte: float
    flops_per_second: float


@dataclass(frozen=True)
class Roof:
    """The peaks of the GPU, None where unknown, and the points beneath them; ``notes`` say what is missing, and why."""

    bytes_per_second: float | None
    flops_per_second: float | None
    points: tuple[RoofPoint, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Two captures, compared.

    ``latency`` is by protocol, ``phases`` by (phase, protocol): the parts of a request, where both sides measured them.
    ``findings`` are the five rows of the main region, ``matching`` says what regions are: ranges (NVTX), steps (found
    from the repeating sequence of launches) or trace (everything as one).
    """

    base: Report
    test: Report
    comparable: bool
    mismatches: tuple[Mismatch, ...]
    unknown: tuple[str, ...]
    regions: tuple[RegionPair, ...]
    latency: Mapping[str, Change]
    drift: DriftControl
    notes: tuple[str, ...] = ()
    answer: Answer | None = None
    findings: tuple[Finding, ...] = ()
    waterfalls: tuple[Waterfall, ...] = ()
    region_deltas: tuple[RegionDelta, ...] = ()
    matching: str = "ranges"
    phases: Mapping[tuple[str, str], Change] = field(default_factory=dict)
    traffic: tuple[Traffic, ...] = ()
    roof: Roof | None = None

    def frame(self, name: str) -> pd.DataFrame:
        """A part of the comparison as a pandas frame: regions (a row a metric of a region), latency, reasons,
        waterfalls (a row a step), region_deltas or kernels (a row a kernel of a match). KeyError for another name."""
        import pandas as pd

        return pd.DataFrame(_ROWS[name](self))


@dataclass(frozen=True)
class MatrixCell:
    """A variant against the baseline at one shape. ``shape`` has the conditions that vary within the matrix."""

    workload: str
    variant: str
    shape: tuple[tuple[str, Any], ...]
    base: str
    test: str
    verdict: Verdict
    basis: str
    interval: Interval | None
    reasons: tuple[Reason, ...]
    gate: Gate | None = None


@dataclass(frozen=True)
class Crossover:
    """A variant along a size: (size, verdict, ratio) at each, and between which sizes better turns into worse or back.

    ``rest`` are the other conditions that vary. ``intervals`` are those of each point's ratio, None where not known.
    ``crossings`` are the sizes at which the ratio passes 1, one for each turn: by a straight line between the two
    points in logarithms of size and ratio.
    """

    workload: str
    variant: str
    rest: tuple[tuple[str, Any], ...]
    along: str
    points: tuple[tuple[float, Verdict, float | None], ...]
    turns: tuple[tuple[float, float], ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    crossings: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """Every variant of the workloads of a folder against its baseline; bundles left out, with the reason."""

    baselines: Mapping[str, str]
    cells: tuple[MatrixCell, ...]
    crossovers: tuple[Crossover, ...]
    left_out: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """That of the worst gate: 1 where one failed, else 4 where one is undetermined."""
        codes = {cell.gate.exit_code for cell in self.cells if cell.gate is not None}
        return 1 if 1 in codes else 4 if 4 in codes else 0


def _metric_rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {"path": pair.path, "metric": metric, **_flat(change)}
        for metric in dict.fromkeys(name for pair in comparison.regions for name in pair.metrics)
        for pair in comparison.regions
        if (change := pair.metrics.get(metric)) is not None
    ]


def _flat(change: Change) -> dict[str, Any]:
    names = ("base", "test", "delta", "ratio", "unit", "better", "kind", "verdict")
    return {name: getattr(change, name) for name in names}


def _kernel_rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {"path": pair.path, "match": match.match, "side": side, "name": kernel.name, "count": kernel.count,
         "busy_ns": kernel.busy_ns, "duration_ns": kernel.duration_ns}
        for pair in comparison.regions
        for match in pair.kernels
        for side, kernels in (("base", match.base), ("test", match.test))
        for kernel in kernels
    ]  # fmt: skip


_ROWS: Mapping[str, Callable[[Comparison], list[dict[str, Any]]]] = {
    "regions": _metric_rows,
    "latency": lambda c: [{"protocol": name, **_flat(change)} for name, change in c.latency.items()],
    "reasons": lambda c: [
        {"code": r.code, "role": r.role, "effect_ns": r.effect_ns, "measured": r.measured, "path": r.path}
        for r in (c.answer.reasons if c.answer else ())
    ],
    "waterfalls": lambda c: [
        {"basis": w.basis, "instances": w.instances, "step": step.name, "delta_ns": step.delta_ns,
         "measured": step.measured}
        for w in c.waterfalls
        for step in w.steps
    ],
    "region_deltas": lambda c: [vars(delta) for delta in c.region_deltas],
    "kernels": _kernel_rows,
}  # fmt: skip
"""What each frame of a comparison is made of."""
