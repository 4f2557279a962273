"""The page: picks two traces and a region, and lays out one of its parts from the pipeline's results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import streamlit as st

from tracekit import pipeline
from tracekit.app import address, traces
from tracekit.errors import InputError, NotComparableError, TracekitError
from tracekit.model import labels
from tracekit.model.report import Comparison, Mismatch, RegionPair, Report
from tracekit.render.html import diff_html
from tracekit.render.json import diff_json, plain
from tracekit.render.pages import data, elements, gaps, kernels, memory, occupancy, overview, regions, sweep, timeline

US: Final = 1000
"""ns: filters are in microseconds."""

_LOOKED_AT: Final = "timeline-looked-at"


@dataclass(frozen=True)
class View:
    """What a part of the page is drawn from: the traces' folder and names, and what was chosen among them."""

    folder: Path
    listed: Mapping[str, Path]
    comparison: Comparison
    pair: RegionPair | None

    def paths(self) -> tuple[Path, Path]:
        """Where the two traces lie."""
        return self.listed[st.session_state["base"]], self.listed[st.session_state["test"]]


def main() -> None:
    """Draws the page. The script's first argument is the traces' folder."""
    st.set_page_config(page_title="tracekit", layout="wide", initial_sidebar_state="collapsed")
    elements.style()
    try:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else pipeline.samples_directory()
        listed = traces.listed(folder)
    except TracekitError as error:
        elements.masthead()
        elements.failure(error)
        return
    address.adopt(listed, PARTS, lambda: usual(listed))
    elements.masthead()
    st.segmented_control(
        "Part", list(PARTS), key="page", required=True, format_func=lambda name: PARTS[name].title,
        label_visibility="collapsed", on_change=address.drop_filters,
    )  # fmt: skip
    part = PARTS[st.session_state["page"]]
    if not listed:
        elements.failure(
            InputError(
                folder,
                expected="trace bundles, or .sqlite, .ncu-rep or .csv files",
                found="a folder without any",
                remedy="capture a bundle into it, then reload this page; or upload a file",
            )
        )
        _upload()
    else:
        _chosen(folder, listed, part)
    address.write()


def usual(listed: Mapping[str, Path]) -> Mapping[str, str]:
    """What is open where nothing is chosen."""
    names = list(listed)
    if not names:
        return {"page": next(iter(PARTS)), "base": "", "test": ""}
    pair = pipeline.usual_pair(listed) or (names[0], names[min(1, len(names) - 1)])
    return {"page": next(iter(PARTS)), "base": pair[0], "test": pair[1]}


def _chosen(folder: Path, listed: Mapping[str, Path], part: Part) -> None:
    """The choices, and the open part below them; errors of a trace beneath its name."""
    columns = st.columns([3, 3, 4], gap="medium")
    found: dict[str, Report] = {}
    for column, side in zip(columns, ("base", "test"), strict=False):
        with column:
            name = st.selectbox(side.capitalize(), list(listed), key=side)
            try:
                found[side] = traces.report(listed[name])
            except TracekitError as error:
                elements.failure(error)
    for column, side, other in zip(columns, ("base", "test"), ("test", "base"), strict=False):
        if side in found:
            with column:
                elements.describe(found[side], found.get(other), side)
    comparison = _compared(listed) if len(found) == 2 else None
    pair = None
    if comparison is not None:
        with columns[2]:
            pair = _pick_region(comparison)
    if comparison is not None:
        part.draw(View(folder, listed, comparison, pair))
    elif part is PARTS["data"]:
        _upload()


def _compared(listed: Mapping[str, Path]) -> Comparison | None:
    """The comparison under the waivers chosen so far; None where the captures are refused."""
    base, test = (listed[st.session_state[side]] for side in ("base", "test"))
    try:
        comparison = traces.comparison(base, test, st.session_state.get("waive", ()))
    except NotComparableError as error:
        elements.refusal(error)
        _waivers(error.mismatches)
        return None
    except TracekitError as error:
        elements.failure(error)
        return None
    _waivers(comparison.mismatches)
    return comparison


def _waivers(mismatches: Sequence[Mismatch]) -> None:
    if mismatches:
        known = [mismatch.condition for mismatch in mismatches]
        st.session_state["waive"] = [name for name in st.session_state.get("waive", ()) if name in known]
        elements.waivers(mismatches, "waive")
    else:
        st.session_state.pop("waive", None)


def _pick_region(comparison: Comparison) -> RegionPair | None:
    """The region that the page is about: the one chosen, or the comparison's main one."""
    pairs = {labels.join(pair.path): pair for pair in comparison.regions}
    if not pairs:
        return None
    if st.session_state.get("region") not in pairs:
        _select(pipeline.main_region(comparison) or comparison.regions[0])
    chosen: str = st.selectbox(
        "Region", list(pairs), key="region", format_func=lambda name: elements.path_words(pairs[name].path)
    )
    return pairs[chosen]


