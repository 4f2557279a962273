"""The SwiGLU feed-forward y = (silu(x Wg^T) * (x Wu^T)) Wd^T and its three matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workloads.base import Inputs, Kind, Lazy, Output, Shape, Tolerance, Variant, Workload, annotate
from workloads.base import random_normal as normal

if TYPE_CHECKING:
    import torch
    from torch.nn import functional

    from workloads.kernels import swiglu_ffn as kernels
else:
    torch = Lazy("torch")
    functional = Lazy("torch.nn.functional")
    kernels = Lazy("workloads.kernels.swiglu_ffn")

REGION: Final = "swiglu_ffn"
GATE_UP: Final = "gate_up_silu"
DOWN: Final = "down"

WIDEST_ONE_KERNEL: Final = 8192
"""Hidden width above which a block's partial output no longer fits its registers (float32 values)."""


def shape(tokens: int, hidden: int, ffn: int) -> Shape:
    """T tokens, hidden width d, intermediate width f."""
    return Shape(f"t{tokens}_h{hidden}_f{ffn}", tokens, {"hidden": hidden, "ffn": ffn})


def _inputs(shape: Shape, dtype: torch.dtype, device: str, seed: int) -> Inputs:
    """x ``[T, d]``, gate and up ``[f, d]``, down ``[d, f]``, as ``torch.nn.Linear`` keeps them."""
    hidden, ffn = shape.dims["hidden"], shape.dims["ffn"]

    def weight(out: int, into: int, number: int) -> torch.Tensor:
        return normal(out, into, dtype=dtype, device=device, seed=4 * seed + number, fan_in=into)

    return {
        "x": normal(shape.tokens, hidden, dtype=dtype, device=device, seed=4 * seed),
        "gate": weight(ffn, hidden, 1),
        "up": weight(ffn, hidden, 2),
        "down": weight(hidden, ffn, 3),
    }


def _reference(inputs: Inputs) -> Output:
    x, gate, up, down = (inputs[name].double() for name in ("x", "gate", "up", "down"))
    product = x @ gate.T
    result: torch.Tensor = (product * torch.sigmoid(product) * (x @ up.T)) @ down.T
    return result


def _eager(inputs: Inputs) -> Output:
    with annotate(REGION):
        with annotate(GATE_UP):
            gate = functional.linear(inputs["x"], inputs["gate"])
            up = functional.linear(inputs["x"], inputs["up"])
            activated = functional.silu(gate) * up
        with annotate(DOWN):
            return functional.linear(activated, inputs["down"])


def _prepare_merged(inputs: Inputs) -> Inputs:
    """Gate and up as one ``[2 f, d]`` matrix, as vLLM and SGLang keep them."""
    gate_up = torch.cat([inputs["gate"], inputs["up"]])
    return {"x": inputs["x"], "gate_up": gate_up, "down": inputs["down"]}


def _merged(prepared: Inputs) -> Output:
    with annotate(REGION):
        with annotate(GATE_UP):
            activated = kernels.silu_and_mul(functional.linear(prepared["x"], prepared["gate_up"]))
        with annotate(DOWN):
            return functional.linear(activated, prepared["down"])


def _gate_up_silu(inputs: Inputs) -> torch.Tensor:
    with annotate(GATE_UP):
        return kernels.gate_up_silu(inputs["x"], inputs["gate"], inputs["up"])


def _two_kernel(inputs: Inputs) -> Output:
    with annotate(REGION):
        activated = _gate_up_silu(inputs)
        with annotate(DOWN):
            if len(activated) == 1:
                return kernels.down_gemv(activated, inputs["down"])
            return functional.linear(activated, inputs["down"])


def _two_kernel_cublas(inputs: Inputs) -> Output:
    with annotate(REGION):
        activated = _gate_up_silu(inputs)
        with annotate(DOWN):
            return functional.linear(activated, inputs["down"])


@dataclass(frozen=True)
class _OneKernel:
    inputs: Inputs
    down_rows: torch.Tensor
    room: kernels.GridPartials


def _prepare_one_kernel(inputs: Inputs) -> _OneKernel:
    """The down matrix stored ``[f, d]``, and memory for one partial output of each block, one block an SM."""
    room = kernels.GridPartials.of(inputs["down"].shape[0], inputs["x"].device)
    return _OneKernel(inputs, inputs["down"].T.contiguous(), room)


def _one_kernel(prepared: _OneKernel) -> Output:
    inputs = prepared.inputs
    with annotate(REGION):
        return kernels.one_kernel(inputs["x"], inputs["gate"], inputs["up"], prepared.down_rows, prepared.room)


