"""Pure functions from tables to tables: attribution, gaps, ledger, counters, blocks, summary."""

from tracekit.analyze.blocks import what_if
from tracekit.analyze.idle import idle_report
from tracekit.analyze.report import analyze
from tracekit.analyze.slices import Tracks
from tracekit.analyze.steps import without_ranges

__all__ = ["Tracks", "analyze", "idle_report", "what_if", "without_ranges"]
