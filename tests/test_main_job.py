"""The main job on real captures: the figures that a reader can check against the reports by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tracekit import pipeline
from tracekit.analyze.regions import ADDITIVE
from tracekit.model.report import Comparison, Report
from tracekit.model.tables import GAP_PARTS

SAMPLES = Path(__file__).parent / "captures"
TIMELINES = sorted(path.parent.name for path in SAMPLES.glob("*/timeline.sqlite"))
ROOT = ("unfused/T1/iter",)


@cache
def report(name: str) -> Report:
    return pipeline.report(SAMPLES / name)


@cache
def decode() -> Comparison:
    return pipeline.diff(report("decode_unfused"), report("decode_fused"))


def us(value: object) -> float:
    assert isinstance(value, int | float)
    return round(value / 1000, 1)


def pair(comparison: Comparison, *path: str):
    return next(p for p in comparison.regions if p.path == path)


def test_decode_kernels_and_busy_time_per_step() -> None:
    metrics = pair(decode(), *ROOT).metrics
    assert (metrics["kernel_count"].base, metrics["kernel_count"].test) == (64, 24)
    assert metrics["kernel_count"].delta == -40
    assert metrics["kernel_count"].ratio == 0.375
    assert (us(metrics["busy_ns"].base), us(metrics["busy_ns"].test)) == (437.7, 374.4)


def test_the_roots_pair_although_their_names_differ() -> None:
    main = pair(decode(), *ROOT)
    assert (main.base_path, main.test_path) == (ROOT, ("fused/T1/iter",))
    assert any("differ in name only" in note for note in decode().notes)
    assert all(p.base_path and p.test_path for p in decode().regions)


def test_residual_rmsnorm_of_layer0_is_ten_kernels_against_one() -> None:
    norm = pair(decode(), *ROOT, "layer0", "residual_rmsnorm")
    assert (norm.metrics["kernel_count"].base, norm.metrics["kernel_count"].test) == (10, 1)
    assert (us(norm.metrics["busy_ns"].base), us(norm.metrics["busy_ns"].test)) == (15.5, 2.4)
    (group,) = norm.kernels
    assert group.match == "replaced"
    assert [kernel.name for kernel in group.test] == ["add_rms"]
    assert len(group.base) == 9


def test_prefill_charged_time_of_the_last_norm() -> None:
    comparison = pipeline.diff(report("prefill_unfused"), report("prefill_fused"))
    norm = pair(comparison, "unfused/T2048/iter", "layer3", "residual_rmsnorm").metrics["device_ns"]
    assert (us(norm.base), us(norm.test)) == (155.1, 16.4)


def test_cold_step_dram_bytes() -> None:
    metrics = pair(decode(), *ROOT).metrics
    read, written = metrics["dram_read_bytes"], metrics["dram_write_bytes"]
    assert read.kind == written.kind == "cold"
    assert [round(v / 1e6, 1) for v in (read.base, read.test)] == [1411.7, 1410.4]
    assert [round(v / 1e6, 1) for v in (written.base, written.test)] == [29.2, 29.1]


def test_dram_kinds_stand_beside_each_other_and_are_not_mixed() -> None:
    read = report("decode_unfused").region(ROOT).metrics["dram_read_bytes"]
    assert (read.kind, set(read.kinds)) == ("cold", {"cold", "replay_warm"})
    assert read.kinds["cold"].value != read.kinds["replay_warm"].value


def test_in_model_dram_bytes_of_one_layer() -> None:
    for name, root, read, written in (
        ("prefill_unfused", "unfused/T2048/iter", 1239, 416),
        ("prefill_fused", "fused/T2048/iter", 1059, 227),
    ):
        metrics = report(name).region((root, "layer1")).metrics
        assert metrics["dram_read_bytes"].kind == "in_model"
        assert round(metrics["dram_read_bytes"].value / 1e6) == read
        assert round(metrics["dram_write_bytes"].value / 1e6) == written
        assert report(name).region((root, "layer2")).metrics["dram_read_bytes"].value is None


@pytest.mark.parametrize("file", ["", "scaled_units.ncu.csv", "spilling.ncu-rep"])
def test_the_spilling_kernel_whatever_the_units(file: str) -> None:
    region = report(f"decode_spilling/{file}".rstrip("/")).region(("spill/T1/iter", "layer0", "swiglu_ffn"))
    metrics = {name: metric.value for name, metric in region.metrics.items()}
    assert metrics["registers_count"] == 255
    assert metrics["active_blocks_count"] == 2
    assert metrics["occupancy_limiter"] == "registers and grid"
    assert metrics["sm_fill_ratio"] == pytest.approx(56 / (132 * 2))
    assert metrics["spill_instruction_count"] == (None if file.endswith("rep") else 277_088)


def test_a_region_profiled_in_part_has_no_sums() -> None:
    root = report("decode_spilling").region(("spill/T1/iter",))
    assert root.metrics["spill_instruction_count"].value is None
    assert any("4 launches profiled of 16" in note for note in root.notes)


def test_a_graph_traced_by_node_tells_no_host_parts() -> None:
    (root,) = report("decode_unfused_graph").regions
    metrics = {name: metric.value for name, metric in root.metrics.items()}
    assert metrics["kernel_count"] == 64
    assert metrics["launch_call_count"] == 1
    assert metrics["gap_host_ns"] is None
    assert metrics["gap_ns"] == pytest.approx(metrics["gap_in_graph_ns"] + metrics["gap_unknown_ns"], rel=0.02)
    assert metrics["wall_ns"] is not None


def test_untraced_latency_stands_beside_the_trace() -> None:
    change = decode().latency["synchronized"]
    assert (us(change.base), us(change.test)) == (750.8, 488.6)
    assert report("decode_fused").latency[0].processes == 6
    assert max(report("decode_fused").latency[0].samples_ns) == 1_090_000.0


def test_the_drift_control_finds_the_shared_kernels() -> None:
    drift = decode().drift
    assert drift.kernels == 3
    assert drift.ratio == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", TIMELINES)
def test_charged_time_adds_up_on_every_instance(name: str) -> None:
    frames = report(name).frames
    instances, operations = frames["instances"], frames["operations"]
    charged = (operations["charged_busy_ns"] + operations["gap_ns"]).groupby(operations["range_id"]).sum()
    for metric in ADDITIVE:
        if instances[metric].isna().any():
            assert name == "decode_unfused_graph"
            continue
        children = instances[instances["parent"] >= 0].groupby("parent")[metric].sum()
        own = instances.set_index("range_id")[metric].astype("int64")
        if metric == "device_ns":
            rest = own.sub(children.reindex(own.index, fill_value=0))
            assert (rest == charged.reindex(own.index, fill_value=0)).all()
        else:
            assert (own >= children.reindex(own.index, fill_value=0)).all()
    roots = instances[instances["depth"] == 0]["device_ns"].sum()
    assert roots == operations["end_ns"].max() - operations["start_ns"].min()


@pytest.mark.parametrize("name", TIMELINES)
def test_the_ledger_closes_on_every_instance(name: str) -> None:
    instances = report(name).frames["instances"]
    roots = instances[instances["depth"] == 0]
    assert len(roots) in (10, 20)
    parts = roots["busy_ns"] + roots["other_busy_ns"] + roots["wall_gap_ns"] + roots["tail_ns"]
    assert (roots["wall_ns"] == parts).all()
    split = np.sum([roots[f"wall_gap_{part}_ns"].to_numpy(np.int64, na_value=0) for part in GAP_PARTS], axis=0)
    assert (roots["wall_gap_ns"] == split).all()


@pytest.mark.parametrize("name", TIMELINES)
def test_gap_parts_sum_to_the_gap(name: str) -> None:
    operations = report(name).frames["operations"]
    parts = operations[[f"gap_{part}_ns" for part in GAP_PARTS]].sum(axis=1)
    assert (operations["gap_ns"] == parts).all()
    assert (operations["gap_ns"] >= 0).all()


@pytest.mark.parametrize("name", TIMELINES)
def test_kernel_groups_conserve_the_totals_of_their_region(name: str) -> None:
    comparison = pipeline.diff(report(name), report(name))
    for compared in comparison.regions:
        region = report(name).region(compared.path)
        totals = [kernel for match in compared.kernels for kernel in match.base]
        operations = region.metrics["kernel_count"].sum + region.metrics["copy_count"].sum
        assert sum(kernel.count for kernel in totals) == operations
        assert sum(kernel.busy_ns for kernel in totals) == region.metrics["busy_ns"].sum
        assert {match.match for match in compared.kernels} == {"same"}
        assert all(change.delta in (0, None) for change in compared.metrics.values())
