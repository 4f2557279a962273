"""What may be said of a figure on two sides: better, worse, same, undetermined or unmeasured, against one margin."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

MARGIN: Final = 0.02
"""Changes within this, either way, are called the same: 2 %, about what iterations of one process differ by."""


class Verdict(StrEnum):
    """The answer for one figure."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDETERMINED = "undetermined"
    """The interval reaches over the margin: the samples cannot tell."""
    UNMEASURED = "unmeasured"
    WRONG = "wrong"
    """It would be better, but the test side failed a quality check: faster but wrong."""


def judge(low: float, high: float, better: str, margin: float = MARGIN) -> Verdict | None:
    """The verdict on a ratio test / base that lies in [low, high]; None where no direction is better and it moved.

    Same is within [1 / (1 + margin), 1 + margin], so that swapping the sides turns better into worse and back.
    ``better`` is lower, higher or none.
    """
    # A rounded figure that lies on the border counts as within it.
    least, most = 1 / (1 + margin) - 1e-12, 1 + margin + 1e-12
    if least <= low and high <= most:
        return Verdict.SAME
    if high < least or low > most:
        if better not in ("lower", "higher"):
            return None
        return Verdict.BETTER if (high < least) == (better == "lower") else Verdict.WORSE
    return Verdict.UNDETERMINED


def judge_figures(base: object, test: object, better: str, margin: float = MARGIN) -> Verdict | None:
    """The verdict on two figures without an interval; None where they differ and no direction is better."""
    if base is None or test is None:
        return Verdict.UNMEASURED
    if base == test:
        return Verdict.SAME
    if not isinstance(base, int | float) or not isinstance(test, int | float):
        return None
    ratio = test / base if base else math.inf
    return judge(ratio, ratio, better, margin)


def reconsidered(verdict: Verdict | None, *, wrong: bool) -> Verdict | None:
    """The verdict once quality is known: what computes wrong results is never better."""
    return Verdict.WRONG if wrong and verdict is Verdict.BETTER else verdict
