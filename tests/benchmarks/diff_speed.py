"""Times ``tracekit diff`` of two 1M-kernel exports against ``tracekit show`` of each, alternating in one run.

``python tests/benchmarks/diff_speed.py [--kernels N] [--runs N]``; prints the seconds of each and the ratio of the
median diff to the median show.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tile import tile

SAMPLES = Path(__file__).parents[1] / "captures"


def seconds(*arguments: object) -> float:
    """How long a command of tracekit takes."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "tracekit", *map(str, arguments), "--format", "json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Build, alternate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base, test = (Path(folder, f"{name}.sqlite") for name in ("decode_unfused", "decode_fused"))
        for export in (base, test):
            tile(SAMPLES / export.stem / "timeline.sqlite", export, arguments.kernels)
        print(f"{arguments.kernels:,} kernels a side, {os.cpu_count()} cores")
        shows, diffs = [], []
        for run in range(arguments.runs):
            shows += [seconds("show", base), seconds("show", test)]
            diffs.append(seconds("diff", base, test))
            print(f"run {run + 1}: show {shows[-2]:.2f} s and {shows[-1]:.2f} s, diff {diffs[-1]:.2f} s")
        ratio = statistics.median(diffs) / statistics.median(shows)
        print(
            f"medians: show {statistics.median(shows):.2f} s, diff {statistics.median(diffs):.2f} s, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
