"""Summarizes untraced latency: quantiles over processes, since the process is the unit of repetition."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.model.report import Latency
from tracekit.model.trace import Trace

WHOLE_STEPS = ("iter", "request")
"""Phases that are what a user waits for; the others (prefill, decode) are parts of a request."""


def latencies(trace: Trace) -> tuple[tuple[Latency, ...], tuple[Latency, ...]]:
    """One entry a protocol from table bench: each process by the median of its samples, in the order run, in ns.

    First those of whole steps and requests, then those of parts of a request, by phase. Where the table holds several
    variants, those of the capture's own variant are taken; none, with a note, where the manifest names none of them, or
    where samples of several shapes are mixed.
    """
    bench = trace.table("bench").astype({"variant": object, "protocol": object})
    variants = bench["variant"].unique().tolist()
    if len(variants) > 1:
        own = trace.manifest.variant if trace.manifest else None
        if own not in variants:
            trace.note(
                f"Untraced samples are of {', '.join(variants)}, and which of them this capture is, is not told."
            )
            return (), ()
        bench = bench[bench["variant"] == own]
    shapes = bench["shape"].dropna().unique().tolist()
    if len(shapes) > 1:
        trace.note(f"Untraced samples are of shapes {', '.join(map(str, shapes))}: too many for one capture; left out.")
        return (), ()
    whole = bench["phase"].isna() | bench["phase"].isin(WHOLE_STEPS)
    parts = bench[~whole].astype({"phase": object})
    phases = [entry for phase, rows in parts.groupby("phase", sort=False) for entry in _by_protocol(rows, str(phase))]
    return tuple(_by_protocol(bench[whole], None)), tuple(phases)


def _by_protocol(bench: pd.DataFrame, phase: str | None) -> list[Latency]:
    out = []
    for protocol, rows in bench.groupby("protocol", sort=False):
        processes = rows.groupby("process", sort=False)
        samples = processes["latency_ns"].median().to_numpy()
        median, p20, p80 = np.quantile(samples, (0.5, 0.2, 0.8)).tolist()
        blocks = tuple(None if pd.isna(block) else int(block) for block in processes["block"].first())
        clocks = rows["sm_clock_mhz"].dropna()
        clock = float(clocks.median()) if len(clocks) else None
        runs = rows["run"].dropna().astype(object).unique().tolist()
        run = str(runs[0]) if len(runs) == 1 else None
        out.append(
            Latency(str(protocol), len(samples), median, p20, p80, tuple(samples.tolist()), blocks, clock, phase, run)
        )
    return out
