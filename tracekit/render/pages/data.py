"""Draws the page of data: files to upload, what to take away, and what the captures could not tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from tracekit.model.report import Comparison, Report
from tracekit.render.pages.elements import literal, muted, say, section, table


def upload(take: Callable[[Sequence[Any]], None]) -> None:
    """Takes files; ``take`` keeps them, and they are chosen above like those of the folder."""
    section(
        "Add a capture",
        "An export of Nsight Systems (`.sqlite`), a report of Nsight Compute (`.ncu-rep`) or its raw page as CSV. "
        "A file stays on this machine, in a folder of this session alone; choose it above as base or test.",
    )

    def taken() -> None:
        files = st.session_state.get(_key())
        if files:
            take(files)
            st.session_state["uploads_taken"] = st.session_state.get("uploads_taken", 0) + 1

    with st.container(key="upload"):
        st.file_uploader(
            # Streamlit's own check of types knows no extension with a dash, such as Nsight Compute's.
            "Files", accept_multiple_files=True, key=_key(), on_change=taken, label_visibility="collapsed",
        )  # fmt: skip
    known = st.session_state.get("uploads", {})
    if known:
        say("uploaded", f"Uploaded: {', '.join(name.partition(': ')[2] for name in known)}")


def _key() -> str:
    """A new uploader after each upload: it would hand its files over again."""
    return f"uploader-{st.session_state.get('uploads_taken', 0)}"


def exports(html: Callable[[], str], json: Callable[[], str], csv: Callable[[], str]) -> None:
    """What to take away: the comparison as a page, as JSON and as a table."""
    section("Take away", "The figures that `tracekit diff` writes. A chart's toolbar has its data, a PNG and its spec.")
    columns = st.columns([1, 1, 1, 3])
    for column, (label, name, mime, make) in zip(
        columns,
        (
            ("HTML report", "diff.html", "text/html", html),
            ("JSON", "diff.json", "application/json", json),
            ("CSV of regions", "regions.csv", "text/csv", csv),
        ),
        strict=False,
    ):
        with column:
            st.download_button(label, make, name, mime, width="stretch", key=f"export-{name}", on_click="ignore")


def captures(comparison: Comparison) -> None:
    """What each capture is made of, what it covers, and what it could not tell."""
    section("What was captured", "A missing figure is a dash on every page; here is why.")
    for side in ("base", "test"):
        report: Report = getattr(comparison, side)
        st.markdown(f"**{side.capitalize()}**: {literal(report.capture['source'])}")
        if report.capture["description"]:
            say(f"description-{side}", str(report.capture["description"]))
        files = [
            [literal(str(entry["source"])), f"{entry['results']:,}", literal(", ".join(entry["kinds"]) or "unknown")]
            for entry in report.capture["counters"]
        ]
        if files:
            table(f"counters-{side}", ["counters", "results", "cache state"], files, right=(1,))
        with muted(f"notes-{side}"):
            for note in (_coverage(report), *report.notes):
                if note:
                    st.text(note)
    told = {f"{side}: {note}" for side in ("base", "test") for note in getattr(comparison, side).notes}
    of_both = [note for note in comparison.notes if note not in told]
    if of_both:
        st.markdown("**Both together**")
        with muted("comparison-notes"):
            for note in of_both:
                st.text(note)


def _coverage(report: Report) -> str:
    if not report.coverage.operations:
        return ""
    return f"{report.coverage.attributed:,} of {report.coverage.operations:,} device operations are inside a range."
