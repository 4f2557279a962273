"""Plans the comparisons of a folder: every variant of a workload with its baseline at each shape; finds crossovers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tracekit.errors import InputError, UsageError
from tracekit.model.manifest import CONDITIONS, Manifest
from tracekit.model.report import Comparison, Crossover, Gate, Matrix, MatrixCell
from tracekit.model.verdict import Verdict

_USUAL_BASELINES: Final = ("baseline", "eager", "unfused", "reference")
_OF_VARIANTS: Final = ("compile_mode",)
"""Conditions in which variants differ by what they are, so that they do not tell shapes apart."""

_SIZES: Final = ("input_tokens", "batch", "kv_tokens")
"""Conditions that a crossover runs along, the first that varies."""


@dataclass(frozen=True)
class Planned:
    """A comparison to make: two bundles by name, and the shape that both have."""

    workload: str
    variant: str
    shape: tuple[tuple[str, Any], ...]
    base: str
    test: str


@dataclass(frozen=True)
class Plan:
    """Comparisons in order, the baseline of each workload, and bundles left out with the reason."""

    cells: tuple[Planned, ...]
    baselines: Mapping[str, str]
    left_out: tuple[str, ...]


def plan_matrix(
    manifests: Mapping[str, Manifest], *, source: str, baseline: str | None = None, waive: Sequence[str] = ()
) -> Plan:
    """What to compare among bundles by name. ``waive`` names conditions that do not tell shapes apart.

    UsageError where ``baseline`` is no variant, or where it is not told and no usual name is among the variants.
    """
    if strange := sorted(set(waive) - set(CONDITIONS)):
        raise UsageError(f"cannot waive {', '.join(strange)}", remedy=f"the conditions are {', '.join(CONDITIONS)}")
    known = {name: m for name, m in manifests.items() if m.workload and m.variant}
    left_out = [f"{name}: its manifest names no workload and variant" for name in manifests if name not in known]
    if not known:
        raise InputError(
            source,
            expected="trace bundles whose manifests name a workload and a variant",
            found=f"{len(manifests)} bundles without",
            remedy="name the folder that holds the bundles of one capture set",
        )
    by_workload: dict[str, dict[str, Manifest]] = {}
    for name, manifest in known.items():
        by_workload.setdefault(str(manifest.workload), {})[name] = manifest
    cells: list[Planned] = []
    baselines = {}
    for workload, bundles in by_workload.items():
        baselines[workload] = _baseline(workload, bundles, baseline)
        ignored = {*_OF_VARIANTS, *waive}
        shapes: dict[tuple[tuple[str, Any], ...], dict[str, list[str]]] = {}
        for name, manifest in bundles.items():
            shape = tuple(
                (c, manifest.conditions[c]) for c in CONDITIONS if c in manifest.conditions and c not in ignored
            )
            shapes.setdefault(_hashable(shape), {}).setdefault(str(manifest.variant), []).append(name)
        varying = _varying(list(shapes))
        for shape, variants in sorted(shapes.items(), key=lambda item: _order(item[0])):
            base = variants.get(baselines[workload])
            for variant, names in variants.items():
                if variant == baselines[workload]:
                    left_out += [f"{name}: a second capture of {variant} at one shape" for name in names[1:]]
                elif base is None:
                    left_out += [f"{name}: no {baselines[workload]} has its conditions" for name in names]
                else:
                    left_out += [f"{name}: a second capture of {variant} at one shape" for name in names[1:]]
                    told = tuple((c, value) for c, value in shape if c in varying)
                    cells.append(Planned(workload, variant, told, base[0], names[0]))
    return Plan(tuple(cells), baselines, tuple(left_out))


def _hashable(shape: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value if isinstance(value, str | int | float) else str(value)) for name, value in shape)


def _varying(shapes: Sequence[tuple[tuple[str, Any], ...]]) -> set[str]:
    """The conditions that differ among shapes; the token count at least, where there is one shape alone."""
    seen: dict[str, set[Any]] = {}
    for shape in shapes:
        for name in CONDITIONS:
            seen.setdefault(name, set()).add(dict(shape).get(name))
    return {name for name, values in seen.items() if len(values) > 1} or {"input_tokens"}


def _order(shape: tuple[tuple[str, Any], ...]) -> tuple[tuple[bool, float, str], ...]:
    known = dict(shape)
    return tuple(
        (isinstance(value, str), float(value) if isinstance(value, int | float) else 0.0, str(value))
        for value in (known.get(name, "") for name in (*_SIZES, *CONDITIONS))
    )


def _baseline(workload: str, bundles: Mapping[str, Manifest], told: str | None) -> str:
    variants = list(dict.fromkeys(str(m.variant) for m in bundles.values()))
    said = next((str(m.ran["baseline"]) for m in bundles.values() if isinstance(m.ran.get("baseline"), str)), None)
    if told is not None and told not in variants:
        raise UsageError(f"{workload} has no variant {told!r}", remedy=f"its variants are {', '.join(variants)}")
    for name in (told, said, *_USUAL_BASELINES):
        if name in variants:
            return str(name)
    raise UsageError(
        f"which variant of {workload} is the baseline is not told",
        remedy=f"name it with --baseline; its variants are {', '.join(variants)}",
    )


def cell(planned: Planned, comparison: Comparison, gate: Gate | None) -> MatrixCell:
    """What a matrix keeps of a comparison."""
    answer = comparison.answer
    return MatrixCell(
        workload=planned.workload,
        variant=planned.variant,
        shape=planned.shape,
        base=planned.base,
        test=planned.test,
        verdict=answer.verdict if answer else Verdict.UNMEASURED,
        basis=answer.basis if answer else "none",
        interval=answer.interval if answer else None,
        reasons=answer.reasons if answer else (),
        gate=gate,
    )


def assemble(plan: Plan, cells: Sequence[MatrixCell]) -> Matrix:
    """The matrix with its crossovers: where along a size a variant begins or ceases to help."""
    rows: dict[tuple[str, str, tuple[tuple[str, Any], ...]], list[tuple[Any, MatrixCell]]] = {}
    along = _along([one.shape for one in cells])
    for one in cells:
        size = dict(one.shape).get(along)
        rest = tuple(item for item in one.shape if item[0] != along)
        if isinstance(size, int | float):
            rows.setdefault((one.workload, one.variant, rest), []).append((size, one))
    crossovers = []
    for (workload, variant, rest), series in rows.items():
        series.sort(key=lambda item: item[0])
        points = tuple((size, one.verdict, one.interval.value if one.interval else None) for size, one in series)
        decided = [point for point in points if point[1] in (Verdict.BETTER, Verdict.WORSE)]
        found = [(first[0], second[0]) for first, second in pairwise(decided) if first[1] != second[1]]
        intervals = tuple(_ends(one) for _, one in series)
        crossings = tuple(_crossing(first, second) for first, second in pairwise(decided) if first[1] != second[1])
        crossovers.append(Crossover(workload, variant, rest, along, points, tuple(found), intervals, crossings))
    return Matrix(dict(plan.baselines), tuple(cells), tuple(crossovers), plan.left_out)


def _ends(cell: MatrixCell) -> tuple[float, float] | None:
    found = cell.interval
    return None if found is None or found.low is None or found.high is None else (found.low, found.high)


def _crossing(first: tuple[float, Verdict, float | None], second: tuple[float, Verdict, float | None]) -> float | None:
    """Where the ratio is 1 between two points; None where it does not lie on different sides of it."""
    (low, _, before), (high, _, after) = first, second
    if before is None or after is None or (before < 1) == (after < 1):
        return None
    share = math.log(before) / (math.log(before) - math.log(after))
    return math.exp(math.log(low) + share * (math.log(high) - math.log(low))) if low > 0 else low + share * (high - low)


def _along(shapes: Sequence[tuple[tuple[str, Any], ...]]) -> str:
    for name in _SIZES:
        if len({dict(shape).get(name) for shape in shapes}) > 1:
            return name
    return _SIZES[0]
