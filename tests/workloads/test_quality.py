"""``quality`` as a command: on a CPU in the interpreter, what it writes, and what it refuses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.read.bundle import read_quality

if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
    pytest.skip("torch or triton is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[2]


def quality(*arguments: object, interpret: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "workloads", "quality", *map(str, arguments)],
        cwd=ROOT, env=environment | ({"TRITON_INTERPRET": "1"} if interpret else {}), capture_output=True, text=True,
    )  # fmt: skip


def test_the_interpreter_judges_bfloat16_kernels_fairly(tmp_path: Path) -> None:
    output = tmp_path / "quality.json"
    options = ("--variants", "eager,torch_rms_norm,triton", "--shapes", "t3_h1000,t0_h576")
    ended = quality("residual_rmsnorm", *options, "-o", output, interpret=True)
    assert ended.returncode == 0, ended.stderr
    frame = read_quality(output)
    assert len(frame) == 2 * 5
    assert frame["passed"].all()
    assert any("triton t3_h1000 bfloat16: error ratio" in check for check in frame["check"])


def test_without_the_interpreter_triton_variants_are_left_out_or_refused() -> None:
    ended = quality("swiglu_ffn", "--shapes", "t3_h100_f57")
    assert ended.returncode == 0
    assert "two_kernel" not in ended.stdout
    ended = quality("swiglu_ffn", "--shapes", "t3_h100_f57", "--variants", "two_kernel")
    assert ended.returncode == 2
    assert "TRITON_INTERPRET=1" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nosuch"], "use one of: decoder"),
        (["residual_rmsnorm", "--dtype", "int4"], "use one of: bfloat16"),
        (["residual_rmsnorm", "--shapes", "t1"], "tTOKENS_hHIDDEN"),
        (["residual_rmsnorm", "--text", "64"], "use decoder"),
        (["residual_rmsnorm", "-o", "/nonexistent/q.json"], "no such folder"),
        (["swiglu_ffn", "--variants", "eager", "--shapes", "t1_h9000000_f9000000"], "hidden 9000000"),
    ],
)
def test_bad_input_says_what_is_valid(arguments: list[str], expected: str) -> None:
    ended = quality(*arguments)
    assert ended.returncode == 2
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr
