"""Faulty inputs through the command: exit codes, one message on stderr, nothing on stdout, no half-written file."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys

import pytest

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"

FAULTS = {
    "empty.sqlite": b"",
    "lfs.sqlite": LFS.encode(),
    "lfs.ncu-rep": LFS.encode(),
    "text.sqlite": b"hello\n",
    "random.sqlite": random.Random(2).randbytes(3000),
    "random": random.Random(2).randbytes(3000),
    "report.nsys-rep": b"NVIDIA Nsight Systems",
    "a b?c#d%20é.sqlite": b"hello",
    "header.sqlite": b"SQLite format 3\0" + b"\0" * 20,
    "trace.json": b'{"traceEvents": []}',
    "log.csv": b"==PROF== Connected\n==WARNING== No kernels were profiled.\n",
    "prose.csv": b"hello, world\n",
}


@pytest.fixture
def export(nsys):
    """A small export without a fault."""
    return nsys(file="good.sqlite").gpu().range(0, 100, "step").launch((10, 20), (30, 40)).write()


def assert_refused(result, *words):
    code, out, err = result
    assert code == 2
    assert out == ""
    assert err.startswith("tracekit: ")
    assert err.count("tracekit: ") == 1
    assert "Traceback" not in err
    assert "remedy: " in err
    for word in words:
        assert str(word) in err


def commands(bad, good):
    """Every command line that meets the faulty file."""
    return [
        ("show", bad),
        ("show", bad, "--format", "json"),
        ("gaps", bad, "--format", "json"),
        ("diff", bad, good),
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_file(tracekit, tmp_path, export, name):
    bad = tmp_path / name
    bad.write_bytes(FAULTS[name])
    for command in commands(bad, export):
        assert_refused(tracekit(*command), bad, "expected", "found")


@pytest.mark.parametrize("part", [0.02, 0.5, 0.99])
def test_a_truncated_sample(tracekit, tmp_path, samples, export, part):
    whole = (samples / "decode_fused/timeline.sqlite").read_bytes()
    bad = tmp_path / "cut.sqlite"
    bad.write_bytes(whole[: int(len(whole) * part)])
    for command in commands(bad, export):
        assert_refused(tracekit(*command), bad, "truncated")


def test_a_faulty_second_file(tracekit, tmp_path, export):
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"hello")
    for format in ("text", "json"):
        assert_refused(tracekit("diff", export, bad, "-f", format), bad)


def test_a_missing_file(tracekit, tmp_path, export):
    for command in commands(tmp_path / "absent.sqlite", export):
        assert_refused(tracekit(*command), "absent.sqlite", "no such file")
    assert not (tmp_path / "absent.sqlite").exists()


def test_a_folder_without_a_manifest(tracekit, tmp_path, export):
    for command in commands(tmp_path, export):
        assert_refused(tracekit(*command), "manifest.json")


def test_another_program_s_database(tracekit, nsys, export):
    bad = nsys("2020.5", file="bad.sqlite").sql("CREATE TABLE moz_places (id)").write(without=["StringIds"])
    for command in commands(bad, export):
        assert_refused(tracekit(*command), "moz_places")


def test_a_cell_of_the_wrong_type(tracekit, nsys, export):
    bad = nsys(file="bad.sqlite").kernel(1, 2).sql("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'wide'").write()
    for command in commands(bad, export):
        assert_refused(tracekit(*command), "CUPTI_ACTIVITY_KIND_KERNEL", "gridX", "'wide'")


@pytest.mark.parametrize("fields", [{"schema_version": 2}, {"timeline": {"file": "../x"}}, {"colour": "red"}])
def test_a_faulty_manifest(tracekit, bundle, export, fields):
    for command in commands(bundle(**fields), export):
        assert_refused(tracekit(*command), "manifest.json")


def test_a_faulty_bench(tracekit, bundle, export):
    for command in commands(bundle(bench_json="{"), export):
        assert_refused(tracekit(*command), "bench.json")


@pytest.mark.parametrize("option", ["absent.csv", "cold=absent.csv"])
def test_missing_counters(tracekit, export, option):
    assert_refused(tracekit("show", export, "--counters", option), "absent.csv")
    assert_refused(tracekit("diff", export, export, "--base-counters", option), "absent.csv")
    assert_refused(tracekit("diff", export, export, "--test-counters", option), "absent.csv")


def test_a_timeline_as_counters(tracekit, export):
    assert_refused(tracekit("show", export, "--counters", export), "--counters")


# Output


@pytest.mark.parametrize("command", ["show", "gaps", "diff"])
@pytest.mark.parametrize("format", ["text", "json"])
def test_output_goes_to_a_file_whole_or_not_at_all(tracekit, tmp_path, export, command, format):
    bad, result = tmp_path / "bad.sqlite", tmp_path / "result"
    bad.write_bytes(b"hello")
    traces = [export] * (2 if command == "diff" else 1)
    broken = [*traces[1:], bad]
    before = set(tmp_path.iterdir())

    assert_refused(tracekit(command, *broken, "-f", format, "-o", result))
    assert set(tmp_path.iterdir()) == before

    code, out, _ = tracekit(command, *traces, "-f", format, "-o", result)
    assert (code, out) == (0, "")
    content = result.read_text(encoding="utf-8")
    assert content.endswith("\n")
    assert set(tmp_path.iterdir()) == {*before, result}

    assert_refused(tracekit(command, *traces, "-f", format, "-o", result), result, "--force")
    assert_refused(tracekit(command, *broken, "-f", format, "-o", result, "--force"))
    assert result.read_text(encoding="utf-8") == content

    code, *_ = tracekit(command, *traces, "-f", format, "-o", result, "--force")
    assert code == 0
    assert set(tmp_path.iterdir()) == {*before, result}


def test_output_into_no_folder(tracekit, tmp_path, export):
    assert_refused(tracekit("show", export, "-o", tmp_path / "absent" / "a.txt"), "absent")


def test_output_over_a_folder(tracekit, tmp_path, export):
    folder = tmp_path / "folder"
    folder.mkdir()
    assert_refused(tracekit("show", export, "-o", folder, "--force"), "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "good.sqlite"]


def test_output_spares_other_files(tracekit, tmp_path, export):
    other = tmp_path / "a.json.partial"
    other.write_text("mine")
    tracekit("show", export, "-f", "json", "-o", tmp_path / "a.json")
    assert other.read_text() == "mine"


def test_output_never_replaces_the_input(tracekit, export):
    before = export.read_bytes()
    tracekit("show", export, "-f", "json", "-o", export, "--force")
    assert export.read_bytes() == before


# Usage


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("show", "a", "b"),
        ("diff", "a"),
        ("sho", "a"),
        ("show", "a", "--format", "yaml"),
        ("show", "a", "-x"),
    ],
    ids=" ".join,
)
def test_usage_errors(tracekit, arguments):
    code, out, err = tracekit(*arguments)
    assert code == 2
    assert out == ""
    assert "Error" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("rename", ["a", "=b", "a=", "step=absent", "absent=step"])
def test_a_faulty_rename(tracekit, export, rename):
    assert_refused(tracekit("diff", export, export, "--rename", rename), "--rename")


def test_a_faulty_waiver(tracekit, export):
    assert_refused(tracekit("diff", export, export, "--waive", "weather"), "weather", "graph_mode")


# Not comparable


def strict(text):
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_decode_against_prefill(tracekit, samples):
    pair = samples / "decode_unfused", samples / "prefill_fused"
    code, out, err = tracekit("diff", *pair)
    assert (code, out) == (3, "")
    assert err.startswith("tracekit: not comparable: input_tokens: 1 against 2048")
    assert "--waive input_tokens" in err

    code, out, err = tracekit("diff", *pair, "--format", "json")
    assert code == 3
    assert "Traceback" not in err
    answer = strict(out)
    assert answer["schema_version"] == 1
    assert answer["comparable"] is False
    assert answer["mismatches"] == [{"condition": "input_tokens", "base": 1, "test": 2048, "waived": False}]
    assert set(answer["unknown"]) == {"kv_tokens", "l2_state"}
    assert answer["regions"] == []
    assert answer["notes"]

    code, out, _ = tracekit("diff", *pair, "--format", "json", "--waive", "input_tokens")
    assert code == 0
    answer = strict(out)
    assert answer["comparable"] is True
    assert answer["mismatches"] == [{"condition": "input_tokens", "base": 1, "test": 2048, "waived": True}]


def test_a_refusal_goes_to_the_file_as_well(tracekit, samples, tmp_path):
    pair = samples / "decode_unfused", samples / "decode_unfused_graph"
    code, out, _ = tracekit("diff", *pair, "-f", "json", "-o", tmp_path / "a.json")
    assert (code, out) == (3, "")
    assert strict((tmp_path / "a.json").read_text())["comparable"] is False
    code, out, _ = tracekit("diff", *pair, "-f", "text", "-o", tmp_path / "a.txt")
    assert (code, out) == (3, "")
    assert not (tmp_path / "a.txt").exists()


# Through a real process


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "from tracekit.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        env=os.environ | environment,
        timeout=60,
        check=False,
    )


def test_a_process_refuses_alike(tmp_path):
    bad = tmp_path / "a b.sqlite"
    bad.write_bytes(b"hello")
    result = run("show", bad, "-f", "json", PYTHONWARNINGS="error")
    assert_refused((result.returncode, result.stdout.decode(), result.stderr.decode()), bad)


def test_a_process_prints_one_json_and_no_warning(samples):
    result = run("show", samples / "decode_unfused", "--format", "json", PYTHONWARNINGS="error")
    assert result.returncode == 0
    assert result.stderr == b""
    assert strict(result.stdout.decode())["schema_version"] == 1


def test_a_terminal_or_pipe_that_is_not_utf8(samples):
    result = run("show", samples / "decode_fused", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert b"Traceback" not in result.stderr


def test_a_reader_that_leaves_early(samples):
    if shutil.which("sh") is None:
        pytest.skip("needs a POSIX shell")
    command = f'"{sys.executable}" -c "from tracekit.cli import main; main()" show "$1" -f json | true'
    result = subprocess.run(
        ["sh", "-c", command, "sh", str(samples / "decode_unfused")], capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in result.stderr
