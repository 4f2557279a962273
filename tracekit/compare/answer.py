"""Answers "did it help?" for the main region: one verdict, what it rests on, and the reasons in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tracekit.compare.quality import computes_wrong
from tracekit.compare.reasons import Case, is_graphed, reasons
from tracekit.compare.waterfall import drifted, preferred_protocol
from tracekit.model import labels
from tracekit.model.report import Answer, Change, DriftControl, Interval, Reason, RegionPair, Report, Waterfall
from tracekit.model.verdict import MARGIN, Verdict, judge, reconsidered

_PHASES: Final = ("prefill", "decode")


def answer(
    pair: RegionPair | None,
    pairs: Sequence[RegionPair],
    base: Report,
    test: Report,
    latency: Mapping[str, Change],
    drift: DriftControl,
    waterfalls: Sequence[Waterfall],
) -> Answer:
    """The verdict on untraced latency where both sides have it; else on the traced step, where that can tell."""
    fusion = "fusion" if _fewer_kernels(pair) else "change"
    subject = _subject(pair, base)
    protocol = preferred_protocol(latency)
    path = pair.path if pair else None
    main = next((w for w in waterfalls if w.basis == "untraced"), next(iter(waterfalls), None))
    why: tuple[Reason, ...] = ()
    case = Case(pair, pairs, base, test, drift, main) if pair is not None else None
    if case is not None:
        total = (main.test_ns - main.base_ns) / main.instances if main else None
        why = reasons(case, total)
    if protocol is not None:
        found = latency[protocol].estimate
        assert found is not None
        verdict = latency[protocol].verdict or found.verdict
        return Answer(verdict, "untraced", protocol, fusion, subject, path, found.interval, why)
    if case is None:
        return Answer(Verdict.UNMEASURED, "none", None, fusion, subject, path, None, why)
    verdict, ratio = _traced(case)
    wrong = computes_wrong(test)
    interval = Interval(ratio, None, None) if ratio is not None else None
    return Answer(reconsidered(verdict, wrong=wrong) or verdict, "traced", None, fusion, subject, path, interval, why)


def _traced(case: Case) -> tuple[Verdict, float | None]:
    """What one trace a side tells: the verdict on which busy and wall time agree, each a bound of the untraced time.

    Tracing stretches the host's part alone, so the untraced step lies between its busy and its traced wall time. Where
    one moved without the other, or only by as much as the shared kernels drifted, the traces do not tell. A graph's
    launch is stretched by its nodes: between graphs the time from first to last operation stands for the wall, and
    between a graph and none only bounds that lie wholly apart tell.
    """
    pair, drift = case.pair, case.drift
    graphed = [is_graphed(case, side) for side in ("base", "test")]
    wall, busy = (pair.metrics.get(name) for name in ("device_span_ns" if all(graphed) else "wall_ns", "busy_ns"))
    outer = wall if wall is not None and wall.ratio is not None else pair.metrics.get("device_ns")
    if outer is None or outer.ratio is None:
        return Verdict.UNMEASURED, None
    if busy is None or busy.ratio is None:
        return Verdict.UNDETERMINED, outer.ratio
    low, high = sorted((outer.ratio, busy.ratio))
    if graphed[0] != graphed[1]:
        ends = (_over(busy.test, outer.base), _over(outer.test, busy.base))
        if ends[0] is None or ends[1] is None:
            return Verdict.UNDETERMINED, outer.ratio
        low, high = min(low, ends[0]), max(high, ends[1])
    if drifted(drift) and drift.ratio is not None:
        low, high = min(low, low / drift.ratio), max(high, high / drift.ratio)
    return judge(low, high, "lower", MARGIN) or Verdict.UNDETERMINED, outer.ratio


def _over(first: object, second: object) -> float | None:
    if isinstance(first, int | float) and isinstance(second, int | float) and second:
        return first / second
    return None


def _fewer_kernels(pair: RegionPair | None) -> bool:
    kernels = pair.metrics.get("kernel_count") if pair else None
    return bool(kernels and kernels.delta is not None and kernels.delta < 0)


def _subject(pair: RegionPair | None, base: Report) -> str:
    """What a step is, where its label or the conditions tell: a whole request, decode, prefill; else a step."""
    label = pair.path[0] if pair else ""
    root = labels.parse_root(label)
    said = root.phase if root else label
    if said == "request":
        return said
    for phase in _PHASES:
        if phase in said.lower():
            return phase
    tokens = root.tokens if root else base.capture["conditions"].get("input_tokens")
    if not isinstance(tokens, int):
        return "step"
    return "decode" if tokens == 1 else "prefill" if tokens >= _PREFILL_TOKENS else "step"


_PREFILL_TOKENS: Final = 128
"""A step of fewer tokens may be a batch of decodes."""
