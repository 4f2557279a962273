"""Draws windows of two captures as one Altair chart on one time axis, and the strip above it; computes no figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import altair as alt
import pandas as pd

from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.timeline import Activity, Lane, Place, View
from tracekit.model.units import MISSING, Unit, write
from tracekit.render.charts.palette import GAP_COLORS, INK, QUIET, REGION_COLORS, SIDE_COLORS, US, WORDS
from tracekit.render.literal import clipped, region_words, short_name

ZOOM: Final = "zoom"
"""The selection that is the chart's horizontal scale: what the reader sees of what was sent."""

BRUSH: Final = "brush"
"""The selection on the strip above: the next window."""

OTHER: Final = "other regions"
OTHER_KERNELS: Final = "other kernels, and ranges"
COPIES: Final = "copies and memsets"
_COPY_COLOR: Final = "#8C9AA6"
_CALLS: Final = {"launch": "launch_call", "sync": "sync", "other": "other_call"}
"""A call has the colour of the gap part that it makes."""

Spec = dict[str, Any]
"""A Vega-Lite chart as Streamlit takes it, its data as frames."""

Tick = tuple[float, str]

_SOLID: Final = 0.95
_BESIDE: Final = 0.78
"""The opacity of a mark, and of one that begins where another of its colour ends."""

_TOUCHING: Final = 0.1
"""In us: what is nearer to each other seems to touch."""

_COLUMNS: Final = 7
"""Entries in a row of a legend."""

_SPAN: Final = alt.Scale(nice=False, zero=False)
_ON_CANVAS: Final = {"embedOptions": {"renderer": "canvas"}}
"""Thousands of rectangles are drawn faster there, and Streamlit then keeps the chart whatever their number."""

_OPACITY: Final = alt.Opacity("o:Q", scale=None)
_HEIGHTS: Final = {"ranges": 17, "calls": 15, "operations": 26, "gaps": 11}
_SPACE: Final = 3
_HEADER: Final = 30
_STRIP: Final = 20
_AXIS: Final = 30
_LEGEND: Final = 16
_AXES: Final = 118
"""Pixels below and above the lanes: axis, title and two legends; what Vega gives the axes it takes from the lanes."""
_LABELS: Final = 96
"""Pixels for the names of lanes: the same on both charts, so that their axes agree."""
_LABELLED: Final = 0.012
"""A slice narrower than this share of the window has no label: not even a letter would fit."""

_ORDER: Final = ("host", "sync", "other_call", "launch_call", "launch_latency", "dispatch", "in_graph", "unknown")
"""Parts as they follow one another inside a gap; the first three mix in time, and are drawn by length alone."""


@dataclass(frozen=True)
class Shown:
    """A side of the chart: what is said of it, where its instance lies, and its window."""

    title: str
    place: Place
    view: View


@dataclass(frozen=True)
class Palette:
    """A colour for each label, the same on both sides: of regions by path, or of kernels by name.

    Labels beyond the colours share one. Where kernels have the colours, ranges have none.
    """

    colors: Mapping[str, str]
    regions: Mapping[Path, str]
    kernels: Mapping[str, str]

    @classmethod
    def of_regions(cls, labels: Mapping[Path, str]) -> Palette:
        """From the label of every path of either side, the most important first."""
        return cls(_colored(labels.values()), labels, {})

    @classmethod
    def of_kernels(cls, labels: Mapping[str, str]) -> Palette:
        """From the label of every kernel name of either side, the most important first."""
        return cls(_colored(labels.values()), {}, labels)

    @property
    def other(self) -> str:
        """What a legend calls everything that has no colour of its own."""
        return OTHER_KERNELS if self.kernels else OTHER

    def key(self, row: Mapping[str, Any]) -> str:
        """What an operation or a range is called in the legend."""
        if row["role"] in ("copy", "memset"):
            return COPIES
        if self.kernels:
            label = self.kernels.get(row["name"]) if row["role"] == "kernel" else None
        else:
            label = self.regions.get(row.get("built_in_path") or row["path"])
        return label if label is not None and label in self.colors else self.other


def _colored(labels: Iterable[str]) -> dict[str, str]:
    distinct = [label for label in dict.fromkeys(labels) if label != UNATTRIBUTED]
    return dict(zip(distinct, REGION_COLORS, strict=False))


