"""Estimates a ratio of latencies from repeated processes: paired by interleaved block where recorded, else Welch's way.

Everything works on logarithms, where a ratio is a difference, and swapping the sides but changes its sign. Two
intervals stand beside each other: Student's on the mean, and the robust one of Yuen (Biometrika 61, 1974: the mean of
what is left when a fifth is trimmed from each end, with the winsorized variance). Student's decides, unless a process
lies far outside the rest: then the robust one does. docs/statistics.md has the calibration of this rule.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, median
from typing import Final

from tracekit.model.report import Estimate, Interval, Outlier
from tracekit.model.verdict import MARGIN, Verdict, judge

ENOUGH: Final = 10
"""Repeats a side that settle a small difference; fewer give a warning."""

CONFIDENCE: Final = 0.95
POWER: Final = 0.8
"""A change of the minimum detectable size is found with this probability."""

_TRIM: Final = 0.2
_FEWEST: Final = 3
"""Repeats below which no interval is given: with two, Student's is wide and its coverage rests on normality alone."""
_FEWEST_TO_TRIM: Final = 6
_OUTLYING: Final = 5.0
"""A value this many robust standard deviations (scaled median absolute deviations) from the median is an outlier."""
_MOST_REPEATS: Final = 1000


@dataclass(frozen=True)
class Sample:
    """One process: its latency in ns, and its interleaved block where recorded."""

    value_ns: float
    block: int | None = None


@dataclass(frozen=True)
class _Mean:
    """An estimate of a mean log ratio with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: float

    def half_width(self) -> float:
        return student_quantile(0.5 + CONFIDENCE / 2, self.freedom) * self.error

    def interval(self) -> Interval:
        half = self.half_width()
        return Interval(math.exp(self.value), math.exp(self.value - half), math.exp(self.value + half))


def estimate(base: Sequence[Sample], test: Sequence[Sample], margin: float = MARGIN) -> Estimate:
    """The ratio test / base of latencies that are better when lower, with intervals, outliers and a verdict.

    Blocks pair where at least three are known on both sides; several processes of one side in a block are averaged.
    """
    empty = Estimate("none", Verdict.UNMEASURED, len(base), len(test), margin, CONFIDENCE)
    if not base or not test:
        return replace(empty, cannot_tell="one_side_only")
    logs = [[math.log(sample.value_ns) for sample in side] for side in (base, test)]
    if sorted(logs[0]) == sorted(logs[1]):
        return replace(empty, method="identical", verdict=Verdict.SAME, interval=Interval(1.0, 1.0, 1.0))
    outliers = (*_outliers("base", base), *_outliers("test", test))
    pairs = _paired(base, test)
    if len(pairs) >= _FEWEST:
        flagged = any(_outlying(pairs))
        mean, trimmed = _mean(pairs), _trimmed(pairs)
        spread: tuple[float, ...] = (_spread(pairs),)
        method, repeats = "paired", len(pairs)
    elif min(len(base), len(test)) >= _FEWEST:
        flagged = bool(outliers)
        mean, trimmed = _difference(*map(_mean, logs)), _both_trimmed(*logs)
        spread = (_spread(logs[0]), _spread(logs[1]))
        method, repeats = "unpaired", min(len(base), len(test))
    else:
        single = min(len(base), len(test)) == 1
        return replace(
            empty,
            method="single" if single else "too_few",
            verdict=Verdict.UNDETERMINED,
            interval=Interval(math.exp(median(logs[1]) - median(logs[0])), None, None),
            cannot_tell="single_process" if single else "too_few",
        )
    decides = trimmed if flagged and trimmed is not None else mean
    chosen = decides.interval()
    assert chosen.low is not None
    assert chosen.high is not None
    return replace(
        empty,
        method=method,
        pairs=len(pairs) if method == "paired" else None,
        verdict=judge(chosen.low, chosen.high, "lower", margin) or Verdict.UNDETERMINED,
        interval=chosen,
        student=mean.interval(),
        robust=trimmed.interval() if trimmed else None,
        decided_by="student" if decides is mean else "robust",
        outliers=outliers,
        spread=spread,
        detectable_ratio=_detectable(decides, margin),
        more_repeats=_more_repeats(decides, repeats, margin),
        cannot_tell=None if repeats >= ENOUGH else "few_processes",
    )


def level(samples: Sequence[Sample]) -> Interval | None:
    """The geometric mean of one side's latencies in ns with its interval; None below three processes."""
    if len(samples) < _FEWEST:
        return None
    logs = [math.log(sample.value_ns) for sample in samples]
    trimmed = _trimmed(logs) if any(_outlying(logs)) else None
    return (trimmed or _mean(logs)).interval()


