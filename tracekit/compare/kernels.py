"""Matches the kernels of a region, many to many: equal names, then names equal by rules; the rest is replaced."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.compare.names import normalize
from tracekit.model.report import KernelMatch, KernelTotal


def match_kernels(base: Sequence[KernelTotal], test: Sequence[KernelTotal]) -> tuple[KernelMatch, ...]:
    """Groups that hold every kernel of both sides exactly once, so that their totals sum to the region's.

    Full names are compared first: equal short names are different kernels. Names that are equal only by the rules of
    :mod:`tracekit.compare.names` form ``renamed`` groups, which say by which rules and keep every name apart. What is
    left on both sides forms one ``replaced`` group; what is left on one side is ``only_base`` or ``only_test``.
    """
    by_name = {kernel.name: kernel for kernel in test}
    same = [KernelMatch("same", (kernel,), (by_name.pop(kernel.name),)) for kernel in base if kernel.name in by_name]
    paired = {match.base[0].name for match in same}
    left_base = [kernel for kernel in base if kernel.name not in paired]
    left_test = [kernel for kernel in test if kernel.name in by_name]
    renamed = _renamed(left_base, left_test)
    known = {kernel.name for match in renamed for kernel in (*match.base, *match.test)}
    left = [tuple(kernel for kernel in side if kernel.name not in known) for side in (left_base, left_test)]
    match (bool(left[0]), bool(left[1])):
        case (True, True):
            rest = [KernelMatch("replaced", left[0], left[1])]
        case (True, False):
            rest = [KernelMatch("only_base", left[0], ())]
        case (False, True):
            rest = [KernelMatch("only_test", (), left[1])]
        case _:
            rest = []
    return (*rest, *renamed, *same)


def _renamed(base: Sequence[KernelTotal], test: Sequence[KernelTotal]) -> list[KernelMatch]:
    """Groups of kernels whose names become equal by rules, where both sides have one."""
    if not base or not test:
        return []
    sides: list[dict[str, list[KernelTotal]]] = [{}, {}]
    for side, kernels in zip(sides, (base, test), strict=True):
        for kernel in kernels:
            side.setdefault(normalize(kernel.name)[0], []).append(kernel)
    out = []
    for key, own in sides[0].items():
        if key in sides[1]:
            both = (*own, *sides[1][key])
            rules = tuple(dict.fromkeys(rule for kernel in both for rule in normalize(kernel.name)[1]))
            out.append(KernelMatch("renamed", tuple(own), tuple(sides[1][key]), rules))
    return out
