"""Times ``tracekit show`` on a 1M-kernel export against a C step loop over the same columns, alternating in one run.

``python tests/benchmarks/show_speed.py [--kernels N] [--runs N]``; needs a C compiler and SQLite's headers
(Debian: gcc libsqlite3-dev). Prints the seconds of each and the ratio of their medians.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tile import tile

from tracekit.read import nsys_sqlite
from tracekit.read.sqlite import SqliteFile

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "captures" / "decode_unfused" / "timeline.sqlite"


def queries(export: Path) -> list[str]:
    """The columns that the reader itself reads, as plain queries."""
    columns = SqliteFile(export).columns
    wanted = {
        nsys_sqlite.KERNEL: nsys_sqlite.KERNEL_COLUMNS,
        nsys_sqlite.RUNTIME: nsys_sqlite.CALL_COLUMNS,
        nsys_sqlite.NVTX: (*nsys_sqlite.RANGE_COLUMNS, "text"),
    }
    return [
        "SELECT " + ", ".join('"' + name + '"' for name in names if name in columns[table]) + " FROM " + table
        for table, names in wanted.items()
    ]


def main() -> None:
    """Build, alternate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    compiler = shutil.which("gcc") or shutil.which("cc") or sys.exit("needs a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        export, loop = Path(folder, "tiled.sqlite"), Path(folder, "step_loop")
        tile(SAMPLE, export, arguments.kernels)
        subprocess.run([compiler, "-O2", "-o", loop, HERE / "step_loop.c", "-lsqlite3"], check=True)
        print(f"{arguments.kernels:,} kernels, {export.stat().st_size / 1e6:.0f} MB, {os.cpu_count()} cores")
        loops, shows = [], []
        for run in range(arguments.runs):
            done = subprocess.run([loop, export, *queries(export)], check=True, capture_output=True, text=True)
            loops.append(float(re.match(r"[\d.]+", done.stdout)[0]))
            started = time.perf_counter()
            command = [sys.executable, "-m", "tracekit", "show", export, "--format", "json"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shows.append(time.perf_counter() - started)
            print(f"run {run + 1}: step loop {loops[-1]:.2f} s, tracekit show {shows[-1]:.2f} s")
        ratio = statistics.median(shows) / statistics.median(loops)
        print(f"medians: {statistics.median(loops):.2f} s and {statistics.median(shows):.2f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
