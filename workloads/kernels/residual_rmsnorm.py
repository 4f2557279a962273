"""Residual addition and RMSNorm in one Triton kernel: rows that fit a block in one pass, wider rows in two.

Both kernels read x and the residual once and write their sum and the normalized sum: 4 T d elements of HBM traffic,
which is the bound. The sum is rounded to its dtype *before* the variance, as Hugging Face's layers do (there the
addition is a kernel of its own), so the next layer's residual is bit for bit what the eager chain makes. The
normalized value is multiplied by the weight in float32 and rounded once, where LlamaRMSNorm rounds in between.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from workloads.base import launch

# Columns of a block -> (rows of a program where there are many, warps a row, warps of such a program). Fixed, and not
# autotuned, so that every run of a width is the same kernel. A thread holds 16 elements of a row (two 16-byte loads
# of each bf16 tensor), twice that at the widest: more would spill, fewer would leave too few bytes in flight.
_CONFIGURATIONS: Final[dict[int, tuple[int, int, int]]] = {
    256: (8, 1, 4),
    512: (4, 1, 4),
    1024: (2, 2, 4),
    2048: (1, 4, 4),
    4096: (1, 8, 8),
    8192: (1, 16, 16),
    16384: (1, 16, 16),
}
_MANY_ROWS: Final = 2048
"""From here on small rows share a program: below, one row each fills more of the GPU."""

_LOOP_COLUMNS: Final = 8192
_LOOP_WARPS: Final = 16


@triton.jit
def add_rmsnorm_kernel(
    x, residual, weight, normed, total,
    tokens, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """ROWS rows a program, each wholly in registers; grid (ceil(tokens / ROWS),)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    offsets = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    mask = (rows < tokens)[:, None] & inside[None, :]
    # The weight comes first: it is the same for every program, and its latency hides behind the others.
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    left = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    right = tl.load(residual + offsets, mask=mask, other=0.0).to(tl.float32)
    rounded = (left + right).to(total.dtype.element_ty)
    tl.store(total + offsets, rounded, mask=mask)
    value = rounded.to(tl.float32)
    variance = tl.sum(value * value, axis=1) / WIDTH
    out = value * tl.rsqrt(variance + eps)[:, None] * scale[None, :]
    tl.store(normed + offsets, out.to(normed.dtype.element_ty), mask=mask)


@triton.jit
def add_rmsnorm_loop_kernel(
    x, residual, weight, normed, total,
    eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One row a program, in two passes of BLOCK columns each; grid (tokens,)."""
    start = tl.program_id(0).to(tl.int64) * WIDTH
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, WIDTH, BLOCK):
        mask = first + columns < WIDTH
        offsets = start + first + columns
        left = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        right = tl.load(residual + offsets, mask=mask, other=0.0).to(tl.float32)
        rounded = (left + right).to(total.dtype.element_ty)
        tl.store(total + offsets, rounded, mask=mask)
        value = rounded.to(tl.float32)
        squares += value * value
    inverse = tl.rsqrt(tl.sum(squares, axis=0) / WIDTH + eps)
    # The second pass reads what this block wrote, perhaps in another thread: wait for all of them.
    tl.debug_barrier()
    for first in range(0, WIDTH, BLOCK):
        mask = first + columns < WIDTH
        offsets = start + first + columns
        value = tl.load(total + offsets, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(weight + first + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(normed + offsets, (value * inverse * scale).to(normed.dtype.element_ty), mask=mask)


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(normalized, sum), both ``[tokens, width]`` like the contiguous x and residual; weight is ``[width]``."""
    if not (x.is_contiguous() and residual.is_contiguous() and weight.is_contiguous()):
        raise ValueError("x, residual and weight must be contiguous")
    tokens, width = x.shape
    normed, total = torch.empty_like(x), torch.empty_like(x)
    if tokens == 0:
        return normed, total
    block = max(triton.next_power_of_2(width), min(_CONFIGURATIONS))
    if block in _CONFIGURATIONS:
        many, warps_of_one, warps_of_many = _CONFIGURATIONS[block]
        rows, warps = (many, warps_of_many) if tokens >= _MANY_ROWS else (1, warps_of_one)
        launch(
            add_rmsnorm_kernel, (triton.cdiv(tokens, rows),), x, residual, weight, normed, total, tokens, eps,
            WIDTH=width, BLOCK=block, ROWS=rows, num_warps=warps,
        )  # fmt: skip
    else:
        launch(
            add_rmsnorm_loop_kernel, (tokens,), x, residual, weight, normed, total, eps,
            WIDTH=width, BLOCK=_LOOP_COLUMNS, num_warps=_LOOP_WARPS,
        )  # fmt: skip
    return normed, total
