"""Accounts for the change of a step's time: from base to test, in steps that sum to it exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.model.labels import Path
from tracekit.model.report import (
    Change,
    DriftControl,
    Figure,
    RegionDelta,
    RegionPair,
    Report,
    Step,
    Waterfall,
)
from tracekit.model.tables import GAP_PARTS
from tracekit.model.units import Unit
from tracekit.model.verdict import MARGIN

Ints = npt.NDArray[np.int64]


def untraced_waterfall(
    pair: RegionPair, base: Report, test: Report, latency: Mapping[str, Change], drift: DriftControl
) -> Waterfall | None:
    """From one median untraced latency to the other: delta busy, split where that can be, and delta exposed time.

    Busy time is the traced one, which tracing hardly changes. None without untraced latency on both sides, or without
    busy time. Busy time that kernels launched alike on both sides lost or gained is drift, not the kernel change.
    """
    protocol = preferred_protocol(latency)
    busy = [_number(pair, "busy_ns", side) for side in ("base", "test")]
    if protocol is None or busy[0] is None or busy[1] is None:
        return None
    change = latency[protocol]
    if not isinstance(change.base, int | float) or not isinstance(change.test, int | float):
        return None
    totals = [round(change.base), round(change.test)]
    delta_busy = round(busy[1]) - round(busy[0])
    steps, figures = _busy_steps(pair, base, test, delta_busy, drift)
    exposed = totals[1] - totals[0] - delta_busy
    walls = [_number(pair, "wall_ns", side) for side in ("base", "test")]
    return Waterfall(
        basis="untraced",
        protocol=protocol,
        path=pair.path,
        instances=1,
        base_ns=totals[0],
        test_ns=totals[1],
        steps=(*steps, Step("exposed", exposed, True)),
        idle_parts=_idle_parts(pair),
        dilation=(_over(walls[0], totals[0]), _over(walls[1], totals[1])),
        figures=(
            *figures,
            *(
                Figure("exposed_ns", total - round(value), Unit.NS, side)
                for side, total, value in zip(("base", "test"), totals, busy, strict=True)
                if value is not None
            ),
        ),
    )


def preferred_protocol(latency: Mapping[str, Change]) -> str | None:
    """The protocol that both sides measured: each step waited for before steps in a pipeline; None without any."""
    both = [name for name in ("synchronized", "pipelined", *latency) if name in latency]
    return next((name for name in both if latency[name].delta is not None), None)


def _busy_steps(
    pair: RegionPair, base: Report, test: Report, delta_busy: int, drift: DriftControl
) -> tuple[list[Step], list[Figure]]:
    """Delta busy as drift, the fixed cost of kernels, bytes, and what is left: how well the kernels ran."""
    steps, figures = [], []
    rest = delta_busy
    if drifted(drift):
        moved = round((drift.test_ns - drift.base_ns) / max(1, pair.base_instances))
        steps.append(Step("drift", moved, True))
        rest -= moved
    kernels = pair.metrics.get("kernel_count")
    cost = shortest_kernel(base, test)
    if kernels and kernels.delta is not None and cost is not None:
        fixed = round(kernels.delta * cost)
        figures += [
            Figure("kernel_count", kernels.delta, Unit.COUNT, "delta"),
            Figure("kernel_fixed_ns", cost, Unit.NS, "both"),
        ]
        steps.append(Step("kernel_fixed_cost", fixed, False))
        rest -= fixed
    traffic, peak = dram_delta(pair), bandwidth(base, test)
    if traffic is not None and peak is not None:
        time = round(traffic / peak * 1e9)
        figures += [
            Figure("dram_bytes", traffic, Unit.BYTES, "delta"),
            Figure("memory_bytes_per_second", peak, Unit.BYTES_PER_SECOND, "limit"),
        ]
        steps.append(Step("dram_bytes", time, False))
        rest -= time
        steps.append(Step("efficiency", rest, False))
    else:
        steps.append(Step("bytes_and_efficiency", rest, False))
    return steps, figures


def drifted(drift: DriftControl) -> bool:
    """Whether kernels that both sides share changed enough, and are enough of the time, to say the GPU itself did."""
    return drift.ratio is not None and drift.enough and abs(drift.ratio - 1) > MARGIN


def shortest_kernel(base: Report, test: Report) -> float | None:
    """The fixed cost of a kernel in ns: the shortest median duration of any launch configuration on either side.

    An upper bound, since that kernel did some work; None without kernels.
    """
    shortest = []
    for report in (base, test):
        launches = report.frames.get("launches")
        if launches is not None and len(launches):
            own = launches["median_ns"][launches["kind"].astype(object) == "kernel"].dropna()
            shortest += [float(own.min())] if len(own) else []
    return min(shortest, default=None)


def bandwidth(base: Report, test: Report) -> float | None:
    """Peak DRAM bandwidth of the GPU in bytes per second, by data sheet; None where it is unknown or they differ."""
    found = {gpu.get("memory_bytes_per_second") for report in (base, test) for gpu in report.capture["gpus"]}
    return float(next(iter(found))) if len(found) == 1 and all(found) else None


def dram_delta(pair: RegionPair) -> float | None:
    """Bytes read and written, test - base, in a cache state that both sides were counted in; None otherwise."""
    deltas = [pair.metrics[name].delta for name in ("dram_read_bytes", "dram_write_bytes") if name in pair.metrics]
    if len(deltas) < 2 or None in deltas:
        return None
    return float(sum(delta for delta in deltas if delta is not None))


def _idle_parts(pair: RegionPair) -> tuple[tuple[str, float | None, float | None], ...]:
    names = [f"wall_gap_{part}_ns" for part in GAP_PARTS] + ["tail_ns"]
    parts = [(name, _number(pair, name, "base"), _number(pair, name, "test")) for name in names]
    return tuple(part for part in parts if part[1] or part[2])


def traced_waterfall(
    pair: RegionPair, pairs: Sequence[RegionPair], base: Report, test: Report
) -> tuple[Waterfall | None, tuple[RegionDelta, ...]]:
    """The ledger of as many root instances of each side, and charged device time by region over the same instances.

    None where a root's wall time is not known on a side.
    """
    if pair.base_path is None or pair.test_path is None:
        return None, ()
    sides = [_Instances.of(report, path) for report, path in ((base, pair.base_path), (test, pair.test_path))]
    count = min(sides[0].typical, sides[1].typical)
    if not count:
        return None, ()
    ledgers = [side.ledger(count) for side in sides]
    names = [name for name in ledgers[0] if name in ledgers[1]]
    whole = {"wall_gap_ns"} if any(f"wall_gap_{part}_ns" not in names for part in GAP_PARTS) else set()
    detailed = set() if whole else {"wall_gap_ns"}
    detailed |= {f"wall_gap_{part}_ns" for part in GAP_PARTS} if whole else set()
    steps = tuple(
        Step(name.removesuffix("_ns"), ledgers[1][name] - ledgers[0][name], True)
        for name in names
        if name not in detailed and name != "wall_ns" and (ledgers[0][name] or ledgers[1][name])
    )
    found = Waterfall(
        basis="traced",
        protocol=None,
        path=pair.path,
        instances=count,
        base_ns=ledgers[0]["wall_ns"],
        test_ns=ledgers[1]["wall_ns"],
        steps=steps,
        idle_parts=_idle_parts(pair),
    )
    charged = [side.charged(count) for side in sides]
    return found, _region_deltas(pairs, charged[0], charged[1]) if all(charged) else ()


class _Instances:
    """The root instances of one path, from the most typical wall time on, and all instances inside them."""

    def __init__(self, frame: pd.DataFrame, roots: Ints, root_of: Ints, path: Path) -> None:
        self.frame = frame
        self.roots = roots
        self.root_of = root_of
        self.path = path

    @classmethod
    def of(cls, report: Report, path: Path) -> _Instances:
        frame = report.frames.get("instances")
        if frame is None or not len(frame):
            return cls(pd.DataFrame(), np.empty(0, np.int64), np.empty(0, np.int64), path)
        ids = frame["range_id"].astype("Int64").fillna(-1).to_numpy(np.int64)
        parent = frame["parent"].astype("Int64").fillna(-1).to_numpy(np.int64)
        place = np.full(int(ids.max(initial=0)) + 2, -1, np.int64)
        place[ids] = np.arange(len(ids))
        above = np.where(parent >= 0, place[parent], np.arange(len(ids)))
        root_of = above
        while (higher := above[root_of] != root_of).any():
            root_of = np.where(higher, above[root_of], root_of)
        top = np.flatnonzero((parent < 0) & (ids >= 0))
        paths = frame["path"].to_numpy(object)[top]
        top = top[np.fromiter((one == path for one in paths), bool, len(paths))]
        wall = frame["wall_ns"].astype("Float64").to_numpy(float, na_value=np.nan)[top]
        top, wall = top[~np.isnan(wall)], wall[~np.isnan(wall)]
        if len(top):
            order = np.argsort(np.abs(wall - np.median(wall)), kind="stable")
            top = top[order]
        return cls(frame, top, root_of, path)

    @property
    def typical(self) -> int:
        """How many instances lie within p20 to p80 of the wall time, rounded up: the rest are left out as unusual."""
        return -(-len(self.roots) * 3 // 5)

    def ledger(self, count: int) -> dict[str, int]:
        """Totals over the ``count`` most typical roots; a metric that one of them lacks is left out."""
        chosen = self.frame.iloc[self.roots[:count]]
        names = ["wall_ns", "busy_ns", "other_busy_ns", "wall_gap_ns"]
        names += [*(f"wall_gap_{part}_ns" for part in GAP_PARTS), "tail_ns"]
        return {name: int(chosen[name].sum()) for name in names if chosen[name].notna().all()}

    def charged(self, count: int) -> dict[Path, tuple[int, int]]:
        """Charged device time of each path inside the chosen roots, with and without the regions inside it."""
        chosen = np.zeros(len(self.frame), bool)
        chosen[self.roots[:count]] = True
        rows = np.flatnonzero(chosen[self.root_of])
        own = self.frame.iloc[rows]
        if own["device_ns"].isna().any():
            return {}
        device = own["device_ns"].to_numpy(np.int64)
        out: dict[Path, tuple[int, int]] = {}
        totals: dict[Path, int] = {}
        for path, value in zip(own["path"].tolist(), device.tolist(), strict=True):
            totals[path] = totals.get(path, 0) + value
        inner: dict[Path, int] = {}
        for path, value in totals.items():
            if len(path) > 1:
                inner[path[:-1]] = inner.get(path[:-1], 0) + value
        for path, value in totals.items():
            out[path] = (value, value - inner.get(path, 0))
        return out


def _region_deltas(
    pairs: Sequence[RegionPair], base: Mapping[Path, tuple[int, int]], test: Mapping[Path, tuple[int, int]]
) -> tuple[RegionDelta, ...]:
    """Deltas of charged device time of every pair that either side has."""
    nothing = (0, 0)
    out = []
    for pair in pairs:
        first = base.get(pair.base_path, nothing) if pair.base_path else nothing
        second = test.get(pair.test_path, nothing) if pair.test_path else nothing
        if first != nothing or second != nothing:
            delta = RegionDelta(pair.path, first[0], second[0], second[0] - first[0], second[1] - first[1])
            out.append(delta)
    return tuple(out)


def _number(pair: RegionPair, name: str, side: str) -> float | None:
    change = pair.metrics.get(name)
    value: Any = getattr(change, side) if change else None
    return float(value) if isinstance(value, int | float) else None


def _over(first: float | None, second: float | None) -> float | None:
    return first / second if first is not None and second else None
