"""The charts of the timeline: both sides' lanes on one axis of time, and how busy each side is along it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair as alt
import pandas as pd

from tracekit.model.report import Slices
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import MISSING, Unit, write
from tracekit.render.charts.palette import (
    AXIS,
    GAP_COLORS,
    QUIET,
    REGION_COLORS,
    SIDE_COLORS,
    US,
    WORDS,
    Drawn,
    inline,
)
from tracekit.render.literal import clipped

_LANE: Final = 26
"""Pixels of a lane."""

_CHARACTERS: Final = 150
"""So many characters fit into the window's width."""

_FEWEST: Final = 6
"""A name is cut to no fewer characters."""

_HEADING: Final = "datum.value == 'bBASE' || datum.value == 'tTEST'"

_MARGIN: Final = 110
"""Pixels for the names of lanes."""

_CALLS: Final = "API call"
_CALL_COLOR: Final = "#7C8AA5"
_CALLED: Final = 48

TIP: Final = (
    ("what", "name"), ("in", "group"), ("from", "at"), ("lasts", "lasts"), ("stands for", "stands"), ("grid", "grid"),
    ("block", "block"), ("registers", "registers"), ("shared memory", "smem"), ("bytes", "bytes"),
)  # fmt: skip


def timeline_chart(sides: Mapping[str, Slices], window: tuple[int, int]) -> Drawn:
    """All lanes of both sides on one axis in us from the instance's start: wheel and drag move both sides alike."""
    colors = {
        **group_colors(sides), **{f"gap: {part}": color for part, color in GAP_COLORS.items()}, _CALLS: _CALL_COLOR,
    }  # fmt: skip
    # A lane's name begins with its side's first letter, which the axis leaves out; a side's own row is its heading.
    lanes = [f"{side[0]}{lane}" for side, slices in sides.items() for lane in (side.upper(), *slices.lanes)]
    rows = [row | {"lane": f"{side[0]}{row['lane']}"} for side, slices in sides.items() for row in marks(slices)]
    y = alt.Y(
        "lane:N", sort=lanes, scale=alt.Scale(domain=lanes, paddingInner=0.14), title=None,
        axis=alt.Axis(
            labelExpr="slice(datum.value, 1)", labelLimit=_MARGIN, minExtent=_MARGIN, maxExtent=_MARGIN, ticks=False,
            domain=False, labelOverlap=False,
            labelFontWeight=alt.condition(_HEADING, alt.value("bold"), alt.value("normal")),
        ),
    )  # fmt: skip
    x = alt.X(
        "start:Q", title="time from the start of the instance (us)",
        scale=alt.Scale(domain=[window[0] / US, window[1] / US], nice=False),
    )  # fmt: skip
    shown = [alt.Tooltip(f"{field}:N", title=title) for title, field in TIP]
    bars = (
        alt.Chart(inline(rows))
        .mark_rect(cornerRadius=1, clip=True)
        .encode(
            x=x, x2="end:Q", y=y, tooltip=shown, opacity=alt.Opacity("solid:Q", scale=None),
            color=alt.Color("color:N", scale=alt.Scale(domain=list(colors), range=list(colors.values())), legend=None),
        )
        .add_params(alt.selection_interval(bind="scales", encodings=["x"], name="zoom"))
    )  # fmt: skip
    words = (
        alt.Chart(inline([row for row in rows if row["label"]]))
        .mark_text(align="left", dx=4, fontSize=11, color="#fff", clip=True)
        .encode(x=alt.X("start:Q"), y=y, text="label:N", tooltip=shown)
    )
    return alt.layer(bars, words).properties(height=_LANE * len(lanes) + AXIS)


def group_colors(sides: Mapping[str, Slices]) -> dict[str, str]:
    """A colour for each region inside the chosen one, the same on both sides."""
    names = list(dict.fromkeys(name for slices in sides.values() for name in slices.groups))
    inner = [name for name in names if not name.startswith("(")]
    colors = {name: REGION_COLORS[at % len(REGION_COLORS)] for at, name in enumerate(inner)}
    return colors | {name: QUIET for name in names if name.startswith("(")}


