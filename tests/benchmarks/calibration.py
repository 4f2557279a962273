"""Simulates A/A comparisons with the measured noise between processes, and prints docs/statistics.md with the results.

Run: python tests/benchmarks/calibration.py > docs/statistics.md
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from tracekit.compare.statistics import Sample, estimate
from tracekit.model.verdict import MARGIN, Verdict

UNFUSED = (734.7, 729.9, 724.6, 781.2, 783.6, 766.8)
FUSED = (1090.0, 490.8, 471.5, 470.6, 486.5, 643.8)
"""Untraced us of six processes each, of tests/captures; two of the fused processes are outliers."""
UNFUSED_EARLIER = (675.0, 711.0, 787.0, 807.0, 850.0)
FUSED_EARLIER = (406.0, 444.0, 447.0, 473.0, 509.0)
"""The same two variants in five processes each on another day: a wide spread without outliers."""

BLOCK_SPREAD = 0.04
"""Standard deviation of what the processes of one block share, such as clocks and temperature."""

DRAWS = 1000
SEED = 20261201


def generator(seed: int = SEED) -> np.random.Generator:
    """The random numbers of a simulation: always the same."""
    return np.random.default_rng(seed)


def residuals(*variants: tuple[float, ...]) -> np.ndarray:
    """Log latencies about the median of their variant."""
    logs = [np.log(np.array(variant)) for variant in variants]
    return np.concatenate([log - np.median(log) for log in logs])


MEASURED = residuals(UNFUSED, FUSED, UNFUSED_EARLIER, FUSED_EARLIER)
QUIET = float(np.std(residuals(UNFUSED), ddof=1))
WIDE = float(np.std(residuals(UNFUSED_EARLIER, FUSED_EARLIER), ddof=1))
SLOWEST = float(np.log(max(FUSED) / np.median(FUSED)))


@dataclass(frozen=True)
class Scenario:
    """A distribution of a process's log latency. ``conservative`` is by how much more than 97 % may be covered."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    conservative: float = 0.0


def _normal(spread: float, outliers: float) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        slow = (rng.random(shape) < outliers) * rng.uniform(0.25, SLOWEST, shape)
        return rng.normal(0, spread, shape) + slow

    return draw


SCENARIOS = (
    Scenario("measured: drawn from all 22 processes", lambda rng, shape: rng.choice(MEASURED, shape)),
    Scenario(f"normal, {QUIET:.1%} spread", _normal(QUIET, 0)),
    Scenario(f"normal, {WIDE:.1%} spread", _normal(WIDE, 0)),
    Scenario("normal, 6.0% spread, one process in twelve an outlier", _normal(0.06, 1 / 12)),
    Scenario("normal, 6.0% spread, one process in six an outlier", _normal(0.06, 1 / 6)),
)


@dataclass(frozen=True)
class Result:
    """Shares of the draws of one simulation."""

    decided: float
    covered: float
    covered_by_student: float
    robust: float


@cache
def run(scenario: Scenario, *, repeats: int, draws: int = DRAWS, paired: bool = True) -> Result:
    """``draws`` comparisons of a variant with itself, of ``repeats`` processes a side."""
    rng = generator()
    logs = math.log(5e5) + scenario.draw(rng, (draws, 2, repeats))
    shared = rng.normal(0, BLOCK_SPREAD, (draws, 1, repeats)) if paired else 0.0
    counts = {"decided": 0, "covered": 0, "student": 0, "robust": 0}
    for base, test in np.exp(logs + shared):
        sides = [
            [Sample(float(value), at if paired else None) for at, value in enumerate(side)] for side in (base, test)
        ]
        found = estimate(*sides)
        counts["decided"] += found.verdict in (Verdict.BETTER, Verdict.WORSE)
        counts["covered"] += found.interval.low <= 1 <= found.interval.high
        counts["student"] += found.student.low <= 1 <= found.student.high
        counts["robust"] += found.decided_by == "robust"
    return Result(*(count / draws for count in counts.values()))


_PROSE = f"""\
# Repeats, intervals and verdicts

This page is written by `python tests/benchmarks/calibration.py > docs/statistics.md`; a test compares it with what
the script prints.

**The process is the unit of repetition.** Iterations inside one process agree within 1 or 2 %; the medians of several
processes that run the same code differ by up to a quarter, and now and then one takes twice as long. So a bundle's
`bench.json` has one figure for each process and protocol, and what is compared is processes.

**Paired where blocks are recorded.** A block is one turn of every variant, in random order. Where at least three
blocks are known on both sides, the logarithms of test / base of each block are averaged: what a block shares (clocks,
temperature, another tenant) cancels. Blocks of two runs of the bench were never side by side, and are not paired.
Without blocks, the log latencies of the two sides are compared as Welch does,
with their own variances.

**Two intervals, one rule.** Both are 95 % intervals of the ratio test / base:

- *Student's*, on the mean of the logarithms;
- *robust*, on their 20 % trimmed mean, with the winsorized variance and the degrees of freedom of Yuen (Biometrika
  61, 1974). It takes six repeats. It was preferred to Hodges and Lehmann's estimate, whose rank interval of six
  repeats reaches to the extreme value, and so to any outlier.

Student's decides, unless a value lies more than five scaled median absolute deviations from the median (of the paired
ratios; of a side's processes where nothing is paired): then the robust one does. The output says which decided and
shows the other. Outliers are listed, and no sample is ever removed.

**The verdict**, with a margin of {MARGIN:.0%}, the same everywhere: *better* or *worse* where the whole interval lies
beyond the margin, *same* where it lies within (from 1 / {1 + MARGIN} to {1 + MARGIN}), *undetermined* where it
reaches over, *unmeasured* where a side has no samples. Swapping the sides turns better into worse and back. With
fewer than three processes on a side there is no interval, and the verdict is undetermined: one process a side cannot
tell a change of the code from the difference between two processes. Fewer than ten give a warning.

**How many repeats.** The minimum detectable change is what as many repeats, with the spread found, would call better
or worse four times out of five: margin, half the interval and the 80 % quantile of its error, added up. *More
repeats* is how many would make the interval, around the same estimate, clear the margin.

**Regions have no interval.** Their figures come from one traced process a side, so a verdict there says that these
two captures differ, not that the next two would.

## Calibration

{DRAWS:,} comparisons of a variant with itself in each row, drawn from noise as it was measured on an H200 (see
tests/captures/README.md): *better or worse* must be at most 5 %, and the interval must cover the true ratio in about
95 % of the draws (93 to 97 % with ten paired repeats or more). Paired rows add a standard deviation of
{BLOCK_SPREAD:.0%} that a block shares. Outliers slow a process by 28 % up to the {math.exp(SLOWEST) - 1:.0%}
measured.
"""


@cache
def document() -> str:
    """docs/statistics.md."""
    lines = [
        "| noise between processes | repeats | design | better or worse | interval covers | Student's alone covers "
        "| robust decided |",
        "|---|---|---|---|---|---|---|",
    ]
    for scenario in SCENARIOS:
        for repeats, paired in ((6, True), (10, True), (20, True), (10, False)):
            found = run(scenario, repeats=repeats, paired=paired)
            cells = (found.decided, found.covered, found.covered_by_student, found.robust)
            design = "paired" if paired else "unpaired"
            figures = " | ".join(f"{100 * cell:.1f} %" for cell in cells)
            lines.append(f"| {scenario.name} | {repeats} | {design} | {figures} |")
    return f"{_PROSE}\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
