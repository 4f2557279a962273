"""The charts of occupancy: active blocks as one resource of a launch changes."""

from __future__ import annotations

from typing import Final

import altair as alt
import pandas as pd

from tracekit.render.charts.palette import SIDE_COLORS, WORDS, Drawn, inline

TITLES: Final = {
    "registers": "registers a thread",
    "smem_bytes": "dynamic shared memory a block (bytes)",
    "threads": "threads a block",
}


def what_if_chart(name: str, curve: pd.DataFrame, now: pd.DataFrame, asked: pd.DataFrame) -> Drawn:
    """Active blocks per SM along one quantity, the other two as asked; the launch as it is, and as it would be."""
    rows = [
        {"x": row[name], "y": row["active_blocks_count"], "by": row["occupancy_limiter"] or ""}
        for row in curve.astype(object).where(curve.notna(), None).to_dict("records")
    ]
    x = alt.X("x:Q", title=TITLES[name], scale=alt.Scale(nice=False))
    y = alt.Y("y:Q", title="active blocks per SM", scale=alt.Scale(zero=True), axis=alt.Axis(tickMinStep=1))
    tips = [alt.Tooltip("x:Q", title=TITLES[name]), alt.Tooltip("y:Q", title="active blocks"), alt.Tooltip("by:N")]
    line = alt.Chart(inline(rows)).mark_line(interpolate="step-after", color=WORDS).encode(x=x, y=y, tooltip=tips)
    marks = []
    for which, frame, color in (("as it is", now, SIDE_COLORS["base"]), ("as asked", asked, SIDE_COLORS["test"])):
        row = frame.astype(object).where(frame.notna(), None).to_dict("records")[0]
        marks.append(
            alt.Chart(inline([{"x": row[name], "y": row["active_blocks_count"] or 0, "which": which}]))
            .mark_point(filled=True, size=130, color=color, opacity=1)
            .encode(x=x, y=y, tooltip=[alt.Tooltip("which:N"), *tips[:2]])
        )
    return alt.layer(line, *marks).properties(height=230)
