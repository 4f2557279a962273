"""Judges what variants compute: relative L2 against float64 on fresh data, and no worse than the baseline's error."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from workloads.base import Kind, Output, Shape, Variant, Workload, find
from workloads.files import chosen, may_write, write_json
from workloads.protocol import bytes_needed

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Check:
    """What a variant's result was found to be, in the terms of tracekit's table quality.

    ``error`` is the relative L2 error against float64, or the ratio of it to the baseline's; NaN where it is not a
    number.
    """

    check: str
    reference: str
    error: float
    tolerance: float
    variant: str
    shape: str
    dtype: str

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.error <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """The check as JSON-ready data; JSON has no NaN, so an error that is none is null."""
        error = self.error if math.isfinite(self.error) else None
        return {**vars(self), "error": error, "passed": self.passed}


def relative_l2(result: Output, reference: Output) -> float:
    """The norm of the error over the norm of the reference, the worst of several outputs; of an empty result 0."""
    if isinstance(result, tuple) or isinstance(reference, tuple):
        errors = [relative_l2(mine, theirs) for mine, theirs in zip(result, reference, strict=True)]
        return math.nan if any(map(math.isnan, errors)) else max(errors)
    import torch

    wide = reference.double()
    error, size = torch.linalg.norm(result.double() - wide), torch.linalg.norm(wide)
    return float(error / size) if float(size) else float(error)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Within this context, memory that ``torch.empty`` makes is NaN, so what a kernel leaves out shows."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = fill


def error_of(
    workload: Workload, variant: Variant, shape: Shape, dtype: str, *, seed: int = 1, device: str = "cpu"
) -> float:
    """A variant's relative L2 error on fresh data of that seed, its outputs poisoned beforehand.

    Raises ValueError where the result has another form than the reference, or where the variant changed its inputs.
    """
    import torch

    inputs = workload.inputs(shape, getattr(torch, dtype), device, seed)
    kept = {name: tensor.clone() for name, tensor in inputs.items()}
    reference = workload.reference(inputs)
    with poisoned_memory():
        result = variant.run(variant.prepared(inputs))
    for mine, theirs in zip(_outputs(result), _outputs(reference), strict=True):
        if mine.shape != theirs.shape or mine.dtype != getattr(torch, dtype):
            raise ValueError(
                f"{workload.name}: {variant.name} returned {mine.dtype} {list(mine.shape)} at {shape.name}, "
                f"and not {dtype} {list(theirs.shape)}"
            )
    for name, tensor in inputs.items():
        if not torch.equal(tensor, kept[name]):
            raise ValueError(f"{workload.name}: {variant.name} changed its input {name!r} at {shape.name}")
    return relative_l2(result, reference)


ENOUGH_ELEMENTS = 100_000
MOST_SEEDS = 16


def pooled_error_of(
    workload: Workload,
    variant: Variant,
    shape: Shape,
    dtype: str,
    *,
    seed: int = 1,
    device: str = "cpu",
    draws: int | None = None,
) -> float:
    """The root mean square of :func:`error_of` over draws, by default as many as give 100,000 rounding errors.

    In a small result a ratio of two errors is luck: 21 rounded values made one side 1.55 times as wrong as the other.
    """
    import torch

    if draws is None:
        narrowest = min(shape.dims.values(), default=1)
        draws = max(1, min(MOST_SEEDS, -(-ENOUGH_ELEMENTS // max(1, shape.tokens * narrowest))))
    errors = [
        error_of(workload, variant, shape, dtype, seed=seed + draw, device=device)
        for draw in range(draws if shape.tokens else 1)
    ]
    return float(torch.tensor(errors, dtype=torch.float64).square().mean().sqrt())


def judge(
    workload: Workload,
    shape: Shape,
    dtype: str,
    variants: Iterable[Variant],
    *,
    seed: int = 1,
    device: str = "cpu",
    draws: int | None = None,
) -> list[Check]:
    """Two checks a variant: its error against float64, and that error over the baseline's.

    The second passes too where the error is below a quarter of the dtype's epsilon: that of one correct rounding.
    """
    import torch

    tolerance = workload.tolerances[dtype]
    rounding = torch.finfo(getattr(torch, dtype)).eps / 4
    how: dict[str, Any] = {"seed": seed, "device": device, "draws": draws}
    baseline = pooled_error_of(workload, workload.variant(workload.baseline), shape, dtype, **how)
    checks = []
    for variant in variants:
        error = (
            baseline if variant.name == workload.baseline else pooled_error_of(workload, variant, shape, dtype, **how)
        )
        where = (variant.name, shape.name, dtype)
        name = f"{workload.name} {variant.name} {shape.name} {dtype}"
        checks.append(Check(f"{name}: relative L2", "float64", error, tolerance.relative_l2, *where))
        if variant.name != workload.baseline:
            ratio = error / baseline if baseline else (0.0 if error == 0 else math.inf)
            allowed = max(tolerance.ratio, rounding / baseline if baseline else tolerance.ratio)
            checks.append(Check(f"{name}: error ratio", workload.baseline, ratio, allowed, *where))
    return checks


def refusals(checks: Sequence[Check]) -> dict[str, str]:
    """Why variants fail, by name; empty where all pass."""
    refused: dict[str, str] = {}
    for check in checks:
        if not check.passed:
            refused.setdefault(
                check.variant,
                f"{check.check} {check.error:.3g} against {check.reference}, allowed {check.tolerance:.3g}",
            )
    return refused


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand ``quality``."""
    parser = commands.add_parser(
        "quality",
        help="check what variants compute against float64",
        description="Runs variants on fresh random data, odd shapes too, and checks them against float64 and against "
        "the baseline's own error. Exit code 1 where a check fails.",
    )
    parser.add_argument("name", metavar="WORKLOAD")
    parser.add_argument("--variants", help="comma-separated; default: all that run here")
    parser.add_argument("--shapes", help="comma-separated; default: the odd shapes, and on a GPU all")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--text", type=int, default=0, metavar="TOKENS",
        help="decoder: judge SmolLM2 on that many tokens of real text too, against float32",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the checks as a bundle's quality.json")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judges, prints a line a check, and returns 1 where one fails."""
    import os

    import torch

    workload = find(arguments.name)
    dtype = workload.dtype(arguments.dtype)
    if arguments.text and (workload.name != "decoder" or arguments.text < 16):
        raise UsageError(f"--text {arguments.text} of {workload.name}", remedy="use decoder, and at least 16 tokens")
    if arguments.output:
        may_write(arguments.output, force=arguments.force)
    on_gpu = torch.cuda.is_available()
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if interpreted:
        from workloads.interpreter import mend

        mend()
    capability = torch.cuda.get_device_capability() if on_gpu else (0, 0)

    def runs_here(variant: Variant) -> bool:
        if on_gpu:
            return capability >= variant.min_capability
        return interpreted or variant.kind is not Kind.TRITON

    named = chosen(arguments.variants, [variant.name for variant in workload.variants], f"variant of {workload.name}")
    variants = [workload.variant(name) for name in named]
    if arguments.variants and (absent := [variant.name for variant in variants if not runs_here(variant)]):
        raise UsageError(
            f"{workload.name}: {', '.join(absent)} cannot run here: "
            + ("the GPU's compute capability is too low" if on_gpu else "there is no GPU"),
            remedy="run on another GPU" if on_gpu else "set TRITON_INTERPRET=1 to run Triton's interpreter on the CPU",
        )
    variants = [variant for variant in variants if runs_here(variant)]
    default = [*workload.odd_shapes, *workload.shapes] if on_gpu else list(workload.odd_shapes)
    shapes = [workload.shape(name) for name in arguments.shapes.split(",")] if arguments.shapes else default
    checks: list[Check] = []
    for shape in shapes:
        able = [variant for variant in variants if variant.why_not(shape, dtype) is None]
        try:
            found = judge(workload, shape, dtype, able, seed=arguments.seed, device="cuda" if on_gpu else "cpu")
        except RuntimeError as error:  # PyTorch's allocators raise it, each with words of its own.
            if "memory" not in str(error) and "allocate" not in str(error):
                raise
            needed = max(bytes_needed(workload, variant, shape, dtype) for variant in able)
            raise UsageError(
                f"{workload.name} at {shape} in {dtype} does not fit: its inputs alone are {needed / 1e9:,.2f} GB, and "
                "float64 takes four times as much",
                remedy="choose a smaller shape",
            ) from None
        for check in found:
            verdict = "ok  " if check.passed else "FAIL"
            print(f"{verdict} {check.check} {check.error:.3g} (at most {check.tolerance:.3g})")
        checks += found
    rows = [check.to_dict() for check in checks]
    if arguments.text:
        rows += _on_text([variant.name for variant in variants], dtype, arguments.text, "cuda" if on_gpu else "cpu")
    if arguments.output:
        write_json(arguments.output, {"schema_version": 1, "checks": rows}, force=arguments.force)
    for row in rows:
        if not row["passed"]:
            print(f"failed: {row['check']} against {row['reference']}", file=sys.stderr)
    return 0 if all(row["passed"] for row in rows) else 1


WINDOW = 1024
"""Tokens of text that are read together."""


def _on_text(variants: Sequence[str], dtype: str, tokens: int, device: str) -> list[dict[str, Any]]:
    """The checks of SmolLM2 on real text, of those variants that have them, printed line by line."""
    from workloads.models import text

    names = [name for name in variants if name in text.MODELS]
    length = min(tokens, WINDOW)
    found = text.distances(names, dtype, device=device, count=max(1, tokens // length), length=length)
    for each in found:
        print(
            f"     SmolLM2 {each.variant} {each.dtype} {each.path}: mean KL {each.mean_kl:.3g}, p99 {each.p99_kl:.3g}, "
            f"same first choice {each.top1_agreement:.2%}, perplexity {each.perplexity:.4f} "
            f"(float32 {each.reference_perplexity:.4f})"
        )
    rows = text.rows(found)
    for row in rows:
        print(f"{'ok  ' if row['passed'] else 'FAIL'} {row['check']} {row['error']} (at most {row['tolerance']})")
    return rows


def _outputs(output: Output) -> tuple[torch.Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)
