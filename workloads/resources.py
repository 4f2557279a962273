"""Compiles a workload's Triton kernels for an architecture without a GPU, and tells what each launch uses.

The variants run as they stand on ``meta`` tensors: their own constants, warps, stages and argument specialization
(16-byte divisibility) reach the compiler. Without the specialization registers differ: one kernel had 128 and not 69.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracekit.errors import UsageError
from tracekit.model.labels import DOMAIN, RootLabel
from workloads.base import (
    Kind,
    Launch,
    Shape,
    Variant,
    Workload,
    assumed_multiprocessors,
    find,
    recorded_launches,
    registry,
)
from workloads.files import chosen, may_write, write_text

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

WARP_THREADS: Final = 32
RESERVED_SMEM_BYTES: Final = 1024
"""What the driver keeps of each block's shared memory. From sm_90 on a cubin counts it as the kernel's own."""


@dataclass(frozen=True)
class Architecture:
    """A target, and the GPU whose multiprocessors a persistent grid is laid out for."""

    capability: int
    gpu: str
    multiprocessors: int


# Multiprocessors as NVIDIA's data sheets give them.
ARCHITECTURES: Final[dict[str, Architecture]] = {
    "sm_75": Architecture(75, "T4", 40),
    "sm_80": Architecture(80, "A100", 108),
    "sm_86": Architecture(86, "A10", 72),
    "sm_89": Architecture(89, "L40S", 142),
    "sm_90": Architecture(90, "H100 SXM, H200", 132),
    "sm_100": Architecture(100, "B200", 148),
    "sm_120": Architecture(120, "RTX 5090", 170),
}


@dataclass(frozen=True)
class Resources:
    """What one launch uses: registers and local memory (bytes) a thread, shared memory (bytes) a block.

    ``labels`` is the region, ``frame_bytes`` the local memory that the compiler set aside: spilled registers and
    arrays. ``instructions`` counts asynchronous copies and matrix instructions in the PTX.
    """

    workload: str
    variant: str
    shape: str
    dtype: str
    arch: str
    labels: tuple[str, ...]
    kernel: str
    grid: tuple[int, int, int]
    warps: int
    registers: int
    frame_bytes: int
    static_smem_bytes: int
    dynamic_smem_bytes: int
    cluster_blocks: int
    instructions: dict[str, int]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP_THREADS * self.warps


def resources_of(
    workload: Workload, variants: Iterable[Variant], shapes: Iterable[Shape], dtype: str, arch: str
) -> list[Resources]:
    """What every launch of those variants and shapes uses, one row a launch, compiled for ``arch`` (``sm_90``).

    Raises UsageError where the architecture is unknown or a kernel cannot be compiled for it, and where this process
    interprets Triton's kernels.
    """
    import torch

    if os.environ.get("TRITON_INTERPRET") == "1":
        raise UsageError(
            "TRITON_INTERPRET is set, so Triton's kernels are interpreted and not compiled",
            remedy="unset it and run again",
        )
    if arch not in ARCHITECTURES:
        raise UsageError(f"no architecture is named {arch!r}", remedy=f"use one of: {', '.join(ARCHITECTURES)}")
    target = ARCHITECTURES[arch]
    _compile_for(target.capability)
    rows = []
    for shape in shapes:
        for variant in variants:
            if variant.kind is not Kind.TRITON or variant.why_not(shape, dtype):
                continue
            with assumed_multiprocessors(target.multiprocessors):
                prepared = variant.prepared(workload.inputs(shape, getattr(torch, dtype), "meta", 0))
                with recorded_launches(execute=False) as launches:
                    variant.run(prepared)
            root = str(RootLabel(variant.name, shape.tokens, workload.phase))
            for launch in launches:
                where = f"{launch.kernel.__name__} ({workload.name}, {variant.name}, {shape.name}, {dtype})"
                registers, frame, static, dynamic, warps, clusters, instructions = _compiled(launch, arch, where)
                rows.append(
                    Resources(
                        workload.name,
                        variant.name,
                        shape.name,
                        dtype,
                        arch,
                        (root, *launch.labels),
                        launch.kernel.__name__,
                        _three(launch.grid),
                        warps,
                        registers,
                        frame,
                        static,
                        dynamic,
                        clusters,
                        instructions,
                    )
                )
    return rows


def _compile_for(capability: int) -> None:
    """Answers what Triton asks of a driver before it compiles, so that it compiles for ``capability``."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class NoDevice:
        def get_current_device(self) -> int:
            return capability  # Triton caches by device: another architecture is another one.

        def get_current_stream(self, _device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", capability, WARP_THREADS)

    driver.set_active(NoDevice())


def _compiled(launch: Launch, arch: str, where: str) -> tuple[int, int, int, int, int, int, dict[str, int]]:
    try:
        kernel = launch.kernel.run(*launch.arguments, grid=launch.grid, warmup=True, **launch.options)
    except Exception as error:  # Triton's compiler raises whatever its passes raise.
        reason = str(error).strip().splitlines()
        raise UsageError(
            f"{where} does not compile for {arch}: {reason[0] if reason else type(error).__name__}",
            remedy="leave that architecture, variant or shape out",
        ) from error
    used = _cubin_usage(kernel.asm["cubin"])
    ptx = kernel.asm["ptx"]
    instructions = {
        "cp.async": len(re.findall(r"cp\.async\.c[ag]", ptx)),
        "wgmma": ptx.count("wgmma.mma_async"),
        "mma": ptx.count("mma.sync"),
    }
    clusters = 1
    for size in getattr(kernel.metadata, "cluster_dims", (1, 1, 1)):
        clusters *= size
    # Triton asks for its shared memory at the launch; what the cubin holds besides is static.
    reserved = RESERVED_SMEM_BYTES if ARCHITECTURES[arch].capability >= 90 else 0
    return (
        used["REG"], max(used["STACK"], used["LOCAL"]), max(0, used["SHARED"] - reserved), kernel.metadata.shared,
        kernel.metadata.num_warps, clusters, instructions,
    )  # fmt: skip


@cache
def _cubin_usage(cubin: bytes) -> dict[str, int]:
    """What ``cuobjdump --dump-resource-usage`` says of a cubin with one kernel."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        ended = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True)
    used = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", ended.stdout)}
    if ended.returncode or used.keys() != {"REG", "STACK", "LOCAL", "SHARED"}:
        raise UsageError(
            f"{tool.name} of Triton's own package did not tell what a kernel uses: {ended.stderr.strip()[:200]}",
            remedy="install a Triton wheel that bundles it",
        )
    return used


def _three(grid: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


# --- the table that tracekit reads ---------------------------------------------------------------------------------

_PUSH_POP: Final = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_METRICS: Final = {
    "launch__registers_per_thread": "register/thread",
    "compiled__frame_bytes_per_thread": "byte",
    "launch__shared_mem_per_block_static": "byte/block",
    "launch__shared_mem_per_block_dynamic": "byte/block",
    "launch__cluster_size": "",
    "launch__sm_count": "SM",
    "device__attribute_display_name": "",
}


def counters_csv(rows: Sequence[Resources]) -> str:
    """The rows in the form of Nsight Compute's raw page, which ``tracekit show`` and ``diff`` take.

    Metrics that only a run can tell are absent. ``compiled__frame_bytes_per_thread`` is no metric of Nsight Compute.
    """
    identity = ["ID", "Process ID", "Process Name", "Host Name", _PUSH_POP, "Kernel Name", "Context", "Stream"]
    identity += ["Block Size", "Grid Size", "Device", "CC"]
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*identity, *_METRICS])
    writer.writerow([""] * len(identity) + list(_METRICS.values()))
    for number, row in enumerate(rows):
        target = ARCHITECTURES[row.arch]
        stack = "".join(f' "{DOMAIN}:{label}:none:none:none:none:REGISTERED:{label}" ' for label in row.labels)
        writer.writerow(
            [
                number, 1, "workloads", "", f"1 {stack}", row.kernel, 1, 7, f"({row.threads}, 1, 1)",
                f"({row.grid[0]}, {row.grid[1]}, {row.grid[2]})", 0, f"{target.capability / 10:.1f}",
                row.registers, row.frame_bytes, row.static_smem_bytes, row.dynamic_smem_bytes,
                row.cluster_blocks if row.cluster_blocks > 1 else 0, target.multiprocessors, target.gpu,
            ]
        )  # fmt: skip
    return out.getvalue()


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand ``resources``."""
    parser = commands.add_parser(
        "resources",
        help="compile the Triton kernels without a GPU: registers, spills, shared memory",
        description="Compiles every Triton kernel of a workload for an architecture, without a GPU, and writes "
        "registers, local memory, shared memory and cluster size of each launch as a counters table: "
        "`tracekit show FILE` adds the active blocks and what limits them.",
    )
    parser.add_argument("name", metavar="WORKLOAD", help="or `all`")
    parser.add_argument("--arch", default="sm_90", help=f"comma-separated, of {', '.join(ARCHITECTURES)}")
    parser.add_argument("--variants", help="comma-separated; default: all with Triton kernels")
    parser.add_argument("--shapes", help="comma-separated; default: all")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE",
        help="write the CSV there; of several architectures one file each, with its name before the suffix",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compiles, writes the table, and prints it for people where it goes to a file."""
    workloads = list(registry().values()) if arguments.name == "all" else [find(arguments.name)]
    arches = chosen(arguments.arch, list(ARCHITECTURES), "architecture")
    if arguments.name == "all" and (arguments.variants or arguments.shapes):
        raise UsageError("--variants and --shapes are of one workload", remedy="name the workload, not `all`")
    if len(arches) > 1 and not arguments.output:
        raise UsageError(
            "the tables of several architectures do not fit one output: a capture is of one GPU",
            remedy="name a file with -o, which gives one file an architecture",
        )
    output: Path | None = arguments.output
    paths = {arch: output.with_name(f"{output.stem}.{arch}{output.suffix}") for arch in arches} if output else {}
    if output and len(arches) == 1:
        paths = {arches[0]: output}
    for path in paths.values():
        may_write(path, force=arguments.force)
    for arch in arches:
        rows = []
        for workload in workloads:
            names = [variant.name for variant in workload.variants if variant.kind is Kind.TRITON]
            variants = [workload.variant(name) for name in chosen(arguments.variants, names, "variant with kernels")]
            shapes = [workload.shape(n) for n in arguments.shapes.split(",")] if arguments.shapes else workload.shapes
            rows += resources_of(workload, variants, shapes, workload.dtype(arguments.dtype), arch)
        text = counters_csv(rows)
        if arch not in paths:
            sys.stdout.write(text)
            continue
        write_text(paths[arch], text)
        print(f"{paths[arch]}: {len(rows)} launches for {arch} ({ARCHITECTURES[arch].gpu})")
        for line in table(rows):
            print(line)
    return 0


def table(rows: Sequence[Resources]) -> list[str]:
    """The rows as lines of text, each configuration once."""
    header = f"{'variant':<22} {'shape':<20} {'kernel':<28} {'grid':>14} {'threads':>7} "
    header += f"{'registers':>9} {'frame':>8} {'shared':>9}"
    lines = [
        f"{row.variant:<22} {row.shape:<20} {row.kernel:<28} {'x'.join(map(str, row.grid)):>14} {row.threads:>7} "
        f"{row.registers:>9} {row.frame_bytes:>6} B {row.static_smem_bytes + row.dynamic_smem_bytes:>7} B"
        for row in rows
    ]
    return [header, *dict.fromkeys(lines)]
