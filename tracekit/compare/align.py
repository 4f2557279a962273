"""Pairs the regions of two reports: by path, after renaming or as a map says, and by structure where labels differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tracekit.errors import UsageError
from tracekit.model import labels
from tracekit.model.labels import Path, RootLabel
from tracekit.model.report import Region, RegionPair

_NUMBER = re.compile(r"\d+")
_PHASES = ("prefill", "decode")
_MOST_TRIED = 1_000_000
"""Pairs of unlike labels that are tried by structure: above, labels hold counters, and trying would take minutes."""


@dataclass(frozen=True)
class Alignment:
    """Pairs of (base, test) regions, either None where the other side has no such region; and how they were paired."""

    pairs: tuple[tuple[Region | None, Region | None], ...]
    notes: tuple[str, ...]


def align(
    base: Sequence[Region],
    test: Sequence[Region],
    rename: Sequence[tuple[str, str]] = (),
    told: Sequence[tuple[Path, Path]] = (),
) -> Alignment:
    """Regions of one path pair up. ``rename`` maps labels of the base, anywhere in a path, to labels of the test;
    ``told`` maps whole paths.

    A region that the other side lacks is paired, inside a paired parent, with one that this side lacks where their
    structure fits and no other does: a note says so. So are roots, unless they state other tokens or another phase.
    """
    names = _renaming(rename, base, test)
    interned: dict[tuple[int, ...], int] = {}
    sides = (_Tree.of(base, interned), _Tree.of(test, interned))
    given = _told(told, sides)
    pairing = _Pairing(sides[0], sides[1], names, given)
    by_path = {region.path: region for region in test}
    places = [pairing.place(region.path) for region in base]
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
    return Alignment(tuple(pairs), tuple(dict.fromkeys(pairing.notes)))


def nearest_on(side: str, pair: RegionPair, pairs: Sequence[RegionPair]) -> Path | None:
    """The region's path on a side, or where it does not exist there, that of the nearest region around it that does."""
    other = {"base": "test", "test": "base"}[side]
    around = {getattr(one, f"{other}_path"): getattr(one, f"{side}_path") for one in pairs}
    found: Path | None = getattr(pair, f"{side}_path")
    path: Path | None = getattr(pair, f"{other}_path")
    while found is None and path:
        path = path[:-1]
        found = around.get(path)
    return found


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


@dataclass(frozen=True)
class _Tree:
    """The regions of one side as a tree: the labels directly inside each path, and each region by its path.

    ``shapes`` numbers what lies inside a path, without labels: equal numbers are equal trees, 0 is none.
    """

    children: Mapping[Path, list[str]]
    regions: Mapping[Path, Region]
    shapes: Mapping[Path, int]

    @classmethod
    def of(cls, regions: Sequence[Region], interned: dict[tuple[int, ...], int]) -> _Tree:
        """The tree of a side; ``interned`` numbers the shapes of both."""
        children: dict[Path, list[str]] = {(): []}
        for region in regions:
            children.setdefault(region.path, [])
            if region.path != (labels.UNATTRIBUTED,):
                children.setdefault(region.path[:-1], []).append(region.path[-1])
        interned.setdefault((), 0)
        shapes: dict[Path, int] = {}
        # From the deepest up, without recursion: a trace may nest deeper than Python's stack.
        for path in sorted(children, key=len, reverse=True):
            inside = tuple(sorted(shapes[(*path, label)] for label in children[path]))
            shapes[path] = interned.setdefault(inside, len(interned))
        return cls(children, {region.path: region for region in regions}, shapes)

    def kernels(self, path: Path) -> frozenset[str]:
        """The names of the kernels of a region."""
        return frozenset(kernel.name for kernel in self.regions[path].kernels)


def _told(told: Sequence[tuple[Path, Path]], sides: tuple[_Tree, _Tree]) -> dict[Path, Path]:
    """The pairs of a map file; UsageError where a side has no such region, or a region is paired twice."""
    out: dict[Path, Path] = {}
    for pair in told:
        for side, path, tree in zip(("base", "test"), pair, sides, strict=True):
            if path not in tree.regions:
                known = ", ".join(labels.join(known) for known in list(tree.regions)[:6])
                raise UsageError(
                    f"the map pairs {labels.join(path)!r}, which the {side} has not", remedy=f"it has {known}"
                )
        if out.setdefault(pair[0], pair[1]) != pair[1] or list(out.values()).count(pair[1]) > 1:
            raise UsageError("the map pairs a region twice", remedy="give each region once on each side")
    return out


