"""Residual addition, then RMSNorm: the seam between two blocks of a transformer, 2 n_layers times a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.base import Inputs, Kind, Lazy, Output, Shape, Tolerance, Variant, Workload, annotate, compiled
from workloads.base import random_normal as normal

if TYPE_CHECKING:
    import torch

    from workloads.kernels import residual_rmsnorm as kernels
else:
    torch = Lazy("torch")
    kernels = Lazy("workloads.kernels.residual_rmsnorm")

EPS: Final = 1e-5
"""Llama's."""

REGION: Final = "residual_rmsnorm"


def _shape(tokens: int, hidden: int) -> Shape:
    return Shape(f"t{tokens}_h{hidden}", tokens, {"hidden": hidden})


def _inputs(shape: Shape, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """x, residual ``[tokens, hidden]`` and weight ``[hidden]``.

    The residual's rows differ in size by four orders of magnitude, as a real residual stream's do (SmolLM2: RMS 0.1
    to 946): in the small ones the epsilon counts, in the large ones the rounding of the sum does.
    """
    hidden = shape.dims["hidden"]
    sizes = torch.logspace(-3, 1, max(shape.tokens, 1), device=device)[: shape.tokens, None]
    x = normal(shape.tokens, hidden, dtype=torch.float32, device=device, seed=3 * seed)
    residual = normal(shape.tokens, hidden, dtype=torch.float32, device=device, seed=3 * seed + 1)
    weight = normal(hidden, dtype=torch.float32, device=device, seed=3 * seed + 2, scale=0.2)
    return {
        "x": (x * sizes).to(dtype),
        "residual": (residual * sizes).to(dtype),
        "weight": (1 + weight).to(dtype),
    }


def _reference(inputs: Inputs) -> Output:
    x, residual, weight = (inputs[name].double() for name in ("x", "residual", "weight"))
    total = x + residual
    return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPS) * weight, total


def _chain(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The residual addition and ``transformers``' LlamaRMSNorm.forward, call by call: 9 launches in bf16 and fp16."""
    total = residual + x
    hidden = total.to(torch.float32)
    variance = hidden.pow(2).mean(-1, keepdim=True)
    hidden = hidden * torch.rsqrt(variance + EPS)
    return weight * hidden.to(total.dtype), total


_compiled_chain = compiled(_chain, dynamic=False)


def _eager(inputs: Inputs) -> Output:
    with annotate(REGION):
        return _chain(inputs["x"], inputs["residual"], inputs["weight"])


def _torch_rms_norm(inputs: Inputs) -> Output:
    with annotate(REGION):
        total = inputs["residual"] + inputs["x"]
        weight = inputs["weight"]
        return torch.nn.functional.rms_norm(total, weight.shape, weight, EPS), total


def _compiled(inputs: Inputs) -> Output:
    with annotate(REGION):
        output: Output = _compiled_chain(inputs["x"], inputs["residual"], inputs["weight"])
        return output


def _triton(inputs: Inputs) -> Output:
    with annotate(REGION):
        return kernels.add_rmsnorm(inputs["x"], inputs["residual"], inputs["weight"], EPS)


WORKLOAD = Workload(
    name="residual_rmsnorm",
    doc="residual addition + RMSNorm; outputs the normalized sum and the sum",
    baseline="eager",
    variants=(
        Variant("eager", "Hugging Face's chain: add, then LlamaRMSNorm call by call (9 launches)", _eager),
        Variant("torch_rms_norm", "add, then torch.nn.functional.rms_norm (2 launches)", _torch_rms_norm),
        Variant("compiled", "torch.compile of the eager chain", _compiled, kind=Kind.COMPILED),
        Variant("triton", "one fused kernel", _triton, kind=Kind.TRITON, needs_gpu=True),
    ),
    shapes=(
        *(_shape(tokens, 4096) for tokens in (1, 4, 16, 64, 256, 1024, 2048, 4096, 8192)),
        *(_shape(tokens, 576) for tokens in (1, 64, 1024, 8192)),
        _shape(2048, 8192),
        _shape(1024, 32768),
    ),
    odd_shapes=(
        _shape(0, 576), _shape(1, 1), _shape(7, 1), _shape(1, 577), _shape(3, 1000), _shape(33, 4097),
        _shape(2051, 96), _shape(2, 20000),
    ),
    dimensions={"h": "hidden"},
    dtypes=("bfloat16", "float16", "float32"),
    inputs=_inputs,
    reference=_reference,
    # In float32 sums differ by their order alone, and either side may be the luckier one: the error itself decides.
    tolerances={"bfloat16": Tolerance(5e-3), "float16": Tolerance(7e-4), "float32": Tolerance(5e-7, ratio=100)},
    # METHODS: 8 T d + 2 d bytes in bf16: x and residual read, sum and result written, the weight once.
    lower_bound_bytes=lambda shape, size: (4 * shape.tokens + 1) * shape.dims["hidden"] * size,
    flops=lambda shape: 5 * shape.tokens * shape.dims["hidden"],
)  # fmt: skip
