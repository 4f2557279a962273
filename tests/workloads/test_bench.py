"""``bench``: ratios over paired blocks, the crossover, fresh processes, and what it refuses; measuring needs a GPU."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.errors import UsageError
from tracekit.read.bundle import read_bench
from workloads import __main__ as cli
from workloads import bench, protocol
from workloads.bench import crossovers, ratios, table
from workloads.files import read_json, write_json


def sample(variant: str, block: int, latency: float, tokens: int = 1, process: int = 0) -> dict[str, Any]:
    return {
        "variant": variant, "block": block, "process": process, "latency_us": latency, "shape": f"t{tokens}",
        "tokens": tokens, "phase": "iter", "protocol": "pipelined", "order": 0,
    }  # fmt: skip


def blocks(count: int, base: float, test: float, tokens: int = 1, noise: float = 0.0) -> list[dict[str, Any]]:
    rng = random.Random(7)
    return [
        sample(variant, block, latency * rng.uniform(1 - noise, 1 + noise), tokens)
        for block in range(count)
        for variant, latency in (("base", base), ("test", test))
    ]


def test_a_ratio_is_over_blocks_that_both_ran() -> None:
    samples = [*blocks(6, 10, 8), sample("test", 99, 1000.0)]
    own = next(ratio for ratio in ratios(samples, "base") if ratio.variant == "test")
    assert own.blocks == 6
    assert own.ratio == pytest.approx(0.8)
    assert (own.low, own.high) == pytest.approx((0.8, 0.8))
    assert own.verdict == "faster"


def test_blocks_of_different_processes_are_different_blocks() -> None:
    samples = [sample(name, 0, 10.0, process=process) for process in range(5) for name in ("base", "test")]
    assert all(ratio.blocks == 5 for ratio in ratios(samples, "base"))


def test_few_blocks_have_no_interval() -> None:
    own = ratios(blocks(4, 10, 8), "base")[1]
    assert own.low is None
    assert own.verdict == "too few blocks"


def test_noise_wider_than_the_change_shows_no_difference() -> None:
    own = ratios(blocks(10, 10, 10.1, noise=0.2), "base")[1]
    assert own.verdict == "no difference shown"


def test_the_other_direction_is_slower() -> None:
    assert ratios(blocks(10, 10, 12, noise=0.01), "base")[1].verdict == "slower"


def test_the_crossover_names_both_sides() -> None:
    samples = [*blocks(5, 10, 5, tokens=1), *blocks(5, 10, 9, tokens=64), *blocks(5, 10, 15, tokens=1024)]
    (line,) = crossovers(ratios(samples, "base"))
    assert line == "test (iter, pipelined) crosses the baseline between 64 (0.90x) and 1024 tokens (1.50x)"
    (line,) = crossovers(ratios([*blocks(5, 10, 5, tokens=1), *blocks(5, 10, 9, tokens=64)], "base"))
    assert line == "test (iter, pipelined) is faster from 1 to 64 tokens (0.50x to 0.90x)"


def test_the_table_has_a_line_a_ratio() -> None:
    assert len(table(ratios(blocks(5, 10, 8), "base"))) == 3


def test_fresh_processes_are_put_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = []

    def ran(command: list[str], **_: Any) -> Any:
        commands.append(command)
        options = dict(option[2:].split("=", 1) for option in command if option.startswith("--") and "=" in option)
        number = int(options["process-number"])
        samples = [sample("eager", 0, 10.0, process=number), sample("two_kernel", 0, 8.0, process=number)]
        write_json(Path(options["output"]), {"unit": "us", "samples": samples})
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", ran)
    monkeypatch.setattr(bench, "require_gpu", lambda what: None)
    output = tmp_path / "bench.json"
    arguments = ["bench", "swiglu_ffn", "--variants=two_kernel", "--processes=6", "--graph", "-o", str(output)]
    assert cli.main(arguments) == 0
    assert all("--graph" in command and "--blocks=1" in command for command in commands)
    frame = read_bench(output)
    assert sorted(set(frame["process"])) == [0, 1, 2, 3, 4, 5]
    assert len(frame) == 12


def test_a_process_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failed = SimpleNamespace(returncode=1, stderr="lots\nout of cheese\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: failed)
    monkeypatch.setattr(bench, "require_gpu", lambda what: None)
    assert cli.main(["bench", "swiglu_ffn", "--processes", "2"]) == 2
    assert "process 0 of the bench ended with exit code 1: out of cheese" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--variants", "nosuch"], "use one of: eager"),
        (["--timings", "sundial"], "use one of: synchronized"),
        (["--l2", "cold"], "use one of: warm"),
        (["--blocks", "0"], "use at least 1"),
        (["--iterations", "-3"], "use at least 1"),
        (["--steps-per-graph", "0"], "use at least 1"),
        (["--l2", "flushed", "--timings", "pipelined"], "would be timed"),
        (["-o", "/nonexistent/bench.json"], "no such folder"),
    ],
)
def test_bad_input_says_what_is_valid(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "swiglu_ffn", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(path, {"latency": float("nan")})
    assert list(tmp_path.iterdir()) == []
    write_json(path, {"a": 1})
    with pytest.raises(UsageError, match="exists already"):
        write_json(path, {"a": 2}, force=False)
    assert json.loads(path.read_text()) == {"a": 1} == read_json(path, "a thing")


def test_bytes_needed_counts_what_a_variant_prepares() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from workloads.base import find

    workload = find("swiglu_ffn")
    shape = workload.shape("t1_h64_f96")
    inputs = 2 * (64 + 3 * 64 * 96)
    assert protocol.bytes_needed(workload, workload.variant("eager"), shape, "bfloat16") == inputs
    merged = protocol.bytes_needed(workload, workload.variant("merged"), shape, "bfloat16")
    assert merged == inputs + 2 * 2 * 64 * 96


def test_two_models_of_one_size_are_two_conditions() -> None:
    """Their layers and new tokens may agree, and they would be compared."""
    from types import SimpleNamespace
    from unittest.mock import patch

    from workloads.base import find
    from workloads.protocol import L2, conditions

    workload = find("decoder")

    def model(shape: str) -> str:
        session = SimpleNamespace(
            workload=workload, variant=workload.variant("eager"), shape=workload.shape(shape), dtype="bfloat16",
            graph=False, l2=L2.WARM,
        )  # fmt: skip
        with patch("torch.cuda.get_device_name", return_value="a GPU"):
            return str(conditions(session)["model"])

    assert model("llama8b_t128_n4_l4") == "decoder: llama8b, new_tokens 4, layers 4"
    assert model("llama1b_t128_n4_l4") == "decoder: llama1b, new_tokens 4, layers 4"


def test_each_fresh_process_is_a_block_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both variants of a process ran side by side: only blocks that differ let a comparison pair them."""
    told: dict[str, object] = {}
    monkeypatch.setattr(bench, "require_gpu", lambda _: None)
    monkeypatch.setattr(bench, "measure", lambda *_, **options: (told.update(options), ([], {}))[1])
    monkeypatch.setattr(bench, "document", lambda *_: {"samples": []})
    assert cli.main(["bench", "swiglu_ffn", "--blocks=1", "--process-number=7"]) == 0
    assert (told["process"], told["first_block"]) == (7, 7)
