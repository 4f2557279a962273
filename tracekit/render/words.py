"""Says comparisons in English: the first sentence, each reason, and the five rows, from codes and figures alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tracekit.model.report import Answer, Comparison, Estimate, Finding, GateCheck, Interval, Reason, Waterfall
from tracekit.model.tables import REGION_METRICS
from tracekit.model.units import MISSING, Unit, write, write_change
from tracekit.model.verdict import MARGIN, Verdict
from tracekit.render.literal import clipped, literal, region_words

_Value = float | int | str | None

_REASONS_SAID: Final = 2
"""Causes named in the first sentence; the others follow it."""

CACHE_STATES: Final = {
    "in_model": "in model: measured inside the running program",
    "cold": "cold: each kernel replayed with flushed caches",
    "replay_warm": "replay-warm: each kernel replayed without a flush",
}

STEPS: Final = {
    "drift": "drift of kernels that both sides share",
    "kernel_fixed_cost": "fixed cost of kernels (an upper bound: the shortest kernel's time for each)",
    "dram_bytes": "DRAM bytes at peak bandwidth",
    "efficiency": "how well the kernels ran (what is left of busy time)",
    "bytes_and_efficiency": "bytes and efficiency of kernels (not to be told apart without counters of the whole step)",
    "exposed": "exposed time: latency in which the device was not busy",
    "busy": "busy: at least one operation of the step ran",
    "other_busy": "only other regions' operations ran",
    "wall_gap": "gaps",
    "tail": "idle after the last operation",
}
"""What each step of a waterfall is."""


@dataclass(frozen=True)
class Row:
    """A row of the five-row table in words."""

    topic: str
    base: str
    test: str
    delta: str
    meaning: str


def headline(comparison: Comparison) -> str:
    """The first sentence: what the change did to the step, by how much, and why."""
    answer = comparison.answer
    if answer is None:
        return "Nothing was compared."
    what = {"fusion": "Fusion", "change": "The change"}[answer.change]
    subject = {"step": "the step", "request": "the request"}.get(answer.subject, answer.subject)
    return f"{_verdict_words(what, subject, answer, comparison)}{_because(answer)}."


def _verdict_words(what: str, subject: str, answer: Answer, comparison: Comparison) -> str:
    by = _by(answer.interval)
    match answer.verdict:
        case Verdict.BETTER:
            return f"{what} helped {subject} by {by}"
        case Verdict.WORSE:
            return f"{what} made {subject} slower by {by}"
        case Verdict.WRONG:
            failed = [str(c["check"]) for c in comparison.test.capture.get("quality", ()) if c["passed"] is False]
            return f"Faster but wrong: {what.lower()} made {subject} faster by {by}, and failed {', '.join(failed)}"
        case Verdict.SAME:
            return f"{what} left {subject} the same, within {write(MARGIN, Unit.RATIO)} ({_moved_by(answer.interval)})"
        case Verdict.UNMEASURED:
            return f"Whether {what.lower()} helped {subject} was not measured"
        case _:
            return f"Whether {what.lower()} helped {subject} is undetermined ({_moved_by(answer.interval)})"


def _by(interval: Interval | None) -> str:
    """How far a ratio moved, with its interval: ``34.9 % (10.2 to 51.0 %)``; signed ends where they differ in sign."""
    if interval is None:
        return ""
    size = write(abs(interval.value - 1), Unit.RATIO)
    if interval.low is None or interval.high is None:
        return f"{size} (no interval)"
    ends = (interval.low - 1, interval.high - 1)
    if ends[0] * ends[1] > 0:
        near, far = sorted(map(abs, ends))
        return f"{size} ({near * 100:.1f} to {far * 100:.1f} %)"
    return _moved_by(interval)


def _moved_by(interval: Interval | None) -> str:
    """A change that has no verdict: with its sign, and its interval where there is one."""
    if interval is None:
        return "no figure"
    if interval.low is None or interval.high is None:
        return f"{write_change(interval.value)}, no interval"
    return f"{write_change(interval.value)}, between {write_change(interval.low)} and {write_change(interval.high)}"


def _because(answer: Answer) -> str:
    said = [reason_words(reason) for reason in answer.reasons if reason.role == "because"][:_REASONS_SAID]
    if not said:
        limits = [reason_words(reason) for reason in answer.reasons if reason.role == "limit"][:1]
        return f"; {limits[0]}" if limits else ""
    joined = " and ".join(said)
    against = [reason_words(reason) for reason in answer.reasons if reason.role == "although"][:1]
    verb = ", because " if answer.verdict in (Verdict.BETTER, Verdict.WORSE, Verdict.WRONG) else "; "
    return f"{verb}{joined}" + (f", although {against[0]}" if against else "")


def grounds(comparison: Comparison) -> str:
    """What the first sentence rests on, and what that cannot tell."""
    answer = comparison.answer
    if answer is not None and answer.basis == "untraced":
        change = comparison.latency[str(answer.protocol)]
        assert change.estimate is not None
        return estimate_words(change.estimate)
    if answer is not None and answer.basis == "traced":
        return (
            "By the traces alone, one capture a side: untraced latency was not measured on both sides, tracing "
            "stretches the host's part, and another process may differ."
        )
    return "Neither untraced latency nor a traced step was measured on both sides."


def phase_words(comparison: Comparison) -> list[str]:
    """The parts of a request, each with its own verdict: where in it the change helped."""
    out = []
    for (phase, protocol), change in comparison.phases.items():
        interval = change.estimate.interval if change.estimate else None
        sides = f"{write(change.base, Unit.NS)} to {write(change.test, Unit.NS)}"
        out.append(f"{phase}, {protocol}: {change.verdict} ({sides}; {_moved_by(interval)})")
    return out


def estimate_words(found: Estimate) -> str:
    """What an untraced latency's estimate rests on, its outliers, and what it leaves open."""
    match found.method:
        case "paired":
            on = f"{found.pairs} interleaved blocks, paired"
        case "identical":
            return "Both sides are the same samples."
        case "none":
            return "Untraced latency was measured on one side only."
        case _:
            on = f"{found.base_processes} and {found.test_processes} processes, not paired"
    parts = [f"Untraced, {on}"]
    if found.student is not None and found.robust is not None:
        other = found.robust if found.decided_by == "student" else found.student
        if found.decided_by == "student":
            decided, name = "the mean decides", "trimmed mean"
        else:
            decided, name = "for its outliers the trimmed mean decides", "mean"
        ends = f"{write_change(other.low)} to {write_change(other.high)}"
        parts.append(f"{decided} ({name}: {write_change(other.value)}, {ends})")
    if found.outliers:
        slow = ", ".join(f"{outlier.side} {write(outlier.value_ns, Unit.NS)}" for outlier in found.outliers)
        parts.append(f"outliers kept: {slow}")
    if found.cannot_tell == "single_process":
        parts.append("one process a side cannot tell the change from the difference between two processes")
    elif found.cannot_tell == "too_few":
        parts.append("fewer than three processes a side make no interval")
    elif found.cannot_tell == "few_processes":
        parts.append("fewer than ten repeats")
    if found.detectable_ratio is not None:
        parts.append(f"changes from {write(found.detectable_ratio, Unit.RATIO)} on would be found")
    if found.verdict is Verdict.UNDETERMINED and found.more_repeats:
        parts.append(f"about {found.more_repeats} more repeats would settle this one")
    return "; ".join(parts) + "."


