"""The classes of faults that people met in other tools, each as its smallest input with the right answer."""

from __future__ import annotations

import pytest
from nsys_builder import global_id

from tracekit.pipeline import diff, idle_report
from tracekit.pipeline import report as analyze

OUTSIDE = ("<unattributed>",)
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"


def value(report, path, metric):
    return report.region(path).metrics[metric].value


def sums(report, path, *metrics):
    return [report.region(path).metrics[metric].sum for metric in metrics]


def paths(report):
    return [region.path for region in report.regions]


def calls_of(report):
    """The row of table calls of each operation, None where there is none."""
    calls = report.frames["operations"]["call_id"]
    return [None if missing else int(call) for call, missing in zip(calls, calls.isna(), strict=True)]


def noted(report, *words):
    return any(all(word in note for word in words) for note in report.notes)


# Idle time and launch gaps


def test_streams_fill_each_others_gaps(nsys):
    builder = nsys().gpu().kernel(0, 10, stream=7).kernel(59, 69, stream=7).kernel(0, 69, stream=8)
    report = analyze(builder.write())
    assert value(report, OUTSIDE, "gap_ns") == 0
    assert value(report, OUTSIDE, "busy_ns") == 69
    (device,) = idle_report(report)["devices"]
    assert (device["gap_ns"], device["busy_ns"], device["span_ns"], device["busy_ratio"]) == (0, 69, 69, 1)


def test_a_long_operation_covers_the_gaps_of_all_that_start_meanwhile(nsys):
    builder = nsys().gpu().kernel(5, 100, stream=8)
    for start in (10, 50, 110):
        builder.kernel(start, start + 10, stream=7)
    report = analyze(builder.write())
    assert value(report, OUTSIDE, "gap_ns") == 10
    assert value(report, OUTSIDE, "busy_ns") == 105


def test_busy_time_is_a_union(nsys):
    builder = nsys().gpu().range(0, 200, "step")
    for stream in (1, 2):
        builder.launch((1, 2), (10, 110), stream=stream, name="k")
    report = analyze(builder.write())
    assert value(report, ("step",), "busy_ns") == value(report, ("step",), "device_span_ns") == 100
    (kernel,) = report.region(("step",)).kernels
    assert (kernel.count, kernel.busy_ns, kernel.duration_ns) == (2, 100, 200)


def test_busy_time_of_a_region_on_two_devices_is_within_its_span(nsys):
    builder = nsys().gpu(0).gpu(1).range(0, 200, "step")
    for device in (0, 1):
        builder.launch((1, 2), (10, 110), device=device)
    report = analyze(builder.write())
    assert value(report, ("step",), "busy_ns") <= value(report, ("step",), "device_span_ns")


def test_the_idle_time_of_devices_is_told_apart(nsys):
    builder = nsys().gpu(0).gpu(1).kernel(0, 10, device=0).kernel(90, 100, device=0).kernel(10, 90, device=1)
    devices = idle_report(analyze(builder.write()))["devices"]
    assert [(device["device_id"], device["gap_ns"], device["busy_ns"]) for device in devices] == [
        (0, 80, 20),
        (1, 0, 80),
    ]


@pytest.mark.parametrize("add", ["copy", "memset"])
def test_copies_and_sets_are_work(nsys, add):
    builder = nsys().gpu().kernel(5, 10).kernel(90, 100)
    getattr(builder, add)(10, 90)
    report = analyze(builder.write())
    assert value(report, OUTSIDE, "gap_ns") == 0
    assert value(report, OUTSIDE, "busy_ns") == 95
    assert value(report, OUTSIDE, "copy_count") == 1
    assert value(report, OUTSIDE, "kernel_count") == 2


def test_idle_time_of_kernels_alone_is_offered_beside(nsys):
    report = analyze(nsys().gpu().kernel(5, 10).copy(10, 80).kernel(90, 100).write())
    (device,) = idle_report(report)["devices"]
    assert (device["gap_ns"], device["kernel_gap_ns"]) == (10, 80)


