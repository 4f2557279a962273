# ruff: noqa: N803  (tile constants are upper case, as in every Triton kernel)
"""Linear layers over quantized weights, y = x W^T, that dequantize in registers: int4 in groups of 128, and fp8 e4m3.

T tokens, input width n, output width k. Only the weights are quantized; x and y are bfloat16, float16 or float32, and
products are summed in float32. Widths are constants of a launch, token counts are not.

**int4** is symmetric: weight = (code - 8) * scale, code 0..15, one scale for 128 consecutive columns of a row, in the
dtype of x. No zero point is stored: 4.125 bits a weight with 16-bit scales. Two codes share a byte: byte j of a group
holds column j in its low and column 64 + j in its high half, so that neighbouring threads read neighbouring bytes and
both halves meet runs of neighbouring x.

**fp8** is e4m3 with one scale a row: weight = value * scale, 8 bits a weight.
"""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl

from workloads.base import launch

GROUP: Final = 128
"""Columns that share an int4 scale."""

_HALF: Final = tl.constexpr(GROUP // 2)
_GROUP: Final = tl.constexpr(GROUP)
_UP: Final = tl.constexpr(2.0**100)
_DOWN: Final = tl.constexpr(2.0**-49)
_BACK: Final = tl.constexpr(2.0**49)

LARGEST_E4M3: Final = 448.0

# --- the formats, in library calls ---------------------------------------------------------------------------------


def pack_int4(codes: torch.Tensor) -> torch.Tensor:
    """Codes -8..7, ``[k, n]`` of any integer dtype, as bytes: uint8 ``[k, ceil(n / 128) * 64]``; padding is zeros."""
    rows, columns = codes.shape
    groups = -(-columns // GROUP)
    padded = torch.nn.functional.pad(codes.to(torch.int16), (0, groups * GROUP - columns)) + 8
    low, high = padded.reshape(rows, groups, 2, GROUP // 2).unbind(2)
    return (low | (high << 4)).to(torch.uint8).reshape(rows, groups * (GROUP // 2))


def unpack_int4(packed: torch.Tensor, columns: int) -> torch.Tensor:
    """The codes of :func:`pack_int4`, int8 ``[k, columns]``."""
    rows, groups = packed.shape[0], packed.shape[1] // (GROUP // 2)
    halves = packed.reshape(rows, groups, GROUP // 2)
    codes = torch.stack((halves & 0xF, halves >> 4), dim=2).to(torch.int8) - 8
    return codes.reshape(rows, groups * GROUP)[:, :columns]


def quantize_int4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales nearest to a ``[k, n]`` weight: int8 ``[k, n]``, and its dtype's ``[k, ceil(n / 128)]``.

    The scale is a group's largest magnitude over 7; a code is off by at most half a step, plus the scale's rounding.
    """
    rows, columns = weight.shape
    groups = -(-columns // GROUP)
    padded = torch.nn.functional.pad(weight.float(), (0, groups * GROUP - columns)).reshape(rows, groups, GROUP)
    scale = (padded.abs().amax(-1) / 7).to(weight.dtype)
    step = torch.where(scale == 0, 1, scale.float())[:, :, None]
    codes = (padded / step).round().clamp(-8, 7).to(torch.int8)
    return codes.reshape(rows, groups * GROUP)[:, :columns], scale


def quantize_fp8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and scales nearest to a ``[k, n]`` weight: float8_e4m3fn ``[k, n]``, and ``[k]`` in the weight's dtype."""
    scale = (weight.float().abs().amax(-1) / LARGEST_E4M3).to(weight.dtype)
    step = torch.where(scale == 0, 1, scale.float())[:, None]
    values = (weight.float() / step).clamp(-LARGEST_E4M3, LARGEST_E4M3)
    return values.to(torch.float8_e4m3fn), scale


# --- int4 ----------------------------------------------------------------------------------------------------------


@triton.jit
def codes_of(packed):
    """The signed codes in the low and in the high halves of bytes, as float32.

    An integer below 2^23 placed in the mantissa of the float 2^23 adds itself to it, and a subtraction takes the 2^23
    away again: both at full rate, where an integer's conversion takes the converter units, at a fraction of it.
    """
    wide = packed.to(tl.int32)
    low = ((wide & 0x0F) | 0x4B000000).to(tl.float32, bitcast=True)  # 2^23 + code + 8
    high = ((wide & 0xF0) | 0x4B000000).to(tl.float32, bitcast=True)  # 2^23 + 16 (code + 8)
    return low - 8388616.0, high * 0.0625 - 524296.0


@triton.jit
def columns_of_four(tile, LENGTH: tl.constexpr):
    """The four columns of a LENGTH x 4 tile."""
    even, odd = tl.split(tl.reshape(tile, (LENGTH, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def int4_dequantize_kernel(
    packed_ptr, scale_ptr, weight_ptr,
    N: tl.constexpr, K: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Writes one group of columns of ROWS rows of the weight; grid (tiles of k, GROUPS)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    group = tl.program_id(1)
    row = rows.to(tl.int64)[:, None]
    packed_at = packed_ptr + row * (GROUPS * _HALF) + group * _HALF + tl.arange(0, _HALF)[None, :]
    packed = tl.load(packed_at, mask=(rows < K)[:, None], other=0)
    scale = tl.load(scale_ptr + rows.to(tl.int64) * GROUPS + group, mask=rows < K, other=0.0).to(tl.float32)
    low, high = codes_of(packed)
    cols = group * _GROUP + tl.arange(0, _HALF)[None, :]
    weight_at = weight_ptr + row * N + cols
    inside = (rows < K)[:, None]
    dtype = weight_ptr.dtype.element_ty
    tl.store(weight_at, (low * scale[:, None]).to(dtype), mask=inside & (cols < N))
    tl.store(weight_at + _HALF, (high * scale[:, None]).to(dtype), mask=inside & (cols + _HALF < N))


def dequantize_int4(packed: torch.Tensor, scale: torch.Tensor, columns: int) -> torch.Tensor:
    """The ``[k, columns]`` weight in the dtype of ``scale``, in one kernel, from what :func:`int4_linear` takes."""
    rows, groups = scale.shape
    weight = scale.new_empty(rows, columns)
    if weight.numel():
        launch(
            int4_dequantize_kernel, (triton.cdiv(rows, 32), groups),
            packed, scale, weight, N=columns, K=rows, GROUPS=groups, ROWS=32, num_warps=4,
        )  # fmt: skip
    return weight


@triton.jit
def masked_float(word, MASK: tl.constexpr):
    """Some of the low 23 bits of a word, read as a float32: a denormal, the integer times 2^-149."""
    return (word & MASK).to(tl.float32, bitcast=True)


@triton.jit
def int4_gemv_kernel(
    x_ptr, words_ptr, scale_ptr, out_ptr,
    N: tl.constexpr, K: tl.constexpr, GROUPS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_GROUPS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One token: a program streams ROWS rows, BLOCK_GROUPS groups of 16 words at a time; grid (tiles of k,).

    At 4 bits a weight, arithmetic is the first limit, not memory: seven instructions a weight take twice as long as
    its bytes. Here a code costs two. Masked in place in a 32-bit word, it is a denormal float, code * 2^(shift - 149),
    which the multiply-add units take at full rate; x, made larger by 2^(100 - shift) once for all rows, brings it back
    into range (|x| must stay below 2^27). The sums are then 2^-49 of the true ones, exactly. The offset of 8 in every
    code goes into the start of the sums, and a group's scale is applied to its sum, once for 128 weights.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = rows.to(tl.int64)[:, None]
    total = tl.zeros((ROWS, BLOCK_GROUPS), tl.float32)
    # Unrolled, and without masks where nothing sticks out: then the loads of all blocks are under way together.
    even: tl.constexpr = K % ROWS == 0 and GROUPS % BLOCK_GROUPS == 0 and N % 128 == 0
    for start in tl.static_range(0, GROUPS, BLOCK_GROUPS):
        word = start * 16 + tl.arange(0, WORDS)
        words_at = words_ptr + row * (GROUPS * 16) + word[None, :]
        groups = start + tl.arange(0, BLOCK_GROUPS)
        scale_at = scale_ptr + row * GROUPS + groups[None, :]
        if even:
            words = tl.load(words_at, eviction_policy="evict_first")
            scale = tl.load(scale_at).to(tl.float32)
        else:
            inside = (rows < K)[:, None] & (word < GROUPS * 16)[None, :]
            words = tl.load(words_at, mask=inside, other=0)
            scale_inside = (rows < K)[:, None] & (groups < GROUPS)[None, :]
            scale = tl.load(scale_at, mask=scale_inside, other=0.0).to(tl.float32)

        # Byte b of word w holds columns 4 w + b and 64 + 4 w + b of its group.
        cols = (word // 16 * _GROUP + word % 16 * 4)[:, None] + tl.arange(0, 4)[None, :]
        if even:
            x_low = tl.load(x_ptr + cols).to(tl.float32)
            x_high = tl.load(x_ptr + cols + _HALF).to(tl.float32)
        else:
            x_low = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            x_high = tl.load(x_ptr + cols + _HALF, mask=cols + _HALF < N, other=0.0).to(tl.float32)
        low_0, low_1, low_2, low_3 = columns_of_four(x_low, WORDS)
        high_0, high_1, high_2, high_3 = columns_of_four(x_high, WORDS)
        x_sum = (low_0 + low_1) + (low_2 + low_3) + ((high_0 + high_1) + (high_2 + high_3))

        first = words.to(tl.uint32, bitcast=True)  # its codes 0 to 4 lie below bit 23
        last = first >> 20  # codes 5 to 7
        sums = (x_sum * (-8 * _DOWN))[None, :]
        sums += masked_float(first, 0x0000F) * (low_0 * _UP)[None, :]
        sums += masked_float(first, 0x000F0) * (high_0 * (_UP / 0x10))[None, :]
        sums += masked_float(first, 0x00F00) * (low_1 * (_UP / 0x100))[None, :]
        sums += masked_float(first, 0x0F000) * (high_1 * (_UP / 0x1000))[None, :]
        sums += masked_float(first, 0xF0000) * (low_2 * (_UP / 0x10000))[None, :]
        sums += masked_float(last, 0x0000F) * (high_2 * _UP)[None, :]
        sums += masked_float(last, 0x000F0) * (low_3 * (_UP / 0x10))[None, :]
        sums += masked_float(last, 0x00F00) * (high_3 * (_UP / 0x100))[None, :]
        total += tl.sum(tl.reshape(sums, (ROWS, BLOCK_GROUPS, 16)), axis=2) * scale
    y = tl.sum(total, axis=1) * _BACK
    tl.store(out_ptr + rows, y.to(out_ptr.dtype.element_ty), mask=rows < K)


@triton.jit
def int4_gemm_kernel(
    x_ptr, packed_ptr, scale_ptr, out_ptr, tokens,
    N: tl.constexpr, K: tl.constexpr, GROUPS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Several tokens: the weight is the left operand, so that its codes go from registers into the product.

    Grid (tiles of k, tiles of T). One group a step: both halves are multiplied, then scaled together.
    """
    rows = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    token = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    byte = tl.arange(0, _HALF)
    row_start = rows.to(tl.int64) * GROUPS
    token_start = token.to(tl.int64)[:, None] * N
    dtype = x_ptr.dtype.element_ty
    total = tl.zeros((BLOCK_K, BLOCK_T), tl.float32)
    for group in range(GROUPS):
        packed_at = packed_ptr + (row_start + group)[:, None] * _HALF + byte[None, :]
        packed = tl.load(packed_at, mask=(rows < K)[:, None], other=0)
        scale = tl.load(scale_ptr + row_start + group, mask=rows < K, other=0.0).to(tl.float32)
        cols = group * _GROUP + byte[None, :]
        in_tokens = (token < tokens)[:, None]
        x_low = tl.load(x_ptr + token_start + cols, mask=in_tokens & (cols < N), other=0.0)
        x_high = tl.load(x_ptr + token_start + cols + _HALF, mask=in_tokens & (cols + _HALF < N), other=0.0)
        low, high = codes_of(packed)
        products = tl.dot(low.to(dtype), tl.trans(x_low), input_precision="ieee")
        products = tl.dot(high.to(dtype), tl.trans(x_high), products, input_precision="ieee")
        total += products * scale[:, None]
    out_at = out_ptr + token.to(tl.int64)[:, None] * K + rows[None, :]
    out_inside = (token < tokens)[:, None] & (rows < K)[None, :]
    tl.store(out_at, tl.trans(total).to(dtype), mask=out_inside)


def int4_linear(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """``x W^T`` over int4 weights in one kernel: x ``[T, n]``, result ``[T, k]``.

    packed is uint8 ``[k, ceil(n / 128) * 64]`` (:func:`pack_int4`), scale ``[k, ceil(n / 128)]``.
    """
    (tokens, n), (k, groups) = x.shape, scale.shape
    out = x.new_empty(tokens, k)
    if out.numel() == 0:
        return out
    if tokens == 1:
        rows, block_groups = 16 if k >= 8192 else 4, min(16, triton.next_power_of_2(groups))
        launch(
            int4_gemv_kernel, (triton.cdiv(k, rows),),
            x, packed.view(torch.int32), scale, out,
            N=n, K=k, GROUPS=groups, ROWS=rows, BLOCK_GROUPS=block_groups,
            WORDS=block_groups * 16, num_warps=4,
        )  # fmt: skip
    else:
        block_k, block_t = _gemm_tile(tokens, x.element_size())
        launch(
            int4_gemm_kernel, (triton.cdiv(k, block_k), triton.cdiv(tokens, block_t)),
            x, packed, scale, out, tokens,
            N=n, K=k, GROUPS=groups, BLOCK_K=block_k, BLOCK_T=block_t, num_warps=4, num_stages=4,
        )  # fmt: skip
    return out


# --- fp8 -----------------------------------------------------------------------------------------------------------


@triton.jit
def fp8_gemv_kernel(
    x_ptr, weight_ptr, scale_ptr, out_ptr,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One token: a program streams ROWS rows of e4m3 values; grid (tiles of k,)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * N
    total = tl.zeros((ROWS, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)[None, :]
        weight = tl.load(weight_ptr + row_start + cols, mask=(rows < K) & (cols < N), other=0.0)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0)
        total += weight.to(tl.float32) * x.to(tl.float32)
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    scale = tl.load(scale_ptr + out_rows, mask=out_rows < K, other=0.0).to(tl.float32)
    y = tl.sum(total, axis=1) * scale
    tl.store(out_ptr + out_rows, y.to(out_ptr.dtype.element_ty), mask=out_rows < K)


@triton.jit
def fp8_gemm_kernel(
    x_ptr, weight_ptr, scale_ptr, out_ptr, tokens,
    N: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Several tokens: the weight is the left operand, cast in registers to the dtype of x.

    Grid (tiles of k, tiles of T).
    """
    rows = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    token = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    row_start = rows.to(tl.int64)[:, None] * N
    token_start = token.to(tl.int64)[:, None] * N
    dtype = x_ptr.dtype.element_ty
    total = tl.zeros((BLOCK_K, BLOCK_T), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)[None, :]
        weight = tl.load(weight_ptr + row_start + cols, mask=(rows < K)[:, None] & (cols < N), other=0.0)
        x = tl.load(x_ptr + token_start + cols, mask=(token < tokens)[:, None] & (cols < N), other=0.0)
        total = tl.dot(weight.to(dtype), tl.trans(x), total, input_precision="ieee")
    scale = tl.load(scale_ptr + rows, mask=rows < K, other=0.0).to(tl.float32)
    out_at = out_ptr + token.to(tl.int64)[:, None] * K + rows[None, :]
    out_inside = (token < tokens)[:, None] & (rows < K)[None, :]
    tl.store(out_at, tl.trans(total * scale[:, None]).to(dtype), mask=out_inside)


def fp8_linear(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """``x W^T`` over e4m3 weights in one kernel: x ``[T, n]``, weight float8_e4m3fn ``[k, n]``, scale ``[k]``."""
    (tokens, n), k = x.shape, weight.shape[0]
    out = x.new_empty(tokens, k)
    if out.numel() == 0:
        return out
    if tokens == 1:
        rows, block_n = 2, min(4096, max(32, triton.next_power_of_2(n)))
        launch(
            fp8_gemv_kernel, (triton.cdiv(k, rows),),
            x, weight, scale, out, N=n, K=k, ROWS=rows, BLOCK_N=block_n, num_warps=2,
        )  # fmt: skip
    else:
        block_k, block_t = _gemm_tile(tokens, x.element_size())
        launch(
            fp8_gemm_kernel, (triton.cdiv(k, block_k), triton.cdiv(tokens, block_t)),
            x, weight, scale, out, tokens,
            N=n, K=k, BLOCK_K=block_k, BLOCK_T=block_t, BLOCK_N=64, num_warps=4, num_stages=4,
        )  # fmt: skip
    return out


def _gemm_tile(tokens: int, element_bytes: int) -> tuple[int, int]:
    """(rows of the weight, tokens) of a program: all tokens in one tile as long as they fit 64."""
    if element_bytes == 4:  # Float32 products run outside the matrix units, from registers: larger tiles would spill.
        return 32, 16
    return 64 if tokens > 16 else 32, min(64, max(16, triton.next_power_of_2(tokens)))
