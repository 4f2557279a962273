"""The drift control: kernels that both sides run alike must take the same time, or the GPU itself changed."""

from __future__ import annotations

import pandas as pd

from tracekit.model.report import DriftControl, Report
from tracekit.model.units import Unit, write, write_change
from tracekit.model.verdict import MARGIN

LEAST_SHARE = 0.05
"""Shared kernels with less than this share of the base's kernel time tell nothing about the GPU."""

_SAME_LAUNCH = [
    "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_count", "static_smem_bytes",
    "dynamic_smem_bytes",
]  # fmt: skip


def drift_control(base: Report, test: Report) -> DriftControl:
    """Compares the median durations of kernels with the same name, grid, block and registers on both sides.

    The ratio weighs each kernel by its time on the base side: sum(count * test median) / sum(count * base median).
    """
    sides = []
    for report in (base, test):
        launches = report.frames.get("launches")
        if launches is None or not len(launches):
            return DriftControl(0, 0.0, 0.0, None, "No drift control: a side has no timeline with kernels.")
        kernels = launches[launches["kind"] == "kernel"].astype({"name": object, "median_ns": float})
        kernels = kernels[~kernels["collective"].astype(bool)]
        kernels = kernels.assign(total_ns=kernels["execution_count"] * kernels["median_ns"])
        sides.append(kernels.groupby(_SAME_LAUNCH, sort=False, as_index=False)[["execution_count", "total_ns"]].sum())
    shared = pd.merge(sides[0], sides[1], on=_SAME_LAUNCH, suffixes=("_base", "_test"))
    if not len(shared):
        return DriftControl(0, 0.0, 0.0, None, "No drift control: no kernel is launched alike on both sides.")
    base_ns = float(shared["total_ns_base"].sum())
    per_test = shared["total_ns_test"] / shared["execution_count_test"]
    test_ns = float((shared["execution_count_base"] * per_test).sum())
    ratio = test_ns / base_ns if base_ns else None
    kernels_word = "kernel" if len(shared) == 1 else "kernels"
    what = f"{len(shared)} {kernels_word} launched alike on both sides changed by {write_change(ratio)}"
    share = base_ns / float(sides[0]["total_ns"].sum() or 1.0)
    what += f" ({write(share, Unit.RATIO)} of the base's kernel time)"
    if share < LEAST_SHARE:
        sentence = f"{what}: too little to tell whether the GPU itself changed."
    elif ratio is None or abs(ratio - 1) <= MARGIN:
        sentence = f"{what}: no drift between the captures."
    else:
        sentence = f"{what}: clocks, temperature or cache state differ between the captures, and deltas include that."
    return DriftControl(len(shared), base_ns, test_ns, ratio, sentence, share >= LEAST_SHARE)