def marks(slices: Slices) -> list[dict[str, Any]]:
    """A mark a slice: where it lies in us, its colour, the words inside it and in its tooltip."""
    low, high = slices.window.start_ns, slices.window.end_ns
    per_character = (high - low) / _CHARACTERS
    return [_mark(row, per_character) for row in slices.frame.to_dict("records")]


def _mark(row: Mapping[Any, Any], per_character: float) -> dict[str, Any]:
    count, length = int(row["count"]), int(row["end_ns"]) - int(row["start_ns"])
    kind, name, group = str(row["kind"]), str(row["name"]), str(row["group"])
    color = f"gap: {name}" if kind == "gaps" else _CALLS if kind == "calls" else group
    one = count == 1
    meaning = REGION_METRICS[f"gap_{name}_ns"].doc if kind == "gaps" and name in GAP_PARTS else ""
    room = int(length / per_character) - 1 if per_character else 0
    fits = one and kind != "gaps" and (room >= len(name) or room >= _FEWEST)
    return {
        "lane": row["lane"],
        "start": row["start_ns"] / US,
        "end": row["end_ns"] / US,
        "color": color,
        "solid": 1.0 if one else 0.55,
        "label": clipped(name, min(room, _CALLED)) if fits else "",
        "name": (clipped(name, 160) if one else f"{count:,} merged: {clipped(name, 60)} first")
        + (f": {meaning}" if meaning else ""),
        "group": group or MISSING,
        "at": write(int(row["start_ns"]), Unit.NS),
        "lasts": write(length, Unit.NS),
        "stands": "itself" if one else f"{count:,}, {write(int(row['busy_ns']), Unit.NS)} in all",
        "grid": row["grid"] or MISSING,
        "block": row["block"] or MISSING,
        "registers": _figure(row["registers_count"], Unit.COUNT),
        "smem": _figure(row["smem_bytes"], Unit.BYTES),
        "bytes": _figure(row["bytes"], Unit.BYTES),
    }


def _figure(value: Any, unit: str) -> str:
    missing = value is None or str(value) == "<NA>" or (isinstance(value, float) and math.isnan(value))
    return MISSING if missing else write(int(value), unit)


def density_chart(busy: Mapping[str, pd.DataFrame], window: tuple[int, int]) -> Drawn:
    """How busy each side's device is along the instance, with the window marked; a drag over it chooses another."""
    rows = [
        {"side": side, "start": row["start_ns"] / US, "end": row["end_ns"] / US, "busy": min(row["busy_ratio"], 1.0)}
        for side, frame in busy.items()
        for row in frame.to_dict("records")
    ]
    brush = alt.selection_interval(encodings=["x"], name="brush")
    y = alt.Y(
        "side:N", sort=list(SIDE_COLORS), title=None, axis=alt.Axis(minExtent=_MARGIN, maxExtent=_MARGIN, ticks=False)
    )
    bars = (
        alt.Chart(inline(rows))
        .mark_rect()
        .encode(
            x=alt.X("start:Q", title=None, scale=alt.Scale(nice=False)),
            x2="end:Q",
            y=y,
            color=alt.Color(
                "side:N", scale=alt.Scale(domain=list(SIDE_COLORS), range=list(SIDE_COLORS.values())), legend=None
            ),
            opacity=alt.Opacity("busy:Q", scale=alt.Scale(domain=[0, 1], range=[0.06, 1]), legend=None),
            tooltip=[alt.Tooltip("side:N"), alt.Tooltip("busy:Q", format=".0%", title="device busy")],
        )
        .add_params(brush)
    )
    marked = [{"start": window[0] / US, "end": window[1] / US}]
    frame = (
        alt.Chart(inline(marked))
        .mark_rect(fillOpacity=0, stroke=WORDS, strokeWidth=1.5)
        .encode(x="start:Q", x2="end:Q")
    )
    return alt.layer(bars, frame).properties(height=2 * 22 + AXIS / 2)


def lanes_drawn(sides: Mapping[str, Slices]) -> Sequence[str]:
    """The sides that have lanes."""
    return [side for side, slices in sides.items() if slices.lanes]
