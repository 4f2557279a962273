"""Measures variants against each other, untraced: interleaved blocks in random order, every sample kept."""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tracekit.errors import UsageError
from workloads.base import Shape, Variant, Workload, find
from workloads.files import chosen, may_write, read_json, write_json
from workloads.protocol import L2, Session, Timing, clocks, conditions, environment, require_gpu

Sample = dict[str, Any]

RESAMPLES: Final = 2000
SWEEP: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def measure(
    workload: Workload,
    variants: Sequence[Variant],
    shapes: Iterable[Shape],
    dtype: str,
    *,
    blocks: int,
    iterations: int,
    graph: bool,
    l2: L2,
    timings: Sequence[Timing],
    seed: int = 0,
    process: int = 0,
    first_block: int = 0,
    steps_per_graph: int = 1,
) -> tuple[list[Sample], dict[str, Any]]:
    """Samples of every variant in every block, and the conditions that all of them share.

    In each block every variant has one turn, in random order. A sample is one turn under one timing: ``latency_us`` is
    the median of its steps (their mean where they were pipelined), ``steps_us`` has each of them.
    """
    rng = random.Random(seed * 1_000_003 + process * 1009 + first_block)
    samples: list[Sample] = []
    shared: dict[str, Any] = {}
    for shape in shapes:
        able = [variant for variant in variants if variant.why_not(shape, dtype) is None]
        sessions = [
            Session(workload, variant, shape, dtype, seed=seed, graph=graph, l2=l2, steps_per_graph=steps_per_graph)
            for variant in able
        ]
        if sessions:
            shared = {
                name: value
                for name, value in conditions(sessions[0]).items()
                if name not in ("input_tokens", "compile_mode", "kv_tokens")
            }
        for session in sessions:
            for timing in timings:
                session.latencies(2, timing)
        for block in range(first_block, first_block + blocks):
            for order, session in enumerate(rng.sample(sessions, len(sessions))):
                for timing in timings:
                    times = session.latencies(iterations, timing)
                    state = clocks()
                    samples += [
                        {
                            "process": process,
                            "block": block,
                            "order": order,
                            "variant": session.variant.name,
                            "shape": shape.name,
                            "tokens": shape.tokens,
                            "phase": phase,
                            "protocol": str(timing),
                            "latency_us": round(statistics.median(values), 4),
                            "steps_us": [round(value, 3) for value in values],
                            "sm_clock_mhz": state and state.sm_clock_mhz,
                            "power_w": state and state.power_w,
                            "temperature_c": state and state.temperature_c,
                        }
                        for phase, values in times.items()
                    ]
    return samples, shared


def document(workload: Workload, samples: list[Sample], shared: dict[str, Any]) -> dict[str, Any]:
    """What ``bench.json`` holds."""
    return {
        "schema_version": 1,
        "run": uuid.uuid4().hex,
        "unit": "us",
        "workload": workload.name,
        "baseline": workload.baseline,
        "conditions": shared,
        "environment": environment(),
        "samples": samples,
    }


@dataclass(frozen=True)
class Ratio:
    """A variant's latency over the baseline's, at one shape under one timing, over paired blocks.

    ``ratio`` is the ratio of the medians, ``low`` and ``high`` a 95 % bootstrap interval that resamples whole blocks
    (None with fewer than five). Below 1 the variant is faster.
    """

    variant: str
    shape: str
    tokens: int
    phase: str
    timing: str
    median_us: float
    baseline_us: float
    ratio: float
    low: float | None
    high: float | None
    blocks: int

    @property
    def verdict(self) -> str:
        """Faster, slower, or no difference shown."""
        if self.low is None or self.high is None:
            return "too few blocks"
        return "faster" if self.high < 1 else "slower" if self.low > 1 else "no difference shown"


def ratios(samples: Sequence[Sample], baseline: str) -> list[Ratio]:
    """Every variant against the baseline, by shape, phase and timing, in order of appearance."""
    cells: dict[tuple[str, int, str, str], dict[str, dict[tuple[int, int], float]]] = {}
    for sample in samples:
        cell = (sample["shape"], sample["tokens"], sample["phase"], sample["protocol"])
        block = (sample["process"], sample["block"])
        cells.setdefault(cell, {}).setdefault(sample["variant"], {})[block] = sample["latency_us"]
    out = []
    for (shape, tokens, phase, timing), by_variant in cells.items():
        base = by_variant.get(baseline)
        if base is None:
            continue
        for variant, own in by_variant.items():
            shared = sorted(own.keys() & base.keys())
            if not shared:
                continue
            pairs = [(own[block], base[block]) for block in shared]
            low, high = _interval(pairs) if len(pairs) >= 5 else (None, None)
            mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            out.append(Ratio(variant, shape, tokens, phase, timing, mine, theirs, mine / theirs, low, high, len(pairs)))
    return out


def _interval(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """The 2.5 % and 97.5 % quantiles of the ratio of medians over resampled blocks; the same for the same pairs."""
    rng = random.Random(0)
    drawn = sorted(
        statistics.median(own for own, _ in sample) / statistics.median(base for _, base in sample)
        for sample in (rng.choices(pairs, k=len(pairs)) for _ in range(RESAMPLES))
    )
    return drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]