def test_graph_launches_without_device_rows_make_idle_time_doubtful(nsys):
    builder = nsys().gpu().kernel(0, 1).call(2, 3, GRAPH_LAUNCH, correlation=9)
    builder.call(3, 1000, "cudaStreamSynchronize_v3020", correlation=10)
    report = analyze(builder.write())
    assert noted(report, "1 of 1 CUDA graph launches have no device rows", "not reliable", "--cuda-graph-trace=node")


def test_a_doubtful_share_is_not_printed(nsys):
    builder = nsys().gpu().kernel(0, 1).call(2, 3, GRAPH_LAUNCH, correlation=9).kernel(1000, 1001)
    (device,) = idle_report(analyze(builder.write()))["devices"]
    assert device["busy_ratio"] is None


def test_graph_launches_with_device_rows_are_no_reason_for_doubt(nsys):
    report = analyze(
        nsys().gpu().call(2, 3, GRAPH_LAUNCH, correlation=9).kernel(5, 6, correlation=9, graph_node=1).write()
    )
    assert not noted(report, "not reliable")


def test_captures_share_no_clock_and_no_ids(nsys):
    first = nsys(file="a.sqlite").gpu().range(900, 1100, "step").call(950, 960, correlation=7)
    second = nsys(file="b.sqlite").gpu().range(-10, 10, "step").call(-5, -4, correlation=7)
    first.kernel(1000, 1010, correlation=7)
    second.kernel(0, 5, correlation=7)
    comparison = diff(first.write(), second.write())
    (pair,) = comparison.regions
    assert (pair.metrics["busy_ns"].base, pair.metrics["busy_ns"].test) == (10, 5)
    assert (pair.metrics["gap_ns"].base, pair.metrics["gap_ns"].test) == (0, 0)
    assert (pair.metrics["wall_ns"].base, pair.metrics["wall_ns"].test) == (200, 20)


def test_kernels_whose_launch_was_cut_off_are_kept_and_counted(nsys):
    builder = nsys().gpu().range(0, 100, "step").kernel(5, 10, correlation=5).launch((20, 30), (40, 50))
    report = analyze(builder.write())
    assert (report.coverage.operations, report.coverage.attributed, report.coverage.without_call) == (2, 1, 1)
    assert value(report, OUTSIDE, "kernel_count") == 1
    assert value(report, OUTSIDE, "launch_call_count") == 0
    assert sums(report, ("step",), "kernel_count", "launch_call_count", "gap_ns") == [1, 1, 30]
    assert noted(report, "1 of 2 operations (1 of 2 kernels) have no launch call")


def test_a_gap_without_a_call_is_of_unknown_cause(nsys):
    report = analyze(nsys().gpu().call(0, 1).kernel(5, 10).kernel(40, 50, correlation=77).write())
    assert sums(report, OUTSIDE, "gap_ns", "gap_unknown_ns") == [30, 30]


def test_a_kernel_may_start_before_its_call_returns(nsys):
    builder = nsys().gpu().range(0, 100, "step").launch((1, 2), (5, 10)).launch((20, 60), (40, 50))
    report = analyze(builder.write())
    step = report.region(("step",)).metrics
    assert step["gap_ns"].sum == 30
    assert step["gap_host_ns"].sum == 10
    assert step["gap_launch_call_ns"].sum == 20
    assert step["gap_launch_latency_ns"].sum == 0


def test_operations_of_one_stream_may_overlap(nsys):
    report = analyze(nsys().gpu().kernel(5, 50).kernel(40, 60).kernel(60, 70).write())
    assert value(report, OUTSIDE, "gap_ns") == 0
    assert value(report, OUTSIDE, "busy_ns") == 65


