"""The SwiGLU feed-forward: every variant against float64 on odd shapes, broken kernels, what sm_90 makes of them."""

from __future__ import annotations

import interpreted  # noqa: F401

# isort: split
from typing import Any

import pytest
import sm90
import torch
import triton
import triton.language as tl  # noqa: F401  (the interpreter looks for it here)
from judging import poisoned_memory, refusals, relative_l2, unsteady

from workloads.base import Shape
from workloads.kernels import swiglu_ffn as kernels
from workloads.swiglu_ffn import WORKLOAD, lower_bound_bytes, shape

TRITON_AT_ONE_TOKEN = [variant.name for variant in WORKLOAD.variants if variant.name != "eager"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("odd", WORKLOAD.odd_shapes, ids=lambda odd: odd.name)
def test_every_variant_passes_the_quality_gate(odd: Shape, dtype: str) -> None:
    assert refusals(WORKLOAD, odd, dtype) == {}


def test_steps_repeat_bit_for_bit() -> None:
    assert unsteady(WORKLOAD, shape(1, 40, 57), "bfloat16") == []


@triton.jit
def relu(x):  # type: ignore[no-untyped-def]
    return x * (x > 0)


@pytest.mark.parametrize("variant", TRITON_AT_ONE_TOKEN)
def test_another_activation_is_caught(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "silu", relu)
    assert refusals(WORKLOAD, shape(1, 40, 57), "float32", [variant]).keys() == {variant}


@pytest.mark.parametrize("variant", ["one_kernel", "one_kernel_spilling"])
def test_a_partial_that_is_not_added_is_caught(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adding = kernels._adding
    monkeypatch.setattr(kernels, "_adding", lambda room, d: adding(room, d) | {"PARTS": room.blocks // 2})
    assert refusals(WORKLOAD, shape(1, 40, 700), "bfloat16", [variant]).keys() == {variant}


def test_down_gemv() -> None:
    h, down = torch.randn(1, 2500), torch.randn(9, 2500)
    with poisoned_memory():
        y = kernels.down_gemv(h, down)
    assert relative_l2(y, h.double() @ down.double().T) < 1e-6


@pytest.mark.parametrize("tiled", [False, True])
def test_one_block_passes_the_grid_barrier_again_and_again(tiled: bool) -> None:
    inputs: dict[str, Any] = WORKLOAD.inputs(shape(1, 40, 57), torch.float32, "cpu", 1)
    room = kernels.GridPartials.of(40, "cpu", blocks=1)
    run = kernels.one_kernel_tiled if tiled else kernels.one_kernel
    for launch in (1, 2, 3):
        y = run(inputs["x"], inputs["gate"], inputs["up"], inputs["down"].T.contiguous(), room)
        assert relative_l2(y, WORKLOAD.reference(inputs)) < 1e-6
        assert room.arrivals.item() == launch


@pytest.mark.parametrize(("tokens", "hidden"), [(2, 64), (1, 2 * kernels.WIDEST_ONE_KERNEL)])
def test_one_kernel_refuses_what_its_registers_cannot_hold(tokens: int, hidden: int) -> None:
    x, weight = torch.zeros(tokens, hidden), torch.zeros(1, hidden)
    with pytest.raises(ValueError, match="one token of at most 8192 values"):
        kernels.one_kernel(x, weight, weight, weight, kernels.GridPartials.of(hidden, "cpu", blocks=1))


def test_variants_say_where_they_do_not_run() -> None:
    several = shape(16, 64, 64)
    refused = {variant.name for variant in WORKLOAD.variants if variant.why_not(several, "bfloat16")}
    assert refused == {"two_kernel_cublas", "one_kernel", "one_kernel_spilling"}
    wide = shape(1, 16384, 64)
    assert {variant.name for variant in WORKLOAD.variants if variant.why_not(wide, "bfloat16")} == {"one_kernel"}


def test_bounds_of_a_llama_8b_layer() -> None:
    llama = WORKLOAD.shape("t1_h4096_f14336")
    assert lower_bound_bytes(llama, 2) == 352_321_536 + 16_384
    assert WORKLOAD.flops(llama) == 352_321_536


@pytest.fixture(scope="module")
def launches() -> list[dict[str, Any]]:
    return sm90.compile_all(WORKLOAD, "bfloat16")


def test_only_the_spilling_variant_spills(launches: list[dict[str, Any]]) -> None:
    assert {row["variant"] for row in launches} == set(TRITON_AT_ONE_TOKEN)
    assert {row["variant"] for row in launches if row["frame"]} == {"one_kernel_spilling"}


def test_every_launch_fits_an_sm_90(launches: list[dict[str, Any]]) -> None:
    for row in launches:
        assert row["registers"] <= 255
        assert row["registers"] * 32 * row["warps"] <= 65536
        assert row["shared"] <= 227 * 1024


def test_the_persistent_kernel_streams_and_fills_the_gpu(launches: list[dict[str, Any]]) -> None:
    row = next(row for row in launches if row["variant"] == "one_kernel" and row["shape"] == "t1_h4096_f14336")
    assert row["cp.async"]
    assert row["grid"] == [132, 1, 1]


def test_large_tiles_use_hopper_matrix_instructions(launches: list[dict[str, Any]]) -> None:
    tiles = [row for row in launches if row["kernel"] == "gate_up_tile_kernel"]
    assert tiles
    assert all(row["wgmma"] and row["cp.async"] for row in tiles)
