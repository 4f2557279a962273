"""Reads columns of a SQLite file into Arrow: read-only, immutable, in parallel, and never trusting the file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tracekit.errors import InputError

_SPLIT_FROM = 100_000
"""A table with this many rows is read by two connections."""

_REMEDY = "export the report again: nsys export --type sqlite"


class SqliteFile:
    """A SQLite file, opened so that nothing is ever written: no journal, no index, no file where there was none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # An empty authority, so that a path which begins with two slashes is not taken for one.
        self._uri = f"file://{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
        self._refuse_truncated()

    def _refuse_truncated(self) -> None:
        """A copy that stopped early opens without complaint; its header still tells the full size."""
        with self.path.open("rb") as file:
            header = file.read(100)
        size = self.path.stat().st_size
        page = int.from_bytes(header[16:18], "big")
        page = 65536 if page == 1 else page
        pages = int.from_bytes(header[28:32], "big")
        size_is_valid = header[24:28] == header[92:96]
        if len(header) < 100 or (size_is_valid and page * pages > size):
            raise InputError(
                self.path,
                expected=f"{page * pages:,} bytes, as its header says"
                if len(header) == 100
                else "a SQLite header of 100 bytes",
                found=f"a truncated file of {size:,} bytes",
                remedy="copy it again, or " + _REMEDY,
            )

    @cached_property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The tables of the file and the names of their columns."""
        rows = self.rows(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view')"
        )
        out: dict[str, tuple[str, ...]] = {}
        for table, column in rows:
            out[table] = (*out.get(table, ()), column)
        return out

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small query, text that is not UTF-8 decoded with replacement."""
        try:
            connection = sqlite3.connect(self._uri, uri=True)
            try:
                connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                return connection.execute(query, parameters).fetchall()
            finally:
                connection.close()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._damaged(error) from None

    def read(
        self, table: str, columns: Sequence[str], *, text: Sequence[str] = (), where: str = ""
    ) -> dict[str, pa.Array]:
        """The named integer columns of ``table`` as int64 and the ``text`` columns as binary, by name.

        Columns that the table lacks are left out. Text is read as bytes, since exports hold text that is not UTF-8.
        Raises InputError that names the table, the column and the first cell that is not an integer.
        """
        from adbc_driver_manager import Error

        present = [name for name in columns if name in self.columns[table]]
        blobs = [name for name in text if name in self.columns[table]]
        selected = [f'"{name}"' for name in present]
        selected += [f'CAST("{name}" AS BLOB) AS "{name}"' for name in blobs]
        query = f'SELECT {", ".join(selected)} FROM "{table}"'
        try:
            parts = self._fetch(query, where, self._last_rowid(table))
        except (Error, OSError, pa.ArrowException) as error:
            self._refuse_non_integers(table, present)
            raise self._damaged(error) from None
        out: dict[str, pa.Array] = {}
        for name in (*present, *blobs):
            kind = pa.binary() if name in blobs else pa.int64()
            chunks = [part.column(name) for part in parts]
            if any(chunk.type != kind and chunk.null_count < len(chunk) for chunk in chunks):
                self._refuse_non_integers(table, [name])
            # A column without any value has no type of its own.
            typed = [
                chunk.cast(kind) if chunk.null_count < len(chunk) else pa.nulls(len(chunk), kind) for chunk in chunks
            ]
            arrays = [array for chunk in typed for array in getattr(chunk, "chunks", [chunk])]
            out[name] = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) if arrays else pa.array([], kind)
        return out

    def _fetch(self, query: str, where: str, last: int | None) -> list[pa.Table]:
        """The rows of a query in order, a large table in two parts by two connections at once."""
        bound = self.path.stat().st_size if last is None else max(1, min(last, self.path.stat().st_size))
        if last is None or last < _SPLIT_FROM:
            return [self._fetch_part(query, where, bound)]
        halves = [f"rowid <= {last // 2}", f"rowid > {last // 2}"]
        filters = [f"({where}) AND {half}" if where else half for half in halves]
        with ThreadPoolExecutor(len(filters)) as pool:
            return list(pool.map(lambda part: self._fetch_part(query, part, bound // 2 + 1), filters))

    def _fetch_part(self, query: str, where: str, rows: int) -> pa.Table:
        from adbc_driver_sqlite import dbapi

        with dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
            # The driver infers a column's type from the first batch: one batch sees every cell.
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": rows})
            cursor.execute(f"{query} WHERE {where}" if where else query)
            return cursor.fetch_arrow_table()

    def _last_rowid(self, table: str) -> int | None:
        """The highest row id, which bounds the rows without a scan; None for a view, which has none."""
        kind = self.rows("SELECT type FROM sqlite_master WHERE name = ?", (table,))[0][0]
        return None if kind == "view" else int(self.rows(f'SELECT max(rowid) FROM "{table}"')[0][0] or 0)

    def _refuse_non_integers(self, table: str, columns: Sequence[str]) -> None:
        for name in columns:
            cells = self.rows(
                f'SELECT rowid, "{name}" FROM "{table}" WHERE typeof("{name}") NOT IN (\'integer\', \'null\') LIMIT 1'
            )
            if cells:
                row, cell = cells[0]
                raise InputError(
                    self.path,
                    expected=f"an integer in table {table}, column {name}",
                    found=f"{str(cell)[:80]!r} in row {row}",
                    remedy=_REMEDY,
                )

    def _damaged(self, error: Exception) -> InputError:
        text = str(error).split("\n")[0]
        return InputError(
            self.path,
            expected="a whole SQLite database",
            found=f"a damaged or truncated one ({text})",
            remedy="copy it again, or " + _REMEDY,
        )
