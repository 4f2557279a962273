"""Rules that turn figures into reasons: each looks at one cause, cites its figures, and says what it adds to a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracekit.compare.waterfall import bandwidth, dram_delta, drifted, shortest_kernel
from tracekit.model.report import Change, DriftControl, Figure, Reason, Region, RegionPair, Report, Waterfall
from tracekit.model.units import Unit
from tracekit.model.verdict import MARGIN

_SPILL_BYTES: Final = 32 * 4
"""A spill instruction moves a register (4 bytes) of each of a warp's 32 threads, at most."""

_MATTERS: Final = 0.1
"""A cause with less than this share of the change is no main cause."""

_BOUND: Final = 0.6
"""A pipe at this share of its peak bounds its kernel."""

_GRAPHED: Final = 4
"""A side whose kernels outnumber its launch calls by this much launches them by CUDA graph."""

_TAIL: Final = 0.1
"""A last wave that leaves this share of the SMs' time empty is worth telling."""

_MOSTLY: Final = 0.5


@dataclass(frozen=True)
class Case:
    """What the rules look at: the main region, every region, both captures, the drift control and the waterfall."""

    pair: RegionPair
    pairs: Sequence[RegionPair]
    base: Report
    test: Report
    drift: DriftControl
    waterfall: Waterfall | None

    def change(self, name: str) -> Change | None:
        """A metric of the main region."""
        return self.pair.metrics.get(name)

    def number(self, name: str, side: str, pair: RegionPair | None = None) -> float | None:
        """One side of a metric as a number, by default of the main region; None where it is missing."""
        change = (pair or self.pair).metrics.get(name)
        value = getattr(change, side) if change else None
        return float(value) if isinstance(value, int | float) else None

    def inside(self) -> list[RegionPair]:
        """The main region and those inside it, outermost first."""
        path = self.pair.path
        return sorted((p for p in self.pairs if p.path[: len(path)] == path), key=lambda p: len(p.path))

    def each_step(self, pair: RegionPair) -> float:
        """How often a region runs in a step of the test."""
        return pair.test_instances / self.pair.test_instances if self.pair.test_instances else 1.0

    @property
    def exposed(self) -> tuple[float, float] | None:
        """Time of a step in which the device idles, on both sides: untraced where measured, else traced."""
        if self.waterfall is None:
            gaps = [self.number("gap_ns", side) for side in ("base", "test")]
            return (gaps[0], gaps[1]) if gaps[0] is not None and gaps[1] is not None else None
        if self.waterfall.basis == "untraced":
            found = [f.value for f in self.waterfall.figures if f.name == "exposed_ns"]
            return (float(found[0]), float(found[1])) if len(found) == 2 else None  # type: ignore[arg-type]
        sides = []
        for side in ("base", "test"):
            wall, busy = self.number("wall_ns", side), self.number("busy_ns", side)
            if wall is None or busy is None:
                return None
            sides.append(wall - busy)
        return sides[0], sides[1]


def reasons(case: Case, total_ns: float | None) -> tuple[Reason, ...]:
    """Every rule's reason: first those that go the way of ``total_ns`` (test - base), by their size; then the others.

    A cause that adds less than a tenth of the margin to the base's time is left out.
    """
    found = [reason for rule in _RULES for reason in rule(case)]
    least = MARGIN / 10 * abs(case.waterfall.base_ns / case.waterfall.instances) if case.waterfall else 0.0
    kept = [reason for reason in found if reason.effect_ns is None or abs(reason.effect_ns) >= least]
    kept = [replace(reason, role=_role(reason, total_ns)) for reason in kept]
    causes = any(reason.code in _CAUSES and reason.role == "because" for reason in kept)

    def order(reason: Reason) -> tuple[int, bool, float]:
        # That kernels are slower is what a cause explains, however large it is: the causes come first.
        explained = causes and reason.code == "kernels_replaced_slower"
        return _ROLES.index(reason.role), explained, -abs(reason.effect_ns or 0.0)

    return tuple(sorted(kept, key=order))


