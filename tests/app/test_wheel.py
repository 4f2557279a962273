"""The wheel alone: installed into an empty folder, it serves its own samples from another empty folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is installed into."""
    wheels, folder = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT)
    (wheel,) = wheels.glob("tracekit-*.whl")
    run(*pip, "install", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


@pytest.fixture(scope="module")
def served(installed: Path, start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The dashboard by the wheel's console script, without an argument, in an empty folder."""
    command = [sys.executable, str(installed / "bin" / "tracekit")]
    dashboard = start(command, cwd=tmp_path_factory.mktemp("empty"), PYTHONPATH=str(installed))
    yield dashboard
    dashboard.stop()


def test_the_wheel_carries_the_samples(installed: Path, tmp_path: Path) -> None:
    code = "from tracekit import pipeline; print(pipeline.samples_directory())"
    folder = Path(run(sys.executable, "-c", code, cwd=tmp_path, env={"PYTHONPATH": str(installed)}).strip())
    assert folder == installed / "tracekit" / "sample_traces"
    made = {path.name for path in (ROOT / "sample_traces").iterdir()}
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == made - {"__pycache__"}


def test_the_wheel_serves_the_dashboard(served: Any) -> None:
    assert served.health() == "ok"


@pytest.mark.browser
def test_the_wheel_shows_the_samples(served: Any, open_page: Callable[..., Any]) -> None:
    served.health()
    page = open_page(served.url)
    assert page.tab.locator(".st-key-base input").input_value() == "request_eager"
    assert page.table("metrics")[1][:3] == ["kernel_count", "882", "132"]


def test_the_server_ends_cleanly_when_it_is_told_to(served: Any) -> None:
    served.health()
    printed = served.stop()
    assert served.process.returncode == 0, printed
    assert printed.startswith("tracekit: the dashboard of ")
    assert "Traceback" not in printed
