"""Fixtures that every test folder shares."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nsys_builder import NsysFile

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def samples() -> Path:
    """Captures whose figures are known by hand: tests/captures/README.md."""
    return ROOT / "tests" / "captures"


@pytest.fixture(scope="session")
def public_cases() -> Path:
    """Files that other people made; they lie beside the checkout, and not everywhere."""
    folder = ROOT.parent / "shared" / "cases" / "public"
    if not folder.is_dir():
        pytest.skip("the public cases are not here")
    return folder


@pytest.fixture
def nsys(tmp_path: Path) -> Callable[..., NsysFile]:
    """Starts an export in the test's folder: ``nsys(generation=..., file=...)``."""

    def start(generation: str = "2023.4", *, file: str = "a.sqlite", **options: Any) -> NsysFile:
        return NsysFile(tmp_path / file, generation, **options)

    return start


@pytest.fixture
def bundle(tmp_path: Path, nsys: Callable[..., NsysFile]) -> Callable[..., Path]:
    """Makes a bundle of a timeline of one kernel and a manifest with the given fields; None leaves one out."""

    def make(name: str = "bundle", *, bench_json: Any = None, **fields: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        nsys(file=f"{name}/timeline.sqlite").gpu().range(0, 100, "step").launch((10, 20), (30, 40)).write()
        manifest: dict[str, Any] = {
            "schema_version": 1, "capture_id": name, "timeline": {"file": "timeline.sqlite"},
        }  # fmt: skip
        if bench_json is not None:
            manifest["bench"] = {"file": "bench.json"}
            (folder / "bench.json").write_text(bench_json if isinstance(bench_json, str) else json.dumps(bench_json))
        manifest |= fields
        manifest = {key: value for key, value in manifest.items() if value is not None}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


@pytest.fixture
def refused() -> Callable[[Callable[[], Any], Path], str]:
    """Asserts that an action raises an InputError that names the file, both sides and a remedy; returns its text."""
    from tracekit.errors import InputError

    def check(action: Callable[[], Any], path: Path) -> str:
        with pytest.raises(InputError) as caught:
            action()
        error, text = caught.value, str(caught.value)
        for part in (str(path), f"expected {error.expected}", f"found {error.found}", f"remedy: {error.remedy}"):
            assert part in text
        assert error.expected
        assert error.found
        assert error.remedy
        return text

    return check


@pytest.fixture
def tracekit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process: (exit code, stdout, stderr)."""
    from tracekit import cli

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tracekit", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capfd.readouterr()
        code = exit_.value.code
        return (0 if code is None else int(code)), out, err

    return run
