"""Kernel names without what differs from build to build: a list of rules, each of which can be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True)
class NameRule:
    """Replaces what ``pattern`` finds; ``doc`` is a sentence for people."""

    name: str
    pattern: re.Pattern[str]
    replacement: str
    doc: str


RULES: Final = (
    NameRule(
        "return_type", re.compile(r"^(?:static )?void "), "", "A leading `void` is dropped."
    ),
    NameRule(
        "anonymous_namespace", re.compile(r"<unnamed>::|\(anonymous namespace\)::"), "",
        "Anonymous namespaces are dropped: each demangler writes them its own way.",
    ),
    NameRule(
        "casts", re.compile(r"\((?:unsigned )?(?:int|long|short|char|bool)\)(?=-?\d|true|false)"), "",
        "Casts before a literal are dropped: `(int)8` is `8`.",
    ),
    NameRule(
        "addresses", re.compile(r"0x[0-9a-fA-F]{4,}"), "0x#", "Addresses become `0x#`."
    ),
    NameRule(
        "autotune_suffix", re.compile(r"(?<=[A-Za-z0-9])_(?:\d+[dce]+)+\d*[dce]*$"), "",
        "Triton's specialization suffix, `_0d1d2de`, is dropped.",
    ),
    NameRule(
        "hashes", re.compile(r"(?<=[_.$])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?=$|[_.$(<])"), "#",
        "Runs of eight or more hexadecimal digits between `_`, `.` or `$` become `#`.",
    ),
    NameRule(
        "template_numbers", re.compile(r"(?<=[<,])\s*-?\d+[uUlL]*\s*(?=[,>])"), "#",
        "Template arguments that are numbers become `#`: sizes of tiles and vectors. Types stay.",
    ),
    NameRule(
        "tiles", re.compile(r"(?<=_)\d+x\d+(?:x\d+)*(?=_|$)"), "#x#",
        "Sizes of tiles in a name, `_64x8_`, become `#x#`.",
    ),
    NameRule(
        "running_number", re.compile(r"^(triton_(?:poi|per|red|tem|for)_\w*?)_\d+$"), r"\1_#",
        "The running number of torch.compile's kernels becomes `#`.",
    ),
)  # fmt: skip
"""Applied in this order to names that have no equal on the other side."""


@lru_cache(maxsize=65536)
def normalize(name: str) -> tuple[str, tuple[str, ...]]:
    """The name under every rule, and the names of the rules that changed it."""
    used = []
    for rule in RULES:
        changed = rule.pattern.sub(rule.replacement, name)
        if changed != name:
            used.append(rule.name)
            name = changed
    return name, tuple(used)
