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
    "#6C6FD8", "#2A9D8F", "#B5568F", "#4C8BC9", "#8F6F3E", "#7A8F2E", "#9B5FCF", "#C0605E", "#3F7F5F", "#7C6A8E",
    "#4F6D8F", "#A8632F",
)  # fmt: skip
"""The regions inside the chosen one, by order of appearance on either side; they repeat where there are more."""

QUIET: Final = "#9AA0AC"
"""What belongs to no region of interest."""


def side_color() -> alt.Color:
    """The colour of a side, for a field ``side``."""
    return alt.Color("side:N", scale=alt.Scale(domain=list(SIDE_COLORS), range=list(SIDE_COLORS.values())), legend=None)


def inline(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    """Rows as data inside a chart."""
    return alt.InlineData(values=list(rows))
