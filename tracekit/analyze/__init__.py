"""Pure functions from tables to tables: attribution, gaps, ledger, counters, blocks, summary."""

from tracekit.analyze.blocks import what_if
from tracekit.analyze.idle import idle_report
from tracekit.analyze.report import analyze
from tracekit.analyze.slices import Lanes, cut, density, groups, lanes, window_of
from tracekit.analyze.steps import without_ranges

__all__ = [
    "Lanes", "analyze", "cut", "density", "groups", "idle_report", "lanes", "what_if", "window_of", "without_ranges",
]  # fmt: skip
