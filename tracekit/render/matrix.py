"""Writes a matrix of variants against baselines: for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.model.report import Crossover, Interval, Matrix, MatrixCell
from tracekit.model.units import MISSING, write_change
from tracekit.model.verdict import Verdict
from tracekit.render.literal import clipped, literal
from tracekit.render.markdown import escaped
from tracekit.render.words import reason_words

_STYLES: Final = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.WRONG: "red"}
_TITLES: Final = ("workload", "shape", "variant", "verdict", "change", "interval", "basis", "first reason", "gate")
_CROSSING: Final = ("workload", "variant", "at", "verdict at each", "turns between")


def matrix_text(matrix: Matrix) -> RenderableType:
    """The matrix, the crossover table and what was left out."""
    table = _table("Variants against their baselines", _TITLES)
    for cell in matrix.cells:
        cells: list[str | Text] = [*map(literal, _cells(cell))]
        cells[3] = Text(str(cells[3]), style=_STYLES.get(cell.verdict, ""))
        table.add_row(*cells)
    crossing = _table("Where each variant helps", _CROSSING)
    for crossover in matrix.crossovers:
        crossing.add_row(*map(literal, _crossing(crossover)))
    notes = [Text(literal(note), style="dim") for note in _notes(matrix)]
    return Group(table, crossing, *notes)


def matrix_markdown(matrix: Matrix) -> str:
    """The same for a pull-request comment."""
    lines = ["### Variants against their baselines", "", *_markdown(_TITLES, [_cells(cell) for cell in matrix.cells])]
    lines += ["", "### Where each variant helps", ""]
    lines += _markdown(_CROSSING, [_crossing(crossover) for crossover in matrix.crossovers])
    lines += ["", *(f"- {escaped(note)}" for note in _notes(matrix))]
    return "\n".join(lines)


def matrix_json(matrix: Matrix) -> str:
    """Everything, as data; ``schema_version`` 1."""
    data = {
        "schema_version": 1,
        "baselines": matrix.baselines,
        "cells": [
            {
                "workload": cell.workload,
                "variant": cell.variant,
                "shape": dict(cell.shape),
                "base": cell.base,
                "test": cell.test,
                "verdict": cell.verdict,
                "basis": cell.basis,
                "interval": asdict(cell.interval) if cell.interval else None,
                "reasons": [reason.code for reason in cell.reasons],
                "gate": cell.gate.outcome if cell.gate else None,
            }
            for cell in matrix.cells
        ],
        "crossovers": [
            {
                "workload": crossover.workload,
                "variant": crossover.variant,
                "rest": dict(crossover.rest),
                "along": crossover.along,
                "points": [
                    {
                        "size": s,
                        "verdict": v,
                        "ratio": r,
                        "low": ends[0] if ends else None,
                        "high": ends[1] if ends else None,
                    }
                    for (s, v, r), ends in zip(crossover.points, crossover.intervals, strict=True)
                ],
                "turns": crossover.turns,
                "crossings": crossover.crossings,
            }
            for crossover in matrix.crossovers
        ],
        "left_out": matrix.left_out,
    }
    return json.dumps(data, ensure_ascii=True, allow_nan=False)


def _cells(cell: MatrixCell) -> list[str]:
    because = [reason_words(reason) for reason in cell.reasons if reason.role == "because"]
    ratio = cell.interval.value if cell.interval else None
    return [
        clipped(cell.workload, 60), _shape(cell.shape), clipped(cell.variant, 60), str(cell.verdict),
        write_change(ratio), _ends(cell.interval), cell.basis, because[0] if because else MISSING,
        cell.gate.outcome if cell.gate else MISSING,
    ]  # fmt: skip


def _ends(interval: Interval | None) -> str:
    if interval is None or interval.low is None or interval.high is None:
        return "none"
    return f"{write_change(interval.low)} to {write_change(interval.high)}"


def _shape(shape: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {clipped(str(value), 60)}" for name, value in shape) or MISSING


def _crossing(crossover: Crossover) -> list[str]:
    points = [f"{size:,g}: {verdict} ({write_change(ratio)})" for size, verdict, ratio in crossover.points]
    turns = [
        f"{first:,g} and {second:,g}" + (f" (at about {size:,.0f})" if size else "")
        for (first, second), size in zip(crossover.turns, crossover.crossings, strict=True)
    ]
    place = crossover.along + (f"; {_shape(crossover.rest)}" if crossover.rest else "")
    return [
        clipped(crossover.workload, 60), clipped(crossover.variant, 60), place, ", ".join(points),
        ", ".join(turns) or "no turn was seen",
    ]  # fmt: skip


def _notes(matrix: Matrix) -> list[str]:
    said = [f"The baseline of {workload} is {name}." for workload, name in matrix.baselines.items()]
    return [*said, *(f"Left out: {reason}." for reason in matrix.left_out)]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*head, *(f"| {' | '.join(map(escaped, row))} |" for row in rows)]
