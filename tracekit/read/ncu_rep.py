"""Reads a binary Nsight Compute report, through NVIDIA's package ncu-report, into table counters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import InputError
from tracekit.read.identify import read_head
from tracekit.read.ncu_metrics import COLUMN_OF, Cell, Stacks, counters_table, nvtx_stacks

if TYPE_CHECKING:
    import pandas as pd

_MAGIC = b"NVR\x00"
_EXPECTED = "an Nsight Compute report (.ncu-rep)"


def read_ncu_rep(path: Path, *, kind: str | None) -> pd.DataFrame:
    """Table counters from a ``.ncu-rep``; ``kind`` is the cache state that bytes were counted in.

    The same table, attributes and rules as :func:`~tracekit.read.ncu_csv.read_ncu_csv`, with unrounded values; a
    report names no process. Raises InputError where the file is missing, empty, truncated or no report, or where the
    package ncu-report is missing.
    """
    head = read_head(path)
    if not head.startswith(_MAGIC):
        raise InputError(
            path,
            expected=_EXPECTED,
            found=f"a file that begins with {head[:8]!r}",
            remedy="copy the report again in binary mode, or collect it again with ncu -o",
        )
    report = _load(path)
    groups = [report.range_by_idx(i) for i in range(report.num_ranges())]
    actions = [group.action_by_idx(i) for group in groups for i in range(group.num_actions())]
    # What is left of a truncated file loads without complaint: no ranges, or results with nothing in them.
    whole = sum(bool(action.metric_names()) for action in actions)
    if not actions or whole < len(actions):
        raise InputError(
            path,
            expected=_EXPECTED,
            found=f"{len(groups)} ranges with {whole} whole results of {len(actions)}: a truncated file"
            + ("" if actions else ", or one in which nothing was profiled"),
            remedy="copy the report again, or collect it again",
        )
    types = {actions[0].WorkloadType_RANGE: "range", actions[0].WorkloadType_GRAPH: "graph"}
    launches: dict[str, list[Any]] = {
        "workload_type": [types.get(action.workload_type(), "kernel") for action in actions],
        "nvtx": [_nvtx(action.nvtx_state()) for action in actions],
        "name": [action.name(action.NameBase_DEMANGLED) for action in actions],
    }
    cells = {metric: [_cell(action.metric_by_name(metric)) for action in actions] for metric in COLUMN_OF}
    return counters_table(launches, cells, kind=kind, decimal=".", source=str(path))


def _load(path: Path) -> Any:
    """The report, which owns what it hands out: keep it as long as its parts."""
    try:
        import ncu_report
    except ImportError as error:
        raise InputError(
            path,
            expected="the Python package ncu-report, which reads this file",
            found=str(error),
            remedy="pip install ncu-report, or export the report: ncu --import REPORT --csv --page raw",
        ) from None
    return ncu_report.load_report(str(path))


def _cell(metric: Any) -> Cell:
    """Value and unit as text, to be read by the CSV's rules; empty where the report lacks the metric."""
    value = None if metric is None else metric.value()
    return ("", "") if value is None else (str(value), metric.unit() or "")


def _nvtx(state: Any) -> Stacks:
    """The stacks of a result; start/stop ranges stand outside push/pop, as in the CSV."""
    domains = [state.domain_by_id(i) for i in state.domains()] if state else []
    return nvtx_stacks(
        (domain.name(), label)
        for domain in domains
        for label in (*domain.start_end_ranges(), *domain.push_pop_ranges())
    )
