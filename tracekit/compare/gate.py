"""Gates: parses rules such as ``*/norm: dram_read_bytes > +5%`` and judges every match of a comparison by them."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracekit.compare.quality import failed_checks
from tracekit.compare.statistics import Sample, level
from tracekit.errors import UsageError
from tracekit.model import labels
from tracekit.model.report import Change, Comparison, Gate, GateCheck, Latency, RegionPair
from tracekit.model.schema import DType
from tracekit.model.tables import BENCH, REGION_METRICS
from tracekit.model.units import Unit

LATENCY: Final = "latency_ns"

GRAMMAR: Final = (
    "a rule is [REGION:] METRIC OP LIMIT. OP is >, >=, < or <=, and the gate fails where it holds. LIMIT is a relative "
    "change with a sign (+2%), a difference with a sign (+10us, -3), or a figure of the test without one (0, 500us). "
    "REGION is a path with * and ?, such as */residual_rmsnorm"
)

_RULE: Final = re.compile(
    r"(?:(?P<region>.+):\s*)?(?P<metric>[A-Za-z_]\w*)\s*(?P<op>>=|<=|>|<)\s*(?P<limit>\S.*)", re.DOTALL
)
_LIMIT: Final = re.compile(r"(?P<sign>[+\-\u2212]?)\s*(?P<size>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>[A-Za-z%]*)")
_OPS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_SCALES: Final[dict[str, dict[str, float]]] = {
    Unit.NS: {"": 1, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9},
    Unit.BYTES: {
        "": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
    },
    Unit.RATIO: {"": 1, "%": 0.01},
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A parsed rule. ``kind`` says what ``limit`` is held against: relative, difference or figure."""

    text: str
    region: str | None
    metric: str
    op: str
    kind: str
    limit: float

    def holds(self, low: float, high: float) -> bool | None:
        """Whether the condition holds everywhere between two figures; None where it does so in part."""
        ends = {_OPS[self.op](value, self.limit) for value in (low, high)}
        return ends.pop() if len(ends) == 1 else None


def parse_rule(text: str) -> Rule:
    """The rule that a text spells; UsageError that names what is wrong with it, and the grammar."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--fail-on {text!r}: not a rule", remedy=GRAMMAR)
    metric, region = match["metric"], match["region"]
    if metric == LATENCY:
        unit: str = BENCH[LATENCY].unit
        if region is not None:
            raise UsageError(
                f"--fail-on {text!r}: {LATENCY} is the untraced latency of the whole request",
                remedy="leave the region out, or take device_ns, the region's charged device time",
            )
    else:
        unit = _unit_of(metric, text)
    limit = _LIMIT.fullmatch(match["limit"].strip())
    if limit is None:
        raise UsageError(f"--fail-on {text!r}: no limit {match['limit'].strip()!r}", remedy=GRAMMAR)
    size = float(limit["size"]) * (-1 if limit["sign"] in ("-", "\u2212") else 1)
    signed = bool(limit["sign"])
    if limit["unit"] == "%" and (signed or unit != Unit.RATIO):
        if not signed:
            raise UsageError(
                f"--fail-on {text!r}: {limit['size']}% of what?",
                remedy=f"write +{limit['size']}% for a rise by so much of the base, or -{limit['size']}% for a fall",
            )
        return Rule(text, region and region.strip(), metric, match["op"], "relative", size / 100)
    scales = _SCALES.get(unit, {"": 1.0})
    if limit["unit"] not in scales:
        units = ", ".join(name for name in scales if name) or "no unit"
        raise UsageError(
            f"--fail-on {text!r}: {metric} is not counted in {limit['unit']}", remedy=f"its limit takes {units}, or +N%"
        )
    kind = "difference" if signed else "figure"
    return Rule(text, region and region.strip(), metric, match["op"], kind, size * scales[limit["unit"]])


def _unit_of(metric: str, text: str) -> str:
    names = [c.name for c in REGION_METRICS if c.dtype in (DType.INT, DType.FLOAT)]
    if metric in names:
        return REGION_METRICS[metric].unit
    if metric in REGION_METRICS.names:
        raise UsageError(f"--fail-on {text!r}: {metric} is no number", remedy="take a metric that is one")
    near = difflib.get_close_matches(metric, [*names, LATENCY], n=3, cutoff=0.5)
    raise UsageError(
        f"--fail-on {text!r}: no metric {metric!r}",
        remedy=f"did you mean {', '.join(near)}?" if near else f"the metrics are {LATENCY}, {', '.join(names)}",
    )


def judge_gate(comparison: Comparison, rules: Sequence[Rule]) -> Gate:
    """Every match of every rule. UsageError where a rule matches no region; what is not measured is undetermined."""
    checks: list[GateCheck] = []
    for rule in rules:
        found = list(_of_latency(comparison, rule) if rule.metric == LATENCY else _of_regions(comparison, rule))
        if not found:
            raise UsageError(f"--fail-on {rule.text!r}: matches nothing", remedy=_what_there_is(comparison, rule))
        if all(check.outcome == "unmeasured" for check in found):
            found = [replace(check, outcome="undetermined") for check in found]
        checks += found
    return Gate(tuple(checks), failed_checks(comparison.test))


def _what_there_is(comparison: Comparison, rule: Rule) -> str:
    paths = [_written(pair.path) for pair in comparison.regions[:8]]
    return f"no region fits {rule.region!r}; there are {', '.join(paths) or 'none'}"


def _of_latency(comparison: Comparison, rule: Rule) -> Iterable[GateCheck]:
    entries = {entry.protocol: entry for entry in comparison.test.latency}
    if not comparison.latency:
        yield _check(rule, None, None, None, "unmeasured", None, None, None)
    for protocol, change in comparison.latency.items():
        low, found, high = _latency_range(rule, change, entries.get(protocol))
        if found is None:
            outcome = "unmeasured"
        elif low is None or high is None:
            outcome = "undetermined"
        else:
            outcome = _outcome(rule.holds(low, high))
        yield _check(rule, change, None, protocol, outcome, found, low, high)


def _latency_range(
    rule: Rule, change: Change, entry: Latency | None
) -> tuple[float | None, float | None, float | None]:
    """Lower end, estimate and upper end of what the rule's limit is held against."""
    if rule.kind == "figure":
        if entry is None:
            return None, None, None
        found = level([Sample(value) for value in entry.samples_ns])
        return (found.low, found.value, found.high) if found else (None, entry.median_ns, None)
    interval = change.estimate.interval if change.estimate else None
    if interval is None or not isinstance(change.base, int | float):
        return None, None, None
    scale = 1.0 if rule.kind == "relative" else float(change.base)
    low, high = (None if end is None else (end - 1) * scale for end in (interval.low, interval.high))
    return low, (interval.value - 1) * scale, high