_ROLES: Final = ("because", "although", "limit", "doubt")
_CAUSES: Final = {"grid_too_small", "spills_matter", "spills_minor", "tail_wave", "dram_bytes_added"}


def _role(reason: Reason, total_ns: float | None) -> str:
    if reason.effect_ns is None or reason.role in ("limit", "doubt"):
        return reason.role
    return "because" if not total_ns or reason.effect_ns * total_ns > 0 else "although"


def _both(case: Case, name: str, unit: str, pair: RegionPair | None = None) -> tuple[Figure, ...]:
    change = (pair or case.pair).metrics.get(name)
    if change is None:
        return ()
    sides = [(change.base, "base"), (change.test, "test"), (change.delta, "delta")]
    return tuple(Figure(name, value, unit, side) for value, side in sides)


def _launches(case: Case) -> Iterable[Reason]:
    """Fewer or more launches, and the exposed time that went with them."""
    calls, kernels, exposed = case.change("launch_call_count"), case.change("kernel_count"), case.exposed
    if exposed is None or calls is None or kernels is None:
        return
    fewer = calls.delta if calls.delta is not None else kernels.delta
    effect = exposed[1] - exposed[0]
    if not fewer:
        return
    figures = (
        *_both(case, "kernel_count", Unit.COUNT),
        *_both(case, "launch_call_count", Unit.COUNT),
        Figure("exposed_ns", exposed[0], Unit.NS, "base"),
        Figure("exposed_ns", exposed[1], Unit.NS, "test"),
        Figure("exposed_ns", effect, Unit.NS, "delta"),
    )
    graphed = [is_graphed(case, side) for side in ("base", "test")]
    if graphed == [False, True]:
        yield Reason("launched_by_graph", "because", effect, True, figures)
    elif graphed == [True, False]:
        yield Reason("graph_gone", "because", effect, True, figures)
    elif fewer * effect > 0 and not all(graphed):
        yield Reason("launches_removed" if fewer < 0 else "launches_added", "because", effect, True, figures)
    elif effect:
        yield Reason("exposed_time", "because", effect, True, figures)


def is_graphed(case: Case, side: str) -> bool:
    """Whether a side launches the step's kernels by CUDA graph."""
    calls, kernels = case.number("launch_call_count", side), case.number("kernel_count", side)
    return bool(calls and kernels and kernels >= _GRAPHED * calls)


def _already_graphed(case: Case) -> Iterable[Reason]:
    """A graph has no host time left to save: only the kernels' own time is."""
    kernels = case.change("kernel_count")
    if kernels is not None and kernels.delta and all(is_graphed(case, side) for side in ("base", "test")):
        figures = (*_both(case, "kernel_count", Unit.COUNT), *_both(case, "launch_call_count", Unit.COUNT))
        yield Reason("already_graph_captured", "limit", None, True, figures)


def _kernels_replaced(case: Case) -> Iterable[Reason]:
    """The kernels that one side alone has: what took their place took more or less time. Measured, from the traces."""
    busy, counts = [0.0, 0.0], [0.0, 0.0]
    for match in case.pair.kernels:
        if match.match in ("same", "renamed"):
            continue
        sides = ((0, match.base, case.pair.base_instances), (1, match.test, case.pair.test_instances))
        for at, kernels, instances in sides:
            for kernel in kernels:
                if kernel.busy_ns is None or not instances:
                    return
                busy[at] += kernel.busy_ns / instances
                counts[at] += kernel.count / instances
    effect = busy[1] - busy[0]
    if not any(counts) or not effect:
        return
    figures = [Figure("replaced_kernel_count", count, Unit.COUNT, s) for count, s in zip(counts, _SIDES, strict=True)]
    figures += [Figure("replaced_busy_ns", time, Unit.NS, s) for time, s in zip(busy, _SIDES, strict=True)]
    figures.append(Figure("replaced_busy_ns", effect, Unit.NS, "delta"))
    cost = shortest_kernel(case.base, case.test)
    if cost is not None:
        figures.append(Figure("kernel_fixed_ns", cost, Unit.NS, "both"))
    code = "kernels_replaced_faster" if effect < 0 else "kernels_replaced_slower"
    yield Reason(code, "because", effect, True, tuple(figures))


