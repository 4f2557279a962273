"""Writes a comparison as one self-contained HTML page: no script, no font and no link leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tracekit.errors import NotComparableError
from tracekit.model.labels import Path
from tracekit.model.report import Change, Comparison, Gate, RegionPair, Report
from tracekit.model.units import Unit, write, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.literal import clipped, literal, region_words, short_name
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

_CSS: Final = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --muted: #767676; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; } td:first-child { min-width: 9rem; }
td.n, th.n { text-align: right; white-space: nowrap; overflow-wrap: normal; }
.better, .passed { color: var(--good); } .worse, .wrong, .failed { color: var(--bad); }
.muted, .unmeasured { color: var(--muted); } .lead { font-size: 1.15rem; } h2 { margin-top: 2rem; font-size: 1.1rem; }
.bar { display: inline-block; height: .7em; } .bar.down { background: var(--good); } .bar.up { background: var(--bad); }
"""
_NAME_WIDTH: Final = 160
_BAR_WIDTH: Final = 220


def diff_html(comparison: Comparison, rows: Sequence[Row], main: RegionPair | None, gate: Gate | None = None) -> str:
    """The answer, the gate, the five rows, reasons, waterfalls, regions, kernels and notes."""
    answer = comparison.answer
    verdict = answer.verdict if answer else Verdict.UNMEASURED
    names = [_name(report) for report in (comparison.base, comparison.test)]
    body = [f"<h1>{safe(names[0])} → {safe(names[1])}</h1>"]
    body.append(f'<p class="lead {verdict}">{safe(headline(comparison))}</p>')
    body.append(f'<p class="muted">{safe(grounds(comparison))}</p>')
    body += [f"<p>{safe(words)}</p>" for words in phase_words(comparison)]
    if gate is not None:
        body += [f'<h2>Gate: <span class="{gate.outcome}">{gate.outcome}</span></h2>', _gate(gate)]
    body.append("<h2>Did it help?</h2>")
    cells = [[safe(c) for c in (row.topic, row.base, row.test, row.delta, row.meaning)] for row in rows]
    body.append(_table(("", "base", "test", "difference", "what it means"), cells))
    if answer is not None and answer.reasons:
        body += ["<h2>Reasons, in order of contribution</h2>", "<ul>"]
        for reason in answer.reasons:
            size = "" if reason.effect_ns is None else f" {write(reason.effect_ns, Unit.NS, signed=True)} a step:"
            body.append(f"<li><em>{reason.role}</em>{size} {safe(reason_words(reason))}</li>")
        body.append("</ul>")
    body += [
        _waterfalls(comparison),
        _deltas(comparison),
        "<h2>Regions (medians over instances)</h2>",
        _regions(comparison.regions),
    ]
    if main is not None:
        body += [f"<h2>Kernels of {safe(region_words(main.path))}</h2>", _kernels(main)]
    body += ["<h2>Notes</h2>", "<ul>", *(f'<li class="muted">{safe(note)}</li>' for note in comparison.notes), "</ul>"]
    return _page(f"{names[0]} → {names[1]}", body)


def refusal_html(error: NotComparableError) -> str:
    """Why two captures are not comparable."""
    return _page("Not comparable", [f"<h1>Not comparable</h1><p>{safe(error.message)}</p><p>{safe(error.remedy)}</p>"])


def safe(text: str) -> str:
    """Text that HTML shows as it is, in an element or an attribute."""
    return escape(literal(text), quote=True)


def _page(title: str, body: Iterable[str]) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>tracekit: {safe(title)}</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_CSS}</style></head><body>\n" + "\n".join(body) + "\n</body></html>"
    )


def _name(report: Report) -> str:
    return clipped(str(report.capture["capture_id"] or report.capture["source"]), _NAME_WIDTH)


def _gate(gate: Gate) -> str:
    lines = [
        [f'<span class="{c.outcome}">{c.outcome}</span>', safe(c.rule), safe(check_place(c)), safe(check_found(c)),
         *check_sides(c)]
        for c in gate.checks
    ]  # fmt: skip
    lines += [
        ['<span class="failed">failed</span>', f"quality check {safe(name)}", "test", "", "", ""]
        for name in gate.failed_quality
    ]
    return _table(("outcome", "rule", "where", "found", "base", "test"), lines, numbers=(3, 4, 5))


