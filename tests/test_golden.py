"""Golden tables: what a person has reviewed once must not change unseen.

``TRACEKIT_UPDATE_GOLDEN=1 python -m pytest tests/test_golden.py`` rewrites them; review the difference before commit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.model.report import Metric
from tracekit.model.units import MISSING

SAMPLES = Path(__file__).parent / "captures"
GOLDEN = Path(__file__).parent / "golden"
COLUMNS = (
    "kernel_count", "copy_count", "launch_call_count", "host_ns", "busy_ns", "device_ns", "gap_ns", "gap_host_ns",
    "gap_sync_ns", "gap_other_call_ns", "gap_launch_call_ns", "gap_launch_latency_ns", "gap_dispatch_ns",
    "gap_in_graph_ns", "gap_unknown_ns", "wall_ns", "tail_ns", "dram_read_bytes", "dram_write_bytes",
    "spill_instruction_count", "registers_count", "active_blocks_count", "occupancy_limiter", "waves",
)  # fmt: skip
BUNDLES = sorted(path.parent.name for path in SAMPLES.glob("*/manifest.json"))


def cell(metric: Metric | None) -> str:
    if metric is None:
        return ""
    if isinstance(metric.value, float):
        return f"{metric.value:.6g}" if metric.unit == "waves" else f"{metric.value:.1f}"
    return MISSING if metric.value is None else str(metric.value)


def table(name: str) -> str:
    regions = pipeline.report(SAMPLES / name).regions
    columns = [["region", *(" " * 2 * (len(r.path) - 1) + r.path[-1] for r in regions)]]
    columns.append(["instances", *(str(r.instances) for r in regions)])
    for column in COLUMNS:
        columns.append([column, *(cell(r.metrics.get(column)) for r in regions)])
    lines = zip(*columns, strict=True)
    return "\n".join("\t".join(line).rstrip() for line in lines) + "\n"


@pytest.mark.parametrize("name", BUNDLES)
def test_regions_are_as_reviewed(name: str) -> None:
    path = GOLDEN / f"{name}.regions.tsv"
    if os.environ.get("TRACEKIT_UPDATE_GOLDEN"):
        path.write_text(table(name), encoding="utf-8")
    assert table(name) == path.read_text(encoding="utf-8")