def reason_words(reason: Reason) -> str:
    """One reason as a clause, with the figures that it cites."""
    return _CLAUSES[reason.code](reason)


def _ns(value: _Value) -> str:
    return write(abs(value) if isinstance(value, int | float) else value, Unit.NS)


def _count(value: _Value) -> str:
    return write(abs(value) if isinstance(value, int | float) else value, Unit.COUNT)


def _share(value: _Value) -> str:
    return write(value, Unit.RATIO)


def _idle(r: Reason) -> str:
    return (
        f"the device idles {_ns(r.figure('exposed_ns', 'delta'))} {_less(r.figure('exposed_ns', 'delta'))} a step "
        f"({_ns(r.figure('exposed_ns', 'base'))} to {_ns(r.figure('exposed_ns', 'test'))})"
    )


def _less(value: _Value) -> str:
    return "less" if isinstance(value, int | float) and value < 0 else "more"


def _launches(r: Reason) -> str:
    counts = f"{_count(r.figure('kernel_count', 'delta'))} of {_count(r.figure('kernel_count', 'base'))} kernels"
    if r.figure("kernel_count", "delta") in (None, 0):
        counts = f"{_count(r.figure('launch_call_count', 'delta'))} launch calls"
    if r.code == "launches_added":
        calls = r.figure("launch_call_count", "delta") or r.figure("kernel_count", "delta")
        return f"{_count(calls)} launches came and {_idle(r)}"
    return f"{counts} are gone and {_idle(r)}"


