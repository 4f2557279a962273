"""Checks that two captures held fixed what must be fixed, and names what differs or is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.errors import NotComparableError, UsageError
from tracekit.model.manifest import CONDITIONS
from tracekit.model.report import Mismatch, Report


def check_conditions(base: Report, test: Report, waive: Sequence[str]) -> tuple[tuple[Mismatch, ...], tuple[str, ...]]:
    """The conditions that differ, and those that one side or both do not know.

    A different number of launches or kernels is a result and no condition. UsageError where ``waive`` names no
    condition.
    """
    if strange := sorted(set(waive) - set(CONDITIONS)):
        raise UsageError(f"cannot waive {', '.join(strange)}", remedy=f"the conditions are {', '.join(CONDITIONS)}")
    sides = [_known(report) for report in (base, test)]
    mismatches = []
    unknown = []
    for name in CONDITIONS:
        if name not in sides[0] or name not in sides[1]:
            unknown.append(name)
        elif sides[0][name] != sides[1][name]:
            mismatches.append(Mismatch(name, sides[0][name], sides[1][name], name in waive))
    return tuple(mismatches), tuple(unknown)


def differing_environment(base: Report, test: Report) -> list[str]:
    """Warnings where versions and the like differ: they may matter, but do not make a comparison meaningless."""
    sides = [report.capture["environment"] for report in (base, test)]
    return [
        f"{name} differs: {sides[0][name]} against {sides[1][name]}."
        for name in sorted(set(sides[0]) & set(sides[1]))
        if sides[0][name] != sides[1][name]
    ]


def refuse(mismatches: Sequence[Mismatch], unknown: Sequence[str]) -> None:
    """Raises NotComparableError that names every mismatch not waived."""
    standing = [m for m in mismatches if not m.waived]
    if standing:
        listing = "; ".join(f"{m.condition}: {m.base} against {m.test}" for m in standing)
        waiver = " ".join(f"--waive {m.condition}" for m in standing)
        raise NotComparableError(
            f"not comparable: {listing}",
            remedy=f"capture both sides alike, or, if the difference is what you ask about: {waiver}",
            mismatches=mismatches,
            unknown=unknown,
        )


def _known(report: Report) -> dict[str, Any]:
    """The conditions that a capture tells: its manifest's, and the GPU that its reports name."""
    conditions: Mapping[str, Any] = report.capture["conditions"]
    names = {gpu["name"] for gpu in report.capture["gpus"] if gpu["name"]}
    seen = {"gpu": names.pop()} if len(names) == 1 else {}
    return seen | {name: value for name, value in conditions.items() if value is not None}
