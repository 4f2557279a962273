"""Charts of untraced latency."""

from __future__ import annotations

import altair as alt

from tracekit.model.report import Report
from tracekit.model.units import Unit, write
from tracekit.render.charts.palette import AXIS, SIDE_COLORS, US, Drawn, inline, side_color


def latency_chart(base: Report, test: Report) -> Drawn | None:
    """Untraced latency: a dot for each process, a tick at the median, a bar from p20 to p80. None where no side has it.

    A row for each protocol and side, so that an outlying process is seen as what it is.
    """
    dots, medians = [], []
    for side, report in (("base", base), ("test", test)):
        for entry in report.latency:
            row = {"protocol": entry.protocol, "side": side, "row": f"{entry.protocol}, {side}"}
            dots += [row | {"us": value / US, "figure": write(value, Unit.NS)} for value in entry.samples_ns]
            medians.append(
                row
                | {"us": entry.median_ns / US, "p20": entry.p20_ns / US, "p80": entry.p80_ns / US}
                | {"figure": write(entry.median_ns, Unit.NS)}
            )
    if not medians:
        return None
    protocols = list(dict.fromkeys(row["protocol"] for row in medians))
    rows = [f"{protocol}, {side}" for protocol in protocols for side in SIDE_COLORS]
    y = alt.Y(
        "row:N", sort=rows, title=None, axis=alt.Axis(labelLimit=200, labelOverlap=False, ticks=False, domain=False)
    )

    def x(field: str) -> alt.X:
        return alt.X(field, title="untraced latency of a step (us)", scale=alt.Scale(zero=False, padding=12))

    color = side_color()
    shown = [
        alt.Tooltip("side:N"),
        alt.Tooltip("protocol:N"),
        alt.Tooltip("figure:N", title="latency"),
    ]
    spread = (
        alt.Chart(inline(medians))
        .mark_bar(height=10, opacity=0.28, cornerRadius=5)
        .encode(y=y, x=x("p20:Q"), x2="p80:Q", color=color)
    )
    processes = (
        alt.Chart(inline(dots)).mark_circle(size=70, opacity=0.75).encode(y=y, x=x("us:Q"), color=color, tooltip=shown)
    )
    middle = (
        alt.Chart(inline(medians))
        .mark_tick(thickness=3, size=24, opacity=1)
        .encode(y=y, x=x("us:Q"), color=color, tooltip=[*shown[:2], alt.Tooltip("figure:N", title="median")])
    )
    return alt.layer(spread, processes, middle).properties(height=34 * len(rows) + AXIS)
