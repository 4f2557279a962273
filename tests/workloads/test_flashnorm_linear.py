"""RMSNorm and linear: every variant against float64 on odd shapes, the folding algebra, and what sm_90 makes of it."""

from __future__ import annotations

import interpreted  # noqa: F401

# isort: split
from typing import Any

import pytest
import sm90
import torch
from judging import refusals, relative_l2, unsteady
from torch.nn import functional

from workloads import flashnorm_linear
from workloads.base import Shape
from workloads.flashnorm_linear import WORKLOAD, lower_bound_bytes, shape
from workloads.kernels import flashnorm_linear as kernels


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("odd", WORKLOAD.odd_shapes, ids=lambda odd: odd.name)
def test_every_variant_passes_the_quality_gate(odd: Shape, dtype: str) -> None:
    assert refusals(WORKLOAD, odd, dtype) == {}


def test_steps_repeat_bit_for_bit() -> None:
    assert unsteady(WORKLOAD, shape(3, 40, 57), "bfloat16") == []


BROKEN = [shape(1, 130, 261), shape(33, 70, 130), shape(67, 129, 95)]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_wrong_epsilon_is_caught(broken: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels.norm_linear
    monkeypatch.setattr(flashnorm_linear.kernels, "norm_linear", lambda x, folded, eps: right(x, folded, eps / 10))
    assert refusals(WORKLOAD, broken, "bfloat16", ["deferred"]).keys() == {"deferred"}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
@pytest.mark.parametrize("variant", ["folded", "deferred"])
def test_a_norm_weight_that_is_not_folded_is_caught(
    variant: str, broken: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flashnorm_linear.kernels, "fold_norm_weight", lambda weight, norm_weight: weight)
    assert refusals(WORKLOAD, broken, "bfloat16", [variant]).keys() == {variant}


# --- the algebra, METHODS section 2 ---


def normed(x: Any, norm_weight: Any, eps: float) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * norm_weight


def drawn(*sizes: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(*sizes, dtype=torch.float64).to(dtype)


def rotary(tokens: int, width: int) -> tuple[Any, Any]:
    angle = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotated(heads: Any, cos: Any, sin: Any) -> Any:
    half = heads.shape[-1] // 2
    turned = torch.cat((-heads[..., half:], heads[..., :half]), dim=-1)
    return heads * cos[:, None] + turned * sin[:, None]


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_folding_and_deferring_are_exact(eps: float) -> None:
    x, norm_weight, weight = drawn(7, 48), drawn(48), drawn(20, 48)
    deferred = functional.linear(x, weight * norm_weight) * kernels.inverse_rms(x, eps)
    torch.testing.assert_close(deferred, normed(x, norm_weight, eps) @ weight.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_a_deferred_swiglu_is_exact(eps: float) -> None:
    x, norm_weight = drawn(7, 48), drawn(48)
    gate, up, down = drawn(80, 48), drawn(80, 48), drawn(48, 80)
    normal = normed(x, norm_weight, eps)
    expected = (functional.silu(normal @ gate.T) * (normal @ up.T)) @ down.T
    result = kernels.deferred_swiglu(x, gate * norm_weight, up * norm_weight, down, eps)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.5])
def test_a_deferred_qkv_is_exact(eps: float) -> None:
    """Grouped-query attention: six heads of q, two of k and v."""
    x, norm_weight = drawn(7, 48), drawn(48)
    q, k, v = drawn(6 * 8, 48), drawn(2 * 8, 48), drawn(2 * 8, 48)
    cos, sin = rotary(7, 8)
    normal = normed(x, norm_weight, eps)
    expected = (
        rotated((normal @ q.T).reshape(7, 6, 8), cos, sin),
        rotated((normal @ k.T).reshape(7, 2, 8), cos, sin),
        (normal @ v.T).reshape(7, 2, 8),
    )
    result = kernels.deferred_qkv(x, q * norm_weight, k * norm_weight, v * norm_weight, cos, sin, eps)
    for mine, theirs in zip(result, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_in_bfloat16_the_deferred_forms_are_as_good_as_the_plain_ones() -> None:
    dtype, eps = torch.bfloat16, 1e-5
    x, norm_weight = drawn(64, 96, dtype=dtype), (1 + 0.2 * drawn(96)).to(dtype)
    gate, up, down = (drawn(*sizes, dtype=dtype) / 10 for sizes in ((160, 96), (160, 96), (96, 160)))

    def plain(x: Any, norm_weight: Any, gate: Any, up: Any, down: Any) -> Any:
        normal = normed(x, norm_weight, eps)
        return functional.linear(functional.silu(functional.linear(normal, gate)) * functional.linear(normal, up), down)

    exact = plain(*(tensor.double() for tensor in (x, norm_weight, gate, up, down)))
    folded = (kernels.fold_norm_weight(gate, norm_weight), kernels.fold_norm_weight(up, norm_weight))
    deferred = kernels.deferred_swiglu(x, *folded, down, eps)
    assert relative_l2(deferred, exact) <= 1.25 * relative_l2(plain(x, norm_weight, gate, up, down), exact)


def test_bounds() -> None:
    llama = WORKLOAD.shape("t64_h4096_o6144")
    assert lower_bound_bytes(llama, 2) == 2 * (4096 * 6144 + 64 * (4096 + 6144))
    assert WORKLOAD.flops(llama) == 64 * (2 * 4096 * 6144 + 3 * 4096)
    assert flashnorm_linear.EPS == 1e-5


@pytest.fixture(scope="module")
def launches() -> list[dict[str, Any]]:
    return sm90.compile_all(WORKLOAD, "bfloat16")


def test_no_launch_spills_on_sm_90(launches: list[dict[str, Any]]) -> None:
    assert {row["shape"] for row in launches} == {shape.name for shape in WORKLOAD.shapes}
    assert not [row for row in launches if row["frame"] or row["shared"] > 227 * 1024]


def test_large_tiles_use_hopper_matrix_instructions(launches: list[dict[str, Any]]) -> None:
    tiles = [row for row in launches if row["kernel"] == "norm_tile_kernel"]
    assert tiles
    assert all(row["wgmma"] and row["cp.async"] for row in tiles)
