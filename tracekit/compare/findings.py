"""The five rows of the question "did fusion help?" as data: figures of both sides, and codes of what they mean."""

from __future__ import annotations

from collections.abc import Iterable

from tracekit.compare.reasons import Case, reasons
from tracekit.compare.waterfall import preferred_protocol
from tracekit.model.labels import UNATTRIBUTED
from tracekit.model.report import Change, Comparison, Figure, Finding, RegionPair
from tracekit.model.units import Unit
from tracekit.model.verdict import Verdict

_ROW_OF = {
    "launches_removed": "launches", "launches_added": "launches", "launched_by_graph": "launches",
    "graph_gone": "launches",
    "already_graph_captured": "launches", "exposed_time": "launches", "kernels_replaced_faster": "launches",
    "kernels_replaced_slower": "launches", "dram_bytes_removed": "dram", "dram_bytes_added": "dram",
    "intermediates_in_l2": "dram", "dram_bytes_unchanged": "dram", "tensor_bound": "resources", "tail_wave": "blocks",
    "spills_matter": "blocks", "spills_minor": "blocks", "grid_too_small": "blocks", "active_blocks_fell": "blocks",
    "shared_kernels_dominate": "latency", "collectives_wait_longer": "latency", "collectives_wait_less": "latency",
    "drift_between_sides": "latency", "traced_faster_than_untraced": "latency",
}  # fmt: skip
"""Which of the five rows a reason stands in."""


def main_region(pairs: Iterable[RegionPair]) -> RegionPair | None:
    """The root that both sides have and that costs the base the most device time; None where no root is paired."""
    roots = [pair for pair in pairs if len(pair.path) == 1 and pair.base_path and pair.test_path]
    roots = [pair for pair in roots if pair.path != (UNATTRIBUTED,)] or roots

    def cost(pair: RegionPair) -> float:
        device = pair.metrics.get("device_ns")
        value = device.base if device else None
        return float(value) * pair.base_instances if isinstance(value, int | float) else 0.0

    return max(roots, key=cost, default=None)


def findings(comparison: Comparison, pair: RegionPair | None = None) -> tuple[Finding, ...]:
    """The five rows for a region, by default the main one: launches and gaps, DRAM bytes, registers and shared memory,
    spills and active blocks, and the untraced latency of the full request. None where no root is paired."""
    main = main_region(comparison.regions)
    pair = pair or main
    if pair is None:
        return ()
    case = Case(pair, comparison.regions, comparison.base, comparison.test, comparison.drift, None)
    whole = comparison.answer.reasons if comparison.answer and pair == main else reasons(case, None)
    rows = (_launches(pair), _dram(case), _resources(pair), _blocks(case), _latency(pair, comparison))
    return tuple(
        Finding(row.topic, row.figures, row.meaning, tuple(r for r in whole if _ROW_OF[r.code] == row.topic), row.path)
        for row in rows
    )


def _launches(pair: RegionPair) -> Finding:
    names = (
        "kernel_count",
        "launch_call_count",
        "gap_ns",
        "gap_host_ns",
        "gap_launch_call_ns",
        "gap_launch_latency_ns",
    )
    known = [name for name in names[::2] if _get(pair, name).delta is not None]
    return Finding("launches", _figures(pair, *names), ("moved",) if known else ("no_timeline",), (), pair.path)


def _dram(case: Case) -> Finding:
    inside = case.inside()
    measured = next((pair for pair in inside if _get(pair, "dram_read_bytes").delta is not None), case.pair)
    read, written = (_get(measured, name) for name in ("dram_read_bytes", "dram_write_bytes"))
    meaning = ["moved"]
    if read.delta is None and written.delta is None:
        meaning = ["not_measured_alike"]
    elif all(change.verdict is Verdict.SAME or not change.delta for change in (read, written)):
        meaning.append("intermediates_negligible")
    figures = (*_figures(measured, "dram_read_bytes", "dram_write_bytes"), _cache_state(read))
    return Finding("dram", figures, tuple(meaning), (), measured.path)


def _cache_state(read: Change) -> Figure:
    return Figure("cache_state", read.kind, Unit.TEXT, "both")


def _resources(pair: RegionPair) -> Finding:
    figures = _figures(pair, "registers_count", "static_smem_bytes", "dynamic_smem_bytes")
    known = all(figure.value is not None for figure in figures if figure.side != "delta")
    return Finding("resources", figures, ("moved",) if known else ("unknown",), (), pair.path)


def _blocks(case: Case) -> Finding:
    pair = case.pair
    figures = list(_figures(pair, "active_blocks_count", "occupancy_limiter", "sm_fill_ratio"))
    meaning = []
    for side in ("base", "test"):
        counted = next((p for p in case.inside() if case.number("spill_instruction_count", side, p) is not None), None)
        if counted is not None:
            value = case.number("spill_instruction_count", side, counted)
            figures.append(Figure("spill_instruction_count", value, Unit.COUNT, side))
            inner = "/".join(counted.path[len(pair.path) :])
            figures.append(Figure("spills_counted_in", inner, Unit.TEXT, side))
        else:
            figures += _spills_bound(case, side)
        by, fill = (getattr(_get(pair, name), side) for name in ("occupancy_limiter", "sm_fill_ratio"))
        if isinstance(by, str) and "grid" in by and isinstance(fill, float) and fill < 1:
            meaning.append(f"{side}_grid_leaves_room")
    spills = _get(pair, "spill_instruction_count")
    figures.append(Figure("spill_instruction_count", spills.delta, Unit.COUNT, "delta"))
    meaning.append("spills_counted" if spills.delta is not None else "spills_not_counted_alike")
    return Finding("blocks", tuple(figures), tuple(meaning), (), pair.path)


def _spills_bound(case: Case, side: str) -> list[Figure]:
    """What bounds the spills that nobody counted: executed local loads and stores, and the compiled frame."""
    local = [case.number(f"local_{what}_instruction_count", side, case.pair) for what in ("load", "store")]
    bound = None if None in local else sum(value for value in local if value is not None)
    frame = case.number("frame_bytes", side, case.pair)
    return [
        Figure("local_instruction_count", bound, Unit.COUNT, side),
        Figure("frame_bytes", frame, Unit.BYTES, side),
    ]


def _latency(pair: RegionPair, comparison: Comparison) -> Finding:
    protocol = preferred_protocol(comparison.latency)
    one_sided = next(iter(comparison.latency), None)
    if protocol is None and one_sided is None:
        name = "wall_ns" if _get(pair, "wall_ns").delta is not None else "device_ns"
        return Finding("latency", _figures(pair, name), ("traced",), (), pair.path)
    change = comparison.latency[protocol or str(one_sided)]
    figures = (*_of("latency_ns", change), Figure("protocol", protocol or one_sided, Unit.TEXT, "both"))
    return Finding("latency", figures, ("untraced" if protocol else "one_side_only",), (), pair.path)


_NOTHING = Change(None, None, None, None, "", "none")


def _get(pair: RegionPair, name: str) -> Change:
    return pair.metrics.get(name, _NOTHING)


def _figures(pair: RegionPair, *names: str) -> tuple[Figure, ...]:
    return tuple(figure for name in names for figure in _of(name, _get(pair, name)))


def _of(name: str, change: Change) -> tuple[Figure, ...]:
    sides = [("base", change.base), ("test", change.test), ("delta", change.delta), ("ratio", change.ratio)]
    units = {"ratio": Unit.RATIO}
    return tuple(Figure(name, value, units.get(side, change.unit), side) for side, value in sides)
