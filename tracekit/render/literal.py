"""Makes text of a file harmless and legible: control characters visible, long names cut."""

from __future__ import annotations

import re
from typing import Final

from tracekit.model.labels import Path

_QUALIFIERS: Final = re.compile(r"^void |\b[A-Za-z_]\w*::|<unnamed>::|\((?:unsigned )?(?:int|long)\)(?=\d)")
_LONGEST_FOR_A_NAME: Final = 4000
"""Longer names are cut before they are shortened by rules."""


def literal(text: str) -> str:
    """Text of a file with its control characters made visible: an escape sequence must not reach the terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text) if not text.isprintable() else text


def clipped(text: str, length: int) -> str:
    """At most so many characters, with an ellipsis where some are left out; made literal."""
    return literal(text if len(text) <= length else text[: length - 3] + "...")


def short_name(name: str, length: int) -> str:
    """A kernel's name for one line: without return type, namespaces and casts, and cut; JSON has the full name."""
    return clipped(_QUALIFIERS.sub("", name[:_LONGEST_FOR_A_NAME]), length)


def region_words(path: Path, length: int = 200) -> str:
    """A region as one line; what a very long label leaves out is in the JSON."""
    return " / ".join(clipped(label, length) for label in path)
