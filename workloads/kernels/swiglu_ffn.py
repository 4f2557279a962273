# ruff: noqa: N803  (tile constants are upper case, as in every Triton kernel)
"""Triton kernels of the SwiGLU feed-forward y = (silu(x Wg^T) * (x Wu^T)) Wd^T, from one activation to one kernel.

T tokens, hidden width d, intermediate width f. Weights lie as ``torch.nn.Linear`` keeps them: gate and up are
``[f, d]``, down is ``[d, f]``; a row is contiguous. ``down_rows`` is the down matrix stored ``[f, d]``, prepared once.
Widths are constants of a launch, token counts are not. Products and sums are float32; results are rounded to the
dtype of x once, where they are stored.

Fusion levels follow Zhang et al., Deep Kernel Fusion for Transformers (ACL 2026 short papers, pp. 166-173).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from workloads.base import launch, multiprocessors

WIDEST_ONE_KERNEL = 8192
"""Hidden width up to which a block of :func:`one_kernel` can keep its partial output in registers (elements)."""

SPILLING_TILE = 256
"""Side of a tile of :func:`one_kernel_tiled` that is too large for a block's registers (elements)."""


@triton.jit
def silu(x):
    """x * sigmoid(x)."""
    return x * tl.sigmoid(x)


# --- the activation alone: what follows a merged gate_up product ---------------------------------------------------


@triton.jit
def silu_and_mul_kernel(gate_up_ptr, out_ptr, F: tl.constexpr, BLOCK: tl.constexpr):
    """``out[t, j] = silu(gate_up[t, j]) * gate_up[t, f + j]``; grid (tiles of j, T)."""
    token = tl.program_id(1).to(tl.int64)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < F
    gate = tl.load(gate_up_ptr + token * 2 * F + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + token * 2 * F + F + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * F + cols, (silu(gate) * up).to(out_ptr.dtype.element_ty), mask=inside)


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """The activation of a merged product: ``[T, 2 f]`` (gate columns first) to ``[T, f]``, in one kernel."""
    tokens, f = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(tokens, f)
    if out.numel() == 0:
        return out
    block = min(1024, triton.next_power_of_2(f))
    launch(silu_and_mul_kernel, (triton.cdiv(f, block), tokens), gate_up, out, F=f, BLOCK=block, num_warps=4)
    return out


# --- gate, up and activation in one kernel -------------------------------------------------------------------------


@triton.jit
def gate_up_gemv_kernel(
    x_ptr, gate_ptr, up_ptr, out_ptr,
    D: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One token: a program owns ROWS rows of gate and up and streams them; grid (tiles of f,).

    The products are summed element by element and reduced once, after the loop, so that nothing but loads and
    multiply-adds is on the path. Every pointer tile has two dimensions: then x has the weights' layout, and no
    exchange through shared memory is needed.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * D
    gate_sum = tl.zeros((ROWS, BLOCK_D), tl.float32)
    up_sum = tl.zeros((ROWS, BLOCK_D), tl.float32)
    for start in range(0, D, BLOCK_D):
        cols = start + tl.arange(0, BLOCK_D)[None, :]
        inside = (rows < F) & (cols < D)
        gate = tl.load(gate_ptr + row_start + cols, mask=inside, other=0.0)
        up = tl.load(up_ptr + row_start + cols, mask=inside, other=0.0)
        x = tl.load(x_ptr + cols, mask=cols < D, other=0.0).to(tl.float32)
        gate_sum += gate.to(tl.float32) * x
        up_sum += up.to(tl.float32) * x
    activated = silu(tl.sum(gate_sum, axis=1)) * tl.sum(up_sum, axis=1)
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + out_rows, activated.to(out_ptr.dtype.element_ty), mask=out_rows < F)


