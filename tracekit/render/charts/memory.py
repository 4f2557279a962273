"""The charts of memory and math: bytes beside their bounds, the roofline, and percentages of the peaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from tracekit.model.report import RegionPair, Roof, Traffic
from tracekit.model.units import Unit, write
from tracekit.render.charts.palette import SIDE_COLORS, WORDS, Drawn, inline, side_color

_MB: Final = 1e6
_TERA: Final = 1e12
_OPACITY: Final = {"read": 1.0, "written": 0.5}


def bytes_chart(entries: Sequence[Traffic], kind: str) -> Drawn | None:
    """Bytes read (solid) and written (pale) of both sides in one kind, with the workload's lower bound as a line.

    None where nothing was counted in that kind.
    """
    rows, bounds = [], []
    for entry in entries:
        if entry.kind != kind:
            continue
        for way, value in (("read", entry.read_bytes), ("written", entry.write_bytes)):
            if value is not None:
                rows.append(
                    {"side": entry.side, "way": way, "mb": value / _MB, "figure": write(int(value), Unit.BYTES)}
                    | {"solid": _OPACITY[way], "place": list(_OPACITY).index(way)}
                )
        if entry.least_bytes is not None:
            bounds.append({"mb": entry.least_bytes / _MB, "figure": write(int(entry.least_bytes), Unit.BYTES)})
    if not rows:
        return None
    y = alt.Y("side:N", sort=list(SIDE_COLORS), title=None, axis=alt.Axis(ticks=False, domain=False))
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(cornerRadius=1)
        .encode(
            y=y, x=alt.X("mb:Q", title="DRAM bytes (MB)", stack=True), color=side_color(),
            opacity=alt.Opacity("solid:Q", scale=None), order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("side:N"), alt.Tooltip("way:N"), alt.Tooltip("figure:N", title="bytes")],
        )
    )  # fmt: skip
    layers: list[Any] = [bars]
    if bounds:
        layers.append(
            alt.Chart(inline(bounds[:1]))
            .mark_rule(color=WORDS, strokeDash=[5, 4], strokeWidth=2)
            .encode(x="mb:Q", tooltip=[alt.Tooltip("figure:N", title="least that any implementation moves")])
        )
    return alt.layer(*layers).properties(height=150)


def roofline_chart(roof: Roof) -> Drawn | None:
    """Both axes logarithmic: the roof of bandwidth and of math, and a point a side. None without points and roof."""
    if not roof.points:
        return None
    low = min(point.flops_per_byte for point in roof.points) / 8
    high = max(point.flops_per_byte for point in roof.points) * 8
    points = [
        {
            "side": point.side, "x": point.flops_per_byte, "y": point.flops_per_second / _TERA,
            "figure": f"{point.flops_per_second / _TERA:,.4g} TFLOP/s at {point.flops_per_byte:,.4g} FLOP/B",
        }
        for point in roof.points
    ]  # fmt: skip
    layers: list[Any] = []
    if roof.bytes_per_second is not None:
        ridge = roof.flops_per_second / roof.bytes_per_second if roof.flops_per_second else high
        high = max(high, ridge * 2) if roof.flops_per_second else high
        low = min(low, ridge / 8)
        line = [{"x": x, "y": x * roof.bytes_per_second / _TERA} for x in (low, min(ridge, high))]
        if roof.flops_per_second is not None:
            line.append({"x": high, "y": roof.flops_per_second / _TERA})
        layers.append(_line(line))
    x = alt.X("x:Q", title="arithmetic intensity (FLOP per byte of DRAM)", scale=alt.Scale(type="log", nice=False))
    y = alt.Y("y:Q", title="TFLOP/s", scale=alt.Scale(type="log"))
    layers.append(
        alt.Chart(inline(points))
        .mark_point(filled=True, size=160, opacity=1)
        .encode(x=x, y=y, color=side_color(), shape=alt.Shape("side:N", legend=None), tooltip=["side:N", "figure:N"])
    )
    layers.append(
        alt.Chart(inline(points))
        .mark_text(align="left", dx=12, color=WORDS, fontSize=12)
        .encode(x=x, y=y, text="side:N")
    )
    return alt.layer(*layers).properties(height=320)


def _line(points: Sequence[dict[str, float]]) -> Any:
    return alt.Chart(inline(points)).mark_line(color=WORDS, strokeWidth=2).encode(x="x:Q", y="y:Q")


def speed_of_light_chart(pairs: Sequence[tuple[str, RegionPair]]) -> Drawn | None:
    """Each region's dominant kernel by its share of peak DRAM throughput and of the tensor pipe. None without any."""
    rows = []
    for label, pair in pairs:
        found = [pair.metrics.get(name) for name in ("dram_throughput_ratio", "tensor_pipe_ratio")]
        for side in SIDE_COLORS:
            x, y = (getattr(change, side) if change else None for change in found)
            if isinstance(x, int | float) and isinstance(y, int | float):
                rows.append({"region": label, "side": side, "x": x, "y": y})
    if not rows:
        return None
    bound = [{"x": 0.6, "y": 0.6}]
    percent = alt.Axis(format="%")
    points = (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=110, opacity=0.85)
        .encode(
            x=alt.X("x:Q", title="of peak DRAM throughput", scale=alt.Scale(domain=[0, 1]), axis=percent),
            y=alt.Y("y:Q", title="of the tensor pipe's peak", scale=alt.Scale(domain=[0, 1]), axis=percent),
            color=side_color(), shape=alt.Shape("side:N", legend=None),
            tooltip=["region:N", "side:N", alt.Tooltip("x:Q", format=".1%"), alt.Tooltip("y:Q", format=".1%")],
        )
    )  # fmt: skip
    rules = [
        alt.Chart(inline(bound)).mark_rule(color=WORDS, strokeDash=[4, 4]).encode(**{axis: f"{axis}:Q"})
        for axis in ("x", "y")
    ]
    return alt.layer(*rules, points).properties(height=320)