def crossovers(found: Sequence[Ratio]) -> list[str]:
    """Where along the tokens each variant stops, or starts, to be faster than the baseline: one sentence a variant."""
    lines = []
    series: dict[tuple[str, str, str], list[Ratio]] = {}
    for ratio in found:
        series.setdefault((ratio.variant, ratio.phase, ratio.timing), []).append(ratio)
    for (variant, phase, timing), points in series.items():
        points = sorted(points, key=lambda point: point.tokens)
        if len(points) < 2 or all(point.ratio == 1 for point in points):
            continue
        changes = [
            f"between {before.tokens} ({before.ratio:.2f}x) and {after.tokens} tokens ({after.ratio:.2f}x)"
            for before, after in itertools.pairwise(points)
            if (before.ratio < 1) != (after.ratio < 1)
        ]
        first, last = points[0], points[-1]
        if changes:
            text = f"crosses the baseline {', '.join(changes)}"
        else:
            side = "faster" if first.ratio < 1 else "slower"
            text = f"is {side} from {first.tokens} to {last.tokens} tokens ({first.ratio:.2f}x to {last.ratio:.2f}x)"
        lines.append(f"{variant} ({phase}, {timing}) {text}")
    return lines


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand ``bench``."""
    parser = commands.add_parser(
        "bench",
        help="measure variants against each other, untraced",
        description="Measures variants in interleaved blocks, each in random order, and writes every sample with the "
        "GPU's clock, power and temperature.",
    )
    parser.add_argument("name", metavar="WORKLOAD")
    parser.add_argument("--variants", help="comma-separated; default: all. The baseline is always among them")
    parser.add_argument("--shapes", help="comma-separated; default: the workload's first")
    parser.add_argument("--sweep", action="store_true", help=f"each shape at {SWEEP[0]} to {SWEEP[-1]:,} tokens")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--blocks", type=int, default=10, help="turns of each variant in a process (default 10)")
    parser.add_argument("--processes", type=int, default=0, help="fresh processes of one block each, instead of blocks")
    parser.add_argument("--iterations", type=int, default=20, help="steps of a turn (default 20)")
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--steps-per-graph", type=int, default=1, metavar="N", help="capture N steps in one graph")
    parser.add_argument("--l2", default="warm", help="warm (default), flushed or rotated")
    parser.add_argument("--timings", help="comma-separated: synchronized,pipelined,events; default: the first two")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write every sample as bench.json")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--process-number", type=int, default=0, help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures, writes the samples and prints each variant's ratio to the baseline."""
    workload = find(arguments.name)
    names = chosen(arguments.variants, [variant.name for variant in workload.variants], f"variant of {workload.name}")
    variants = [workload.variant(name) for name in dict.fromkeys([workload.baseline, *names])]
    asked = arguments.shapes.split(",") if arguments.shapes else [workload.shapes[0].name]
    shapes = [workload.shape(name) for name in asked]
    if arguments.sweep:
        shapes = [shape.with_tokens(tokens) for shape in shapes for tokens in SWEEP]
    dtype = workload.dtype(arguments.dtype)
    (l2,) = (L2(name) for name in chosen(arguments.l2, list(L2), "L2 state"))
    default = "synchronized,events" if l2 is L2.FLUSHED else "synchronized,pipelined"
    timings = [Timing(name) for name in chosen(arguments.timings or default, list(Timing), "timing")]
    for option in ("blocks", "iterations", "steps_per_graph"):
        if getattr(arguments, option) < 1:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} {getattr(arguments, option)}", remedy="use at least 1")
    if l2 is L2.FLUSHED and Timing.PIPELINED in timings:
        raise UsageError(
            "pipelined steps cannot flush the L2 between them: the flush would be timed",
            remedy="use --l2 rotated, or --timings synchronized,events",
        )
    if arguments.output:
        may_write(arguments.output, force=arguments.force)
    require_gpu(f"bench of {workload.name}")
    if arguments.processes:
        data = _in_processes(arguments)
    else:
        samples, shared = measure(
            workload, variants, shapes, dtype, blocks=arguments.blocks, iterations=arguments.iterations,
            graph=arguments.graph, l2=l2, timings=timings, seed=arguments.seed, process=arguments.process_number,
            first_block=arguments.process_number, steps_per_graph=arguments.steps_per_graph,
        )  # fmt: skip
        data = document(workload, samples, shared)
    if arguments.output:
        write_json(arguments.output, data, force=True)
    found = ratios(data["samples"], workload.baseline)
    for line in table(found):
        print(line)
    if arguments.sweep:
        for line in crossovers(found):
            print(line)
    return 0


def _in_processes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The samples of fresh processes, each one block of every variant."""
    data: dict[str, Any] = {}
    options = [
        f"--{name.replace('_', '-')}={getattr(arguments, name)}"
        for name in ("variants", "shapes", "dtype", "iterations", "l2", "timings", "seed", "steps_per_graph")
        if getattr(arguments, name) is not None
    ]
    options += [f"--{'' if arguments.graph else 'no-'}graph", *(["--sweep"] if arguments.sweep else [])]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.processes):
            path = Path(folder) / f"{number}.json"
            command = [sys.executable, "-m", "workloads", "bench", arguments.name, *options]
            command += ["--blocks=1", f"--process-number={number}", f"--output={path}"]  # Its block has its number.
            ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if ended.returncode:
                raise UsageError(
                    f"process {number} of the bench ended with exit code {ended.returncode}: "
                    f"{ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else 'it said nothing'}",
                    remedy="run it with --processes 0 to see all that it says",
                )
            own = read_json(path, "samples of one process")
            data = {**own, "samples": data.get("samples", []) + own["samples"]}
    return data


def table(found: Sequence[Ratio]) -> list[str]:
    """The ratios as lines of text."""
    lines = [f"{'shape':<24} {'variant':<22} {'phase':<8} {'timing':<13} {'median':>12} {'ratio':>7}  95 % interval"]
    for ratio in found:
        interval = "" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}  {ratio.verdict}"
        lines.append(
            f"{ratio.shape:<24} {ratio.variant:<22} {ratio.phase:<8} {ratio.timing:<13} "
            f"{ratio.median_us:>9,.1f} us {ratio.ratio:>6.3f}x  {interval}"
        )
    return lines
