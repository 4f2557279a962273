"""The chart of a sweep: the latency ratio along a size, with intervals and crossings."""

from __future__ import annotations

from typing import Any

import altair as alt

from tracekit.model.report import Crossover
from tracekit.model.units import write_change
from tracekit.render.charts.palette import SIDE_COLORS, WORDS, Drawn, inline


def sweep_chart(crossover: Crossover) -> Drawn:
    """Test over base at each size on a log axis: below 1 the variant is faster. Bars are 95 % intervals."""
    rows: list[dict[str, Any]] = [
        {
            "size": size, "ratio": ratio, "verdict": str(verdict), "low": ends[0] if ends else None,
            "high": ends[1] if ends else None, "change": write_change(ratio),
        }
        for (size, verdict, ratio), ends in zip(crossover.points, crossover.intervals, strict=True)
        if ratio is not None
    ]  # fmt: skip
    sizes = sorted({row["size"] for row in rows})
    x = alt.X(
        "size:Q", title=crossover.along.replace("_", " "),
        scale=alt.Scale(type="log" if sizes and sizes[0] > 0 else "linear", nice=False, padding=30),
        axis=alt.Axis(values=sizes, format=",d", grid=False),
    )  # fmt: skip
    ends = [1.0, *(row[name] for row in rows for name in ("low", "ratio", "high") if row[name] is not None)]
    y = alt.Y(
        "ratio:Q", title="latency of the variant over the baseline's",
        scale=alt.Scale(type="log", nice=False, domain=[min(ends) / 1.06, max(ends) * 1.06]),
    )  # fmt: skip
    tips = ["size:Q", "change:N", "verdict:N", alt.Tooltip("low:Q", format=".3f"), alt.Tooltip("high:Q", format=".3f")]
    layers: list[Any] = [
        alt.Chart(inline([{"one": 1}])).mark_rule(color=WORDS, strokeDash=[5, 4]).encode(y=alt.Y("one:Q")),
        alt.Chart(inline(rows)).mark_line(color=SIDE_COLORS["test"], strokeWidth=2).encode(x=x, y=y),
        alt.Chart(inline([row for row in rows if row["low"] is not None]))
        .mark_rule(color=SIDE_COLORS["test"], strokeWidth=3, opacity=0.45)
        .encode(x=x, y=alt.Y("low:Q"), y2="high:Q", tooltip=tips),
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=130, opacity=1, color=SIDE_COLORS["test"])
        .encode(x=x, y=y, tooltip=tips),
    ]
    crossings = [{"size": size, "one": 1, "text": f"≈ {size:,.0f}"} for size in crossover.crossings if size is not None]
    if crossings:
        layers.append(
            alt.Chart(inline(crossings))
            .mark_point(shape="diamond", size=170, filled=True, color="#D1582E", opacity=1)
            .encode(x="size:Q", y="one:Q", tooltip=[alt.Tooltip("text:N", title="crossing")])
        )
    return alt.layer(*layers).properties(height=360)
