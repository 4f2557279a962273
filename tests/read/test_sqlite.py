"""SQLite files are read by column, never written, and never trusted."""

from __future__ import annotations

import sqlite3
import sys

import pyarrow as pa
import pytest

from tracekit.read.sqlite import SqliteFile

TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def table(tmp_path):
    """Makes a file with a table t of the given rows and opens it."""

    def make(columns: str, *rows: tuple) -> SqliteFile:
        path = tmp_path / "t.sqlite"
        connection = sqlite3.connect(path)
        connection.execute(f"CREATE TABLE t ({columns})")
        marks = ", ".join("?" * len(columns.split(",")))
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
        connection.commit()
        connection.close()
        return SqliteFile(path)

    return make


def snapshot(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_columns_are_read_by_name_and_a_missing_one_is_left_out(table):
    file = table("b INTEGER, a INTEGER", (2, 1), (4, 3))
    read = file.read("t", ("a", "b", "absent"))
    assert {name: array.to_pylist() for name, array in read.items()} == {"a": [1, 3], "b": [2, 4]}
    assert file.columns == {"t": ("b", "a")}


def test_integers_keep_all_64_bits_beside_a_missing_one(table):
    values = [2**53 + 1, None, 2**63 - 1, -(2**63)]
    read = table("a INTEGER", *((value,) for value in values)).read("t", ("a",))
    assert read["a"].to_pylist() == values
    assert read["a"].type == pa.int64()


@pytest.mark.parametrize("rows", [[], [(None,), (None,)]])
def test_a_column_without_values_is_typed_all_the_same(table, rows):
    read = table("a INTEGER, b TEXT", *((*row, None) for row in rows)).read("t", ("a",), text=("b",))
    assert read["a"].type == pa.int64()
    assert read["b"].type == pa.binary()
    assert len(read["a"]) == len(rows)


def test_text_is_read_as_bytes_utf8_or_not(table, tmp_path):
    file = table("a TEXT", ("λ\n",))
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("INSERT INTO t VALUES (CAST(? AS TEXT))", (b"a\x00\xff",))
    connection.close()
    assert file.read("t", (), text=("a",))["a"].to_pylist() == ["λ\n".encode(), b"a\x00\xff"]
    assert file.rows("SELECT a FROM t") == [("λ\n",), ("a\x00\N{REPLACEMENT CHARACTER}",)]


def test_where_selects_rows(table):
    assert table("a INTEGER", (1,), (2,)).read("t", ("a",), where="a > 1")["a"].to_pylist() == [2]


@pytest.mark.parametrize(("cell", "shown"), [("abc", "'abc'"), (5.5, "'5.5'"), (b"\xff", "\\xff")])
@pytest.mark.parametrize("before", [0, 3000])
def test_a_cell_that_is_no_integer_is_named(table, refused, tmp_path, cell, shown, before):
    file = table("a INTEGER, b INTEGER", *[(1, None)] * before, (1, cell))
    text = refused(lambda: file.read("t", ("a", "b")), tmp_path / "t.sqlite")
    assert "table t, column b" in text
    assert shown in text
    assert f"row {before + 1}" in text


def test_reading_leaves_no_trace(nsys, tmp_path):
    path = nsys().launch((10, 20), (30, 40)).write()
    before = snapshot(tmp_path)
    file = SqliteFile(path)
    assert file.columns
    file.read(TABLE, ("start",))
    assert snapshot(tmp_path) == before


def test_a_file_in_wal_mode_gets_no_wal_file(table, tmp_path):
    file = table("a INTEGER", (1,))
    connection = sqlite3.connect(tmp_path / "t.sqlite")
    assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    connection.close()
    before = snapshot(tmp_path)
    assert SqliteFile(file.path).read("t", ("a",))["a"].to_pylist() == [1]
    assert snapshot(tmp_path) == before


def test_a_read_only_folder_is_enough(nsys, tmp_path):
    path = nsys().launch((10, 20), (30, 40)).write()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert SqliteFile(path).read(TABLE, ("start",))["start"].to_pylist() == [30]
    finally:
        tmp_path.chmod(0o755)


def test_a_file_that_vanished_is_reported_and_not_created(nsys, refused):
    path = nsys().launch((10, 20), (30, 40)).write()
    file = SqliteFile(path)
    path.unlink()
    refused(lambda: file.columns, path)
    assert not path.exists()


def test_a_writer_cannot_be_smuggled_in_by_the_file_name(nsys, tmp_path):
    path = nsys(file="a.sqlite?mode=rwc&immutable=0#x%20").kernel(1, 2).write()
    assert SqliteFile(path).read(TABLE, ("start",))["start"].to_pylist() == [1]
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("cut", [16, 50, 99, 100, 4096, 0.5, -1])
def test_a_truncated_file_says_so(nsys, refused, cut):
    path = nsys().launch((10, 20), (30, 40)).write()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut) if isinstance(cut, float) else cut])
    text = refused(lambda: SqliteFile(path), path)
    assert "truncated" in text


@pytest.fixture
def damaged(nsys):
    """Fills a table's last page, but for its header, with 0xFF, or all of it with zeros."""

    def damage(byte: int):
        builder = nsys()
        for i in range(200):
            builder.kernel(100 * i, 100 * i + 50)
        path = builder.write()
        with sqlite3.connect(path) as connection:
            (page,) = connection.execute("SELECT max(pageno) FROM dbstat WHERE name = ?", (TABLE,)).fetchone()
        connection.close()
        content = bytearray(path.read_bytes())
        kept = 200 if byte else 0
        content[(page - 1) * 4096 + kept : page * 4096] = bytes([byte]) * (4096 - kept)
        path.write_bytes(content)
        return path

    return damage


def has_dbstat() -> bool:
    with sqlite3.connect(":memory:") as connection:
        try:
            connection.execute("SELECT * FROM dbstat LIMIT 0")
        except sqlite3.OperationalError:
            return False
    return True


needs_dbstat = pytest.mark.skipif(not has_dbstat(), reason="this Python's SQLite has no dbstat")


@needs_dbstat
def test_a_page_of_zeros_is_damage(damaged, refused):
    path = damaged(0)
    assert "damaged" in refused(lambda: SqliteFile(path).read(TABLE, ("start", "end")), path)


@needs_dbstat
def test_damage_met_midway_is_damage_too(damaged, refused):
    path = damaged(0xFF)
    assert "damaged" in refused(lambda: SqliteFile(path).read(TABLE, ("start", "end")), path)


@pytest.mark.skipif(sys.platform == "win32", reason="a path of POSIX")
def test_a_path_with_two_leading_slashes_is_one_file(nsys):
    path = nsys().kernel(1, 2).write()
    assert TABLE in SqliteFile(type(path)(f"/{path}")).columns


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are Unicode there")
def test_a_file_name_that_is_not_utf8(nsys):
    path = nsys(file="a.sqlite").kernel(1, 2).write()
    renamed = path.rename(path.with_name("a\udcff.sqlite"))
    assert TABLE in SqliteFile(renamed).columns
