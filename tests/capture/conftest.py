"""Fixtures of the capture side: fake tools, and captures with them through the real command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Tools, workloads

from tracekit.capture.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """A fake installation that is the only one to be found, and the fake workloads."""
    made = Tools(tmp_path / "nsight")
    for name in ("NSYS_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRACEKIT_TOOL_ROOTS", "")
    monkeypatch.setenv("PATH", f"{made.target}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{workloads(tmp_path)}{os.pathsep}{ROOT}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``python -m tracekit.capture`` in this process: (exit code, stdout, stderr)."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(list(map(str, arguments)))
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def capture(run, tools: Tools):
    """Captures the fake workload's unfused variant into ``out``: (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        return run("fake", "-o", "out", "--variants", "unfused", "--tool", "nsys", "--limit", "20", *arguments)

    return call
