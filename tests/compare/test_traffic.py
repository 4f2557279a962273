"""DRAM bytes beside their bounds, and the roofline: figures of the bundles, and NA with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.render.json import diff_json

BUNDLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(scope="module")
def ffn():
    return pipeline.diff(BUNDLES / "swiglu_t2048_eager", BUNDLES / "swiglu_t2048_two_kernel")


def test_bytes_are_those_of_the_reports_in_every_kind(ffn):
    root = [entry for entry in ffn.traffic if len(entry.path) == 1]
    assert [(entry.side, entry.kind) for entry in root] == [
        ("base", "in_model"), ("base", "cold"), ("test", "in_model"), ("test", "cold"),
    ]  # fmt: skip
    for entry in root:
        metrics = (ffn.base if entry.side == "base" else ffn.test).regions[0].metrics
        assert entry.read_bytes == metrics["dram_read_bytes"].kinds[entry.kind].value
        assert entry.write_bytes == metrics["dram_write_bytes"].kinds[entry.kind].value
        assert entry.least_bytes == 385_875_968
    first = root[0]
    assert first.achieved_bytes_per_second == pytest.approx(
        (first.read_bytes + first.write_bytes) / first.busy_ns * 1e9
    )
    assert root[1].achieved_bytes_per_second is None, "cold bytes are of another run"


def test_the_points_of_the_roofline(ffn):
    roof = ffn.roof
    assert roof.bytes_per_second == pytest.approx(4.81e12, rel=0.01)
    assert roof.flops_per_second == 989.4e12
    base, test = roof.points
    flops = 2 * 3 * 2048 * 4096 * 14336
    assert ffn.base.capture["flops"] == pytest.approx(flops, rel=0.01)
    assert base.flops_per_byte < test.flops_per_byte, "it moves fewer bytes"
    for point in (base, test):
        assert point.flops_per_second < roof.flops_per_second
        assert point.flops_per_second < point.flops_per_byte * roof.bytes_per_second


def test_what_is_missing_is_told(samples):
    comparison = pipeline.diff(samples / "decode_unfused", samples / "decode_fused")
    assert comparison.roof.points == ()
    assert any("FLOPs" in note and "in-model DRAM bytes" in note for note in comparison.roof.notes)
    kinds = {entry.kind for entry in comparison.traffic}
    assert kinds == {"cold", "replay_warm"}


def test_the_json_carries_them(ffn):
    told = json.loads(diff_json(ffn))
    assert len(told["traffic"]) == len(ffn.traffic)
    assert told["roof"]["points"][1]["flops_per_byte"] == ffn.roof.points[1].flops_per_byte
