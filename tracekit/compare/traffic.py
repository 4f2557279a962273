"""Sets the DRAM bytes of both sides beside what bounds them: the workload's least bytes, the peak, and the roof."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tracekit.compare.waterfall import bandwidth
from tracekit.model.labels import Path
from tracekit.model.report import Comparison, Metric, Region, RegionPair, Report, Roof, RoofPoint, Traffic
from tracekit.model.tables import DRAM_KINDS

DENSE_FLOPS: Final[Mapping[str, Mapping[str, float]]] = {
    "H100 80GB HBM3": {"bfloat16": 989.4e12, "float16": 989.4e12, "float32": 66.9e12},
    "H200": {"bfloat16": 989.4e12, "float16": 989.4e12, "float32": 66.9e12},
    "A100": {"bfloat16": 312e12, "float16": 312e12, "float32": 19.5e12},
    "L40S": {"bfloat16": 362e12, "float16": 362e12, "float32": 91.6e12},
    "L4": {"bfloat16": 121e12, "float16": 121e12, "float32": 30.3e12},
}
"""Peak FLOP/s without sparsity, by whole words of the GPU's name and dtype; float32 without TF32. Source: NVIDIA's data
sheets."""


def traffic(comparison: Comparison) -> tuple[Traffic, ...]:
    """Bytes read and written by region, kind and side, in the order of the regions; none where nothing was counted.

    ``achieved_bytes_per_second`` divides by the region's busy time in the timeline; only in-model bytes are of the same
    run, so the other kinds have none. ``least_bytes`` is the workload's lower bound for a step: of roots, and only
    where the figures are those of a step, too.
    """
    out = []
    known = _regions(comparison)
    for pair in comparison.regions:
        for side, report, path in _sides(comparison, pair):
            if path is None:
                continue
            metrics = known[side][path].metrics
            for kind in DRAM_KINDS:
                read, written = (
                    metrics[name].kinds.get(kind) if (name := f"dram_{way}_bytes") in metrics else None
                    for way in ("read", "write")
                )
                if read is None and written is None:
                    continue
                values = [entry.value if entry else None for entry in (read, written)]
                busy = metrics["busy_ns"].value if "busy_ns" in metrics else None
                moved = _sum(values)
                of_step = len(path) == 1 and not path[0].startswith("<") and is_of_an_instance(metrics, kind)
                out.append(
                    Traffic(
                        path=pair.path, side=side, kind=kind, read_bytes=_number(values[0]),
                        write_bytes=_number(values[1]),
                        least_bytes=_number(report.capture.get("lower_bound_bytes")) if of_step else None,
                        busy_ns=_number(busy),
                        achieved_bytes_per_second=moved / float(busy) * 1e9
                        if kind == "in_model" and moved is not None and isinstance(busy, int | float) and busy
                        else None,
                    )
                )  # fmt: skip
    return tuple(out)


def roof(comparison: Comparison) -> Roof:
    """The roofline of the GPU, and each side's root on it; what is missing, with the reason in ``notes``.

    A point's work is the FLOPs that the workload states for a step, its bytes those counted in the model, its time the
    busy time of the traced step. Regions inside have no FLOPs of their own: for them ``speed_of_light`` has the
    dominant kernel's percentages of peak DRAM throughput and of the tensor pipe.
    """
    peak = bandwidth(comparison.base, comparison.test)
    names = [_gpu_name(report) for report in (comparison.base, comparison.test)]
    dtypes = [report.capture["conditions"].get("dtype") for report in (comparison.base, comparison.test)]
    name, dtype = (next((value for value in both if value), None) for both in (names, dtypes))
    alike = all(len({value for value in both if value}) < 2 for both in (names, dtypes))
    flops = _peak_flops(name, dtype) if alike else None
    notes = [] if alike else ["the two sides differ in GPU or dtype: they have no roof of math in common"]
    if peak is None:
        notes.append("the peak DRAM bandwidth is unknown, or the two sides' GPUs differ in it")
    if flops is None and alike:
        notes.append(f"the peak FLOP/s of {name or 'an unknown GPU'} for {dtype or 'an unknown dtype'} is not known")
    points = []
    known = _regions(comparison)
    for pair in comparison.regions:
        for side, report, path in _sides(comparison, pair):
            if path is None or len(path) != 1 or path[0].startswith("<"):
                continue
            metrics = known[side][path].metrics
            work = _number(report.capture.get("flops"))
            moved = _sum([_kind(metrics, f"dram_{way}_bytes") for way in ("read", "write")])
            busy = _number(metrics["busy_ns"].value) if "busy_ns" in metrics else None
            lacking = [
                what
                for what, value in (("FLOPs", work), ("in-model DRAM bytes", moved), ("busy time", busy))
                if not value
            ]
            if work and moved and busy:
                points.append(RoofPoint(pair.path, side, work / moved, work / busy * 1e9))
            else:
                notes.append(f"{side}: no point on the roofline, since {' and '.join(lacking)} are not known")
    return Roof(peak, flops, tuple(points), tuple(dict.fromkeys(notes)))


def _regions(comparison: Comparison) -> Mapping[str, Mapping[Path, Region]]:
    sides = (("base", comparison.base), ("test", comparison.test))
    return {side: {region.path: region for region in report.regions} for side, report in sides}


def _sides(comparison: Comparison, pair: RegionPair) -> Sequence[tuple[str, Report, Any]]:
    return (("base", comparison.base, pair.base_path), ("test", comparison.test, pair.test_path))


def _kind(metrics: Mapping[str, Any], name: str) -> float | None:
    found = metrics[name].kinds.get("in_model") if name in metrics else None
    return _number(found.value) if found else None


def is_of_an_instance(metrics: Mapping[str, Metric], kind: str | None) -> bool:
    """Whether bytes are those of one instance of a region: without a timeline, replayed launches of every profiled step
    sum into one, and only ranges measured as a whole are told apart."""
    busy = metrics.get("busy_ns")
    return kind == "in_model" or (busy is not None and busy.value is not None)


def _peak_flops(name: str | None, dtype: object) -> float | None:
    found = [by for words, by in DENSE_FLOPS.items() if name and re.search(rf"\b{re.escape(words)}\b", name)]
    return found[0].get(str(dtype)) if found else None


def _gpu_name(report: Report) -> str | None:
    names = {str(gpu.get("name") or "") for gpu in report.capture["gpus"]}
    return max(names, key=len, default="") or report.capture["conditions"].get("gpu")


def _sum(values: Sequence[Any]) -> float | None:
    known = [_number(value) for value in values]
    return None if None in known else float(sum(value for value in known if value is not None))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
