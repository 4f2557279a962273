"""Writes reports, comparisons and gap reports for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tracekit.model.labels import Path
from tracekit.model.report import Change, Comparison, Gate, Metric, Region, RegionPair, Report, Waterfall
from tracekit.model.tables import GAP_PARTS, REGION_METRICS
from tracekit.model.units import MISSING, Unit, write, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.literal import clipped, literal, short_name
from tracekit.render.words import (
    STEPS,
    Row,
    check_found,
    check_place,
    check_sides,
    delta_title,
    dilation_words,
    gap_doc,
    grounds,
    headline,
    phase_words,
    reason_words,
)

_NAME_WIDTH: Final = 50
_LABEL_WIDTH: Final = 400
_MUTED: Final = "dim"
_STYLES: Final[Mapping[Verdict | None, str]] = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.WRONG: "red"}
_SHOW_COLUMNS: Final = (
    ("kernels", "kernel_count"), ("charged", "device_ns"), ("busy", "busy_ns"), ("idle", "gap_ns"),
    ("read", "dram_read_bytes"), ("written", "dram_write_bytes"), ("regs", "registers_count"),
    ("spills", "spill_instruction_count"), ("blocks", "active_blocks_count"), ("limited by", "occupancy_limiter"),
)  # fmt: skip
_COUNTERS_COLUMNS: Final = (
    ("kernels", "kernel_count"), ("read", "dram_read_bytes"), ("written", "dram_write_bytes"),
    ("regs", "registers_count"), ("frame", "frame_bytes"), ("shared", "dynamic_smem_bytes"),
    ("spills", "spill_instruction_count"), ("blocks", "active_blocks_count"), ("limited by", "occupancy_limiter"),
    ("SM fill", "sm_fill_ratio"), ("waves", "waves"),
)  # fmt: skip
"""What a report without times can tell."""
_DIFF_COLUMNS: Final = (("kernels", "kernel_count"), ("charged", "device_ns"), ("busy", "busy_ns"), ("idle", "gap_ns"))


def show_text(report: Report, *, depth: int | None = None) -> RenderableType:
    """A report: the capture, its coverage, and the region tree with medians over instances."""
    return Group(
        _capture(report.capture, "capture"),
        _coverage(report),
        *_latency_lines(report),
        _region_table(report.regions, depth),
        _legend("charged", "busy", "idle"),
        *_notes(report.notes),
        *_notes(_common(report.regions)),
        *_more(report.regions),
    )


def diff_text(
    comparison: Comparison,
    rows: Sequence[Row],
    main: RegionPair | None,
    *,
    depth: int | None = None,
    gate: Gate | None = None,
) -> RenderableType:
    """A comparison: what was compared, the answer, the five rows for the main region, then every region."""
    return Group(
        _capture(comparison.base.capture, "base"),
        _capture(comparison.test.capture, "test"),
        *_answer(comparison),
        *_gate(gate),
        _findings(rows),
        *(_waterfall(waterfall) for waterfall in comparison.waterfalls),
        *_deltas(comparison, depth),
        _pair_table(comparison.regions, depth),
        _legend("charged", "busy", "idle"),
        _kernel_table(main),
        *_notes(comparison.notes),
        *_notes(_of_main(main)),
    )


def gaps_text(data: Mapping[str, Any]) -> RenderableType:
    """A gap report: devices, lengths, causes, regions and the longest gaps."""
    devices = _table(
        "device", "operations", "span", "busy", "idle", "idle of kernels alone", "gaps", "busy %", title="Devices"
    )
    for device in data["devices"]:
        devices.add_row(
            str(device["device_id"]),
            f"{device['operations']:,}",
            *(write(device[name], Unit.NS) for name in ("span_ns", "busy_ns", "gap_ns", "kernel_gap_ns")),
            f"{device['gaps']:,}",
            write(device["busy_ratio"], Unit.RATIO),
        )
    lengths = _table("length", "gaps", "idle", title="Gaps by length")
    for bin_ in data["histogram"]:
        if bin_["gaps"]:
            low = write(bin_["from_ns"], Unit.NS)
            span = f"{low} and longer" if bin_["below_ns"] is None else f"{low} to {write(bin_['below_ns'], Unit.NS)}"
            lengths.add_row(span, f"{bin_['gaps']:,}", write(bin_["gap_ns"], Unit.NS))
    total = sum(value or 0 for value in data["parts"].values())
    causes = _table("part", "idle", "share", "what the host did", title="Gaps by cause", left=(0, 3))
    for part in GAP_PARTS:
        name = f"gap_{part}_ns"
        share = data["parts"][name] / total if total else None
        if data["parts"][name]:
            causes.add_row(
                part, write(data["parts"][name], Unit.NS), write(share, Unit.RATIO), REGION_METRICS[name].doc
            )
    longest = _table("idle", "ended by", "region", "main part", title="Longest gaps", left=(1, 2, 3))
    for gap in data["longest"]:
        part = max(gap["parts"], key=gap["parts"].get)
        longest.add_row(
            write(gap["gap_ns"], Unit.NS),
            short_name(gap["ended_by"], _NAME_WIDTH),
            literal(" / ".join(gap["path"] or ())) or MISSING,
            part.removeprefix("gap_").removesuffix("_ns"),
        )
    return Group(_capture(data["capture"], "capture"), devices, lengths, causes, longest, *_notes(data["notes"]))


def _capture(capture: Mapping[str, Any], role: str) -> RenderableType:
    name = literal(str(capture["capture_id"] or capture["source"]))
    gpus = ", ".join(dict.fromkeys(str(gpu["name"] or "unknown GPU") for gpu in capture["gpus"])) or "no GPU described"
    facts = [f"{capture['tool']} {capture['tool_version'] or ''}".strip(), gpus]
    facts += [str(capture["variant"])] if capture["variant"] else []
    facts += [f"{name} {value}" for name, value in capture["conditions"].items() if name not in ("gpu", "model")]
    return Text.assemble((f"{role:8}", "bold"), (str(name), "bold cyan"), "  ", (literal(" · ".join(facts)), _MUTED))


def _coverage(report: Report) -> RenderableType:
    coverage = report.coverage
    if not coverage.operations:
        return Text()
    words = f"{coverage.attributed:,} of {coverage.operations:,} device operations are inside a range"
    if coverage.without_call:
        words += f"; {coverage.without_call:,} have no launch call in the capture"
    return Text(f"{'':8}{words}", style=_MUTED)


def _latency_lines(report: Report) -> Iterable[RenderableType]:
    for entry in report.latency:
        yield Text(
            f"{'':8}untraced latency, {entry.protocol}: {write(entry.median_ns, Unit.NS)} (median of "
            f"{entry.processes} processes, p20 {write(entry.p20_ns, Unit.NS)}, p80 {write(entry.p80_ns, Unit.NS)})",
            style=_MUTED,
        )


def _region_table(regions: Sequence[Region], depth: int | None) -> Table:
    timed = any("busy_ns" in region.metrics and region.metrics["busy_ns"].value is not None for region in regions)
    columns = _SHOW_COLUMNS if timed else _COUNTERS_COLUMNS
    left = [number for number, (title, _) in enumerate(columns, 2) if title == "limited by"]
    table = _table("region", "×", *(title for title, _ in columns), left=(0, *left))
    for region in regions:
        if depth is None or len(region.path) <= depth:
            cells = [_metric(region.metrics.get(name)) for _, name in columns]
            table.add_row(_indent(region.path), f"{region.instances:,}", *cells)
    return table


def _metric(metric: Metric | None) -> str:
    return MISSING if metric is None else write(metric.value, metric.unit)


def _pair_table(pairs: Sequence[RegionPair], depth: int | None) -> Table:
    columns = [title for name, _ in _DIFF_COLUMNS for title in (f"{name} base", "test", "change")]
    table = _table("region", *columns, title="Regions (medians over instances)")
    for pair in pairs:
        if depth is None or len(pair.path) <= depth:
            cells: list[str | Text] = []
            for _, name in _DIFF_COLUMNS:
                change = pair.metrics.get(name)
                if change is None:
                    cells += [MISSING] * 3
                else:
                    cells += [write(change.base, change.unit), write(change.test, change.unit), _moved(change)]
            side = {(True, False): " (base only)", (False, True): " (test only)"}
            only = side.get((pair.base_path is not None, pair.test_path is not None), "")
            table.add_row(_indent(pair.path) + only, *cells)
    return table


def _moved(change: Change) -> Text:
    """A change as words and colour: green where it is better, red where it is worse."""
    text = write_change(change.ratio)
    if change.ratio is None and change.delta is not None:
        text = write(change.delta, change.unit, signed=True)
    return Text(text, style=_STYLES.get(change.verdict, ""))


def _answer(comparison: Comparison) -> list[RenderableType]:
    """The first sentence, and every reason with what it adds to a step."""
    answer = comparison.answer
    if answer is None:
        return []
    style = _STYLES.get(answer.verdict, "yellow")
    lines: list[RenderableType] = [
        Text(literal(headline(comparison)), style=f"bold {style}"),
        Text(literal(grounds(comparison)), style=_MUTED),
    ]
    lines += [Text(f"  part      {'':20}  {literal(words)}") for words in phase_words(comparison)]
    for reason in answer.reasons:
        size = "" if reason.effect_ns is None else write(reason.effect_ns, Unit.NS, signed=True)
        size += "" if reason.measured or not size else " at most"
        lines.append(Text.assemble((f"  {reason.role:9}", _MUTED), f"{size:>20}  ", literal(reason_words(reason))))
    return lines


def _gate(gate: Gate | None) -> list[RenderableType]:
    """Every match of every rule with its outcome."""
    if gate is None:
        return []
    table = _table("outcome", "rule", "where", "found", "base", "test", title=f"Gate: {gate.outcome}", left=(0, 1, 2))
    styles = {"passed": "green", "failed": "red", "undetermined": "yellow", "unmeasured": _MUTED}
    for check in gate.checks:
        cells = (literal(check.rule), check_place(check), check_found(check), *check_sides(check))
        table.add_row(Text(check.outcome, style=styles[check.outcome]), *cells)
    for name in gate.failed_quality:
        table.add_row(Text("failed", style="red"), f"quality check {literal(name)}", "test", MISSING, MISSING, MISSING)
    return [table]


def _waterfall(waterfall: Waterfall) -> RenderableType:
    """From base to test in steps that sum to it; with the traced gap parts beside the exposed time."""
    of = waterfall.instances
    titles = {
        "untraced": f"Where the time went: untraced latency, {literal(str(waterfall.protocol))}, median over processes",
        "traced": f"The traced step's ledger, which tracing stretches: mean of {of} typical instances a side",
    }
    table = _table("", "time", "what it is", title=titles[waterfall.basis], left=(0, 2))
    table.add_row("base", write(waterfall.base_ns / of, Unit.NS), "")
    for step in waterfall.steps:
        text = write(step.delta_ns / of, Unit.NS, signed=True)
        color = "" if not step.delta_ns else "green" if step.delta_ns < 0 else "red"
        what = STEPS.get(step.name) or gap_doc(step.name)
        table.add_row(f"  {step.name}", Text(text, style=color), what + ("" if step.measured else " (a model)"))
    table.add_row("test", write(waterfall.test_ns / of, Unit.NS), "")
    if waterfall.basis == "untraced":
        table.caption = dilation_words(waterfall)
        table.caption_justify = "left"
    return table


def _deltas(comparison: Comparison, depth: int | None) -> list[RenderableType]:
    """Charged device time by region, a step: totals that add up, unlike the medians below."""
    traced = next((waterfall for waterfall in comparison.waterfalls if waterfall.basis == "traced"), None)
    if traced is None or not comparison.region_deltas:
        return []
    of = traced.instances
    table = _table("region", "base", "test", "difference", "outside inner regions", title=delta_title(of))
    for delta in comparison.region_deltas:
        if depth is None or len(delta.path) <= depth:
            cells = [write(value / of, Unit.NS) for value in (delta.base_ns, delta.test_ns)]
            cells += [write(value / of, Unit.NS, signed=True) for value in (delta.delta_ns, delta.direct_delta_ns)]
            table.add_row(_indent(delta.path), *cells)
    return [table]


def _findings(rows: Sequence[Row]) -> RenderableType:
    table = _table("compare", "base", "test", "difference", "what it means", left=(0, 1, 2, 3, 4), lines=True)
    for row in rows:
        cells = (row.base, row.test, row.delta, row.meaning)
        table.add_row(Text(row.topic, style="bold"), *map(literal, cells))
    return Panel(table, title="Did it help?", border_style="cyan") if rows else Text("")


def _kernel_table(pair: RegionPair | None) -> RenderableType:
    if pair is None:
        return Text("")
    table = _table("match", "base kernel", "count", "busy", "test kernel", "count", "busy", left=(0, 1, 4))
    table.title = f"Kernels of {literal(' / '.join(pair.path))} (totals over all instances)"
    for match in pair.kernels:
        for at in range(max(len(match.base), len(match.test))):
            row = [match.match.replace("_", " ") if at == 0 else ""]
            for side in (match.base, match.test):
                kernel = side[at] if at < len(side) else None
                if kernel is None:
                    row += [""] * 3
                else:
                    name = short_name(kernel.name, _NAME_WIDTH)
                    row += [name, f"{kernel.count:,}", write(kernel.busy_ns, Unit.NS)]
            table.add_row(*row, end_section=at == max(len(match.base), len(match.test)) - 1)
    return table


def _common(regions: Sequence[Region]) -> list[str]:
    """The notes that most regions share, once; the rest are in the JSON."""
    counts: dict[str, int] = {}
    for region in regions:
        for note in region.notes:
            counts[note] = counts.get(note, 0) + 1
    return [note for note, count in counts.items() if count * 2 > len(regions)]


def _of_main(main: RegionPair | None) -> list[str]:
    """The notes of the main region; one that holds for both sides, once."""
    if main is None:
        return []
    bare = [note.removeprefix("base: ").removeprefix("test: ") for note in main.notes]
    return [
        f"{main.path[0]}: {text if bare.count(text) > 1 else note}"
        for at, (note, text) in enumerate(zip(main.notes, bare, strict=True))
        if text not in bare[:at]
    ]


def _more(regions: Sequence[Region]) -> list[RenderableType]:
    """Where the notes are that only few regions have."""
    rest = {note for region in regions for note in region.notes} - set(_common(regions))
    return _notes([f"{len(rest)} more, on single regions: --format json"]) if rest else []


def _notes(notes: Iterable[str]) -> list[RenderableType]:
    return [Text.assemble(("note  ", "yellow"), (literal(note), _MUTED)) for note in notes]


def _legend(*names: str) -> RenderableType:
    words = {
        "charged": "charged: busy time not covered by earlier operations plus the gaps ended; additive",
        "busy": "busy: union of the region's operations",
        "idle": "idle: gaps that its operations end",
    }
    return Text(" · ".join(words[name] for name in names), style=_MUTED)


def _table(*columns: str, title: str | None = None, left: Sequence[int] = (0,), lines: bool = False) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_lines=lines, header_style="bold")
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at in left else "right", overflow="fold")
    return table


def _indent(path: Path) -> str:
    return "  " * (len(path) - 1) + clipped(path[-1], _LABEL_WIDTH)
