"""Estimates of latency ratios: known answers, symmetry, outliers, what few samples leave open, and calibration."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.compare.statistics import Sample, estimate, level, student_quantile
from tracekit.model.verdict import MARGIN, Verdict, judge, judge_figures, reconsidered

ROOT = Path(__file__).parents[2]
values = st.floats(100, 1e7)


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


calibration = load(ROOT / "tests/benchmarks/calibration.py")


def blocks(*figures: float) -> list[Sample]:
    return [Sample(figure, at) for at, figure in enumerate(figures)]


def loose(*figures: float) -> list[Sample]:
    return [Sample(figure) for figure in figures]


@pytest.mark.parametrize(
    ("probability", "freedom", "known"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 9, 2.26216), (0.975, 30, 2.04227), (0.8, 9, 0.883404),
     (0.95, 5, 2.01505), (0.975, 1e6, 1.959966)],
)  # fmt: skip
def test_quantiles_are_those_of_the_printed_tables(probability, freedom, known):
    assert student_quantile(probability, freedom) == pytest.approx(known, rel=2e-5)


def test_a_paired_interval_by_hand():
    # Log ratios -0.1, -0.2, -0.3: mean -0.2, standard error 0.1 / sqrt(3), t(2) = 4.30265.
    found = estimate(blocks(100, 100, 100), blocks(*(100 * math.exp(-x) for x in (0.1, 0.2, 0.3))))
    assert (found.method, found.pairs, found.decided_by) == ("paired", 3, "student")
    half = 4.30265 * 0.1 / math.sqrt(3)
    assert math.log(found.interval.value) == pytest.approx(-0.2)
    assert math.log(found.interval.low) == pytest.approx(-0.2 - half, rel=1e-4)
    assert math.log(found.interval.high) == pytest.approx(-0.2 + half, rel=1e-4)
    assert found.verdict is Verdict.UNDETERMINED


def test_pairing_removes_what_blocks_share():
    base = [100.0, 200, 400, 800, 120, 90]
    ratios = [0.9, 0.91, 0.89, 0.9, 0.905, 0.895]
    test = [b * r for b, r in zip(base, ratios, strict=True)]
    assert estimate(blocks(*base), blocks(*test)).verdict is Verdict.BETTER
    assert estimate(loose(*base), loose(*test)).verdict is Verdict.UNDETERMINED


def test_welch_by_hand():
    base, test = (1.0, 1.1, 1.2), (1.3, 1.5, 1.7)
    found = estimate(loose(*map(math.exp, base)), loose(*map(math.exp, test)))
    # Variances 0.01 / 3 and 0.04 / 3; degrees of freedom (0.05 / 3)^2 / ((0.01 / 3)^2 / 2 + (0.04 / 3)^2 / 2).
    freedom = 0.05**2 / (0.01**2 / 2 + 0.04**2 / 2)
    half = student_quantile(0.975, freedom) * math.sqrt(0.05 / 3)
    assert found.method == "unpaired"
    assert math.log(found.student.value) == pytest.approx(0.4)
    assert math.log(found.student.high) == pytest.approx(0.4 + half)


def test_an_outlier_is_shown_kept_and_overruled_by_the_robust_interval():
    base = loose(734.7, 729.9, 724.6, 781.2, 783.6, 766.8)
    test = loose(1090.0, 490.8, 471.5, 470.6, 486.5, 643.8)
    found = estimate(base, test)
    assert [outlier.value_ns for outlier in found.outliers] == [1090.0, 643.8]
    assert found.decided_by == "robust"
    assert found.student.high > 1 > found.robust.high
    assert found.interval == found.robust
    assert found.verdict is Verdict.BETTER
    assert (found.base_processes, found.test_processes) == (6, 6)


def test_few_samples_say_what_they_cannot_tell():
    assert estimate([], loose(1.0)).verdict is Verdict.UNMEASURED
    one = estimate(loose(100.0), loose(50.0))
    assert (one.verdict, one.cannot_tell, one.interval.low) == (Verdict.UNDETERMINED, "single_process", None)
    two = estimate(loose(100.0, 101.0), loose(50.0, 51.0))
    assert (two.verdict, two.cannot_tell) == (Verdict.UNDETERMINED, "too_few")
    assert level(loose(1.0, 2.0)) is None


def test_ten_quiet_blocks_tell_three_per_cent_and_that_none_is_none():
    base = [100 + at % 3 for at in range(10)]
    slower = [value * (1.03 + 0.001 * (at % 2)) for at, value in enumerate(base)]
    equal = [value * (1 + 0.002 * (at % 2 * 2 - 1)) for at, value in enumerate(base)]
    worse = estimate(blocks(*base), blocks(*slower))
    assert (worse.verdict, worse.cannot_tell, worse.more_repeats) == (Verdict.WORSE, None, 0)
    assert estimate(blocks(*base), blocks(*equal)).verdict is Verdict.SAME


def test_more_repeats_settle_what_these_could_not():
    base, test = blocks(*[100.0] * 4), [94.0, 102.0, 95.0, 97.0]
    found = estimate(base, blocks(*test))
    assert found.verdict is Verdict.UNDETERMINED
    assert found.more_repeats
    again = test * ((4 + found.more_repeats) // 4 + 1)
    assert estimate(blocks(*[100.0] * len(again)), blocks(*again)).verdict is Verdict.BETTER
    assert estimate(base, blocks(90.0, 107.0, 95.0, 101.0)).more_repeats is None


def test_a_detectable_change_is_found_as_often_as_promised():
    rng = calibration.generator(5)
    spread, repeats, trials = 0.03, 10, 400
    noise = rng.normal(0, spread, (trials, 2, repeats))
    found = 0
    typical = []
    for base, test in noise:
        typical.append(estimate(blocks(*(1e5 * b for b in map(math.exp, base))),
                                blocks(*(1e5 * t for t in map(math.exp, test)))).detectable_ratio)  # fmt: skip
    effect = math.log1p(sum(typical) / trials)
    for base, test in noise:
        slower = estimate(blocks(*map(math.exp, 10 + base)), blocks(*map(math.exp, 10 + effect + test)))
        found += slower.verdict is Verdict.WORSE
    assert 0.7 < found / trials < 0.9


@given(st.lists(st.tuples(values, values), min_size=1, max_size=14), st.booleans())
def test_swapping_the_sides_flips_the_verdict_and_turns_the_ratio_over(rows, paired):
    make = blocks if paired else loose
    base, test = (make(*side) for side in zip(*rows, strict=True))
    there, back = estimate(base, test), estimate(test, base)
    flipped = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    assert back.verdict is flipped.get(there.verdict, there.verdict)
    assert back.interval.value == pytest.approx(1 / there.interval.value)
    if there.interval.low is not None:
        assert back.interval.high == pytest.approx(1 / there.interval.low)
        assert there.interval.low <= there.interval.value <= there.interval.high


@given(st.lists(values, min_size=1, max_size=12), st.booleans())
def test_a_side_against_itself_is_the_same(figures, paired):
    side = (blocks if paired else loose)(*figures)
    found = estimate(side, side)
    assert (found.verdict, found.interval.value) == (Verdict.SAME, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "better", "verdict"),
    [
        (0.9, 0.97, "lower", Verdict.BETTER),
        (0.9, 0.97, "higher", Verdict.WORSE),
        (1.03, 1.2, "lower", Verdict.WORSE),
        (0.99, 1.01, "lower", Verdict.SAME),
        (1 / (1 + MARGIN), 1 + MARGIN, "lower", Verdict.SAME),
        (0.9, 0.99, "lower", Verdict.UNDETERMINED),
        (0.9, 1.1, "none", Verdict.UNDETERMINED),
        (0.9, 0.9, "none", None),
    ],
)
def test_verdicts_against_the_margin(low, high, better, verdict):
    assert judge(low, high, better) is verdict


def test_verdicts_on_plain_figures():
    assert judge_figures(None, 1, "lower") is Verdict.UNMEASURED
    assert judge_figures(0, 0, "lower") is Verdict.SAME
    assert judge_figures(0, 277_088, "lower") is Verdict.WORSE
    assert judge_figures(277_088, 0, "lower") is Verdict.BETTER
    assert judge_figures("registers", "grid", "none") is None
    assert reconsidered(Verdict.BETTER, wrong=True) is Verdict.WRONG
    assert reconsidered(Verdict.WORSE, wrong=True) is Verdict.WORSE


@pytest.mark.parametrize("scenario", calibration.SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_thousand_a_a_draws_stay_within_the_promise(scenario):
    result = calibration.run(scenario, repeats=10, draws=1000, paired=True)
    assert result.decided <= 0.05
    assert 0.93 <= result.covered <= 0.97 + scenario.conservative


def test_the_documented_table_is_what_the_script_prints():
    written = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    assert written == calibration.document()
