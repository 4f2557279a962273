"""Compiles a workload's launches for sm_90 in a process of its own: kernels that are interpreted cannot be compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.base import Workload

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import json, sys
from workloads.base import find
from workloads.resources import resources_of
workload = find(sys.argv[1])
rows = resources_of(workload, workload.variants, map(workload.shape, sys.argv[3:]), sys.argv[2], "sm_90")
print(json.dumps([vars(row) for row in rows]))
"""


def compile_all(workload: Workload, dtype: str) -> list[dict[str, Any]]:
    """What every launch of every Triton variant and shape uses, one row a launch; two processes share the shapes.

    The keys are those of :class:`workloads.resources.Resources`, with its instructions beside them.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    shapes = [shape.name for shape in workload.shapes]
    half = (len(shapes) + 1) // 2
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PROGRAM, workload.name, dtype, *part],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for part in (shapes[:half], shapes[half:])
    ]  # fmt: skip
    rows = []
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err
        for row in json.loads(out):
            shared = row["static_smem_bytes"] + row["dynamic_smem_bytes"]
            rows.append({**row, **row["instructions"], "frame": row["frame_bytes"], "shared": shared})
    return rows