def timeline_chart(sides: Sequence[Shown], palette: Palette, low: int, high: int) -> Spec:
    """Both sides below one another on one axis: ns from each side's origin, from ``low`` to ``high`` in view."""
    bands, ticks, heads, height = _layout(sides)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*_FIELDS, "words")}
    domain = [low / US, high / US]
    for shown, lanes in zip(sides, bands, strict=True):
        for kind, made in _marks(shown, lanes, palette).items():
            rows[kind] += made
            rows["words"] += _labels(made, (domain[1] - domain[0]) * _LABELLED)
        rows["lanes"] += [{"t": top, "u": bottom, "a": domain[0], "b": domain[1]} for top, bottom in lanes]
        if lanes and low <= 0 < high:
            rows["starts"].append({"a": 0, "t": lanes[0][0] - 4, "u": lanes[-1][1] + 4})
    rows["titles"] = heads
    return _filled(_timeline_template(tuple(ticks), height, tuple(palette.colors.items()), palette.other), rows)


@lru_cache(maxsize=64)
def _timeline_template(ticks: tuple[Tick, ...], height: int, colors: tuple[tuple[str, str], ...], other: str) -> str:
    """The chart without its data: Altair takes a tenth of a second to make one, too long for every zoom."""
    x = alt.X(
        "a:Q",
        title="us since the start of each side's instance",
        scale=_SPAN,
        axis=alt.Axis(tickCount=10, labelOverlap=True, format=",~f"),
    )
    y = _heights(ticks, height)

    def marks(kind: str, color: alt.Color) -> Any:
        tips = [alt.Tooltip(f"{field}:N", title=title) for field, title in _TIPS[kind]]
        return (
            alt.Chart(alt.NamedData(kind))
            .mark_rect(stroke=None, clip=True)
            .encode(x=x, x2="b:Q", y=y("t:Q"), y2="u:Q", color=color, opacity=_OPACITY, tooltip=tips)
        )

    regions = _colors(
        {**dict(colors), COPIES: _COPY_COLOR, other: QUIET},
        "kernel" if other == OTHER_KERNELS else "region",
        "top",
    )
    causes = _colors(GAP_COLORS, "idle, and the calls", "bottom", columns=len(GAP_COLORS))
    backdrop = (
        alt.Chart(alt.NamedData("lanes"))
        .mark_rect(color="#808080", opacity=0.07, clip=True)
        .encode(x=x, x2="b:Q", y=y("t:Q"), y2="u:Q")
        .add_params(alt.selection_interval(name=ZOOM, bind="scales", encodings=["x"]))
    )
    width = "(scale('x', datum.b) - scale('x', datum.a))"
    words = (
        alt.Chart(alt.NamedData("words"))
        .mark_text(
            align="left", baseline="middle", dx=3, fontSize=10.5, color=INK, clip=True, tooltip=None,
            limit=alt.ExprRef(f"max({width} - 5, 1)"), opacity=alt.ExprRef(f"{width} > 22 ? 1 : 0"),
        )
        .encode(x=x, y=y("m:Q"), text="w:N")
    )  # fmt: skip
    starts = (
        alt.Chart(alt.NamedData("starts"))
        .mark_rule(color=WORDS, strokeDash=[3, 3], clip=True)
        .encode(x=x, y=y("t:Q"), y2="u:Q")
    )
    titles = (
        alt.Chart(alt.NamedData("titles"))
        .mark_text(align="left", baseline="bottom", fontSize=13, fontWeight=600, color=WORDS)
        .encode(x=alt.value(0), y=y("m:Q"), text="w:N")
    )
    layers = (
        backdrop,
        alt.layer(marks("ranges", regions), marks("operations", regions)),
        alt.layer(marks("calls", causes), marks("gaps", causes)),
        words,
        starts,
        titles,
    )
    return json.dumps(
        alt.layer(*layers)
        .resolve_scale(color="independent")
        .properties(height=height + _AXES + _LEGEND * ((len(colors) + 1) // _COLUMNS), usermeta=_ON_CANVAS)
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11)
        .to_dict()
    )


def overview_chart(activity: Mapping[str, Activity], origins: Mapping[str, int], low: int, high: int) -> Spec | None:
    """How busy each side's devices are, with the window [``low``, ``high``) marked; None where no side has work.

    A brush on it selects the next window.
    """
    rows: list[dict[str, Any]] = []
    for place, (side, found) in enumerate(activity.items()):
        step = (found.end_ns - found.start_ns) / max(1, len(found.ratio))
        begin = found.start_ns - origins[side]
        rows += [
            {"side": side, "a": (begin + at * step) / US, "b": (begin + (at + 1) * step) / US,
             "t": place * _STRIP + 2, "u": (place + 1) * _STRIP - 2, "o": round(0.06 + 0.94 * ratio, 3),
             "figure": write(ratio, Unit.RATIO)}
            for at, ratio in enumerate(found.ratio)
        ]  # fmt: skip
    if not rows:
        return None
    domain = [float(min(row["a"] for row in rows)), float(max(row["b"] for row in rows))]
    window = {"a": max(low / US, domain[0]), "b": min(high / US, domain[1]), "t": 0, "u": _STRIP * len(activity)}
    return _filled(_overview_template(tuple(activity)), {"activity": rows, "window": [window]})


@lru_cache(maxsize=8)
def _overview_template(sides: tuple[str, ...]) -> str:
    """The strip without its data."""
    height = _STRIP * len(sides)
    y = _heights(tuple(((place + 0.5) * _STRIP, f"{side} busy") for place, side in enumerate(sides)), height)
    x = alt.X(
        "a:Q",
        title=None,
        scale=_SPAN,
        axis=alt.Axis(format=",~f", grid=False, tickCount=8, labelOverlap=True),
    )
    colors = alt.Scale(domain=list(SIDE_COLORS), range=list(SIDE_COLORS.values()))
    strip = (
        alt.Chart(alt.NamedData("activity"))
        .mark_rect(stroke=None)
        .encode(
            x=x, x2="b:Q", y=y("t:Q"), y2="u:Q", color=alt.Color("side:N", scale=colors, legend=None),
            opacity=_OPACITY, tooltip=[alt.Tooltip("side:N"), alt.Tooltip("figure:N", title="devices busy")],
        )
        .add_params(alt.selection_interval(name=BRUSH, encodings=["x"]))
    )  # fmt: skip
    window = (
        alt.Chart(alt.NamedData("window"))
        .mark_rect(fillOpacity=0, stroke="#808080", strokeWidth=2, tooltip=None)
        .encode(x=x, x2="b:Q", y=y("t:Q"), y2="u:Q")
    )
    return json.dumps(
        alt.layer(strip, window)
        .properties(height=height + _AXIS, usermeta=_ON_CANVAS)
        .configure_view(stroke=None)
        .to_dict()
    )


def _heights(ticks: Sequence[Tick], height: int) -> Callable[[str], Any]:
    """The vertical encoding of a field: pixels from the top, with a name at each tick."""
    axis = alt.Axis(
        values=[at for at, _ in ticks], labelExpr=_label_expression(ticks), labelOverlap=False, grid=False,
        ticks=False, domain=False, labelLimit=_LABELS - 10, minExtent=_LABELS, maxExtent=_LABELS,
    )  # fmt: skip
    return lambda field: alt.Y(
        field, title=None, scale=alt.Scale(domain=[0, height], reverse=True, nice=False), axis=axis
    )


def _colors(colors: Mapping[str, str], title: str, orient: Any, columns: int = _COLUMNS) -> alt.Color:
    """All colours of a kind, in view or not, so that the legend stays while one zooms."""
    legend = alt.Legend(
        title=title, orient=orient, direction="horizontal", columns=columns, labelLimit=130, symbolType="square",
        symbolStrokeWidth=0, symbolSize=90, titleOrient="left", titleFontWeight="normal", titleFontSize=12,
        labelFontSize=12, titleColor=WORDS, offset=4,
    )  # fmt: skip
    return alt.Color("key:N", scale=alt.Scale(domain=list(colors), range=list(colors.values())), legend=legend)


def _filled(template: str, rows: Mapping[str, list[dict[str, Any]]]) -> Spec:
    """A template with its data. The axis spans the data, so that nothing else changes from one window to the next:
    then Streamlit exchanges the data of the chart that is there, which takes half as long as drawing a new one."""
    spec: Spec = json.loads(template)
    spec["datasets"] = {
        name: pd.DataFrame(cells, columns=list(_FIELDS[name] if name in _FIELDS else cells[0]))
        for name, cells in rows.items()
    }
    return spec


_TIMES: Final = (("what", "what"), ("region", "region"), ("time", "duration"), ("at", "start"))
_TIPS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "ranges": _TIMES,
    "calls": (_TIMES[0], *_TIMES[2:]),
    "operations": (
        *_TIMES, ("grid", "grid"), ("block", "block"), ("registers", "registers"), ("shared", "shared memory"),
        ("copied", "bytes copied or set"), ("dram", "DRAM read, written"),
    ),
    "gaps": (("what", "idle"), ("time", "duration"), ("at", "start"), ("parts", "parts")),
}  # fmt: skip

