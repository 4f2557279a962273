"""Matches the kernels of a region, many to many: equal names pair up, the rest replace each other."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.model.report import KernelMatch, KernelTotal


def match_kernels(base: Sequence[KernelTotal], test: Sequence[KernelTotal]) -> tuple[KernelMatch, ...]:
    """Groups that hold every kernel of both sides exactly once, so that their totals sum to the region's.

    Full names are compared: equal short names are different kernels. What is left on both sides forms one
    ``replaced`` group; what is left on one side is ``only_base`` or ``only_test``.
    """
    by_name = {kernel.name: kernel for kernel in test}
    same = [KernelMatch("same", (kernel,), (by_name.pop(kernel.name),)) for kernel in base if kernel.name in by_name]
    paired = {match.base[0].name for match in same}
    left_base = tuple(kernel for kernel in base if kernel.name not in paired)
    left_test = tuple(kernel for kernel in test if kernel.name in by_name)
    match (bool(left_base), bool(left_test)):
        case (True, True):
            rest = [KernelMatch("replaced", left_base, left_test)]
        case (True, False):
            rest = [KernelMatch("only_base", left_base, ())]
        case (False, True):
            rest = [KernelMatch("only_test", (), left_test)]
        case _:
            rest = []
    return (*rest, *same)
