"""tracekit answers "did this kernel change help, by how much, and why?" from Nsight reports.

Importing the package imports the standard library alone; pandas and the rooms are loaded at first use, so that the
capture side runs in a bare container.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.pipeline import diff as diff
    from tracekit.pipeline import open_trace as open_trace
    from tracekit.pipeline import report as report

__version__ = "0.1.0"

__all__ = ["__version__", "diff", "open_trace", "report"]


def __getattr__(name: str) -> Any:
    if name in ("diff", "open_trace", "report"):
        return getattr(importlib.import_module("tracekit.pipeline"), name)
    raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