def _paired(base: Sequence[Sample], test: Sequence[Sample]) -> list[float]:
    """The log ratio of each block that both sides have."""
    sides = []
    for samples in (base, test):
        blocks: dict[int, list[float]] = {}
        for sample in samples:
            if sample.block is not None:
                blocks.setdefault(sample.block, []).append(math.log(sample.value_ns))
        sides.append({block: math.fsum(values) / len(values) for block, values in blocks.items()})
    return [sides[1][block] - value for block, value in sides[0].items() if block in sides[1]]


def _mean(values: Sequence[float]) -> _Mean:
    count = len(values)
    return _Mean(math.fsum(values) / count, _spread(values) / math.sqrt(count), count - 1)


def _spread(values: Sequence[float]) -> float:
    """The standard deviation."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _trimmed(values: Sequence[float]) -> _Mean | None:
    """Yuen's trimmed mean: none below six values, of which one would be trimmed at each end."""
    count = len(values)
    if count < _FEWEST_TO_TRIM:
        return None
    cut = int(_TRIM * count)
    ordered = sorted(values)
    kept = ordered[cut : count - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = math.sqrt((count - 1) * _spread(winsorized) ** 2 / (len(kept) * (len(kept) - 1)))
    return _Mean(math.fsum(kept) / len(kept), error, len(kept) - 1)


def _difference(base: _Mean, test: _Mean) -> _Mean:
    """Test - base of independent means, with the degrees of freedom of Welch and Satterthwaite."""
    squares = [base.error**2, test.error**2]
    whole = sum(squares)
    parts = sum(square**2 / mean.freedom for square, mean in zip(squares, (base, test), strict=True))
    freedom = whole**2 / parts if parts > 0 else base.freedom + test.freedom
    return _Mean(test.value - base.value, math.sqrt(whole), freedom)


def _both_trimmed(base: Sequence[float], test: Sequence[float]) -> _Mean | None:
    first, second = _trimmed(base), _trimmed(test)
    return _difference(first, second) if first and second else None


def _outlying(values: Sequence[float]) -> list[bool]:
    """Which values lie far from the median, by the median absolute deviation; none where half of them are equal."""
    centre = median(values)
    scale = 1.4826 * median(abs(value - centre) for value in values)
    return [scale > 0 and abs(value - centre) > _OUTLYING * scale for value in values]


def _outliers(side: str, samples: Sequence[Sample]) -> list[Outlier]:
    if len(samples) < _FEWEST:
        return []
    flags = _outlying([math.log(sample.value_ns) for sample in samples])
    return [Outlier(side, sample.value_ns, sample.block) for sample, flag in zip(samples, flags, strict=True) if flag]


def _detectable(mean: _Mean, margin: float) -> float:
    """The smallest change that as many repeats as these would call better or worse, with probability POWER."""
    reach = mean.half_width() + student_quantile(POWER, mean.freedom) * mean.error
    return math.exp(math.log1p(margin) + reach) - 1


def _more_repeats(mean: _Mean, repeats: int, margin: float) -> int | None:
    """How many more repeats, of the same spread, would settle a verdict at this estimate; None above a thousand."""
    distance = abs(abs(mean.value) - math.log1p(margin))
    spread = mean.error * math.sqrt(repeats)

    def settles(count: int) -> bool:
        freedom = mean.freedom * (count - 1) / max(1, repeats - 1)
        return student_quantile(0.5 + CONFIDENCE / 2, freedom) * spread / math.sqrt(count) < distance

    if spread == 0 or settles(repeats):
        return 0
    if not settles(_MOST_REPEATS):
        return None
    return bisect_left(range(repeats, _MOST_REPEATS), True, key=settles)


@lru_cache(maxsize=4096)
def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t distribution, for probabilities above 0.5.

    Newton's method from the normal quantile, which lies below: the distribution is concave there, so that every step
    ends below the root and the next is better.
    """
    t = NormalDist().inv_cdf(probability)
    front = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    for _ in range(200):
        density = front * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (probability - _student_cdf(t, freedom)) / density
        t += step
        if abs(step) < 1e-12 * t:
            break
    return t


def _student_cdf(t: float, freedom: float) -> float:
    return 1 - _beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function by Lentz's continued fraction (Numerical Recipes, section 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 500):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + factor * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + factor / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * value / a
