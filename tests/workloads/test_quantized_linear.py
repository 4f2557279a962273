"""Quantized linears: formats, every variant against float64 on odd shapes, broken kernels, what sm_90 makes of them."""

from __future__ import annotations

import interpreted  # noqa: F401

# isort: split
from typing import Any

import pytest
import sm90
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import poisoned_memory, refusals, relative_l2, unsteady

from workloads import quantized_linear
from workloads.base import Shape
from workloads.kernels import quantized_linear as kernels
from workloads.quantized_linear import WORKLOAD, _inputs, _prepare_fp8, lower_bound_bytes, shape


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("odd", WORKLOAD.odd_shapes, ids=lambda odd: odd.name)
def test_every_variant_passes_the_quality_gate(odd: Shape, dtype: str) -> None:
    assert refusals(WORKLOAD, odd, dtype) == {}


def test_steps_repeat_bit_for_bit() -> None:
    assert unsteady(WORKLOAD, shape(1, 200, 33), "bfloat16") == []


# --- formats ---


def codes_of(rows: int, columns: int, seed: int) -> Any:
    return torch.randint(-8, 8, (rows, columns), generator=torch.Generator().manual_seed(seed), dtype=torch.int8)


@settings(deadline=None)
@given(rows=st.integers(0, 5), columns=st.integers(1, 400), seed=st.integers(0, 2**32))
def test_packing_round_trips(rows: int, columns: int, seed: int) -> None:
    codes = codes_of(rows, columns, seed)
    packed = kernels.pack_int4(codes)
    assert packed.dtype == torch.uint8
    assert packed.shape == (rows, -(-columns // 128) * 64)
    assert packed.is_contiguous()
    assert torch.equal(kernels.unpack_int4(packed, columns), codes)


@given(column=st.integers(0, 255), code=st.integers(-8, 7))
def test_where_a_code_lies(column: int, code: int) -> None:
    codes = torch.zeros(1, 256, dtype=torch.int8)
    codes[0, column] = code
    packed = kernels.pack_int4(codes)[0]
    group, within = divmod(column, 128)
    shift = 4 if within >= 64 else 0
    assert int(packed[group * 64 + within % 64]) >> shift & 0xF == code + 8
    assert (packed == 0x88).sum() >= 127


@settings(deadline=None)
@given(columns=st.integers(1, 300), size=st.sampled_from([1e-6, 0.02, 1.0, 300.0]), seed=st.integers(0, 2**32))
def test_int4_is_within_half_a_step(columns: int, size: float, seed: int) -> None:
    weight = torch.randn(3, columns, generator=torch.Generator().manual_seed(seed)) * size
    codes, scale = kernels.quantize_int4(weight)
    step = scale.repeat_interleave(128, dim=1)[:, :columns]
    assert (codes.float() * step - weight).abs().le(step * 0.5001).all()


@settings(deadline=None)
@given(columns=st.integers(1, 300), size=st.sampled_from([1e-6, 0.02, 1.0, 300.0]), seed=st.integers(0, 2**32))
def test_fp8_is_within_half_a_step(columns: int, size: float, seed: int) -> None:
    """e4m3 has three mantissa bits, and subnormals in steps of 2^-9."""
    weight = torch.randn(3, columns, generator=torch.Generator().manual_seed(seed)) * size
    values, scale = kernels.quantize_fp8(weight)
    error = (values.float() * scale[:, None] - weight).abs()
    assert error.le(torch.maximum(weight.abs() / 16, scale[:, None] / 1024) * 1.001).all()


def test_a_weight_of_zeros_stays_zero() -> None:
    for quantize in (kernels.quantize_int4, kernels.quantize_fp8):
        values, scale = quantize(torch.zeros(2, 130))
        assert not values.float().any()
        assert not scale.any()


def test_both_formats_hold_the_workloads_weight_exactly() -> None:
    inputs: dict[str, Any] = _inputs(shape(1, 300, 40), torch.bfloat16, "cpu", 3)
    int4 = inputs["codes"].double() * inputs["scale"].double().repeat_interleave(128, dim=1)[:, :300]
    prepared: dict[str, Any] = _prepare_fp8(inputs)
    fp8 = prepared["weight"].double() * prepared["scale"].double()[:, None]
    assert torch.equal(int4, fp8)
    assert len(inputs["codes"].unique()) == 16


# --- kernels ---


@pytest.mark.parametrize("tokens", [1, 5])
def test_fused_kernels_take_any_weight(tokens: int) -> None:
    weight, x = torch.randn(37, 200), torch.randn(tokens, 200)
    codes, scale = kernels.quantize_int4(weight)
    dense = codes.double() * scale.double().repeat_interleave(128, dim=1)[:, :200]
    with poisoned_memory():
        y = kernels.int4_linear(x, kernels.pack_int4(codes), scale)
        written = kernels.dequantize_int4(kernels.pack_int4(codes), scale, 200)
    assert relative_l2(y, x.double() @ dense.T) < 1e-6
    torch.testing.assert_close(written.double(), dense, rtol=1e-6, atol=0)
    values, channel_scale = kernels.quantize_fp8(weight)
    dense = values.double() * channel_scale.double()[:, None]
    with poisoned_memory():
        y = kernels.fp8_linear(x, values, channel_scale)
    assert relative_l2(y, x.double() @ dense.T) < 1e-6


@pytest.mark.parametrize("size", [2.0**-70, 2.0**-20, 2.0**20])
def test_the_denormal_trick_holds_for_large_and_small_activations(size: float) -> None:
    codes, scale = codes_of(8, 256, 1), torch.ones(8, 2)
    x = torch.randn(1, 256) * size
    y = kernels.int4_linear(x, kernels.pack_int4(codes), scale)
    assert relative_l2(y, x.double() @ codes.double().T) < 1e-6


BROKEN = [shape(1, 577, 64), shape(5, 270, 70)]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
@pytest.mark.parametrize("variant", ["dequantize", "fused_int4"])
def test_swapped_halves_are_caught(variant: str, broken: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = kernels.pack_int4
    monkeypatch.setattr(quantized_linear.kernels, "pack_int4", lambda codes: (pack(codes) << 4) | (pack(codes) >> 4))
    assert refusals(WORKLOAD, broken, "bfloat16", [variant]).keys() == {variant}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_the_scale_of_another_group_is_caught(broken: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.int4_linear
    monkeypatch.setattr(
        quantized_linear.kernels, "int4_linear", lambda x, packed, scale: right(x, packed, scale.roll(1, dims=1))
    )
    assert refusals(WORKLOAD, broken, "bfloat16", ["fused_int4"]).keys() == {"fused_int4"}


def test_bounds() -> None:
    """METHODS section 5: 4.125 bits a weight, 3.88 times fewer than bfloat16."""
    llama = WORKLOAD.shape("t1_h4096_o14336")
    activations = 2 * (4096 + 14336)
    assert lower_bound_bytes(llama, 2) - activations == 4096 * 14336 * 4.125 / 8
    assert WORKLOAD.flops(llama) == 2 * 4096 * 14336


@pytest.fixture(scope="module")
def launches() -> list[dict[str, Any]]:
    return sm90.compile_all(WORKLOAD, "bfloat16")


def test_no_launch_spills_on_sm_90(launches: list[dict[str, Any]]) -> None:
    assert {row["variant"] for row in launches} == {"dequantize", "fused_int4", "fused_fp8"}
    assert not [row for row in launches if row["frame"] or row["shared"] > 227 * 1024]


def test_larger_products_use_hopper_matrix_instructions(launches: list[dict[str, Any]]) -> None:
    tiles = [row for row in launches if row["kernel"].endswith("gemm_kernel") and row["shape"].startswith("t2048")]
    assert len(tiles) == 2
    assert all(row["wgmma"] for row in tiles)
