"""DRAM bytes beside their bounds, and the roofline: figures of the bundles, and NA with a reason."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.compare.traffic import _peak_flops, roof
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


def test_bytes_of_several_steps_have_no_bound_of_one(tmp_path):
    """Without a timeline the replayed launches of every profiled step sum into one."""
    for name in ("eager", "two_kernel"):
        folder = tmp_path / name
        shutil.copytree(BUNDLES / f"swiglu_t1_{name}", folder)
        told = json.loads((folder / "manifest.json").read_text())
        del told["timeline"]
        (folder / "manifest.json").write_text(json.dumps(told))
    comparison = pipeline.diff(tmp_path / "eager", tmp_path / "two_kernel")
    bounds = {(entry.kind, entry.least_bytes) for entry in comparison.traffic if len(entry.path) == 1}
    assert bounds == {("in_model", 352_337_920), ("cold", None)}


@pytest.mark.parametrize(
    ("name", "flops"),
    [("NVIDIA L4", 121e12), ("NVIDIA L40", None), ("NVIDIA L40S", 362e12), ("NVIDIA H200", 989.4e12),
     ("NVIDIA H100 PCIe", None), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA A1000", None), (None, None)],
)  # fmt: skip
def test_a_peak_is_of_that_gpu_and_no_other(name, flops):
    assert _peak_flops(name, "bfloat16") == flops


def test_two_gpus_have_no_roof_of_math_in_common(ffn):
    other = replace(ffn.test, capture=dict(ffn.test.capture) | {"gpus": [{"name": "NVIDIA L4"}]})
    found = roof(replace(ffn, test=other))
    assert found.flops_per_second is None
    assert any("differ in GPU or dtype" in note for note in found.notes)
