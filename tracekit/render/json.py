"""Writes reports and comparisons as JSON: the stable contract, ``schema_version`` 1."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tracekit.errors import NotComparableError
from tracekit.model.report import (
    Change,
    Comparison,
    Finding,
    Gate,
    KernelTotal,
    Metric,
    Reason,
    RegionPair,
    Report,
    Waterfall,
)
from tracekit.model.verdict import MARGIN
from tracekit.render.words import grounds, headline, reason_words, rows

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION: Final = 1

_OF_KINDS: Final = {"dram_read_bytes", "dram_write_bytes"}
"""Metrics that always say in which cache state they were counted, or null where nobody recorded it."""


def show_json(report: Report) -> str:
    """A report. ``value`` is the median over instances; ``null`` is missing, and a note says why."""
    return _dump(
        {
            "schema_version": SCHEMA_VERSION,
            "capture": report.capture,
            "coverage": asdict(report.coverage),
            "latency": [asdict(entry) for entry in report.latency],
            "phases": [asdict(entry) for entry in report.phases],
            "notes": report.notes,
            "regions": [
                {
                    "path": region.path,
                    "instances": region.instances,
                    "metrics": {name: _metric(metric, name in _OF_KINDS) for name, metric in region.metrics.items()},
                    "kernels": [_kernel(kernel) for kernel in region.kernels],
                    "notes": region.notes,
                }
                for region in report.regions
            ],
            "kernels": [_kernel(kernel) for kernel in report.kernels],
            "launches": _records(report.frames.get("blocks")),
        }
    )


def _records(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    """The rows of a frame, with null where a cell is missing."""
    if frame is None:
        return []
    return [{str(name): plain(cell) for name, cell in row.items()} for row in frame.to_dict("records")]


def plain(cell: Any) -> Any:
    """A cell as JSON takes it: None where it is missing, else a Python number or text."""
    if cell is None or cell != cell or str(cell) == "<NA>":
        return None
    return cell.item() if hasattr(cell, "item") else cell


def diff_json(comparison: Comparison, gate: Gate | None = None) -> str:
    """A comparison. ``path`` is the base's, or the test's where only the test has the region."""
    return _dump(
        {
            "schema_version": SCHEMA_VERSION,
            "comparable": comparison.comparable,
            "base": comparison.base.capture,
            "test": comparison.test.capture,
            "mismatches": [asdict(mismatch) for mismatch in comparison.mismatches],
            "unknown": comparison.unknown,
            "latency": {name: asdict(change) for name, change in comparison.latency.items()},
            "phases": [
                {"phase": phase, "protocol": protocol, **asdict(change)}
                for (phase, protocol), change in comparison.phases.items()
            ],
            "drift": asdict(comparison.drift),
            "answer": _answer(comparison),
            "findings": [_finding(finding) for finding in comparison.findings],
            "waterfalls": [_waterfall(waterfall) for waterfall in comparison.waterfalls],
            "region_deltas": [asdict(delta) for delta in comparison.region_deltas],
            "matching": comparison.matching,
            "margin": MARGIN,
            "notes": comparison.notes,
            "gate": _gate(gate),
            "traffic": [asdict(entry) for entry in comparison.traffic],
            "roof": asdict(comparison.roof) if comparison.roof else None,
            "regions": [_pair(pair) for pair in comparison.regions],
        }
    )


def _answer(comparison: Comparison) -> dict[str, Any] | None:
    if comparison.answer is None:
        return None
    answer = comparison.answer
    return {
        "verdict": answer.verdict,
        "sentence": headline(comparison),
        "grounds": grounds(comparison),
        "basis": answer.basis,
        "protocol": answer.protocol,
        "change": answer.change,
        "subject": answer.subject,
        "path": answer.path,
        "interval": asdict(answer.interval) if answer.interval else None,
        "reasons": [_reason(reason) for reason in answer.reasons],
    }


def _gate(gate: Gate | None) -> dict[str, Any] | None:
    """JSON has no infinity: what appeared from nothing has no relative change."""
    if gate is None:
        return None
    checks = [
        asdict(check) | {"found": None if check.found is None or math.isinf(check.found) else check.found}
        for check in gate.checks
    ]
    return {"outcome": gate.outcome, "checks": checks, "failed_quality": gate.failed_quality}


def _reason(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "role": reason.role,
        "effect_ns": reason.effect_ns,
        "measured": reason.measured,
        "path": reason.path,
        "sentence": reason_words(reason),
        "figures": [asdict(figure) for figure in reason.figures],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    (row,) = rows([finding])
    return {
        "topic": finding.topic,
        "path": finding.path,
        "meaning": finding.meaning,
        "reasons": [reason.code for reason in finding.reasons],
        "figures": [asdict(figure) for figure in finding.figures],
        "words": asdict(row),
    }


def _waterfall(waterfall: Waterfall) -> dict[str, Any]:
    parts = [{"name": name, "base_ns": base, "test_ns": test} for name, base, test in waterfall.idle_parts]
    base, test = waterfall.dilation
    return asdict(waterfall) | {"idle_parts": parts, "dilation": {"base": base, "test": test}}


def refusal_json(error: NotComparableError) -> str:
    """The answer where two captures are not comparable: the contract's shape, without regions."""
    return _dump(
        {
            "schema_version": SCHEMA_VERSION,
            "comparable": False,
            "mismatches": [asdict(mismatch) for mismatch in error.mismatches],
            "unknown": error.unknown,
            "notes": [str(error)],
            "regions": [],
        }
    )


def gaps_json(data: Mapping[str, Any]) -> str:
    """A gap report, as :func:`tracekit.analyze.idle.idle_report` makes it."""
    return _dump({"schema_version": SCHEMA_VERSION, **data})


def _dump(data: Mapping[str, Any]) -> str:
    # ASCII alone: names from a trace may hold what no encoding can carry, and a pipe may not be UTF-8.
    return json.dumps(data, ensure_ascii=True, allow_nan=False)


def _metric(metric: Metric, has_kind: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"value": metric.value}
    if not isinstance(metric.value, str):
        out |= {"p20": metric.p20, "p80": metric.p80, "sum": metric.sum}
    out["unit"] = metric.unit
    if metric.kind or has_kind:
        out["kind"] = metric.kind
    if len(metric.kinds) > 1:
        out["kinds"] = {kind: _metric(one, has_kind) for kind, one in metric.kinds.items()}
    return out


def _kernel(kernel: KernelTotal) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "count": kernel.count,
        "busy_ns": kernel.busy_ns,
        "duration_ns": kernel.duration_ns,
    }


def _change(change: Change, has_kind: bool) -> dict[str, Any]:
    """A change of a region's metric; not by asdict, which copies deeply and is slow over thousands of regions."""
    out: dict[str, Any] = {"base": change.base, "test": change.test, "delta": change.delta, "ratio": change.ratio}
    out |= {"unit": change.unit, "better": change.better, "verdict": change.verdict}
    return out | {"kind": change.kind} if change.kind or has_kind else out


def _pair(pair: RegionPair) -> dict[str, Any]:
    return {
        "path": pair.path,
        "base_path": pair.base_path,
        "test_path": pair.test_path,
        "instances": {"base": pair.base_instances, "test": pair.test_instances},
        "metrics": {name: _change(change, name in _OF_KINDS) for name, change in pair.metrics.items()},
        "kernels": [
            {
                "match": match.match,
                "base": [_kernel(kernel) for kernel in match.base],
                "test": [_kernel(kernel) for kernel in match.test],
                **({"rules": match.rules} if match.rules else {}),
            }
            for match in pair.kernels
        ],
        "notes": pair.notes,
    }
