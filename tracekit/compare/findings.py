"""The five rows of the question "did fusion help?": both sides of a region in words, and what the difference means."""

from __future__ import annotations

from collections.abc import Mapping

from tracekit.model.labels import UNATTRIBUTED
from tracekit.model.report import Change, Comparison, Finding, RegionPair
from tracekit.model.units import MISSING, Unit, write, write_change

SMALL = 0.02
"""A relative change within this is called the same."""


def main_region(comparison: Comparison) -> RegionPair | None:
    """The root that both sides have and that costs the base the most device time; None where no root is paired."""
    roots = [pair for pair in comparison.regions if len(pair.path) == 1 and pair.base_path and pair.test_path]
    roots = [pair for pair in roots if pair.path != (UNATTRIBUTED,)] or roots

    def cost(pair: RegionPair) -> float:
        device = pair.metrics.get("device_ns")
        value = device.base if device else None
        return float(value) * pair.base_instances if isinstance(value, int | float) else 0.0

    return max(roots, key=cost, default=None)


def findings(comparison: Comparison, pair: RegionPair | None = None) -> tuple[Finding, ...]:
    """The five rows for a region, by default the main one: launches and gaps, DRAM bytes, registers and shared memory,
    spills and active blocks, and the untraced latency of the full request. None where no root is paired."""
    pair = pair or main_region(comparison)
    if pair is None:
        return ()
    return (
        _launches(pair.metrics),
        _dram(pair, comparison),
        _resources(pair.metrics),
        _blocks(pair, comparison),
        _latency(pair.metrics, comparison.latency),
    )


def _launches(metrics: Mapping[str, Change]) -> Finding:
    kernels, gap = _get(metrics, "kernel_count"), _get(metrics, "gap_ns")
    meaning = []
    if kernels.delta is not None:
        meaning.append(_fewer(kernels.delta, "kernel"))
    if gap.delta is not None and gap.ratio is not None:
        launch = _sum(metrics, "gap_host_ns", "gap_launch_call_ns", "gap_launch_latency_ns")
        words = f"idle device time {_moved(gap.ratio)}"
        if launch is not None and abs(gap.ratio - 1) > SMALL and launch * gap.delta > 0:
            words += f"; host and launch parts {write(launch, Unit.NS, signed=True)}"
        meaning.append(words)
    return Finding(
        "Kernel launches and launch gaps",
        _words(kernels.base, "kernel", gap.base),
        _words(kernels.test, "kernel", gap.test),
        f"{write(kernels.delta, Unit.COUNT, signed=True)} kernels, {write(gap.delta, Unit.NS, signed=True)} idle",
        "; ".join(meaning) or "no timeline on both sides",
    )


def _dram(pair: RegionPair, comparison: Comparison) -> Finding:
    measured = _where_measured(pair, comparison, "dram_read_bytes")
    read, written = (_get(measured.metrics, name) for name in ("dram_read_bytes", "dram_write_bytes"))
    if read.delta is None and written.delta is None:
        meaning = "not measured in one cache state on both sides: capture DRAM bytes with Nsight Compute"
    else:
        changes = [
            f"{name} {_moved(change.ratio)}"
            for name, change in (("reads", read), ("writes", written))
            if change.ratio is not None
        ]
        meaning = "; ".join(changes)
        if all(not c.delta or (c.ratio is not None and abs(c.ratio - 1) <= SMALL) for c in (read, written)):
            meaning += ": the intermediates are no meaningful part of the traffic here"
        meaning += f" ({_KIND_WORDS.get(read.kind or '', 'cache state not recorded')})"
    inside = "" if measured is pair else f" in {' / '.join(measured.path[len(pair.path) :])}, where it was measured"
    sides = [
        f"{write(r, Unit.BYTES)} read, {write(w, Unit.BYTES)} written{inside if r is not None else ''}"
        for r, w in ((read.base, written.base), (read.test, written.test))
    ]
    delta = (
        f"{write(read.delta, Unit.BYTES, signed=True)} read, {write(written.delta, Unit.BYTES, signed=True)} written"
    )
    return Finding("HBM reads and writes", sides[0], sides[1], delta, meaning)


def _where_measured(pair: RegionPair, comparison: Comparison, metric: str) -> RegionPair:
    """The region itself where a metric compares, else the outermost one inside it where it does."""
    inside = [other for other in comparison.regions if other.path[: len(pair.path)] == pair.path]
    measured = [other for other in inside if _get(other.metrics, metric).delta is not None]
    return min(measured, key=lambda other: len(other.path), default=pair)


_KIND_WORDS = {
    "in_model": "in model: measured inside the running program",
    "cold": "cold: each kernel replayed with flushed caches",
    "replay_warm": "replay-warm: each kernel replayed without a flush",
}


def _resources(metrics: Mapping[str, Change]) -> Finding:
    registers = _get(metrics, "registers_count")
    static, dynamic = _get(metrics, "static_smem_bytes"), _get(metrics, "dynamic_smem_bytes")
    smem = [_added(static.base, dynamic.base), _added(static.test, dynamic.test)]
    sides = [
        f"{write(r, Unit.COUNT)} registers, {write(s, Unit.BYTES)} shared"
        for r, s in ((registers.base, smem[0]), (registers.test, smem[1]))
    ]
    if registers.delta is None or smem[0] is None or smem[1] is None:
        meaning, delta = "unknown on one side", MISSING
    else:
        more = smem[1] - smem[0]
        delta = f"{write(registers.delta, Unit.COUNT, signed=True)} registers, {write(more, Unit.BYTES, signed=True)}"
        grew = [name for name, d in (("registers", registers.delta), ("shared memory", more)) if d > 0]
        if grew:
            meaning = f"the dominant kernel needs more {' and '.join(grew)}"
        elif registers.delta or more:
            meaning = "the dominant kernel needs less local storage"
        else:
            meaning = "the dominant kernel needs the same local storage"
    meaning += " (dominant kernel, per thread and block)"
    return Finding("Register and shared-memory use", sides[0], sides[1], delta, meaning)


