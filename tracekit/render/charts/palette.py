"""The colours and the small parts that all charts share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import altair as alt
from altair.utils import schemapi

from tracekit.model.tables import GAP_PARTS

schemapi.disable_debug_mode()  # Each part of a chart would be checked as it is made, which takes half of a page's time.

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

Drawn = alt.LayerChart | alt.FacetChart | alt.VConcatChart | alt.HConcatChart
"""What a chart of several parts is."""

US = 1e3
"""Axes are in microseconds."""

WORDS = "#808495"
"""Text on charts: readable on light and dark."""

AXIS = 70
"""Pixels for the horizontal axis and its title."""

CHANGE_COLORS: Final = {"saves": "#2E8B6A", "costs": "#D1582E"}
"""Time saved and time added: told apart by lightness and sign, too."""

REGION_COLORS: Final = (
    "#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#C9A0DC", "#AAAA00", "#D9B08C",
)  # fmt: skip
"""Regions, the most important first: Paul Tol's light scheme, with a light purple and a tan, which colour-blind
people tell apart, with dark text legible on each, on light pages and dark ones."""

QUIET: Final = "#BBBBBB"
"""What has no colour of its own."""

INK: Final = "#1A1C23"
"""Text inside bars of these colours."""


def side_color(*, legend: bool = False) -> alt.Color:
    """The colour of a side, for a field ``side``; ``legend`` where nothing else on the chart names the sides."""
    return alt.Color(
        "side:N",
        scale=alt.Scale(domain=list(SIDE_COLORS), range=list(SIDE_COLORS.values())),
        legend=alt.Legend(orient="top", title=None) if legend else None,
    )


def inline(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    """Rows as data inside a chart."""
    return alt.InlineData(values=list(rows))
