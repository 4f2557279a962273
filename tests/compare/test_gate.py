"""Gates: the grammar with its errors, every match judged, and the exit codes of the command."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit import pipeline
from tracekit.compare.gate import judge_gate, parse_rule
from tracekit.errors import UsageError
from tracekit.model.report import Change, Comparison, Report

SAMPLES = Path(__file__).parents[1] / "captures"


@cache
def report(name: str) -> Report:
    return pipeline.report(SAMPLES / name)


@cache
def decode() -> Comparison:
    return pipeline.diff(report("decode_unfused"), report("decode_fused"))


def outcomes(comparison: Comparison, *rules: str) -> list[str]:
    return [check.outcome for check in judge_gate(comparison, [parse_rule(rule) for rule in rules]).checks]


@pytest.mark.parametrize(
    ("text", "region", "metric", "op", "kind", "limit"),
    [
        ("latency_ns > +2%", None, "latency_ns", ">", "relative", 0.02),
        ("latency_ns>=-2.5 %", None, "latency_ns", ">=", "relative", -0.025),
        ("latency_ns > 500us", None, "latency_ns", ">", "figure", 500_000),
        ("busy_ns > +10 us", None, "busy_ns", ">", "difference", 10_000),
        ("spill_instruction_count > 0", None, "spill_instruction_count", ">", "figure", 0),
        ("*/norm: dram_read_bytes > +5%", "*/norm", "dram_read_bytes", ">", "relative", 0.05),
        ("a: b: dram_read_bytes > 1.5MB", "a: b", "dram_read_bytes", ">", "figure", 1.5e6),
        ("dram_write_bytes < 2KiB", None, "dram_write_bytes", "<", "figure", 2048),
        ("sm_fill_ratio < 50%", None, "sm_fill_ratio", "<", "figure", 0.5),
        ("active_blocks_count <= \N{MINUS SIGN}1", None, "active_blocks_count", "<=", "difference", -1),
        ("layers[3]: kernel_count > 1e2", "layers[3]", "kernel_count", ">", "figure", 100),
    ],
)
def test_rules_are_read(text, region, metric, op, kind, limit):
    rule = parse_rule(text)
    assert (rule.region, rule.metric, rule.op, rule.kind) == (region, metric, op, kind)
    assert rule.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["not a rule", "METRIC OP LIMIT"]),
        ("latency_ns", ["not a rule"]),
        ("latency_ns == 2", ["not a rule"]),
        ("latency_ns > fast", ["no limit 'fast'"]),
        ("latency_ns > +2% today", ["no limit"]),
        ("latency_ns > 2%", ["2% of what?", "+2%"]),
        ("latency_ns > +2MB", ["not counted in MB", "us"]),
        ("x: latency_ns > +2%", ["whole request", "device_ns"]),
        ("kernels_count > 3", ["no metric 'kernels_count'", "kernel_count"]),
        ("zzz > 3", ["no metric 'zzz'", "busy_ns"]),
        ("occupancy_limiter > 3", ["no number"]),
        ("kernel_count > 3us", ["not counted in us"]),
    ],
)
def test_what_is_no_rule_is_refused_in_words(text, words):
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert all(word in str(caught.value) for word in words)


@given(st.text(max_size=60))
def test_any_text_is_a_rule_or_a_clear_error(text):
    try:
        operator = parse_rule(text).op
    except UsageError as error:
        operator = "" if error.remedy else "no remedy"
    assert operator in text


def test_every_match_is_judged():
    assert outcomes(decode(), "*/residual_rmsnorm: kernel_count > 1") == ["passed"] * 4
    assert outcomes(decode(), "*layer?: kernel_count > 5") == ["failed"] * 4
    gate = judge_gate(decode(), [parse_rule("*/residual_rmsnorm: dram_read_bytes > +5%")])
    assert [check.path[1] for check in gate.checks] == ["layer0", "layer1", "layer2", "layer3"]
    assert gate.outcome == "passed"


@pytest.mark.parametrize(
    "glob", ["unfused/T1/iter/layer0", r"unfused\/T1\/iter/layer0", "fused/T1/iter/layer0", "*/layer0"]
)
def test_a_region_is_named_as_either_side_writes_it(glob):
    assert outcomes(decode(), f"{glob}: kernel_count > 100") == ["passed"]


def test_brackets_in_a_glob_are_brackets():
    with pytest.raises(UsageError, match="matches nothing"):
        outcomes(decode(), "*/layer[0-3]: kernel_count > 1")


def test_a_gate_that_matches_nothing_is_an_error_that_lists_what_there_is():
    with pytest.raises(UsageError) as caught:
        outcomes(decode(), "nowhere: kernel_count > 1")
    assert "unfused/T1/iter/layer0" in caught.value.remedy


def test_latency_is_judged_by_its_interval():
    assert outcomes(decode(), "latency_ns > +2%") == ["passed", "passed"]
    assert outcomes(decode(), "latency_ns > -90%") == ["failed", "failed"]
    assert outcomes(decode(), "latency_ns > -30%") == ["undetermined", "undetermined"]
    assert outcomes(decode(), "latency_ns > 100us", "latency_ns > 5ms") == ["failed"] * 2 + ["passed"] * 2
    assert outcomes(decode(), "latency_ns > +1us") == ["passed", "passed"]
    prefill = pipeline.diff(report("prefill_unfused"), report("prefill_fused"))
    assert outcomes(prefill, "latency_ns > +2%") == ["undetermined", "undetermined"]


def test_what_is_not_measured_is_undetermined_unless_another_match_is():
    spilling = pipeline.diff(report("decode_unfused"), report("decode_spilling"))
    assert outcomes(spilling, "spill_instruction_count > 0") == ["failed"]
    assert outcomes(decode(), "spill_instruction_count > 0") == ["undetermined"]
    prefill = pipeline.diff(report("prefill_unfused"), report("prefill_fused"))
    found = outcomes(prefill, "*/layer?: dram_read_bytes > +5%")
    assert sorted(found) == ["passed", "unmeasured", "unmeasured", "unmeasured"]
    bare = pipeline.diff(replace(report("decode_unfused"), latency=()), replace(report("decode_fused"), latency=()))
    assert outcomes(bare, "latency_ns > +2%") == ["undetermined"]


def test_a_rise_from_nothing_is_endless():
    pair = decode().regions[0]
    appeared = Change(0, 5, 5, None, "count", "lower")
    comparison = replace(decode(), regions=(replace(pair, metrics={"copy_count": appeared}),))
    assert outcomes(comparison, "copy_count > +500%") == ["failed"]
    still = replace(appeared, test=0, delta=0)
    comparison = replace(decode(), regions=(replace(pair, metrics={"copy_count": still}),))
    assert outcomes(comparison, "copy_count > +0%", "copy_count > 0") == ["passed", "passed"]


def test_a_failed_quality_check_fails_every_gate():
    check = {"check": "top-1", "reference": "bf16", "error": 1.0, "tolerance": 0.1, "passed": False}
    fused = report("decode_fused")
    wrong = replace(fused, capture={**fused.capture, "quality": [check]})
    gate = judge_gate(pipeline.diff(report("decode_unfused"), wrong), [parse_rule("latency_ns > +2%")])
    assert (gate.outcome, gate.exit_code, gate.failed_quality) == ("failed", 1, ("top-1",))


# The command

DECODE = ("diff", SAMPLES / "decode_unfused", SAMPLES / "decode_fused")


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("latency_ns > +2%", 0),
        ("kernel_count > 20", 1),
        ("nowhere: kernel_count > 20", 2),
        ("kernel_count >", 2),
        ("spill_instruction_count > 0", 4),
    ],
)
@pytest.mark.parametrize("format", ["text", "json", "markdown", "html", "junit"])
def test_exit_codes(tracekit, rule, code, format):
    found, out, err = tracekit(*DECODE, "--fail-on", rule, "-f", format)
    assert found == code
    assert bool(out) == (code != 2)
    assert err.startswith("tracekit: ") == (code != 0)


@pytest.mark.parametrize("format", ["json", "markdown", "html", "junit"])
def test_not_comparable_is_3_and_says_so_in_the_format(tracekit, format):
    command = ("diff", SAMPLES / "decode_unfused", SAMPLES / "decode_unfused_graph", "--fail-on", "latency_ns > +2%")
    code, out, _ = tracekit(*command, "-f", format)
    assert code == 3
    assert "graph" in out


def test_a_failed_gate_still_writes_its_file_and_never_over_another(tracekit, tmp_path):
    result = tmp_path / "gate.xml"
    command = (*DECODE, "--fail-on", "kernel_count > 20", "-f", "junit", "-o", result)
    assert tracekit(*command)[0] == 1
    suite = ElementTree.parse(result).getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    before = result.read_text()
    assert tracekit(*command)[0] == 2
    assert result.read_text() == before
    assert tracekit(*command, "--force")[0] == 1


def test_the_json_has_every_check(tracekit):
    _, out, _ = tracekit(*DECODE, "--fail-on", "latency_ns > +2%", "-f", "json")
    gate = json.loads(out)["gate"]
    assert gate["outcome"] == "passed"
    assert {check["protocol"] for check in gate["checks"]} == {"synchronized", "pipelined"}
    assert all(check["low"] <= check["found"] <= check["high"] < check["limit"] for check in gate["checks"])
