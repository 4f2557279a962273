"""Bundles: a folder, its manifest and the files that it lists; bench.json."""

from __future__ import annotations

import hashlib
import json
import shutil

import pytest

from tracekit.errors import UsageError
from tracekit.pipeline import report as analyze
from tracekit.read.bundle import add_counters, read_bench, read_trace
from tracekit.render.json import show_json


def bench(**sample):
    return {"unit": "us", "samples": [{"variant": "a", "process": 0, "protocol": "p", "latency_us": 1.5} | sample]}


@pytest.mark.parametrize("name", ["decode_fused", "decode_spilling", "decode_unfused_graph", "prefill_unfused"])
def test_a_sample_bundle(samples, name):
    trace = read_trace(samples / name)
    declared = json.loads((samples / name / "manifest.json").read_text())
    assert trace.manifest.to_dict() == declared
    assert trace.source == str(samples / name)
    assert trace.has_timeline
    assert len(trace.counters) == len(declared.get("counters", []))
    assert trace.conditions == declared["conditions"]


def test_the_kinds_of_counters_come_from_the_manifest(samples):
    kinds = [set(frame["kind"]) for frame in read_trace(samples / "decode_fused").counters]
    assert kinds == [{"cold"}, {"replay_warm"}]


def test_a_bundle_of_counters_alone(samples, bundle):
    folder = bundle(timeline=None, counters=[{"file": "cold.ncu.csv", "replay_mode": "kernel", "cache_control": "all"}])
    shutil.copy(samples / "decode_fused/cold.ncu.csv", folder)
    trace = read_trace(folder)
    assert not trace.has_timeline
    assert len(trace.counters[0]) == 24


def test_files_may_lie_in_folders_of_the_bundle(bundle):
    folder = bundle(timeline={"file": "nsys/timeline.sqlite"})
    (folder / "nsys").mkdir()
    (folder / "timeline.sqlite").rename(folder / "nsys/timeline.sqlite")
    assert len(read_trace(folder).table("kernels")) == 1


