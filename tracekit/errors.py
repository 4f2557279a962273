"""The errors tracekit raises on purpose: a message, a remedy and an exit code each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


class TracekitError(Exception):
    """Base of every error that a user can act on.

    ``exit_code`` is what the command line exits with; ``remedy`` is one sentence that says what to do.
    """

    exit_code = 2

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class UsageError(TracekitError):
    """The command or call itself does not make sense."""


class InputError(TracekitError):
    """A file cannot be used. Always names the file, what was expected, what was found, and the remedy."""

    def __init__(self, source: str | os.PathLike[str], *, expected: str, found: str, remedy: str) -> None:
        self.source = os.fspath(source)
        self.expected = expected
        self.found = found
        super().__init__(
            f"{self.source}: expected {expected}; found {found}",
            remedy=remedy,
        )


class CaptureError(TracekitError):
    """A tool did not deliver what it was run for: it hung, died, or left a report without what was to be captured.

    ``quoted`` are the tool's own lines, which the message repeats.
    """

    def __init__(self, message: str, *, remedy: str, quoted: Sequence[str] = ()) -> None:
        self.quoted = tuple(quoted)
        super().__init__("\n".join([message, *(f"  | {line}" for line in self.quoted)]), remedy=remedy)


class NotComparableError(TracekitError):
    """Two captures differ in something that makes their difference meaningless.

    ``mismatches`` and ``unknown`` are those of a comparison.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, remedy: str, mismatches: Sequence[Any] = (), unknown: Sequence[str] = ()
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.mismatches = tuple(mismatches)
        self.unknown = tuple(unknown)
