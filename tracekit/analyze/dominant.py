"""Finds the dominant kernel of each region, and what its launch configuration tells of registers, memory and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from tracekit.analyze.attribution import KERNEL
from tracekit.analyze.launches import Launches, is_collective
from tracekit.analyze.occupancy import active_blocks, is_known
from tracekit.model.schema import DType
from tracekit.model.tables import REGION_METRICS

OF_LAUNCH = (
    "registers_count", "static_smem_bytes", "dynamic_smem_bytes", "frame_bytes", "local_thread_bytes",
    "active_blocks_count", "occupancy_limiter", "sm_fill_ratio", "waves",
)  # fmt: skip
"""Metrics of the dominant kernel's launch configuration: one value, the same for every instance."""


@dataclass(frozen=True)
class Dominant:
    """The launch configuration with the most busy time in a region, and its metrics of :data:`OF_LAUNCH`."""

    launch: int
    name: str
    values: Mapping[str, float | str | None]
    reasons: Mapping[str, str]
    notes: tuple[str, ...]


def dominant_kernels(kernels: pd.DataFrame, launches: Launches, gpus: pd.DataFrame) -> dict[int, Dominant]:
    """The kernel name with the most busy time of each path, in its most busy launch configuration.

    Collectives are left out: a kernel that spins is waiting. The earlier one is taken where two tie.
    """
    names = launches.frame["name"].astype(object)
    eligible = (launches.frame["kind"].to_numpy(int) == KERNEL) & ~names.map(is_collective).to_numpy(bool)
    only = kernels[eligible[kernels["launch"].to_numpy(int)]] if len(kernels) else kernels
    only = only.assign(name=names.to_numpy()[only["launch"].to_numpy(int)])
    only = only.assign(of_name=only.groupby(["path_id", "name"])["busy_ns"].transform("sum"))
    ranked = only.sort_values(["path_id", "of_name", "busy_ns"], ascending=[True, False, False], kind="stable")
    top = ranked.drop_duplicates("path_id")
    values, reasons, notes = launch_metrics(launches.frame, gpus)
    return {
        int(path_id): Dominant(
            int(launch), str(launches.frame["short_name"].iloc[launch]), values[launch], reasons[launch], notes[launch]
        )
        for path_id, launch in zip(top["path_id"], top["launch"], strict=True)
    }


def launch_metrics(
    launches: pd.DataFrame, gpus: pd.DataFrame
) -> tuple[list[dict[str, float | str | None]], list[dict[str, str]], list[tuple[str, ...]]]:
    """The metrics of :data:`OF_LAUNCH` for each launch configuration, the reasons for those missing, and notes.

    ``launches`` has the columns of :class:`~tracekit.analyze.launches.Launches`; ``gpus`` device_id, cc_major,
    cc_minor and sm_count.
    """
    frame = launches.assign(
        threads=launches["block_x"] * launches["block_y"] * launches["block_z"],
        grid_blocks=launches["grid_x"] * launches["grid_y"] * launches["grid_z"],
    )
    computed = []
    for device, own in frame.groupby("device_id", sort=False):
        gpu = gpus[gpus["device_id"] == device].iloc[0]
        cc = (int(gpu["cc_major"]), int(gpu["cc_minor"])) if pd.notna(gpu["cc_major"]) else None
        sms = int(gpu["sm_count"]) if pd.notna(gpu["sm_count"]) else None
        blocks = active_blocks(own, cc=cc or (0, 0), sm_count=sms)
        computed.append(blocks.assign(reason=_no_blocks_reason(cc)))
    if not computed:
        return [], [], []
    blocks = pd.concat(computed).sort_index()
    columns = {
        name: (frame if name in frame else blocks)[name].astype(object).where(lambda s: s.notna(), None).tolist()
        for name in OF_LAUNCH
    }
    values: list[dict[str, float | str | None]] = [
        {
            name: cell if cell is None or REGION_METRICS[name].dtype is DType.TEXT else float(cell)
            for name, cell in zip(columns, cells, strict=True)
        }
        for cells in zip(*columns.values(), strict=True)
    ]
    unknown = {
        "local_thread_bytes": "the timeline gives 0 or nothing, which means unknown",
        "frame_bytes": "no manifest tells what the compiler made of this kernel",
    }
    reasons = [
        unknown | dict.fromkeys(("active_blocks_count", "occupancy_limiter", "sm_fill_ratio", "waves"), reason)
        for reason in blocks["reason"].tolist()
    ]
    notes: list[tuple[str, ...]] = [(_UPPER_BOUND,) if upper else () for upper in blocks["upper_bound"].tolist()]
    return values, reasons, notes


_UPPER_BOUND = "active_blocks_count is an upper bound: its blocks form clusters, or clusters or barriers are unknown"


def _no_blocks_reason(cc: tuple[int, int] | None) -> str:
    """Why active blocks would be missing on a GPU of that compute capability."""
    if cc is None:
        return "the capture does not describe the GPU"
    if not is_known(cc):
        return f"the limits of compute capability {cc[0]}.{cc[1]} are not known"
    return "no block of this launch fits an SM, or the capture lacks its size"
