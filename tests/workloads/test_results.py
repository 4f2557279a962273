"""RESULTS.md is what its script writes of the committed measurements."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
    pytest.skip("torch or triton is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[2]
VERSION = "3.6.0"
"""Of Triton: what another version compiles to is another page."""


def test_results_are_what_the_script_writes(tmp_path: Path) -> None:
    import importlib.metadata

    if importlib.metadata.version("triton") != VERSION:
        pytest.skip(f"RESULTS.md was written with Triton {VERSION}")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    written = tmp_path / "RESULTS.md"
    command = [sys.executable, "-W", "ignore", "-m", "workloads.results_page", "workloads/results.json"]
    subprocess.run([*command, "-o", str(written)], cwd=ROOT, env=environment, check=True)
    assert written.read_text() == (ROOT / "workloads/RESULTS.md").read_text()


def test_a_file_that_holds_no_results_is_told(tmp_path: Path) -> None:
    for content, expected in (("{}", "measure all sections"), ("{", "make it again")):
        path = tmp_path / "r.json"
        path.write_text(content)
        command = [sys.executable, "-W", "ignore", "-m", "workloads.results_page", str(path), "-o", str(tmp_path / "x")]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert ended.returncode == 2
        assert expected in ended.stderr
        assert not (tmp_path / "x").exists()
