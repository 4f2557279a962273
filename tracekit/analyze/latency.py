"""Summarizes untraced latency: quantiles over processes, since the process is the unit of repetition."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracekit.model.report import Latency


def latencies(bench: pd.DataFrame) -> tuple[Latency, ...]:
    """One entry a protocol from table bench; samples in the order run, in ns."""
    out = []
    for protocol, rows in bench.groupby(bench["protocol"].astype(object), sort=False):
        samples = rows["latency_ns"].to_numpy(float, na_value=np.nan)
        samples = samples[~np.isnan(samples)]
        if len(samples):
            median, p20, p80 = np.quantile(samples, (0.5, 0.2, 0.8)).tolist()
            out.append(Latency(str(protocol), len(samples), median, p20, p80, tuple(samples.tolist())))
    return tuple(out)