_SIDES: Final = ("base", "test")


def _bytes(case: Case) -> Iterable[Reason]:
    """DRAM bytes where they were counted in one cache state on both sides: of the outermost such regions."""
    measured = next((pair for pair in case.inside() if dram_delta(pair) is not None), None)
    peak = bandwidth(case.base, case.test)
    if measured is None:
        return
    delta = dram_delta(measured)
    read, written = measured.metrics["dram_read_bytes"], measured.metrics["dram_write_bytes"]
    before = _sum(read.base, written.base)
    if delta is None or before is None:
        return
    ratio = 1 + delta / before if before else None
    of_step = read.kind == "in_model" or case.number("busy_ns", "base") is not None
    figures = (
        *_both(case, "dram_read_bytes", Unit.BYTES, measured),
        *_both(case, "dram_write_bytes", Unit.BYTES, measured),
        Figure("dram_bytes", before, Unit.BYTES, "base"),
        Figure("dram_bytes", before + delta, Unit.BYTES, "test"),
        Figure("dram_bytes", delta, Unit.BYTES, "delta"),
        Figure("dram_bytes", ratio, Unit.RATIO, "ratio"),
        Figure("cache_state", read.kind, Unit.TEXT, "both"),
        *(
            Figure("lower_bound_bytes", report.capture.get("lower_bound_bytes"), Unit.BYTES, side)
            for side, report in zip(_SIDES, (case.base, case.test), strict=True)
            if report.capture.get("lower_bound_bytes") is not None and measured is case.pair and of_step
        ),
    )
    if ratio is not None and abs(ratio - 1) > MARGIN:
        effect = delta / peak * 1e9 * case.each_step(measured) if peak else None
        code = "dram_bytes_removed" if delta < 0 else "dram_bytes_added"
        yield Reason(code, "because" if effect is not None else "limit", effect, False, figures, measured.path)
    else:
        reuse = _reuse_distance(case)
        if reuse is not None:
            yield Reason("intermediates_in_l2", "limit", None, True, (*figures, *reuse[1]), reuse[0])
        else:
            yield Reason("dram_bytes_unchanged", "limit", None, True, figures, measured.path)


def _reuse_distance(case: Case) -> tuple[tuple[str, ...], tuple[Figure, ...]] | None:
    """Where kernels went, an upper bound of how many bytes pass between a value's write and its last use.

    All that the region's kernels read and write, each starting from flushed caches, is at least what lies between any
    two of them. Where that is less than L2, every intermediate of the region is reused from L2, whatever its size.
    """
    sizes = [gpu.get("l2_bytes") for gpu in case.base.capture["gpus"]]
    if not sizes or not all(sizes):
        return None
    cache = min(sizes)
    found: list[tuple[float, RegionPair]] = []
    holding = {pair.path[:-1] for pair in case.pairs}
    of_base = {region.path: region for region in case.base.regions}
    for pair in case.inside():
        kernels = pair.metrics.get("kernel_count")
        if kernels is None or not kernels.delta or kernels.delta > 0 or pair is case.pair:
            continue
        if pair.path in holding or pair.base_path is None:
            continue
        touched = _touched_bytes(of_base[pair.base_path])
        if touched is not None:
            found.append((touched, pair))
    within = [(size, pair) for size, pair in found if size <= cache]
    if not within or len(within) * 2 < len(found):
        return None
    size, pair = max(within, key=lambda item: item[0])
    figures = (
        Figure("reuse_distance_bytes", size, Unit.BYTES, "base"),
        Figure("l2_bytes", cache, Unit.BYTES, "limit"),
    )
    return pair.path, figures


def _touched_bytes(region: Region) -> float | None:
    """Bytes that a region's kernels touch, each from flushed caches (cold); None where not counted so."""
    total = 0.0
    for name in ("dram_read_bytes", "dram_write_bytes"):
        metric = region.metrics.get(name)
        cold = metric.kinds.get("cold") if metric else None
        if cold is None or not isinstance(cold.value, int | float):
            return None
        total += cold.value
    return total


