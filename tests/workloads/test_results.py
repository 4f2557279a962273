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
    command = [sys.executable, "-W", "ignore", "-m", "workloads.results", "write", "workloads/results.json"]
    subprocess.run([*command, "-o", str(written)], cwd=ROOT, env=environment, check=True)
    assert written.read_text() == (ROOT / "workloads/RESULTS.md").read_text()
