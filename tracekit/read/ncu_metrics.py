"""What Nsight Compute calls things (metrics, units, kernels, NVTX ranges), turned into table counters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tracekit.errors import InputError
from tracekit.model import tables
from tracekit.model.schema import DType
from tracekit.model.units import Unit

if TYPE_CHECKING:
    import pandas as pd

Cell = tuple[str, str]
"""A metric's value and unit, as the report writes them."""

Stacks = tuple[tuple[str, tuple[str, ...]], ...]
"""NVTX stacks at a launch: (domain, labels from the outermost to the innermost); the default domain is ''."""

_SPILLS, _SPILL_REQUESTS = "sass__inst_executed_register_spilling", "derived__local_spilling_requests"

# fmt: off
METRICS: Final[dict[str, tuple[str, ...]]] = {
    **{f"{of}_{axis}": (f"launch__{of}_dim_{axis}",) for of in ("grid", "block") for axis in "xyz"},
    "duration_ns": ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max"),
    "dram_read_bytes": (
        "dram__bytes_read.sum", "dram__sectors_read.sum",
        "fbpa__dram_read_bytes.sum", "dram_read_bytes",
    ),
    "dram_write_bytes": (
        "dram__bytes_write.sum", "dram__sectors_write.sum",
        "fbpa__dram_write_bytes.sum", "dram_write_bytes",
    ),
    "l2_bytes": ("lts__t_bytes.sum", "lts__t_sectors.sum"),
    "dram_throughput_ratio": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "tensor_pipe_ratio": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",),
    "spill_instruction_count": (_SPILLS, _SPILL_REQUESTS),
    "local_load_instruction_count": (
        "sass__inst_executed_local_loads", "smsp__sass_inst_executed_op_local_ld.sum",
        "smsp__inst_executed_op_local_ld.sum",
    ),
    "local_store_instruction_count": (
        "sass__inst_executed_local_stores", "smsp__sass_inst_executed_op_local_st.sum",
        "smsp__inst_executed_op_local_st.sum",
    ),
    "frame_bytes": ("compiled__frame_bytes_per_thread",),
    "registers_count": ("launch__registers_per_thread",),
    "static_smem_bytes": ("launch__shared_mem_per_block_static",),
    "dynamic_smem_bytes": ("launch__shared_mem_per_block_dynamic",),
    "configured_smem_bytes": ("launch__shared_mem_config_size",),
    "cluster_blocks": ("launch__cluster_size",),
    "barriers_count": ("launch__barrier_count",),
    "limit_registers_count": ("launch__occupancy_limit_registers",),
    "limit_shared_memory_count": ("launch__occupancy_limit_shared_mem",),
    "limit_warps_count": ("launch__occupancy_limit_warps",),
    "limit_blocks_count": ("launch__occupancy_limit_blocks",),
    "limit_barriers_count": ("launch__occupancy_limit_barriers",),
    "theoretical_occupancy_ratio": ("sm__maximum_warps_per_active_cycle_pct",),
    "achieved_occupancy_ratio": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "waves": ("launch__waves_per_multiprocessor",),
    "sm_count": ("device__attribute_multiprocessor_count", "launch__sm_count"),
    "cc_major": ("device__attribute_compute_capability_major",),
    "cc_minor": ("device__attribute_compute_capability_minor",),
    "gpu": ("device__attribute_display_name",),
    "gpu_l2_bytes": ("device__attribute_l2_cache_size",),
}
"""The ncu metrics that can fill a column of table counters, the best first. Local loads and stores never stand in for
spills: arrays with a computed index use the same instructions."""

LABELS: Final[dict[str, str]] = {
    "Duration": "gpu__time_duration.sum",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "Local Memory Spilling Requests": _SPILL_REQUESTS,
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Shared Memory Configuration Size": "launch__shared_mem_config_size",
    "Cluster Size": "launch__cluster_size",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "# SMs": "launch__sm_count",
}
"""Labels of the details page that stand for one metric only."""
# fmt: on

