"""Runs a variant on fresh data with poisoned outputs, and judges it against the float64 reference and the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from workloads.base import Shape, Variant, Workload, assumed_multiprocessors

FEW_MULTIPROCESSORS = 4
"""Blocks of a persistent grid that the interpreter runs one by one."""


def relative_l2(result: Any, reference: Any) -> float:
    """The norm of the error over the norm of the reference; of an empty result 0."""
    error, size = torch.linalg.norm(result.double() - reference), torch.linalg.norm(reference)
    return float(error / size) if float(size) else float(error)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Within this context, memory that ``torch.empty`` makes is NaN, so what a kernel leaves out shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def error_of(workload: Workload, variant: Variant, shape: Shape, dtype: str, seed: int = 1) -> float:
    """A variant's relative L2 error; the form of its result, and that it leaves its inputs alone, are asserted."""
    inputs = workload.inputs(shape, getattr(torch, dtype), "cpu", seed)
    kept = {name: tensor.clone() for name, tensor in inputs.items()}
    reference = workload.reference(inputs)
    with poisoned_memory(), assumed_multiprocessors(FEW_MULTIPROCESSORS):
        result = variant.run(variant.prepared(inputs))
    assert isinstance(result, torch.Tensor)
    assert isinstance(reference, torch.Tensor)
    assert result.shape == reference.shape
    assert result.dtype == getattr(torch, dtype)
    assert all(torch.equal(inputs[name], tensor) for name, tensor in kept.items())
    return relative_l2(result, reference)


def refusals(
    workload: Workload, shape: Shape, dtype: str, variants: Sequence[str] | None = None, seed: int = 1
) -> dict[str, str]:
    """Why the quality gate refuses variants (by default all that take the shape); empty where all pass."""
    tolerance = workload.tolerances[dtype]
    baseline = error_of(workload, workload.variant(workload.baseline), shape, dtype, seed)
    allowed = max(tolerance.ratio * baseline, torch.finfo(getattr(torch, dtype)).eps / 4)
    refused = {}
    for variant in workload.variants:
        if variant.why_not(shape, dtype) or (variants is not None and variant.name not in variants):
            continue
        error = baseline if variant.name == workload.baseline else error_of(workload, variant, shape, dtype, seed)
        if not error <= tolerance.relative_l2:  # Also where it is NaN.
            refused[variant.name] = f"relative L2 error {error:.3g} above {tolerance.relative_l2:.3g}"
        elif error > allowed:
            refused[variant.name] = f"relative L2 error {error:.3g}, the baseline's is {baseline:.3g}"
    return refused


def unsteady(workload: Workload, shape: Shape, dtype: str) -> list[str]:
    """Variants whose second and third step do not give the bits of the first."""
    inputs = workload.inputs(shape, getattr(torch, dtype), "cpu", 1)
    found = []
    for variant in workload.variants:
        if variant.why_not(shape, dtype) is None:
            with poisoned_memory(), assumed_multiprocessors(FEW_MULTIPROCESSORS):
                prepared = variant.prepared(inputs)
                first, *others = (variant.run(prepared) for _ in range(3))
            if not all(torch.equal(first, other) for other in others):
                found.append(variant.name)
    return found
