"""Draws the timeline page: both captures on one time axis, and the controls that choose what is seen of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import streamlit as st

from tracekit.model.labels import Path
from tracekit.model.report import Comparison, RegionPair, Report
from tracekit.model.timeline import LeftOut, Place, Source
from tracekit.model.units import Unit, write
from tracekit.render.charts.palette import US
from tracekit.render.charts.timeline import BRUSH, ZOOM, Palette, Shown, overview_chart, timeline_chart
from tracekit.render.literal import clipped, region_words, short_name
from tracekit.render.pages.elements import known_or_zero, say

Window = tuple[int, int]
"""From and to, in ns from each side's origin."""

_NUMBER: Final = re.compile(r"\d+")
_STEP: Final = 4
"""A step to the side is the window's fourth; a step in shows its half, a step out its double."""
_MARGIN: Final = 50
"""A fitted window has this part of itself free at each end."""
_SHORTEST_NS: Final = 100
_BINS: Final = 300

_BUTTONS: Final = (
    ("in", "Zoom in", "W", ":material/zoom_in:"),
    ("out", "Zoom out", "S", ":material/zoom_out:"),
    ("left", "Earlier", "A", ":material/arrow_back:"),
    ("right", "Later", "D", ":material/arrow_forward:"),
    ("fit", "Fit instance", "F", ":material/fit_screen:"),
    ("all", "Whole captures", "E", ":material/width_full:"),
)

_COLOURS: Final = ("region", "kernel")
"""What may have the colours."""

_MEASURES: Final = {
    "wall_ns": "wall time", "device_ns": "charged device time", "host_ns": "the range's own time",
}  # fmt: skip


def choices(
    places: Mapping[str, Place | None],
    sources: Mapping[str, Source | None],
    has_regions: bool,
    colours: object,
    devices: object,
    chosen: Callable[[str, str | None], None],
) -> tuple[str, tuple[int, ...]]:
    """Lets the reader choose an instance on each side, what has the colours, and the devices that are drawn.

    Returns region (where there are any) or kernel, and the devices (none: those with the most activity). ``colours``
    and ``devices`` are what the address has for these. ``chosen`` is told ``base_instance`` or ``test_instance`` (from
    0), ``colour`` or ``devices``, with None for the usual: the median instance, regions, and no device by name.
    """
    columns = st.columns([1, 1, 1, 1], vertical_alignment="bottom")
    for column, (side, place) in zip(columns, places.items(), strict=False):
        if place is not None and place.path is not None:
            with column:
                _instance(side, place, chosen)
    known = sorted({device for source in sources.values() if source is not None for device in source.device_ids})
    with columns[3]:
        drawn = _devices(known, devices, chosen) if len(known) > 1 else ()
    if not has_regions:
        return "kernel", drawn
    st.session_state["colours"] = "kernel" if colours == "kernel" else "region"

    def ask() -> None:
        chosen("colour", "kernel" if st.session_state["colours"] == "kernel" else None)

    with columns[2]:
        st.segmented_control(
            "Colours", _COLOURS, format_func=str.capitalize, key="colours", required=True, on_change=ask
        )
    return str(st.session_state["colours"]), drawn


def _devices(known: Sequence[int], asked: object, chosen: Callable[[str, str | None], None]) -> tuple[int, ...]:
    """The devices that are named, of those that either side has."""
    named = set(str(asked or "").split(","))
    st.session_state["gpus"] = [device for device in known if str(device) in named]

    def ask() -> None:
        chosen("devices", ",".join(map(str, sorted(st.session_state["gpus"]))) or None)

    st.multiselect(
        "GPUs",
        known,
        key="gpus",
        format_func=lambda device: f"GPU {device}",
        placeholder=f"the most active of {len(known):,}",
        on_change=ask,
    )
    return tuple(st.session_state["gpus"])


def _instance(side: str, place: Place, chosen: Callable[[str, str | None], None]) -> None:
    key = f"instance-of-{side}"
    st.session_state[key] = None if place.is_median else place.instance + 1

    def ask() -> None:
        value = st.session_state[key]
        chosen(f"{side}_instance", None if value is None else str(int(value) - 1))

    st.number_input(
        f"{side.capitalize()} instance",
        min_value=1,
        max_value=place.instances,
        value=None,
        step=1,
        key=key,
        placeholder=f"the median of {place.instances:,}" if place.instances > 1 else "the only one",
        help="Empty for the median instance.",
        disabled=place.instances < 2,
        on_change=ask,
    )


def draw(
    reports: Mapping[str, Report],
    sources: Mapping[str, Source | None],
    places: Mapping[str, Place | None],
    pair: RegionPair | None,
    colors: Palette,
    devices: Sequence[int],
    asked: Callable[[], Window | None],
    move: Callable[[Window | None], None],
) -> None:
    """The page, below its choices: both sides at ``places``, and of their ``devices`` those named, if any. ``asked``
    tells the window that is wanted, None for the fitted one, and ``move`` is called with the window that a reader moves
    to."""
    known = {side: place for side, place in places.items() if place is not None}
    for side in places:
        if side not in known:
            say(f"timeline-{side}", f"{side.capitalize()}: {_why_none(reports[side])}")
    if not known:
        return
    for side, place in known.items():
        if pair is not None and getattr(pair, f"{side}_path") is None:
            stand_in = f"{region_words(place.path)}, which is around it," if place.path else "the whole capture"
            say(f"stand-in-{side}", f"The {side} has no {region_words(pair.path)}: {stand_in} is shown.")
    there = {side: source for side, source in sources.items() if source is not None}
    _drawn(reports, there, known, colors, devices, asked, move)


