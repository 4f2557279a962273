"""Draws the page of occupancy: what one SM holds of each launch, what limits it, and what would if it were another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from tracekit.model.report import RegionPair
from tracekit.model.tables import REGION_METRICS
from tracekit.model.units import MISSING, Unit, write
from tracekit.render.charts.occupancy import TITLES, what_if_chart
from tracekit.render.literal import clipped
from tracekit.render.pages.elements import NOTHING, figures, in_words, literal, prose, say, section, table

_SHOWN: Final = 40
_MOST_SMEM: Final = 228 * 1024
_SPILLS: Final = (
    "spill_instruction_count", "local_load_instruction_count", "local_store_instruction_count", "frame_bytes",
    "local_thread_bytes",
)  # fmt: skip
_COLUMNS: Final = {
    "short_name": "kernel", "execution_count": "launches", "registers_count": "registers", "smem": "shared memory",
    "threads": "threads", "grid_blocks": "grid", "active_blocks_count": "active blocks",
    "limit_registers_count": "by registers", "limit_shared_memory_count": "by shared memory",
    "limit_warps_count": "by warps", "limit_blocks_count": "by blocks", "limit_barriers_count": "by barriers",
    "occupancy_limiter": "limited by", "sm_fill_ratio": "SM fill", "waves": "waves", "tail_ratio": "last wave",
    "theoretical_occupancy_ratio": "theoretical occupancy",
}  # fmt: skip


_UNITS: Final = {
    "shared memory": Unit.BYTES, "SM fill": Unit.RATIO, "last wave": Unit.RATIO, "theoretical occupancy": Unit.RATIO,
    "waves": Unit.WAVES,
}  # fmt: skip


def launches(side: str, blocks: pd.DataFrame | None) -> None:
    """Every launch configuration of a side with its limiters, the longest in all first."""
    if side == "base":
        section(
            "Active blocks per SM",
            "Each kernel's launch configurations, those that take the most time first. The least limit "
            "holds; `grid` where the grid has fewer blocks than the SMs have room for.",
        )
    st.markdown(f"**{side.capitalize()}**")
    if blocks is None or not len(blocks):
        say(
            f"no-launches-{side}",
            f"{side}: no timeline, and so no launches by themselves; the overview has its regions' blocks.",
        )
        return
    shown = blocks.head(_SHOWN)
    smem = shown["static_smem_bytes"] + shown["dynamic_smem_bytes"]
    frame = shown.assign(smem=smem, short_name=shown["short_name"].map(lambda name: clipped(str(name), 90)))
    frame = frame[list(_COLUMNS)].rename(columns=_COLUMNS)
    frame["limited by"] = frame["limited by"].astype(object)
    # A column with a missing cell becomes text, with a dash; numbers of the others are formatted where they are shown.
    missing = frame.columns[frame.isna().any()]
    for name in missing:
        frame[name] = [_cell(value, _UNITS.get(name, Unit.COUNT)) for value in frame[name].astype(object)]
    formats = _formats(st.column_config.NumberColumn) | {
        name: st.column_config.TextColumn(alignment="right") for name in missing if name != "limited by"
    }
    st.dataframe(
        frame, key=f"launches-{side}", hide_index=True, width="stretch", height=min(len(frame) + 1, 9) * 35 + 3,
        column_config={"kernel": st.column_config.TextColumn(width="medium"), **formats},
    )  # fmt: skip
    notes = [str(reason) for reason in blocks["reason"].unique() if reason]
    if len(blocks) > _SHOWN:
        notes.append(f"{len(blocks) - _SHOWN:,} more configurations take less time and are not shown")
    if blocks["upper_bound"].any():
        notes.append("blocks of clusters, or of kernels whose clusters or barriers are unknown, have an upper bound")
    if notes:
        say(f"launch-notes-{side}", f"{side}: {'; '.join(notes)}.")


def _formats(number: Callable[..., Any]) -> dict[str, Any]:
    percent = ("SM fill", "last wave", "theoretical occupancy")
    return {
        "shared memory": number(format="%d B"), "waves": number(format="%.2f"),
        **{name: number(format="percent") for name in percent},
    }  # fmt: skip


def _cell(value: Any, unit: Unit) -> str:
    if pd.isna(value):
        return MISSING
    return value if isinstance(value, str) else write(float(value), unit)


def pick(sides: Sequence[tuple[str, pd.DataFrame | None]]) -> tuple[str, int, dict[str, int]] | None:
    """The launch to vary and the quantities asked for; None where there is no launch with known limits."""
    options = {
        f"{side}:{int(row['launch'])}": (side, row)
        for side, blocks in sides
        if blocks is not None
        for row in blocks.head(_SHOWN).to_dict("records")
        if pd.notna(row["active_blocks_count"])
    }
    section(
        "What if",
        "The same formulas for other resources: registers, dynamic shared memory and threads of a block. Threads of "
        "the whole grid stay as many.",
    )
    if not options:
        say("no-what-if", "There is no launch on a GPU whose limits are known.")
        return None
    if st.session_state.get("launch") not in options:
        st.session_state["launch"] = next(iter(options))
    chosen = st.selectbox(
        "Launch", list(options), key="launch",
        format_func=lambda key: f"{options[key][0]}: {clipped(str(options[key][1]['short_name']), 100)}, "
        f"{int(options[key][1]['grid_blocks']):,} blocks of {int(options[key][1]['threads']):,} threads",
    )  # fmt: skip
    side, row = options[chosen]
    columns = st.columns(3, gap="large")
    place = chosen.replace(":", "-")
    untouched = {
        "registers": _within(row["registers_count"], 16, 255, 1),
        "smem_bytes": _within(row["dynamic_smem_bytes"], 0, _MOST_SMEM, 256),
        "threads": _within(row["threads"], 32, 1024, 32),
    }
    with columns[0]:
        registers = st.slider("Registers a thread", 16, 255, untouched["registers"], key=f"r-{place}")
    with columns[1]:
        smem = st.slider(
            "Dynamic shared memory a block (bytes)", 0, _MOST_SMEM, untouched["smem_bytes"], step=256, key=f"s-{place}"
        )
    with columns[2]:
        threads = st.slider("Threads a block", 32, 1024, untouched["threads"], step=32, key=f"t-{place}")
    # A slider snaps to its steps: a launch that lies between two is taken as it is until the slider is moved.
    exact = {"registers": row["registers_count"], "smem_bytes": row["dynamic_smem_bytes"], "threads": row["threads"]}
    moved = {"registers": registers, "smem_bytes": smem, "threads": threads}
    asked = {
        name: int(exact[name]) if pd.notna(exact[name]) and value == untouched[name] else int(value)
        for name, value in moved.items()
    }
    return side, int(row["launch"]), asked


def _within(value: Any, low: int, high: int, step: int) -> int:
    """The slider's own place for a value: the step at or below it."""
    known = low if pd.isna(value) else int(value)
    return min(max(low + (known - low) // step * step, low), high)


def what_if(side: str, launch: int, now: Mapping[str, pd.DataFrame], asked: Mapping[str, pd.DataFrame]) -> None:
    """The three curves, and the launch as it is beside what was asked."""
    rows = []
    for which, frame in (("as it is", now["here"]), ("as asked", asked["here"])):
        row = frame.astype(object).where(frame.notna(), None).to_dict("records")[0]
        rows.append([
            which, write(row["registers"], Unit.COUNT), write(row["smem_bytes"], Unit.BYTES),
            write(row["threads"], Unit.COUNT), write(row["active_blocks_count"], Unit.COUNT),
            prose(str(row["occupancy_limiter"] or MISSING)), write(row["theoretical_occupancy_ratio"], Unit.RATIO),
            write(row["waves"], Unit.WAVES), write(row["sm_fill_ratio"], Unit.RATIO),
        ])  # fmt: skip
    table(
        "what-if",
        ["launch", "registers", "shared memory", "threads", "active blocks", "limit", "occupancy", "waves", "SM fill"],
        rows, right=(1, 2, 3, 4, 6, 7, 8),
    )  # fmt: skip
    for column, name in zip(st.columns(len(TITLES), gap="large"), TITLES, strict=True):
        with column:
            st.altair_chart(what_if_chart(name, asked[name], now["here"], asked["here"]), width="stretch")


def spills(pair: RegionPair) -> None:
    """Spills by their three sources, which are never merged."""
    section(
        "Spills",
        f"{in_words(pair)}. Three sources, never merged: instructions that Nsight Compute counted (local loads and "
        "stores bound them), the compiled frame of the dominant kernel, and local memory as the timeline gives it.",
    )
    rows = [
        [literal(name), *figures(pair.metrics.get(name, NOTHING)), prose(REGION_METRICS[name].doc)] for name in _SPILLS
    ]
    table(
        "spills", ["source", "base", "test", "difference", "change", "what it is"], rows, right=(1, 2, 3, 4),
        widths=("22%", "12%", "12%", "12%", "10%", "32%"),
    )  # fmt: skip
    for at, note in enumerate(note for note in pair.notes if any(name in note for name in _SPILLS)):
        say(f"spill-note-{at}", note)
