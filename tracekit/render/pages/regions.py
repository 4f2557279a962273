"""Draws the region tree and every metric of a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from tracekit.model.labels import Path
from tracekit.model.report import RegionPair
from tracekit.model.tables import REGION_METRICS
from tracekit.model.units import MISSING, write, write_change
from tracekit.render.charts.palette import SIDE_COLORS
from tracekit.render.pages.elements import (
    NOTHING,
    figures,
    in_words,
    instances,
    known_or_zero,
    literal,
    muted,
    prose,
    section,
    table,
)


def tree(pairs: Sequence[RegionPair], selected: RegionPair, on_select: Callable[[int], None]) -> None:
    """The region tree with charged device time. A click on a row calls ``on_select`` with its place in ``pairs``."""
    doc = REGION_METRICS["device_ns"].doc
    section("Where the time goes", f"{prose(doc)} Medians over instances; click on a region to see it above and below.")
    ordered = in_tree_order(pairs)
    charged = [pair.metrics.get("device_ns", NOTHING) for _, pair in ordered]
    kernels = [pair.metrics.get("kernel_count", NOTHING) for _, pair in ordered]
    frame = pd.DataFrame({
        "region": [_tree_label(depth, pair, pair is selected) for depth, pair in ordered],
        "base": [change.base for change in charged],
        "test": [change.test for change in charged],
        "base charged": [write(change.base, change.unit) for change in charged],
        "test charged": [write(change.test, change.unit) for change in charged],
        "difference": [write(change.delta, change.unit, signed=True) for change in charged],
        "change": [write_change(change.ratio) for change in charged],
        "base kernels": [write(change.base, change.unit) for change in kernels],
        "test kernels": [write(change.test, change.unit) for change in kernels],
        "instances": [_times(pair) for _, pair in ordered],
    })  # fmt: skip
    longest = max((known_or_zero(value) for change in charged for value in (change.base, change.test)), default=0.0)
    bars: dict[str, Any] = {
        side: st.column_config.ProgressColumn(
            side, format=" ", min_value=0.0, max_value=longest or 1.0, color=color, width=130
        )
        for side, color in SIDE_COLORS.items()
    }
    words: dict[str, Any] = {
        name: st.column_config.TextColumn(alignment="right", width="small") for name in frame.columns[3:]
    }
    frame[["base", "test"]] = frame[["base", "test"]].astype(float)
    places = {id(pair): place for place, pair in enumerate(pairs)}

    def clicked() -> None:
        cells = st.session_state["tree"].selection.cells
        if cells:
            on_select(places[id(ordered[cells[0][0]][1])])

    st.dataframe(
        frame,
        key="tree",
        hide_index=True,
        width="stretch",
        height=min(len(frame), 22) * 31 + 34,
        row_height=31,
        column_config={"region": st.column_config.TextColumn(width=250), **bars, **words},
        on_select=clicked,
        selection_mode="single-cell",
    )


def metrics(pair: RegionPair) -> None:
    """Every metric of the selected region, with the notes that say why one is missing."""
    section("Every metric", f"{in_words(pair)}: medians over {instances(pair)}.")
    rows = [
        [
            literal(name),
            *figures(change),
            MISSING if change.better == "none" else prose(change.better),
            prose(change.unit),
            prose(change.kind.replace("_", " ")) if change.kind else "",
            f":gray[{prose(REGION_METRICS[name].doc)}]",
        ]
        for name, change in pair.metrics.items()
    ]
    table(
        "metrics",
        ["metric", "base", "test", "difference", "change", "better", "unit", "kind", "what it is"],
        rows,
        right=(1, 2, 3, 4),
        widths=("17%", "10%", "10%", "10%", "8%", "6%", "6%", "7%", "26%"),
        wrap=True,
    )
    with muted("region-notes"):
        for note in pair.notes:
            st.text(note)


def in_tree_order(pairs: Sequence[RegionPair]) -> list[tuple[int, RegionPair]]:
    """Every pair with its depth, each before those inside it; a region of one side only is put under its parent."""
    inside: dict[int | None, list[int]] = {}
    for place, parent in enumerate(parents_of(pairs)):
        inside.setdefault(parent, []).append(place)
    out: list[tuple[int, RegionPair]] = []
    pending = [(0, place) for place in reversed(inside.get(None, []))]
    while pending:
        depth, place = pending.pop()
        out.append((depth, pairs[place]))
        pending += [(depth + 1, child) for child in reversed(inside.get(place, []))]
    return out


def parents_of(pairs: Sequence[RegionPair]) -> list[int | None]:
    """The place of the pair around each: by the path of the side that has it, since a root may differ in name."""
    places = [
        {path: place for place, pair in enumerate(pairs) if (path := _path_of(pair, side)) is not None}
        for side in SIDE_COLORS
    ]
    out: list[int | None] = []
    for pair in pairs:
        found = None
        for side, known in zip(SIDE_COLORS, places, strict=True):
            path = _path_of(pair, side)
            if found is None and path is not None:
                found = known.get(path[:-1])
        out.append(found)
    return out


def _path_of(pair: RegionPair, side: str) -> Path | None:
    path: Path | None = getattr(pair, f"{side}_path")
    return path


def children_of(pair: RegionPair, pairs: Sequence[RegionPair]) -> list[RegionPair]:
    """The regions directly inside one."""
    parents = parents_of(pairs)
    return [other for other, parent in zip(pairs, parents, strict=True) if parent is not None and pairs[parent] is pair]


def _times(pair: RegionPair) -> str:
    both = (pair.base_instances, pair.test_instances)
    return f"{both[0]:,}" if both[0] == both[1] else f"{both[0]:,} → {both[1]:,}"


def _tree_label(depth: int, pair: RegionPair, selected: bool) -> str:
    only = {(True, False): "  (base only)", (False, True): "  (test only)"}
    where = only.get((pair.base_path is not None, pair.test_path is not None), "")
    return "\u2003" * depth + ("● " if selected else "") + pair.path[-1] + where