def _prepare_spilling(inputs: Inputs) -> _OneKernel:
    """The down matrix stored ``[f, d]``, and memory for one partial output of each tile of f."""
    hidden, ffn = inputs["down"].shape
    room = kernels.GridPartials.of(hidden, inputs["x"].device, blocks=-(-ffn // kernels.SPILLING_TILE))
    return _OneKernel(inputs, inputs["down"].T.contiguous(), room)


def _spilling(prepared: _OneKernel) -> Output:
    inputs = prepared.inputs
    with annotate(REGION):
        return kernels.one_kernel_tiled(inputs["x"], inputs["gate"], inputs["up"], prepared.down_rows, prepared.room)


def _recompute(inputs: Inputs) -> Output:
    with annotate(REGION):
        return kernels.one_kernel_recompute(inputs["x"], inputs["gate"], inputs["up"], inputs["down"])


def _same_beyond_one(shape: Shape, _dtype: str) -> str | None:
    return None if shape.tokens == 1 else f"for {shape.tokens} tokens two_kernel is the same"


def _one_token(shape: Shape, _dtype: str) -> str | None:
    return None if shape.tokens == 1 else f"it takes one token, not {shape.tokens}"


def _one_token_in_registers(shape: Shape, dtype: str) -> str | None:
    if shape.dims["hidden"] > WIDEST_ONE_KERNEL:
        return f"a partial output of {shape.dims['hidden']} values does not fit a block's registers"
    return _one_token(shape, dtype)


def lower_bound_bytes(shape: Shape, element_bytes: int) -> int:
    """HBM bytes of one kernel: the three matrices, x and y once. METHODS: 3 d f w + 2 T d b."""
    hidden, ffn = shape.dims["hidden"], shape.dims["ffn"]
    return (3 * hidden * ffn + 2 * shape.tokens * hidden) * element_bytes if shape.tokens else 0


WORKLOAD = Workload(
    name="swiglu_ffn",
    doc="the SwiGLU feed-forward with its three matrix products",
    baseline="eager",
    variants=(
        Variant("eager", "gate, up, SiLU, multiply, down (5 kernels)", _eager),
        Variant(
            "merged", "one gate_up product, a Triton silu_and_mul, down (3 kernels)", _merged, _prepare_merged,
            kind=Kind.TRITON, needs_gpu=True,
        ),
        Variant(
            "two_kernel", "gate + up + SiLU * mul in one Triton kernel, then down: the library's, at T = 1 Triton's",
            _two_kernel, kind=Kind.TRITON, needs_gpu=True,
        ),
        Variant(
            "two_kernel_cublas", "two_kernel with the library's down product for one token too",
            _two_kernel_cublas, kind=Kind.TRITON, needs_gpu=True, unsupported=_same_beyond_one,
        ),
        Variant(
            "one_kernel", "the whole feed-forward in one persistent Triton kernel; partial outputs in registers",
            _one_kernel, _prepare_one_kernel, kind=Kind.TRITON, needs_gpu=True, unsupported=_one_token_in_registers,
        ),
        Variant(
            "one_kernel_recompute", "one Triton kernel of independent output tiles, each computing gate and up anew",
            _recompute, kind=Kind.TRITON, needs_gpu=True,
        ),
        Variant(
            "one_kernel_spilling", "one Triton kernel with 256 x 256 tiles, which spill: larger is not faster",
            _spilling, _prepare_spilling, kind=Kind.TRITON, needs_gpu=True, unsupported=_one_token,
        ),
    ),
    shapes=(
        *(shape(tokens, 4096, 14336) for tokens in (1, 16, 128, 2048)),
        *(shape(tokens, 576, 1536) for tokens in (1, 16, 128, 2048)),
    ),
    odd_shapes=(
        shape(0, 64, 96), shape(67, 33, 9), shape(1, 130, 261), shape(1, 1030, 21), shape(3, 100, 57),
        shape(33, 70, 130), shape(67, 1, 33), shape(67, 129, 95), shape(257, 33, 129),
    ),
    dimensions={"h": "hidden", "f": "ffn"},
    dtypes=("bfloat16", "float16", "float32"),
    inputs=_inputs,
    reference=_reference,
    # In float32 sums differ by their order alone, and either side may be the luckier one: the error itself decides.
    tolerances={"bfloat16": Tolerance(8e-3), "float16": Tolerance(1.2e-3), "float32": Tolerance(3e-6, ratio=100)},
    lower_bound_bytes=lower_bound_bytes,
    # The matrix products alone: two of T x d x f, one of T x f x d.
    flops=lambda shape: 6 * shape.tokens * shape.dims["hidden"] * shape.dims["ffn"],
)  # fmt: skip