def _replaced(r: Reason) -> str:
    base, test = (r.figure("replaced_kernel_count", side) for side in ("base", "test"))
    times = [_ns(r.figure("replaced_busy_ns", side)) for side in ("base", "test")]
    if not test:
        return f"{_count(base)} kernels that took {times[0]} are gone"
    if not base:
        return f"{_count(test)} kernels that take {times[1]} came"
    return f"{_count(base)} kernels that took {times[0]} became {_count(test)} that take {times[1]}"


def _where(r: Reason) -> str:
    return f" in {region_words(r.path[1:])}" if r.path and len(r.path) > 1 else ""


def _dram(r: Reason) -> str:
    state = str(r.figure("cache_state", "both") or "cache state not recorded").replace("_", "-")
    change = write_change(_number(r.figure("dram_bytes", "ratio")))
    bound = r.figure("lower_bound_bytes", "test")
    limit = f", against a lower bound of {write(bound, Unit.BYTES)}" if bound is not None else ""
    return (
        f"DRAM bytes{_where(r)} {'fell' if r.code.endswith('removed') else 'rose'} by "
        f"{write(abs(_number(r.figure('dram_bytes', 'delta')) or 0.0), Unit.BYTES)} ({change}, {state}){limit}"
    )


def _number(value: _Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _in_l2(r: Reason) -> str:
    place = clipped(r.path[-1], 200) if r.path else "a region"
    return (
        f"DRAM bytes stayed ({write_change(_number(r.figure('dram_bytes', 'ratio')))}), since the intermediates were "
        f"reused within L2: at most {write(r.figure('reuse_distance_bytes', 'base'), Unit.BYTES)} pass between write "
        f"and use in {place}, of {write(r.figure('l2_bytes', 'limit'), Unit.BYTES)} L2"
    )


def _spills(r: Reason) -> str:
    share = r.figure("spill_share", "ratio")
    known = r.figure("spill_instruction_count", "base")
    base = f"{_count(known)} in the base" if known is not None else "not counted in the base"
    weight = f", {_share(share)} of the change of busy time" if share is not None else ""
    tail = "" if r.code == "spills_matter" else ": not the main cause"
    return (
        f"{_count(r.figure('spill_instruction_count', 'test'))} spill instructions{_where(r)} ({base}) move at most "
        f"{write(r.figure('spill_bytes', 'test'), Unit.BYTES)}{weight}{tail}"
    )


def _grid(r: Reason) -> str:
    blocks, sms = r.figure("grid_blocks", "test"), r.figure("sm_count", "limit")
    reach = (
        f"{_count(blocks)} blocks for {_count(sms)} SMs"
        if blocks is not None
        else f"blocks for {_share(r.figure('sm_share', 'test'))} of the SMs"
    )
    return f"the dominant kernel ({_ns(r.figure('dominant_busy_ns', 'test'))} a step) has {reach}: the rest stand empty"


def _active(r: Reason) -> str:
    return (
        f"an SM holds {_count(r.figure('active_blocks_count', 'test'))} blocks of the dominant kernel instead of "
        f"{_count(r.figure('active_blocks_count', 'base'))} (limit: {r.figure('occupancy_limiter', 'test')})"
    )


_CLAUSES: Final[Mapping[str, Callable[[Reason], str]]] = {
    "launches_removed": _launches,
    "launches_added": _launches,
    "launched_by_graph": lambda r: f"a CUDA graph launches its kernels at once and {_idle(r)}",
    "graph_gone": lambda r: (
        f"{_count(r.figure('launch_call_count', 'test'))} launch calls take the place of a CUDA graph and {_idle(r)}"
    ),
    "exposed_time": _idle,
    "already_graph_captured": lambda r: (
        "both sides launch by CUDA graph, so that removed launches save no host time: only the kernels' own"
    ),
    "kernels_replaced_faster": _replaced,
    "kernels_replaced_slower": _replaced,
    "dram_bytes_removed": _dram,
    "dram_bytes_added": _dram,
    "dram_bytes_unchanged": lambda r: (
        f"DRAM bytes{_where(r)} stayed ({write_change(_number(r.figure('dram_bytes', 'ratio')))})"
    ),
    "intermediates_in_l2": _in_l2,
    "spills_matter": _spills,
    "spills_minor": _spills,
    "grid_too_small": _grid,
    "active_blocks_fell": _active,
    "tail_wave": lambda r: (
        f"the last of {write(r.figure('waves', 'test'), Unit.WAVES)} waves leaves "
        f"{_share(r.figure('tail_wave_share', 'test'))} of the SMs' time empty"
    ),
    "tensor_bound": lambda r: (
        f"the dominant kernel is bound by the tensor pipe ({_share(r.figure('tensor_pipe_ratio', 'base'))} and "
        f"{_share(r.figure('tensor_pipe_ratio', 'test'))} of its peak), which fusion does not relieve"
    ),
    "shared_kernels_dominate": lambda r: (
        f"{_share(r.figure('shared_busy', 'base'))} of the base's busy time is in kernels that both sides run alike"
    ),
    "collectives_wait_longer": lambda r: f"collectives take {_ns(r.figure('collective_busy_ns', 'delta'))} more",
    "collectives_wait_less": lambda r: f"collectives take {_ns(r.figure('collective_busy_ns', 'delta'))} less",
    "drift_between_sides": lambda r: (
        "kernels that both sides launch alike changed by "
        f"{write_change(_number(r.figure('shared_kernel_time', 'ratio')))}: clocks, temperature or cache state differ "
        "between the captures"
    ),
    "traced_faster_than_untraced": lambda r: (
        f"the traced step took {_share(r.figure('dilation', 'base'))} and {_share(r.figure('dilation', 'test'))} of "
        "the untraced one, though tracing only slows: clocks differed, and what is busy or exposed is unsure"
    ),
}
"""The clause of each reason's code."""


def gap_doc(name: str) -> str:
    """What a step of a traced ledger is, which is a part of the gaps: as its metric is declared."""
    column = f"{name}_ns".removeprefix("wall_")
    return REGION_METRICS[column].doc if column in REGION_METRICS.names else ""


def delta_title(instances: int) -> str:
    """The title of the exact deltas by region."""
    return f"Charged device time by region: mean of {instances} instances a side, adds up exactly"


def dilation_words(waterfall: Waterfall) -> str:
    """How far tracing stretched each side, and the traced idle time that explains the exposed time."""
    parts = [
        f"{name.removeprefix('wall_gap_').removesuffix('_ns')} {write(base, Unit.NS)} to {write(test, Unit.NS)}"
        for name, base, test in waterfall.idle_parts
    ]
    base, test = (write(side, Unit.RATIO) for side in waterfall.dilation)
    return (
        f"The traced step took {base} of the base's and {test} of the test's untraced latency. Idle time while traced, "
        f"which explains exposed time and does not measure it: {'; '.join(parts) or 'none'}."
    )


def check_place(check: GateCheck) -> str:
    """Where a gate's check looked."""
    return (
        region_words(check.path) if check.path is not None else f"untraced latency, {literal(check.protocol or 'none')}"
    )


def check_found(check: GateCheck) -> str:
    """What was held against the limit, with its interval."""
    if check.found is None:
        return "not measured"
    if math.isinf(check.found):
        return "appeared from nothing"
    signed = check.kind != "figure"
    text = write(check.found, check.unit, signed=signed)
    if check.low is not None and check.high is not None:
        text += f" ({write(check.low, check.unit, signed=signed)} to {write(check.high, check.unit, signed=signed)})"
    elif check.path is None:
        text += " (no interval: too few processes)"
    return text


def check_sides(check: GateCheck) -> tuple[str, str]:
    """Both sides' figures of a gate's check."""
    unit = Unit.NS if check.path is None else REGION_METRICS[check.metric].unit
    return write(check.base, unit), write(check.test, unit)


# The five rows


def rows(findings: Sequence[Finding]) -> tuple[Row, ...]:
    """The five rows in words."""
    return tuple(_ROWS[finding.topic](finding) for finding in findings)


def _with_reasons(meaning: Sequence[str], finding: Finding) -> str:
    return "; ".join([*meaning, *(reason_words(reason) for reason in finding.reasons)])


def _launch_row(f: Finding) -> Row:
    count, gap = f.figure("kernel_count", "delta"), f.figure("gap_ns", "delta")
    ratio = _number(f.figure("gap_ns", "ratio"))
    meaning = []
    if count is not None:
        meaning.append(_fewer(count, "kernel"))
    if gap is not None and ratio is not None:
        words = f"idle device time {_moved(ratio)}"
        parts = [
            _number(f.figure(name, "delta")) for name in ("gap_host_ns", "gap_launch_call_ns", "gap_launch_latency_ns")
        ]
        launch = sum(part for part in parts if part is not None) if None not in parts else None
        if launch is not None and abs(ratio - 1) > MARGIN and launch * (_number(gap) or 0.0) > 0:
            words += f"; host and launch parts {write(launch, Unit.NS, signed=True)}"
        meaning.append(words)
    sides = [
        f"{write(f.figure('kernel_count', side), Unit.COUNT)} kernels, {write(f.figure('gap_ns', side), Unit.NS)} idle"
        for side in ("base", "test")
    ]
    return Row(
        "Kernel launches and launch gaps",
        sides[0],
        sides[1],
        f"{write(count, Unit.COUNT, signed=True)} kernels, {write(gap, Unit.NS, signed=True)} idle",
        _with_reasons(meaning or ["no timeline on both sides"], f),
    )


def _dram_row(f: Finding) -> Row:
    names = ("dram_read_bytes", "dram_write_bytes")
    deltas = [f.figure(name, "delta") for name in names]
    if "not_measured_alike" in f.meaning:
        meaning = "not measured in one cache state on both sides: capture DRAM bytes with Nsight Compute"
    else:
        ratios = [
            (word, _number(f.figure(name, "ratio"))) for word, name in zip(("reads", "writes"), names, strict=True)
        ]
        meaning = "; ".join(f"{word} {_moved(ratio)}" for word, ratio in ratios if ratio is not None)
        if "intermediates_negligible" in f.meaning:
            meaning += ": the intermediates are no meaningful part of the traffic here"
        state = f.figure("cache_state", "both")
        meaning += f" ({CACHE_STATES.get(str(state), 'cache state not recorded')})"
    inside = f" in {region_words(f.path[1:])}, where it was measured" if len(f.path) > 1 else ""
    sides = []
    for side in ("base", "test"):
        read, written = (f.figure(name, side) for name in names)
        sides.append(
            f"{write(read, Unit.BYTES)} read, {write(written, Unit.BYTES)} written{inside if read is not None else ''}"
        )
    delta = f"{write(deltas[0], Unit.BYTES, signed=True)} read, {write(deltas[1], Unit.BYTES, signed=True)} written"
    return Row("HBM reads and writes", sides[0], sides[1], delta, _with_reasons([meaning], f))


def _resource_row(f: Finding) -> Row:
    registers = [f.figure("registers_count", side) for side in ("base", "test")]
    smem = [
        _added(f.figure("static_smem_bytes", side), f.figure("dynamic_smem_bytes", side)) for side in ("base", "test")
    ]
    sides = [
        f"{write(r, Unit.COUNT)} registers, {write(s, Unit.BYTES)} shared" for r, s in zip(registers, smem, strict=True)
    ]
    more_registers = _number(f.figure("registers_count", "delta"))
    if more_registers is None or smem[0] is None or smem[1] is None:
        meaning, delta = "unknown on one side", MISSING
    else:
        more = smem[1] - smem[0]
        delta = f"{write(more_registers, Unit.COUNT, signed=True)} registers, {write(more, Unit.BYTES, signed=True)}"
        grew = [name for name, d in (("registers", more_registers), ("shared memory", more)) if d > 0]
        if grew:
            meaning = f"the dominant kernel needs more {' and '.join(grew)}"
        elif more_registers or more:
            meaning = "the dominant kernel needs less local storage"
        else:
            meaning = "the dominant kernel needs the same local storage"
    meaning += " (dominant kernel, per thread and block)"
    return Row("Register and shared-memory use", sides[0], sides[1], delta, _with_reasons([meaning], f))


def _block_row(f: Finding) -> Row:
    sides = []
    for side in ("base", "test"):
        spilled, place = f.figure("spill_instruction_count", side), f.figure("spills_counted_in", side)
        words = _spills_bound(f.figure("local_instruction_count", side), f.figure("frame_bytes", side))
        if spilled is not None:
            words = f"{write(spilled, Unit.COUNT)} spill instructions" + (
                f" in {clipped(str(place), 200)}" if place else ""
            )
        active, by = f.figure("active_blocks_count", side), f.figure("occupancy_limiter", side)
        held = f"{write(active, Unit.COUNT)} active block{'' if active == 1 else 's'} per SM"
        fill = write(f.figure("sm_fill_ratio", side), Unit.RATIO)
        sides.append(f"{words}; {held}" + (f" (limit: {by}), SM fill {fill}" if by else ""))
    spills = _number(f.figure("spill_instruction_count", "delta"))
    blocks = _number(f.figure("active_blocks_count", "delta"))
    if spills is None:
        meaning = ["spills not counted on both sides"]
    elif spills > 0 and not f.figure("spill_instruction_count", "base"):
        meaning = ["spills appeared"]
    else:
        meaning = [_fewer(spills, "spill instruction")]
    grids = [side for side in ("base", "test") if f"{side}_grid_leaves_room" in f.meaning]
    meaning += [
        f"{side}: the grid fills {write(f.figure('sm_fill_ratio', side), Unit.RATIO)} of the SMs' room for blocks"
        for side in grids
    ]
    if blocks and not grids:
        meaning.append(f"{write(blocks, Unit.COUNT, signed=True)} active blocks per SM")
    delta = f"{write(spills, Unit.COUNT, signed=True)} spills, {write(blocks, Unit.COUNT, signed=True)} blocks"
    return Row("Spills and active blocks", sides[0], sides[1], delta, _with_reasons(meaning, f))


def _spills_bound(local: float | str | None, frame: float | str | None) -> str:
    """What is known of spills where they were not counted as such."""
    if local == 0:
        return "no spills: no local loads or stores"
    known = [f"at most {write(local, Unit.COUNT)} spill instructions (local loads and stores)"] if local else []
    known += [f"a frame of {write(frame, Unit.BYTES)} a thread"] if frame else []
    return "; ".join(known) or "spills unknown"


def _latency_row(f: Finding) -> Row:
    protocol = f.figure("protocol", "both")
    name = next(figure.name for figure in f.figures if figure.name != "protocol")
    ratio = _number(f.figure(name, "ratio"))
    delta = f"{write(f.figure(name, 'delta'), Unit.NS, signed=True)} ({write_change(ratio)})"
    if "untraced" in f.meaning:
        meaning = f"untraced, {protocol}, median over processes: {_moved(ratio)}"
    elif "one_side_only" in f.meaning:
        meaning = f"untraced, {protocol}: measured on one side only"
    elif name == "wall_ns":
        meaning = f"{_moved(ratio)} (traced wall time, which profiling stretches; no untraced latency on both sides)"
    else:
        meaning = f"{_moved(ratio)} (charged device time of the region; no untraced latency on both sides)"
    sides = [write(f.figure(name, side), Unit.NS) for side in ("base", "test")]
    return Row("Full request latency", sides[0], sides[1], delta, _with_reasons([meaning], f))


_ROWS: Final[Mapping[str, Callable[[Finding], Row]]] = {
    "launches": _launch_row, "dram": _dram_row, "resources": _resource_row, "blocks": _block_row,
    "latency": _latency_row,
}  # fmt: skip


def _added(first: _Value, second: _Value) -> float | None:
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return None


def _moved(ratio: float | None) -> str:
    if ratio is None:
        return "unknown"
    if abs(ratio - 1) <= MARGIN:
        return f"about the same ({write_change(ratio)})"
    return f"{'fell' if ratio < 1 else 'rose'} by {write(abs(ratio - 1), Unit.RATIO)}"


def _fewer(delta: _Value, noun: str) -> str:
    if not isinstance(delta, int | float) or not delta:
        return f"the same number of {noun}s"
    return f"{write(abs(delta), Unit.COUNT)} {'fewer' if delta < 0 else 'more'} {noun}s"
