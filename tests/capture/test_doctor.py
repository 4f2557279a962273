"""The doctor on machines that lack something: each line says what is there, and what to do."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def checks(run, tools, monkeypatch):
    """Examines the fake machine: exit code and checks by name."""
    which = shutil.which
    monkeypatch.setattr("shutil.which", lambda name, **how: None if name == "nvidia-smi" else which(name, **how))

    def call() -> tuple[int, dict[str, dict[str, str]]]:
        code, out, _ = run("doctor", "--format", "json")
        return code, {check["name"]: check for check in json.loads(out)["checks"]}

    return call


def test_a_machine_without_an_importer_captures_all_the_same(checks, tools):
    tools.behave("qdstrm")
    code, found = checks()
    assert code == 0
    assert (found["importer"]["level"], found["trial capture"]["level"]) == ("warn", "warn")
    assert "left a .qdstrm" in found["trial capture"]["found"]
    assert "Nsight Systems 2023.4.4" in found["trial capture"]["remedy"]


def test_with_an_importer_the_rows_are_counted(checks, tools):
    tools.behave("qdstrm")
    tools.with_importer()
    code, found = checks()
    assert found["importer"]["level"] == "ok"
    assert "trial capture" not in found
    # The fake's report holds other ranges than the probe pushed, as after a loss.
    assert (code, found["trial: NVTX"]["level"]) == (1, "fail")


@pytest.mark.parametrize(
    ("mode", "words"), [("die", "was killed by SIGSEGV"), ("nothing", "left no report"), ("full", "no space left")]
)
def test_a_trial_that_fails_is_a_failure(checks, tools, mode, words):
    tools.behave(mode)
    code, found = checks()
    assert code == 1
    assert words in found["trial capture"]["found"]
    assert found["trial capture"]["remedy"]


def test_a_machine_without_nsys_stops_there(run, tools, monkeypatch):
    (tools.target / "nsys").unlink()
    code, out, _ = run("doctor")
    assert code == 1
    assert "fail  nsys" in out
    assert "remedy: install Nsight Systems" in out
