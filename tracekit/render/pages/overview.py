"""Draws the dashboard with Streamlit, a function for each section, from report objects; computes no figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from tracekit.errors import InputError, NotComparableError, TracekitError
from tracekit.model.labels import Path
from tracekit.model.manifest import CONDITIONS
from tracekit.model.report import Change, Comparison, KernelTotal, Latency, Mismatch, RegionPair, Report
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import MISSING, Unit, write, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.charts import GAP_COLORS, SIDE_COLORS, gap_chart, gap_metric, latency_chart
from tracekit.render.words import Row, grounds
from tracekit.render.words import headline as answer_sentence

_ROWS_SHOWN: Final = 14
"""A table with more rows scrolls."""

_CHILDREN_DRAWN: Final = 12
"""More regions than this would make a chart that nobody reads."""

_QUESTION: Final = "Did this kernel change help, by how much, and why?"

_CARDS: Final = (
    ("Kernels", "kernel_count"), ("Idle device time", "gap_ns"), ("Busy device time", "busy_ns"),
    ("DRAM bytes read", "dram_read_bytes"),
)  # fmt: skip

_STYLE: Final = """
.stMainBlockContainer { max-width: 1480px; padding: 4.25rem 3rem 4rem; }
[data-testid="stTable"] td, [data-testid="stTable"] th { font-variant-numeric: tabular-nums; vertical-align: top; }
[data-testid="stTable"] code { background: none; padding: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.stMainBlockContainer code { color: inherit; }
[data-testid="stHeading"] h3 { border-top: 1px solid rgb(128 128 128 / 0.25); margin-top: 1.5rem; padding-top: 1.7rem; }
[data-testid="stHeading"] code { background: none; padding: 0; font: inherit; white-space: pre-wrap; }
[class*="st-key-muted"] [data-testid="stText"] { opacity: 0.72; font-size: 0.875rem; line-height: 1.45; }
[class*="st-key-answer"] [data-testid="stText"] { font-size: 1.35rem; line-height: 1.4; }
[class*="st-key-lead"] p { font-size: 1.25rem; line-height: 1.5; }
"""
_CONTROL = {code: 0x2400 + code for code in range(32)} | {127: 0x2421}
_ICON = ":material/"


def masthead() -> None:
    """The program's name and the question that it answers."""
    st.markdown(f"**tracekit** &nbsp; :gray[{prose(_QUESTION)}]")


def style() -> None:
    """The page's style sheet: static, since Streamlit by itself neither aligns text nor sets digits in columns."""
    st.html(f"<style>{_STYLE}</style>")


def literal(text: str) -> str:
    """Markdown that shows ``text`` as it is, whatever markup it holds: a code span.

    Backslashes would not do: emoji, links and arrows are replaced after escapes are resolved. Streamlit rewrites icon
    names even inside code, so such a text is cut there into spans, every other one bold to keep them apart.
    """
    if not text:
        return MISSING
    pieces = text.translate(_CONTROL).split(_ICON)
    spans = [
        _span(("/" if at else "") + piece + (_ICON[:-1] if at < len(pieces) - 1 else ""))
        for at, piece in enumerate(pieces)
    ]
    return "".join(f"**{span}**" if at % 2 else span for at, span in enumerate(spans))


def _span(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    # CommonMark strips one space from each end where both have one.
    pad = " " if "`" in (text[0], text[-1]) or (text[0] == text[-1] == " " and text.strip()) else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str) -> str:
    """Markdown of a sentence whose punctuation is meant as such; for sentences of this program, not of a file."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&!/])", r"\\\1", text)


def headline(comparison: Comparison) -> None:
    """What is compared, under which conditions, the answer, the untraced latency, and whether the GPU changed."""
    names = [_name(report) for report in (comparison.base, comparison.test)]
    st.header(f"{literal(names[0])} → {literal(names[1])}", anchor=False)
    with _muted("conditions"):
        st.text(_conditions(comparison))
    if comparison.answer is not None:
        with st.container(key="answer"):
            st.text(answer_sentence(comparison))
        with _muted("grounds"):
            st.text(grounds(comparison))
    with st.container(key="lead"):
        st.markdown(_latency_sentence(comparison))
    chart = latency_chart(comparison.base, comparison.test)
    if chart is not None:
        left, right = st.columns(2, gap="large", vertical_alignment="center")
        with left:
            _latency_table(comparison)
        with right:
            st.altair_chart(chart, width="stretch")
    with _muted("drift"):
        st.text(("Drift control: " if comparison.drift.kernels else "") + comparison.drift.sentence)
        for note in comparison.notes:
            if note != comparison.drift.sentence:
                st.text(note)


def _name(report: Report) -> str:
    capture = report.capture
    return str(capture["variant"] or capture["capture_id"] or _file_name(capture["source"]))


def _file_name(source: str) -> str:
    return re.split(r"[\\/]", source.rstrip("\\/"))[-1]


def _conditions(comparison: Comparison) -> str:
    """One line: the GPUs, then every condition that a side knows; both values where they differ."""
    sides = [report.capture for report in (comparison.base, comparison.test)]
    gpus = [
        ", ".join(dict.fromkeys(str(gpu["name"] or "unknown GPU") for gpu in side["gpus"]))
        or side["conditions"].get("gpu")
        for side in sides
    ]
    facts = [("", *gpus)]
    facts += [(f"{name} ", *(side["conditions"].get(name) for side in sides)) for name in CONDITIONS if name != "gpu"]
    facts += [("", *(f"{side['tool']} {side['tool_version'] or ''}".strip() for side in sides))]
    words = []
    for name, base, test in facts:
        if base == test and base is not None:
            words.append(f"{name}{base}")
        elif base is not None or test is not None:
            words.append(f"{name}{_known(base)} → {_known(test)}")
    return "  ·  ".join(words) or "Nothing is known about the conditions of these captures."


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


def _latency_sentence(comparison: Comparison) -> str:
    """The untraced change in medians; the answer above it says what its interval tells."""
    base, test = _latency(comparison)
    for protocol in ("synchronized", "pipelined", *comparison.latency):
        if protocol in base and protocol in test:
            change = comparison.latency[protocol]
            return (
                f"Untraced step latency **{write(change.base, Unit.NS)} → {write(change.test, Unit.NS)}** "
                f"({write_change(change.ratio)}), {prose(protocol)}, median over processes: "
                f"{base[protocol].processes:,} of the base, {test[protocol].processes:,} of the test."
            )
    which = "on one side only" if comparison.latency else "in neither capture"
    return f"Untraced latency was measured {which}: what the trace shows below includes the tracer's own cost."


def _latency(comparison: Comparison) -> tuple[dict[str, Latency], dict[str, Latency]]:
    """Each side's untraced latency by protocol."""
    base, test = ({entry.protocol: entry for entry in side.latency} for side in (comparison.base, comparison.test))
    return base, test


def _latency_table(comparison: Comparison) -> None:
    rows = []
    for protocol, change in comparison.latency.items():
        for side, entries in zip(SIDE_COLORS, _latency(comparison), strict=True):
            entry = entries.get(protocol)
            rows.append([
                prose(protocol) if side == "base" else "",
                side,
                write(entry.median_ns, Unit.NS) if entry else MISSING,
                f"{write(entry.p20_ns, Unit.NS)} to {write(entry.p80_ns, Unit.NS)}" if entry else MISSING,
                write(entry.processes, Unit.COUNT) if entry else MISSING,
                "" if side == "base" else write_change(change.ratio),
            ])  # fmt: skip
    _table("latency", ["protocol", "side", "median", "p20 to p80", "processes", "change"], rows, right=(2, 3, 4, 5))


def findings(pair: RegionPair, rows: Sequence[Row]) -> None:
    """The five rows of "did fusion help?" for the selected region."""
    _section("Did it help?", f"{_in_words(pair)}: medians over {_instances(pair)}.")
    _cards(pair.metrics)
    _table(
        "findings",
        ["compare", "base", "test", "difference", "what it means"],
        [[f"**{prose(row.topic)}**", *map(prose, (row.base, row.test, row.delta, row.meaning))] for row in rows],
        widths=("17%", "20%", "20%", "17%", "26%"),
    )


def _cards(metrics: Mapping[str, Change]) -> None:
    for column, (title, name) in zip(st.columns(len(_CARDS)), _CARDS, strict=True):
        change = metrics.get(name)
        moved = change.ratio if change else None
        kind = f", {change.kind.replace('_', ' ')}" if change and change.kind else ""
        improved = _improved(change)
        column.metric(
            title + kind,
            write(change.test if change else None, REGION_METRICS[name].unit),
            None if moved is None else write_change(moved),
            # Streamlit takes a delta without an ASCII minus for a rise: "normal" is green, "inverse" red.
            delta_color="off" if improved is None else "normal" if improved else "inverse",
            delta_arrow="off" if moved is None or moved == 1 else "down" if moved < 1 else "up",
            delta_description=f"from {write(change.base, change.unit)}" if change and moved is not None else None,
            border=True,
            height="stretch",
        )


def tree(pairs: Sequence[RegionPair], selected: RegionPair, on_select: Callable[[int], None]) -> None:
    """The region tree with charged device time. A click on a row calls ``on_select`` with its place in ``pairs``."""
    doc = REGION_METRICS["device_ns"].doc
    _section(
        "Where the time goes", f"{prose(doc)} Medians over instances; click on a region to see it above and below."
    )
    ordered = in_tree_order(pairs)
    charged = [pair.metrics.get("device_ns", _NOTHING) for _, pair in ordered]
    kernels = [pair.metrics.get("kernel_count", _NOTHING) for _, pair in ordered]
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
    longest = max((_known_or_zero(value) for change in charged for value in (change.base, change.test)), default=0.0)
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


def gaps(pair: RegionPair, pairs: Sequence[RegionPair]) -> None:
    """Why the device idled: the gap parts of the selected region and of the regions inside it."""
    _section(
        "What the device waited for",
        "Idle time by what the host was doing about the operation that ends the gap. A bar stacks the medians of the "
        "parts; the figure at its end is the median of the whole, which need not be their sum.",
    )
    children = _children(pair, pairs)
    drawn = sorted(range(len(children)), key=lambda at: _idle(children[at]), reverse=True)[:_CHILDREN_DRAWN]
    rows = [(pair.path[-1], pair), *((f"\u2003{children[at].path[-1]}", children[at]) for at in sorted(drawn))]
    chart = gap_chart(rows)
    if chart is None:
        _say("gaps", "No idle device time is known here: it takes a timeline on at least one side.")
        return
    left, right = st.columns([5, 7], gap="large")
    with left:
        st.altair_chart(chart, width="stretch")
        if len(drawn) < len(children):
            _say("children", f"{len(drawn)} of {len(children)} inner regions are drawn: those with the most idle time.")
    with right:
        _gap_table(pair)


def _gap_table(pair: RegionPair) -> None:
    parts = [(part, pair.metrics.get(gap_metric(part), _NOTHING)) for part in GAP_PARTS]
    shown = [(part, change) for part, change in parts if change.base or change.test]
    absent = [part for part, change in parts if change.base is None or change.test is None]
    rows = [
        ["■", prose(part), *_figures(change), prose(REGION_METRICS[gap_metric(part)].doc)] for part, change in shown
    ]
    whole = pair.metrics.get("gap_ns", _NOTHING)
    rows.append(["", "**all gaps**", *_figures(whole), prose(REGION_METRICS["gap_ns"].doc)])
    _table(
        "gap-parts",
        ["", "part", "base", "test", "difference", "change", "what it is"],
        rows,
        right=(2, 3, 4, 5),
        widths=("4%", "15%", "11%", "11%", "12%", "10%", "37%"),
        colors=[GAP_COLORS[part] for part, _ in shown],
    )
    if absent:
        _say("absent", f"Not known on one side or both: {', '.join(absent)}.")


def metrics(pair: RegionPair) -> None:
    """Every metric of the selected region, with the notes that say why one is missing."""
    _section("Every metric", f"{_in_words(pair)}: medians over {_instances(pair)}.")
    rows = [
        [
            literal(name),
            *_figures(change),
            MISSING if change.better == "none" else prose(change.better),
            prose(change.unit),
            prose(change.kind.replace("_", " ")) if change.kind else "",
            f":gray[{prose(REGION_METRICS[name].doc)}]",
        ]
        for name, change in pair.metrics.items()
    ]
    _table(
        "metrics",
        ["metric", "base", "test", "difference", "change", "better", "unit", "kind", "what it is"],
        rows,
        right=(1, 2, 3, 4),
        widths=("17%", "10%", "10%", "10%", "8%", "6%", "6%", "7%", "26%"),
        wrap=True,
    )
    with _muted("region-notes"):
        for note in pair.notes:
            st.text(note)


def kernels(pair: RegionPair) -> None:
    """The kernels of the selected region on both sides: those of the same name, and those that replace each other."""
    _section("Kernels", f"{_in_words(pair)}: totals over all instances ({_instances(pair)}).")
    if not pair.kernels:
        _say("no-kernels", "No kernel ran in this region on either side.")
    for number, match in enumerate(pair.kernels):
        if match.match in ("replaced", "renamed"):
            sides = (("base", match.base), ("test", match.test))
            how = f", equal by the rules {', '.join(match.rules)}" if match.rules else ""
            st.markdown(
                f"**{match.match.capitalize()}**: {_count(match.base)} of the base by {_count(match.test)} of the test"
                f"{prose(how)}"
            )
            for column, (side, totals) in zip(st.columns(2, gap="large"), sides, strict=True):
                with column:
                    _kernel_table(f"kernels-{number}-{side}", f"{side} kernel", totals)
        elif match.match in ("only_base", "only_test"):
            side = match.match.removeprefix("only_")
            st.markdown(f"**Only in the {side}**")
            _kernel_table(f"kernels-{number}", f"{side} kernel", match.base or match.test)
    same = [match for match in pair.kernels if match.match == "same"]
    if same:
        st.markdown("**The same on both sides**")
        rows = [
            [
                literal(match.base[0].name),
                *(cell for (kernel,) in (match.base, match.test) for cell in _kernel_cells(kernel)),
            ]
            for match in same
        ]
        _table(
            "kernels-same",
            ["kernel", "base count", "base busy", "test count", "test busy"],
            rows,
            right=(1, 2, 3, 4),
            widths=("56%", "10%", "12%", "10%", "12%"),
        )


def _kernel_table(key: str, title: str, totals: Sequence[KernelTotal]) -> None:
    rows = [[literal(kernel.name), *_kernel_cells(kernel)] for kernel in totals]
    _table(key, [title, "count", "busy"], rows, right=(1, 2), widths=("70%", "12%", "18%"))


def _kernel_cells(kernel: KernelTotal) -> list[str]:
    return [write(kernel.count, Unit.COUNT), write(kernel.busy_ns, Unit.NS)]


def _count(totals: Sequence[KernelTotal]) -> str:
    return f"{len(totals)} kernel{'' if len(totals) == 1 else 's'}"


def captures(comparison: Comparison) -> None:
    """What each capture could not tell."""
    notes = [
        (side, note)
        for side, report in (("base", comparison.base), ("test", comparison.test))
        for note in (_coverage(report), *report.notes)
        if note
    ]
    if notes:
        with st.expander("What the captures cover, and what they could not tell"), _muted("capture-notes"):
            for side, note in notes:
                st.text(f"{side}: {note}")


def _coverage(report: Report) -> str:
    if not report.coverage.operations:
        return ""
    return f"{report.coverage.attributed:,} of {report.coverage.operations:,} device operations are inside a range."


def describe(report: Report, side: str) -> None:
    """A capture in its own words, beneath its name."""
    capture = report.capture
    words = capture["description"] or f"{capture['tool']} {capture['tool_version'] or ''}".strip()
    _say(f"describe-{side}", str(words))


def waivers(mismatches: Sequence[Mismatch], key: str) -> None:
    """Lets the reader waive conditions that differ, by name; the choice is in the session's state under ``key``."""
    st.multiselect(
        "Compare although these differ",
        [mismatch.condition for mismatch in mismatches],
        key=key,
        placeholder="Waive a condition",
    )


def refusal(error: NotComparableError) -> None:
    """Says that two captures are not comparable, and in what they differ."""
    st.error(
        "**Not comparable.** The two captures differ in what must be held fixed, so their difference would not show "
        "what the kernel change did. Capture both sides alike, or waive the condition that you ask about."
    )
    _table(
        "mismatches",
        ["condition", "base", "test", "waived"],
        [
            [literal(m.condition), literal(str(m.base)), literal(str(m.test)), "yes" if m.waived else "no"]
            for m in error.mismatches
        ],
        widths=("20%", "35%", "35%", "10%"),
    )


def failure(error: TracekitError) -> None:
    """An error in the words of the command line: what was expected, what was found, and what to do."""
    if isinstance(error, InputError):
        facts = {"expected": error.expected, "found": error.found, "remedy": error.remedy}
        title = f"**Cannot use** {literal(_file_name(error.source))}"
    else:
        facts = {"remedy": error.remedy}
        title = f"**{prose(type(error).__name__)}** {literal(error.message)}"
    st.error("\n".join([title, "", *(f"- {name}: {literal(text)}" for name, text in facts.items() if text)]))


def in_tree_order(pairs: Sequence[RegionPair]) -> list[tuple[int, RegionPair]]:
    """Every pair with its depth, each before those inside it; a region of one side only is put under its parent."""
    inside: dict[int | None, list[int]] = {}
    for place, parent in enumerate(_parents(pairs)):
        inside.setdefault(parent, []).append(place)
    out: list[tuple[int, RegionPair]] = []
    pending = [(0, place) for place in reversed(inside.get(None, []))]
    while pending:
        depth, place = pending.pop()
        out.append((depth, pairs[place]))
        pending += [(depth + 1, child) for child in reversed(inside.get(place, []))]
    return out


def _parents(pairs: Sequence[RegionPair]) -> list[int | None]:
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


def _children(pair: RegionPair, pairs: Sequence[RegionPair]) -> list[RegionPair]:
    parents = _parents(pairs)
    return [other for other, parent in zip(pairs, parents, strict=True) if parent is not None and pairs[parent] is pair]


def _idle(pair: RegionPair) -> float:
    change = pair.metrics.get("gap_ns", _NOTHING)
    return max(_known_or_zero(change.base), _known_or_zero(change.test))


def path_words(path: Path) -> str:
    """A region as one line for a list of choices."""
    return " › ".join(path)


def _in_words(pair: RegionPair) -> str:
    return literal(path_words(pair.path))


def _instances(pair: RegionPair) -> str:
    if pair.base_instances == pair.test_instances:
        return f"{pair.base_instances:,} instance{'' if pair.base_instances == 1 else 's'} on each side"
    return f"{pair.base_instances:,} instances of the base and {pair.test_instances:,} of the test"


def _times(pair: RegionPair) -> str:
    both = (pair.base_instances, pair.test_instances)
    return f"{both[0]:,}" if both[0] == both[1] else f"{both[0]:,} → {both[1]:,}"


def _tree_label(depth: int, pair: RegionPair, selected: bool) -> str:
    only = {(True, False): "  (base only)", (False, True): "  (test only)"}
    where = only.get((pair.base_path is not None, pair.test_path is not None), "")
    return "\u2003" * depth + ("● " if selected else "") + pair.path[-1] + where


_NOTHING: Final = Change(None, None, None, None, "", "none")


def _figures(change: Change) -> list[str]:
    """Base, test, difference and relative change as they are written."""
    return [
        prose(write(change.base, change.unit)),
        prose(write(change.test, change.unit)),
        write(change.delta, change.unit, signed=True),
        _coloured(change),
    ]


def _improved(change: Change | None) -> bool | None:
    """Whether a metric with a better direction moved there; None where it hardly moved or has none."""
    if change is None or change.ratio is None:
        return None
    if change.verdict is Verdict.BETTER:
        return True
    return False if change.verdict in (Verdict.WORSE, Verdict.WRONG) else None


def _coloured(change: Change) -> str:
    """The relative change: green where it improved, red where it got worse."""
    text = write_change(change.ratio)
    improved = _improved(change)
    return text if improved is None else f":{'green' if improved else 'red'}[{text}]"


def _known_or_zero(value: float | str | None) -> float:
    """For lengths and orders alone, never for a figure that is shown."""
    return float(value) if isinstance(value, int | float) else 0.0


def _section(title: str, caption: str) -> None:
    st.subheader(title, anchor=False)
    st.caption(caption)


def _say(key: str, text: str) -> None:
    with _muted(key):
        st.text(text)


def _muted(key: str) -> Any:
    return st.container(key=f"muted-{key}", gap=None)


def _table(
    key: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    widths: Sequence[str] = (),
    colors: Sequence[str] = (),
    wrap: bool = False,
) -> None:
    """A static table of Markdown cells whose whole text is visible; ``right`` columns hold figures,
    on one line unless they ``wrap``.

    ``colors`` paints the first cells. Columns and colours go by a style sheet, since Streamlit sets neither.
    """
    cells = list(rows)
    scope = f".st-key-{key} [data-testid='stTable']"
    rules = [f"{scope} table {{ table-layout: fixed; }}"] if widths else []
    rules += [f"{scope} tr > :nth-child({at + 1}) {{ text-align: right !important; }}" for at in right]
    rules += [f"{scope} tr > :nth-child({at + 1}) * {{ white-space: nowrap; }}" for at in right if not wrap]
    rules += [f"{scope} tr > :nth-child({at + 1}) {{ width: {width}; }}" for at, width in enumerate(widths)]
    for at, color in enumerate(colors):
        swatch = f"{scope} tbody tr:nth-child({at + 1}) > :first-child"
        rules.append(f"{swatch} p {{ color: {color}; font-size: 1.3rem; line-height: 1rem; }}")
    if rules:
        st.html(f"<style>{' '.join(rules)}</style>")
    with st.container(key=key):
        st.table(
            pd.DataFrame(cells, columns=list(columns)),
            border="horizontal",
            hide_index=True,
            height=_ROWS_SHOWN * 36 if len(cells) > _ROWS_SHOWN else "content",
        )
