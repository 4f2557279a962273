"""Draws the first page: the answer, what it rests on, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import streamlit as st

from tracekit.model.manifest import CONDITIONS
from tracekit.model.report import Change, Comparison, Interval, Latency, RegionPair
from tracekit.model.tables import REGION_METRICS
from tracekit.model.units import MISSING, Unit, write, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.charts.latency import latency_chart
from tracekit.render.charts.palette import SIDE_COLORS
from tracekit.render.charts.waterfall import waterfall_chart
from tracekit.render.pages.elements import (
    in_words,
    instances,
    is_better,
    known_words,
    literal,
    muted,
    name_of,
    prose,
    say,
    section,
    table,
)
from tracekit.render.words import STEPS, Row, dilation_words, gap_doc, grounds, phase_words, reason_words
from tracekit.render.words import headline as answer_sentence

Color = Literal["red", "orange", "blue", "green", "gray"]

BADGES: Final[Mapping[Verdict, Color]] = {
    Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.WRONG: "red", Verdict.SAME: "blue",
    Verdict.UNDETERMINED: "orange", Verdict.UNMEASURED: "gray",
}  # fmt: skip
"""A colour beside each verdict's word."""

LATENCY_TOPIC: Final = "Full request latency"
JUDGED: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "Kernel launches and launch gaps": (("kernels", "kernel_count"), ("idle", "gap_ns")),
    "HBM reads and writes": (("reads", "dram_read_bytes"), ("writes", "dram_write_bytes")),
    "Spills and active blocks": (("spills", "spill_instruction_count"),),
}
"""The metrics that judge a row of the five, by topic: a word, and the metric."""

_CARDS: Final = (
    ("Kernels", "kernel_count"), ("Idle device time", "gap_ns"), ("Busy device time", "busy_ns"),
    ("DRAM bytes read", "dram_read_bytes"),
)  # fmt: skip


def headline(comparison: Comparison) -> None:
    """What is compared, the verdict and the answer, the untraced latency, and whether the GPU changed."""
    names = [name_of(report) for report in (comparison.base, comparison.test)]
    st.header(f"{literal(names[0])} → {literal(names[1])}", anchor=False)
    with muted("conditions"):
        st.text(_conditions(comparison))
    if comparison.answer is not None:
        verdict = comparison.answer.verdict
        with st.container(key="answer"):
            st.badge(str(verdict), color=BADGES[verdict])
            st.text(answer_sentence(comparison))
        with muted("grounds"):
            st.text(grounds(comparison))
            for words in phase_words(comparison):
                st.text(words)
    with st.container(key="lead"):
        st.markdown(_latency_sentence(comparison))
    chart = latency_chart(comparison.base, comparison.test)
    if chart is not None:
        left, right = st.columns(2, gap="large", vertical_alignment="center")
        with left:
            _latency_table(comparison)
        with right:
            st.altair_chart(chart, width="stretch")
    with muted("drift"):
        st.text(("Drift control: " if comparison.drift.kernels else "") + comparison.drift.sentence)


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
            words.append(f"{name}{known_words(base)} → {known_words(test)}")
    return "  ·  ".join(words) or "Nothing is known about the conditions of these captures."


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
    which = "under one protocol on both sides" if comparison.latency else "in either capture"
    return f"Untraced latency was not measured {which}: what the trace shows below includes the tracer's own cost."


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
    table("latency", ["protocol", "side", "median", "p20 to p80", "processes", "change"], rows, right=(2, 3, 4, 5))


def findings(pair: RegionPair, rows: Sequence[Row], comparison: Comparison) -> None:
    """The five rows of "did fusion help?" for the selected region, with the verdicts on the metrics they rest on."""
    section("Did it help?", f"{in_words(pair)}: medians over {instances(pair)}.")
    _cards(pair.metrics)
    protocols = [f.figure("protocol", "both") for f in comparison.findings if f.topic == "latency"]
    change = comparison.latency.get(str(protocols[0])) if protocols else None
    lines = []
    for row in rows:
        of_latency = row.topic == LATENCY_TOPIC
        judged = {"latency": change} if of_latency and change else {}
        judged |= {word: pair.metrics[name] for word, name in JUDGED.get(row.topic, ()) if name in pair.metrics}
        found = judged["latency"].estimate if "latency" in judged else None
        lines.append([
            f"**{prose(row.topic)}**", prose(row.base), prose(row.test), prose(row.delta),
            _interval(found.interval if found else None),
            " · ".join(_verdict(*item) for item in judged.items()) or MISSING,
            prose(row.meaning),
        ])  # fmt: skip
    table(
        "findings",
        ["compare", "base", "test", "difference", "95 % interval", "verdict", "what it means"],
        lines,
        widths=("11%", "15%", "15%", "13%", "8%", "11%", "27%"),
    )


