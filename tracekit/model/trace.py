"""A trace as read: its tables, loaded when first asked for, and what the reader could not tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.model import tables

if TYPE_CHECKING:
    import pandas as pd

    from tracekit.model.manifest import Manifest

Loader = Callable[[], "pd.DataFrame"]


@dataclass
class Trace:
    """One capture: a timeline, counters, or both.

    ``loaders`` maps names of :data:`tracekit.model.tables.SOURCE_TABLES` to functions that read them. A table without
    a loader is empty. ``counters`` holds one table a Nsight Compute file, with its path in ``attrs["source"]``, since
    files of different cache states are never mixed. ``absent`` names tables that were not traced at all: they are
    empty, and what they would tell is unknown, not zero. ``hidden_graph_launches`` counts graph launches
    without any device row. ``rejected`` counts rows left out, by reason. ``notes`` are
    sentences about what is missing and why; loaders may add to them.
    """

    source: str
    tool: str
    tool_version: str | None = None
    manifest: Manifest | None = None
    graph_trace: str | None = None
    has_timeline: bool = False
    counters: list[pd.DataFrame] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    hidden_graph_launches: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    loaders: Mapping[str, Loader] = field(default_factory=dict)
    _tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def table(self, name: str) -> pd.DataFrame:
        """The table of that name, conformed to its declaration; read at the first call and kept. Do not mutate."""
        if name not in self._tables:
            loader = self.loaders.get(name)
            declared = next(table for table in tables.SOURCE_TABLES if table.name == name)
            self._tables[name] = declared.empty() if loader is None else loader()
        return self._tables[name]

    def note(self, sentence: str) -> None:
        """Add a note once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What the manifest says was held fixed; empty for a bare file."""
        return {} if self.manifest is None else self.manifest.conditions
