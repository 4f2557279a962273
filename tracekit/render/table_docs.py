"""Writes the documentation of every table from its declaration: ``python -m tracekit.render.table_docs``."""

from __future__ import annotations

import sys

from tracekit.model.schema import Table
from tracekit.model.tables import DERIVED_TABLES, SOURCE_TABLES

_HEAD = """# The tables of tracekit

Generated from `tracekit/model/tables.py` by `python -m tracekit.render.table_docs > docs/tables.md`; do not edit.

A column's suffix carries its unit (`_ns`, `_bytes`, `_count`, `_ratio`; 1 = 100 %). A nullable column holds NA where a
value is missing, never zero. *Better* says which direction of a figure is an improvement, where one is.
"""


def table_docs() -> str:
    """All tables as one Markdown page."""
    sections = [_HEAD]
    for title, tables in (("Source tables", SOURCE_TABLES), ("Derived tables", DERIVED_TABLES)):
        sections += [f"## {title}\n", *(_section(table) for table in tables)]
    return "\n".join(sections)


def _section(table: Table) -> str:
    lines = [f"### {table.name}\n", f"{table.doc} Key: `{table.key}`.\n"]
    lines += ["| column | type | unit | nullable | better | what it is |", "|---|---|---|---|---|---|"]
    for column in table:
        better = "" if column.better == "none" else column.better
        nullable = "yes" if column.nullable else ""
        doc = column.doc.replace("|", "/")
        lines.append(f"| `{column.name}` | {column.dtype} | {column.unit} | {nullable} | {better} | {doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table_docs())
