"""Active blocks by launch configuration, and what-if curves that pass through the launch as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.analyze.blocks import what_if
from tracekit.render.json import show_json

BUNDLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(scope="module")
def spilling(samples):
    return pipeline.report(samples / "decode_spilling")


def test_the_configurations_are_those_of_the_regions(spilling):
    blocks = spilling.frames["blocks"].set_index("short_name")
    deep = blocks.loc["deep"]
    assert (deep["registers_count"], deep["active_blocks_count"], deep["grid_blocks"]) == (255, 2, 56)
    assert deep["occupancy_limiter"] == "registers and grid"
    assert deep["waves"] == pytest.approx(56 / (132 * 2), abs=0.005)
    assert deep["tail_ratio"] == pytest.approx(deep["waves"])
    region = next(r for r in spilling.regions if r.metrics["registers_count"].value == 255)
    assert region.metrics["active_blocks_count"].value == deep["active_blocks_count"]
    assert blocks["total_ns"].is_monotonic_decreasing


def test_the_curves_pass_through_the_launch(spilling):
    for row in spilling.frames["blocks"].to_dict("records"):
        found = what_if(spilling, row["launch"])
        here = found["here"].iloc[0]
        at = found["registers"].set_index("registers").loc[max(row["registers_count"], 16)]
        assert here["active_blocks_count"] == at["active_blocks_count"]
        assert here["threads"] == row["threads"]


def test_fewer_registers_never_hold_fewer_blocks(spilling):
    launch = int(spilling.frames["blocks"].query("short_name == 'deep'")["launch"].iloc[0])
    curve = what_if(spilling, launch)["registers"]
    held = curve.sort_values("registers")["active_blocks_count"].astype(float)
    assert held.is_monotonic_decreasing
    better = what_if(spilling, launch, registers=128)["here"].iloc[0]
    assert better["active_blocks_count"] > 2
    impossible = what_if(spilling, launch, threads=512)["here"].iloc[0]
    assert impossible["limit_registers_count"] == 0, "512 threads of 255 registers are more than an SM has"


def test_a_launch_that_is_not_there(spilling):
    with pytest.raises(KeyError):
        what_if(spilling, 10**6)


def test_the_json_has_every_configuration(spilling):
    told = json.loads(show_json(spilling))["launches"]
    assert [row["short_name"] for row in told] == spilling.frames["blocks"]["short_name"].tolist()
    deep = next(row for row in told if row["short_name"] == "deep")
    assert (deep["active_blocks_count"], deep["limit_registers_count"], deep["configured_smem_bytes"]) == (
        2,
        2,
        deep["configured_smem_bytes"],
    )
    assert deep["local_thread_bytes"] is None, "zero means unknown"


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in BUNDLES.glob("*/manifest.json")), ids=lambda p: p.name
)
def test_as_it_is_is_what_the_table_says(folder):
    report = pipeline.report(folder)
    for row in report.frames["blocks"].to_dict("records"):
        here = what_if(report, row["launch"])["here"].iloc[0]
        for name in ("active_blocks_count", "occupancy_limiter", "waves"):
            assert here[name] == row[name], (row["short_name"], name)


def test_a_small_carve_out_holds_until_a_block_does_not_fit(nsys):
    file = nsys().gpu()
    file.launch(
        (10, 20), (30, 40), block=(128, 1, 1), registers=32, staticSharedMemory=8192, sharedMemoryExecuted=32768
    ).write()
    report = pipeline.report(file.path)
    (row,) = report.frames["blocks"].to_dict("records")
    found = what_if(report, row["launch"])
    assert found["here"].iloc[0]["active_blocks_count"] == row["active_blocks_count"] == 3
    curve = found["smem_bytes"].set_index("smem_bytes")["active_blocks_count"]
    assert curve[0] == 3
    assert curve[64 * 1024] == 3, "73 kB a block: no longer in 32 kB, and three times in what the GPU has"
