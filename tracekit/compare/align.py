"""Pairs the regions of two reports by path, after renaming, and roots whose name alone differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.errors import UsageError
from tracekit.model import labels
from tracekit.model.labels import Path, RootLabel
from tracekit.model.report import Region


@dataclass(frozen=True)
class Alignment:
    """Pairs of (base, test) regions, either None where the other side has no such region; and how they were paired."""

    pairs: tuple[tuple[Region | None, Region | None], ...]
    notes: tuple[str, ...]


def align(base: Sequence[Region], test: Sequence[Region], rename: Sequence[tuple[str, str]] = ()) -> Alignment:
    """Regions of one path pair up. ``rename`` maps labels of the base, anywhere in a path, to labels of the test.

    A root that the other side lacks is paired with a root that this side lacks where their children are the same and
    no other root fits as well; a note says so. Roots that state different numbers of tokens are never paired.
    """
    names = _renaming(rename, base, test)
    roots, notes = _pair_roots(base, test, names)
    names_of_roots = {old: new for old, new in roots.items() if old != new}

    def translated(path: Path) -> Path:
        root = names_of_roots.get(path[0], names.get(path[0], path[0]))
        return (root, *(names.get(label, label) for label in path[1:]))

    by_path = {region.path: region for region in test}
    places = [translated(region.path) for region in base]
    pairs: list[tuple[Region | None, Region | None]] = [
        (region, by_path.pop(place, None)) for region, place in zip(base, places, strict=True)
    ]
    before: Path = ()
    for region in test:
        if region.path in by_path:
            at = _place_after(places, before, region.path)
            places.insert(at, region.path)
            pairs.insert(at, (None, region))
        before = region.path
    return Alignment(tuple(pairs), notes)


def _place_after(places: Sequence[Path], before: Path, path: Path) -> int:
    """Where a region of the test goes among the others: as in a tree, behind what stands before it in the test.

    That is right behind its parent, or behind everything inside the sibling that ``before`` is or lies in; at the end
    where nothing stands before it.
    """
    if len(before) < len(path):
        return places.index(before) + 1 if before in places else len(places)
    sibling = before[: len(path)]
    return max((at + 1 for at, place in enumerate(places) if place[: len(path)] == sibling), default=len(places))


def _renaming(rename: Sequence[tuple[str, str]], base: Sequence[Region], test: Sequence[Region]) -> dict[str, str]:
    """The renaming as a mapping; UsageError where a label is on no such side, or is renamed twice."""
    names: dict[str, str] = {}
    for side, which, regions in (("base", 0, base), ("test", 1, test)):
        known = {label for region in regions for label in region.path}
        for pair in rename:
            if pair[which] not in known:
                raise UsageError(
                    f"--rename {pair[0]}={pair[1]}: the {side} has no label {pair[which]!r}",
                    remedy=f"its labels are {', '.join(sorted(known)[:12])}",
                )
    for old, new in rename:
        if names.setdefault(old, new) != new:
            raise UsageError(f"--rename maps {old!r} to two labels", remedy="give each label once")
    return names


def _pair_roots(
    base: Sequence[Region], test: Sequence[Region], names: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Roots of the base to roots of the test, for those that no equal name pairs; and a note for each."""
    sides = [_children(base, names), _children(test, {})]
    shared = {root for root in sides[0] if names.get(root, root) in sides[1]}
    alone_base = [root for root in sides[0] if root not in shared]
    taken = {names.get(root, root) for root in shared}
    alone_test = [root for root in sides[1] if root not in taken]
    pairs: dict[str, str] = {}
    notes = []
    for root in alone_base:
        fits = [other for other in alone_test if _alike(root, other, sides[0][root], sides[1][other])]
        rivals = [r for r in alone_base if fits and _alike(r, fits[0], sides[0][r], sides[1][fits[0]])]
        if len(fits) == 1 and len(rivals) == 1:
            pairs[root] = fits[0]
            notes.append(
                f"Roots {root!r} and {fits[0]!r} differ in name only and their children pair up: taken as one region."
            )
        elif len(fits) > 1 or len(rivals) > 1:
            notes.append(f"Root {root!r} fits several roots of the other side: left unpaired; use --rename OLD=NEW.")
    for root in alone_base:
        if root not in pairs and alone_test:
            notes.append(f"Root {root!r} has no counterpart on the test side.")
    return pairs, tuple(dict.fromkeys(notes))


def _children(regions: Sequence[Region], names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The labels directly inside each root, without the pseudo root of unattributed operations."""
    out: dict[str, set[str]] = {}
    for region in regions:
        if region.path[0] != labels.UNATTRIBUTED:
            inside = out.setdefault(region.path[0], set())
            inside |= {names.get(label, label) for label in region.path[1:2]}
    return {root: frozenset(inside) for root, inside in out.items()}


def _alike(base: str, test: str, base_children: frozenset[str], test_children: frozenset[str]) -> bool:
    """Whether two root labels may be one root renamed: the same children, and no contradiction in the labels."""
    first, second = labels.parse_root(base), labels.parse_root(test)
    if isinstance(first, RootLabel) and isinstance(second, RootLabel):
        if (first.tokens, first.phase) != (second.tokens, second.phase):
            return False
        # A torch.compiled or graphed side has no inner ranges: its tokenized label alone tells what it is.
        return base_children == test_children or not base_children or not test_children
    return base_children == test_children