@dataclass
class _Pairing:
    """Finds the place of each region of the base in the test, level by level from the roots."""

    base: _Tree
    test: _Tree
    names: Mapping[str, str]
    given: Mapping[Path, Path]
    notes: list[str] = field(default_factory=list)
    _places: dict[Path, Path] = field(default_factory=dict)
    _seen: set[Path] = field(default_factory=set)

    def place(self, path: Path) -> Path:
        """The path of the test that a path of the base belongs to; one that the test lacks where there is none."""
        if not path or path == (labels.UNATTRIBUTED,):
            return path
        if path not in self._places:
            parent = path[:-1]
            self._pair_level(parent, self.place(parent))
            if path not in self._places:
                self._places[path] = (*self.place(parent), self.names.get(path[-1], path[-1]))
        return self._places[path]

    def _pair_level(self, parent: Path, place: Path) -> None:
        """Pairs the regions directly inside a pair: as told, by equal label, and what is left by structure."""
        if parent in self._seen:
            return
        self._seen.add(parent)
        taken = set(self.given.values())
        inside = {label: (*place, label) for label in self.test.children.get(place, ())}
        left = []
        for label in self.base.children.get(parent, ()):
            path = (*parent, label)
            other = self.given.get(path) or inside.get(self.names.get(label, label))
            if other is None or (path not in self.given and other in taken):
                left.append(path)
            else:
                self._places[path] = other
                taken.add(other)
        free = [path for path in inside.values() if path not in taken]
        if parent:
            self._pair_inner(left, free)
        else:
            self._pair_roots(left, free)

    def _pair_roots(self, left: Sequence[Path], free: Sequence[Path]) -> None:
        for alike in (self._alike, self._shaped):
            left, free = self._pair_unique(left, free, alike, "Roots")
        for path in left:
            if free:
                self.notes.append(f"Root {path[0]!r} has no counterpart on the test side.")

    def _pair_inner(self, left: Sequence[Path], free: Sequence[Path]) -> None:
        left, free = self._pair_numbered(left, free)
        left, free = self._pair_unique(left, free, self._shaped, "Regions")
        self._pair_unique(left, free, self._same_kernels, "Regions")

    def _pair_numbered(self, left: Sequence[Path], free: Sequence[Path]) -> tuple[list[Path], list[Path]]:
        """Series of labels that differ in one word, ``layer0`` to ``layer3`` and ``block0`` to ``block3``."""
        series = [_series(paths) for paths in (left, free)]
        found: dict[Path, Path] = {}
        for stem, own in series[0].items():
            fits = [other for other, paths in series[1].items() if self._same_series(own, paths)]
            theirs = series[1][fits[0]] if fits else {}
            rivals = [other for other, ours in series[0].items() if fits and self._same_series(ours, theirs)]
            if len(fits) == 1 and len(rivals) == 1:
                found |= {own[number]: theirs[number] for number in own if number in theirs}
                self.notes.append(
                    f"Regions {stem!r} of the base and {fits[0]!r} of the test are series of one structure: paired by "
                    "number."
                )
        self._places |= found
        return [path for path in left if path not in found], [path for path in free if path not in found.values()]

    def _same_series(self, base: Mapping[str, Path], test: Mapping[str, Path]) -> bool:
        """Whether most numbers are on both sides, and the regions of each have one structure."""
        both = [number for number in base if number in test]
        enough = len(both) >= 2 and 2 * len(both) >= max(len(base), len(test))
        return enough and all(self.base.shapes[base[n]] == self.test.shapes[test[n]] for n in both)

    def _pair_unique(
        self, left: Sequence[Path], free: Sequence[Path], alike: Callable[[Path, Path], bool], word: str
    ) -> tuple[list[Path], list[Path]]:
        """Pairs what fits one region of the other side alone, and is alone in fitting it."""
        found: dict[Path, Path] = {}
        if len(left) * len(free) > _MOST_TRIED:
            self.notes.append(
                f"{len(left):,} labels of the base and {len(free):,} of the test differ: too many to pair."
            )
            return list(left), list(free)
        for path in left:
            fits = [other for other in free if alike(path, other)]
            rivals = [one for one in left if fits and alike(one, fits[0])]
            if len(fits) == 1 and len(rivals) == 1:
                found[path] = fits[0]
                self.notes.append(
                    f"{word} {path[-1]!r} and {fits[0][-1]!r} differ in name only and their children pair up: taken as "
                    "one region."
                    if word == "Roots"
                    else f"{word} {path[-1]!r} and {fits[0][-1]!r} have one structure: taken as one region."
                )
            elif word == "Roots" and (len(fits) > 1 or len(rivals) > 1):
                self.notes.append(
                    f"Root {path[-1]!r} fits several roots of the other side: left unpaired; use --rename OLD=NEW."
                )
        self._places |= found
        return [path for path in left if path not in found], [path for path in free if path not in found.values()]

    def _alike(self, base: Path, test: Path) -> bool:
        """Whether two roots may be one renamed: the same children, and no contradiction in the labels."""
        if _contradict(base[0], test[0]):
            return False
        inside = frozenset(self.names.get(label, label) for label in self.base.children[base])
        other = frozenset(self.test.children[test])
        if labels.parse_root(base[0]) and labels.parse_root(test[0]) and not (inside and other):
            # A torch.compiled or graphed side has no inner ranges: its tokenized label alone tells what it is.
            return True
        return inside == other

    def _shaped(self, base: Path, test: Path) -> bool:
        """Whether two regions have one structure: as many regions inside each other, at least one."""
        shape = self.base.shapes[base]
        return bool(shape) and shape == self.test.shapes[test] and not _contradict(base[-1], test[-1])

    def _same_kernels(self, base: Path, test: Path) -> bool:
        """Whether two regions without inner ones run the same kernels."""
        kernels = self.base.kernels(base)
        inner = self.base.children[base] or self.test.children[test]
        return bool(kernels) and not inner and kernels == self.test.kernels(test)


def _series(paths: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """Labels with one number, by what is left without it: ``layer#`` to the paths by number."""
    out: dict[str, dict[str, Path]] = {}
    for path in paths:
        numbers = _NUMBER.findall(path[-1])
        if len(numbers) == 1:
            out.setdefault(_NUMBER.sub("#", path[-1]), {})[numbers[0]] = path
    return out


def _contradict(base: str, test: str) -> bool:
    """Whether two labels state different numbers of tokens, or different phases: decode is no prefill."""
    first, second = labels.parse_root(base), labels.parse_root(test)
    if isinstance(first, RootLabel) and isinstance(second, RootLabel):
        return (first.tokens, first.phase) != (second.tokens, second.phase)
    said = [{phase for phase in _PHASES if phase in label.lower()} for label in (base, test)]
    return bool(said[0] and said[1] and said[0] != said[1])
