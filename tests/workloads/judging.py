"""What tests of a workload ask of the quality gate, on a CPU with few multiprocessors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workloads import quality
from workloads.base import Output, Shape, Workload, assumed_multiprocessors
from workloads.quality import poisoned_memory, relative_l2

__all__ = ["poisoned_memory", "refusals", "relative_l2", "unsteady"]

FEW_MULTIPROCESSORS = 4
"""Blocks of a persistent grid that the interpreter runs one by one."""


def refusals(
    workload: Workload, shape: Shape, dtype: str, variants: Sequence[str] | None = None, seed: int = 1
) -> dict[str, str]:
    """Why the quality gate refuses variants (by default all that take the shape); empty where all pass."""
    able = [
        variant
        for variant in workload.variants
        if variant.kind != "compiled"
        and variant.why_not(shape, dtype) is None
        and (variants is None or variant.name in variants)
    ]
    with assumed_multiprocessors(FEW_MULTIPROCESSORS):
        return quality.refusals(quality.judge(workload, shape, dtype, able, seed=seed, draws=1))


def unsteady(workload: Workload, shape: Shape, dtype: str) -> list[str]:
    """Variants whose second and third step do not give the bits of the first."""
    inputs = workload.inputs(shape, getattr(torch, dtype), "cpu", 1)
    found = []
    for variant in workload.variants:
        if variant.kind != "compiled" and variant.why_not(shape, dtype) is None:
            with poisoned_memory(), assumed_multiprocessors(FEW_MULTIPROCESSORS):
                prepared = variant.prepared(inputs)
                first, *others = (_outputs(variant.run(prepared)) for _ in range(3))
            if not all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True)):
                found.append(variant.name)
    return found


def _outputs(output: Output) -> tuple[torch.Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)
