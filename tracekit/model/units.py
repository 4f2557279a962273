"""Units of every column, the suffix that carries each in a column's name, and how a figure is written for people."""

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
    BLOCKS = "blocks"
    THREADS = "threads"
    MHZ = "MHz"
    WATT = "W"
    CELSIUS = "degrees C"
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

MISSING = "–"
"""How a missing value is written: never as zero."""

_MINUS = "\N{MINUS SIGN}"


def write(value: float | int | str | None, unit: str, *, signed: bool = False) -> str:
    """A figure for people: ``437.7 us``, ``1,411.7 MB``, ``25.9 %``, ``64``; a dash where it is missing.

    Scales are decimal (1 MB = 10^6 bytes) and times are in us up to a million of them. ``signed`` writes a plus or a
    minus before the figure, for differences.
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    sign = (_MINUS if value < 0 else "+" if value > 0 else "") if signed else (_MINUS if value < 0 else "")
    size = abs(value)
    match unit:
        case Unit.NS:
            text = f"{size / 1e3:,.1f} us" if size < 1e9 else f"{size / 1e9:,.3f} s"
        case Unit.BYTES if size >= 1e6:
            text = f"{size / 1e6:,.1f} MB"
        case Unit.BYTES if size >= 1e4:
            text = f"{size / 1e3:,.1f} kB"
        case Unit.BYTES:
            text = f"{size:,.0f} B"
        case Unit.BYTES_PER_SECOND:
            text = f"{size / 1e9:,.0f} GB/s"
        case Unit.RATIO:
            text = f"{size * 100:.1f} %"
        case Unit.WAVES:
            text = f"{size:,.2f}"
        case _:
            text = f"{size:,.0f}" if float(size).is_integer() else f"{size:,.1f}"
    # What rounds to nothing has no direction: it is not written as minus zero.
    return sign + text if any(digit in text for digit in "123456789") else text


def write_change(ratio: float | None) -> str:
    """A ratio test / base as a signed change: 0.86 is ``-14.0 %`` (with a minus sign), None a dash."""
    return MISSING if ratio is None else write(ratio - 1, Unit.RATIO, signed=True)
