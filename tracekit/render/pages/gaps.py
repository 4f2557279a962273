"""Draws the page of gaps: how long, for which cause, where, and the longest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from tracekit.model.report import RegionPair
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import Unit, write
from tracekit.render.charts.gaps import gap_chart, gap_metric, histogram_charts
from tracekit.render.charts.palette import GAP_COLORS
from tracekit.render.literal import clipped
from tracekit.render.pages.elements import (
    NOTHING,
    figures,
    in_words,
    known_or_zero,
    literal,
    muted,
    path_words,
    prose,
    say,
    section,
    table,
)
from tracekit.render.pages.regions import children_of

_CHILDREN_DRAWN: Final = 12
"""More regions than this would make a chart that nobody reads."""


_LONGEST_US: Final = 1e9
"""A threshold above this is a mistake."""


def threshold(asked: float | None) -> float:
    """The filter, at what the address asks, in us: nothing is hidden unless a reader wants it. Returns what holds."""
    state = st.session_state
    holds = asked if asked is not None and 0 < asked <= _LONGEST_US else None
    # The field shows what holds, also after a link or the browser's back button.
    state["threshold"] = holds
    state["at_least"] = f"{holds:g}" if holds else ""

    def ask() -> None:
        value = state.get("threshold")
        state["at_least"] = f"{value:g}" if value else ""

    st.number_input(
        "Leave out gaps shorter than (us)", min_value=0.0, max_value=_LONGEST_US, step=1.0, value=None, format="%g",
        key="threshold", placeholder="none", on_change=ask, width=260,
    )  # fmt: skip
    return holds or 0.0


def draw(pair: RegionPair, pairs: Sequence[RegionPair], found: Mapping[str, Mapping[str, Any] | None]) -> None:
    """The page: gaps by length, by cause and region, and the longest; ``found`` has each side's idle report."""
    _lengths(pair, found)
    gaps(pair, pairs)
    _longest(found)


def _lengths(pair: RegionPair, found: Mapping[str, Mapping[str, Any] | None]) -> None:
    section(
        "How long the gaps are",
        f"{in_words(pair)}: gaps that its operations end, over all instances, by length. Every gap counts unless a "
        "threshold is set above.",
    )
    charts = histogram_charts(found)
    if charts is None:
        say("no-gaps", "No gap is known here: it takes a timeline on at least one side, and a region with device work.")
        return
    for column, chart in zip(st.columns(2, gap="large"), charts, strict=True):
        with column:
            st.altair_chart(chart, width="stretch")
    known = {side: data for side, data in found.items() if data is not None}
    with muted("lengths"):
        for side, data in known.items():
            st.text(f"{side}: {_causes(data['parts']) or 'no gap'}")
        for side, data in known.items():
            if (left := data["filter"])["gaps_left_out"]:
                st.text(
                    f"{side}: the threshold leaves out {left['gaps_left_out']:,} gaps, "
                    f"{write(left['gap_left_out_ns'], Unit.NS)} of idle time. The medians below are over every gap."
                )


def _causes(parts: Mapping[str, int | None]) -> str:
    """The gap parts of all gaps that count, the largest first."""
    known = sorted(((value, name) for name, value in parts.items() if value), reverse=True)
    return " · ".join(f"{_part(name)} {write(value, Unit.NS)}" for value, name in known)


def _part(name: str) -> str:
    return name.removeprefix("gap_").removesuffix("_ns")


def _longest(found: Mapping[str, Mapping[str, Any] | None]) -> None:
    section("The longest gaps", "What ended each, where, its largest cause, and the API calls inside it.")
    for side, data in found.items():
        rows = [
            [
                write(gap["gap_ns"], Unit.NS),
                prose(_part(max(gap["parts"], key=lambda name: gap["parts"][name]))),
                literal(clipped(gap["ended_by"], 160)),
                literal(path_words(gap["path"] or ())),
                literal(", ".join(map(_call, gap["calls"]))),
            ]
            for gap in (data["longest"] if data else ())
        ]
        if rows:
            st.markdown(f"**{side.capitalize()}**")
            table(
                f"longest-{side}", ["gap", "cause", "ended by", "in", "calls inside"], rows, right=(0,),
                widths=("9%", "10%", "30%", "23%", "28%"),
            )  # fmt: skip


def _call(call: Mapping[str, Any]) -> str:
    times = f"{call['count']} × " if call["count"] > 1 else ""
    return f"{times}{clipped(call['name'], 60)} {write(call['inside_ns'], Unit.NS)}"


def gaps(pair: RegionPair, pairs: Sequence[RegionPair]) -> None:
    """Why the device idled: the gap parts of the selected region and of the regions inside it."""
    section(
        "What the device waited for",
        "Idle time by what the host was doing about the operation that ends the gap. A bar stacks the medians of the "
        "parts; the figure at its end is the median of the whole, which need not be their sum.",
    )
    children = children_of(pair, pairs)
    drawn = sorted(range(len(children)), key=lambda at: _idle(children[at]), reverse=True)[:_CHILDREN_DRAWN]
    rows = [(pair.path[-1], pair), *((f"\u2003{children[at].path[-1]}", children[at]) for at in sorted(drawn))]
    chart = gap_chart(rows)
    if chart is None:
        say("gaps", "No idle device time is known here: it takes a timeline on at least one side.")
        return
    left, right = st.columns([5, 7], gap="large")
    with left:
        st.altair_chart(chart, width="stretch")
        if len(drawn) < len(children):
            say("children", f"{len(drawn)} of {len(children)} inner regions are drawn: those with the most idle time.")
    with right:
        _gap_table(pair)


def _gap_table(pair: RegionPair) -> None:
    parts = [(part, pair.metrics.get(gap_metric(part), NOTHING)) for part in GAP_PARTS]
    shown = [(part, change) for part, change in parts if change.base or change.test]
    absent = [part for part, change in parts if change.base is None or change.test is None]
    rows = [["■", prose(part), *figures(change), prose(REGION_METRICS[gap_metric(part)].doc)] for part, change in shown]
    whole = pair.metrics.get("gap_ns", NOTHING)
    rows.append(["", "**all gaps**", *figures(whole), prose(REGION_METRICS["gap_ns"].doc)])
    table(
        "gap-parts",
        ["", "part", "base", "test", "difference", "change", "what it is"],
        rows,
        right=(2, 3, 4, 5),
        widths=("4%", "15%", "11%", "11%", "12%", "10%", "37%"),
        colors=[GAP_COLORS[part] for part, _ in shown],
    )
    if absent:
        say("absent", f"Not known on one side or both: {', '.join(absent)}.")


def _idle(pair: RegionPair) -> float:
    change = pair.metrics.get("gap_ns", NOTHING)
    return max(known_or_zero(change.base), known_or_zero(change.test))
