"""Matrices: which bundles are compared, where variants turn, and what the command prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.compare.matrix import assemble, plan_matrix
from tracekit.errors import InputError, UsageError
from tracekit.model.manifest import Manifest
from tracekit.model.report import Interval, MatrixCell
from tracekit.model.verdict import Verdict
from tracekit.render.matrix import matrix_markdown

SAMPLES = Path(__file__).parents[1] / "captures"


def bundle(variant: str, *, workload: str = "norm", ran: dict | None = None, **conditions: object) -> Manifest:
    return Manifest("id", workload=workload, variant=variant, conditions=conditions, ran=ran or {})


def planned(manifests: dict[str, Manifest], **options) -> list[tuple[str, str]]:
    return [(one.base, one.test) for one in plan_matrix(manifests, source="dir", **options).cells]


def test_every_variant_meets_the_baseline_of_its_own_shape():
    manifests = {
        "e1": bundle("eager", input_tokens=1), "f1": bundle("fused", input_tokens=1),
        "e2": bundle("eager", input_tokens=2048), "f2": bundle("fused", input_tokens=2048),
        "c2": bundle("compiled", input_tokens=2048, compile_mode="max-autotune"),
    }  # fmt: skip
    assert planned(manifests) == [("e1", "f1"), ("e2", "f2"), ("e2", "c2")]


def test_what_has_no_baseline_is_left_out_and_said_so():
    manifests = {
        "e": bundle("eager", graph_mode="none"), "g": bundle("graphed", graph_mode="cuda graph"),
        "e again": bundle("eager", graph_mode="none"), "x": Manifest("id"),
    }  # fmt: skip
    plan = plan_matrix(manifests, source="dir")
    assert not plan.cells
    assert [reason.split(":")[0] for reason in plan.left_out] == ["x", "g", "e again"]
    assert planned(manifests, waive=["graph_mode"]) == [("e", "g")]


def test_the_baseline_is_told_by_option_or_manifest_or_a_usual_name():
    manifests = {"a": bundle("one"), "b": bundle("two")}
    with pytest.raises(UsageError, match="not told"):
        planned(manifests)
    assert planned(manifests, baseline="two") == [("b", "a")]
    with pytest.raises(UsageError, match="no variant 'three'"):
        planned(manifests, baseline="three")
    manifests["a"] = bundle("one", ran={"baseline": "one"})
    assert planned(manifests) == [("a", "b")]
    with pytest.raises(InputError, match="workload and a variant"):
        planned({"a": Manifest("id")})
    with pytest.raises(UsageError, match="cannot waive"):
        planned(manifests, waive=["weather"])


def test_a_turn_is_between_the_decided_sizes_around_it():
    verdicts = {
        1: Verdict.BETTER,
        64: Verdict.SAME,
        512: Verdict.UNDETERMINED,
        2048: Verdict.WORSE,
        4096: Verdict.WORSE,
    }
    cells = [
        MatrixCell("w", "v", (("input_tokens", size),), "b", "t", verdict, "untraced", Interval(1.0, None, None), ())
        for size, verdict in reversed(verdicts.items())
    ]
    plan = plan_matrix({"e": bundle("eager")}, source="dir")
    (crossover,) = assemble(plan, cells).crossovers
    assert [point[0] for point in crossover.points] == list(verdicts)
    assert crossover.turns == ((1, 2048),)


def test_the_samples_as_a_matrix():
    matrix = pipeline.diff_matrix(SAMPLES)
    verdicts = {(cell.test, cell.verdict, cell.basis) for cell in matrix.cells}
    assert verdicts == {
        ("decode_fused", Verdict.BETTER, "untraced"), ("decode_spilling", Verdict.WORSE, "traced"),
        ("prefill_fused", Verdict.UNDETERMINED, "untraced"),
    }  # fmt: skip
    assert matrix.left_out == ("decode_unfused_graph: no unfused has its conditions",)
    fused = next(c for c in matrix.crossovers if c.variant == "fused")
    assert [point[0] for point in fused.points] == [1, 2048]
    assert "2,048: undetermined" in matrix_markdown(matrix)


def test_the_command_prints_it_and_gates_every_cell(tracekit, tmp_path):
    code, out, _ = tracekit("diff", "--matrix", SAMPLES, "-f", "json", "--fail-on", "busy_ns > +10%")
    assert code == 1
    cells = {cell["test"]: cell for cell in json.loads(out)["cells"]}
    assert (cells["decode_fused"]["gate"], cells["decode_spilling"]["gate"]) == ("passed", "failed")
    for command, word in (
        (("diff", "--matrix", SAMPLES, SAMPLES / "decode_fused"), "leave out BASE"),
        (("diff", "--matrix", SAMPLES, "-f", "html"), "text, json or markdown"),
        (("diff", "--matrix", tmp_path), "bundles"),
        (("diff", SAMPLES / "decode_fused"), "BASE and TEST"),
        (("diff",), "BASE and TEST"),
    ):
        code, out, err = tracekit(*command)
        assert (code, out) == (2, "")
        assert word in err


def test_a_crossing_lies_between_its_points_and_only_there() -> None:
    from tracekit.compare.matrix import _crossing

    before, after = (16, Verdict.BETTER, 0.5), (256, Verdict.WORSE, 2.0)
    assert _crossing(before, after) == pytest.approx(64)
    assert _crossing(after, before) == pytest.approx(64)
    assert 16 < _crossing((16, Verdict.BETTER, 0.9), (256, Verdict.WORSE, 3.0)) < 64
    assert _crossing(before, (256, Verdict.WORSE, 0.9)) is None
    assert _crossing((16, Verdict.BETTER, None), after) is None