COLUMN_OF: Final = {metric: tables.COUNTERS[column] for column, names in METRICS.items() for metric in names}
_OF_A_LAUNCH = {
    column for column, names in METRICS.items() if names[0].startswith(("launch__", "sm__maximum", "compiled__"))
}
_COMPILED = {column for column, names in METRICS.items() if names[0].startswith("compiled__")}
"""What a compiler tells, and no profiler: the output of ``python -m workloads resources`` has it."""

_PREFIXES = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12}


def _scaled(*words: str) -> dict[str, int]:
    return {"": 0} | {prefix + word: power for prefix, power in _PREFIXES.items() for word in words}


_COUNTS = _scaled("inst", "request", "block", "warp", "thread", "register", "register/thread", "cluster", "SM")
_EXPONENTS: Final[dict[Unit, dict[str, int]]] = {
    Unit.NS: {"": 0, "ns": 0, "nsecond": 0, "us": 3, "usecond": 3, "ms": 6, "msecond": 6, "s": 9, "second": 9},
    Unit.BYTES: _scaled("byte", "byte/block", "sector"),
    Unit.RATIO: {"": -2, "%": -2},
    Unit.COUNT: _COUNTS,
    Unit.WAVES: _COUNTS,
    Unit.BLOCKS: _COUNTS,
    Unit.THREADS: _COUNTS,
    Unit.ID: {"": 0},
}
"""Powers of ten from ncu's spellings of a unit, old and new, to the column's unit; no unit means ncu's base unit."""

_SECTOR_BYTES = 32
_MISSING = {"", "n/a", "no data", "nan(ind)", "-nan(ind)"}


def base_value(cell: Cell, metric: str, *, decimal: str | None, source: str) -> float | str | None:
    """A cell of ``metric`` in the unit of its column (ns, bytes, ratio, count); None where it holds no value.

    ``decimal`` is the decimal mark of the file, None where nothing in the file tells it. Raises InputError that shows
    the cell where its unit is unknown, or where it holds no number or one that can be read in two ways.
    """
    text, unit = (part.strip() for part in cell)
    column = COLUMN_OF[metric]
    if text.lower() in _MISSING:
        return None
    if column.dtype is DType.TEXT:
        return text
    exponent = _EXPONENTS[column.unit].get(unit)
    digits = re.sub(r"[\s'’]", "", text)
    expected = f"a number for {metric}"
    if exponent is None:
        expected += f" in a unit of {column.unit}"
    elif decimal is None and re.search("[.,]", digits):
        expected += ", and other cells that tell whether . and , separate thousands or decimals"
    else:
        digits = digits.replace("." if decimal == "," else ",", "").replace(",", ".")
        try:
            # The unit goes into the decimal exponent: 32.768 Kbyte is 32768 bytes and not 32767.999.
            value = float(Decimal(digits).scaleb(exponent)) * (_SECTOR_BYTES if "sectors" in metric else 1)
        except InvalidOperation:
            pass
        else:
            return value if math.isfinite(value) else None
    remedy = "export the report again with LC_ALL=C and --print-units base"
    raise InputError(source, expected=expected, found=f"{text!r}, unit {unit!r}", remedy=remedy)


