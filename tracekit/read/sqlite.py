"""Reads columns of a SQLite file into Arrow: read-only, immutable, in parallel, and never trusting the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tracekit.errors import InputError

_REMEDY = "export the report again: nsys export --type sqlite"


class SqliteFile:
    """A SQLite file, opened so that nothing is ever written: no journal, no index, no file where there was none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
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
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def read(
        self, table: str, columns: Sequence[str], *, text: Sequence[str] = (), where: str = ""
    ) -> dict[str, pa.Array]:
        """The named integer columns of ``table`` as int64 and the ``text`` columns as binary, by name.

        Columns that the table lacks are left out. Text is read as bytes, since exports hold text that is not UTF-8.
        Raises InputError that names the table, the column and the first cell that is not an integer.
        """
        from adbc_driver_manager import Error
        from adbc_driver_sqlite import dbapi

        present = [name for name in columns if name in self.columns[table]]
        blobs = [name for name in text if name in self.columns[table]]
        selected = [f'"{name}"' for name in present]
        selected += [f'CAST("{name}" AS BLOB) AS "{name}"' for name in blobs]
        query = f'SELECT {", ".join(selected)} FROM "{table}"' + (f" WHERE {where}" if where else "")
        try:
            with dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
                # The driver infers a column's type from the first batch: one batch sees every cell.
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": self._row_bound(table)})
                cursor.execute(query)
                result = cursor.fetch_arrow_table()
        except Error as error:
            self._refuse_non_integers(table, present)
            raise self._damaged(error) from None
        out: dict[str, pa.Array] = {}
        for name in (*present, *blobs):
            column = result.column(name)
            array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            kind = pa.binary() if name in blobs else pa.int64()
            if array.type != kind:
                if array.null_count < len(array):
                    self._refuse_non_integers(table, [name])
                array = pa.nulls(len(array), kind) if array.null_count == len(array) else array.cast(kind)
            out[name] = array
        return out

    def _row_bound(self, table: str) -> int:
        """An upper bound of the table's rows that costs no scan."""
        highest = self.rows(f'SELECT max(rowid) FROM "{table}"')[0][0] or 0
        return max(1, min(int(highest), self.path.stat().st_size))

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
