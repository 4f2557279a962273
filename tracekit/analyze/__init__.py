"""Pure functions from tables to tables: attribution, gaps, ledger, counters, blocks, summary."""

from tracekit.analyze.idle import idle_report
from tracekit.analyze.report import analyze

__all__ = ["analyze", "idle_report"]
