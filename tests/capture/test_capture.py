"""Captures with fake tools through the command line: what is in a bundle, resuming, and every way to fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracekit.model.manifest import CONDITIONS, Manifest
from tracekit.pipeline import diff, report

NAME = "fake-unfused-small-r1"


def manifest(name: str = NAME) -> Manifest:
    path = Path("out", name, "manifest.json")
    return Manifest.from_dict(json.loads(path.read_text()), source=str(path))


def bundles() -> list[str]:
    return sorted(path.parent.name for path in Path("out").glob("*/manifest.json"))


def hidden() -> list[str]:
    return [path.name for path in Path("out").glob(".*") if path.is_dir()]


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


# What a bundle is


def test_a_bundle_holds_what_a_comparison_needs(capture, tools):
    code, out, _ = capture("--tool", "both")
    assert code == 0, out
    assert sorted(path.name for path in Path("out", NAME).iterdir()) == [
        "bench.json", "cold.ncu.csv", "in_model.ncu.csv", "manifest.json", "quality.json", "timeline.sqlite",
    ]  # fmt: skip
    told = manifest()
    assert set(told.conditions) == set(CONDITIONS) - {"kv_tokens"}
    assert told.environment["nsys"] == "2023.4.4"
    assert told.environment["ncu"] == "2025.3.1"
    assert [(entry.kind, entry.cache_control, entry.clock_control) for entry in told.counters] == [
        ("in_model", "none", "none"), ("cold", "all", "none"),
    ]  # fmt: skip
    assert told.counters[0].nvtx_include == "tracekit@unfused\\/T1\\/iter/"
    read = report(f"out/{NAME}")
    assert read.capture["workload"] == "fake"
    assert len(read.frames["instances"]) == 4
    assert "1 captured" in out


def test_nsys_is_run_as_measured_to_work(capture, tools):
    capture("--graphs", "node", "--with-construction")
    (profile, export) = tools.calls()
    child = profile.index(sys.executable)
    assert set(profile[:child]) >= {
        "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", "--cuda-graph-trace=node",
    }  # fmt: skip
    assert profile[child:] == [
        sys.executable, "-m", "workloads", "run", "fake", "--variant", "unfused", "--shape", "small", "--dtype",
        "bfloat16", "--iterations", "20", "--graph", "--seed", "0", "--with-construction",
    ]  # fmt: skip
    assert export[0] == "export"
    assert bundles() == ["fake-unfused-small-graph-r1"]


def test_every_variant_and_repeat_becomes_a_bundle(run, tools):
    code, out, _ = run("fake", "-o", "out", "--shapes", "small,large", "--repeats", "2", "--tool", "nsys")
    assert code == 0, out
    assert len(bundles()) == 8
    assert "8 captured" in out


def test_bundles_of_different_shape_are_not_compared(run, tools, tracekit):
    run("fake", "-o", "out", "--variants", "unfused", "--shapes", "small,large", "--tool", "nsys")
    code, _, err = tracekit("diff", "out/fake-unfused-small-r1", "out/fake-unfused-large-r1")
    assert code == 3
    assert "input_tokens: 1 against 2048" in err


def test_the_typer_command_is_the_same(tracekit, tools):
    code, out, _ = tracekit("capture", "-o", "out", "--trace", "nvtx", "--condition", "batch=4", "--", "true", "--x")
    assert code == 0, out
    assert tools.calls()[0][-2:] == ["true", "--x"]
    assert "true-r1" in out
    assert manifest("true-r1").conditions == {"batch": 4}


def test_a_program_of_ones_own_is_recorded_from_its_start(run, tools):
    code, _, _ = run("-o", "out", "--tool", "nsys", "--label", "mine", "--", "true")
    assert code == 0
    assert not any("capture-range" in word for word in tools.calls()[0])
    assert manifest("mine-r1").conditions == {}
    run("-o", "window", "--tool", "nsys", "--window", "profiler-api", "--", "true")
    assert "--capture-range=cudaProfilerApi" in tools.calls()[-2]


def test_a_report_is_kept_when_asked(capture):
    capture("--keep-report")
    assert Path("out", NAME, "timeline.nsys-rep").exists()


# Counters


def test_counters_refused_by_the_machine_do_not_stop_the_timeline(capture, tools):
    tools.ncu("refused")
    code, out, err = capture("--tool", "both")
    assert code == 0
    assert manifest().counters == ()
    assert "NVreg_RestrictProfilingToAdminUsers=0" in err
    assert "ERR_NVGPUCTRPERM" in out
    assert len(tools.calls("ncu")) == 1
    assert report(f"out/{NAME}").frames["instances"]["path"].notna().all()


def test_counters_alone_refused_are_a_failure(capture, tools):
    tools.ncu("refused")
    code, _, err = capture("--tool", "ncu")
    assert code == 2
    assert "--cap-add=SYS_ADMIN" in err
    assert bundles() == []


def test_a_bundle_of_counters_alone(capture):
    code, _, _ = capture("--tool", "ncu", "--kinds", "replay_warm", "--repeats", "2")
    assert code == 0
    assert bundles() == [NAME, NAME.replace("r1", "r2")]
    assert manifest().timeline is None
    assert manifest().conditions["input_tokens"] == 1


@pytest.mark.parametrize(
    ("mode", "words"), [("nothing", "profiled nothing in tracekit@"), ("hang", "ended after its limit of 1 s")]
)
def test_ncu_without_results_is_a_failure(capture, tools, mode, words):
    tools.ncu(mode)
    code, out, _ = capture("--tool", "both", "--limit", "1")
    assert code == 2
    assert words in out
    assert bundles() == []


# Failing


@pytest.mark.parametrize(
    ("mode", "words", "remedy"),
    [
        ("die", "was killed by SIGSEGV", "see its lines"),
        ("full", "no space left on the disk", "free space"),
        ("nothing", "left no report", "--window none"),
        ("cuda-less", "no row of device work", "an importer of another nsys version"),
        ("empty", "4 pushed, 0 in the report", "nvtx==0.2.11"),
        ("export-fails", "export ended with exit code 1", "see its lines"),
    ],
)
def test_a_failure_is_told_and_leaves_nothing_behind(capture, tools, mode, words, remedy):
    tools.behave(mode)
    code, out, err = capture()
    assert code == 2
    assert bundles() == []
    assert hidden() == []
    assert words in err
    assert remedy in err
    assert "1 failed" in out
    assert words in Path("out", f"{NAME}.failed.log").read_text()


def test_the_tools_own_lines_are_quoted(capture, tools):
    tools.behave("die")
    _, _, err = capture()
    assert "| The target application terminated. FATAL ERROR: agent failed" in err


def test_a_hanging_tool_is_ended_with_all_that_it_started(capture, tools):
    tools.behave("hang")
    started = time.monotonic()
    code, _, err = capture("--limit", "1")
    assert time.monotonic() - started < 15
    assert code == 2
    assert "ended after its limit of 1 s" in err
    agent = int((tools.target / "agent").read_text())
    stat = Path(f"/proc/{agent}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_lost_ranges_name_the_nvtx_that_loses_them(capture, tools, monkeypatch):
    monkeypatch.setenv("FAKE_NVTX", "0.2.17")
    tools.behave("empty")
    _, _, err = capture()
    assert "nsys 2023.4.4 loses those of nvtx 0.2.17" in err
    assert "pip install nvtx==0.2.11" in err


def test_one_failure_does_not_stop_the_others_and_two_in_a_row_do(capture, tools):
    tools.behave("die", "whole")
    code, out, _ = capture("--repeats", "3")
    assert code == 2
    assert len(bundles()) == 2
    assert "2 captured, 1 failed" in out
    tools.behave("die")
    before = len(tools.calls())
    capture("--repeats", "9")
    assert len(tools.calls()) == before + 2


# Resuming


def test_whole_bundles_are_kept_and_others_made_again(capture, tools):
    capture("--repeats", "3")
    first = (Path("out", NAME) / "manifest.json").stat().st_mtime_ns
    Path("out", NAME.replace("r2", "r1").replace("r1", "r2"), "timeline.sqlite").write_bytes(b"damaged")
    shutil.rmtree(Path("out", NAME.replace("r1", "r3")))
    code, out, _ = capture("--repeats", "3")
    assert code == 0
    assert "2 captured, 1 kept" in out
    assert (Path("out", NAME) / "manifest.json").stat().st_mtime_ns == first
    assert (Path("out", NAME.replace("r1", "r2")) / "timeline.sqlite").read_bytes() != b"damaged"


def test_a_set_that_is_whole_runs_nothing(capture, tools):
    capture()
    before = tools.calls()
    code, out, _ = capture()
    assert code == 0
    assert "1 kept" in out
    assert tools.calls() == before


def test_other_settings_do_not_pass_for_the_same_capture(capture):
    capture()
    code, _, err = capture("--iterations", "5")
    assert code == 2
    assert "captured with other settings" in err
    assert capture("--iterations", "5", "--force")[0] == 0


def test_a_folder_that_is_no_bundle_is_not_replaced(capture):
    own = Path("out", NAME)
    own.mkdir(parents=True)
    (own / "thesis.txt").write_text("years of work")
    code, _, err = capture()
    assert code == 2
    assert "is no bundle" in err
    assert (own / "thesis.txt").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_capture_killed_midway_leaves_whole_bundles_and_resumes(capture, tools, number):
    """SIGKILL gives no chance to tidy up: what is left is hidden, and gone with the next capture."""
    tools.behave("whole", "whole", "wait", "whole")  # Each capture exports too, which takes a mode.
    command = [sys.executable, "-m", "tracekit.capture", "fake", "-o", "out", "--variants", "unfused"]
    command += ["--tool", "nsys", "--repeats", "2", "--blocks", "0", "--no-quality"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    waiting = Path(wait_for(tools.target / "waiting"))
    assert waiting.parent.is_dir()
    tool = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_fake(pid, tools.target)]
    child.send_signal(number)
    child.communicate(timeout=20)
    for pid in tool if number is signal.SIGKILL else []:
        os.kill(pid, signal.SIGKILL)
    assert len(bundles()) == 1
    assert bool(hidden()) is (number is signal.SIGKILL)
    kept = bundles()[0]
    before = Path("out", kept, "manifest.json").stat().st_mtime_ns
    code, out, _ = capture("--repeats", "2")
    assert code == 0
    assert "1 captured, 1 kept" in out
    assert Path("out", kept, "manifest.json").stat().st_mtime_ns == before
    assert hidden() == []


def _is_fake(pid: int, folder: Path) -> bool:
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_two_captures_do_not_write_to_one_folder(capture, tools):
    from tracekit.capture import bundle

    with bundle.locked(Path("out").absolute()):
        code, _, err = capture()
    assert code == 2
    assert "another capture is writing there" in err


def test_a_disk_that_fills_while_a_manifest_is_written(capture, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = capture()
    assert code == 2
    assert "No space left on device" in err
    assert bundles() == []
    assert hidden() == []


def test_too_little_space_to_begin(capture, tools, monkeypatch):
    monkeypatch.setattr("tracekit.capture.session.NEEDED_BYTES", 10**18)
    code, _, err = capture()
    assert code == 2
    assert "finished bundles are kept" in err
    assert tools.calls() == []


# What cannot be asked for


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "out"), "nothing to capture"),
        (("fake",), "-o/--output"),
        (("fake", "-o", "out", "--variants", "x"), "has no variants x"),
        (("fake", "-o", "out", "--shapes", "x"), "no shape of fake is named 'x'"),
        (("other", "-o", "out"), "no workload is named 'other'"),
        (("fake", "-o", "out", "--", "true"), "both a workload (fake) and a program (true)"),
        (("-o", "out", "--variants", "a", "--", "true"), "--variants is for workloads"),
        (("fake", "-o", "out", "--metrics", "fast"), "no metrics are named 'fast'"),
        (("fake", "-o", "out", "--kinds", "warm"), "no kind of traffic is named 'warm'"),
        (("fake", "-o", "out", "--repeats", "0"), "0 is less than 1"),
        (("fake", "-o", "out", "--limit", "0"), "number of seconds"),
        (("fake", "-o", "out", "--trace", "everything"), "does not trace everything"),
        (("-o", "out", "--condition", "colour=red", "--", "true"), "NAME is one of"),
        (("fake", "-o", "out", "--python", "/bin/false"), "python -m workloads list"),
    ],
)
def test_a_request_that_makes_no_sense(run, tools, arguments, words):
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert words in err
    assert "remedy: " in err
    assert not any("profile" in call for call in tools.calls())


@pytest.mark.parametrize(("tool", "words"), [("nsys", "no nsys on this machine"), ("ncu", "no ncu on this machine")])
def test_a_tool_that_is_not_here(run, tools, tool, words, monkeypatch):
    (tools.target / tool).unlink()
    code, _, err = run("fake", "-o", "out", "--tool", tool)
    assert code == 2
    assert words in err
    assert "remedy: " in err


def test_any_shape_that_the_workload_takes_can_be_captured(capture):
    """Workloads take more shapes than they list: any number of tokens."""
    code, out, _ = capture("--shapes", "t7")
    assert code == 0, out
    assert bundles() == ["fake-unfused-t7-r1"]


def test_another_program_of_the_same_name_is_another_capture(run, tools):
    """Else a comparison of before and after would be one of before with itself."""
    Path("serve.py").write_text("")
    program = (sys.executable, "serve.py")
    assert run("-o", "out", "--tool", "nsys", "--", *program, "--no-fuse")[0] == 0
    code, _, err = run("-o", "out", "--tool", "nsys", "--", *program, "--fuse")
    assert code == 2
    assert "captured with other settings" in err
    assert "no-fuse" not in Path("out", bundles()[0], "manifest.json").read_text(), "arguments may be secrets"
    code, out, _ = run("-o", "out", "--tool", "nsys", "--", *program, "--no-fuse")
    assert (code, "1 kept" in out) == (0, True)


@pytest.mark.parametrize(
    "changed",
    [
        ("--clock-control", "base"), ("--counter-iterations", "3"), ("--region", "layer1"), ("--skip", "1"),
        ("--count", "2"), ("--seed", "7"), ("--condition", "batch=2"), ("--kinds", "cold"), ("--metrics", "traffic"),
    ],
)  # fmt: skip
def test_whatever_changes_a_bundle_makes_it_another(capture, tools, changed):
    assert capture("--tool", "both")[0] == 0
    code, _, err = capture("--tool", "both", *changed)
    assert code == 2
    assert "captured with other settings" in err


def runs() -> dict[str, str]:
    """The run of the bench that each bundle holds."""
    return {name: json.loads(Path("out", name, "bench.json").read_text())["run"] for name in bundles()}


def test_a_resumed_set_goes_on_with_its_bench(run, tools):
    both = ("fake", "-o", "out", "--variants", "unfused,fused", "--tool", "nsys", "--blocks", "3")
    assert run(*both)[0] == 0
    before = runs()
    shutil.rmtree(Path("out", bundles()[0]))
    assert run(*both)[0] == 0
    assert runs() == before
    assert len(set(before.values())) == 1
    compared = diff(*(Path("out", f"fake-{variant}-small-r1") for variant in ("unfused", "fused")))
    assert compared.latency["synchronized"].estimate.method == "paired"


def test_samples_that_were_not_interleaved_are_not_paired(run, tools):
    for variant in ("unfused", "fused"):
        assert run("fake", "-o", "out", "--variants", variant, "--tool", "nsys", "--blocks", "3")[0] == 0
    assert len(set(runs().values())) == 2
    compared = diff(*(Path("out", f"fake-{variant}-small-r1") for variant in ("unfused", "fused")))
    assert compared.latency["synchronized"].estimate.method == "unpaired"
    assert any("two runs of the bench" in note for note in compared.notes)
