"""Whole reports of real files, checked against plain SQL, the files' own notes and the JSON contract."""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from tracekit.model.tables import REGION_METRICS
from tracekit.pipeline import diff, idle_report
from tracekit.pipeline import report as analyze
from tracekit.render.json import diff_json, gaps_json, show_json

SAMPLES = Path(__file__).parent / "captures"
PUBLIC = Path(__file__).parents[2] / "shared" / "cases" / "public"
TWO_PROCESSES = "nsys2026.2_two_processes_cut.sqlite"
FOUR_STREAMS = "nsys2026.1_four_streams_no_nvtx.sqlite"
BUNDLES = (
    "decode_fused",
    "decode_spilling",
    "decode_unfused",
    "decode_unfused_graph",
    "prefill_fused",
    "prefill_unfused",
)
TIMELINES = [pytest.param(SAMPLES / name, id=name) for name in BUNDLES] + [
    pytest.param(
        PUBLIC / name, id=name, marks=pytest.mark.skipif(not (PUBLIC / name).is_file(), reason="not here")
    )
    for name in (TWO_PROCESSES, FOUR_STREAMS)
]  # fmt: skip

report_of = cache(analyze)


def sql(path, query):
    file = path / "timeline.sqlite" if path.is_dir() else path
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def has_table(path, table):
    return sql(path, f"SELECT count(*) FROM sqlite_master WHERE name = '{table}'") == [(1,)]


def strict(text):
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("path", TIMELINES)
def test_kernels_are_those_of_a_plain_query(path):
    expected = {
        name: (count, total)
        for name, count, total in sql(
            path,
            'SELECT s.value, count(*), sum(k."end" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            "JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value",
        )
    }
    report = report_of(path)
    found = {kernel.name: (kernel.count, kernel.duration_ns) for kernel in report.kernels if kernel.name[0] != "["}
    assert found == expected

    operations = report.frames["operations"]
    kernels = operations[operations["kind"] == "kernel"]
    assert len(kernels) == sum(count for count, _ in expected.values())
    lengths = (kernels["end_ns"] - kernels["start_ns"]).groupby(kernels["name"].astype(str)).agg(["size", "sum"])
    assert {name: tuple(row) for name, row in zip(lengths.index, lengths.to_numpy().tolist(), strict=True)} == expected


