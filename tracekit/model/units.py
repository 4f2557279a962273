"""Units of every column, and the suffix that carries each unit in a column's name."""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """What one count of a column's value is."""

    NS = "ns"
    BYTES = "bytes"
    COUNT = "count"
    RATIO = "ratio"
    BYTES_PER_SECOND = "bytes/s"
    WAVES = "waves"
    ID = "id"
    TEXT = "text"
    FLAG = "flag"


SUFFIX: dict[Unit, str] = {
    Unit.NS: "_ns",
    Unit.BYTES: "_bytes",
    Unit.COUNT: "_count",
    Unit.RATIO: "_ratio",
    Unit.BYTES_PER_SECOND: "_bytes_per_second",
}
"""A column in one of these units ends in its suffix, so that a name alone tells the unit. 1 ratio = 100 %."""
