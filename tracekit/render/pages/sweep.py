"""Draws the page of the sweep: where along the tokens a variant helps, and where it ceases to."""

from __future__ import annotations

import streamlit as st

from tracekit.errors import TracekitError
from tracekit.model.report import Crossover, Matrix
from tracekit.model.units import MISSING, write_change
from tracekit.render.charts.sweep import sweep_chart
from tracekit.render.pages.elements import literal, prose, say, section, table


def draw(matrix: Matrix) -> None:
    """The page: one variant's latency ratio along a size, of those that the folder holds."""
    section(
        "From decode to prefill",
        "Untraced latency of a variant over its baseline's at each size that the folder has. A turn counts only "
        "between sizes that are settled; its place is a straight line between them, in logarithms.",
    )
    series = {_name(crossover, matrix): crossover for crossover in matrix.crossovers if crossover.points}
    if not series:
        nothing(None)
        return
    best = max(series, key=lambda name: len(series[name].points))
    if st.session_state.get("series") not in series:
        st.session_state["series"] = best
    chosen = series[st.selectbox("Variant", list(series), key="series")]
    st.altair_chart(sweep_chart(chosen), width="stretch")
    rows = [
        [
            f"{size:,g}", prose(str(verdict)), write_change(ratio),
            f"{write_change(ends[0])} to {write_change(ends[1])}" if ends else MISSING,
        ]
        for (size, verdict, ratio), ends in zip(chosen.points, chosen.intervals, strict=True)
    ]  # fmt: skip
    table("sweep", [chosen.along, "verdict", "change", "95 % interval"], rows, right=(0, 2, 3))
    turns = [
        f"between {low:,g} and {high:,g}" + (f", at about {size:,.0f}" if size is not None else "")
        for (low, high), size in zip(chosen.turns, chosen.crossings, strict=True)
    ]
    say("turns", f"It turns {'; '.join(turns)}." if turns else "No turn between two settled sizes was seen.")
    if len(chosen.points) < 2:
        say("one-size", f"One size is no sweep: {_how()}")
    with st.expander("What the folder's comparisons leave out") if matrix.left_out else st.container():
        for note in matrix.left_out:
            st.text(note)


def _name(crossover: Crossover, matrix: Matrix) -> str:
    rest = "".join(f", {name.replace('_', ' ')} {value}" for name, value in crossover.rest)
    return f"{crossover.workload}: {crossover.variant} over {matrix.baselines[crossover.workload]}{rest}"


def nothing(error: TracekitError | None) -> None:
    """Says that the folder holds no sweep, and how to capture one."""
    say("no-sweep", f"This folder holds no variants of one workload at several sizes: {_how()}")
    if error is not None:
        st.markdown(literal(error.message.splitlines()[0]))


def _how() -> str:
    return "tracekit capture WORKLOAD --shapes t1_...,t128_...,t2048_... --processes 10 -o DIR"