def _waterfalls(comparison: Comparison) -> str:
    out = []
    for waterfall in comparison.waterfalls:
        of = waterfall.instances
        largest = max((abs(step.delta_ns) for step in waterfall.steps), default=0) or 1
        lines = [["base", write(waterfall.base_ns / of, Unit.NS), "", ""]]
        for step in waterfall.steps:
            width = round(_BAR_WIDTH * abs(step.delta_ns) / largest)
            bar = f'<span class="bar {"down" if step.delta_ns < 0 else "up"}" style="width:{width}px"></span>'
            doc = safe(STEPS.get(step.name) or gap_doc(step.name))
            lines.append([safe(step.name), write(step.delta_ns / of, Unit.NS, signed=True), bar, doc])
        lines.append(["test", write(waterfall.test_ns / of, Unit.NS), "", ""])
        out += [f"<h2>Where the time went ({waterfall.basis})</h2>"]
        out.append(_table(("", "time", "", "what it is"), lines, numbers=(1,)))
        if waterfall.basis == "untraced":
            out.append(f'<p class="muted">{safe(dilation_words(waterfall))}</p>')
    return "\n".join(out)


def _deltas(comparison: Comparison) -> str:
    """Charged device time by region, a step: totals that add up."""
    traced = next((waterfall for waterfall in comparison.waterfalls if waterfall.basis == "traced"), None)
    if traced is None or not comparison.region_deltas:
        return ""
    of = traced.instances
    lines = []
    for delta in comparison.region_deltas:
        line = [_indented(delta.path)]
        line += [write(value / of, Unit.NS) for value in (delta.base_ns, delta.test_ns)]
        line += [write(value / of, Unit.NS, signed=True) for value in (delta.delta_ns, delta.direct_delta_ns)]
        lines.append(line)
    titles = ("region", "base", "test", "difference", "outside inner regions")
    return f"<h2>{safe(delta_title(of))}</h2>{_table(titles, lines, numbers=(1, 2, 3, 4))}"


def _indented(path: Path) -> str:
    return f'<span style="padding-left:{1.2 * (len(path) - 1):.1f}em">{safe(clipped(path[-1], _NAME_WIDTH))}</span>'


def _regions(pairs: Sequence[RegionPair]) -> str:
    columns = (("kernel_count", "kernels"), ("device_ns", "charged"), ("busy_ns", "busy"), ("gap_ns", "idle"),
               ("dram_read_bytes", "read"), ("dram_write_bytes", "written"))  # fmt: skip
    lines = [
        [
            _indented(pair.path),
            *(_cell(pair.metrics.get(name)) for name, _ in columns),
        ]
        for pair in pairs
    ]
    numbers = tuple(range(1, len(columns) + 1))
    return _table(("region", *(title for _, title in columns)), lines, numbers=numbers)


def _cell(change: Change | None) -> str:
    if change is None:
        return ""
    text = f"{write(change.base, change.unit)} → {write(change.test, change.unit)}"
    if change.ratio is None:
        return text
    return f'{text}<br><span class="{change.verdict or "muted"}">{write_change(change.ratio)}</span>'


def _kernels(pair: RegionPair) -> str:
    lines = []
    for match in pair.kernels:
        for at in range(max(len(match.base), len(match.test))):
            line = [match.match.replace("_", " ") if at == 0 else ""]
            for side in (match.base, match.test):
                kernel = side[at] if at < len(side) else None
                line += (
                    [safe(short_name(kernel.name, _NAME_WIDTH)), f"{kernel.count:,}", write(kernel.busy_ns, Unit.NS)]
                    if kernel
                    else ["", "", ""]
                )
            lines.append(line)
    titles = ("match", "base kernel", "count", "busy", "test kernel", "count", "busy")
    return _table(titles, lines, numbers=(2, 3, 5, 6))


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already."""

    def row(cells: Sequence[str], tag: str) -> str:
        marks = ((' class="n"' if at in numbers else "", cell) for at, cell in enumerate(cells))
        return "<tr>" + "".join(f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in marks) + "</tr>"

    body = "\n".join(row(line, "td") for line in lines)
    return f"<table><thead>{row(columns, 'th')}</thead><tbody>\n{body}\n</tbody></table>"
