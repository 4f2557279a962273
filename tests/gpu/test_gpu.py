"""What only a GPU can show: real shapes and dtypes, CUDA graphs, and what the driver says of compiled kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
    pytest.skip("torch or triton is not installed", allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from workloads import quality
from workloads.base import Kind, Shape, Variant, Workload, registry
from workloads.protocol import L2, Session, Timing

ROOT = Path(__file__).parents[2]
MOST_ELEMENTS = 2**24
"""Of a result: larger ones take float64 seconds."""

CASES = [
    pytest.param(workload, shape, dtype, id=f"{workload.name}-{shape.name}-{dtype}")
    for workload in registry().values()
    for shape in (*workload.odd_shapes, *workload.shapes)
    for dtype in workload.dtypes
    if not shape.name.startswith(("smollm2", "llama"))
    and shape.tokens * max(shape.dims.values()) <= (MOST_ELEMENTS if dtype == "bfloat16" else MOST_ELEMENTS // 8)
]


def able(workload: Workload, shape: Shape, dtype: str) -> list[Variant]:
    capability = torch.cuda.get_device_capability()
    return [
        variant
        for variant in workload.variants
        if variant.kind is not Kind.COMPILED
        and variant.why_not(shape, dtype) is None
        and capability >= variant.min_capability
        and not (variant.name == "one_kernel_recompute" and shape.tokens > 256)  # Seconds a step.
    ]


@pytest.mark.parametrize(("workload", "shape", "dtype"), CASES)
def test_the_quality_gate(workload: Workload, shape: Shape, dtype: str) -> None:
    checks = quality.judge(workload, shape, dtype, able(workload, shape, dtype), device="cuda")
    assert quality.refusals(checks) == {}


@pytest.mark.parametrize("workload", registry().values(), ids=lambda workload: workload.name)
def test_a_graph_gives_the_bits_of_the_plain_steps(workload: Workload) -> None:
    shape = next(shape for shape in workload.odd_shapes if shape.tokens == 1 and min(shape.dims.values()) > 1)
    for variant in able(workload, shape, "bfloat16"):
        plain = Session(workload, variant, shape, "bfloat16", seed=3)
        graph = Session(workload, variant, shape, "bfloat16", seed=3, graph=True)
        outputs = [each.step() for each in (plain, graph, graph)]
        torch.cuda.synchronize()
        first, *others = [output if isinstance(output, tuple) else (output,) for output in outputs]
        for other in others:
            assert all(map(torch.equal, first, other)), f"{workload.name} {variant.name}"


def test_a_graph_reads_its_own_inputs_though_memory_is_taken_anew() -> None:
    workload = registry()["swiglu_ffn"]
    shape = workload.shape("t1_h576_f1536")
    graph = Session(workload, workload.variant("two_kernel"), shape, "bfloat16", seed=3, graph=True, steps_per_graph=3)
    taken = [
        torch.full((size,), float("nan"), device="cuda") for size in (2**10, 2**15, 2**18, 2**20) for _ in range(8)
    ]
    plain = Session(workload, workload.variant("two_kernel"), shape, "bfloat16", seed=3)
    assert torch.equal(graph.step(), plain.step())
    assert taken


@pytest.mark.parametrize("l2", list(L2))
def test_sessions_measure_under_every_declared_state_of_the_l2(l2: L2) -> None:
    workload = registry()["residual_rmsnorm"]
    session = Session(workload, workload.variant("triton"), workload.shape("t64_h576"), "bfloat16", l2=l2)
    times = session.latencies(3, Timing.EVENTS)["iter"]
    assert len(times) == 3
    assert min(times) > 0


def test_out_of_memory_names_the_shape_and_the_bytes() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "workloads", "run", "swiglu_ffn", "--shape", "t1_h262144_f1048576"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "hidden 262144" in ended.stderr
    assert "1,649" in ended.stderr  # 3 x 262,144 x 1,048,576 x 2 bytes, in GB.


def test_a_run_records_what_its_kernels_use(tmp_path: Path) -> None:
    record = tmp_path / "manifest.json"
    arguments = ["swiglu_ffn", "--variant", "one_kernel_spilling", "--iterations", "3", "--record", str(record)]
    ended = subprocess.run(
        [sys.executable, "-m", "workloads", "run", *arguments],
        cwd=ROOT, env={**os.environ}, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    ran = json.loads(record.read_text())["ran"]
    assert ran["ranges_pushed"] == 2 * 3
    (kernel,) = ran["kernels"]
    assert kernel["registers"] == 255
    assert kernel["frame_bytes"] > 0
    assert kernel["region"] == ["swiglu_ffn"]
