"""Compiles a workload's launches for sm_90 without a GPU, and prints what they use: ``sm90.py NAME DTYPE SHAPE...``.

The variants run as they stand, on meta tensors: their own constants, warps, stages and argument specialization reach
the compiler. It is a program of its own, since kernels that the interpreter runs cannot be compiled in that process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.base import Workload

ROOT = Path(__file__).parents[2]


def compile_all(workload: Workload, dtype: str) -> list[dict[str, Any]]:
    """What every launch of every Triton variant and shape uses; two processes share the shapes.

    One row a launch: variant, shape, kernel, grid, registers (a thread), frame (local memory, bytes a thread), shared
    (bytes a block), and how many asynchronous copies and matrix instructions of each kind it holds.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    shapes = [shape.name for shape in workload.shapes]
    half = (len(shapes) + 1) // 2
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, workload.name, dtype, *part],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for part in (shapes[:half], shapes[half:])
    ]  # fmt: skip
    rows = []
    for process in running:
        out, err = process.communicate()
        assert process.returncode == 0, err
        rows += json.loads(out)
    return rows


def _resources(cubin: bytes) -> dict[str, int]:
    import triton

    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [cuobjdump, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    return {"registers": used["REG"], "frame": max(used["STACK"], used["LOCAL"])}


def main(name: str, dtype: str, *shapes: str) -> None:
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from workloads.base import Kind, find, recorded_launches

    class NoDevice:
        """What Triton asks of a driver before it compiles, answered for an H200."""

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

    driver.set_active(NoDevice())
    workload = find(name)
    rows = []
    for shape in map(workload.shape, shapes):
        inputs = workload.inputs(shape, getattr(torch, dtype), "meta", 0)
        for variant in workload.variants:
            if variant.kind is not Kind.TRITON or variant.why_not(shape, dtype):
                continue
            with recorded_launches(execute=False) as launches:
                variant.run(variant.prepared(inputs))
            for launch in launches:
                compiled = launch.kernel.run(*launch.arguments, grid=launch.grid, warmup=True, **launch.options)
                instructions = compiled.asm["ptx"]
                rows.append(
                    {
                        "variant": variant.name,
                        "shape": shape.name,
                        "kernel": launch.kernel.__name__,
                        "grid": launch.grid,
                        "warps": compiled.metadata.num_warps,
                        "shared": compiled.metadata.shared,
                        **_resources(compiled.asm["cubin"]),
                        "cp.async": len(re.findall(r"cp\.async\.c[ag]", instructions)),
                        "wgmma": instructions.count("wgmma.mma_async"),
                        "mma": instructions.count("mma.sync"),
                    }
                )
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
