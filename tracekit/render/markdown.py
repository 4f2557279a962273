"""Writes a comparison as Markdown for a pull-request comment: the answer first, details folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tracekit.errors import NotComparableError
from tracekit.model.report import Change, Comparison, Gate, RegionPair
from tracekit.model.units import MISSING, Unit, write, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.literal import clipped, region_words, short_name
from tracekit.render.words import (
    STEPS,
    Row,
    check_found,
    check_place,
    check_sides,
    dilation_words,
    gap_doc,
    grounds,
    headline,
    phase_words,
    reason_words,
)

_MARKS: Final = {
    Verdict.BETTER: "✅", Verdict.WORSE: "❌", Verdict.WRONG: "❌", Verdict.SAME: "⚪", Verdict.UNDETERMINED: "❔",
    Verdict.UNMEASURED: "❔",
}  # fmt: skip
_OUTCOMES: Final = {"passed": "✅ passed", "failed": "❌ failed", "undetermined": "❔ undetermined",
                    "unmeasured": "⚪ unmeasured"}  # fmt: skip
_COMMENT: Final = 65_000
"""A comment on GitHub holds 65,536 characters."""
_REGIONS_SHOWN: Final = 60
_NOTES_SHOWN: Final = 30
_NAME_WIDTH: Final = 80
_SPECIAL: Final = re.compile(r"[^\w\s,;:()%/+'\u0080-\U0010ffff.-]|_|\.(?=[A-Za-z])|:(?=\S)")


def diff_markdown(
    comparison: Comparison, rows: Sequence[Row], main: RegionPair | None, gate: Gate | None = None
) -> str:
    """The answer, the gate, the five rows and the reasons; waterfalls, regions and notes inside folds."""
    answer = comparison.answer
    mark = _MARKS.get(answer.verdict, "❔") if answer else "❔"
    names = [
        escaped(str(r.capture["capture_id"] or r.capture["source"]), _NAME_WIDTH)
        for r in (comparison.base, comparison.test)
    ]
    parts = [
        f"### {mark} {names[0]} → {names[1]}",
        "",
        escaped(headline(comparison), 2000),
        "",
        escaped(grounds(comparison)),
        "",
    ]
    parts += [f"- {escaped(words)}" for words in phase_words(comparison)] + [""] * bool(comparison.phases)
    if gate is not None:
        parts += [f"**Gate: {_OUTCOMES[gate.outcome]}**", "", *_gate(gate), ""]
    parts += _table(
        ("", "base", "test", "difference", "what it means"),
        [(f"**{escaped(row.topic)}**", *map(escaped, (row.base, row.test, row.delta, row.meaning))) for row in rows],
    )
    if answer is not None and answer.reasons:
        parts += ["", "**Reasons, in order of contribution**", ""]
        for reason in answer.reasons:
            size = "" if reason.effect_ns is None else f" {write(reason.effect_ns, Unit.NS, signed=True)} a step:"
            parts.append(f"- *{reason.role}*{size} {escaped(reason_words(reason))}")
    folds = []
    for waterfall in comparison.waterfalls:
        of = waterfall.instances
        lines = [("base", write(waterfall.base_ns / of, Unit.NS), "")]
        lines += [
            (
                escaped(s.name),
                write(s.delta_ns / of, Unit.NS, signed=True),
                escaped(STEPS.get(s.name) or gap_doc(s.name)),
            )
            for s in waterfall.steps
        ]
        lines.append(("test", write(waterfall.test_ns / of, Unit.NS), ""))
        inner = _table(("", "time", "what it is"), lines)
        if waterfall.basis == "untraced":
            inner += ["", escaped(dilation_words(waterfall))]
        folds.append(_fold(f"Where the time went ({waterfall.basis})", inner))
    folds.append(_fold("Regions", _regions(comparison.regions)))
    if main is not None and main.kernels:
        folds.append(_fold("Kernels of the step", _kernels(main)))
    folds.append(_fold("Notes", [f"- {escaped(note)}" for note in comparison.notes[:_NOTES_SHOWN]]))
    text = "\n".join(parts)
    for fold in folds:
        more = "\n".join(["", *fold])
        # What does not fit into a comment is left out whole: half a table would show nothing.
        text += more if len(text) + len(more) < _COMMENT else ""
    return text


def refusal_markdown(error: NotComparableError) -> str:
    """Why two captures are not comparable."""
    return f"### ❔ Not comparable\n\n{escaped(error.message)}\n\n{escaped(error.remedy)}"


def escaped(text: str, length: int = 600) -> str:
    """Text that Markdown shows as it is, cut: what could be markup, a link or a mention is a character reference."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", clipped(text, length)) or MISSING


def _gate(gate: Gate) -> list[str]:
    lines = [
        (_OUTCOMES[c.outcome], escaped(c.rule), escaped(check_place(c)), escaped(check_found(c)), *check_sides(c))
        for c in gate.checks
    ]
    lines += [
        (_OUTCOMES["failed"], f"quality check {escaped(name)}", "test", "", "", "") for name in gate.failed_quality
    ]
    return _table(("outcome", "rule", "where", "found", "base", "test"), lines)


def _regions(pairs: Sequence[RegionPair]) -> list[str]:
    columns = (("kernel_count", "kernels"), ("device_ns", "charged"), ("busy_ns", "busy"), ("gap_ns", "idle"))
    lines = [
        (escaped(region_words(pair.path, _NAME_WIDTH)), *(_cell(pair.metrics.get(name)) for name, _ in columns))
        for pair in pairs[:_REGIONS_SHOWN]
    ]
    table = _table(("region", *(title for _, title in columns)), lines)
    left = len(pairs) - len(lines)
    return [*table, "", f"{left} more regions are in the JSON."] if left > 0 else table


def _cell(change: Change | None) -> str:
    if change is None:
        return ""
    text = f"{write(change.base, change.unit)} → {write(change.test, change.unit)}"
    return text if change.ratio is None else f"{text} ({write_change(change.ratio)})"


def _kernels(pair: RegionPair) -> list[str]:
    lines = []
    for match in pair.kernels:
        for at in range(max(len(match.base), len(match.test))):
            cells = []
            for side in (match.base, match.test):
                kernel = side[at] if at < len(side) else None
                name = f"{escaped(short_name(kernel.name, _NAME_WIDTH))} × {kernel.count:,}" if kernel else ""
                cells += [name, write(kernel.busy_ns, Unit.NS) if kernel else ""]
            lines.append((match.match.replace("_", " "), *cells))
    return _table(("match", "base kernel", "busy", "test kernel", "busy"), lines[:_REGIONS_SHOWN])


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*head, *(f"| {' | '.join(line)} |" for line in lines)]


def _fold(title: str, inner: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{title}</summary>", "", *inner, "", "</details>"] if inner else []
