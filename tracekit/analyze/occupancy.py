"""How many blocks of a launch one SM holds at once, and what limits them: NVIDIA's occupancy formulas over columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from tracekit.model.schema import pandas_dtype
from tracekit.model.tables import COUNTERS, REGION_METRICS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_KB: Final = 1024

WARP_THREADS: Final = 32
MAX_THREADS: Final = 1024
"""Threads of the largest block."""
MAX_REGISTERS: Final = 255
"""Registers of the most demanding thread."""
REGISTERS: Final = 65536
"""Registers of an SM, and of the most demanding block."""
REGISTER_UNIT: Final = 256
"""Registers are handed to a warp in multiples of this."""
PARTITIONS: Final = 4
"""Sub-partitions of an SM: each has its own quarter of the registers."""


@dataclass(frozen=True)
class Limits:
    """What one SM of a compute capability holds. Shared memory in bytes; the rest are counts.

    ``reserved_bytes`` is what the driver adds to every block, ``smem_unit_bytes`` what a block's sum is rounded up to.
    ``barriers`` is named barriers for each block slot; None where barriers limit nothing.
    """

    warps: int
    blocks: int
    smem_bytes: int
    block_smem_bytes: int
    reserved_bytes: int
    smem_unit_bytes: int
    barriers: int | None


LIMITS: Final[dict[tuple[int, int], Limits]] = {
    (7, 0): Limits(64, 32, 96 * _KB, 96 * _KB, 0, 256, None),
    (7, 5): Limits(32, 16, 64 * _KB, 64 * _KB, 0, 256, None),
    (8, 0): Limits(64, 32, 164 * _KB, 163 * _KB, _KB, 128, None),
    (8, 6): Limits(48, 16, 100 * _KB, 99 * _KB, _KB, 128, None),
    (8, 7): Limits(48, 16, 164 * _KB, 163 * _KB, _KB, 128, None),
    (8, 9): Limits(48, 24, 100 * _KB, 99 * _KB, _KB, 128, None),
    (9, 0): Limits(64, 32, 228 * _KB, 227 * _KB, _KB, 128, 2),
    (10, 0): Limits(64, 32, 228 * _KB, 227 * _KB, _KB, 128, 2),
    (11, 0): Limits(48, 24, 228 * _KB, 227 * _KB, _KB, 128, 1),
    (12, 0): Limits(48, 24, 100 * _KB, 99 * _KB, _KB, 128, 1),
}
"""By compute capability. Source: CUDA Programming Guide, appendix Compute Capabilities (warps, blocks, shared memory);
CUDA 13.0 ``cuda_occupancy.h`` (units, barriers, 7.0); CUDA Best Practices Guide (64 warps of 7.0)."""

_LIMITERS: Final = ("registers", "shared memory", "warps", "blocks", "barriers", "grid")
_LIMITER_TEXTS: Final = np.array(
    [" and ".join(name for bit, name in enumerate(_LIMITERS) if code >> bit & 1) or None for code in range(64)],
    dtype=object,
)
"""The text of every set of limiters: bit n of the index stands for the n-th name."""

_OPTIONAL: Final = ("configured_smem_bytes", "barriers_count", "cluster_blocks")
_INPUTS: Final = (
    "threads",
    "registers_count",
    "static_smem_bytes",
    "dynamic_smem_bytes",
    "grid_blocks",
    *_OPTIONAL,
)
_OUTPUTS: Final = (
    *(COUNTERS[f"limit_{name}_count"] for name in ("registers", "shared_memory", "warps", "blocks", "barriers")),
    *(REGION_METRICS[name] for name in ("active_blocks_count", "occupancy_limiter", "sm_fill_ratio", "waves")),
    COUNTERS["theoretical_occupancy_ratio"],
)


def is_known(cc: tuple[int, int]) -> bool:
    """Whether the limits of that compute capability (major, minor) are in the table."""
    return cc in LIMITS


def active_blocks(launches: pd.DataFrame, *, cc: tuple[int, int], sm_count: int | None) -> pd.DataFrame:
    """The blocks that one SM can hold of each launch, one row a launch, with the index of ``launches``.

    ``launches``, all on one GPU of compute capability ``cc`` (major, minor) with ``sm_count`` SMs, has the columns

    - ``threads``: threads of a block; ``grid_blocks``: blocks of the grid;
    - ``registers_count``: registers of a thread;
    - ``static_smem_bytes``, ``dynamic_smem_bytes``: shared memory that a block asks for, without the driver's share;
    - ``configured_smem_bytes``: shared memory that the SM was configured with, as reports record it
      (``sharedMemoryExecuted``, ``launch__shared_mem_config_size``). It is a fact and no preference, so it is used as
      it is. NA or no such column: the most that the GPU has;
    - ``barriers_count``: named barriers of a block, and ``cluster_blocks``: blocks of a cluster (0 and 1 are no
      cluster). NA or no such column: unknown.

    The result has, typed and described as in :mod:`tracekit.model.tables`,

    - ``limit_*_count``: blocks that each resource alone allows; shared memory and barriers are capped at the block
      slots, as ncu caps them. 0 where the block can never launch. Barriers are NA where unknown and before 9.0, where
      they limit nothing;
    - ``active_blocks_count``: the least of them; NA where an input it needs is missing or the GPU is not in the table;
    - ``occupancy_limiter``: every resource that allows no more than that, joined by " and ", and "grid" where the grid
      has fewer blocks than all SMs hold at once;
    - ``waves`` = grid_blocks / (sm_count * active), ``sm_fill_ratio`` = the same, at most 1, and
      ``theoretical_occupancy_ratio`` = active * warps of a block / warp slots; NA where a factor is unknown or 0;
    - ``upper_bound``, a plain bool: true where the figure may be too high, because clusters place blocks together or
      because clusters or barriers are unknown on 9.0 and later.

    The formulas are those of CUDA 13.0's ``cuda_occupancy.h``.
    """
    threads, registers, static, dynamic, grid, configured, barriers, cluster = (
        _floats(launches, name) for name in _INPUTS
    )
    if not is_known(cc):
        return _frame({}, np.zeros(len(launches), dtype=np.bool_), launches.index)
    gpu = LIMITS[cc]

    # NaN stands for a missing value from here on, and infinity for a limit that a launch does not touch: both pass
    # through the arithmetic, so that no step needs a mask. Every integer here is far below 2**53, hence exact.
    warps = np.ceil(np.where(threads > 0, threads, np.nan) / WARP_THREADS)
    by_registers = _by_registers(registers, warps)
    by_smem = _by_shared_memory(static + dynamic, configured, gpu)
    by_warps = np.where(threads > MAX_THREADS, 0.0, np.floor(gpu.warps / warps))
    by_slots = np.full(len(launches), float(gpu.blocks))
    by_barriers = np.full(len(launches), np.nan) if gpu.barriers is None else _divide(gpu.barriers * by_slots, barriers)

    # Ties are judged before the caps: a capped limit would always tie with the block slots.
    known_barriers = np.where(np.isnan(by_barriers), np.inf, by_barriers)
    allowed = np.stack([by_registers, by_smem, by_warps, by_slots, known_barriers])
    active = allowed.min(axis=0)
    held = np.where(active > 0, active, np.nan)
    waves = grid / (held * (sm_count or np.nan))
    binding = np.concatenate([allowed == active, [waves < 1]])

    return _frame(
        {
            "limit_registers_count": np.where(np.isinf(by_registers), by_slots, by_registers),
            "limit_shared_memory_count": np.minimum(by_smem, by_slots),
            "limit_warps_count": by_warps,
            "limit_blocks_count": by_slots,
            "limit_barriers_count": np.minimum(by_barriers, by_slots),
            "active_blocks_count": active,
            "occupancy_limiter": _LIMITER_TEXTS[(1 << np.arange(len(_LIMITERS))) @ binding],
            "sm_fill_ratio": np.minimum(waves, 1.0),
            "waves": waves,
            "theoretical_occupancy_ratio": held * warps / gpu.warps,
        },
        ~np.isnan(active) & ((cluster > 1) | ((np.isnan(cluster) | np.isnan(barriers)) & (cc >= (9, 0)))),
        launches.index,
    )


def _by_registers(registers: Floats, warps: Floats) -> Floats:
    """Blocks that the registers allow.

    A warp takes its registers from one sub-partition, so that what a warp leaves there is lost: 65,536 / (registers of
    a block) would be too high. The launch check rounds a block up to whole rows of warps, one in each sub-partition.
    """
    of_warp = np.ceil(registers * WARP_THREADS / REGISTER_UNIT) * REGISTER_UNIT
    blocks = _divide(_divide(np.full_like(of_warp, REGISTERS // PARTITIONS), of_warp) * PARTITIONS, warps)
    checked = of_warp * np.ceil(warps / PARTITIONS) * PARTITIONS
    return np.where((registers > MAX_REGISTERS) | (checked > REGISTERS), 0.0, blocks)


def _by_shared_memory(requested: Floats, configured: Floats, gpu: Limits) -> Floats:
    """Blocks that the shared memory allows. A launch beyond 48 KB is taken to have opted in, since it ran."""
    of_block = np.ceil((requested + gpu.reserved_bytes) / gpu.smem_unit_bytes) * gpu.smem_unit_bytes
    capacity = np.where(np.isnan(configured), gpu.smem_bytes, configured)
    return np.where(of_block > gpu.block_smem_bytes + gpu.reserved_bytes, 0.0, _divide(capacity, of_block))


def _divide(stock: Floats, demand: Floats) -> Floats:
    """Whole parts of ``demand`` in ``stock``; infinitely many where nothing is demanded."""
    return np.floor(np.divide(stock, demand, out=np.full_like(stock, np.inf), where=demand != 0))


def _floats(frame: pd.DataFrame, name: str) -> Floats:
    """A column as floats, whatever its dtype, with NaN for what is missing."""
    if name in _OPTIONAL and name not in frame:
        return np.full(len(frame), np.nan)
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def _frame(values: dict[str, NDArray[np.generic]], upper_bound: NDArray[np.bool_], index: pd.Index) -> pd.DataFrame:
    """The result, in its declared columns and types; NA where ``values`` lacks a column."""
    missing = np.full(len(index), None, dtype=object)
    out = {column.name: pd.array(values.get(column.name, missing), dtype=pandas_dtype(column)) for column in _OUTPUTS}
    return pd.DataFrame({**out, "upper_bound": upper_bound}, index=index)