def counters_table(
    launches: Mapping[str, Sequence[Any]],
    cells: Mapping[str, Sequence[Cell]],
    *,
    kind: str | None,
    decimal: str | None,
    source: str,
) -> pd.DataFrame:
    """Table counters from what identifies each result (``launches``, by column) and its metrics (``cells``, by name).

    One metric fills a column for the whole file, so that a column never mixes two definitions. ``frame.attrs`` tells:
    ``metrics`` (column to metric), ``notes`` (what is missing, and why) and ``dropped_lines``.
    """
    types = launches["workload_type"]
    data: dict[str, Sequence[Any]] = {column: values for column, values in launches.items() if _has_value(values)}
    data |= {column: launches[column] for column in ("workload_type", "nvtx", "name")}
    data["profile_id"] = list(range(len(types)))
    data["kind"] = ["in_model" if each == "range" else kind for each in types]
    data["short_name"] = [short_name(name) for name in launches["name"]]
    metrics: dict[str, str] = {}
    for column, names in METRICS.items():
        for metric in names:
            if metric in cells and column not in data:
                known = {
                    cell: base_value(cell, metric, decimal=decimal, source=source)
                    for cell in dict.fromkeys(cells[metric])
                }
                values = [known[cell] for cell in cells[metric]]
                if column in _OF_A_LAUNCH:
                    values = [value if each == "kernel" else None for value, each in zip(values, types, strict=True)]
                if _has_value(values):
                    data[column], metrics[column] = values, metric
    notes = []
    if any(each != "kernel" for each in types):
        notes.append("ncu folds the launches of a range or graph into one row: its launch columns are NA")
    expected = [
        column for column in METRICS if column not in _COMPILED and (column not in _OF_A_LAUNCH or "kernel" in types)
    ]
    if _COMPILED & metrics.keys():
        notes.append("the kernels were compiled and not run: there are no times, bytes or executed instructions")
    elif types and (lacking := [column for column in expected if column not in data]):
        notes.append(f"the report has no metric for {', '.join(lacking)}")
    if metrics.get("spill_instruction_count") == _SPILL_REQUESTS:
        notes.append(f"spill_instruction_count counts {_SPILL_REQUESTS}: the report has no {_SPILLS}")
    durations = next((cells[metric] for metric in METRICS["duration_ns"] if metric in cells), ())
    if failed := sum("nan" in text.lower() for text, _ in durations):
        notes.append(f"ncu failed to measure {failed} of {len(types)} results: their duration is no number")
    frame = tables.COUNTERS.conform(data, source=source)
    frame.attrs.update(metrics=metrics, notes=notes, dropped_lines=0)
    return frame


def _has_value(values: Iterable[Any]) -> bool:
    return any(value is not None for value in values)


def nvtx_stacks(ranges: Iterable[tuple[str, str]]) -> Stacks:
    """Stacks from (domain, label) pairs that stand outermost first; domains in order of appearance."""
    stacks: dict[str, list[str]] = {}
    for domain, label in ranges:
        stacks.setdefault("" if domain == "<default domain>" else domain, []).append(label)
    return tuple((domain, tuple(labels)) for domain, labels in stacks.items())


_CLOSES = {")": "(", "]": "[", "}": "{", ">": "<"}
_TOKEN = re.compile(r"\boperator\s*(?:\(\)|\[\]|->|[-+*/%^&|~!=<>,]{1,3})(?=\s*[(<]|$)|->|[^()<>]|.")


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """The function's own name, without return type, namespaces, template arguments and parameters.

    It equals nsys's ``shortName``, which joins counters to a timeline. A name that has none of these (Triton's,
    nvjet's, a mangled one) is returned as it is.
    """
    if not re.search(r"[(<]|::", name):
        return name
    outside: list[str] = []
    opened: list[str] = []
    for token in _TOKEN.findall(name):
        if token in _CLOSES.values():
            opened.append(token)
        elif token == ">":
            # Inside parentheses it compares.
            if opened[-1:] == ["<"]:
                opened.pop()
        elif token in _CLOSES:
            while opened and opened.pop() != _CLOSES[token]:
                pass
        elif not opened:
            outside.append(re.sub(r"\s+(?=\W)", "", token) if token.startswith("operator") else token)
    parts = [part for part in "".join(outside).split("::") if part.strip()]
    words = re.sub(r"(\s+(const|volatile|noexcept|&+))+\s*$", "", parts[-1]).split() if parts else []
    return (words[-1].lstrip("*&") if words else "") or name