def test_calls_that_were_not_exported_are_not_zero(nsys):
    report = analyze(nsys().gpu().kernel(5, 10).kernel(40, 50).write())
    assert noted(report, "No CUDA API calls")
    assert value(report, OUTSIDE, "launch_call_count") is None


# Correlation, processes, devices


def test_the_join_is_by_process_and_correlation(nsys):
    builder = nsys().gpu(0).gpu(1)
    for process, start in ((100, 0), (200, 1000)):
        builder.range(start, start + 90, f"rank{process}", process=process, thread=process + 1)
        builder.call(start + 10, start + 20, correlation=1, process=process, thread=process + 1)
    for process, start in ((200, 1000), (100, 0)):
        builder.kernel(start + 30, start + 40, correlation=1, process=process)
    report = analyze(builder.write())
    assert report.coverage.operations == report.coverage.attributed == 2
    assert [value(report, (f"rank{process}",), "kernel_count") for process in (100, 200)] == [1, 1]
    assert [value(report, (f"rank{process}",), "device_span_ns") for process in (100, 200)] == [10, 10]


def test_another_process_s_call_is_no_call(nsys):
    builder = nsys().gpu().range(0, 90, "step").call(10, 20, correlation=1).kernel(30, 40, correlation=1, process=200)
    report = analyze(builder.write())
    assert report.coverage.without_call == 1
    # What the launch of the other process did is not in the capture: unknown, not zero.
    assert value(report, ("step",), "kernel_count") is None
    assert value(report, OUTSIDE, "kernel_count") == 1


def test_rows_do_not_multiply_where_calls_share_an_id(nsys):
    builder = nsys().gpu().range(0, 50, "a").range(60, 90, "b")
    builder.call(10, 20, "cudaLaunchKernel_v7000", correlation=1).call(12, 15, "cuLaunchKernel", correlation=1)
    builder.call(65, 66, "cudaEventRecord", correlation=1).kernel(70, 80, correlation=1)
    report = analyze(builder.write())
    assert report.coverage.operations == 1
    assert value(report, ("a",), "kernel_count") == 1


def test_two_ranks_that_call_their_gpu_0_are_two_devices(nsys):
    builder = nsys("2025.5").gpu(0, name="A").gpu(3, name="B").cuda_device(100, 0, 0).cuda_device(200, 0, 3)
    builder.kernel(0, 10, process=100).kernel(20, 30, process=100).kernel(10, 20, process=200)
    data = idle_report(analyze(builder.write()))
    assert [gpu["name"] for gpu in data["capture"]["gpus"]] == ["A", "B"]
    assert [(device["gap_ns"], device["busy_ns"]) for device in data["devices"]] == [(10, 20), (0, 10)]


def test_two_ranks_without_a_map_are_told_apart_and_a_note_says_so(nsys):
    builder = nsys().gpu(0).gpu(1).kernel(5, 10, process=100).kernel(20, 30, process=100).kernel(10, 20, process=200)
    report = analyze(builder.write())
    assert [gpu["process"] for gpu in report.capture["gpus"]] == [global_id(100), global_id(200)]
    assert [device["gap_ns"] for device in idle_report(report)["devices"]] == [10, 0]
    assert noted(report, "two of them may be one GPU")


@pytest.mark.parametrize(
    "api",
    [
        "cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cuLaunchKernel", "cuLaunchKernelEx", GRAPH_LAUNCH,
        "cuGraphLaunch", "cudaLaunchCooperativeKernel_v9000", "somethingOfTheNextRelease",
    ],
)  # fmt: skip
def test_launches_are_found_by_id_and_not_by_name(nsys, api):
    report = analyze(nsys().gpu().range(0, 90, "step").launch((10, 20), (30, 40), api=api).write())
    assert report.coverage.attributed == 1
    assert value(report, ("step",), "launch_call_count") == 1


# CUDA graphs


