"""Residual and RMSNorm: every variant against float64 on odd shapes, broken kernels, and what sm_90 makes of it."""

from __future__ import annotations

import interpreted  # noqa: F401

# isort: split
from typing import Any

import pytest
import sm90
import torch
from judging import refusals, unsteady

from workloads import residual_rmsnorm
from workloads.base import Shape
from workloads.kernels import residual_rmsnorm as kernels
from workloads.residual_rmsnorm import EPS, WORKLOAD


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("odd", WORKLOAD.odd_shapes, ids=lambda odd: odd.name)
def test_every_variant_passes_the_quality_gate(odd: Shape, dtype: str) -> None:
    assert refusals(WORKLOAD, odd, dtype) == {}


def test_steps_repeat_bit_for_bit() -> None:
    assert unsteady(WORKLOAD, WORKLOAD.shape("t3_h1000"), "bfloat16") == []


BROKEN = [WORKLOAD.shape(name) for name in ("t3_h1000", "t33_h4097", "t2_h20000")]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_wrong_epsilon_is_caught(broken: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.add_rmsnorm
    monkeypatch.setattr(residual_rmsnorm.kernels, "add_rmsnorm", lambda x, r, w, eps: right(x, r, w, eps / 10))
    assert refusals(WORKLOAD, broken, "bfloat16", ["triton"]).keys() == {"triton"}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_dropped_residual_is_caught(broken: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.add_rmsnorm
    dropped = lambda x, r, w, eps: right(x, torch.zeros_like(r), w, eps)  # noqa: E731
    monkeypatch.setattr(residual_rmsnorm.kernels, "add_rmsnorm", dropped)
    assert refusals(WORKLOAD, broken, "bfloat16", ["triton"]).keys() == {"triton"}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_sum_that_is_not_written_is_caught(broken: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.add_rmsnorm
    forgotten = lambda x, r, w, eps: (right(x, r, w, eps)[0], torch.empty_like(x))  # noqa: E731
    monkeypatch.setattr(residual_rmsnorm.kernels, "add_rmsnorm", forgotten)
    assert refusals(WORKLOAD, broken, "bfloat16", ["triton"]).keys() == {"triton"}


def test_the_residual_that_the_next_layer_takes_is_bit_for_bit_the_chains() -> None:
    inputs = WORKLOAD.inputs(WORKLOAD.shape("t33_h4097"), torch.bfloat16, "cpu", 1)
    _, total = kernels.add_rmsnorm(inputs["x"], inputs["residual"], inputs["weight"], EPS)
    assert torch.equal(total, inputs["residual"] + inputs["x"])


def test_it_refuses_what_is_not_contiguous() -> None:
    x = torch.zeros(8, 4).T
    with pytest.raises(ValueError, match="contiguous"):
        kernels.add_rmsnorm(x, x, torch.ones(8), EPS)


def test_the_bound_of_a_llama_8b_prefill() -> None:
    assert WORKLOAD.lower_bound_bytes(WORKLOAD.shape("t8192_h4096"), 2) == 8 * 8192 * 4096 + 2 * 4096


@pytest.fixture(scope="module")
def launches() -> list[dict[str, Any]]:
    return sm90.compile_all(WORKLOAD, "bfloat16")


def test_no_launch_spills_and_each_fits_an_sm_90(launches: list[dict[str, Any]]) -> None:
    assert {row["shape"] for row in launches} == {shape.name for shape in WORKLOAD.shapes}
    for row in launches:
        assert row["frame"] == 0
        assert row["registers"] * 32 * row["warps"] <= 65536