def test_the_recorded_hash_is_checked(bundle, refused):
    folder = bundle()
    content = (folder / "timeline.sqlite").read_bytes()
    manifest = {"schema_version": 1, "capture_id": "x"}

    def record(digest):
        entry = {"file": "timeline.sqlite", "sha256": digest}
        (folder / "manifest.json").write_text(json.dumps(manifest | {"timeline": entry}))

    record(hashlib.sha256(content).hexdigest().upper())
    assert read_trace(folder).has_timeline
    record("0" * 64)
    text = refused(lambda: read_trace(folder), folder / "timeline.sqlite")
    assert "000000000000" in text
    assert hashlib.sha256(content).hexdigest()[:12] in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema_version": "1"}, "schema_version"),
        ({"schema_version": 1.0}, "schema_version"),
        ({"schema_version": True}, "schema_version"),
        ({"schema_version": None}, "schema_version"),
        ({"schema_version": 2}, "schema_version 2"),
        ({"capture_id": None}, "capture_id"),
        ({"capture_id": 5}, "capture_id"),
        ({"variant": ["a"]}, "variant"),
        ({"colour": "red"}, "colour"),
        ({"conditions": {"colour": "red"}}, "colour"),
        ({"conditions": []}, "conditions"),
        ({"environment": "H200"}, "environment"),
        ({"timeline": "timeline.sqlite"}, "timeline"),
        ({"timeline": {}}, "file of timeline"),
        ({"timeline": {"file": 5}}, "file of timeline"),
        ({"timeline": {"file": "timeline.sqlite", "sha256": 5}}, "sha256"),
        ({"timeline": {"file": "timeline.sqlite", "colour": "red"}}, "colour"),
        ({"timeline": {"file": "../bundle/timeline.sqlite"}}, "inside the bundle"),
        ({"timeline": {"file": "a/../../x.sqlite"}}, "inside the bundle"),
        ({"timeline": {"file": "..\\x.sqlite"}}, "inside the bundle"),
        ({"timeline": {"file": "/elsewhere/x.sqlite"}}, "inside the bundle"),
        ({"timeline": {"file": "C:\\x.sqlite"}}, "inside the bundle"),
        ({"counters": {}}, "counters"),
        ({"counters": ["a.csv"]}, "counters"),
        ({"counters": [{"file": "a.csv", "replay_mode": 5}]}, "replay_mode"),
        ({"bench": {"file": "../bench.json"}}, "inside the bundle"),
        ({"quality": {"file": "../quality.json"}}, "inside the bundle"),
        ({"timeline": None}, "neither"),
    ],
)
def test_a_faulty_manifest_is_refused_by_field(bundle, refused, fields, words):
    folder = bundle(**fields)
    assert words in refused(lambda: read_trace(folder), folder / "manifest.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"a"', b'{"a": "\xff"}', b"\x00\x01"])
def test_a_manifest_that_is_no_json_object_is_refused(bundle, refused, content):
    folder = bundle()
    (folder / "manifest.json").write_bytes(content)
    refused(lambda: read_trace(folder), folder / "manifest.json")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"schema_version": ' + "1" * 5000 + "}"], ids=["deep", "long"])
def test_a_manifest_that_breaks_the_json_parser_is_refused(bundle, refused, content):
    folder = bundle()
    (folder / "manifest.json").write_text(content)
    refused(lambda: read_trace(folder), folder / "manifest.json")


@pytest.mark.parametrize("fields", [{"conditions": {"batch": float("nan")}}, {"environment": {"x": float("inf")}}])
def test_a_manifest_with_numbers_that_json_lacks_is_refused(bundle, refused, fields):
    folder = bundle(**fields)
    refused(lambda: show_json(analyze(folder)), folder / "manifest.json")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"timeline": {"file": "absent.sqlite"}}, "absent.sqlite"),
        ({"counters": [{"file": "absent.csv"}]}, "absent.csv"),
        ({"bench": {"file": "absent.json"}}, "absent.json"),
        ({"quality": {"file": "absent.json"}}, "absent.json"),
    ],
)
def test_a_listed_file_that_is_missing_is_refused(bundle, refused, fields, name):
    folder = bundle(**fields)
    refused(lambda: read_trace(folder), folder / name)


@pytest.mark.parametrize("file", ["", "."])
def test_a_folder_as_file_is_refused(bundle, refused, file):
    folder = bundle(timeline={"file": file})
    refused(lambda: read_trace(folder), folder)


def test_a_null_byte_in_a_file_name_is_refused(bundle, refused):
    folder = bundle(timeline={"file": "a\0b"})
    refused(lambda: read_trace(folder), folder / "manifest.json")


def test_a_timeline_that_is_no_timeline_is_refused(samples, bundle, refused):
    folder = bundle(timeline={"file": "cold.ncu.csv"})
    shutil.copy(samples / "decode_fused/cold.ncu.csv", folder)
    assert "Nsight Compute" in refused(lambda: read_trace(folder), folder / "cold.ncu.csv")


def test_counters_that_are_a_timeline_are_refused(bundle):
    folder = bundle(counters=[{"file": "timeline.sqlite"}])
    with pytest.raises(UsageError, match=r"timeline\.sqlite: counters come from") as caught:
        read_trace(folder)
    assert caught.value.remedy


