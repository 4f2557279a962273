"""What a figure is taken from: the dominant kernel, drift control, untraced latency, and the reasons given."""

import json

import pytest

from tracekit.model.manifest import CounterEntry
from tracekit.pipeline import diff, main_region, report


def step(builder, *kernels):
    """One range ``step`` with kernels of (name, duration, grid), one after the other."""
    at = 100
    builder.gpu().range(0, 10_000, "step")
    for number, (name, duration, grid) in enumerate(kernels):
        builder.call(10 + number, 11 + number, "cudaLaunchKernel_v7000", correlation=number + 1)
        builder.kernel(at, at + duration, correlation=number + 1, name=name, grid=(grid, 1, 1), registers=32 + grid)
        at += duration
    return builder.write()


def test_the_dominant_kernel_is_a_name_and_not_a_configuration(nsys):
    region = report(step(nsys(), ("a", 20, 1), ("a", 21, 2), ("a", 19, 3), ("b", 30, 4))).region(("step",))
    assert any(note.endswith("are those of a") for note in region.notes)
    assert region.metrics["registers_count"].value == 34


def test_a_collective_is_never_the_dominant_kernel(nsys):
    region = report(step(nsys(), ("ncclDevKernel_AllReduce_Sum", 900, 1), ("gemm", 50, 2))).region(("step",))
    assert any(note.endswith("are those of gemm") for note in region.notes)
    assert region.metrics["busy_ns"].value == 950


def test_drift_weighs_every_launch_and_no_collective(nsys):
    base = step(nsys(file="a.sqlite"), ("gemm", 100, 1), ("gemm", 100, 1), ("gemm", 50, 2), ("ncclAllReduce", 10, 1))
    test = step(nsys(file="b.sqlite"), ("gemm", 200, 1), ("gemm", 200, 1), ("gemm", 50, 2), ("ncclAllReduce", 900, 1))
    drift = diff(base, test).drift
    assert drift.kernels == 2
    assert drift.ratio == pytest.approx(450 / 250)
    assert "no drift" not in drift.sentence


def test_work_outside_ranges_is_not_what_the_question_is_about(nsys):
    sides = []
    for file in ("a.sqlite", "b.sqlite"):
        builder = nsys(file=file).gpu().kernel(0, 90_000, name="warm-up")
        builder.range(100_000, 100_100, "step").call(100_010, 100_020, correlation=5)
        sides.append(builder.kernel(100_030, 100_040, correlation=5).write())
    assert main_region(diff(*sides)).path == ("step",)


def test_latency_is_by_process_and_by_the_captures_own_variant(bundle):
    samples = [
        {"process": process, "variant": variant, "protocol": "synchronized", "latency_us": latency + spread}
        for process, variant, latency in (
            (1, "base", 700.0),
            (2, "test", 400.0),
            (3, "base", 704.0),
            (4, "test", 402.0),
        )
        for spread in (0.0, 1.0, 2.0)
    ]
    folder = bundle(bench_json={"unit": "us", "samples": samples})
    for variant, median in (("base", 703_000.0), ("test", 402_000.0)):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"variant": variant}))
        (latency,) = report(folder).latency
        assert (latency.processes, latency.median_ns) == (2, median)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"variant": "another"}))
    unknown = report(folder)
    assert unknown.latency == ()
    assert any("base, test" in note for note in unknown.notes)


@pytest.mark.parametrize(
    ("replay", "cache", "kind"),
    [
        ("kernel", "all", "cold"), ("kernel", "none", "replay_warm"), ("app-range", "none", "in_model"),
        ("range", None, "in_model"), ("range", "all", None), ("application", "none", None), (None, None, None),
    ],
)  # fmt: skip
def test_the_kind_of_dram_bytes_follows_from_how_they_were_counted(replay, cache, kind):
    assert CounterEntry("f", replay_mode=replay, cache_control=cache).kind == kind


def test_a_call_inside_another_of_the_same_id_is_not_a_launch_without_rows(nsys):
    builder = nsys().gpu().range(0, 100, "step").call(10, 30, "cudaGraphLaunch_v10000", correlation=4)
    builder.call(12, 28, "cuGraphLaunch", correlation=4).kernel(40, 50, correlation=4, graph_node=1)
    region = report(builder.write()).region(("step",))
    assert region.metrics["busy_ns"].value == 10


def test_a_reason_is_that_of_its_own_region(nsys):
    builder = nsys().gpu().range(0, 40, "graphed").range(50, 90, "idle").kernel(95, 99)
    builder.call(10, 20, "cudaGraphLaunch_v10000", correlation=1)
    done = report(builder.write())
    assert any("left no device rows" in note for note in done.region(("graphed",)).notes)
    assert not any("left no device rows" in note for note in done.region(("idle",)).notes)


def test_one_file_gives_one_report(nsys):
    builder = nsys().range(0, 40, "step").range(50, None, "open").kernel(5, 3).kernel(6, 9).copy(9, 3).call(4, 2)
    path = builder.write()
    assert len({report(path).notes for _ in range(8)}) == 1
