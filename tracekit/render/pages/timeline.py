"""Draws the page of the timeline: one instance of a region on both sides, and the window to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pandas as pd
import streamlit as st

from tracekit.model.report import RegionPair, Slices
from tracekit.model.units import Unit, write
from tracekit.render.charts.palette import GAP_COLORS
from tracekit.render.charts.timeline import density_chart, group_colors, lanes_drawn, timeline_chart
from tracekit.render.pages.elements import in_words, prose, say, section

MOST: Final = 260
"""Parts of a window: what is narrower is merged with its neighbours."""

SHORTEST_NS: Final = 100
"""The narrowest window."""

_US: Final = 1000
_STEPS: Final = {
    "in": ("Zoom in", ":material/zoom_in:"), "out": ("Zoom out", ":material/zoom_out:"),
    "left": ("Earlier", ":material/arrow_back:"), "right": ("Later", ":material/arrow_forward:"),
    "fit": ("All of it", ":material/fit_screen:"),
}  # fmt: skip


def draw(
    pair: RegionPair,
    shown: Mapping[str, Slices],
    busy: Mapping[str, pd.DataFrame],
    window: tuple[int, int],
    longest: int,
    move: Callable[[int, int], None],
) -> None:
    """The page. ``shown`` has each side's slices of ``window``, in ns from the instance's start, and ``busy`` how busy
    its device is along the whole, which lasts ``longest``. ``move`` is called with the window a reader moves to."""
    section(
        "Timeline",
        f"{in_words(pair)}: one instance on each side, from the start of its range. Turn the wheel or drag to look "
        "closer at both sides at once; drag over the strip, or use the buttons, to cut a finer window.",
    )
    if not lanes_drawn(shown):
        say("no-timeline", "Neither capture has a timeline: there are only counters.")
        return
    _instances(shown)
    _controls(window, longest, move)

    def brushed() -> None:
        ends = (st.session_state["strip"].selection.get("brush") or {}).get("start")
        if ends and len(ends) == 2:
            low, high = sorted(int(float(end) * _US) for end in ends)
            if high - low >= SHORTEST_NS:
                move(low, high)

    st.altair_chart(
        density_chart(busy, window), key="strip", on_select=brushed, selection_mode="brush", width="stretch"
    )
    st.altair_chart(timeline_chart({side: shown[side] for side in lanes_drawn(shown)}, window), width="stretch")
    _legend(shown)
    for side, slices in shown.items():
        if not slices.lanes:
            say(f"timeline-{side}", f"{side}: {'; '.join(slices.notes) or 'nothing to draw'}.")
        elif slices.notes:
            say(f"timeline-{side}", f"{side}: {'; '.join(slices.notes)}.")


def _instances(shown: Mapping[str, Slices]) -> None:
    """Which instance is drawn: the median one of each side, or a number."""
    most = max(slices.window.instances for slices in shown.values())
    words = [
        f"{side}: instance {slices.window.instance + 1:,} of {slices.window.instances:,}"
        if slices.window.instance is not None
        else f"{side}: the whole capture, which has no instance of it"
        for side, slices in shown.items()
    ]
    chosen = st.session_state.get("instance") not in (None, "")
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    with left:
        say("drawn", f"{'; '.join(words)} ({'as chosen' if chosen else 'the median by duration'}).")
    with right:
        if most > 1:
            st.number_input(
                "Instance", min_value=1, max_value=most, value=None, step=1, key="instance-number",
                placeholder="median", on_change=_ask,
            )  # fmt: skip


def _ask() -> None:
    value = st.session_state.get("instance-number")
    st.session_state["instance"] = "" if value is None else str(int(value) - 1)
    st.session_state["from"] = st.session_state["to"] = None


def _controls(window: tuple[int, int], longest: int, move: Callable[[int, int], None]) -> None:
    """Buttons that move the window; the keyboard reaches them with Tab."""
    low, high = window
    length = high - low
    places = {
        "in": (low + length // 4, high - length // 4),
        "out": (max(0, low - length // 2), min(longest, high + length // 2)),
        "left": (max(0, low - length // 2), max(length, high - length // 2)),
        "right": (min(low + length // 2, longest - length), min(high + length // 2, longest)),
        "fit": (0, longest),
    }
    with st.container(horizontal=True, key="window", vertical_alignment="center"):
        for name, (words, icon) in _STEPS.items():
            stays = places[name] == window or places[name][1] - places[name][0] < SHORTEST_NS
            st.button(words, icon=icon, key=f"window-{name}", disabled=stays, on_click=move, args=places[name])
        st.text(f"{write(low, Unit.NS)} to {write(high, Unit.NS)}")


def _legend(shown: Mapping[str, Slices]) -> None:
    """Colours in words: the regions, and the causes of gaps that there are."""
    regions = group_colors(shown)
    causes = [
        part
        for part in GAP_COLORS
        if any(((s.frame["kind"] == "gaps") & (s.frame["name"] == part)).any() for s in shown.values())
    ]
    used = {name for s in shown.values() for name in s.frame.loc[s.frame["kind"] == "operations", "group"]}
    marks = [(color, name) for name, color in regions.items() if name in used]
    marks += [(GAP_COLORS[part], f"gap: {part}") for part in causes]
    rules = " ".join(f".st-key-legend-{at} p {{ color: {color}; }}" for at, (color, _) in enumerate(marks))
    st.html(f"<style>{rules} [class*='st-key-legend-'] p {{ font-size: 1.1rem; }}</style>")
    with st.container(horizontal=True, key="legend", gap="small"):
        for at, (_, name) in enumerate(marks):
            with st.container(horizontal=True, key=f"mark-{at}", gap=None, width="content"):
                with st.container(key=f"legend-{at}", width="content"):
                    st.markdown("■")
                st.caption(prose(name))
