"""``resources``: what kernels use, compiled without a GPU, and as tracekit reads it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Found and not imported: other modules of this folder set how Triton starts before they import it.
if not all(importlib.util.find_spec(name) for name in ("torch", "triton")):
    pytest.skip("torch or triton is not installed", allow_module_level=True)

import tracekit
from tracekit.analyze.occupancy import LIMITS
from workloads import resources

ROOT = Path(__file__).parents[2]
SHAPE = "t1_h576_f1536"


def workloads(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "workloads", *map(str, arguments)],
        cwd=ROOT, env=inherited | environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("resources")
    ended = workloads(
        "resources", "swiglu_ffn", "--shapes", SHAPE, "--arch", "sm_80,sm_90,sm_100", "-o", folder / "ffn.csv"
    )
    assert ended.returncode == 0, ended.stderr
    return {arch: folder / f"ffn.{arch}.csv" for arch in ("sm_80", "sm_90", "sm_100")}


def test_tracekit_reads_the_table_and_adds_active_blocks(tables: dict[str, Path]) -> None:
    for arch, path in tables.items():
        report = tracekit.report(path)
        leaves = {region.path[0].split("/")[0]: region for region in report.regions if len(region.path) == 2}
        for name in ("one_kernel", "one_kernel_spilling", "one_kernel_recompute"):
            metrics = leaves[name].metrics
            assert leaves[name].path == (f"{name}/T1/iter", "swiglu_ffn")
            blocks, registers = metrics["active_blocks_count"].value, metrics["registers_count"].value
            assert isinstance(blocks, int | float)
            assert isinstance(registers, int | float)
            assert 1 <= blocks <= LIMITS[8 if arch == "sm_80" else int(arch[3:-1]), 0].blocks
            assert blocks <= 65536 // (registers * 128)
            assert metrics["occupancy_limiter"].value
            frame = metrics["frame_bytes"].value
            assert isinstance(frame, int | float)
            assert (frame > 0) == (name == "one_kernel_spilling")
            assert metrics["busy_ns"].value is None
            assert metrics["spill_instruction_count"].value is None


def test_a_persistent_grid_follows_the_architecture(tables: dict[str, Path]) -> None:
    grids = {}
    for arch, path in tables.items():
        row = next(line for line in path.read_text().splitlines() if '"one_kernel_kernel"' in line)
        grids[arch] = f"({resources.ARCHITECTURES[arch].multiprocessors}, 1, 1)"
        assert grids[arch] in row
    assert len(set(grids.values())) == 3


def test_it_writes_to_standard_output_and_keeps_files(tables: dict[str, Path], tmp_path: Path) -> None:
    arguments = ("resources", "swiglu_ffn", "--shapes", SHAPE, "--variants", "merged")
    printed = workloads(*arguments)
    assert printed.stdout.startswith('"ID"')
    kept = tmp_path / "kept.csv"
    kept.write_text("mine")
    refused = workloads(*arguments, "-o", kept)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    assert kept.read_text() == "mine"
    assert workloads(*arguments, "-o", kept, "--force").returncode == 0
    assert kept.read_text() == printed.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["nosuch"], {}, "use one of: decoder, flashnorm_linear"),
        (["swiglu_ffn", "--arch", "sm_42"], {}, "use one of: sm_75, sm_80"),
        (["swiglu_ffn", "--variants", "eager"], {}, "use one of: merged"),
        (["swiglu_ffn", "--shapes", "t1"], {}, "tTOKENS_hHIDDEN_fFFN"),
        (["swiglu_ffn", "--dtype", "int3"], {}, "use one of: bfloat16"),
        (["swiglu_ffn", "--arch", "sm_80,sm_90"], {}, "name a file with -o"),
        (["all", "--shapes", SHAPE], {}, "name the workload"),
        (["swiglu_ffn", "--shapes", SHAPE], {"TRITON_INTERPRET": "1"}, "unset it"),
        (["swiglu_ffn", "-o", "/nonexistent/x.csv"], {}, "no such folder"),
    ],
)
def test_bad_input_says_what_is_valid(arguments: list[str], environment: dict[str, str], expected: str) -> None:
    ended = workloads("resources", *arguments, **environment)
    assert ended.returncode == 2
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_listing_as_json_names_the_baseline() -> None:
    ended = workloads("list", "--format", "json")
    listed = {entry["name"]: entry for entry in json.loads(ended.stdout)}
    assert listed["swiglu_ffn"]["baseline"] == "eager"
    assert {"residual_rmsnorm", "flashnorm_linear", "quantized_linear"} <= listed.keys()


@pytest.mark.parametrize("command", ["run", "bench"])
def test_without_a_gpu_they_say_what_runs(command: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ended = workloads(command, "swiglu_ffn")
    assert ended.returncode == 2
    assert "`list` and `resources` work" in ended.stderr