@st.fragment
def _drawn(
    reports: Mapping[str, Report],
    sources: Mapping[str, Source],
    places: Mapping[str, Place],
    colors: Palette,
    devices: Sequence[int],
    asked: Callable[[], Window | None],
    move: Callable[[Window | None], None],
) -> None:
    """The controls, the strip and the chart: what a zoom draws again, and nothing else."""
    fitted, limits = _fitted(places), _limits(sources, places)
    wanted = asked()
    window = fitted if wanted is None or wanted[1] <= wanted[0] else _within(wanted, limits)
    charts: _Charts = st.session_state.setdefault("timeline-charts", _Charts())
    charts.show((tuple(places.items()), window))

    def go(found: Window | None) -> None:
        move(None if found is None else _within(found, limits))

    def zoomed() -> None:
        if (found := _selected(f"timeline-{charts.chart}", ZOOM)) is not None:
            charts.shown, charts.zoomed = (tuple(places.items()), _within(found, limits)), True
            go(found)

    def brushed() -> None:
        if (found := _selected(f"strip-{charts.strip}", BRUSH)) is not None:
            charts.strip += 1
            go(found)

    steps = _steps(window, fitted, limits)
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="window"):
        for name, title, shortcut, icon in _BUTTONS:
            st.button(
                title,
                key=f"window-{name}",
                icon=icon,
                shortcut=shortcut,
                on_click=go,
                args=(steps[name],),
                disabled=(steps[name] or fitted) == window,
            )
        st.text(_window_words(window))
    origins = {side: place.origin_ns for side, place in places.items()}
    low, high = fitted if fitted[0] <= window[0] and window[1] <= fitted[1] else limits
    strip = overview_chart(
        {side: sources[side].activity(origin + low, origin + high, _BINS) for side, origin in origins.items()},
        origins,
        *window,
    )
    if strip is not None:
        st.vega_lite_chart(
            spec=strip,
            width="stretch",
            key=f"strip-{charts.strip}",
            on_select=brushed,
            selection_mode=BRUSH,
            alt="How busy the devices are. Drag over it to choose the window.",
        )
    with ThreadPoolExecutor(len(places)) as pool:  # Most of the time is NumPy's, which works beside another thread.
        views = pool.map(
            lambda side: sources[side].view(
                origins[side] + window[0], origins[side] + window[1], place=places[side], devices=devices
            ),
            places,
        )
        shown = {
            side: Shown(_title(side, reports[side], place), place, view)
            for (side, place), view in zip(places.items(), views, strict=True)
        }
    st.vega_lite_chart(
        spec=timeline_chart(list(shown.values()), colors, *window),
        width="stretch",
        key=f"timeline-{charts.chart}",
        on_select=zoomed,
        selection_mode=ZOOM,
        alt="Timelines of base and test: NVTX ranges, CUDA calls, device operations and idle time.",
    )
    for side, one in shown.items():
        if words := _left_out(one.view.left_out):
            say(f"left-out-{side}", f"{side.capitalize()}: {words}")
        if not len(one.view.slices):
            say(f"empty-{side}", f"{side.capitalize()}: nothing happens in this window.")
    st.caption(
        "Scroll to zoom, drag to move; both sides move alike. What is narrower than a pixel is merged and paler, and "
        "says how many it stands for. Inside a gap, host, sync and other calls mix in time: they are drawn by length."
    )


@dataclass
class _Charts:
    """Which charts the browser has. A new number makes it forget the zoom or brush that it holds, which would else
    overrule the next window; while it holds none, it keeps the chart and takes the new data."""

    chart: int = 0
    strip: int = 0
    shown: object = None
    zoomed: bool = False

    def show(self, subject: object) -> None:
        """What is drawn now: anything but what the reader has just zoomed to ends that zoom."""
        if subject != self.shown and self.zoomed:
            self.chart, self.zoomed = self.chart + 1, False
        self.shown = subject


