"""The chart of a waterfall: from the base's time to the test's, a bar for each step."""

from __future__ import annotations

from typing import Any, Final

import altair as alt

from tracekit.model.report import Waterfall
from tracekit.model.units import Unit, write
from tracekit.render.charts.palette import AXIS, CHANGE_COLORS, SIDE_COLORS, US, WORDS, Drawn, inline

_IN_WORDS: Final = "replace(replace(datum.label, /^wall_gap_/, 'gap, '), /_/g, ' ')"


def waterfall_chart(waterfall: Waterfall, docs: dict[str, str]) -> Drawn:
    """Bars from left to right, each beginning where the one before ended; ``docs`` explains each step."""
    of, at = waterfall.instances or 1, float(waterfall.base_ns)
    rows: list[dict[str, Any]] = [
        {"step": "base", "from": 0.0, "to": at, "kind": "base", "figure": write(at / of, Unit.NS), "what": "base"}
    ]
    for step in waterfall.steps:
        kind = "saves" if step.delta_ns < 0 else "costs"
        figure = write(step.delta_ns / of, Unit.NS, signed=True)
        rows.append(
            {"step": step.name, "from": at, "to": at + step.delta_ns, "kind": kind, "figure": figure}
            | {"what": docs.get(step.name, "") + ("" if step.measured else " (a model)")}
        )
        at += step.delta_ns
    rows.append({"step": "test", "from": 0.0, "to": float(waterfall.test_ns), "kind": "test", "what": "test"})
    rows[-1]["figure"] = write(waterfall.test_ns / of, Unit.NS)
    for row in rows:
        row |= {"from": row["from"] / of / US, "to": row["to"] / of / US}
        row["end"] = max(row["from"], row["to"])
    order = [str(row["step"]) for row in rows]
    colors = SIDE_COLORS | CHANGE_COLORS
    y = alt.Y(
        "step:N", sort=order, title=None, axis=alt.Axis(labelLimit=200, ticks=False, domain=False, labelExpr=_IN_WORDS)
    )
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(cornerRadius=2, height={"band": 0.7})
        .encode(
            y=y,
            x=alt.X("from:Q", title="latency of a step (us)", scale=alt.Scale(zero=True)),
            x2="to:Q",
            color=alt.Color("kind:N", scale=alt.Scale(domain=list(colors), range=list(colors.values())), legend=None),
            tooltip=[alt.Tooltip("step:N"), alt.Tooltip("figure:N", title="time"), alt.Tooltip("what:N")],
        )
    )
    words = (
        alt.Chart(inline(rows))
        .mark_text(align="left", dx=6, fontSize=12, color=WORDS)
        .encode(y=y, x=alt.X("end:Q"), text="figure:N")
    )
    return alt.layer(bars, words).properties(height=30 * len(rows) + AXIS)
