"""Reports idle device time: how much, in gaps of which length, for which cause, and the longest gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyze.intervals import Cover
from tracekit.model.labels import Path
from tracekit.model.report import Report
from tracekit.model.tables import GAP_PARTS

_EDGES_NS = (1e3, 2e3, 5e3, 10e3, 20e3, 50e3, 100e3, 1e6, 10e6, 100e6, 1e9)


CALLS_SHOWN = 3
"""API calls that a long gap names: those that fill most of it."""


def idle_report(
    report: Report, *, longest: int = 10, at_least_ns: int = 0, within: Path | None = None
) -> dict[str, Any]:
    """Idle time of a capture's devices; times in ns, every gap counted unless ``at_least_ns`` sets a threshold.

    ``within`` takes only the gaps that operations of that region end. ``filter`` tells how many gaps, and how much
    idle time, a threshold leaves out of ``histogram``, ``parts`` and ``longest``.

    ``devices`` has, per device, its span from first start to last end, and busy + gap = span; ``kernel_gap_ns`` is
    what would be idle if copies did not count as work; ``busy_ratio`` is None where graph launches left no device
    rows. ``histogram`` counts gaps by length, the last bin open. ``parts`` sums all gaps by what the host was doing.
    ``longest`` lists the longest gaps with the operation that ends each, its region, and the API calls of its
    thread inside the gap.
    """
    operations = report.frames.get("operations")
    if operations is None:
        operations = pd.DataFrame({name: [] for name in ("device_id", "gap_ns", "charged_busy_ns", "range_id")})
    of_region = _within(report, operations, within)
    kept = of_region[of_region["gap_ns"].to_numpy() >= max(at_least_ns, 1)]
    gaps = of_region["gap_ns"].to_numpy()
    return {
        "capture": report.capture,
        "coverage": {
            "operations": report.coverage.operations,
            "attributed": report.coverage.attributed,
            "without_call": report.coverage.without_call,
        },
        "notes": report.notes,
        "devices": [
            _device(own, reliable=not report.capture["hidden_graph_launches"])
            for _, own in operations.groupby("device_id")
        ],
        "filter": {
            "within": within,
            "at_least_ns": at_least_ns,
            "gaps_left_out": int((gaps > 0).sum()) - len(kept),
            "gap_left_out_ns": int(gaps.sum() - kept["gap_ns"].sum()),
        },
        "histogram": _histogram(kept),
        "parts": _parts(kept, known=bool(len(operations))),
        "regions": [
            {
                "path": region.path,
                "instances": region.instances,
                "metrics": {
                    name: {"value": metric.value, "sum": metric.sum, "unit": metric.unit}
                    for name, metric in region.metrics.items()
                    if name.startswith("gap_")
                },
            }
            for region in report.regions
        ],
        "longest": _longest(report, kept, longest),
    }


def _within(report: Report, operations: pd.DataFrame, path: Path | None) -> pd.DataFrame:
    """The operations of a region and of those inside it."""
    if path is None or not len(operations):
        return operations
    if "step_of" in report.frames:  # Steps that were found without ranges: operations tell which is theirs.
        steps = report.frames["step_of"]
        inside = steps["path"].map(lambda own: own == path).to_numpy(bool)
        return operations[operations["operation_id"].isin(steps["operation_id"][inside]).to_numpy(bool)]
    instances = report.frames["instances"]
    inside = instances["path"].map(lambda own: own[: len(path)] == path).to_numpy(bool)
    return operations[operations["range_id"].isin(instances["range_id"][inside]).to_numpy(bool)]


def _device(operations: pd.DataFrame, reliable: bool) -> Mapping[str, Any]:
    busy, gap = int(operations["charged_busy_ns"].sum()), int(operations["gap_ns"].sum())
    kernels = operations[operations["kind"] != "copy"]
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    kernel_span = int(end.max() - start.min()) if len(kernels) else 0
    kernel_busy = int(Cover.of(start, end).before[-1])
    return {
        "device_id": int(operations["device_id"].iloc[0]),
        "operations": len(operations),
        "span_ns": busy + gap,
        "busy_ns": busy,
        "gap_ns": gap,
        "kernel_gap_ns": kernel_span - kernel_busy,
        "gaps": int((operations["gap_ns"] > 0).sum()),
        "busy_ratio": busy / (busy + gap) if busy + gap and reliable else None,
    }


def _histogram(operations: pd.DataFrame) -> list[Mapping[str, Any]]:
    gaps = operations["gap_ns"].to_numpy()
    gaps = gaps[gaps > 0]
    bins = np.searchsorted(_EDGES_NS, gaps, side="right")
    lows = (0, *map(int, _EDGES_NS))
    highs = (*map(int, _EDGES_NS), None)
    return [
        {"from_ns": low, "below_ns": high, "gaps": int((bins == at).sum()), "gap_ns": int(gaps[bins == at].sum())}
        for at, (low, high) in enumerate(zip(lows, highs, strict=True))
    ]


def _parts(operations: pd.DataFrame, *, known: bool) -> Mapping[str, int | None]:
    """Sums over all gaps; None where there is no device work to have gaps."""
    if not known:
        return {f"gap_{part}_ns": None for part in GAP_PARTS}
    return {f"gap_{part}_ns": int(operations[f"gap_{part}_ns"].sum()) for part in GAP_PARTS}


def _longest(report: Report, operations: pd.DataFrame, count: int) -> list[Mapping[str, Any]]:
    if not len(operations):
        return []
    instances = report.frames["instances"].set_index("range_id")["path"]
    rows: list[Mapping[str, Any]] = []
    for row in operations.nlargest(count, "gap_ns").to_dict("records"):
        if row["gap_ns"] <= 0:
            continue
        path = None if pd.isna(row["range_id"]) else instances[int(row["range_id"])]
        rows.append(
            {
                "gap_ns": int(row["gap_ns"]),
                "start_ns": int(row["start_ns"] - row["gap_ns"]),
                "device_id": int(row["device_id"]),
                "ended_by": row["name"],
                "path": path,
                "parts": {f"gap_{part}_ns": int(row[f"gap_{part}_ns"]) for part in GAP_PARTS},
                "calls": _calls_inside(report.frames["calls"], row),
            }
        )
    return rows


def _calls_inside(calls: pd.DataFrame, row: Mapping[Any, Any]) -> list[Mapping[str, Any]]:
    """The API calls of the launching thread in a gap by name: how many, and their time inside it."""
    if pd.isna(row["call_id"]):
        return []
    end, start = int(row["start_ns"]), int(row["start_ns"] - row["gap_ns"])
    own = calls[calls["thread"] == calls["thread"].iloc[int(row["call_id"])]]
    own = own[(own["start_ns"] < end) & (own["end_ns"] > start)]
    inside = np.minimum(own["end_ns"], end) - np.maximum(own["start_ns"], start)
    totals = inside.groupby(own["name"].astype(object)).agg(["size", "sum"])
    return [
        {"name": str(name), "count": int(count), "inside_ns": int(total)}
        for name, count, total in totals.nlargest(CALLS_SHOWN, "sum").itertuples()
    ]