_PLACE: Final = ("a", "b", "t", "u", "o", "key")
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    **{kind: (*_PLACE, *(field for field, _ in tips)) for kind, tips in _TIPS.items()},
    "words": ("a", "b", "m", "w"),
    "lanes": ("a", "b", "t", "u"),
    "starts": ("a", "t", "u"),
    "titles": ("m", "w"),
}
"""What is sent of each kind of mark: a and b are times in us, t, u and m heights in pixels, o its opacity."""


def _layout(
    sides: Sequence[Shown],
) -> tuple[list[list[tuple[int, int]]], list[Tick], list[dict[str, Any]], int]:
    """Top and bottom of every lane of each side, the lanes' names and the sides' titles by height, and the height."""
    bands, ticks, heads = [], [], []
    top = 0
    for shown in sides:
        heads.append({"m": top + _HEADER - 8, "w": shown.title})
        top += _HEADER
        own = []
        for lane, name in zip(shown.view.lanes, _names(shown.view.lanes), strict=True):
            own.append((top, top + _HEIGHTS[lane.kind]))
            if name:
                ticks.append((top + _HEIGHTS[lane.kind] / 2, name))
            top += _HEIGHTS[lane.kind] + _SPACE
        bands.append(own)
        top += _SPACE * 3
    return bands, ticks, heads, top