def _spills(case: Case) -> Iterable[Reason]:
    """Spill instructions that the test executes and the base does not, and how much traffic they can make."""
    for pair in case.inside():
        after, before = (case.number("spill_instruction_count", side, pair) for side in ("test", "base"))
        if after is None:
            continue
        if after > (before or 0.0):
            moved = (after - (before or 0.0)) * _SPILL_BYTES
            peak = bandwidth(case.base, case.test)
            effect = moved / peak * 1e9 * case.each_step(pair) if peak else None
            busy = pair.metrics.get("busy_ns")
            change = abs(busy.delta) * case.each_step(pair) if busy is not None and busy.delta else None
            share = effect / change if effect is not None and change else None
            figures = (
                Figure("spill_instruction_count", before, Unit.COUNT, "base"),
                Figure("spill_instruction_count", after, Unit.COUNT, "test"),
                Figure("spill_bytes", moved, Unit.BYTES, "test"),
                Figure("registers_count", case.number("registers_count", "test", pair), Unit.COUNT, "test"),
                Figure("spill_share", share, Unit.RATIO, "ratio"),
            )
            code = "spills_matter" if share is None or share >= _MATTERS else "spills_minor"
            yield Reason(code, "because" if effect is not None else "limit", effect, False, figures, pair.path)
        return


def _sm_share(case: Case, side: str) -> float | None:
    """The share of the SMs that get a block of the dominant kernel at all; None where unknown or a wave is full."""
    waves, blocks = case.number("waves", side), case.number("active_blocks_count", side)
    return min(1.0, waves * blocks) if waves is not None and blocks is not None else None


def _dominant_busy(case: Case) -> float | None:
    """Busy time of the test's dominant kernel in a step."""
    times = [kernel.busy_ns for match in case.pair.kernels for kernel in match.test if kernel.busy_ns is not None]
    return max(times, default=0) / case.pair.test_instances if times and case.pair.test_instances else None


def _grid(case: Case) -> Iterable[Reason]:
    """A grid with fewer blocks than SMs, on the side that grew slower for it."""
    shares = [_sm_share(case, side) for side in _SIDES]
    busy = _dominant_busy(case)
    if shares[1] is None or busy is None or shares[1] >= 1 - MARGIN:
        return
    if shares[0] is not None and shares[0] <= shares[1] + MARGIN:
        return
    sms = next((gpu.get("sm_count") for gpu in case.test.capture["gpus"]), None)
    figures = [
        *_both(case, "waves", Unit.WAVES),
        Figure("sm_share", shares[0], Unit.RATIO, "base"),
        Figure("sm_share", shares[1], Unit.RATIO, "test"),
        Figure("dominant_busy_ns", busy, Unit.NS, "test"),
        *_both(case, "dram_throughput_ratio", Unit.RATIO),
    ]
    if sms:
        figures.append(Figure("sm_count", sms, Unit.COUNT, "limit"))
        figures.append(Figure("grid_blocks", round(shares[1] * sms), Unit.BLOCKS, "test"))
    yield Reason("grid_too_small", "because", busy * (1 - shares[1]), False, tuple(figures))


def _active_blocks(case: Case) -> Iterable[Reason]:
    """Fewer active blocks matter only where the grid has enough blocks for at least one wave."""
    blocks, waves = case.change("active_blocks_count"), case.number("waves", "test")
    if blocks is None or not blocks.delta or blocks.delta > 0 or waves is None or waves < 1:
        return
    figures = (
        *_both(case, "active_blocks_count", Unit.COUNT),
        *_both(case, "occupancy_limiter", Unit.TEXT),
        *_both(case, "waves", Unit.WAVES),
    )
    yield Reason("active_blocks_fell", "limit", None, True, figures)


def _tail_wave(case: Case) -> Iterable[Reason]:
    """A last wave with few blocks, which the whole GPU waits for."""
    waves = [case.number("waves", side) for side in _SIDES]
    losses = [1 - w / math.ceil(w) if w is not None and w >= 1 else None for w in waves]
    busy = _dominant_busy(case)
    if losses[1] is None or losses[1] < _TAIL or busy is None or (losses[0] is not None and losses[0] >= losses[1]):
        return
    effect = busy * (losses[1] - (losses[0] or 0.0))
    figures = (*_both(case, "waves", Unit.WAVES), Figure("tail_wave_share", losses[1], Unit.RATIO, "test"))
    yield Reason("tail_wave", "because", effect, False, figures)