@pytest.mark.parametrize("path", TIMELINES)
def test_copies_and_sets_are_those_of_a_plain_query(path):
    expected = sum(
        sql(path, f"SELECT count(*) FROM {table}")[0][0]
        for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
        if has_table(path, table)
    )
    report = report_of(path)
    assert sum(kernel.count for kernel in report.kernels if kernel.name[0] == "[") == expected
    assert int((report.frames["operations"]["kind"] == "copy").sum()) == expected
    assert report.coverage.operations == expected + sql(path, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")[0][0]


@pytest.mark.parametrize("path", TIMELINES)
def test_operations_without_a_call_are_those_of_a_join_on_process_and_correlation(path):
    tables = [
        table
        for table in (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
        if has_table(path, table)
    ]
    work = " UNION ALL ".join(f"SELECT globalPid, correlationId FROM {table}" for table in tables)
    ((expected,),) = sql(
        path,
        f"SELECT count(*) FROM ({work}) w WHERE NOT EXISTS (SELECT 1 FROM (SELECT DISTINCT globalTid >> 24 AS process, "
        "correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME) r WHERE r.process = w.globalPid >> 24 "
        "AND r.correlationId = w.correlationId)",
    )
    report = report_of(path)
    assert report.coverage.without_call == expected
    assert int(report.frames["operations"]["call_id"].isna().sum()) == expected


@pytest.mark.parametrize("path", TIMELINES)
def test_devices_add_up(path):
    report = report_of(path)
    operations = report.frames["operations"]
    data = idle_report(report)
    for device in data["devices"]:
        own = operations[operations["device_id"] == device["device_id"]]
        assert device["busy_ns"] + device["gap_ns"] == device["span_ns"] == own["end_ns"].max() - own["start_ns"].min()
    gaps = operations["gap_ns"]
    parts = operations[[name for name in operations if name.startswith("gap_") and name != "gap_ns"]].sum(axis=1)
    assert (parts == gaps).all()
    assert (gaps >= 0).all()
    assert sum(row["gap_ns"] for row in data["histogram"]) == sum(data["parts"].values()) == gaps.sum()


@pytest.fixture
def two_processes(public_cases):
    path = public_cases / TWO_PROCESSES
    if not path.is_file():
        pytest.skip("not here")
    return report_of(path)


def test_two_processes(two_processes):
    operations = two_processes.frames["operations"]
    kernels = operations[operations["kind"] == "kernel"]
    names = operations.loc[operations["kind"] == "copy", "name"].astype(str)
    assert len(kernels) == 3442
    assert int(kernels["call_id"].isna().sum()) == 1810
    assert int(names.str.startswith("[memcpy").sum()) == 904
    assert int((names == "[memset]").sum()) == 22
    assert len(two_processes.capture["gpus"]) == 2
    notes = " ".join(two_processes.notes)
    assert "2,276 of 4,368 operations (1,810 of 3,442 kernels) have no launch call" in notes
    assert "two of them may be one GPU" in notes


def idle_ns(operations):
    """Idle time between these operations of one device, by a plain sweep."""
    idle, until = 0, None
    for start, end in operations.sort_values("start_ns")[["start_ns", "end_ns"]].itertuples(index=False):
        idle += max(0, start - until) if until is not None else 0
        until = end if until is None else max(until, end)
    return idle


def test_idle_of_kernels_and_idle_of_all_work(two_processes):
    operations = two_processes.frames["operations"]
    first = operations[operations["device_id"] == 0]
    assert round(idle_ns(first[first["kind"] == "kernel"]) / 1e6) == 938
    assert idle_ns(first) == first["gap_ns"].sum()
    assert round(idle_ns(first) / 1e6, 1) == 6.6


@pytest.mark.parametrize("path", TIMELINES)
def test_show_as_json_keeps_the_contract(path):
    report = report_of(path)
    data = strict(show_json(report))
    assert data["schema_version"] == 1
    assert isinstance(data["capture"], dict)
    assert set(data["coverage"]) == {"operations", "attributed", "without_call"}
    assert all(isinstance(note, str) for note in data["notes"])
    assert [tuple(region["path"]) for region in data["regions"]] == [region.path for region in report.regions]
    assert data["regions"]
    for region in data["regions"]:
        assert region["path"]
        assert all(isinstance(label, str) for label in region["path"])
        assert region["instances"] >= 1
        assert isinstance(region["notes"], list)
        assert set(region["metrics"]) <= set(REGION_METRICS.names)
        assert {"kernel_count", "busy_ns", "gap_ns", "device_ns", "dram_read_bytes"} <= set(region["metrics"])
        for name, metric in region["metrics"].items():
            assert metric["unit"] == REGION_METRICS[name].unit
            if not isinstance(metric["value"], str):
                assert {"value", "p20", "p80", "sum", "unit"} <= set(metric)
                assert (metric["value"] is None) == (metric["p20"] is None) == (metric["p80"] is None)
                if metric["value"] is not None:
                    assert metric["p20"] <= metric["value"] <= metric["p80"]
    strict(gaps_json(idle_report(report)))


@pytest.mark.parametrize("path", TIMELINES)
def test_diff_as_json_keeps_the_contract(path):
    data = strict(diff_json(diff(report_of(path), report_of(path))))
    assert data["schema_version"] == 1
    assert data["comparable"] is True
    assert data["mismatches"] == []
    assert isinstance(data["unknown"], list)
    for region in data["regions"]:
        assert region["path"] == region["base_path"] == region["test_path"]
        for name, change in region["metrics"].items():
            assert {"base", "test", "delta", "ratio", "unit", "better"} <= set(change)
            assert change["base"] == change["test"]
            assert change["better"] == REGION_METRICS[name].better
            if isinstance(change["base"], int | float):
                assert change["delta"] == 0
                assert change["ratio"] == (1 if change["base"] else None)
        for match in region["kernels"]:
            assert match["match"] == "same"
            for side in ("base", "test"):
                assert all({"name", "count", "busy_ns"} <= set(kernel) for kernel in match[side])


@pytest.mark.parametrize(
    ("name", "steps", "kernels", "host_us", "busy_us", "idle_us"),
    [
        ("decode_unfused", 20, 64, 1038.7, 437.7, 572.2),
        ("decode_fused", 20, 24, 597.4, 374.4, 178.3),
        ("decode_spilling", 20, 16, 1367.2, 1164.7, 103.4),
        ("decode_unfused_graph", 20, 64, 638.6, 442.1, 4.7),
    ],
)
def test_the_figures_of_the_samples_readme(name, steps, kernels, host_us, busy_us, idle_us):
    (root,) = (region for region in report_of(SAMPLES / name).regions if len(region.path) == 1)
    assert root.instances == steps
    assert root.metrics["kernel_count"].value == kernels
    assert root.metrics["kernel_count"].sum == steps * kernels
    assert root.metrics["host_ns"].value / 1e3 == pytest.approx(host_us, abs=0.051)
    assert root.metrics["busy_ns"].value / 1e3 == pytest.approx(busy_us, abs=0.051)
    operations = report_of(SAMPLES / name).frames["operations"]
    step = np.arange(len(operations)) // kernels
    inner = operations["gap_ns"].where(operations["operation_id"] % kernels > 0, 0).groupby(step).sum()
    assert inner.median() / 1e3 == pytest.approx(idle_us, abs=0.051)


def test_four_streams_are_one_timeline(public_cases):
    path = public_cases / FOUR_STREAMS
    if not path.is_file():
        pytest.skip("not here")
    report = report_of(path)
    (region,) = report.regions
    assert region.path == ("<unattributed>",)
    assert region.metrics["kernel_count"].value == 4
    assert region.metrics["copy_count"].value == 12
    assert region.metrics["busy_ns"].value <= region.metrics["device_span_ns"].value
    assert report.coverage.attributed == 0
    assert any("No NVTX ranges" in note for note in report.notes)


def test_the_functions_of_the_package_can_be_called_again():
    import tracekit

    for _ in range(2):
        assert callable(tracekit.open_trace)
        assert callable(tracekit.diff)
        assert callable(tracekit.report)
