"""Charts of idle device time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from tracekit.model.report import Change, RegionPair
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import Unit, write
from tracekit.render.charts.palette import AXIS, GAP_COLORS, SIDE_COLORS, US, WORDS, Drawn, inline, side_color


def gap_metric(part: str) -> str:
    """The region metric that holds a gap part."""
    return f"gap_{part}_ns"


def gap_chart(rows: Sequence[tuple[str, RegionPair]]) -> Drawn | None:
    """Gap parts stacked, base above test, for each labelled region. None where no side has gaps.

    A bar stacks the medians of the parts. The text at its end is the median of the whole gap, which need not be the
    bar's length: a median is not additive.
    """
    parts: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for label, pair in rows:
        for side in SIDE_COLORS:
            stacked = list(_parts(pair.metrics, side))
            parts += [{"region": label, "side": side, **part} for part in stacked]
            whole = _figure(pair.metrics.get("gap_ns"), side)
            if whole is not None:
                end = max(whole / US, sum(part["us"] for part in stacked))
                ends.append({"region": label, "side": side, "us": end, "figure": f"{side}  {write(whole, Unit.NS)}"})
    if not parts:
        return None
    y = alt.Y(
        "region:N",
        sort=[label for label, _ in rows],
        title=None,
        axis=alt.Axis(labelLimit=300, labelOverlap=False, ticks=False, domain=False),
        scale=alt.Scale(paddingInner=0.25),
    )
    offset = alt.YOffset("side:N", sort=list(SIDE_COLORS), scale=alt.Scale(paddingInner=0.12))
    limit = max((end["us"] for end in ends), default=0.0) * 1.12 or 1.0
    x = alt.X("us:Q", title="idle device time (us)", stack=True, scale=alt.Scale(domain=[0, limit], nice=False))
    bars = (
        alt.Chart(inline(parts))
        .mark_bar(cornerRadius=1)
        .encode(
            y=y,
            yOffset=offset,
            x=x,
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=list(GAP_COLORS), range=list(GAP_COLORS.values())),
                legend=None,
            ),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("region:N"),
                alt.Tooltip("side:N"),
                alt.Tooltip("part:N"),
                alt.Tooltip("figure:N", title="median"),
                alt.Tooltip("meaning:N"),
            ],
        )
    )
    words = (
        alt.Chart(inline(ends))
        .mark_text(align="left", dx=6, fontSize=12, color=WORDS)
        .encode(y=y, yOffset=offset, x=alt.X("us:Q", stack=None), text="figure:N")
    )
    return alt.layer(bars, words).properties(height=46 * len(rows) + AXIS)


def _parts(metrics: Mapping[str, Change], side: str) -> Iterable[dict[str, Any]]:
    """The gap parts that a side knows and that are not zero."""
    for place, part in enumerate(GAP_PARTS):
        value = _figure(metrics.get(gap_metric(part)), side)
        if value:
            yield {
                "part": part,
                "place": place,
                "us": value / US,
                "figure": write(value, Unit.NS),
                "meaning": REGION_METRICS[gap_metric(part)].doc,
            }


def _figure(change: Change | None, side: str) -> float | None:
    value = getattr(change, side) if change else None
    return None if value is None or isinstance(value, str) else value


def histogram_charts(found: Mapping[str, Mapping[str, Any] | None]) -> tuple[Drawn, Drawn] | None:
    """Gaps by length on a log axis, both sides beside each other: how many, and how long in all. None without any."""
    rows = []
    for side, data in found.items():
        for part in data["histogram"] if data else ():
            low, high = part["from_ns"], part["below_ns"]
            label = f"< {write(high, Unit.NS)}" if not low else f"≥ {write(low, Unit.NS)}"
            rows.append(
                {"side": side, "from": low, "length": label, "gaps": part["gaps"]}
                | {"idle": write(part["gap_ns"], Unit.NS), "us": part["gap_ns"] / US}
            )
    if not any(row["gaps"] for row in rows):
        return None
    used = [row["from"] for row in rows if row["gaps"]]
    rows = [row for row in rows if min(used) <= row["from"] <= max(used)]
    order = list(dict.fromkeys(row["length"] for row in sorted(rows, key=lambda row: row["from"])))
    x = alt.X(
        "length:N", sort=order, title="length of a gap",
        axis=alt.Axis(labelAngle=-30, labelLimit=120, labelOverlap=False),
    )  # fmt: skip
    tips = [alt.Tooltip("side:N"), alt.Tooltip("length:N"), alt.Tooltip("gaps:Q"), alt.Tooltip("idle:N")]

    def chart(field: str, title: str) -> Drawn:
        bars = alt.Chart(inline(rows)).mark_bar(cornerRadius=2)
        coded = bars.encode(
            x=x, xOffset=alt.XOffset("side:N", sort=list(SIDE_COLORS)), y=alt.Y(field, title=title),
            color=side_color(legend=True), tooltip=tips,
        )  # fmt: skip
        return alt.layer(coded).properties(height=280)

    return chart("gaps:Q", "gaps"), chart("us:Q", "idle time (us)")