@triton.jit
def gate_up_skinny_kernel(
    x_ptr, gate_ptr, up_ptr, out_ptr, tokens,
    D: tl.constexpr, F: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A few tokens (all in one tile): weights are the left operand, small tiles of f fill the SMs; grid (tiles of f,).

    With x on the left, a matrix instruction would need 64 tokens; here the weights fill it and the tokens are its
    narrow side.
    """
    rows = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    token = tl.arange(0, BLOCK_T)
    row_start = rows.to(tl.int64)[:, None] * D
    gate_sum = tl.zeros((BLOCK_F, BLOCK_T), tl.float32)
    up_sum = tl.zeros((BLOCK_F, BLOCK_T), tl.float32)
    for start in range(0, D, BLOCK_D):
        cols = start + tl.arange(0, BLOCK_D)
        inside = (rows < F)[:, None] & (cols < D)[None, :]
        gate = tl.load(gate_ptr + row_start + cols[None, :], mask=inside, other=0.0)
        up = tl.load(up_ptr + row_start + cols[None, :], mask=inside, other=0.0)
        x_inside = (token < tokens)[:, None] & (cols < D)[None, :]
        x = tl.load(x_ptr + token[:, None] * D + cols[None, :], mask=x_inside, other=0.0)
        gate_sum = tl.dot(gate, tl.trans(x), gate_sum, input_precision="ieee")
        up_sum = tl.dot(up, tl.trans(x), up_sum, input_precision="ieee")
    activated = tl.trans(silu(gate_sum) * up_sum).to(out_ptr.dtype.element_ty)
    out_inside = (token < tokens)[:, None] & (rows < F)[None, :]
    tl.store(out_ptr + token.to(tl.int64)[:, None] * F + rows[None, :], activated, mask=out_inside)


@triton.jit
def gate_up_tile_kernel(
    x_ptr, gate_ptr, up_ptr, out_ptr, tokens,
    D: tl.constexpr, F: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr, GROUP_T: tl.constexpr,
):  # fmt: skip
    """Many tokens: a program computes a BLOCK_T x BLOCK_F tile of both products; grid (tiles of T x tiles of f,).

    GROUP_T tiles of tokens are walked before the next tile of f, so that programs that run together share weights
    in L2 (the grouped order of Triton's matmul tutorial).
    """
    token_tiles = tl.cdiv(tokens, BLOCK_T)
    group_size = GROUP_T * tl.cdiv(F, BLOCK_F)
    first_tile = tl.program_id(0) // group_size * GROUP_T
    tiles_here = tl.minimum(token_tiles - first_tile, GROUP_T)
    token_tile = first_tile + tl.program_id(0) % group_size % tiles_here
    f_tile = tl.program_id(0) % group_size // tiles_here

    token = token_tile * BLOCK_T + tl.arange(0, BLOCK_T)
    rows = f_tile * BLOCK_F + tl.arange(0, BLOCK_F)
    token_start = token.to(tl.int64)[:, None] * D
    row_start = rows.to(tl.int64)[:, None] * D
    gate_sum = tl.zeros((BLOCK_T, BLOCK_F), tl.float32)
    up_sum = tl.zeros((BLOCK_T, BLOCK_F), tl.float32)
    for start in range(0, D, BLOCK_D):
        cols = start + tl.arange(0, BLOCK_D)
        x_inside = (token < tokens)[:, None] & (cols < D)[None, :]
        inside = (rows < F)[:, None] & (cols < D)[None, :]
        x = tl.load(x_ptr + token_start + cols[None, :], mask=x_inside, other=0.0)
        gate = tl.load(gate_ptr + row_start + cols[None, :], mask=inside, other=0.0)
        up = tl.load(up_ptr + row_start + cols[None, :], mask=inside, other=0.0)
        gate_sum = tl.dot(x, tl.trans(gate), gate_sum, input_precision="ieee")
        up_sum = tl.dot(x, tl.trans(up), up_sum, input_precision="ieee")
    activated = (silu(gate_sum) * up_sum).to(out_ptr.dtype.element_ty)
    out_inside = (token < tokens)[:, None] & (rows < F)[None, :]
    tl.store(out_ptr + token.to(tl.int64)[:, None] * F + rows[None, :], activated, mask=out_inside)


def gate_up_silu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``silu(x gate^T) * (x up^T)`` in one kernel: x ``[T, d]``, gate and up ``[f, d]``, result ``[T, f]``.

    One token takes a streaming matrix-vector kernel, up to 64 one tile of all tokens, more a tiled product.
    """
    (tokens, d), f = x.shape, gate.shape[0]
    out = x.new_empty(tokens, f)
    if out.numel() == 0:
        return out
    sms = multiprocessors(x.device)
    halves = x.element_size() == 2
    if tokens == 1:
        # One row of both a program reaches an H200's copy bandwidth at d = 4,096; four rows took 1.6 times as long.
        block_d = min(2048, max(32, triton.next_power_of_2(d)))
        launch(
            gate_up_gemv_kernel, (f,),
            x, gate, up, out, D=d, F=f, ROWS=1, BLOCK_D=block_d, num_warps=8 if block_d == 2048 else 4,
        )  # fmt: skip
    elif tokens <= 64:
        block_t, wide = max(16, triton.next_power_of_2(tokens)), halves and d > 1024
        launch(
            gate_up_skinny_kernel, (triton.cdiv(f, 64),),
            x, gate, up, out, tokens,
            D=d, F=f, BLOCK_T=block_t, BLOCK_F=64, BLOCK_D=128 if wide else 64 if halves else 32,
            num_warps=4, num_stages=3 if wide and block_t == 16 else 4 if halves else 3,
        )  # fmt: skip
    else:
        # Float32 products run outside the matrix units, from registers: larger tiles would spill.
        large = halves and triton.cdiv(tokens, 128) * triton.cdiv(f, 64) >= sms
        block_t, block_f, warps = (128, 128, 8) if large else (64, 64, 4 if halves else 8)
        launch(
            gate_up_tile_kernel, (triton.cdiv(tokens, block_t) * triton.cdiv(f, block_f),),
            x, gate, up, out, tokens,
            D=d, F=f, BLOCK_T=block_t, BLOCK_F=block_f, BLOCK_D=64 if halves else 32, GROUP_T=8,
            num_warps=warps, num_stages=4 if large and tokens <= 128 else 3,
        )  # fmt: skip
    return out


# --- the down projection of one token ------------------------------------------------------------------------------


@triton.jit
def down_gemv_kernel(
    h_ptr, down_ptr, out_ptr,
    D: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """One token: a program streams ROWS rows of the down matrix; grid (tiles of d,)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_start = rows.to(tl.int64) * F
    total = tl.zeros((ROWS, BLOCK_F), tl.float32)
    for start in range(0, F, BLOCK_F):
        cols = start + tl.arange(0, BLOCK_F)[None, :]
        down = tl.load(down_ptr + row_start + cols, mask=(rows < D) & (cols < F), other=0.0)
        h = tl.load(h_ptr + cols, mask=cols < F, other=0.0).to(tl.float32)
        total += down.to(tl.float32) * h
    out_rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + out_rows, tl.sum(total, axis=1).to(out_ptr.dtype.element_ty), mask=out_rows < D)


def down_gemv(h: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """``h down^T`` for one token: h ``[1, f]``, down ``[d, f]``, result ``[1, d]``, in one kernel.

    Splitting f among programs was measured too: at d = 4,096 one program a row is enough to fill an H200.
    """
    d, f = down.shape
    out = h.new_empty(1, d)
    block_f = min(1024, max(32, triton.next_power_of_2(f)))
    launch(down_gemv_kernel, (d,), h, down, out, D=d, F=f, ROWS=1, BLOCK_F=block_f, num_warps=4)
    return out


# --- the whole feed-forward of one token in one kernel -------------------------------------------------------------

COMPUTE = 1
"""Phase of a one-kernel launch: each block writes its partial output."""
ADD = 2
"""Phase of a one-kernel launch: the partial outputs are added."""


@triton.jit
def wait_for_grid(arrivals_ptr):
    """Returns when every block of the launch has arrived; all blocks must be on the GPU together (cooperative launch).

    The count only grows: a launch ends it at a multiple of its blocks, so it needs no reset between launches.
    """
    tl.debug_barrier()  # Every thread of this block has stored before one of them reports it.
    blocks = tl.num_programs(0)
    ticket = tl.atomic_add(arrivals_ptr, 1, sem="acq_rel")
    target = (ticket // blocks + 1) * blocks
    arrived = ticket + 1
    while arrived < target:
        arrived = tl.atomic_add(arrivals_ptr, 0, sem="acquire")
    tl.debug_barrier()


@triton.jit
def add_partials(partial_ptr, out_ptr, D: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr):
    """``out[j]`` = the sum over blocks of ``partial[block, j]``, each block adding its share of columns."""
    part = tl.arange(0, PARTS)[:, None]
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = (part < tl.num_programs(0)) & (cols < D)[None, :]
    # ".cg" reads from L2, where the other SMs' stores are.
    parts = tl.load(partial_ptr + part * D + cols[None, :], mask=inside, other=0.0, cache_modifier=".cg")
    tl.store(out_ptr + cols, tl.sum(parts, axis=0).to(out_ptr.dtype.element_ty), mask=cols < D)


@triton.jit
def one_kernel_kernel(
    x_ptr, gate_ptr, up_ptr, down_rows_ptr, partial_ptr, arrivals_ptr, out_ptr,
    D: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
    STEPS: tl.constexpr, STAGES: tl.constexpr,
    PHASES: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One token, persistent: a block takes every n-th group of ROWS intermediate columns; grid (blocks,).

    Gate, up and down are all read as whole contiguous rows, once. x and the block's partial output stay in registers
    (BLOCK_D >= d); copies of the next rows into shared memory run STAGES ahead of the arithmetic. Then each block
    writes its partial output, and behind a grid barrier the blocks add them.
    """
    if PHASES & 1:
        cols = tl.arange(0, BLOCK_D)[None, :]
        in_row = cols < D
        x = tl.load(x_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        total = tl.zeros((1, BLOCK_D), tl.float32)
        for step in tl.range(0, STEPS, num_stages=STAGES):
            rows = (step * tl.num_programs(0) + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)[:, None]
            offset = rows.to(tl.int64) * D + cols
            inside = (rows < F) & in_row
            gate = tl.load(gate_ptr + offset, mask=inside, other=0.0)
            up = tl.load(up_ptr + offset, mask=inside, other=0.0)
            down = tl.load(down_rows_ptr + offset, mask=inside, other=0.0)
            gate_sum = tl.sum(gate.to(tl.float32) * x, axis=1, keep_dims=True)
            up_sum = tl.sum(up.to(tl.float32) * x, axis=1, keep_dims=True)
            activated = silu(gate_sum) * up_sum
            total += tl.sum(down.to(tl.float32) * activated, axis=0, keep_dims=True)
        tl.store(partial_ptr + tl.program_id(0).to(tl.int64) * D + cols, total, mask=in_row)
    if PHASES == 3:
        wait_for_grid(arrivals_ptr)
    if PHASES & 2:
        add_partials(partial_ptr, out_ptr, D, COLS, PARTS)


@triton.jit
def one_kernel_tiled_kernel(
    x_ptr, gate_ptr, up_ptr, down_rows_ptr, partial_ptr, arrivals_ptr, out_ptr,
    D: tl.constexpr, F: tl.constexpr, TILE_F: tl.constexpr, TILE_D: tl.constexpr,
    PHASES: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One token: a block owns TILE_F intermediate columns and walks d in tiles of TILE_F x TILE_D; grid (tiles of f,).

    Both running sums are tiles too. At 256 x 256 with eight warps that is 512 float32 values a thread, twice the 255
    registers that a thread can have: they spill to local memory. It also leaves SMs empty: the grid has f / 256 blocks.
    """
    if PHASES & 1:
        rows = tl.program_id(0) * TILE_F + tl.arange(0, TILE_F)[:, None]
        row_start = rows.to(tl.int64) * D
        gate_sum = tl.zeros((TILE_F, TILE_D), tl.float32)
        up_sum = tl.zeros((TILE_F, TILE_D), tl.float32)
        for start in range(0, D, TILE_D):
            cols = start + tl.arange(0, TILE_D)[None, :]
            inside = (rows < F) & (cols < D)
            x = tl.load(x_ptr + cols, mask=cols < D, other=0.0).to(tl.float32)
            gate_sum += tl.load(gate_ptr + row_start + cols, mask=inside, other=0.0).to(tl.float32) * x
            up_sum += tl.load(up_ptr + row_start + cols, mask=inside, other=0.0).to(tl.float32) * x
        activated = silu(tl.sum(gate_sum, axis=1, keep_dims=True)) * tl.sum(up_sum, axis=1, keep_dims=True)
        for start in range(0, D, TILE_D):
            cols = start + tl.arange(0, TILE_D)[None, :]
            inside = (rows < F) & (cols < D)
            down = tl.load(down_rows_ptr + row_start + cols, mask=inside, other=0.0).to(tl.float32)
            total = tl.sum(down * activated, axis=0, keep_dims=True)
            tl.store(partial_ptr + tl.program_id(0).to(tl.int64) * D + cols, total, mask=cols < D)
    if PHASES == 3:
        wait_for_grid(arrivals_ptr)
    if PHASES & 2:
        add_partials(partial_ptr, out_ptr, D, COLS, PARTS)


@dataclass(frozen=True)
class GridPartials:
    """Memory that the blocks of a one-kernel launch share.

    ``partial`` is float32 ``[blocks, d]``, one row a block; ``arrivals`` one int64 count, zero at first. One
    GridPartials serves launches of one kernel in one stream only.
    """

    partial: torch.Tensor
    arrivals: torch.Tensor

    @classmethod
    def of(cls, d: int, device: torch.device | str, blocks: int | None = None) -> GridPartials:
        """Room for a launch of ``blocks`` blocks; by default one an SM."""
        rows = multiprocessors(torch.device(device)) if blocks is None else blocks
        return cls(
            torch.empty(rows, d, dtype=torch.float32, device=device),
            torch.zeros(1, dtype=torch.int64, device=device),
        )

    @property
    def blocks(self) -> int:
        """The number of blocks of a launch."""
        return len(self.partial)


def one_kernel(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down_rows: torch.Tensor,
    room: GridPartials,
    rows: int = 2,
    stages: int | None = None,
) -> torch.Tensor:
    """The feed-forward of one token in one kernel: x ``[1, d]``, all three weights ``[f, d]``, result ``[1, d]``.

    ``stages - 1`` groups of ``rows`` rows of each weight are in flight in shared memory; by default as many as fit, up
    to three: 147 kB at d = 4096 in bfloat16.
    """
    (tokens, d), f = x.shape, gate.shape[0]
    if tokens != 1 or d > WIDEST_ONE_KERNEL:
        raise ValueError(f"one_kernel takes one token of at most {WIDEST_ONE_KERNEL} values, not {tokens} of {d}")
    out = torch.empty_like(x)
    block_d = max(32, triton.next_power_of_2(d))
    if stages is None:
        stages = 1 + max(1, min(3, 200 * 1024 // (3 * rows * block_d * gate.element_size())))
    for phases in _phases(one_kernel_kernel, room.blocks):
        launch(
            one_kernel_kernel, (room.blocks,),
            x, gate, up, down_rows, room.partial, room.arrivals, out,
            D=d, F=f, ROWS=rows, BLOCK_D=block_d, STEPS=triton.cdiv(f, rows * room.blocks), STAGES=stages,
            PHASES=phases, **_adding(room, d), num_warps=8, launch_cooperative_grid=True,
        )  # fmt: skip
    return out


def one_kernel_tiled(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down_rows: torch.Tensor,
    room: GridPartials,
    tile_f: int = SPILLING_TILE,
    tile_d: int = SPILLING_TILE,
) -> torch.Tensor:
    """The feed-forward of one token in one kernel of ``tile_f`` x ``tile_d`` tiles; the default ones spill.

    x ``[1, d]``, all three weights ``[f, d]``, result ``[1, d]``; ``room`` has a row for each tile of f.
    """
    (tokens, d), f = x.shape, gate.shape[0]
    blocks = triton.cdiv(f, tile_f)
    if tokens != 1 or room.blocks != blocks:
        raise ValueError(f"expected one token and {blocks} blocks, got {tokens} and {room.blocks}")
    out = torch.empty_like(x)
    for phases in _phases(one_kernel_tiled_kernel, blocks):
        launch(
            one_kernel_tiled_kernel, (blocks,),
            x, gate, up, down_rows, room.partial, room.arrivals, out,
            D=d, F=f, TILE_F=tile_f, TILE_D=tile_d, PHASES=phases, **_adding(room, d),
            num_warps=8, maxnreg=255, launch_cooperative_grid=True,
        )  # fmt: skip
    return out


# --- the whole feed-forward in one kernel of independent tiles -----------------------------------------------------


@triton.jit
def one_kernel_recompute_kernel(
    x_ptr, gate_ptr, up_ptr, down_ptr, out_ptr, tokens,
    D: tl.constexpr, F: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_OUT: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """A program owns a BLOCK_T x BLOCK_OUT output tile and computes the whole intermediate row of its tokens for it.

    Grid (tiles of T, tiles of d). Programs share nothing and need no second phase; gate and up are read, and their
    products computed, once for every tile of d.
    """
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    out_cols = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    token_start = token.to(tl.int64)[:, None] * D
    total = tl.zeros((BLOCK_T, BLOCK_OUT), tl.float32)
    for f_start in range(0, F, BLOCK_F):
        rows = f_start + tl.arange(0, BLOCK_F)
        row_start = rows.to(tl.int64)[:, None] * D
        gate_sum = tl.zeros((BLOCK_T, BLOCK_F), tl.float32)
        up_sum = tl.zeros((BLOCK_T, BLOCK_F), tl.float32)
        for start in range(0, D, BLOCK_D):
            cols = start + tl.arange(0, BLOCK_D)
            x_inside = (token < tokens)[:, None] & (cols < D)[None, :]
            inside = (rows < F)[:, None] & (cols < D)[None, :]
            x = tl.load(x_ptr + token_start + cols[None, :], mask=x_inside, other=0.0)
            gate = tl.load(gate_ptr + row_start + cols[None, :], mask=inside, other=0.0)
            up = tl.load(up_ptr + row_start + cols[None, :], mask=inside, other=0.0)
            gate_sum = tl.dot(x, tl.trans(gate), gate_sum, input_precision="ieee")
            up_sum = tl.dot(x, tl.trans(up), up_sum, input_precision="ieee")
        # Rounded to the dtype of x: the down product then runs at the matrix units' full rate.
        activated = (silu(gate_sum) * up_sum).to(x_ptr.dtype.element_ty)
        down_inside = (out_cols < D)[:, None] & (rows < F)[None, :]
        down_at = down_ptr + out_cols.to(tl.int64)[:, None] * F + rows[None, :]
        down = tl.load(down_at, mask=down_inside, other=0.0)
        total = tl.dot(activated, tl.trans(down), total, input_precision="ieee")
    out_inside = (token < tokens)[:, None] & (out_cols < D)[None, :]
    tl.store(out_ptr + token_start + out_cols[None, :], total.to(out_ptr.dtype.element_ty), mask=out_inside)


def one_kernel_recompute(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """The feed-forward in one kernel of independent output tiles.

    x and the result are ``[T, d]``, gate and up ``[f, d]``, down ``[d, f]``. Gate and up are read ``ceil(d / tile)``
    times: a design for small shapes, and a lesson at large ones.
    """
    (tokens, d), f = x.shape, gate.shape[0]
    out = torch.empty_like(x)
    if out.numel() == 0:
        return out
    halves = x.element_size() == 2
    block_t = min(64 if halves else 16, max(16, triton.next_power_of_2(tokens)))
    block_out = 32 if block_t == 16 else 128
    launch(
        one_kernel_recompute_kernel, (triton.cdiv(tokens, block_t), triton.cdiv(d, block_out)),
        x, gate, up, down, out, tokens,
        D=d, F=f, BLOCK_T=block_t, BLOCK_OUT=block_out, BLOCK_F=64, BLOCK_D=64 if halves else 32,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


# --- launch parameters ---------------------------------------------------------------------------------------------


def _phases(kernel: object, blocks: int) -> tuple[int, ...]:
    """One launch with a grid barrier on a GPU. The interpreter runs blocks one by one, so none may wait for another."""
    interpreted = not isinstance(kernel, triton.JITFunction)
    return (COMPUTE, ADD) if interpreted and blocks > 1 else (COMPUTE | ADD,)


def _adding(room: GridPartials, d: int) -> dict[str, int]:
    """Tile of :func:`add_partials`: all partials of a block's share of the columns."""
    share = max(16, triton.next_power_of_2(triton.cdiv(d, room.blocks)))
    return {"COLS": share, "PARTS": triton.next_power_of_2(room.blocks)}