def palette(comparison: Comparison, by: str = "region") -> Palette:
    """The colours of a comparison's regions or kernels, those with the most time of their own first; a pair's two
    sides share one.

    Labels that differ by their numbers alone are one: ``layer3`` and ``layer4``. Without NVTX ranges there are no
    regions to tell apart, and kernels have the colours.
    """
    weight: dict[str, float] = {}
    if by == "kernel" or comparison.matching != "ranges":
        names: dict[str, str] = {}
        for match in (match for pair in comparison.regions for match in pair.kernels):
            alike = match.match in ("same", "renamed")
            for kernel in (*match.base, *match.test):
                label = short_name((match.base[0] if alike and match.base else kernel).name, 60)
                names.setdefault(kernel.name, label)
                weight[label] = max(weight.get(label, 0), float(kernel.busy_ns or 0))
        return Palette.of_kernels(dict(sorted(names.items(), key=lambda item: -weight[item[1]])))
    shared: dict[str, set[str]] = {}
    regions: dict[Path, str] = {}
    for pair in comparison.regions:
        label = _NUMBER.sub("#", pair.path[-1])
        shared.setdefault(label, set()).add(pair.path[-1])
        regions |= {path: label for path in (pair.base_path, pair.test_path) if path is not None}
        weight[label] = weight.get(label, 0.0) + _charged(pair)
        if around := regions.get(pair.path[:-1]):  # Regions that hold little but others leave the colours to those.
            weight[around] -= _charged(pair)
    shown = {label: clipped(label if len(own) > 1 else next(iter(own)), 60) for label, own in shared.items()}
    return Palette.of_regions(
        {path: shown[label] for path, label in sorted(regions.items(), key=lambda item: -weight[item[1]])}
    )


def _charged(pair: RegionPair) -> float:
    """Device time of all instances of the side that has more of it; for an order alone."""
    change = pair.metrics.get("device_ns")
    if change is None:
        return 0.0
    return max(known_or_zero(change.base) * pair.base_instances, known_or_zero(change.test) * pair.test_instances)


def _why_none(report: Report) -> str:
    capture = report.capture
    if "operations" not in report.frames:
        return "there is no timeline: the capture has Nsight Compute results alone, which have no times."
    return f"the timeline of {clipped(str(capture['source']).replace(chr(92), '/').split('/')[-1], 80)} is empty."


def _title(side: str, report: Report, place: Place) -> str:
    """What the side shows: which variant, which instance, and how that was chosen."""
    name = clipped(str(report.capture["variant"] or report.capture["capture_id"] or ""), 60)
    words = f"{side.capitalize()}: {name}" if name else side.capitalize()
    if place.path is None:
        return f"{words}, whole capture"
    words += f", instance {place.instance + 1:,} of {place.instances:,}"
    if place.measure is None or place.value_ns is None:
        return words
    median = ", the median by" if place.is_median and place.instances > 1 else ":"
    return f"{words}{median} {_MEASURES[place.measure]} {write(place.value_ns, Unit.NS)}"


def _window_words(window: Window) -> str:
    low, high = window
    return f"{write(low, Unit.NS, signed=True)} to {write(high, Unit.NS, signed=True)}: {write(high - low, Unit.NS)}"


def _left_out(found: LeftOut) -> str:
    """What has no lane for lack of room."""
    counts = (
        (found.threads, "thread"), (found.depths, "level of nested ranges"), (found.devices, "device"),
        (found.streams, "stream"),
    )  # fmt: skip
    words = [f"{count:,} {noun}{'s' if count > 1 and 'level' not in noun else ''}" for count, noun in counts if count]
    return f"{', '.join(words)} with less activity left out for lack of room." if words else ""


def _fitted(places: Mapping[str, Place]) -> Window:
    low = min(place.start_ns - place.origin_ns for place in places.values())
    high = max(place.end_ns - place.origin_ns for place in places.values())
    margin = (high - low) // _MARGIN + 1
    return low - margin, max(high, low + _SHORTEST_NS) + margin


def _limits(sources: Mapping[str, Source], places: Mapping[str, Place]) -> Window:
    """How far one may go: to the ends of both captures."""
    low, high = _fitted(places)
    for side, place in places.items():
        whole = sources[side].find(None)
        if whole is not None:
            margin = (whole.end_ns - whole.start_ns) // _MARGIN
            low = min(low, whole.start_ns - place.origin_ns - margin)
            high = max(high, whole.end_ns - place.origin_ns + margin)
    return low, high


def _within(window: Window, limits: Window) -> Window:
    """The window moved and cut to lie within the limits, and not too short to hold a mark."""
    length = min(max(window[1] - window[0], _SHORTEST_NS), limits[1] - limits[0])
    low = min(max(window[0], limits[0]), limits[1] - length)
    return low, low + length


def _steps(window: Window, fitted: Window, limits: Window) -> dict[str, Window | None]:
    """Where each button leads; None is the fitted window."""
    low, high = window
    length = high - low
    middle, aside = (low + high) // 2, max(1, length // _STEP)
    wanted: dict[str, Window] = {
        "in": (middle - length // 4, middle + length // 4),
        "out": (middle - length, middle + length),
        "left": (low - aside, high - aside),
        "right": (low + aside, high + aside),
        "all": limits,
    }
    return {name: _within(found, limits) for name, found in wanted.items()} | {"fit": None}


def _selected(key: str, name: str) -> Window | None:
    """The interval that the reader selected on a chart, or None; charts are in us."""
    found = st.session_state.get(key, {}).get("selection", {}).get(name, {}).get("a")
    if not found or len(found) != 2:
        return None
    low, high = sorted(round(float(end) * US) for end in found)
    return (low, high) if high > low else None
