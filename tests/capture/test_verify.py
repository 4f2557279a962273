"""What a report holds against what a workload says that it did."""

from __future__ import annotations

import pytest

from tracekit.capture import verify
from tracekit.capture.verify import Level
from tracekit.errors import InputError

RAN = {"ranges_pushed": 4, "roots": 2, "root": "step", "iterations": 2, "kernels": [{"name": "add", "launches": 1}]}


@pytest.fixture
def export(nsys):
    """Two steps of two ranges and a kernel each, in tracekit's domain, and a range of another one."""
    file = nsys().gpu().range(0, 5000, "other")
    for start in (0, 1000):
        file.range(start, start + 100, "step", domain="tracekit")
        file.range(start + 5, start + 90, "in", domain="tracekit", text_id=True)
        file.launch((start + 10, start + 20), (start + 30, start + 40), name="add")
    return file


def failures(counts, ran, **options):
    return [str(found) for found in verify.compare(counts, ran, **options) if found.level is Level.FAIL]


def test_a_report_that_holds_all(export):
    counts = verify.counts(export.write())
    assert (counts.in_domain("tracekit"), counts.all_ranges, counts.all_kernels, counts.calls) == (4, 5, 2, 2)
    assert counts.ranges[("tracekit", "in")] == 2
    assert counts.gpus == ("NVIDIA H200",)
    assert failures(counts, RAN) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranges_pushed": 5}, "NVTX ranges: 5 pushed, 4 in the report"),
        ({"ranges_pushed": 3}, "more than the window was recorded"),
        ({"roots": 3}, "iterations: 3 of step run, 2 in the report"),
        ({"iterations": 3}, "kernels: add: 3 launched, 2 in the report"),
        ({"kernels": [{"name": "other", "launches": 1}]}, "kernels: other: 2 launched, 0 in the report"),
        ({"launches": 3}, "kernels: 3 launched, 2 in the report"),
    ],
)
def test_a_difference_is_told_with_both_numbers(export, change, words):
    (failure,) = failures(verify.counts(export.write()), RAN | change)
    assert words in failure


def test_what_is_not_told_is_not_compared(export):
    assert failures(verify.counts(export.write()), {}) == []


@pytest.mark.parametrize(
    ("nsys_version", "nvtx_version", "loses"),
    [
        ("2023.4.4", "0.2.12", True), ("2023.4.4.54", "0.2.17", True), ("2023.4.4", "0.2.11", False),
        ("2025.3.1", "0.2.17", False), (None, "0.2.17", False), ("2023.4.4", None, False),
    ],
)  # fmt: skip
def test_the_pair_that_loses_ranges(nsys_version, nvtx_version, loses):
    assert verify.known_to_lose(nsys_version, nvtx_version) is loses


def test_a_program_without_cuda_needs_no_device_work(nsys):
    counts = verify.counts(nsys().range(0, 10, "step").write())
    assert failures(counts, {}, trace=("nvtx",)) == []
    assert "no row of device work" in failures(counts, {})[0]


def test_an_empty_report_is_a_failure_whatever_ran(nsys):
    counts = verify.counts(nsys().gpu().write())
    assert any("it is empty" in failure for failure in failures(counts, {}, trace=("nvtx",)))


def warnings(counts, graph_trace):
    return [str(f) for f in verify.compare(counts, {}, graph_trace=graph_trace) if f.level is Level.WARN]


def test_graphs_traced_as_a_whole_hide_kernels(nsys):
    file = nsys("2025.5").gpu().range(0, 5000, "step").call(10, 20, "cudaGraphLaunch_v10000", correlation=5)
    hidden = verify.counts(file.write())
    assert any("hid them" in warning for warning in warnings(hidden, "graph"))
    assert failures(hidden, RAN | {"ranges_pushed": None, "roots": None}, graph_trace="graph") == []
    traced = nsys("2025.5", file="b.sqlite").gpu().range(0, 5000, "step")
    traced.call(10, 20, "cudaGraphLaunch_v10000", correlation=5).graph(30, 900, correlation=5)
    counts = verify.counts(traced.write())
    assert any("the kernels inside are hidden" in warning for warning in warnings(counts, "graph"))
    assert failures(counts, RAN | {"ranges_pushed": None, "roots": None}, graph_trace="graph") == []


def test_node_level_tracing_that_stretches_launches_is_told(nsys):
    file = nsys().gpu().range(0, 10**6, "step").call(10, 167_010, "cudaGraphLaunch_v10000", correlation=5)
    file.kernel(200_000, 200_010, correlation=5, graph_node=7)
    (warning,) = warnings(verify.counts(file.write()), "node")
    assert "167 us" in warning


def test_a_damaged_export_is_refused(tmp_path):
    bad = tmp_path / "a.sqlite"
    bad.write_bytes(b"SQLite format 3\0" + b"\1" * 2000)
    with pytest.raises(InputError, match="damaged"):
        verify.counts(bad)


@pytest.mark.parametrize("generation", ["2020.5", "2022.2", "2023.4", "2025.5", "2026.2"])
def test_every_generation_is_counted(nsys, generation):
    file = nsys(generation).gpu().range(0, 100, "step", domain="tracekit").launch((10, 20), (30, 40))
    counts = verify.counts(file.write())
    assert (counts.in_domain("tracekit"), counts.all_kernels) == (1, 1)