def _names(lanes: Sequence[Lane]) -> list[str]:
    """What stands beside each lane; only the outermost ranges of a thread name it."""
    several = len({lane.device_id for lane in lanes if lane.device_id is not None}) > 1
    contexts = {(lane.device_id, lane.process, lane.context) for lane in lanes if lane.kind == "operations"}
    out = []
    seen: set[int | None] = set()
    for lane in lanes:
        match lane.kind:
            case "ranges":
                out.append("" if lane.thread in seen else f"thread {_low_bits(lane.thread)}")
                seen.add(lane.thread)
            case "calls":
                out.append("CUDA calls" if lane.thread in seen else f"calls, thread {_low_bits(lane.thread)}")
            case "operations":
                where = f"GPU {lane.device_id} " if several else ""
                ambiguous = len({key for key in contexts if key[0] == lane.device_id}) > 1
                context = f", context {lane.context}" if ambiguous else ""
                out.append(f"{where}stream {lane.stream}{context}")
            case _:
                out.append(f"GPU {lane.device_id} idle" if several else "idle")
    return out


def _low_bits(thread: int | None) -> int:
    """The thread id that the operating system gave it; Nsight packs the process and the machine above it."""
    return (thread or 0) & 0xFFFFFF


def _marks(shown: Shown, bands: Sequence[tuple[int, int]], palette: Palette) -> dict[str, list[dict[str, Any]]]:
    """The rectangles of a side, by kind of lane."""
    out: dict[str, list[dict[str, Any]]] = {"ranges": [], "calls": [], "operations": [], "gaps": []}
    origin = shown.place.origin_ns
    lanes = shown.view.lanes
    for row in _records(shown.view.slices):
        kind = lanes[row["lane"]].kind
        mark = _mark(row, bands[row["lane"]], origin)
        if kind == "calls":
            mark |= {"key": _CALLS[row["role"]], "what": _what(row, "calls")}
        else:
            noun = "ranges" if kind == "ranges" else "operations"
            mark |= {
                "key": palette.key(row),
                "what": _what(row, noun),
                "region": _region(row),
            }
        if kind == "operations":
            mark |= _geometry(row)
        mark["w"] = row["name"]
        before = out[kind][-1] if out[kind] else {}
        if _alike(before, mark) and before["o"] == mark["o"] == _SOLID:
            mark["o"] = _BESIDE
        out[kind].append(mark)
    for row in _records(shown.view.gaps):
        out["gaps"] += _gap_marks(row, bands[row["lane"]], origin)
    # A gap is described whole, and drawn as far as the window goes.
    low, high = ((end - origin) / US for end in (shown.view.start_ns, shown.view.end_ns))
    out["gaps"] = [
        mark | {"a": max(mark["a"], low), "b": min(mark["b"], high)}
        for mark in out["gaps"]
        if mark["a"] < high and mark["b"] > low
    ]
    return out


def _alike(before: Mapping[str, Any], mark: Mapping[str, Any]) -> bool:
    """Whether two marks of a lane would look like one: of one colour, and nothing between them."""
    return all(before.get(name) == mark[name] for name in ("t", "key")) and bool(mark["a"] <= before["b"] + _TOUCHING)


