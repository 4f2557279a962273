"""RMSNorm, then a linear layer, y = RMSNorm(x; g, eps) W^T: the head of every attention and feed-forward block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.base import Inputs, Kind, Lazy, Output, Shape, Tolerance, Variant, Workload, annotate
from workloads.base import random_normal as normal

if TYPE_CHECKING:
    import torch
    from torch.nn import functional

    from workloads.kernels import flashnorm_linear as kernels
else:
    torch = Lazy("torch")
    functional = Lazy("torch.nn.functional")
    kernels = Lazy("workloads.kernels.flashnorm_linear")

EPS: Final = 1e-5
"""Llama's."""

REGION: Final = "flashnorm_linear"
NORM: Final = "norm"
LINEAR: Final = "linear"


def shape(tokens: int, hidden: int, out: int) -> Shape:
    """T tokens, hidden width n, output width k."""
    return Shape(f"t{tokens}_h{hidden}_o{out}", tokens, {"hidden": hidden, "out": out})


def _inputs(shape: Shape, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """x ``[T, n]``, the norm's scale ``[n]`` and the linear weight ``[k, n]``.

    The rows of x differ in size by four orders of magnitude, as a real residual stream's do (SmolLM2: RMS 0.1 to 946):
    in the small ones the epsilon counts, and a scale that is taken of the wrong row shows.
    """
    hidden, out = shape.dims["hidden"], shape.dims["out"]
    sizes = torch.logspace(-3, 1, max(shape.tokens, 1), device=device)[: shape.tokens, None]
    x = normal(shape.tokens, hidden, dtype=torch.float32, device=device, seed=3 * seed)
    norm_weight = normal(hidden, dtype=torch.float32, device=device, seed=3 * seed + 1, scale=0.2)
    return {
        "x": (x * sizes).to(dtype),
        "norm_weight": (1 + norm_weight).to(dtype),
        "weight": normal(out, hidden, dtype=dtype, device=device, seed=3 * seed + 2, fan_in=hidden),
    }


def _reference(inputs: Inputs) -> Output:
    x, norm_weight, weight = (inputs[name].double() for name in ("x", "norm_weight", "weight"))
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * norm_weight
    return normed @ weight.T


def _eager(inputs: Inputs) -> Output:
    with annotate(REGION):
        with annotate(NORM):
            wide = inputs["x"].to(torch.float32)
            scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
            normed = inputs["norm_weight"] * scaled.to(inputs["x"].dtype)
        with annotate(LINEAR):
            return functional.linear(normed, inputs["weight"])


def _torch_rms_norm(inputs: Inputs) -> Output:
    norm_weight = inputs["norm_weight"]
    with annotate(REGION):
        with annotate(NORM):
            normed = functional.rms_norm(inputs["x"], norm_weight.shape, norm_weight, EPS)
        with annotate(LINEAR):
            return functional.linear(normed, inputs["weight"])


def _prepare_folded(inputs: Inputs) -> Inputs:
    """The norm's scale folded into the linear weight."""
    return {"x": inputs["x"], "folded": kernels.fold_norm_weight(inputs["weight"], inputs["norm_weight"])}


def _folded(prepared: Inputs) -> Output:
    x = prepared["x"]
    with annotate(REGION):
        with annotate(NORM):
            normed = functional.rms_norm(x, x.shape[-1:], None, EPS)
        with annotate(LINEAR):
            return functional.linear(normed, prepared["folded"])


def _deferred(prepared: Inputs) -> Output:
    with annotate(REGION):
        return kernels.norm_linear(prepared["x"], prepared["folded"], EPS)


def _chosen(prepared: Inputs) -> Output:
    x = prepared["x"]
    return _deferred(prepared) if kernels.one_kernel_pays(x.shape[0], x.shape[1]) else _folded(prepared)


def lower_bound_bytes(shape: Shape, element_bytes: int) -> int:
    """HBM bytes of one kernel: the weight, x and y once. METHODS: n k w + b (T n + T k)."""
    hidden, out = shape.dims["hidden"], shape.dims["out"]
    return (hidden * out + shape.tokens * (hidden + out)) * element_bytes if shape.tokens else 0


def _flops(shape: Shape) -> int:
    """The product, and of the norm the squares, their sum and the scaling."""
    hidden, out = shape.dims["hidden"], shape.dims["out"]
    return shape.tokens * (2 * hidden * out + 3 * hidden)


WORKLOAD = Workload(
    name="flashnorm_linear",
    doc="RMSNorm, then a linear layer; FlashNorm folds and defers the normalization",
    baseline="eager",
    variants=(
        Variant("eager", "LlamaRMSNorm call by call, then the library's linear (7 launches)", _eager),
        Variant("torch_rms_norm", "torch.nn.functional.rms_norm, then the library's linear", _torch_rms_norm),
        Variant(
            "folded", "g folded into W beforehand; rms_norm without weight, then the library's linear",
            _folded, _prepare_folded,
        ),
        Variant(
            "deferred", "one Triton kernel: g folded into W, squares of x added inside the product, scaled at the end",
            _deferred, _prepare_folded, kind=Kind.TRITON, needs_gpu=True,
        ),
        Variant(
            "chosen", "deferred where it is expected to be faster, folded elsewhere: what a serving engine would run",
            _chosen, _prepare_folded, kind=Kind.TRITON, needs_gpu=True,
        ),
    ),
    shapes=tuple(
        shape(tokens, hidden, out)
        for hidden, out in ((576, 960), (2048, 3072), (4096, 6144))
        for tokens in (1, 16, 64, 256, 1024, 4096)
    ),
    odd_shapes=(
        shape(0, 64, 96), shape(1, 65, 261), shape(1, 577, 261), shape(1, 1030, 261), shape(3, 100, 157),
        shape(33, 70, 130), shape(64, 5, 33), shape(67, 129, 1), shape(67, 129, 95), shape(257, 33, 129),
    ),
    dimensions={"h": "hidden", "o": "out"},
    dtypes=("bfloat16", "float16", "float32"),
    inputs=_inputs,
    reference=_reference,
    # In float32 sums differ by their order alone, and either side may be the luckier one: the error itself decides.
    tolerances={"bfloat16": Tolerance(6e-3), "float16": Tolerance(8e-4), "float32": Tolerance(2e-6, ratio=100)},
    lower_bound_bytes=lower_bound_bytes,
    flops=_flops,
)  # fmt: skip