def _of_regions(comparison: Comparison, rule: Rule) -> Iterable[GateCheck]:
    if rule.region is not None:
        fits = _glob(rule.region)
        pairs = [pair for pair in comparison.regions if any(fits(text) for text in _spellings(pair))]
    else:
        pairs = _outermost(comparison.regions, rule)
    for pair in pairs:
        change = pair.metrics.get(rule.metric)
        found = _found(rule, change) if change else None
        outcome = "unmeasured" if found is None else _outcome(rule.holds(found, found))
        yield _check(rule, change, pair, None, outcome, found, None, None)


def _outermost(pairs: Sequence[RegionPair], rule: Rule) -> list[RegionPair]:
    """The regions with a figure for the rule, without those inside another that has one; all roots where none has."""
    measured: list[RegionPair] = []
    for pair in sorted(pairs, key=lambda pair: len(pair.path)):
        change = pair.metrics.get(rule.metric)
        inside = any(pair.path[: len(outer.path)] == outer.path for outer in measured)
        if change is not None and not inside and _found(rule, change) is not None:
            measured.append(pair)
    return measured or [pair for pair in pairs if len(pair.path) == 1]


def _found(rule: Rule, change: Change) -> float | None:
    """What the rule's limit is held against; None where it is not measured. From nothing, any rise is endless."""
    base, test = change.base, change.test
    if not isinstance(test, int | float):
        return None
    if rule.kind == "figure":
        return float(test)
    if change.delta is None or not isinstance(base, int | float):
        return None
    if rule.kind == "difference":
        return float(change.delta)
    return change.delta / base if base else math.copysign(math.inf, test) if test else 0.0


def _outcome(holds: bool | None) -> str:
    return "undetermined" if holds is None else "failed" if holds else "passed"


def _check(
    rule: Rule,
    change: Change | None,
    pair: RegionPair | None,
    protocol: str | None,
    outcome: str,
    found: float | None,
    low: float | None,
    high: float | None,
) -> GateCheck:
    declared = BENCH[LATENCY] if rule.metric == LATENCY else REGION_METRICS[rule.metric]
    unit = Unit.RATIO if rule.kind == "relative" else declared.unit
    return GateCheck(
        rule.text, rule.metric, pair.path if pair else None, protocol, rule.kind, outcome, found, low, high, rule.limit,
        unit, change.base if change else None, change.test if change else None,
    )  # fmt: skip


def _spellings(pair: RegionPair) -> set[str]:
    """How a region may be written: by either side's path, its slashes escaped or not."""
    paths = [path for path in (pair.base_path, pair.test_path) if path is not None]
    return {spelling for path in paths for spelling in (labels.join(path), _written(path))}


def _written(path: tuple[str, ...]) -> str:
    return "/".join(path)


def _glob(pattern: str) -> Callable[[str], bool]:
    """``*`` is any text and ``?`` any character; nothing else is special, since labels hold brackets."""
    source = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    compiled = re.compile(source, re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None