def _interval(found: Interval | None) -> str:
    """The interval of a ratio as changes; a dash where there is none."""
    if found is None or found.low is None or found.high is None:
        return MISSING
    return f"{write_change(found.low)} to {write_change(found.high)}"


def _verdict(word: str, change: Change) -> str:
    verdict = change.verdict
    if verdict is None:
        return f"{word} differ"
    return f"{word} :{BADGES[verdict]}[{verdict}]"


def reasons(comparison: Comparison) -> None:
    """Why, in order of contribution."""
    answer = comparison.answer
    if answer is None or not answer.reasons:
        return
    section("Why", "In order of contribution. What is measured is a difference of measured times; the rest bounds it.")
    rows = [
        [
            prose(reason.role),
            write(reason.effect_ns, Unit.NS, signed=True),
            ("measured" if reason.measured else "at most") if reason.effect_ns is not None else MISSING,
            prose(reason_words(reason)),
        ]
        for reason in answer.reasons
    ]
    table("reasons", ["role", "effect", "how known", "reason"], rows, right=(1,), widths=("10%", "12%", "10%", "68%"))


def waterfalls(comparison: Comparison) -> None:
    """From the base's time to the test's, step by step: untraced latency first, then the traced ledger."""
    for found in comparison.waterfalls:
        untraced = found.basis == "untraced"
        title = "Where the latency went" if untraced else "Where the traced step went"
        caption = (
            f"Untraced, {found.protocol}, median over processes."
            if untraced
            else f"The ledger of {found.instances} typical instances a side, which the tracer stretches."
        )
        section(title, f"{caption} Bars add up exactly.")
        docs = {step.name: STEPS.get(step.name) or gap_doc(step.name) for step in found.steps}
        st.altair_chart(waterfall_chart(found, docs), width="stretch")
        if untraced:
            with muted("dilation"):
                st.text(dilation_words(found))


def conditions(comparison: Comparison) -> None:
    """What was held on each side, with differences in red, and what checks said of the results."""
    section("Conditions and quality", "What must agree for a comparison to be one, and whether the results are right.")
    waived = {mismatch.condition for mismatch in comparison.mismatches}
    sides = [report.capture["conditions"] for report in (comparison.base, comparison.test)]
    rows = []
    for name in CONDITIONS:
        base, test = (side.get(name) for side in sides)
        if base is None and test is None:
            continue
        differs = name in waived
        cells = [literal(known_words(base)), literal(known_words(test))]
        rows.append([
            prose(name), *cells,
            ":red[**differs, waived**]" if differs else "same" if base == test else "unknown on one side",
        ])  # fmt: skip
    left, right = st.columns(2, gap="large")
    with left:
        table("condition-table", ["condition", "base", "test", ""], rows, widths=("22%", "29%", "29%", "20%"))
        if comparison.unknown:
            say("unknown", f"Not known of either side: {', '.join(comparison.unknown)}.")
    with right:
        _quality(comparison)


def _quality(comparison: Comparison) -> None:
    rows = [
        [
            side, literal(str(check["check"])), literal(str(check["reference"] or "")),
            prose(_short(check["error"])), prose(_short(check["tolerance"])),
            {True: ":green[passed]", False: ":red[**failed**]"}.get(check["passed"], MISSING),
        ]
        for side, report in (("base", comparison.base), ("test", comparison.test))
        for check in report.capture.get("quality", ())
    ]  # fmt: skip
    if rows:
        table("quality", ["side", "check", "reference", "error", "tolerance", ""], rows, right=(3, 4))
    unchecked = [side for side in ("base", "test") if not getattr(comparison, side).capture.get("quality")]
    if unchecked:
        say("unchecked", f"Nobody checked the results of: {', '.join(unchecked)} (no quality.json in the bundle).")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else MISSING


def _cards(metrics: Mapping[str, Change]) -> None:
    for column, (title, name) in zip(st.columns(len(_CARDS)), _CARDS, strict=True):
        change = metrics.get(name)
        moved = change.ratio if change else None
        kind = f", {change.kind.replace('_', ' ')}" if change and change.kind else ""
        improved = is_better(change)
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
