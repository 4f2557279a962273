"""Pairs the regions and kernels of two reports and states what changed."""

from tracekit.compare.comparison import compare
from tracekit.compare.findings import findings, main_region
from tracekit.compare.gate import judge_gate, parse_rule

__all__ = ["compare", "findings", "judge_gate", "main_region", "parse_rule"]
