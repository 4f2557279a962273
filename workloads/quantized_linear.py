"""A linear layer over quantized weights, int4 in groups of 128 or fp8 e4m3, dequantized first or in the product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.base import Inputs, Kind, Lazy, Output, Shape, Tolerance, Variant, Workload, annotate
from workloads.base import random_normal as normal

if TYPE_CHECKING:
    import torch
    from torch.nn import functional

    from workloads.kernels import quantized_linear as kernels
else:
    torch = Lazy("torch")
    functional = Lazy("torch.nn.functional")
    kernels = Lazy("workloads.kernels.quantized_linear")

REGION: Final = "quantized_linear"
DEQUANTIZE: Final = "dequantize"
LINEAR: Final = "linear"

GROUP: Final = 128
"""Columns that share an int4 scale."""

E4M3_CAPABILITY: Final = (8, 9)
"""First compute capability that converts e4m3 (Ada)."""


def shape(tokens: int, hidden: int, out: int) -> Shape:
    """T tokens, input width n, output width k."""
    return Shape(f"t{tokens}_h{hidden}_o{out}", tokens, {"hidden": hidden, "out": out})


def _groups(shape: Shape) -> int:
    return -(-shape.dims["hidden"] // GROUP)


def _inputs(shape: Shape, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """x ``[T, n]``, codes -8..7 ``[k, n]``, int4 scales ``[k, ceil(n / 128)]`` and channel scales ``[k]``.

    The weight is code * scale. A group's scale is its row's channel scale times 1, 1/2 or 1/4, so that both formats
    hold the same weight exactly, int4 as code and scale, e4m3 as code * (scale / channel scale) and channel scale:
    one reference serves all variants. The quantizers for weights of any kind are in the kernels' module.
    """
    hidden, out, groups = shape.dims["hidden"], shape.dims["out"], _groups(shape)
    spread = normal(out, hidden, dtype=torch.float32, device=device, seed=4 * seed + 1, scale=2.8)
    channel = normal(out, dtype=torch.float32, device=device, seed=4 * seed + 2, scale=0.2, fan_in=hidden)
    channel_scale = (0.4 / hidden**0.5 + channel.abs()).to(dtype)
    halvings = normal(out, groups, dtype=torch.float32, device=device, seed=4 * seed + 3).abs().floor().clamp(max=2)
    return {
        "x": normal(shape.tokens, hidden, dtype=dtype, device=device, seed=4 * seed),
        "codes": spread.round().clamp(-8, 7).to(torch.int8),
        "scale": channel_scale[:, None] * torch.exp2(-halvings).to(dtype),
        "channel_scale": channel_scale,
    }


def _weight(inputs: Inputs, dtype: torch.dtype) -> torch.Tensor:
    """The weight ``[k, n]`` that codes and scales stand for."""
    codes = inputs["codes"]
    scale = inputs["scale"].to(dtype).repeat_interleave(GROUP, dim=1)[:, : codes.shape[1]]
    return codes.to(dtype) * scale


def _reference(inputs: Inputs) -> Output:
    return inputs["x"].double() @ _weight(inputs, torch.float64).T


def _prepare_plain(inputs: Inputs) -> Inputs:
    """The weight in the dtype of x."""
    return {"x": inputs["x"], "weight": _weight(inputs, torch.float32).to(inputs["x"].dtype)}


def _plain(prepared: Inputs) -> Output:
    with annotate(REGION), annotate(LINEAR):
        return functional.linear(prepared["x"], prepared["weight"])


def _prepare_int4(inputs: Inputs) -> Inputs:
    """Codes packed two a byte, and their scales."""
    return {"x": inputs["x"], "packed": kernels.pack_int4(inputs["codes"]), "scale": inputs["scale"]}


def _dequantize(prepared: Inputs) -> Output:
    x = prepared["x"]
    with annotate(REGION):
        with annotate(DEQUANTIZE):
            weight = kernels.dequantize_int4(prepared["packed"], prepared["scale"], x.shape[1])
        with annotate(LINEAR):
            return functional.linear(x, weight)


def _fused_int4(prepared: Inputs) -> Output:
    with annotate(REGION):
        return kernels.int4_linear(prepared["x"], prepared["packed"], prepared["scale"])


def _prepare_fp8(inputs: Inputs) -> Inputs:
    """e4m3 values and a scale for each row."""
    channel_scale = inputs["channel_scale"]
    relative = inputs["scale"].float() / channel_scale.float()[:, None]
    values = _weight({"codes": inputs["codes"], "scale": relative}, torch.float32)
    return {"x": inputs["x"], "weight": values.to(torch.float8_e4m3fn), "scale": channel_scale}


def _dequantize_fp8(prepared: Inputs) -> Output:
    x = prepared["x"]
    with annotate(REGION):
        with annotate(DEQUANTIZE):
            weight = prepared["weight"].to(x.dtype)
        with annotate(LINEAR):
            return functional.linear(x, weight) * prepared["scale"]


def _fused_fp8(prepared: Inputs) -> Output:
    with annotate(REGION):
        return kernels.fp8_linear(prepared["x"], prepared["weight"], prepared["scale"])


def lower_bound_bytes(shape: Shape, element_bytes: int) -> int:
    """HBM bytes of one kernel over int4 weights: half a byte a weight, the scales, x and y once."""
    hidden, out = shape.dims["hidden"], shape.dims["out"]
    if shape.tokens == 0:
        return 0
    return _groups(shape) * (GROUP // 2 + element_bytes) * out + shape.tokens * (hidden + out) * element_bytes


WORKLOAD = Workload(
    name="quantized_linear",
    doc="a linear layer over int4 (group 128) or fp8 weights, dequantized first or inside the product",
    baseline="dequantize",
    variants=(
        Variant(
            "dequantize", "int4: one Triton kernel writes the weight out, then the library's linear",
            _dequantize, _prepare_int4, kind=Kind.TRITON, needs_gpu=True,
        ),
        Variant(
            "fused_int4", "int4: one Triton kernel that dequantizes in registers",
            _fused_int4, _prepare_int4, kind=Kind.TRITON, needs_gpu=True,
        ),
        Variant("bf16", "the weight as it is in the dtype of x, and the library's linear", _plain, _prepare_plain),
        Variant(
            "dequantize_fp8", "e4m3: cast the weight, the library's linear, scale the rows (3 kernels)",
            _dequantize_fp8, _prepare_fp8,
        ),
        Variant(
            "fused_fp8", "e4m3: one Triton kernel that casts in registers and scales at the end",
            _fused_fp8, _prepare_fp8, kind=Kind.TRITON, needs_gpu=True, min_capability=E4M3_CAPABILITY,
        ),
    ),
    shapes=(
        *(shape(tokens, 4096, 14336) for tokens in (1, 16, 128, 2048)),
        *(shape(tokens, 14336, 4096) for tokens in (1, 16)),
    ),
    odd_shapes=(
        shape(0, 128, 96), shape(1, 1, 261), shape(1, 577, 261), shape(1, 4300, 133), shape(3, 100, 157),
        shape(17, 1, 33), shape(33, 270, 70), shape(67, 129, 1), shape(67, 129, 95),
    ),
    dimensions={"h": "hidden", "o": "out"},
    dtypes=("bfloat16", "float16", "float32"),
    inputs=_inputs,
    reference=_reference,
    # The baseline rounds the weight and y, dequantize_fp8 rounds y twice: equal in the mean, not in a small sample. In
    # float32 sums differ by their order alone, and either side may be the luckier one: the error itself decides.
    tolerances={
        "bfloat16": Tolerance(5e-3, ratio=1.5),
        "float16": Tolerance(7e-4, ratio=1.5),
        "float32": Tolerance(2e-6, ratio=100),
    },
    lower_bound_bytes=lower_bound_bytes,
    flops=lambda shape: 2 * shape.tokens * shape.dims["hidden"] * shape.dims["out"],
)  # fmt: skip
