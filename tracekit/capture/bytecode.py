"""Keeps the bytecode of libraries that were installed without any: else every process compiles PyTorch for seconds."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path


def environment(folder: Path, *, library: str = "torch") -> Mapping[str, str]:
    """What lets child processes of this interpreter share bytecode in ``folder``; nothing where they have it already.

    Measured in a container whose PyTorch lies without bytecode in a read-only place: 11.6 s for a process that then
    takes 4.7.
    """
    if os.environ.get("PYTHONPYCACHEPREFIX"):
        return {}
    try:
        spec = importlib.util.find_spec(library)
    except (ImportError, ValueError):
        return {}
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return {}
    if Path(importlib.util.cache_from_source(spec.origin)).is_file():
        return {}
    return {"PYTHONPYCACHEPREFIX": str(folder.absolute()), "PYTHONDONTWRITEBYTECODE": ""}
