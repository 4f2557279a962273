"""Bytecode is kept where a library came without, and only there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.capture import bytecode


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that was installed without bytecode."""
    package = tmp_path / "site" / "heavy_library"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    importlib.invalidate_caches()
    return package


def test_children_share_what_one_of_them_compiled(library: Path, tmp_path: Path) -> None:
    told = bytecode.environment(tmp_path / "kept", library="heavy_library")
    code = f"import sys; sys.path.insert(0, {str(library.parent)!r}); import heavy_library"
    subprocess.run([sys.executable, "-c", code], env={**told}, check=True)
    assert [path.name.split(".")[0] for path in (tmp_path / "kept").rglob("*.pyc") if "heavy" in str(path)] == [
        "__init__"
    ]
    assert not (library / "__pycache__").exists()


def test_a_library_with_bytecode_and_an_own_prefix_are_left_alone(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bytecode.environment(tmp_path, library="no_such_library") == {}
    assert bytecode.environment(tmp_path, library="sys") == {}
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "mine")
    assert bytecode.environment(tmp_path, library="heavy_library") == {}
    monkeypatch.delenv("PYTHONPYCACHEPREFIX")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(library)], check=True)
    assert bytecode.environment(tmp_path, library="heavy_library") == {}