def graph_by_node(builder):
    """One launch of 20 ns, three nodes."""
    builder.gpu().range(0, 100, "step").call(10, 30, GRAPH_LAUNCH, correlation=9)
    for number, name in enumerate("ABC"):
        start = 40 + 15 * number
        builder.kernel(start, start + 10, correlation=9, graph_node=number + 1, name=name)
    return builder


def test_every_node_of_a_graph_is_kept(nsys):
    report = analyze(graph_by_node(nsys()).write())
    assert report.coverage.attributed == 3
    assert [kernel.name for kernel in report.region(("step",)).kernels] == ["A", "B", "C"]
    assert calls_of(report) == [0, 0, 0]


def test_a_graph_launch_counts_once(nsys):
    builder = nsys().kernel(1, 5)
    report = analyze(graph_by_node(builder).write())
    assert sums(report, ("step",), "launch_call_count", "kernel_count") == [1, 3]
    assert sums(report, ("step",), "gap_ns", "gap_in_graph_ns", "gap_unknown_ns") == [45, 10, 35]
    assert value(report, ("step",), "gap_launch_call_ns") is None
    assert noted(report, "by node", "slows each graph launch")


def test_a_recycled_correlation_of_another_process_is_another_launch(nsys):
    builder = graph_by_node(nsys().gpu(1)).range(0, 100, "other", process=200, thread=201)
    builder.call(10, 30, GRAPH_LAUNCH, correlation=9, process=200, thread=201)
    builder.kernel(40, 50, correlation=9, process=200, graph_node=1)
    report = analyze(builder.write())
    assert value(report, ("other",), "kernel_count") == 1
    assert value(report, ("step",), "kernel_count") == 3


@pytest.mark.parametrize("generation", ["2023.4", "2025.5"])
def test_a_node_remembers_where_it_was_built_through_clones(nsys, generation):
    builder = nsys(generation).gpu().range(0, 100, "build").range(10, 50, "layer0").range(200, 300, "replay")
    builder.graph_node(1, 20).graph_node(1 << 33, 60, original=1).graph_node((1 << 33) + 5, 70, original=1 << 33)
    builder.call(210, 220, GRAPH_LAUNCH, correlation=9).kernel(230, 240, correlation=9, graph_node=(1 << 33) + 5)
    report = analyze(builder.write())
    (operation,) = report.frames["operations"].to_dict("records")
    labels = report.frames["ranges"]["label"].tolist()
    assert labels[operation["range_id"]] == "replay"
    assert labels[operation["built_in_range_id"]] == "layer0"


def test_a_node_cloned_in_a_circle_ends_the_search(nsys):
    builder = nsys().gpu().range(0, 100, "build").graph_node(1, 20, original=2).graph_node(2, 30, original=1)
    report = analyze(builder.kernel(230, 240, graph_node=1).write())
    assert report.coverage.operations == 1


def graph_as_a_whole(builder):
    return builder.gpu().range(0, 50, "step").call(1, 5, GRAPH_LAUNCH, correlation=9).graph(10, 110, correlation=9)


def test_a_graph_as_a_whole_is_work(nsys):
    report = analyze(graph_as_a_whole(nsys("2025.5", graph_trace="Graph")).write())
    assert value(report, ("step",), "busy_ns") == 100
    assert report.region(("step",)).kernels[0].name == "[CUDA graph]"
    assert report.coverage.attributed == 1
    assert not noted(report, "not reliable")


def test_a_graph_as_a_whole_hides_its_kernels_and_a_note_says_so(nsys):
    report = analyze(graph_as_a_whole(nsys("2025.5", graph_trace="Graph")).write())
    assert noted(report, "--cuda-graph-trace=node")


def test_hidden_kernels_are_not_zero_kernels(nsys):
    report = analyze(graph_as_a_whole(nsys("2025.5", graph_trace="Graph")).write())
    assert value(report, ("step",), "kernel_count") is None


# NVTX


