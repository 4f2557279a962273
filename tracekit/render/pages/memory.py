"""Draws the page of memory and math: DRAM bytes beside their bounds, the roofline, and what limits each region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import streamlit as st

from tracekit.model.report import Comparison, Figure, RegionPair, Traffic
from tracekit.model.tables import DRAM_KINDS
from tracekit.model.units import MISSING, Unit, write
from tracekit.render.charts.memory import bytes_chart, roofline_chart, speed_of_light_chart
from tracekit.render.pages.elements import in_words, prose, say, section, table
from tracekit.render.pages.regions import in_tree_order
from tracekit.render.words import CACHE_STATES, reason_words

_GIGA: Final = 1e9
_OF_DRAM: Final = ("dram", "l2", "intermediate")


def draw(comparison: Comparison, pair: RegionPair | None) -> None:
    """The page."""
    if pair is not None:
        _bytes(comparison, pair)
        _intermediate(comparison)
    _roofline(comparison)
    _regions(comparison)


def _bytes(comparison: Comparison, pair: RegionPair) -> None:
    own = [entry for entry in comparison.traffic if entry.path == pair.path]
    section(
        "DRAM bytes",
        f"{in_words(pair)}. The kinds are of different runs and are never mixed. The dashed line is the least that any "
        "implementation of the workload moves.",
    )
    if not own:
        say("no-bytes", "No DRAM bytes were counted for this region on either side: capture with Nsight Compute.")
        return
    kinds = [kind for kind in DRAM_KINDS if any(entry.kind == kind for entry in own)]
    for column, kind in zip(st.columns(len(kinds), gap="large"), kinds, strict=True):
        with column:
            st.markdown(f"**{prose(CACHE_STATES[kind])}**")
            chart = bytes_chart(own, kind)
            if chart is not None:
                st.altair_chart(chart, width="stretch")
    _table("traffic", own, comparison)


def _table(key: str, entries: Sequence[Traffic], comparison: Comparison) -> None:
    peak = comparison.roof.bytes_per_second if comparison.roof else None
    rows = [
        [
            prose(entry.kind.replace("_", " ")), entry.side, _bytes_of(entry.read_bytes), _bytes_of(entry.write_bytes),
            _bytes_of(entry.least_bytes), _rate(entry.achieved_bytes_per_second), _rate(peak),
        ]
        for entry in entries
    ]  # fmt: skip
    table(
        key, ["kind", "side", "read", "written", "lower bound", "achieved while busy", "peak by data sheet"], rows,
        right=(2, 3, 4, 5, 6),
    )  # fmt: skip
    if any(entry.achieved_bytes_per_second is None for entry in entries):
        say(
            "no-rate",
            "Only in-model bytes are of a whole run, as the timeline is; the others have no bandwidth.",
        )


def _bytes_of(value: float | None) -> str:
    return MISSING if value is None else write(int(value), Unit.BYTES)


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value / _GIGA:,.0f} GB/s"


def _intermediate(comparison: Comparison) -> None:
    """What the answer says of DRAM: whether the intermediates were in HBM or in L2."""
    found = [
        reason
        for reason in (comparison.answer.reasons if comparison.answer else ())
        if any(_names_dram(figure) for figure in reason.figures)
    ]
    sizes = {gpu.get("l2_bytes") for side in (comparison.base, comparison.test) for gpu in side.capture["gpus"]}
    section(
        "Where the intermediates sit",
        f"An L2 of {', '.join(write(size, Unit.BYTES) for size in sizes if size) or 'unknown size'}. Fusion saves "
        "bytes only where what it keeps in registers would have left the L2.",
    )
    for reason in found:
        say(f"dram-{reason.code}", f"{reason.role}: {reason_words(reason)}")
    if not found:
        say(
            "no-dram-reason",
            "The answer rests on no reason about DRAM bytes: they changed little, or were not counted.",
        )


def _names_dram(figure: Figure) -> bool:
    return any(word in figure.name for word in _OF_DRAM)


def _roofline(comparison: Comparison) -> None:
    section(
        "Roofline",
        "A point a side: the FLOPs that the workload states for a step, over its in-model DRAM bytes and over the busy "
        "time of the traced step.",
    )
    chart = roofline_chart(comparison.roof) if comparison.roof else None
    if chart is not None:
        st.altair_chart(chart, width="stretch")
    for at, note in enumerate(comparison.roof.notes if comparison.roof else ()):
        say(f"roof-{at}", note)


def _regions(comparison: Comparison) -> None:
    section(
        "What limits each region",
        "The dominant kernel's share of peak DRAM throughput and of the tensor pipe, where counters tell; from 60 % on "
        "it is bound by it, below both by latency.",
    )
    labelled = [(" › ".join(pair.path), pair) for _, pair in in_tree_order(comparison.regions)]
    chart = speed_of_light_chart(labelled)
    if chart is None:
        say("no-light", "Neither side has both counters for a region.")
        return
    left, right = st.columns([1, 1], gap="large")
    with left:
        st.altair_chart(chart, width="stretch")
    with right:
        rows = []
        for label, pair in labelled:
            dram, pipe, by = (pair.metrics.get(n) for n in ("dram_throughput_ratio", "tensor_pipe_ratio", "bound_by"))
            if not any(change and (change.base is not None or change.test is not None) for change in (dram, pipe)):
                continue
            for side in ("base", "test"):
                values = [getattr(change, side) if change else None for change in (dram, pipe, by)]
                ratios = [write(value, Unit.RATIO) for value in values[:2]]
                rows.append([prose(label) if side == "base" else "", side, *ratios, prose(str(values[2] or MISSING))])
        table("limits", ["region", "side", "DRAM", "tensor pipe", "bound by"], rows, right=(2, 3))