def _tensor_bound(case: Case) -> Iterable[Reason]:
    """A dominant kernel that the tensor pipe bounds gains nothing from fewer bytes or launches."""
    ratios = [case.number("tensor_pipe_ratio", side) for side in _SIDES]
    if any(ratio is not None and ratio >= _BOUND for ratio in ratios):
        yield Reason("tensor_bound", "limit", None, True, _both(case, "tensor_pipe_ratio", Unit.RATIO))


def _shared_kernels(case: Case) -> Iterable[Reason]:
    """Kernels that both sides run alike: the share of the base's busy time that the change cannot touch."""
    whole = sum(kernel.busy_ns or 0 for match in case.pair.kernels for kernel in match.base)
    alike = sum(k.busy_ns or 0 for m in case.pair.kernels if m.match in ("same", "renamed") for k in m.base)
    share = alike / whole if whole else 0.0
    if _MOSTLY <= share < 1 - MARGIN / 10:
        yield Reason(
            "shared_kernels_dominate", "limit", None, True, (Figure("shared_busy", share, Unit.RATIO, "base"),)
        )


def _collectives(case: Case) -> Iterable[Reason]:
    """Collectives that wait longer: one that spins for another GPU is waiting, not working."""
    names = set()
    for report in (case.base, case.test):
        launches = report.frames.get("launches")
        if launches is not None and len(launches):
            names |= set(launches["name"].astype(object)[launches["collective"].astype(bool)])
    if not names:
        return
    sides = []
    for at, instances in ((0, case.pair.base_instances), (1, case.pair.test_instances)):
        kernels = [k for m in case.pair.kernels for k in (m.base, m.test)[at] if k.name in names]
        sides.append(sum(k.busy_ns or 0 for k in kernels) / instances if instances else 0.0)
    effect = sides[1] - sides[0]
    if effect:
        figures = [Figure("collective_busy_ns", value, Unit.NS, s) for value, s in zip(sides, _SIDES, strict=True)]
        figures.append(Figure("collective_busy_ns", effect, Unit.NS, "delta"))
        code = "collectives_wait_longer" if effect > 0 else "collectives_wait_less"
        yield Reason(code, "because", effect, True, tuple(figures))


def _drift(case: Case) -> Iterable[Reason]:
    """Kernels that both sides launch alike changed: so did clocks, temperature or cache state."""
    if drifted(case.drift):
        effect = (case.drift.test_ns - case.drift.base_ns) / max(1, case.pair.base_instances)
        figures = (
            Figure("shared_kernel_time", case.drift.ratio, Unit.RATIO, "ratio"),
            Figure("shared_kernel_ns", effect, Unit.NS, "delta"),
        )
        yield Reason("drift_between_sides", "doubt", effect, True, figures)


def _untraced_slower(case: Case) -> Iterable[Reason]:
    """Tracing never speeds a step up: where it seems so, the traced run had other clocks than the untraced one."""
    dilation = case.waterfall.dilation if case.waterfall else (None, None)
    if any(side is not None and side < 1 - MARGIN for side in dilation):
        figures = [Figure("dilation", value, Unit.RATIO, side) for value, side in zip(dilation, _SIDES, strict=True)]
        yield Reason("traced_faster_than_untraced", "doubt", None, True, tuple(figures))


_RULES: Final[tuple[Callable[[Case], Iterable[Reason]], ...]] = (
    _launches, _already_graphed, _kernels_replaced, _bytes, _spills, _grid, _active_blocks, _tail_wave, _tensor_bound,
    _shared_kernels, _collectives, _drift, _untraced_slower,
)  # fmt: skip


def _sum(first: object, second: object) -> float | None:
    if isinstance(first, int | float) and isinstance(second, int | float):
        return float(first) + float(second)
    return None
