"""Draws report objects as Altair charts; scales units for axes and computes no figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import altair as alt

from tracekit.model.report import Change, RegionPair, Report
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import Unit, write

SIDE_COLORS: Final = {"base": "#8D99AE", "test": "#6C6FD8"}
"""The two captures, the same on every chart and in every bar."""

GAP_COLORS: Final = dict(
    zip(
        GAP_PARTS,
        ("#E69F00", "#56B4E9", "#CC79A7", "#D55E00", "#BFB226", "#0072B2", "#009E73", "#8C8C8C"),
        strict=True,
    )
)
"""A colour for each gap part: those of Okabe and Ito, which colour-blind people tell apart, on light and dark alike
(a darker yellow, and grey for black)."""

Layered = alt.LayerChart | alt.FacetChart
"""What Altair says that a layered chart is."""

_US = 1e3
"""Axes are in microseconds."""

_WORDS = "#808495"
"""Text on charts: readable on light and dark."""

_AXIS = 70
"""Pixels for the horizontal axis and its title."""


def gap_metric(part: str) -> str:
    """The region metric that holds a gap part."""
    return f"gap_{part}_ns"


def latency_chart(base: Report, test: Report) -> Layered | None:
    """Untraced latency: a dot for each process, a tick at the median, a bar from p20 to p80. None where no side has it.

    A row for each protocol and side, so that an outlying process is seen as what it is.
    """
    dots, medians = [], []
    for side, report in (("base", base), ("test", test)):
        for entry in report.latency:
            row = {"protocol": entry.protocol, "side": side, "row": f"{entry.protocol}, {side}"}
            dots += [row | {"us": value / _US, "figure": write(value, Unit.NS)} for value in entry.samples_ns]
            medians.append(
                row
                | {"us": entry.median_ns / _US, "p20": entry.p20_ns / _US, "p80": entry.p80_ns / _US}
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

    color = _side_color()
    shown = [
        alt.Tooltip("side:N"),
        alt.Tooltip("protocol:N"),
        alt.Tooltip("figure:N", title="latency"),
    ]
    spread = (
        alt.Chart(_data(medians))
        .mark_bar(height=10, opacity=0.28, cornerRadius=5)
        .encode(y=y, x=x("p20:Q"), x2="p80:Q", color=color)
    )
    processes = (
        alt.Chart(_data(dots)).mark_circle(size=70, opacity=0.75).encode(y=y, x=x("us:Q"), color=color, tooltip=shown)
    )
    middle = (
        alt.Chart(_data(medians))
        .mark_tick(thickness=3, size=24, opacity=1)
        .encode(y=y, x=x("us:Q"), color=color, tooltip=[*shown[:2], alt.Tooltip("figure:N", title="median")])
    )
    return alt.layer(spread, processes, middle).properties(height=34 * len(rows) + _AXIS)


def gap_chart(rows: Sequence[tuple[str, RegionPair]]) -> Layered | None:
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
                end = max(whole / _US, sum(part["us"] for part in stacked))
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
        alt.Chart(_data(parts))
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
        alt.Chart(_data(ends))
        .mark_text(align="left", dx=6, fontSize=12, color=_WORDS)
        .encode(y=y, yOffset=offset, x=alt.X("us:Q", stack=None), text="figure:N")
    )
    return alt.layer(bars, words).properties(height=46 * len(rows) + _AXIS)


def _parts(metrics: Mapping[str, Change], side: str) -> Iterable[dict[str, Any]]:
    """The gap parts that a side knows and that are not zero."""
    for place, part in enumerate(GAP_PARTS):
        value = _figure(metrics.get(gap_metric(part)), side)
        if value:
            yield {
                "part": part,
                "place": place,
                "us": value / _US,
                "figure": write(value, Unit.NS),
                "meaning": REGION_METRICS[gap_metric(part)].doc,
            }


def _figure(change: Change | None, side: str) -> float | None:
    value = getattr(change, side) if change else None
    return None if value is None or isinstance(value, str) else value


def _side_color() -> alt.Color:
    return alt.Color("side:N", scale=alt.Scale(domain=list(SIDE_COLORS), range=list(SIDE_COLORS.values())), legend=None)


def _data(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))
