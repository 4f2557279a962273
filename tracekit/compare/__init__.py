"""Pairs the regions and kernels of two reports and states what changed."""

from tracekit.compare.comparison import compare
from tracekit.compare.findings import findings, main_region

__all__ = ["compare", "findings", "main_region"]