def _blocks(pair: RegionPair, comparison: Comparison) -> Finding:
    metrics = pair.metrics
    spills, blocks = _get(metrics, "spill_instruction_count"), _get(metrics, "active_blocks_count")
    limiter, fill = _get(metrics, "occupancy_limiter"), _get(metrics, "sm_fill_ratio")
    sides = []
    for side in ("base", "test"):
        active, by, filled = (getattr(change, side) for change in (blocks, limiter, fill))
        words = _spilled(pair, comparison, side)
        held = f"{write(active, Unit.COUNT)} active block{'' if active == 1 else 's'} per SM"
        sides.append(f"{words}; {held}" + (f" (limit: {by}), SM fill {write(filled, Unit.RATIO)}" if by else ""))
    meaning = []
    if spills.delta is not None:
        meaning.append(
            "spills appeared" if spills.delta > 0 and not spills.base else _fewer(spills.delta, "spill instruction")
        )
    else:
        meaning.append("spills not measured on both sides")
    for side, by, filled in (("base", limiter.base, fill.base), ("test", limiter.test, fill.test)):
        if isinstance(by, str) and "grid" in by and isinstance(filled, float) and filled < 1:
            meaning.append(f"{side}: the grid fills {write(filled, Unit.RATIO)} of the SMs' room for blocks")
    if blocks.delta and not any("grid" in text for text in meaning):
        meaning.append(f"{write(blocks.delta, Unit.COUNT, signed=True)} active blocks per SM")
    delta = (
        f"{write(spills.delta, Unit.COUNT, signed=True)} spills, {write(blocks.delta, Unit.COUNT, signed=True)} blocks"
    )
    return Finding("Spills and active blocks", sides[0], sides[1], delta, "; ".join(meaning))


def _spilled(pair: RegionPair, comparison: Comparison, side: str) -> str:
    """The spill instructions of one side: of the region, else of the outermost region inside that was profiled."""
    inside = [other for other in comparison.regions if other.path[: len(pair.path)] == pair.path]
    known = [other for other in inside if getattr(_get(other.metrics, "spill_instruction_count"), side) is not None]
    if not known:
        return "spills unknown"
    where = min(known, key=lambda other: len(other.path))
    count = write(getattr(where.metrics["spill_instruction_count"], side), Unit.COUNT)
    place = "" if where is pair else f" in {' / '.join(where.path[len(pair.path) :])}"
    return f"{count} spill instructions{place}"


def _latency(metrics: Mapping[str, Change], latency: Mapping[str, Change]) -> Finding:
    both = [
        name for name in ("synchronized", "pipelined", *latency) if name in latency and latency[name].delta is not None
    ]
    for protocol in (*both, "synchronized", "pipelined", *latency):
        if protocol in latency:
            change = latency[protocol]
            meaning = (
                f"untraced, {protocol}, median over processes: {_moved(change.ratio)}"
                if change.ratio is not None
                else f"untraced, {protocol}: measured on one side only"
            )
            return Finding("Full request latency", *_both(change, Unit.NS), meaning)
    wall = _get(metrics, "wall_ns")
    if wall.delta is None:
        wall = _get(metrics, "device_ns")
        meaning = "charged device time of the region; no untraced latency on both sides"
    else:
        meaning = "traced wall time, which profiling stretches; no untraced latency on both sides"
    return Finding("Full request latency", *_both(wall, Unit.NS), f"{_moved(wall.ratio)} ({meaning})")


def _both(change: Change, unit: Unit) -> tuple[str, str, str]:
    delta = f"{write(change.delta, unit, signed=True)} ({write_change(change.ratio)})"
    return write(change.base, unit), write(change.test, unit), delta


_NOTHING = Change(None, None, None, None, "", "none")


def _get(metrics: Mapping[str, Change], name: str) -> Change:
    return metrics.get(name, _NOTHING)


def _sum(metrics: Mapping[str, Change], *names: str) -> float | None:
    deltas = [_get(metrics, name).delta for name in names]
    return None if None in deltas else float(sum(delta for delta in deltas if delta is not None))


def _added(first: float | str | None, second: float | str | None) -> float | None:
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return None


def _words(count: float | int | str | None, noun: str, idle: float | int | str | None) -> str:
    return f"{write(count, Unit.COUNT)} {noun}s, {write(idle, Unit.NS)} idle"


def _moved(ratio: float | None) -> str:
    if ratio is None:
        return "unknown"
    if abs(ratio - 1) <= SMALL:
        return f"about the same ({write_change(ratio)})"
    return f"{'fell' if ratio < 1 else 'rose'} by {write(abs(ratio - 1), Unit.RATIO)}"


def _fewer(delta: float, noun: str) -> str:
    if not delta:
        return f"the same number of {noun}s"
    return f"{write(abs(delta), Unit.COUNT)} {'fewer' if delta < 0 else 'more'} {noun}s"
