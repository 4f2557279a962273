"""Makes a large export by repeating a sample in time: ``python tests/benchmarks/tile.py SAMPLE OUT --kernels 1000000``.

Every tile is the sample shifted by its span, with correlation ids of its own, so that medians over instances stay those
of the sample while everything else grows.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from pathlib import Path

_TIMED = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
)
_PAUSE_NS = 10_000
_RANGES = "eventType IN (59, 60, 70, 71)"


def tile(sample: Path, out: Path, kernels: int) -> int:
    """Writes at least ``kernels`` kernels to ``out``, an export like ``sample``; returns the number of tiles."""
    shutil.copyfile(sample, out)
    connection = sqlite3.connect(out)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master") if name in _TIMED]
    count = connection.execute(f"SELECT COUNT(*) FROM {_TIMED[0]}").fetchone()[0]
    tiles = -(-kernels // count)
    bounds = [
        connection.execute(
            f'SELECT MIN(start), MAX("end") FROM {table}' + (f" WHERE {_RANGES}" if table == "NVTX_EVENTS" else "")
        ).fetchone()
        for table in tables
    ]
    low = min(start for start, _ in bounds if start is not None)
    high = max(end for _, end in bounds if end is not None)
    period = high - low + _PAUSE_NS
    ids = connection.execute("SELECT MAX(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
    shifted = {"start": f"start + i * {period}", "end": f'"end" + i * {period}'}
    shifted["correlationId"] = f"correlationId + i * {ids}"
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        selected = ", ".join(shifted.get(column, f'"{column}"') for column in columns)
        where = f"WHERE {_RANGES}" if table == "NVTX_EVENTS" else ""
        connection.execute(f"CREATE TEMP TABLE one AS SELECT * FROM {table}")
        connection.execute(
            f"WITH RECURSIVE tiles(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM tiles WHERE i + 1 < {tiles}) "
            f"INSERT INTO {table} SELECT {selected} FROM tiles CROSS JOIN one {where} {'AND' if where else 'WHERE'} "
            f"{tiles} > 1"
        )
        connection.execute("DROP TABLE one")
    connection.commit()
    connection.close()
    return tiles


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sample", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    arguments = parser.parse_args()
    made = tile(arguments.sample, arguments.out, arguments.kernels)
    print(f"{arguments.out}: {made} tiles, {arguments.out.stat().st_size / 1e6:.0f} MB")