def _select(pair: RegionPair) -> None:
    st.session_state["region"] = labels.join(pair.path)


# The parts, each from what the pipeline makes of the view


def _overview(view: View) -> None:
    comparison, pair = view.comparison, view.pair
    overview.headline(comparison)
    if pair is not None:
        overview.findings(pair, pipeline.findings(comparison, pair), comparison)
    overview.reasons(comparison)
    overview.waterfalls(comparison)
    if pair is not None:
        regions.tree(comparison.regions, pair, lambda place: _select(comparison.regions[place]))
        regions.metrics(pair)
    overview.conditions(comparison)


def _timeline(view: View) -> None:
    state, comparison = st.session_state, view.comparison
    sources = traces.timelines(comparison, *view.paths())
    numbers = {side: address.number(f"{side}_instance") for side in sources}
    places = pipeline.places(
        comparison, view.pair, sources, {side: None if one is None else int(one) for side, one in numbers.items()}
    )
    # A window is of its place: at another one it is forgotten, unless the address has just asked for both.
    asked = (state.get("from"), state.get("to"))
    before = state.get(_LOOKED_AT, (places, asked))
    if before[0] != places and before[1] == asked:
        state["from"] = state["to"] = None
    state[_LOOKED_AT] = (places, (state.get("from"), state.get("to")))

    def choose(name: str, value: str | None) -> None:
        state[name] = value

    def move(window: tuple[int, int] | None) -> None:
        state["from"], state["to"] = (None, None) if window is None else map(str, window)
        state[_LOOKED_AT] = (places, (state["from"], state["to"]))
        address.write()

    colours, devices = timeline.choices(
        places, sources, comparison.matching == "ranges", state.get("colour"), state.get("devices"), choose
    )
    timeline.draw(
        {"base": comparison.base, "test": comparison.test}, sources, places, view.pair,
        timeline.palette(comparison, colours), devices, _window, move,
    )  # fmt: skip


def _window() -> tuple[int, int] | None:
    """The stretch of time that the address names, in ns from each side's start; None where it names none."""
    low, high = address.number("from"), address.number("to")
    return None if low is None or high is None else (int(low), int(high))


def _gaps(view: View) -> None:
    if view.pair is None:
        return
    at_least = round(gaps.threshold(address.number("at_least")) * US)
    found = {}
    for side, report, _ in _sides(view):
        path = view.pair.base_path if side == "base" else view.pair.test_path
        found[side] = None if path is None else pipeline.idle_report(report, at_least_ns=at_least, within=path)
    gaps.draw(view.pair, view.comparison.regions, found)


def _memory(view: View) -> None:
    memory.draw(view.comparison, view.pair)


def _occupancy(view: View) -> None:
    for side, report, _ in _sides(view):
        blocks = report.frames.get("blocks")
        occupancy.launches(side, blocks)
    chosen = occupancy.pick([(side, report.frames.get("blocks")) for side, report, _ in _sides(view)])
    if chosen is not None:
        side, launch, asked = chosen
        report = view.comparison.base if side == "base" else view.comparison.test
        occupancy.what_if(side, launch, pipeline.what_if(report, launch), pipeline.what_if(report, launch, **asked))
    if view.pair is not None:
        occupancy.spills(view.pair)


def _sweep(view: View) -> None:
    try:
        sweep.draw(traces.matrix(view.folder))
    except TracekitError as error:
        sweep.nothing(error)


def _kernels(view: View) -> None:
    if view.pair is not None:
        kernels.draw(view.pair)


def _data(view: View) -> None:
    comparison = view.comparison
    _upload()
    main_pair = pipeline.main_region(comparison)
    data.exports(
        html=lambda: diff_html(comparison, pipeline.findings(comparison), main_pair),
        json=lambda: diff_json(comparison),
        csv=lambda: comparison.frame("regions").map(plain).to_csv(index=False),
    )
    data.captures(comparison)


def _upload() -> None:
    data.upload(traces.take)
    for error in traces.problems():
        elements.failure(error)


def _sides(view: View) -> list[tuple[str, Report, Path]]:
    base, test = view.paths()
    return [("base", view.comparison.base, base), ("test", view.comparison.test, test)]


@dataclass(frozen=True)
class Part:
    """A part of the page: its title, and what draws it."""

    title: str
    draw: Callable[[View], None]


PARTS: Final = {
    "overview": Part("Overview", _overview),
    "timeline": Part("Timeline", _timeline),
    "gaps": Part("Gaps", _gaps),
    "memory": Part("Memory and math", _memory),
    "occupancy": Part("Occupancy", _occupancy),
    "sweep": Part("Sweep", _sweep),
    "kernels": Part("Kernels", _kernels),
    "data": Part("Data", _data),
}
"""By the name that the address has, in the order of the page's first row."""


if __name__ == "__main__":
    # As the imported module, so that what is cached belongs to it and not to a script that is run anew each time.
    from tracekit.app.page import main as page

    page()