def test_open_ranges_end_with_the_capture_and_domains_are_no_ranges(nsys):
    builder = nsys().gpu()
    builder.domain("tracekit")
    builder.range(0, None, "open").launch((10, 20), (30, 70))
    report = analyze(builder.write())
    assert paths(report) == [("open",)]
    assert value(report, ("open",), "host_ns") == 70
    assert value(report, ("open",), "kernel_count") == 1
    assert noted(report, "1 NVTX ranges were still open")


def test_work_of_another_thread_is_in_no_range_and_counted(nsys):
    builder = nsys().gpu().range(0, 100, "forward", thread=101).launch((50, 55), (60, 70), thread=102)
    report = analyze(builder.launch((10, 15), (20, 30)).write())
    assert value(report, ("forward",), "kernel_count") == 1
    assert value(report, OUTSIDE, "kernel_count") == 1
    assert (report.coverage.operations, report.coverage.attributed) == (2, 1)


def test_labels_match_exactly(nsys):
    builder = nsys().gpu()
    for start, label in enumerate(["step 1", "step 10", "step", "Step 1", "step 1 "]):
        builder.range(100 * start, 100 * start + 90, label)
        builder.launch((100 * start + 10, 100 * start + 20), (100 * start + 30, 100 * start + 40 + start))
    report = analyze(builder.write())
    assert paths(report) == [("step 1",), ("step 10",), ("step",), ("Step 1",), ("step 1 ",)]
    assert value(report, ("step 1",), "busy_ns") == 10
    assert value(report, ("step 10",), "busy_ns") == 11
    with pytest.raises(KeyError):
        report.region(("step 2",))


def test_instances_of_one_label_are_one_region(nsys):
    builder = nsys().gpu()
    for start in (0, 100, 200):
        builder.range(start, start + 90, "step").launch((start + 10, start + 20), (start + 30, start + 40))
    region = analyze(builder.write()).region(("step",))
    assert region.instances == 3
    assert region.metrics["busy_ns"].value == 10
    assert region.metrics["busy_ns"].sum == 30


def test_a_launch_belongs_to_the_innermost_range_open_when_its_call_starts(nsys):
    builder = nsys().gpu().range(0, 100, "outer").range(20, 40, "inner", domain="d")
    for start in (19, 20, 39, 40):
        builder.launch((start, start + 30), (start + 200, start + 201))
    report = analyze(builder.write())
    assert value(report, ("outer",), "kernel_count") == 4
    assert value(report, ("outer", "inner"), "kernel_count") == 2


def test_a_start_end_range_belongs_to_the_thread_that_started_it_and_yields_to_push_pop(nsys):
    builder = nsys().gpu().range(0, 100, "request", kind="start_end", end_thread=102).range(20, 40, "pushed")
    builder.launch((10, 11), (12, 13)).launch((30, 31), (32, 33)).launch((50, 51), (52, 53), thread=102)
    report = analyze(builder.write())
    assert value(report, ("request",), "kernel_count") == 2
    assert value(report, ("request", "pushed"), "kernel_count") == 1
    assert value(report, OUTSIDE, "kernel_count") == 1


# Missing, truncated, corrupt


def test_names_alone_make_an_empty_report_with_reasons(nsys):
    report = analyze(nsys().write())
    assert report.regions == ()
    assert report.coverage.operations == 0
    assert noted(report, "No table of device work", "--trace=cuda,nvtx")
    assert noted(report, "holds no device work")


def test_no_kernels_differ_from_no_tracing(nsys):
    report = analyze(nsys(lazy=False).gpu().range(0, 90, "step").write())
    assert not noted(report, "No table of device work")
    assert noted(report, "holds no device work")
    assert value(report, ("step",), "kernel_count") == 0


