# ruff: noqa: N803  (tile constants are upper case, as in every Triton kernel)
"""RMSNorm and the linear layer behind it in one Triton kernel, y = (x W*^T) * rsqrt(mean(x^2) + eps), and its algebra.

T tokens, hidden width n, output width k. W* is the layer's ``[k, n]`` weight with the norm's learned scale folded in
(:func:`fold_norm_weight`). The scale of a token does not depend on the column, so it may wait until after the product:
the kernels add the squares of x in the loop that multiplies it, and x is read from HBM once. Products and sums are
float32; results are rounded once, where they are stored. Widths are constants of a launch, token counts are not.

With many tokens x is the left operand of the product, and the squares come from a load of their own, out of cache:
Triton 3.6 on sm_90 let its software pipeline overwrite a tile of x while both an asynchronous matrix instruction and
the squares read it (relative errors of 2 to 5 % at 2,048 columns and more, none at fewer, where the loop is short). The
cache hint keeps the two loads from being merged. As the right operand, with few tokens, x showed no such error, and a
second load there cost up to four times the time.

Source: Graef, Makraduli, Wasielewski, Clapp, FlashNorm: fast normalization for transformers (arXiv 2407.09577).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.nn import functional

from workloads.base import launch, multiprocessors


@triton.jit
def norm_gemv_kernel(
    x_ptr, weight_ptr, out_ptr, eps,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One token: a program streams ROWS rows of the weight; grid (tiles of k,).

    Each program adds up the squares for itself: x is small and in cache, and programs need not wait for each other.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * N
    products = tl.zeros((ROWS, BLOCK_N), tl.float32)
    squares = tl.zeros((1, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)[None, :]
        weight = tl.load(weight_ptr + row_start + cols, mask=(rows < K) & (cols < N), other=0.0)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        products += weight.to(tl.float32) * x
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)  # [1], the same for every row
    y = tl.sum(products, axis=1) * scale
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + out_rows, y.to(out_ptr.dtype.element_ty), mask=out_rows < K)


@triton.jit
def norm_skinny_kernel(
    x_ptr, weight_ptr, out_ptr, tokens, eps,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A few tokens, all in one tile: the weight is the left operand, small tiles of k fill the SMs; grid (tiles of k,).

    With x on the left, a matrix instruction would need 64 tokens; here the weight fills it and the tokens are its
    narrow side.
    """
    rows = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    token = tl.arange(0, BLOCK_T)
    row_start = rows.to(tl.int64)[:, None] * N
    products = tl.zeros((BLOCK_K, BLOCK_T), tl.float32)
    squares = tl.zeros((BLOCK_T,), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        inside = (rows < K)[:, None] & (cols < N)[None, :]
        weight = tl.load(weight_ptr + row_start + cols[None, :], mask=inside, other=0.0)
        x_inside = (token < tokens)[:, None] & (cols < N)[None, :]
        x = tl.load(x_ptr + token[:, None] * N + cols[None, :], mask=x_inside, other=0.0)
        products = tl.dot(weight, tl.trans(x), products, input_precision="ieee")
        wide = x.to(tl.float32)
        squares += tl.sum(wide * wide, axis=1)
    scale = tl.rsqrt(squares / N + eps)
    y = tl.trans(products) * scale[:, None]
    out_inside = (token < tokens)[:, None] & (rows < K)[None, :]
    out_at = out_ptr + token.to(tl.int64)[:, None] * K + rows[None, :]
    tl.store(out_at, y.to(out_ptr.dtype.element_ty), mask=out_inside)


@triton.jit
def norm_tile_kernel(
    x_ptr, weight_ptr, out_ptr, tokens, eps,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_T: tl.constexpr,
):  # fmt: skip
    """Many tokens: a program computes a BLOCK_T x BLOCK_K tile of y; grid (tiles of T x tiles of k,).

    GROUP_T tiles of tokens are walked before the next tile of k, so that programs that run together share weights
    in L2 (the grouped order of Triton's matmul tutorial).
    """
    token_tiles = tl.cdiv(tokens, BLOCK_T)
    group_size = GROUP_T * tl.cdiv(K, BLOCK_K)
    first_tile = tl.program_id(0) // group_size * GROUP_T
    tiles_here = tl.minimum(token_tiles - first_tile, GROUP_T)
    token_tile = first_tile + tl.program_id(0) % group_size % tiles_here
    k_tile = tl.program_id(0) % group_size // tiles_here

    token = token_tile * BLOCK_T + tl.arange(0, BLOCK_T)
    rows = k_tile * BLOCK_K + tl.arange(0, BLOCK_K)
    token_start = token.to(tl.int64)[:, None] * N
    row_start = rows.to(tl.int64)[:, None] * N
    products = tl.zeros((BLOCK_T, BLOCK_K), tl.float32)
    squares = tl.zeros((BLOCK_T,), tl.float32)
    for start in range(0, N, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        x_inside = (token < tokens)[:, None] & (cols < N)[None, :]
        inside = (rows < K)[:, None] & (cols < N)[None, :]
        x = tl.load(x_ptr + token_start + cols[None, :], mask=x_inside, other=0.0)
        weight = tl.load(weight_ptr + row_start + cols[None, :], mask=inside, other=0.0)
        products = tl.dot(x, tl.trans(weight), products, input_precision="ieee")
        x_at = x_ptr + token_start + cols[None, :]
        wide = tl.load(x_at, mask=x_inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        squares += tl.sum(wide * wide, axis=1)
    y = products * tl.rsqrt(squares / N + eps)[:, None]
    out_inside = (token < tokens)[:, None] & (rows < K)[None, :]
    out_at = out_ptr + token.to(tl.int64)[:, None] * K + rows[None, :]
    tl.store(out_at, y.to(out_ptr.dtype.element_ty), mask=out_inside)


def norm_linear(x: torch.Tensor, folded: torch.Tensor, eps: float) -> torch.Tensor:
    """``(x folded^T) * rsqrt(mean(x^2) + eps)`` in one kernel: x ``[T, n]``, folded ``[k, n]``, result ``[T, k]``.

    One token takes a streaming matrix-vector kernel, up to 64 one tile of all tokens, more a tiled product.
    """
    (tokens, n), k = x.shape, folded.shape[0]
    out = x.new_empty(tokens, k)
    if out.numel() == 0:
        return out
    if tokens == 1:
        rows, block_n = (8, 512) if n >= 4096 else (4, min(1024, max(32, triton.next_power_of_2(n))))
        launch(
            norm_gemv_kernel, (triton.cdiv(k, rows),),
            x, folded, out, eps, N=n, K=k, ROWS=rows, BLOCK_N=block_n, num_warps=2,
        )  # fmt: skip
    elif tokens <= 64:
        block_n, stages = (64, 5) if n <= 1024 else (256, 3) if n < 4096 else (128, 5)
        if x.element_size() == 4:  # Float32 products run outside the matrix units, from registers.
            block_n, stages = 64, 3
        launch(
            norm_skinny_kernel, (triton.cdiv(k, 64),),
            x, folded, out, tokens, eps,
            N=n, K=k, BLOCK_T=max(16, triton.next_power_of_2(tokens)), BLOCK_K=64, BLOCK_N=block_n,
            num_warps=4, num_stages=stages,
        )  # fmt: skip
    else:
        halves = x.element_size() == 2
        wide = halves and triton.cdiv(tokens, 128) * triton.cdiv(k, 256) >= multiprocessors(x.device) // 2
        block_t, block_k, warps, stages = (128, 256, 8, 3) if wide else (64, 64, 4, 4)
        launch(
            norm_tile_kernel, (triton.cdiv(tokens, block_t) * triton.cdiv(k, block_k),),
            x, folded, out, tokens, eps,
            N=n, K=k, BLOCK_T=block_t, BLOCK_K=block_k, BLOCK_N=64 if halves else 32, GROUP_T=8,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out


def one_kernel_pays(tokens: int, n: int) -> bool:
    """Whether :func:`norm_linear` is expected to be faster than a norm and the library's product, in 16-bit dtypes.

    Fitted to an H200's times, both sides under a CUDA graph, at 1 to 4,096 tokens and (n, k) of (576, 960),
    (2048, 3072) and (4096, 6144): with few tokens a launch and its gap are most of the time, and from some tokens on
    the library's product gains more than they cost. An earlier rule went on to 512 tokens up to n = 1024, and was up
    to 1.3 times too slow at (1024, 1536), which it had not been fitted to. RESULTS.md has the figures.
    """
    if n <= 576:
        return tokens <= 512
    return tokens <= (32 if n >= 4096 else 16)


# --- the algebra, in library calls ---------------------------------------------------------------------------------


def fold_norm_weight(weight: torch.Tensor, norm_weight: torch.Tensor) -> torch.Tensor:
    """``weight diag(norm_weight)``: a ``[k, n]`` linear weight that takes the norm's ``[n]`` scale upon itself.

    The product is rounded once, to the weight's dtype.
    """
    return (weight.float() * norm_weight.float()).to(weight.dtype)


def inverse_rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    """``rsqrt(mean(x^2) + eps)`` of each row, ``[T, 1]``, in float32 (float64 for float64)."""
    wide = x if x.dtype == torch.float64 else x.float()
    return torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)


def deferred_swiglu(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, eps: float
) -> torch.Tensor:
    """RMSNorm and a SwiGLU feed-forward, ``((x up^T) * silu((x gate^T) s)) down^T * s`` with s = :func:`inverse_rms`.

    gate and up ``[f, n]`` are folded, down is ``[n, f]``. The gate's scale must come before the SiLU, which is not
    linear; the up product's is linear all the way and moves to the output: n multiplications a token, not f.
    """
    scale = inverse_rms(x, eps)
    gated = functional.silu((functional.linear(x, gate) * scale).to(x.dtype))
    product = functional.linear(functional.linear(x, up) * gated, down)
    return (product * scale).to(x.dtype)


def deferred_qkv(
    x: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """RMSNorm, the three attention projections and RoPE, with the norm's scale inside cos and sin.

    q, k and v ``[heads * head_dim, n]`` are folded (k and v may have fewer heads), cos and sin are ``[T, head_dim]``.
    Returns q, k, v as ``[T, heads, head_dim]``. RoPE is linear, so scaling its 2 head_dim factors a token replaces
    scaling every head of q and k; v has no RoPE and needs a scale of its own. RoPE pairs are the two halves of a head.
    """
    scale = inverse_rms(x, eps)
    width = cos.shape[-1]
    scaled_cos, scaled_sin = (cos * scale)[:, None, :], (sin * scale)[:, None, :]

    def heads(weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weight).unflatten(-1, (-1, width))

    def rotated(projected: torch.Tensor) -> torch.Tensor:
        first, second = projected.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return (projected * scaled_cos + turned * scaled_sin).to(x.dtype)

    return rotated(heads(q)), rotated(heads(k)), (heads(v) * scale[:, None, :]).to(x.dtype)
