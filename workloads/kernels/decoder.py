# ruff: noqa: N803  (tile constants are upper case, as in every Triton kernel)
"""Triton kernels of a decoder layer at one token: five launches a layer, none that only normalizes, adds or rotates.

Widths: d hidden, f intermediate, h query heads and g key-value heads of e values each; a cache is ``[g, S, e]``. The
norm is FlashNorm's (arXiv 2407.09577): squares are added in the loop that multiplies, and the product is scaled at the
end; the learned scale is applied to x as it is read, so that no weight is rounded again. Products, sums and the
softmax are float32; results are rounded once, where they are stored.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from workloads.base import launch
from workloads.kernels.swiglu_ffn import silu


@triton.jit
def norm_linear_kernel(
    x_ptr, scale_ptr, weight_ptr, out_ptr, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """``RMSNorm(x) W^T`` of one token: a program streams ROWS rows of the weight; grid (tiles of k,)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * N
    products = tl.zeros((ROWS, BLOCK_N), tl.float32)
    squares = tl.zeros((1, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)[None, :]
        weight = tl.load(weight_ptr + row_start + cols, mask=(rows < K) & (cols < N), other=0.0).to(tl.float32)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        scale = tl.load(scale_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        products += weight * (x * scale)
        squares += x * x
    inverse = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    y = tl.sum(products, axis=1) * inverse
    tl.store(out_ptr + out_rows, y.to(out_ptr.dtype.element_ty), mask=out_rows < K)


def norm_linear(x: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm with its learned scale ``[n]``, then ``[k, n]`` weight, of one token x ``[1, n]``; result ``[1, k]``."""
    (k, n), out = weight.shape, x.new_empty(1, len(weight))
    rows, block, warps = _gemv(n, k)
    launch(
        norm_linear_kernel, (triton.cdiv(k, rows),),
        x, scale, weight, out, eps, N=n, K=k, ROWS=rows, BLOCK_N=block, num_warps=warps,
    )  # fmt: skip
    return out


@triton.jit
def norm_gate_up_kernel(
    x_ptr, scale_ptr, gate_up_ptr, out_ptr, eps,
    D: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """RMSNorm, gate, up, SiLU and product of one token; the merged weight has the gate rows first; grid (tiles of f,).

    The deferred scale comes before the SiLU, which is not linear.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * D
    gates = tl.zeros((ROWS, BLOCK_D), tl.float32)
    ups = tl.zeros((ROWS, BLOCK_D), tl.float32)
    squares = tl.zeros((1, BLOCK_D), tl.float32)
    for start in range(0, D, BLOCK_D):
        cols = start + tl.arange(0, BLOCK_D)[None, :]
        inside = (rows < F) & (cols < D)
        gate = tl.load(gate_up_ptr + row_start + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_up_ptr + F * D + row_start + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + cols, mask=cols < D, other=0.0).to(tl.float32)
        scaled = x * tl.load(scale_ptr + cols, mask=cols < D, other=0.0).to(tl.float32)
        gates += gate * scaled
        ups += up * scaled
        squares += x * x
    inverse = tl.rsqrt(tl.sum(squares, axis=1) / D + eps)
    y = silu(tl.sum(gates, axis=1) * inverse) * (tl.sum(ups, axis=1) * inverse)
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + out_rows, y.to(out_ptr.dtype.element_ty), mask=out_rows < F)


def norm_gate_up(x: torch.Tensor, scale: torch.Tensor, gate_up: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm and the activated half of a SwiGLU, of one token: x ``[1, d]``, gate_up ``[2 f, d]``; ``[1, f]``."""
    d, f = x.shape[1], len(gate_up) // 2
    out = x.new_empty(1, f)
    rows, block, warps = _gemv(d, f)
    launch(
        norm_gate_up_kernel, (triton.cdiv(f, rows),),
        x, scale, gate_up, out, eps, D=d, F=f, ROWS=rows, BLOCK_D=block, num_warps=warps,
    )  # fmt: skip
    return out


@triton.jit
def linear_add_kernel(
    x_ptr, weight_ptr, residual_ptr, out_ptr,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """``residual + x W^T`` of one token: a program streams ROWS rows of the weight; grid (tiles of k,)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * N
    products = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)[None, :]
        weight = tl.load(weight_ptr + row_start + cols, mask=(rows < K) & (cols < N), other=0.0).to(tl.float32)
        products += weight * tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = out_rows < K
    y = tl.load(residual_ptr + out_rows, mask=inside, other=0.0).to(tl.float32) + tl.sum(products, axis=1)
    tl.store(out_ptr + out_rows, y.to(out_ptr.dtype.element_ty), mask=inside)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """``residual + x weight^T`` of one token: x ``[1, n]``, weight ``[k, n]``, residual and result ``[1, k]``."""
    (k, n), out = weight.shape, torch.empty_like(residual)
    rows, block, warps = _gemv(n, k)
    launch(
        linear_add_kernel, (triton.cdiv(k, rows),),
        x, weight, residual, out, N=n, K=k, ROWS=rows, BLOCK_N=block, num_warps=warps,
    )  # fmt: skip
    return out


def _gemv(n: int, k: int) -> tuple[int, int, int]:
    """(rows, columns, warps) of a program that streams a ``[k, n]`` weight, as measured on an H200."""
    block = min(2048, max(32, triton.next_power_of_2(n)))
    if block >= 2048:
        return 1, 2048, 8
    return (4 if k >= 4096 else 1), block, 2 if block <= 512 else 4


@triton.jit
def rotated(first, second, cos_first, cos_second, sin_first, sin_second):
    """Both halves of heads after RoPE, in the layout of Hugging Face's rotate_half."""
    return first * cos_first - second * sin_first, second * cos_second + first * sin_second


@triton.jit
def attend_kernel(
    qkv_ptr, cos_ptr, sin_ptr, keys_ptr, values_ptr, position_ptr, out_ptr, softmax_scale,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr, BLOCK_HALF: tl.constexpr,
    ROOM: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """RoPE, cache write and attention of one token; a program is one query head; grid (h,).

    Every program rotates its head's query and its group's key for itself; the first of a group writes key and value
    to the cache at the position, and none reads them there. Blocks of the cache behind the position are masked off,
    which costs no memory traffic. Halves of a head are kept apart, since RoPE pairs them.
    """
    head = tl.program_id(0)
    group = head // (HEADS // GROUPS)
    position = tl.load(position_ptr)
    half = tl.arange(0, BLOCK_HALF)
    inside = half < HALF
    at = position * SIZE + half
    cos_first = tl.load(cos_ptr + at, mask=inside, other=0.0).to(tl.float32)
    cos_second = tl.load(cos_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32)
    sin_first = tl.load(sin_ptr + at, mask=inside, other=0.0).to(tl.float32)
    sin_second = tl.load(sin_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32)
    q_ptr = qkv_ptr + head * SIZE
    k_ptr = qkv_ptr + (HEADS + group) * SIZE
    v_ptr = qkv_ptr + (HEADS + GROUPS + group) * SIZE
    q_first, q_second = rotated(
        tl.load(q_ptr + half, mask=inside, other=0.0).to(tl.float32),
        tl.load(q_ptr + HALF + half, mask=inside, other=0.0).to(tl.float32),
        cos_first, cos_second, sin_first, sin_second,
    )  # fmt: skip
    k_first, k_second = rotated(
        tl.load(k_ptr + half, mask=inside, other=0.0).to(tl.float32),
        tl.load(k_ptr + HALF + half, mask=inside, other=0.0).to(tl.float32),
        cos_first, cos_second, sin_first, sin_second,
    )  # fmt: skip
    v_first = tl.load(v_ptr + half, mask=inside, other=0.0)
    v_second = tl.load(v_ptr + HALF + half, mask=inside, other=0.0)
    dtype = keys_ptr.dtype.element_ty
    # The key is used as it will be read from the cache later: rounded.
    k_first, k_second = k_first.to(dtype), k_second.to(dtype)
    room = group.to(tl.int64) * ROOM * SIZE
    if head % (HEADS // GROUPS) == 0:
        own = room + position * SIZE + half
        tl.store(keys_ptr + own, k_first, mask=inside)
        tl.store(keys_ptr + own + HALF, k_second, mask=inside)
        tl.store(values_ptr + own, v_first, mask=inside)
        tl.store(values_ptr + own + HALF, v_second, mask=inside)

    score = tl.sum(q_first * k_first.to(tl.float32) + q_second * k_second.to(tl.float32)) * softmax_scale
    largest = tl.zeros((1,), tl.float32) + score
    weight_sum = tl.zeros((1,), tl.float32) + 1.0
    out_first, out_second = v_first.to(tl.float32), v_second.to(tl.float32)
    for start in range(0, ROOM, BLOCK_S):
        slot = start + tl.arange(0, BLOCK_S)
        earlier = slot < position
        cell = room + slot[:, None] * SIZE + half[None, :]
        mask = earlier[:, None] & inside[None, :]
        keys_first = tl.load(keys_ptr + cell, mask=mask, other=0.0).to(tl.float32)
        keys_second = tl.load(keys_ptr + cell + HALF, mask=mask, other=0.0).to(tl.float32)
        scores = tl.sum(keys_first * q_first[None, :] + keys_second * q_second[None, :], axis=1) * softmax_scale
        scores = tl.where(earlier, scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, axis=0))
        shrink = tl.exp(largest - larger)
        weights = tl.exp(scores - larger)
        weight_sum = weight_sum * shrink + tl.sum(weights, axis=0)
        values_first = tl.load(values_ptr + cell, mask=mask, other=0.0).to(tl.float32)
        values_second = tl.load(values_ptr + cell + HALF, mask=mask, other=0.0).to(tl.float32)
        out_first = out_first * shrink + tl.sum(weights[:, None] * values_first, axis=0)
        out_second = out_second * shrink + tl.sum(weights[:, None] * values_second, axis=0)
        largest = larger
    out_at = out_ptr + head * SIZE + half
    tl.store(out_at, (out_first / weight_sum).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(out_at + HALF, (out_second / weight_sum).to(out_ptr.dtype.element_ty), mask=inside)


def attend(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position: torch.Tensor,
    heads: int,
) -> torch.Tensor:
    """RoPE, cache write and attention of one token, in one kernel; result ``[1, h e]``.

    qkv is ``[1, (h + 2 g) e]``, cos and sin ``[S, e]``, keys and values ``[g, S, e]``, of which the slot at the
    position is written and those before it are read; position an int64 ``[1]`` on the device, so that a CUDA graph
    can be replayed.
    """
    groups, room, size = keys.shape
    out = qkv.new_empty(1, heads * size)
    half = size // 2
    launch(
        attend_kernel, (heads,),
        qkv, cos, sin, keys, values, position, out, size**-0.5,
        HEADS=heads, GROUPS=groups, SIZE=size, HALF=half, BLOCK_HALF=triton.next_power_of_2(half),
        ROOM=room, BLOCK_S=min(128, triton.next_power_of_2(room)), num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def rotate_and_cache_kernel(
    qkv_ptr, cos_ptr, sin_ptr, q_out_ptr, keys_ptr, values_ptr, tokens,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr, BLOCK_HALF: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """RoPE of all heads and the cache write of a prompt; grid (T, h + 2 g). Queries go to ``[h, T, e]``."""
    token, head = tl.program_id(0), tl.program_id(1)
    half = tl.arange(0, BLOCK_HALF)
    inside = half < HALF
    source = qkv_ptr + token.to(tl.int64) * (HEADS + 2 * GROUPS) * SIZE + head * SIZE + half
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + HALF, mask=inside, other=0.0)
    if head < HEADS + GROUPS:
        at = token * SIZE + half
        turned_first, turned_second = rotated(
            first.to(tl.float32), second.to(tl.float32),
            tl.load(cos_ptr + at, mask=inside, other=0.0).to(tl.float32),
            tl.load(cos_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32),
            tl.load(sin_ptr + at, mask=inside, other=0.0).to(tl.float32),
            tl.load(sin_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32),
        )  # fmt: skip
        first, second = turned_first.to(first.dtype), turned_second.to(second.dtype)
    if head < HEADS:
        target = q_out_ptr + (head.to(tl.int64) * tokens + token) * SIZE + half
    elif head < HEADS + GROUPS:
        target = keys_ptr + ((head - HEADS).to(tl.int64) * ROOM + token) * SIZE + half
    else:
        target = values_ptr + ((head - HEADS - GROUPS).to(tl.int64) * ROOM + token) * SIZE + half
    tl.store(target, first, mask=inside)
    tl.store(target + HALF, second, mask=inside)


def rotate_and_cache(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, heads: int
) -> torch.Tensor:
    """RoPE and cache write of a prompt of T tokens from position 0, in one kernel; the rotated queries ``[h, T, e]``.

    qkv is ``[T, (h + 2 g) e]``, cos and sin ``[S, e]``, keys and values ``[g, S, e]``.
    """
    (groups, room, size), tokens = keys.shape, len(qkv)
    queries = qkv.new_empty(heads, tokens, size)
    half = size // 2
    launch(
        rotate_and_cache_kernel, (tokens, heads + 2 * groups),
        qkv, cos, sin, queries, keys, values, tokens,
        HEADS=heads, GROUPS=groups, SIZE=size, HALF=half, BLOCK_HALF=triton.next_power_of_2(half),
        ROOM=room, num_warps=1,
    )  # fmt: skip
    return queries
