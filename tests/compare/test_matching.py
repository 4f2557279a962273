"""Regions pair by structure and by map files, captures without ranges by their repeating launches; totals conserve."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_builder import NsysFile

from tracekit import pipeline
from tracekit.compare.align import align
from tracekit.compare.kernels import match_kernels
from tracekit.compare.mapping import parse_map
from tracekit.compare.names import RULES, normalize
from tracekit.errors import UsageError
from tracekit.model.report import Comparison, KernelTotal, Region, Report
from tracekit.model.verdict import Verdict

SAMPLES = Path(__file__).parents[1] / "captures"


def tree(*paths: str, kernels: dict[str, str] | None = None) -> list[Region]:
    return [
        Region(tuple(path.split(".")), 1, {}, tuple(KernelTotal(k, 1, 1, 1) for k in (kernels or {}).get(path, "")))
        for path in paths
    ]


def paired(base: list[Region], test: list[Region], **options) -> dict[str | None, str | None]:
    found = align(base, test, **options).pairs
    return {".".join(b.path) if b else None: ".".join(t.path) if t else None for b, t in found}


# Structure


def test_a_renamed_series_pairs_by_number():
    base = tree("s", "s.layer0", "s.layer0.n", "s.layer1", "s.layer1.n", "s.layer2", "s.layer2.n")
    test = tree("s", "s.block0", "s.block0.n", "s.block1", "s.block1.n", "s.block2", "s.block2.n", "s.block3")
    found = paired(base, test)
    assert [found[f"s.layer{n}"] for n in range(3)] == ["s.block0", "s.block1", "s.block2"]
    assert found["s.layer1.n"] == "s.block1.n"
    assert found[None] == "s.block3"
    assert any("layer#" in note for note in align(base, test).notes)


def test_added_and_removed_layers_stand_alone():
    base, test = tree("s", "s.layer0", "s.layer1"), tree("s", "s.layer0", "s.layer1", "s.layer2")
    assert paired(base, test) == {"s": "s", "s.layer0": "s.layer0", "s.layer1": "s.layer1", None: "s.layer2"}
    assert paired(test, base)["s.layer2"] is None


def test_a_renamed_root_with_renamed_children_pairs_by_its_shape():
    base = tree("old", "old.a", "old.a.x", "old.b")
    test = tree("new", "new.c", "new.c.y", "new.d")
    found = paired(base, test)
    assert (found["old"], found["old.a"], found["old.a.x"]) == ("new", "new.c", None)
    assert found["old.b"] is None


def test_leaves_pair_by_their_kernels_where_only_one_fits():
    base = tree("s", "s.norm", "s.mlp", kernels={"s.norm": "ab", "s.mlp": "c"})
    test = tree("s", "s.rms", "s.ffn", kernels={"s.rms": "ab", "s.ffn": "c"})
    assert paired(base, test) == {"s": "s", "s.norm": "s.rms", "s.mlp": "s.ffn"}
    twins = tree("s", "s.rms", "s.ffn", kernels={"s.rms": "ab", "s.ffn": "ab"})
    assert paired(base, twins)["s.norm"] is None


@pytest.mark.parametrize("words", [("prefill", "decode"), ("m/T1/iter", "m/T8/iter")])
def test_decode_never_pairs_with_prefill_by_structure(words):
    base, test = tree(words[0], f"{words[0]}.a", f"{words[0]}.a.x"), tree(words[1], f"{words[1]}.b", f"{words[1]}.b.y")
    assert None in paired(base, test)


def test_regions_nest_deeper_than_the_stack():
    deep = [Region(tuple(f"l{at}" for at in range(depth)), 1, {}) for depth in range(1, sys.getrecursionlimit() + 100)]
    other = [Region(("m0", *region.path[1:]), 1, {}) for region in deep]
    assert all(b is not None and t is not None for b, t in align(deep, other).pairs)


labels_ = st.lists(st.sampled_from("abcxyz"), min_size=1, max_size=3).map(tuple)
trees = st.sets(labels_, max_size=10).map(
    lambda paths: [
        Region(path, 1, {}) for path in sorted({path[:n] for path in paths for n in range(1, len(path) + 1)})
    ]
)


@given(trees, trees)
def test_every_region_is_in_one_pair_and_parents_pair_before_children(base, test):
    pairs = align(base, test).pairs
    assert sorted(b.path for b, _ in pairs if b) == [region.path for region in base]
    assert sorted(t.path for _, t in pairs if t) == [region.path for region in test]
    places = {b.path: t.path for b, t in pairs if b and t}
    for path, other in places.items():
        assert len(path) == 1 or places[path[:-1]] == other[:-1]
    assert all(b and t and b.path == t.path for b, t in align(base, base).pairs)


@given(trees, trees)
def test_pairing_is_the_same_from_either_side(base, test):
    there = {(b and b.path, t and t.path) for b, t in align(base, test).pairs}
    back = {(b and b.path, t and t.path) for t, b in align(test, base).pairs}
    assert there == back


# Names


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("void gemm<128, 64, (int)3>(float*)", "void gemm<64, 64, 4>(float*)"),
        ("k(<unnamed>::Op)", "k((anonymous namespace)::Op)"),
        ("fused_0d1d2de3", "fused_0d1d2d"),
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_17"),
        ("jit_0x7f3a12ff_kernel", "jit_0x11112222_kernel"),
        ("kernel_a1b2c3d4e5", "kernel_99aa00bb11"),
        ("nvjet_sm90_64x8_64x16_2x1_v", "nvjet_sm90_128x8_64x12_2x1_v"),
    ],
)
def test_what_differs_from_build_to_build_is_dropped(name, other):
    assert normalize(name)[0] == normalize(other)[0]
    assert normalize(name)[1] or normalize(other)[1]
    (match,) = match_kernels([KernelTotal(name, 1, 1, 1)], [KernelTotal(other, 2, 2, 2)])
    assert match.match == "renamed"
    assert match.rules


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("void Kernel<A>(P)", "void Kernel<B>(P)"),
        ("elementwise<4, AddFunctor<float>>", "elementwise<4, MulFunctor<float>>"),
        ("layer_norm", "rms_norm"),
        ("kernel_deadbeef", "kernel_facade"),
    ],
)
def test_different_kernels_stay_different(name, other):
    assert normalize(name)[0] != normalize(other)[0]


def test_kernels_that_one_rule_makes_equal_are_grouped_and_never_summed_into_one():
    base = [KernelTotal("g<1, A>", 1, 10, 10), KernelTotal("g<2, A>", 2, 20, 20)]
    (match,) = match_kernels(base, [KernelTotal("g<3, A>", 4, 5, 5)])
    assert [kernel.name for kernel in match.base] == ["g<1, A>", "g<2, A>"]


def test_the_rules_are_listed_on_request(tracekit):
    code, out, _ = tracekit("diff", "--show-rules")
    assert code == 0
    assert all(rule.name in out for rule in RULES)


@given(st.text(max_size=200))
def test_normalizing_twice_changes_nothing_more_than_once_more(name):
    assert isinstance(normalize(name)[0], str)


# Maps


def test_a_map_pairs_regions_and_labels():
    base, test = tree("s", "s.a", "s.a.x", "s.b"), tree("s", "s.p", "s.p.x", "s.q")
    told = parse_map('[[region]]\nbase = ["s", "a"]\ntest = ["s", "q"]\n', source="m").regions
    found = paired(base, test, told=told)
    assert found["s.a"] == "s.q"
    assert found["s.b"] is None
    renamed = parse_map('[labels]\n"a" = "p"\n', source="m").labels
    assert paired(base, test, rename=renamed)["s.a.x"] == "s.p.x"


@pytest.mark.parametrize(
    "text",
    ["[labels", "x = 1", "labels = 3", "region = 3", "[labels]\na = 1", "[[region]]\nbase = ['a']",
     "[[region]]\nbase = 'a'\ntest = 'b'", "region = [1]"],
)  # fmt: skip
def test_a_faulty_map_is_refused(text, tmp_path, refused):
    path = tmp_path / "map.toml"
    path.write_text(text)
    refused(lambda: pipeline.read_map(path), path)


def test_a_missing_map_is_refused(tmp_path, refused):
    refused(lambda: pipeline.read_map(tmp_path / "absent.toml"), tmp_path / "absent.toml")


def test_a_map_of_regions_that_are_not_there_is_refused():
    with pytest.raises(UsageError, match="the test has not"):
        align(tree("s"), tree("s"), told=[(("s",), ("gone",))])
    with pytest.raises(UsageError, match="twice"):
        align(tree("s", "t"), tree("s"), told=[(("s",), ("s",)), (("t",), ("s",))])


def test_a_written_map_is_read_back_to_the_same_pairs(tracekit, tmp_path):
    path = tmp_path / "map.toml"
    pair = (SAMPLES / "decode_unfused", SAMPLES / "decode_spilling")
    assert tracekit("diff", *pair, "--write-map", path)[0] == 0
    assert tomllib.loads(path.read_text())["region"][0]["base"] == ["unfused/T1/iter"]
    assert tracekit("diff", *pair, "--write-map", path)[0] == 2
    plain, mapped = (pipeline.diff(*pair, region_map=m) for m in (None, pipeline.read_map(path)))
    assert [(p.base_path, p.test_path) for p in plain.regions] == [(p.base_path, p.test_path) for p in mapped.regions]
    code, _, err = tracekit("diff", *pair, "--map", tmp_path / "gone.toml")
    assert code == 2
    assert "gone.toml" in err


def test_any_label_survives_a_map():
    hostile = tree("s", 's."]\n\x7f\u2028\\[x]')
    base = pipeline.report(SAMPLES / "decode_unfused")
    regions = tuple(replace(base.regions[0], path=region.path) for region in hostile)
    other = tuple(replace(region, path=("t", *region.path[1:])) for region in regions)
    comparison = pipeline.diff(replace(base, regions=regions), replace(base, regions=other))
    told = parse_map(pipeline.propose_map(comparison), source="m")
    assert told.regions == ((("s",), ("t",)),)


# Without ranges


def stripped(name: str, tmp_path: Path) -> Report:
    """A sample without its NVTX events."""
    import shutil
    import sqlite3

    path = tmp_path / f"{name}.sqlite"
    shutil.copy(SAMPLES / name / "timeline.sqlite", path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM NVTX_EVENTS")
    connection.commit()
    connection.close()
    return pipeline.report(path)


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("bare")
    return {name: stripped(name, folder) for name in ("decode_unfused", "decode_fused", "decode_spilling")}


def test_steps_are_found_from_the_repeating_launches(bare):
    comparison = pipeline.diff(bare["decode_unfused"], bare["decode_fused"])
    assert comparison.matching == "steps"
    assert any("repetitions of the sequence of launches" in note for note in comparison.notes)
    step = next(pair for pair in comparison.regions if pair.path == ("<step>",))
    assert step.base_instances == step.test_instances
    kernels = step.metrics["kernel_count"]
    assert kernels.base / kernels.test == pytest.approx(64 / 24)
    assert comparison.answer.verdict is Verdict.BETTER
    assert_conserved(comparison)


def test_one_side_without_ranges_is_compared_by_steps_too(bare):
    comparison = pipeline.diff(pipeline.report(SAMPLES / "decode_unfused"), bare["decode_spilling"])
    assert comparison.matching == "steps"
    assert any("on the test side" in note for note in comparison.notes)
    assert comparison.answer.verdict is Verdict.WORSE
    assert_conserved(comparison)


def assert_conserved(comparison: Comparison) -> None:
    """Every operation of the trace is in one root region of each side, and in one kernel match."""
    for at, report in enumerate((comparison.base, comparison.test)):
        operations = report.frames["operations"]
        roots = [pair for pair in comparison.regions if len(pair.path) == 1 and (pair.base_path, pair.test_path)[at]]
        kernels = [k for pair in roots for match in pair.kernels for k in (match.base, match.test)[at]]
        assert sum(kernel.count for kernel in kernels) == len(operations)
        durations = (operations["end_ns"] - operations["start_ns"]).sum()
        assert sum(kernel.duration_ns for kernel in kernels) == durations


def test_unlike_repetitions_fall_back_to_whole_traces(nsys):
    def build(name, steps):
        file = nsys(file=name).gpu()
        at = 0
        for _ in range(steps):
            for kernel in "abc":
                file.launch((at, at + 2), (at + 3, at + 8), name=kernel)
                at += 10
            at += 50
        return file.write()

    comparison = pipeline.diff(build("a.sqlite", 5), build("b.sqlite", 7))
    assert comparison.matching == "trace"
    assert [pair.path for pair in comparison.regions] == [("<trace>",)]
    assert_conserved(comparison)
    assert pipeline.diff(build("c.sqlite", 4), build("d.sqlite", 8)).matching == "steps"


# Properties over generated files: streams, processes that share correlation ids, graphs, ranges across threads


@st.composite
def captures(draw):
    """What to write into an export: (method, arguments) pairs."""
    rows = []
    for process in (100, 200)[: draw(st.integers(1, 2))]:
        at, correlation = 0, 0
        for step in range(draw(st.integers(1, 4))):
            begin = at
            inner = []
            for kernel in range(draw(st.integers(0, 4))):
                correlation += 1
                length = draw(st.integers(1, 30))
                late = draw(st.integers(0, 20))
                start = at + 2 + late
                name = draw(st.sampled_from(("void add<4>(float*)", "void add<8>(float*)", "norm", "mul")))
                thread = draw(st.sampled_from((101, 102)))
                graph = draw(st.sampled_from((None, None, None, 7)))
                place = {"correlation": correlation, "process": process}
                rows.append(("call", (at, at + 2), {"thread": thread, **place}))
                rows.append(
                    ("kernel", (start, start + length),
                     {"name": name, "stream": draw(st.sampled_from((7, 13))), "graph_node": graph, **place})
                )  # fmt: skip
                if kernel % 2:
                    inner.append((at, at + 3))
                at += draw(st.integers(3, 25))
            rows.append(("range", (begin, max(at, begin + 1), f"step/{process}"), {"process": process}))
            rows += [("range", (*span, "norm"), {"process": process, "thread": 101}) for span in inner]
            at += 5 + step
    return rows


def written(path: Path, rows) -> Path:
    file = NsysFile(path).gpu()
    for method, arguments, more in rows:
        getattr(file, method)(*arguments, **more)
    path.unlink(missing_ok=True)
    return file.write()


FLIPPED = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=captures(), test=captures())
def test_generated_captures_conserve_and_flip(base, test, tmp_path):
    files = [written(tmp_path / name, rows) for name, rows in (("base.sqlite", base), ("test.sqlite", test))]
    reports = [pipeline.report(file) for file in files]
    there, back = pipeline.diff(*reports), pipeline.diff(*reversed(reports))
    for comparison in (there, back):
        assert_conserved(comparison)
        for waterfall in comparison.waterfalls:
            assert waterfall.base_ns + sum(step.delta_ns for step in waterfall.steps) == waterfall.test_ns
        if comparison.region_deltas:
            root = next(d for d in comparison.region_deltas if d.path == comparison.answer.path)
            assert sum(delta.direct_delta_ns for delta in comparison.region_deltas) == root.delta_ns
    swapped = {(pair.test_path, pair.base_path): pair for pair in back.regions}
    for pair in there.regions:
        other = swapped[pair.base_path, pair.test_path]
        for name, change in pair.metrics.items():
            assert other.metrics[name].verdict is FLIPPED.get(change.verdict, change.verdict)
            assert other.metrics[name].delta == (None if change.delta is None else -change.delta)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=captures())
def test_a_generated_capture_against_itself_is_the_same(rows, tmp_path):
    report = pipeline.report(written(tmp_path / "a.sqlite", rows))
    comparison = pipeline.diff(report, report)
    verdicts = {change.verdict for pair in comparison.regions for change in pair.metrics.values()}
    assert verdicts <= {Verdict.SAME, Verdict.UNMEASURED}
    assert all(pair.base_path == pair.test_path for pair in comparison.regions)
    assert {match.match for pair in comparison.regions for match in pair.kernels} <= {"same"}
    assert all(delta.delta_ns == 0 for delta in comparison.region_deltas)


def test_two_processes_that_share_correlation_ids_are_kept_apart(nsys):
    file = nsys().gpu()
    for process in (100, 200):
        file.range(0, 100, f"p{process}", process=process)
        file.call(10, 20, correlation=5, process=process)
        file.kernel(30 + process, 40 + process, correlation=5, process=process, name=f"k{process}")
    report = pipeline.report(file.write())
    comparison = pipeline.diff(report, report)
    for pair in comparison.regions:
        assert [kernel.name for match in pair.kernels for kernel in match.base] == [f"k{pair.path[0][1:]}"]
