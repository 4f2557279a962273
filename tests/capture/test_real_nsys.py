"""A real Nsight Systems captures a program without CUDA: profile, import, export, read, and counts compared.

Runs where ``NSYS_HOME`` names one, as CI does; a folder with the newest nvtx in ``TRACEKIT_NEWEST_NVTX`` adds the loss
that nsys 2023.4 has with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tracekit

pytestmark = pytest.mark.skipif(
    not (os.environ.get("NSYS_HOME") and sys.platform == "linux"), reason="NSYS_HOME names no Nsight Systems"
)
pytest.importorskip("nvtx", reason="nvtx is not installed")

PROGRAM = """
import json, os, nvtx
for step in range(7):
    with nvtx.annotate("step", domain="tracekit"):
        for part in ("first", "second"):
            with nvtx.annotate(part, domain="tracekit"):
                pass
said = {"schema_version": 1, "capture_id": "program", "ran": {"ranges_pushed": 21, "iterations": 7}}
with open(os.environ["TRACEKIT_RECORD"], "w") as file:
    json.dump(said, file)
"""


def capture(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    options = ["--trace", "nvtx", *arguments, "-o", str(folder / "set"), "--", sys.executable, str(program)]
    return subprocess.run(
        [sys.executable, "-m", "tracekit.capture", "capture", *options],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_what_the_program_pushed_is_what_is_read(tmp_path: Path) -> None:
    ended = capture(tmp_path, "--repeats", "2")
    assert ended.returncode == 0, ended.stderr
    for bundle in ("program-r1", "program-r2"):
        report = tracekit.report(tmp_path / "set" / bundle)
        found = {region.path: region.instances for region in report.regions}
        assert found == {("step",): 7, ("step", "first"): 7, ("step", "second"): 7}


def test_a_set_that_is_whole_is_kept(tmp_path: Path) -> None:
    assert capture(tmp_path).returncode == 0
    export = tmp_path / "set/program-r1/timeline.sqlite"
    written = export.stat().st_mtime_ns
    again = capture(tmp_path)
    assert again.returncode == 0
    assert "kept" in again.stdout
    assert export.stat().st_mtime_ns == written


def test_the_doctor_proves_ranges_on_the_cpu() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tracekit.capture", "doctor", "--format", "json"], capture_output=True, text=True
    )
    lines = {line["name"]: line for line in json.loads(ended.stdout)["checks"]}
    assert lines["trial: NVTX"]["level"] == "ok", lines


@pytest.mark.skipif(not os.environ.get("TRACEKIT_NEWEST_NVTX"), reason="TRACEKIT_NEWEST_NVTX names no folder")
def test_ranges_that_the_newest_nvtx_loses_are_told_with_the_mend(tmp_path: Path) -> None:
    ended = capture(tmp_path, PYTHONPATH=os.environ["TRACEKIT_NEWEST_NVTX"])
    assert ended.returncode == 2
    assert "21 pushed, 0 in the report" in ended.stderr
    assert "pip install nvtx==0.2.11" in ended.stderr
    assert not (tmp_path / "set/program-r1").exists()
