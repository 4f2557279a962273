"""Draws the kernels of a region on both sides, matched: to search, to sort and to take away."""

from __future__ import annotations

from typing import Final

import pandas as pd
import streamlit as st

from tracekit.model.report import KernelMatch, KernelTotal, RegionPair
from tracekit.model.units import MISSING, Unit, write
from tracekit.render.pages.elements import in_words, instances, literal, prose, say, section, table

_US: Final = 1000
_ROW: Final = 35
_COUNTS: Final = ("base_count", "test_count")
_TIMES: Final = ("base_busy_ns", "test_busy_ns", "difference_ns")
_WORDS: Final = {
    "same": "same name", "renamed": "renamed", "replaced": "replaced", "only_base": "only in the base",
    "only_test": "only in the test",
}  # fmt: skip


def draw(pair: RegionPair) -> None:
    """The page: every kernel with its match, then who replaced whom."""
    section(
        "Kernels",
        f"{in_words(pair)}: totals over all instances ({instances(pair)}). Click a heading to sort; the table's "
        "own menu searches and downloads it.",
    )
    if not pair.kernels:
        say("no-kernels", "No kernel ran in this region on either side.")
        return
    frame = _frame(pair)
    text = st.text_input("Search", key="search", placeholder="part of a kernel's name", width=420)
    shown = frame[frame["kernel"].str.contains(text, case=False, regex=False)] if text else frame
    number = st.column_config.NumberColumn
    st.dataframe(
        shown.assign(**{name: shown[name] / _US for name in _TIMES}), key="kernel-table", hide_index=True,
        width="stretch", height=min(len(shown) + 1, 22) * _ROW + 3, placeholder=MISSING,
        column_config={
            "kernel": st.column_config.TextColumn(width=520),
            "group": number(width=60),
            "base_count": number("base count", format="localized"),
            "test_count": number("test count", format="localized"),
            "base_busy_ns": number("base busy (us)", format="%.1f"),
            "test_busy_ns": number("test busy (us)", format="%.1f"),
            "difference_ns": number("difference (us)", format="%+.1f"),
        },
    )  # fmt: skip
    say(
        "matched",
        f"{len(shown):,} of {len(frame):,} kernels; a group is what replaced what, and a dash a side that has none of "
        "that name.",
    )
    st.download_button(
        "Download CSV", shown.to_csv(index=False), "kernels.csv", "text/csv", on_click="ignore", key="kernels-csv"
    )
    _groups(pair)


def _frame(pair: RegionPair) -> pd.DataFrame:
    """A row a kernel: a matched one in one row, those of a replaced group one below the other."""
    rows = []
    for number, match in enumerate(pair.kernels, start=1):
        paired = match.match in ("same", "renamed") and len(match.base) == len(match.test) == 1
        lines: list[tuple[KernelTotal | None, KernelTotal | None]] = [(one, None) for one in match.base]
        lines += [(None, one) for one in match.test]
        if paired:
            lines = [(match.base[0], match.test[0])]
        rows += [_line(number, match, *line) for line in lines]
    return pd.DataFrame(rows).astype(dict.fromkeys((*_COUNTS, *_TIMES), "Int64"))


def _line(number: int, match: KernelMatch, base: KernelTotal | None, test: KernelTotal | None) -> dict[str, object]:
    known = base or test
    assert known is not None
    renamed = base is not None and test is not None and base.name != test.name
    return {
        "kernel": f"{base.name} → {test.name}" if renamed and base and test else known.name,
        "group": number,
        "match": _WORDS[match.match],
        "base_count": base.count if base else None,
        "test_count": test.count if test else None,
        "base_busy_ns": base.busy_ns if base else None,
        "test_busy_ns": test.busy_ns if test else None,
        "difference_ns": match.busy_delta_ns if base and test else None,
    }


def _groups(pair: RegionPair) -> None:
    """Those of other names, which replace each other as groups."""
    for number, match in enumerate(pair.kernels):
        if match.match in ("replaced", "renamed"):
            sides = (("base", match.base), ("test", match.test))
            how = f", equal by the rules {', '.join(match.rules)}" if match.rules else ""
            st.markdown(
                f"**{match.match.capitalize()}**: {_count(match.base)} of the base by {_count(match.test)} of the test"
                f"{prose(how)}; busy time {write(match.busy_delta_ns, Unit.NS, signed=True)}"
            )
            for column, (side, totals) in zip(st.columns(2, gap="large"), sides, strict=True):
                with column:
                    rows = [
                        [literal(kernel.name), write(kernel.count, Unit.COUNT), write(kernel.busy_ns, Unit.NS)]
                        for kernel in totals
                    ]
                    key = f"kernels-{number}-{side}"
                    table(key, [f"{side} kernel", "count", "busy"], rows, right=(1, 2), widths=("70%", "12%", "18%"))


def _count(totals: tuple[KernelTotal, ...]) -> str:
    return f"{len(totals)} kernel{'' if len(totals) == 1 else 's'}"
