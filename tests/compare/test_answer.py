"""The answer on real captures: verdicts, reasons in their order, waterfalls that close, quality before speed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tracekit import pipeline
from tracekit.compare.quality import failed_checks
from tracekit.model.report import Comparison, Latency, Report
from tracekit.model.verdict import Verdict
from tracekit.render.json import diff_json
from tracekit.render.words import grounds, headline, phase_words, reason_words

SAMPLES = Path(__file__).parents[1] / "captures"
PAIRS = (
    ("decode_unfused", "decode_fused"), ("prefill_unfused", "prefill_fused"), ("decode_unfused", "decode_spilling"),
    ("decode_fused", "decode_spilling"), ("decode_unfused", "decode_unfused_graph"),
    ("decode_unfused_graph", "decode_fused"),
)  # fmt: skip


@cache
def report(name: str) -> Report:
    return pipeline.report(SAMPLES / name)


@cache
def compared(base: str, test: str) -> Comparison:
    return pipeline.diff(report(base), report(test), waive=("graph_mode",))


def because(comparison: Comparison) -> list[str]:
    return [reason.code for reason in comparison.answer.reasons if reason.role == "because"]


def codes(comparison: Comparison) -> set[str]:
    return {reason.code for reason in comparison.answer.reasons}


def reason(comparison: Comparison, code: str):
    return next(reason for reason in comparison.answer.reasons if reason.code == code)


def with_latency(report: Report, *us: float) -> Report:
    samples = tuple(value * 1000 for value in us)
    entry = Latency("synchronized", len(us), sorted(samples)[len(us) // 2], min(samples), max(samples), samples)
    return replace(report, latency=(replace(entry, blocks=tuple(range(len(us)))),))


def checked(report: Report, *, passed: bool) -> Report:
    check = {"check": "relative L2", "reference": "float64", "error": 1.0, "tolerance": 0.1, "passed": passed}
    return replace(report, capture={**report.capture, "quality": [check]})


def test_decode_helped_for_the_launches_and_then_the_kernels() -> None:
    comparison = compared("decode_unfused", "decode_fused")
    answer = comparison.answer
    assert (answer.verdict, answer.basis, answer.change, answer.subject) == (
        Verdict.BETTER, "untraced", "fusion", "decode",
    )  # fmt: skip
    assert because(comparison) == ["launches_removed", "kernels_replaced_faster"]
    launches = reason(comparison, "launches_removed")
    assert launches.figure("kernel_count", "delta") == -40
    assert launches.effect_ns == pytest.approx(488_650 - 750_750 - (374_396 - 437_738.5), abs=1)
    assert headline(comparison).startswith("Fusion helped decode by 31.1 % (6.5 to 49.2 %), because 40 of 64 kernels")


def test_decode_bytes_stayed_since_the_intermediates_are_reused_within_l2() -> None:
    found = reason(compared("decode_unfused", "decode_fused"), "intermediates_in_l2")
    assert found.path[-1] == "residual_rmsnorm"
    assert found.figure("reuse_distance_bytes", "base") < found.figure("l2_bytes", "limit") == 62_914_560
    assert found.figure("dram_bytes", "ratio") == pytest.approx(1, abs=0.02)


def test_prefill_is_undetermined_by_one_process_and_its_layer_moved_a_fifth_fewer_bytes() -> None:
    comparison = compared("prefill_unfused", "prefill_fused")
    assert comparison.answer.verdict is Verdict.UNDETERMINED
    assert comparison.answer.subject == "prefill"
    assert 0.88 < comparison.answer.interval.value < 0.92
    moved = reason(comparison, "dram_bytes_removed")
    assert moved.path[-1] == "layer1"
    assert moved.figure("dram_bytes", "ratio") == pytest.approx(0.777, abs=0.002)
    assert moved.figure("cache_state", "both") == "in_model"
    assert "intermediates_in_l2" not in codes(comparison)
    assert reason(comparison, "traced_faster_than_untraced").role == "doubt"


@pytest.mark.parametrize("base", ["decode_unfused", "decode_fused"])
def test_the_spilling_kernel_is_slow_for_its_grid_first_and_its_spills_second(base: str) -> None:
    comparison = compared(base, "decode_spilling")
    assert comparison.answer.verdict is Verdict.WORSE
    assert comparison.answer.basis == "traced"
    assert because(comparison)[:2] == ["grid_too_small", "spills_minor"]
    grid, spills = (reason(comparison, code) for code in because(comparison)[:2])
    assert grid.figure("grid_blocks", "test") == 56
    assert grid.figure("sm_count", "limit") == 132
    assert spills.figure("spill_instruction_count", "test") == 277_088
    assert spills.figure("spill_bytes", "test") == pytest.approx(35.5e6, rel=0.01)
    assert "not the main cause" in reason_words(spills)


def test_a_graph_saves_the_host_time_and_says_so() -> None:
    comparison = compared("decode_unfused", "decode_unfused_graph")
    assert because(comparison) == ["launched_by_graph"]
    assert "kernels_replaced_faster" not in codes(comparison)


def test_graph_against_graph_helps_by_the_kernels_own_time_alone() -> None:
    """The fused step as a graph took 385 us against 441: its 24 kernels, launched by one call as the 64 are."""
    base = with_latency(report("decode_unfused_graph"), 441, 442, 440, 441, 442, 441)
    fused = report("decode_fused")
    graphed = tuple(
        replace(
            region,
            metrics={**region.metrics, "launch_call_count": replace(region.metrics["launch_call_count"], value=1)},
        )
        for region in fused.regions
    )
    comparison = pipeline.diff(
        base, with_latency(replace(fused, regions=graphed), 385, 386, 384, 385, 386, 385), waive=["graph_mode"]
    )
    assert comparison.answer.verdict is Verdict.BETTER
    assert because(comparison)[0] == "kernels_replaced_faster"
    assert "launches_removed" not in codes(comparison)
    assert reason(comparison, "already_graph_captured").role == "limit"


@pytest.mark.parametrize(("base", "test"), PAIRS)
def test_waterfalls_close_to_the_nanosecond(base: str, test: str) -> None:
    comparison = compared(base, test)
    assert comparison.waterfalls
    for waterfall in comparison.waterfalls:
        assert waterfall.base_ns + sum(step.delta_ns for step in waterfall.steps) == waterfall.test_ns
    bases = {waterfall.basis: waterfall for waterfall in comparison.waterfalls}
    both_measured = all(report(name).latency for name in (base, test))
    assert ("untraced" in bases) == both_measured
    if both_measured:
        change = comparison.latency["synchronized"]
        assert (bases["untraced"].base_ns, bases["untraced"].test_ns) == (round(change.base), round(change.test))


@pytest.mark.parametrize(("base", "test"), PAIRS)
def test_deltas_by_region_add_up_to_the_roots(base: str, test: str) -> None:
    comparison = compared(base, test)
    deltas = {delta.path: delta for delta in comparison.region_deltas}
    root = deltas[comparison.answer.path]
    assert sum(delta.direct_delta_ns for delta in deltas.values()) == root.delta_ns == root.test_ns - root.base_ns
    if base != "decode_unfused_graph" and test != "decode_unfused_graph":
        layers = [delta.delta_ns for path, delta in deltas.items() if len(path) == 2]
        assert sum(layers) + root.direct_delta_ns == root.delta_ns


def test_the_traced_ledger_is_that_of_typical_instances() -> None:
    (traced,) = [w for w in compared("decode_unfused", "decode_fused").waterfalls if w.basis == "traced"]
    frame = report("decode_unfused").frames["instances"]
    walls = frame[frame["depth"] == 0]["wall_ns"].astype("int64")
    closest = walls[(walls - walls.median()).abs().sort_values(kind="stable").index[: traced.instances]]
    assert traced.base_ns == closest.sum()


@pytest.mark.parametrize("name", sorted({name for pair in PAIRS for name in pair}))
def test_a_trace_against_itself_is_the_same_everywhere(name: str) -> None:
    comparison = compared(name, name)
    assert comparison.answer.verdict is Verdict.SAME
    verdicts = {change.verdict for pair in comparison.regions for change in pair.metrics.values()}
    assert verdicts <= {Verdict.SAME, Verdict.UNMEASURED}
    assert all(change.verdict is Verdict.SAME for change in comparison.latency.values())
    assert not because(comparison)
    assert all(step.delta_ns == 0 for waterfall in comparison.waterfalls for step in waterfall.steps)
    assert all(delta.delta_ns == 0 for delta in comparison.region_deltas)


FLIPPED = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


@pytest.mark.parametrize(("base", "test"), PAIRS)
def test_swapping_the_sides_flips_every_sign_and_verdict(base: str, test: str) -> None:
    there, back = compared(base, test), compared(test, base)
    assert back.answer.verdict is FLIPPED.get(there.answer.verdict, there.answer.verdict)
    for waterfall, other in zip(there.waterfalls, back.waterfalls, strict=True):
        assert (waterfall.base_ns, waterfall.test_ns) == (other.test_ns, other.base_ns)
        assert {s.name: s.delta_ns for s in waterfall.steps} == {s.name: -s.delta_ns for s in other.steps}
    backward = {(pair.base_path, pair.test_path): pair for pair in back.regions}
    for pair in there.regions:
        for name, change in pair.metrics.items():
            swapped = backward[pair.test_path, pair.base_path].metrics[name]
            assert swapped.verdict is FLIPPED.get(change.verdict, change.verdict)
            assert swapped.delta == (None if change.delta is None else -change.delta)


def test_faster_but_wrong_is_never_better() -> None:
    wrong = checked(report("decode_fused"), passed=False)
    assert failed_checks(wrong) == ("relative L2",)
    comparison = pipeline.diff(report("decode_unfused"), wrong)
    assert comparison.answer.verdict is Verdict.WRONG
    assert headline(comparison).startswith("Faster but wrong: fusion made decode faster by 31.1 %")
    assert '"better"' not in json.dumps([change.verdict for change in every_change(comparison)])
    assert any("quality checks failed: relative L2" in note for note in comparison.notes)
    right = pipeline.diff(report("decode_unfused"), checked(report("decode_fused"), passed=True))
    assert right.answer.verdict is Verdict.BETTER
    slower = pipeline.diff(report("decode_fused"), checked(report("decode_unfused"), passed=False))
    assert slower.answer.verdict is Verdict.WORSE


def every_change(comparison: Comparison):
    yield from comparison.latency.values()
    for pair in comparison.regions:
        yield from pair.metrics.values()


def test_without_untraced_latency_busy_and_wall_must_agree() -> None:
    bare = [replace(report(name), latency=()) for name in ("decode_unfused", "decode_fused")]
    comparison = pipeline.diff(*bare)
    assert (comparison.answer.verdict, comparison.answer.basis) == (Verdict.BETTER, "traced")
    assert "By the traces alone" in grounds(comparison)
    # A graph's launch is stretched by its nodes: untraced, the graph took 455.6 us and the fused step 488.6.
    graphed = replace(report("decode_unfused_graph"), latency=())
    for side in bare:
        assert pipeline.diff(side, graphed, waive=["graph_mode"]).answer.verdict is Verdict.UNDETERMINED
        assert pipeline.diff(graphed, side, waive=["graph_mode"]).answer.verdict is Verdict.UNDETERMINED
    # Its busy time alone is longer than the graph's whole traced step.
    slow = pipeline.diff(graphed, report("decode_spilling"), waive=["graph_mode"])
    assert (slow.answer.verdict, slow.answer.basis) == (Verdict.WORSE, "traced")


def test_drift_withholds_a_traced_verdict_that_it_could_explain() -> None:
    base = replace(report("decode_fused"), latency=())
    launches = base.frames["launches"]
    slower = replace(
        base,
        frames={**base.frames, "launches": launches.assign(median_ns=launches["median_ns"] * 1.1)},
        regions=tuple(
            replace(
                region,
                metrics={
                    name: replace(metric, value=metric.value * 1.1) if name in ("wall_ns", "busy_ns") else metric
                    for name, metric in region.metrics.items()
                },
            )
            if len(region.path) == 1
            else region
            for region in base.regions
        ),
    )
    comparison = pipeline.diff(base, slower)
    assert comparison.answer.verdict is Verdict.UNDETERMINED
    assert reason(comparison, "drift_between_sides").figure("shared_kernel_time", "ratio") == pytest.approx(1.1)


def test_the_json_has_the_data_and_the_sentences() -> None:
    data = json.loads(diff_json(compared("decode_unfused", "decode_fused")))
    assert data["answer"]["verdict"] == data["latency"]["synchronized"]["verdict"] == "better"
    assert [finding["topic"] for finding in data["findings"]] == ["launches", "dram", "resources", "blocks", "latency"]
    for found in data["answer"]["reasons"]:
        assert found["figures"]
        assert found["sentence"]
        assert {"name", "value", "unit", "side"} == set(found["figures"][0])
    assert data["latency"]["synchronized"]["estimate"]["decided_by"] == "robust"
    assert data["regions"][0]["metrics"]["kernel_count"]["verdict"] == "better"


def test_losing_a_graph_is_said_by_its_launch_calls() -> None:
    comparison = compared("decode_unfused_graph", "decode_fused")
    gone = reason(comparison, "graph_gone")
    assert gone.figure("launch_call_count", "test") == 24
    assert reason_words(gone).startswith("24 launch calls take the place of a CUDA graph")
    assert gone.effect_ns > 0


def synthetic(**metrics: tuple[object, object]) -> Comparison:
    """The decode pair with some metrics of its root replaced on both sides."""
    sides = []
    for at, name in enumerate(("decode_unfused", "decode_fused")):
        root, *rest = report(name).regions
        changed = {
            metric: replace(root.metrics[metric], value=values[at], kinds={}) for metric, values in metrics.items()
        }
        sides.append(replace(report(name), regions=(replace(root, metrics={**root.metrics, **changed}), *rest)))
    return pipeline.diff(*sides)


def test_fewer_active_blocks_are_a_reason_only_where_the_grid_fills_a_wave() -> None:
    assert "active_blocks_fell" in codes(synthetic(active_blocks_count=(4, 2), waves=(3.0, 6.0)))
    assert "active_blocks_fell" not in codes(synthetic(active_blocks_count=(4, 2), waves=(0.1, 0.2)))
    assert "active_blocks_fell" not in codes(synthetic(active_blocks_count=(2, 4), waves=(3.0, 6.0)))


def test_a_tail_wave_costs_what_it_leaves_empty() -> None:
    found = reason(synthetic(waves=(2.0, 1.25)), "tail_wave")
    assert found.figure("tail_wave_share", "test") == pytest.approx(1 - 1.25 / 2)
    assert found.role == "although"
    assert "tail_wave" not in codes(synthetic(waves=(1.25, 1.25)))
    assert "tail_wave" not in codes(synthetic(waves=(1.0, 7.95)))


def test_a_tensor_bound_kernel_limits_what_fusion_can_do() -> None:
    assert reason(synthetic(tensor_pipe_ratio=(0.8, 0.82)), "tensor_bound").role == "limit"
    assert "tensor_bound" not in codes(synthetic(tensor_pipe_ratio=(0.2, 0.3)))


def test_collectives_that_wait_longer_are_named() -> None:
    sides = []
    for name, busy in (("decode_unfused", 20_000), ("decode_fused", 4_020_000)):
        own = report(name)
        launches = own.frames["launches"]
        spun = launches.assign(collective=launches["name"].astype(object).str.startswith("nvjet_sm90_tst_64x8"))
        root, *rest = own.regions
        kernels = tuple(
            replace(kernel, busy_ns=busy) if kernel.name.startswith("nvjet_sm90_tst_64x8") else kernel
            for kernel in root.kernels
        )
        frames = {**own.frames, "launches": spun}
        sides.append(replace(own, regions=(replace(root, kernels=kernels), *rest), frames=frames))
    found = reason(pipeline.diff(*sides), "collectives_wait_longer")
    assert found.effect_ns == (4_020_000 - 20_000) / 20
    assert found.role == "although"


def test_spills_that_matter_and_spills_that_were_there_before() -> None:
    many = 600_000_000
    assert reason(synthetic(spill_instruction_count=(0, many)), "spills_matter").effect_ns > 10_000
    assert not {"spills_matter", "spills_minor"} & codes(synthetic(spill_instruction_count=(many, many)))
    assert not {"spills_matter", "spills_minor"} & codes(synthetic(spill_instruction_count=(many, 0)))


def test_every_code_has_words_and_a_row() -> None:
    from tracekit.compare.findings import _ROW_OF
    from tracekit.render.words import _CLAUSES

    assert set(_ROW_OF) == set(_CLAUSES)
    assert set(_ROW_OF.values()) == {"launches", "dram", "resources", "blocks", "latency"}


def test_bytes_removed_stand_against_the_lower_bound_where_it_is_known() -> None:
    sides = []
    for name, read in (("decode_unfused", 2e9), ("decode_fused", 1.5e9)):
        root, *rest = report(name).regions
        metric = replace(root.metrics["dram_read_bytes"], value=read, kind="in_model", kinds={})
        written = replace(root.metrics["dram_write_bytes"], kind="in_model", kinds={})
        metrics = {**root.metrics, "dram_read_bytes": metric, "dram_write_bytes": written}
        capture = {**report(name).capture, "lower_bound_bytes": 1_410_000_000}
        sides.append(replace(report(name), regions=(replace(root, metrics=metrics), *rest), capture=capture))
    comparison = pipeline.diff(*sides)
    found = reason(comparison, "dram_bytes_removed")
    assert found.figure("lower_bound_bytes", "test") == 1_410_000_000
    assert "against a lower bound of 1,410.0 MB" in reason_words(found)
    # 500 MB at the 4.8 TB/s of the data sheet, and what the writes gained.
    step = next(step for step in comparison.waterfalls[0].steps if step.name == "dram_bytes")
    assert step.delta_ns == round(found.effect_ns) == pytest.approx(-500e6 / 4.8e12 * 1e9, rel=0.02)


def test_blocks_of_a_bundle_pair_its_samples(bundle) -> None:
    def bench(variant: str, factor: float) -> dict:
        samples = [
            {"process": 2 * at, "variant": variant, "protocol": "synchronized", "block": at, "order": 0,
             "latency_us": factor * (100 + 40 * (at % 3)), "sm_clock_mhz": 1900 * factor}
            for at in range(10)
        ]  # fmt: skip
        return {"unit": "us", "samples": samples}

    base, test = (
        bundle(name, variant=name, bench={"file": "bench.json"}, bench_json=bench(name, factor))
        for name, factor in (("one", 1.0), ("two", 0.9))
    )
    comparison = pipeline.diff(base, test)
    found = comparison.latency["synchronized"].estimate
    assert (found.method, found.pairs, found.cannot_tell) == ("paired", 10, None)
    assert found.interval.value == pytest.approx(0.9)
    assert comparison.answer.verdict is Verdict.BETTER
    assert any("different SM clocks" in note for note in comparison.notes)


def test_more_regions_than_can_be_tried_are_left_unpaired() -> None:
    from tracekit.compare.align import align
    from tracekit.model.report import Region

    sides = [[Region((f"{side}{at:x}",), 1, {}) for at in range(1100)] for side in ("request-", "job-")]
    found = align(*sides)
    assert len(found.pairs) == 2200
    assert any("too many to pair" in note for note in found.notes)


def test_a_request_is_judged_whole_and_by_its_parts(bundle) -> None:
    def bench(variant: str, prefill: float, decode: float) -> dict:
        samples = [
            {"process": at, "variant": variant, "protocol": "synchronized", "block": at, "phase": phase,
             "latency_us": latency + at}
            for at in range(10)
            for phase, latency in (("prefill", prefill), ("decode", decode), ("request", prefill + 20 * decode))
        ]  # fmt: skip
        return {"unit": "us", "samples": samples}

    base, test = (
        bundle(name, variant=name, bench={"file": "bench.json"}, bench_json=bench(name, 5000, decode))
        for name, decode in (("one", 700.0), ("two", 500.0))
    )
    comparison = pipeline.diff(base, test)
    assert comparison.latency["synchronized"].base == pytest.approx((5000 + 14_000 + 4.5) * 1000)
    verdicts = {phase: change.verdict for (phase, _), change in comparison.phases.items()}
    assert verdicts == {"prefill": Verdict.SAME, "decode": Verdict.BETTER}
    assert phase_words(comparison)[1].startswith("decode, synchronized: better (704.5 us to 504.5 us")
    assert {entry["phase"] for entry in json.loads(diff_json(comparison))["phases"]} == {"prefill", "decode"}


def test_a_request_root_is_a_request_whatever_its_tokens() -> None:
    sides = [
        replace(
            report(name),
            regions=tuple(
                replace(r, path=(f"{name}/T512/request", *r.path[1:])) for r in report(name).regions
            ),
        )
        for name in ("decode_unfused", "decode_fused")
    ]  # fmt: skip
    comparison = pipeline.diff(*sides)
    assert comparison.answer.subject == "request"
    assert headline(comparison).startswith("Fusion helped the request by")


def test_untraced_latency_is_not_split_by_one_of_several_roots(nsys) -> None:
    reports = []
    for side, step in (("base", 100), ("test", 60)):
        file = nsys(file=f"{side}.sqlite").gpu()
        for at in (0, 1000, 2000):
            file.range(at, at + 300, "prefill").launch((at + 5, at + 10), (at + 20, at + 220), name="p")
            file.range(at + 400, at + 900, "decode").launch((at + 410, at + 420), (at + 430, at + 430 + step), name="d")
        reports.append(with_latency(pipeline.report(file.write()), 1.0, 1.1, 1.05))
    comparison = pipeline.diff(*reports)
    assert [waterfall.basis for waterfall in comparison.waterfalls] == ["traced"]
    assert any("Several roots" in note for note in comparison.notes)


def test_spills_that_nobody_counted_are_bounded() -> None:
    """Local loads and stores bound them from above, and none of these means no spills."""
    from tracekit.pipeline import diff, findings

    samples = SAMPLES.parents[1] / "sample_traces"
    row = findings(diff(samples / "swiglu_t1_eager", samples / "swiglu_t1_one_kernel_spilling"))[3]
    assert row.base.startswith("no spills: no local loads or stores")
    assert row.test.startswith("at most 7,090,496 spill instructions (local loads and stores); a frame of 2,152 B")
