"""Map files: which regions of the base are which of the test, in TOML that people can edit."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracekit.errors import InputError
from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.report import Comparison, RegionPair

_REMEDY: Final = "write one with --write-map and edit it"
_EXPECTED: Final = "a map: a table [labels] of texts, and tables [[region]] with base and test, each a list of labels"


@dataclass(frozen=True)
class RegionMap:
    """Labels to rename anywhere, and whole paths that pair."""

    labels: tuple[tuple[str, str], ...] = ()
    regions: tuple[tuple[Path, Path], ...] = ()


def parse_map(text: str, *, source: str) -> RegionMap:
    """The map in a TOML text; InputError that names the source and what is wrong."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(source, expected="TOML", found=str(error), remedy=_REMEDY) from None
    if strange := sorted(set(data) - {"labels", "region"}):
        raise InputError(source, expected=_EXPECTED, found=f"a key {strange[0]}", remedy=_REMEDY)
    names, regions = data.get("labels", {}), data.get("region", [])
    if not isinstance(names, dict) or not all(isinstance(new, str) for new in names.values()):
        raise InputError(source, expected=_EXPECTED, found="labels that are no table of texts", remedy=_REMEDY)
    if not isinstance(regions, list):
        raise InputError(source, expected=_EXPECTED, found="region that is no list of tables", remedy=_REMEDY)
    return RegionMap(tuple(names.items()), tuple(_pair(item, at, source) for at, item in enumerate(regions)))


def _pair(item: Any, at: int, source: str) -> tuple[Path, Path]:
    paths = []
    for side in ("base", "test"):
        path = item.get(side) if isinstance(item, dict) else None
        if not isinstance(path, list) or not path or not all(isinstance(label, str) for label in path):
            raise InputError(source, expected=_EXPECTED, found=f"region {at + 1} without a {side}", remedy=_REMEDY)
        paths.append(tuple(path))
    return paths[0], paths[1]


def propose_map(comparison: Comparison) -> str:
    """A map of the pairs whose paths differ, and of what is left on either side as comments to complete."""
    pairs = [pair for pair in comparison.regions if pair.path != (UNATTRIBUTED,)]
    differing = [pair for pair in pairs if pair.base_path and pair.test_path and _renamed_here(pair, pairs)]
    lines = [
        "# Which region of the base is which of the test. Edit it, and give it to tracekit diff with --map.",
        "# [labels] renames a label wherever it stands; a [[region]] pairs two regions, and what lies inside follows.",
        "",
        "[labels]",
        '# "old" = "new"',
    ]
    for pair in differing:
        lines += ["", "[[region]]", f"base = {_toml(pair.base_path)}", f"test = {_toml(pair.test_path)}"]
    for side, left in (("base", [p.base_path for p in pairs if not p.test_path]),
                       ("test", [p.test_path for p in pairs if not p.base_path])):  # fmt: skip
        if left:
            lines += ["", f"# Left on the {side} alone:"]
            lines += [f"# {side} = {_toml(path)}" for path in left]
    return "\n".join(lines)


def _renamed_here(pair: RegionPair, pairs: Sequence[RegionPair]) -> bool:
    """Whether a pair's own label differs, or its parents are no pair: what merely follows its parent is left out."""
    if not pair.base_path or not pair.test_path:
        return False
    parents = {p.base_path: p.test_path for p in pairs}
    return pair.base_path[-1] != pair.test_path[-1] or (
        len(pair.base_path) > 1 and parents.get(pair.base_path[:-1]) != pair.test_path[:-1]
    )


def _toml(path: Path | None) -> str:
    """A path as a TOML array: JSON's escapes are TOML's, once what lies beyond the basic plane is written out."""
    return (
        "[" + ", ".join(json.dumps(label, ensure_ascii=False).replace("\x7f", "\\u007f") for label in path or ()) + "]"
    )
