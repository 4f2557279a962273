"""Says on a terminal how far a capture is, and at its end what became of each bundle."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from tracekit.capture.session import Outcome

NUMBERS = ("seconds", "ranges", "kernels")
HEADINGS = ("bundle", "state", "seconds", "ranges", "kernels", "counters", "what to know")


class Lines:
    """Progress as text on a stream: one line that is written over on a terminal, nothing elsewhere but advice."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.on_terminal = self.stream.isatty()
        self.total = self.done = 0
        self.started = time.monotonic()

    def begin(self, total: int) -> None:
        """So many steps are to come."""
        self.total = total

    def step(self, text: str) -> None:
        """A step starts."""
        self.done += 1
        if self.on_terminal:
            self.stream.write(f"\r\x1b[K[{self.done}/{self.total}] {time.monotonic() - self.started:.0f} s  {text}")
            self.stream.flush()

    def advice(self, text: str) -> None:
        """A line that stays."""
        self.end()
        self.stream.write(f"tracekit: {text}\n")

    def end(self) -> None:
        """Takes the progress line off."""
        if self.on_terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The summary's cells, in the order of :data:`HEADINGS`."""
    out: list[tuple[str, ...]] = []
    for each in outcomes:
        counts = each.counts
        said = each.error or "; ".join(map(str, each.warnings))
        out.append(
            (
                each.name,
                each.state,
                f"{each.seconds:.1f}" if each.state != "kept" else "-",
                f"{counts.all_ranges:,}" if counts else "-",
                f"{counts.all_kernels:,}" if counts else "-",
                ", ".join(each.counters) or "-",
                said or "-",
            )
        )
    return out


def text(outcomes: Sequence[Outcome]) -> str:
    """The summary as aligned text, with the remedies of what is to know below, each once."""
    table = [HEADINGS, *rows(outcomes)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS) - 1)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in table]
    return "\n".join([*lines, closing(outcomes)])


def closing(outcomes: Sequence[Outcome]) -> str:
    """How many bundles are there and how many are not, and what to do about warnings."""
    states = [outcome.state for outcome in outcomes]
    parts = [f"{states.count(state)} {state}" for state in ("captured", "kept", "failed") if state in states]
    remedies = dict.fromkeys(
        f"{finding.what}: {finding.remedy}" for each in outcomes for finding in each.warnings if finding.remedy
    )
    return "\n".join([f"{len(outcomes)} bundles: {', '.join(parts)}", *(f"  remedy: {item}" for item in remedies)])


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 where every bundle is there, 2 where one is not."""
    return 2 if any(outcome.state == "failed" for outcome in outcomes) else 0


def to_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The summary as JSON-ready data."""
    return [dict(zip(HEADINGS, row, strict=True)) for row in rows(outcomes)]
