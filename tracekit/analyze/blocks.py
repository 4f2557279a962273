"""Tells for every launch configuration of a capture what limits its blocks, and what would if it were another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from tracekit.analyze.occupancy import LIMITS as SM_LIMITS
from tracekit.analyze.occupancy import MAX_REGISTERS, MAX_THREADS, WARP_THREADS, active_blocks, is_known
from tracekit.model.report import Report

LIMITS: Final = ("registers", "shared_memory", "warps", "blocks", "barriers")

_FACTS: Final = (
    "launch", "name", "short_name", "device_id", "execution_count", "median_ns", "threads", "grid_blocks",
    "registers_count", "static_smem_bytes", "dynamic_smem_bytes", "configured_smem_bytes", "local_thread_bytes",
    "cluster_blocks", "barriers_count",
)  # fmt: skip


def kernel_blocks(launches: pd.DataFrame, gpus: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a launch configuration of a kernel, the longest in all first: its facts, and what one SM holds of it.

    Beside the launch's own columns: ``threads`` of a block, ``grid_blocks``, ``total_ns`` (executions times median),
    those of :func:`~tracekit.analyze.occupancy.active_blocks`, ``tail_ratio`` (how full the last wave is; 1 where it
    is full), and ``reason`` where active blocks are missing.
    """
    own = launches[launches["kind"].astype(object) == "kernel"]
    own = own.assign(
        threads=own["block_x"] * own["block_y"] * own["block_z"],
        grid_blocks=own["grid_x"] * own["grid_y"] * own["grid_z"],
    )
    by_device = {gpu["device_id"]: gpu for gpu in gpus}
    parts = []
    for device, rows in own.groupby("device_id", sort=False):
        cc, sms = _gpu(by_device.get(device, {}))
        found = active_blocks(rows, cc=cc or (0, 0), sm_count=sms)
        reason = "" if cc and is_known(cc) else "the capture does not describe a GPU whose limits are known"
        parts.append(pd.concat([rows[list(_FACTS)], found], axis=1).assign(reason=reason))
    if not parts:
        return pd.DataFrame()
    frame = pd.concat(parts)
    waves = frame["waves"].astype(float)
    last = waves - np.ceil(waves) + 1
    frame = frame.assign(
        total_ns=frame["execution_count"] * frame["median_ns"],
        tail_ratio=last.where(waves.notna(), np.nan).astype("Float64"),
    )
    return frame.sort_values("total_ns", ascending=False, kind="stable").reset_index(drop=True)


def what_if(
    report: Report, launch: int, *, registers: int | None = None, smem_bytes: int | None = None,
    threads: int | None = None,
) -> Mapping[str, pd.DataFrame]:  # fmt: skip
    """What one SM would hold of a launch configuration with other registers a thread, dynamic shared memory or threads.

    ``here`` is one row: the configuration as it would be (the launch's own figures where not given). ``registers``,
    ``smem_bytes`` and ``threads`` are curves: a row for each value of that one, the other two as in ``here``. Columns
    are those of :func:`~tracekit.analyze.occupancy.active_blocks` beside the varied ones. The total of threads of the
    grid is kept: a smaller block means more of them. The shared memory that the SM was configured with stays where a
    block fits it, else it is the most that the GPU has. KeyError for a launch that is not there.
    """
    frame = report.frames["launches"].set_index("launch").loc[[launch]]
    row = frame.iloc[0]
    block = int(row["block_x"] * row["block_y"] * row["block_z"])
    grid = int(row["grid_x"] * row["grid_y"] * row["grid_z"])
    cc, sms = _gpu(next((g for g in report.capture["gpus"] if g["device_id"] == row["device_id"]), {}))
    now = {
        "registers": registers if registers is not None else _whole(row["registers_count"]),
        "smem_bytes": smem_bytes if smem_bytes is not None else _whole(row["dynamic_smem_bytes"]),
        "threads": threads if threads is not None else block,
    }
    values: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {
        "registers": np.arange(16, MAX_REGISTERS + 1),
        "smem_bytes": np.arange(0, 228 * 1024 + 1, 1024),
        "threads": np.arange(WARP_THREADS, MAX_THREADS + 1, WARP_THREADS),
        "here": np.zeros(1, np.int64),
    }

    def curve(name: str) -> pd.DataFrame:
        count = len(values[name])
        wanted = pd.DataFrame({key: values[name] if key == name else np.full(count, now[key]) for key in now})
        asked = pd.DataFrame(
            {
                "threads": wanted["threads"],
                "registers_count": wanted["registers"],
                "static_smem_bytes": np.full(count, _whole(row["static_smem_bytes"])),
                "dynamic_smem_bytes": wanted["smem_bytes"],
                "grid_blocks": -(-(grid * block) // wanted["threads"]),
                **{
                    name: pd.array([row[name]] * count, dtype="Float64")
                    for name in ("cluster_blocks", "barriers_count")
                },
            }
        )
        limits = SM_LIMITS.get(cc) if cc else None
        needed = asked["static_smem_bytes"] + asked["dynamic_smem_bytes"] + (limits.reserved_bytes if limits else 0)
        configured = pd.array([row["configured_smem_bytes"]] * count, dtype="Float64")
        asked["configured_smem_bytes"] = pd.Series(configured).where(pd.Series(configured) >= needed)
        return pd.concat([wanted, active_blocks(asked, cc=cc or (0, 0), sm_count=sms)], axis=1)

    return {name: curve(name) for name in values}


def _gpu(gpu: Mapping[str, Any]) -> tuple[tuple[int, int] | None, int | None]:
    """Compute capability and number of SMs, where known."""
    major, sms = gpu.get("cc_major"), gpu.get("sm_count")
    return (int(major), int(gpu.get("cc_minor") or 0)) if major is not None else None, int(sms) if sms else None


def _whole(value: Any) -> int:
    return 0 if pd.isna(value) else int(value)