def _mark(row: Mapping[str, Any], band: tuple[int, int], origin: int) -> dict[str, Any]:
    begin, end = row["start_ns"] - origin, row["end_ns"] - origin
    alone = row["row_count"] == 1
    covered = row["busy_ns"] / (end - begin) if end > begin else 1.0
    return {
        "a": begin / US,
        "b": end / US,
        "t": band[0],
        "u": band[1],
        "o": _SOLID if alone else round(0.35 + 0.55 * min(1.0, covered), 2),
        "at": write(begin, Unit.NS, signed=True),
        "time": write(row["duration_ns"], Unit.NS) if alone else f"{write(row['busy_ns'], Unit.NS)} in all",
    }


def _what(row: Mapping[str, Any], noun: str) -> str:
    name = short_name(row["name"] or MISSING, 110)
    if row["row_count"] == 1:
        return f"{name}, still open when the capture ended" if row["open"] else name
    share = f" ({write(row['share_ratio'], Unit.RATIO)} of their time)" if row["share_ratio"] is not None else ""
    return f"{row['row_count']:,} {noun}, most: {name}{share}"


def _region(row: Mapping[str, Any]) -> str:
    words = region_words(row["path"], 60) if row["path"] else MISSING
    return f"{words}, built in {region_words(row['built_in_path'], 60)}" if row["built_in_path"] else words


def _geometry(row: Mapping[str, Any]) -> dict[str, str]:
    """What is known of an operation's launch; dashes for several, and for what a copy does not have."""
    static, dynamic = row["static_smem_bytes"], row["dynamic_smem_bytes"]
    shared = MISSING
    if static is not None and dynamic is not None:
        shared = f"{write(static, Unit.BYTES)} static, {write(dynamic, Unit.BYTES)} dynamic"
    dram = MISSING
    if row["dram_read_bytes"] is not None or row["dram_write_bytes"] is not None:
        kind = (row["dram_kind"] or "cache state unknown").replace("_", " ")
        dram = f"{write(row['dram_read_bytes'], Unit.BYTES)}, {write(row['dram_write_bytes'], Unit.BYTES)} ({kind})"
    return {
        "grid": _by_axis(row, "grid"),
        "block": _by_axis(row, "block"),
        "registers": write(row["registers_count"], Unit.COUNT),
        "shared": shared,
        "copied": write(row["copied_bytes"], Unit.BYTES),
        "dram": dram,
    }


def _by_axis(row: Mapping[str, Any], name: str) -> str:
    sizes = [row[f"{name}_{axis}"] for axis in "xyz"]
    return MISSING if any(size is None for size in sizes) else " × ".join(f"{size:,}" for size in sizes)


def _gap_marks(row: Mapping[str, Any], band: tuple[int, int], origin: int) -> Iterable[dict[str, Any]]:
    """A gap as its parts one after the other; several that are merged as one, in the colour of the largest part."""
    begin, end = row["start_ns"] - origin, row["end_ns"] - origin
    sizes = {part: row[f"gap_{part}_ns"] for part in _ORDER if row[f"gap_{part}_ns"]}
    alone = row["row_count"] == 1
    shared = {
        "t": band[0],
        "u": band[1],
        "what": "a gap" if alone else f"{row['row_count']:,} gaps",
        "time": write(sum(sizes.values()), Unit.NS) + ("" if alone else " in all"),
        "at": write(begin, Unit.NS, signed=True),
        "parts": ", ".join(f"{part} {write(size, Unit.NS)}" for part, size in sizes.items()),
    }
    if not alone:
        covered = row["busy_ns"] / (end - begin) if end > begin else 1.0
        opacity = round(0.35 + 0.55 * min(1.0, covered), 2)
        yield shared | {"a": begin / US, "b": end / US, "key": row["part"], "o": opacity}
        return
    for part, size in sizes.items():
        yield shared | {"a": begin / US, "b": (begin + size) / US, "key": part, "o": _SOLID}
        begin += size


def _labels(marks: Iterable[Mapping[str, Any]], least: float) -> list[dict[str, Any]]:
    """A name inside each mark that is wide enough for one."""
    return [
        {"a": mark["a"], "b": mark["b"], "m": (mark["t"] + mark["u"]) / 2 + 0.5, "w": short_name(mark["w"], 60)}
        for mark in marks
        if mark.get("w") and mark["b"] - mark["a"] >= least
    ]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with None where a value is missing."""
    columns = {str(name): frame[name].astype(object) for name in frame}
    cells = [column.where(column.notna(), None).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def _label_expression(ticks: Sequence[Tick]) -> str:
    """A Vega expression that names a lane by its height; names are program text and numbers."""
    places = json.dumps([at for at, _ in ticks])
    return f"{json.dumps([clipped(name, 40) for _, name in ticks])}[indexof({places}, datum.value)]"
