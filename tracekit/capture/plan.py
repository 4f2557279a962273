"""Orders the steps of a capture: variants, shapes and tools interleaved in random order, repeat after repeat."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.capture.command import Kind


@dataclass(frozen=True)
class Target:
    """What one bundle is of."""

    name: str
    variant: str | None
    shape: str | None
    graph: bool
    repeat: int


@dataclass(frozen=True)
class Step:
    """One run of one tool for one bundle: nsys, or ncu for one kind of counters."""

    target: Target
    kind: Kind | None

    @property
    def tool(self) -> str:
        """The tool in words."""
        return "nsys" if self.kind is None else f"ncu {self.kind}"


def bundle_name(workload: str, variant: str | None, shape: str | None, graph: bool, repeat: int) -> str:
    """``<workload>-<variant>-<shape>[-graph]-r<k>``, of characters that every file system takes."""
    parts = [workload, *(part for part in (variant, shape) if part), *(["graph"] if graph else []), f"r{repeat}"]
    return "-".join("".join(c if c.isalnum() or c in "._" else "_" for c in part) for part in parts)


def targets(
    workload: str, variants: Sequence[str | None], shapes: Sequence[str | None], *, graph: bool, repeats: int
) -> list[Target]:
    """Every bundle, repeat after repeat."""
    return [
        Target(bundle_name(workload, variant, shape, graph, repeat), variant, shape, graph, repeat)
        for repeat in range(1, repeats + 1)
        for shape in shapes
        for variant in variants
    ]


def steps(
    wanted: Sequence[Target], *, timeline: bool, kinds: Sequence[Kind], counter_repeats: int, seed: int
) -> list[Step]:
    """The steps in an order that is random within each repeat and the same for the same seed.

    A machine warms up and throttles while it works: in blocks, that falls on every variant alike. Counters barely
    vary between processes, so they are collected in the first ``counter_repeats`` alone.
    """
    order = random.Random(seed)
    out: list[Step] = []
    for repeat in sorted({target.repeat for target in wanted}):
        block = [
            Step(target, kind)
            for target in wanted
            if target.repeat == repeat
            for kind in ([None] if timeline else []) + (list(kinds) if repeat <= counter_repeats else [])
        ]
        order.shuffle(block)
        out += block
    return out
