"""What every page is written with: literal text, tables, notes, errors and the style sheet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import streamlit as st

from tracekit.errors import InputError, NotComparableError, TracekitError
from tracekit.model.labels import Path
from tracekit.model.report import Change, Mismatch, RegionPair, Report
from tracekit.model.units import MISSING, write, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.literal import clipped

_ROWS_SHOWN: Final = 14
"""A table with more rows scrolls."""


_DESCRIBED: Final = 110
"""Characters of a capture's description beneath its name; the page of data has all of it."""

_QUESTION: Final = "Did this kernel change help, by how much, and why?"


_STYLE: Final = """
.stMainBlockContainer { max-width: 1480px; padding: 4.25rem 3rem 4rem; }
[data-testid="stMarkdownContainer"]:has(> table) { max-width: none; margin: 0; }
[data-testid="stMarkdownContainer"] table { margin: 0; width: 100%; font-variant-numeric: tabular-nums; }
[data-testid="stMarkdownContainer"] :is(td, th) { border-width: 0 0 1px; vertical-align: top; }
[data-testid="stMarkdownContainer"] td code { background: none; padding: 0; }
[data-testid="stMarkdownContainer"] td code { white-space: pre-wrap; overflow-wrap: anywhere; }
.stMainBlockContainer code { color: inherit; }
[data-testid="stHeading"] h3 { border-top: 1px solid rgb(128 128 128 / 0.25); margin-top: 1.5rem; padding-top: 1.7rem; }
[data-testid="stHeading"] code { background: none; padding: 0; font: inherit; white-space: pre-wrap; }
[class*="st-key-muted"] [data-testid="stText"] { opacity: 0.72; font-size: 0.875rem; line-height: 1.45; }
[class*="st-key-answer"] [data-testid="stText"] { font-size: 1.35rem; line-height: 1.4; }
[class*="st-key-lead"] p { font-size: 1.25rem; line-height: 1.5; }
"""


_ESCAPES_DO_NOT_HOLD: Final = re.compile(
    r":[\w+-]+:|:material|www\.|://|\S@\S|[\x00-\x1f\x7f]|<-|->|--|>=|<=|~=", re.IGNORECASE
)
"""Emoji, icons, links, addresses, control characters, and what Streamlit draws as arrows and signs."""

_CONTROL = {code: 0x2400 + code for code in range(32)} | {127: 0x2421}


_CUT: Final = re.compile(r"(?<=:material)(?=/)|(?<=\\)(?=\|)")
"""Between what is not the text's own even inside code: the name of an icon, and in a table the bar of an escape."""

_BARE_BAR: Final = re.compile(r"(?<!\\)((?:\\\\)*)\|")
"""A bar that would end a table's cell."""


def masthead() -> None:
    """The program's name and the question that it answers."""
    st.markdown(f"**tracekit** &nbsp; :gray[{prose(_QUESTION)}]")


def style() -> None:
    """The page's style sheet: static, since Streamlit by itself neither aligns text nor sets digits in columns."""
    st.html(f"<style>{_STYLE}</style>")


def literal(text: str) -> str:
    """Markdown that shows ``text`` as it is, whatever markup it holds: a code span.

    Backslashes would not do: emoji, links and arrows are replaced after escapes are resolved. Where even code is not
    left alone, such a text is cut into spans, every other one bold to keep them apart.
    """
    if not text:
        return MISSING
    spans = [_span(piece) for piece in _CUT.split(text.translate(_CONTROL))]
    return "".join(f"**{span}**" if at % 2 else span for at, span in enumerate(spans))


def _span(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    # CommonMark strips one space from each end where both have one.
    pad = " " if "`" in (text[0], text[-1]) or (text[0] == text[-1] == " " and text.strip()) else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str) -> str:
    """Markdown of a sentence whose punctuation is meant as such: this program's, with a file's words inside at most.

    What escapes do not hold back (emoji, links, arrows, line breaks) makes it :func:`literal`.
    """
    if _ESCAPES_DO_NOT_HOLD.search(text):
        return literal(text)
    return re.sub(r"([\\`*_{}\[\]<>#|~$&!/])", r"\\\1", text)


def name_of(report: Report) -> str:
    """A capture's name: its variant, else its own, else its file's."""
    capture = report.capture
    return str(capture["variant"] or capture["capture_id"] or file_name(capture["source"]))


def file_name(source: str) -> str:
    """The last part of a path of any system."""
    return re.split(r"[\\/]", source.rstrip("\\/"))[-1]


