"""Scrubbing: what is private goes, every figure stays, and what was removed is listed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(path.name for path in (ROOT / "tests/captures").iterdir() if path.is_dir())
SECRET = "hunter2"


def tracekit(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tracekit", *map(str, arguments)], capture_output=True, text=True)


def shown(path: Path, name: str) -> object:
    """``show --format json`` without the places that name the file itself."""
    text = tracekit("show", path, "--format", "json").stdout
    return json.loads(text.replace(str(path), name))


@pytest.mark.parametrize("sample", ["decode_fused", "decode_unfused_graph", "prefill_unfused"])
def test_every_figure_stays(sample: str, tmp_path: Path) -> None:
    source, target = ROOT / "tests/captures" / sample, tmp_path / "out"
    ended = tracekit("scrub", source, "-o", target)
    assert ended.returncode == 0, ended.stderr
    assert shown(target, "X") == shown(source, "X")


def planted(tmp_path: Path) -> Path:
    """A sample's timeline with secrets in the places where nsys puts them."""
    path = tmp_path / "planted.sqlite"
    path.write_bytes((ROOT / "tests/captures/decode_fused/timeline.sqlite").read_bytes())
    with sqlite3.connect(path) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        db.execute("DROP TABLE IF EXISTS TARGET_INFO_SYSTEM_ENV")
        db.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, name TEXT, value TEXT)")
        db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'TOKEN', ?)", [SECRET])
        top = db.execute("SELECT max(id) FROM StringIds").fetchone()[0]
        db.execute("INSERT INTO StringIds VALUES (?, ?)", [top + 1, f"serve --key {SECRET}"])
        if "META_DATA_EXPORT" in tables:
            db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_USER_NAME', ?)", [SECRET])
    return path


def test_secrets_leave_no_bytes_behind(tmp_path: Path) -> None:
    source, target = planted(tmp_path), tmp_path / "clean.sqlite"
    assert SECRET.encode() in source.read_bytes()
    before = source.read_bytes()
    ended = tracekit("scrub", source, "-o", target)
    assert ended.returncode == 0, ended.stderr
    assert SECRET.encode() not in target.read_bytes()
    assert "removed" in ended.stdout + ended.stderr
    assert source.read_bytes() == before
    assert shown(target, "X") == shown(source, "X")


def test_nothing_is_overwritten_and_a_report_is_refused_with_the_way_out(tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.write_text("mine")
    ended = tracekit("scrub", ROOT / "tests/captures/decode_fused", "-o", target)
    assert ended.returncode == 2
    assert target.read_text() == "mine"
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler")
    ended = tracekit("scrub", report, "-o", tmp_path / "y")
    assert ended.returncode == 2
    assert "export" in ended.stderr
    assert not (tmp_path / "y").exists()


def test_the_capture_side_imports_nothing_beside_the_standard_library() -> None:
    program = """
import sys
class Block:
    allowed = {"tracekit", "nvtx"}
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in self.allowed:
            raise ImportError(f"blocked: {name}")
sys.meta_path.insert(0, Block())
import pkgutil, importlib
import tracekit.capture
for module in pkgutil.iter_modules(tracekit.capture.__path__):
    if module.name != "__main__":
        importlib.import_module(f"tracekit.capture.{module.name}")
from tracekit.capture.__main__ import main
sys.exit(main(["--help"]) or 0)
"""
    ended = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "usage" in ended.stdout


@pytest.mark.parametrize(
    "value",
    ["/home/alice/my models/ckpt", "~/ckpt", "/root", "C:\\\\Users\\\\alice\\\\ckpt", "served from /home/alice/x"],
)
def test_conditions_hold_no_paths_either(value: str, tmp_path: Path) -> None:
    """`--condition model=PATH` is what a user would write."""
    source, target = tmp_path / "bundle", tmp_path / "out"
    shutil.copytree(ROOT / "tests/captures/decode_fused", source)
    told = json.loads((source / "manifest.json").read_text())
    told["conditions"]["model"] = value
    (source / "manifest.json").write_text(json.dumps(told))
    ended = tracekit("scrub", source, "-o", target)
    assert ended.returncode == 0, ended.stderr
    left = json.loads((target / "manifest.json").read_text())["conditions"]
    assert "alice" not in left["model"]
    assert "ckpt" not in left["model"]
    assert "root" not in left["model"]
    assert left["dtype"] == told["conditions"]["dtype"]