def test_a_truncated_ncu_report_in_a_bundle_is_refused(samples, bundle, refused):
    folder = bundle(counters=[{"file": "cut.ncu-rep"}])
    whole = (samples / "decode_spilling/spilling.ncu-rep").read_bytes()
    (folder / "cut.ncu-rep").write_bytes(whole[: len(whole) // 2])
    refused(lambda: read_trace(folder), folder / "cut.ncu-rep")


def test_a_counter_file_whose_name_has_an_equals_sign(samples, nsys, tmp_path):
    for name in ("a=b.csv", "warm=b.csv"):
        shutil.copy(samples / "decode_fused/cold.ncu.csv", tmp_path / name)
        trace = read_trace(nsys(file=f"{name}.sqlite").kernel(1, 2).write())
        add_counters(trace, str(tmp_path / name))
        assert trace.counters[0]["kind"].isna().all()
        add_counters(trace, f"cold={tmp_path / name}")
        assert set(trace.counters[1]["kind"]) == {"cold"}


# bench.json


def test_bench_is_a_table_in_nanoseconds(samples):
    frame = read_trace(samples / "decode_fused").table("bench")
    declared = json.loads((samples / "decode_fused/bench.json").read_text())["samples"]
    assert frame["latency_ns"].tolist() == pytest.approx([sample["latency_us"] * 1000 for sample in declared])
    assert frame["protocol"].tolist() == [sample["protocol"] for sample in declared]


def test_bench_keeps_what_else_a_sample_tells(tmp_path):
    plain = bench()["samples"][0]
    more = {"phase": "decode", "shape": "t1", "block": 3, "order": 1}
    more |= {"sm_clock_mhz": 1980.0, "power_w": 310.5, "temperature_c": 41.0}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"unit": "us", "samples": [plain | more, plain]}))
    frame = read_bench(path)
    assert {name: frame[name][0] for name in more} == more
    assert frame.loc[1, list(more)].isna().all()


def test_bench_without_samples_is_an_empty_table(bundle):
    frame = read_trace(bundle(bench_json={"unit": "us", "samples": []})).table("bench")
    assert len(frame) == 0
    assert "latency_ns" in frame


@pytest.mark.parametrize(
    "content",
    [
        "{", "[]", '"a"', "5", "{}",
        {"unit": "ms", "samples": []}, {"samples": []}, {"unit": "us"}, {"unit": "us", "samples": {}},
        {"unit": "us", "samples": [5]}, {"unit": "us", "samples": [None]}, {"unit": "us", "samples": [{}]},
        bench(latency_us="fast"), bench(latency_us="12"), bench(process="first"), bench(process=10**30),
        bench(process=1.5), bench(variant=None), bench(protocol=["p"]),
    ],
)  # fmt: skip
def test_a_faulty_bench_is_refused(bundle, refused, content):
    folder = bundle(bench_json=content)
    refused(lambda: read_bench(folder / "bench.json"), folder / "bench.json")
    refused(lambda: analyze(folder), folder / "bench.json")


@pytest.mark.parametrize("latency", [None, float("nan"), float("inf"), -5, 0, True])
def test_a_latency_that_cannot_be_is_refused(bundle, refused, latency):
    folder = bundle(bench_json=bench(latency_us=latency))
    refused(lambda: read_bench(folder / "bench.json"), folder / "bench.json")


# quality.json

CHECK = {"check": "logits", "reference": "float32", "error": 1e-3, "tolerance": 1e-2, "passed": True}


def test_quality_is_a_table(bundle):
    folder = bundle(quality={"file": "quality.json"})
    (folder / "quality.json").write_text(json.dumps({"checks": [CHECK]}))
    (row,) = read_trace(folder).table("quality").to_dict("records")
    assert row == CHECK


@pytest.mark.parametrize("content", ["{", "[]", '{"checks": {}}', '{"checks": [{}]}', '{"checks": [5]}'])
def test_a_faulty_quality_is_refused(bundle, refused, content):
    folder = bundle(quality={"file": "quality.json"})
    (folder / "quality.json").write_text(content)
    refused(lambda: read_trace(folder).table("quality"), folder / "quality.json")


@pytest.mark.parametrize("fields", [{"passed": "yes"}, {"passed": None}, {"error": "small"}, {"check": None}])
def test_a_quality_value_of_the_wrong_type_is_refused(bundle, refused, fields):
    folder = bundle(quality={"file": "quality.json"})
    (folder / "quality.json").write_text(json.dumps({"checks": [CHECK | fields]}))
    refused(lambda: read_trace(folder).table("quality"), folder / "quality.json")
