"""Pairs the regions and kernels of two reports and states what changed."""

from tracekit.compare.align import nearest_on
from tracekit.compare.comparison import compare
from tracekit.compare.findings import findings, main_region
from tracekit.compare.gate import Rule, judge_gate, parse_rule
from tracekit.compare.mapping import RegionMap, parse_map, propose_map
from tracekit.compare.matrix import Plan, assemble, cell, plan_matrix
from tracekit.compare.names import RULES

__all__ = [
    "RULES", "Plan", "RegionMap", "Rule", "assemble", "cell", "compare", "findings", "judge_gate", "main_region",
    "nearest_on", "parse_map", "parse_rule", "plan_matrix", "propose_map",
]  # fmt: skip
