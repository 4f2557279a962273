"""Tells which GPU every (process, CUDA ordinal) pair of an Nsight Systems export is, and describes the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from tracekit.errors import InputError
from tracekit.model import tables
from tracekit.model.trace import Trace
from tracekit.read.sqlite import SqliteFile

Pair = tuple[int, int]
"""A process (nsys global process id) and a CUDA device ordinal as that process sees it."""

GPU: Final = "TARGET_INFO_GPU"
CUDA_DEVICE: Final = "TARGET_INFO_CUDA_DEVICE"

_NUMBERS: Final = {
    "id": "id", "cuDevice": "cu_device", "smCount": "sm_count", "computeMajor": "cc_major",
    "computeMinor": "cc_minor", "l2CacheSize": "l2_bytes", "totalMemory": "memory_bytes",
    "memoryBandwidth": "memory_bytes_per_second",
}  # fmt: skip
_LIMITS: Final = (
    "name", "sm_count", "cc_major", "cc_minor", "l2_bytes", "memory_bytes", "memory_bytes_per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Devices:
    """Table gpus, and the device id of each pair."""

    frame: pd.DataFrame
    ids: Mapping[Pair, int]


def find_devices(file: SqliteFile, trace: Trace, pairs: Sequence[Pair]) -> Devices:
    """The devices of these pairs: a physical GPU where the export tells, else the pair itself. Adds notes to trace."""
    gpus = _gpus(file)
    physical = _physical(file, trace, pairs, gpus)
    keys = sorted({(physical[pair], 0, 0) if pair in physical else (-1, *pair) for pair in pairs}, key=_order)
    ids = {pair: keys.index((physical[pair], 0, 0) if pair in physical else (-1, *pair)) for pair in pairs}
    specs = list(gpus.values())
    alike = bool(specs) and all(_limits(spec) == _limits(specs[0]) for spec in specs)
    data: dict[str, list[Any]] = {name: [] for name in tables.GPUS.names}
    for number, (gpu, process, _) in enumerate(keys):
        spec = gpus.get(gpu, specs[0] if alike and gpu < 0 else {})
        is_physical = gpu >= 0
        row = {name: spec.get(name) for name in _LIMITS} | {
            "device_id": number,
            "process": None if is_physical else process,
            "ordinal": next(o for pair_process, o in pairs if ids[pair_process, o] == number),
            "uuid": spec.get("uuid") if is_physical else None,
        }
        for name, values in data.items():
            values.append(row[name])
    if unknown := sum(sms is None for sms in data["sm_count"]):
        trace.note(
            f"The export does not describe the GPU (TARGET_INFO_GPU) of {unknown} of {len(keys)} devices: "
            "active blocks cannot be computed there."
        )
    return Devices(tables.GPUS.conform(data if keys else {}, source=str(file.path)), ids)


def _order(key: tuple[int, int, int]) -> tuple[bool, tuple[int, int, int]]:
    return key[0] < 0, key


def _limits(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(spec.get(name) for name in _LIMITS)


def _gpus(file: SqliteFile) -> dict[int, dict[str, Any]]:
    """The GPUs that the export describes, by its own GPU id."""
    if "id" not in file.columns.get(GPU, ()):
        return {}
    raw = file.read(GPU, tuple(_NUMBERS), text=("name", "uuid"))
    if raw["id"].null_count:
        raise InputError(
            file.path,
            expected=f"an integer in every row of table {GPU}, column id",
            found="a row without one",
            remedy="export the report again: nsys export --type sqlite",
        )
    columns = {_NUMBERS.get(name, name): values.to_pylist() for name, values in raw.items()}
    out = {}
    for cells in zip(*columns.values(), strict=True):
        gpu = dict(zip(columns, cells, strict=True))
        for name in ("name", "uuid"):
            gpu[name] = gpu[name].decode("utf-8", "replace") if gpu.get(name) is not None else None
        if set(gpu["uuid"] or "0") <= set("0-"):
            gpu["uuid"] = None  # scrubbed
        out[gpu["id"]] = gpu
    return out


def _physical(
    file: SqliteFile, trace: Trace, pairs: Sequence[Pair], gpus: dict[int, dict[str, Any]]
) -> dict[Pair, int]:
    """The physical GPU of each pair, where the export tells."""
    if CUDA_DEVICE in file.columns:
        raw = file.read(CUDA_DEVICE, ("pid", "cudaId", "gpuId", "numMultiprocessors"))
        columns = [raw[name].to_pylist() for name in ("pid", "cudaId", "gpuId")]
        told = {(pid, ordinal): gpu for pid, ordinal, gpu in zip(*columns, strict=True) if gpu is not None}
        mapped = {pair: told[key] for pair in pairs if (key := ((pair[0] >> 24) & 0xFFFFFF, pair[1])) in told}
        if len(mapped) == len(pairs):
            return mapped
    if len(gpus) == 1:
        return dict.fromkeys(pairs, next(iter(gpus)))
    if len({process for process, _ in pairs}) > 1:
        trace.note(
            "Several processes, and the export does not map their device ordinals to GPUs: a device here is a "
            "(process, ordinal) pair, and two of them may be one GPU."
        )
        return {}
    by_ordinal = {gpu.get("cu_device", id_): id_ for id_, gpu in gpus.items()}
    return {pair: by_ordinal[pair[1]] for pair in pairs if pair[1] in by_ordinal}