@pytest.mark.parametrize(
    "metric", ["kernel_count", "copy_count", "launch_call_count", "busy_ns", "gap_ns", "device_ns"]
)
def test_device_figures_without_tracing_are_missing(nsys, metric):
    report = analyze(nsys().range(0, 90, "step").write())
    assert noted(report, "No table of device work")
    assert value(report, ("step",), "host_ns") == 90
    assert value(report, ("step",), metric) is None


@pytest.mark.parametrize(
    "api",
    [
        "cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cuLaunchKernel",
        ("cudaLaunchCooperativeKernel_v9000"),
    ],
)  # fmt: skip
def test_a_process_that_launches_without_device_rows_is_named(nsys, api):
    builder = nsys().gpu().launch((10, 20), (30, 40)).call(10, 20, api, correlation=1, process=200, thread=201)
    assert noted(analyze(builder.write()), "Process 200", "no device rows")


def test_a_process_with_device_rows_is_not_said_to_have_none(nsys):
    builder = nsys().gpu().call(10, 20, correlation=1).kernel(30, 40, correlation=2)
    assert not noted(analyze(builder.write()), "no device rows")


def test_one_impossible_row_leaves_the_others_alone(nsys):
    builder = nsys().gpu().kernel(0, 0).kernel(100, 50).kernel(10, 2**63 - 1).kernel(10, 20)
    report = analyze(builder.write())
    assert report.coverage.operations == 1
    assert value(report, OUTSIDE, "busy_ns") == 10
    assert sum(report.capture["rejected"].values()) == 3
    assert all(noted(report, f"{count} {what}") for what, count in report.capture["rejected"].items())


@pytest.mark.parametrize("far", [2**62, 2**61, -(2**61)])
def test_a_row_centuries_away_leaves_the_others_alone(nsys, far):
    report = analyze(nsys().gpu().kernel(10, 20).kernel(far, far + 10).write())
    assert value(report, OUTSIDE, "gap_ns") == 0


def test_zero_local_memory_and_unmeasured_counters_are_missing(nsys):
    report = analyze(nsys().gpu().range(0, 90, "step").launch((10, 20), (30, 40)).write())
    region = report.region(("step",))
    for metric in ("local_thread_bytes", "dram_read_bytes", "dram_write_bytes", "spill_instruction_count"):
        assert region.metrics[metric].value is None
        assert any(metric in note or "dram_*" in note for note in region.notes)


def test_a_region_without_work_has_no_span(nsys):
    report = analyze(nsys().gpu().range(0, 90, "idle").call(5, 6, "cudaEventRecord").kernel(100, 110).write())
    region = report.region(("idle",))
    assert region.metrics["device_span_ns"].value is None
    assert region.metrics["kernel_count"].value == 0
    assert any("device_span_ns" in note for note in region.notes)


def test_a_kernel_table_without_rows_is_unknown_where_kernels_were_launched(nsys):
    report = analyze(nsys(lazy=False).gpu().range(0, 90, "step").call(10, 20, correlation=1).write())
    for name in ("kernel_count", "busy_ns", "device_ns", "gap_ns", "wall_ns"):
        assert value(report, ("step",), name) is None


def test_a_graph_launch_without_rows_hides_its_region_but_no_other(nsys):
    builder = nsys().gpu().range(0, 40, "graphed").range(50, 90, "eager")
    builder.call(10, 20, GRAPH_LAUNCH, correlation=1).launch((55, 60), (65, 70))
    report = analyze(builder.write())
    assert value(report, ("graphed",), "busy_ns") is None
    assert value(report, ("eager",), "busy_ns") == 5


def test_a_comparison_repeats_the_warnings_of_its_captures(nsys):
    sides = [nsys(file=f"{name}.sqlite").gpu().range(0, 90, "step").launch((10, 20), (30, 40)) for name in "ab"]
    sides[1].call(50, 60, GRAPH_LAUNCH, correlation=99)
    comparison = diff(*(side.write() for side in sides))
    assert any(note.startswith("test: ") and "not reliable" in note for note in comparison.notes)