def known_words(value: object) -> str:
    """A condition as text; one that is not known says so."""
    return "unknown" if value is None else str(value)


def describe(report: Report, other: Report | None, side: str) -> None:
    """A capture in its own words, beneath its name: from where the other side's words begin to differ."""
    words = _description(report).split("; ")
    others = _description(other).split("; ") if other else ()
    alike = next((at for at, (own, its) in enumerate(zip(words, others, strict=False)) if own != its), 0)
    say(f"describe-{side}", clipped("; ".join(words[alike:]), _DESCRIBED))


def _description(report: Report) -> str:
    capture = report.capture
    return str(capture["description"] or f"{capture['tool']} {capture['tool_version'] or ''}".strip())


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
    table(
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
        title = f"**Cannot use** {literal(file_name(error.source))}"
    else:
        facts = {"remedy": error.remedy}
        title = f"**{prose(type(error).__name__)}** {literal(error.message)}"
    st.error("\n".join([title, "", *(f"- {name}: {literal(text)}" for name, text in facts.items() if text)]))


def path_words(path: Path) -> str:
    """A region as one line for a list of choices."""
    return " › ".join(path)


def in_words(pair: RegionPair) -> str:
    """A region as Markdown."""
    return literal(path_words(pair.path))


def instances(pair: RegionPair) -> str:
    """How often a region ran on both sides, in words."""
    if pair.base_instances == pair.test_instances:
        return f"{pair.base_instances:,} instance{'' if pair.base_instances == 1 else 's'} on each side"
    return f"{pair.base_instances:,} instances of the base and {pair.test_instances:,} of the test"


NOTHING: Final = Change(None, None, None, None, "", "none")


def figures(change: Change) -> list[str]:
    """Base, test, difference and relative change as they are written."""
    return [
        prose(write(change.base, change.unit)),
        prose(write(change.test, change.unit)),
        write(change.delta, change.unit, signed=True),
        coloured(change),
    ]


def is_better(change: Change | None) -> bool | None:
    """Whether a metric with a better direction moved there; None where it hardly moved or has none."""
    if change is None or change.ratio is None:
        return None
    if change.verdict is Verdict.BETTER:
        return True
    return False if change.verdict in (Verdict.WORSE, Verdict.WRONG) else None


def coloured(change: Change) -> str:
    """The relative change: green where it improved, red where it got worse."""
    text = write_change(change.ratio)
    improved = is_better(change)
    return text if improved is None else f":{'green' if improved else 'red'}[{text}]"


def known_or_zero(value: float | str | None) -> float:
    """For lengths and orders alone, never for a figure that is shown."""
    return float(value) if isinstance(value, int | float) else 0.0


def section(title: str, caption: str) -> None:
    """A heading, and a sentence of Markdown beneath it."""
    st.subheader(title, anchor=False)
    st.caption(caption)


def say(key: str, text: str) -> None:
    """A muted line of literal text."""
    with muted(key):
        st.text(text)


def muted(key: str) -> Any:
    """A place for muted lines."""
    return st.container(key=f"muted-{key}", gap=None)


def table(
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

    It is Markdown as a whole: Streamlit's own tables wait for a reader of Arrow, a third of all that the page loads.
    ``colors`` paints the first cells. Columns and colours go by a style sheet, since Streamlit sets neither.
    """
    cells = list(rows)
    rules = ["table { table-layout: fixed; }"] if widths else []
    rules += [f"tr > :nth-child({at + 1}) {{ white-space: nowrap; }}" for at in right if not wrap]
    rules += [f"tr > :nth-child({at + 1}) {{ width: {width}; }}" for at, width in enumerate(widths)]
    for at, color in enumerate(colors):
        swatch = f"tbody tr:nth-child({at + 1}) > :first-child"
        rules.append(f"{swatch} {{ color: {color}; font-size: 1.3rem; line-height: 1rem; }}")
    if rules:
        st.html(f"<style>{' '.join(f'.st-key-{key} {rule}' for rule in rules)}</style>")
    ruler = ["-:" if at in right else ":-" for at in range(len(columns))]
    lines = [columns, ruler, *([_BARE_BAR.sub(r"\1\\|", cell) for cell in row] for row in cells)]
    with st.container(key=key, height=_ROWS_SHOWN * 36 if len(cells) > _ROWS_SHOWN else "content", border=False):
        st.markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))
