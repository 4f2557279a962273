"""The process that a profiler wraps: warm up, open the capture window, iterate annotated, record what ran."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.model.manifest import Manifest
from workloads.base import find, ranges_pushed
from workloads.files import may_write, write_json

if TYPE_CHECKING:
    from workloads.protocol import Session


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand ``run``."""
    parser = commands.add_parser(
        "run",
        help="run a variant inside a capture window, for a profiler to wrap",
        description="Warms a variant up, then runs its steps between cudaProfilerStart and cudaProfilerStop, each in "
        "an NVTX range of domain tracekit, and writes what it ran.",
    )
    parser.add_argument("name", metavar="WORKLOAD")
    parser.add_argument("--variant", help="default: the workload's baseline")
    parser.add_argument("--shape", help="default: the workload's first")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="steps in the window (default 20)")
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=False, help="run it as a CUDA graph")
    parser.add_argument("--timing", default="synchronized", help="synchronized (default) or pipelined")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--with-construction", action="store_true", help="capture the graph inside the window too, with its ranges"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what ran as a bundle's manifest.json")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the steps and prints their median; 0 where all went well."""
    import statistics

    from workloads.protocol import Session, Timing, capture_window, require_gpu

    workload = find(arguments.name)
    variant = workload.variant(arguments.variant or workload.baseline)
    shape = workload.shape(arguments.shape or workload.shapes[0].name)
    dtype = workload.dtype(arguments.dtype)
    if arguments.iterations < 1:
        raise UsageError(f"--iterations {arguments.iterations}", remedy="use at least 1")
    if arguments.timing not in ("synchronized", "pipelined"):
        raise UsageError(f"no timing is named {arguments.timing!r}", remedy="use one of: synchronized, pipelined")
    timing = Timing(arguments.timing)
    record: Path | None = arguments.record or (
        Path(os.environ["TRACEKIT_RECORD"]) if os.environ.get("TRACEKIT_RECORD") else None
    )
    if record is not None:
        may_write(record, force=True)
    require_gpu(f"{workload.name} ({variant.name})")
    if arguments.with_construction:
        # Libraries that start up inside the window make calls that a profiler older than CUDA does not know.
        Session(workload, variant, shape, dtype, seed=arguments.seed)
        with capture_window(True):
            before = ranges_pushed()
            session = Session(workload, variant, shape, dtype, seed=arguments.seed, graph=arguments.graph)
            times = session.latencies(arguments.iterations, timing)
            pushed = ranges_pushed() - before
    else:
        session = Session(workload, variant, shape, dtype, seed=arguments.seed, graph=arguments.graph)
        session.latencies(2, timing)  # The first annotated steps register their labels.
        with capture_window(True):
            before = ranges_pushed()
            times = session.latencies(arguments.iterations, timing)
            pushed = ranges_pushed() - before
    if record is not None:
        write_json(record, manifest_of(session, arguments.iterations, pushed))
    for phase, values in times.items():
        print(
            f"{workload.name} {variant.name} {shape.name} {dtype}{' graph' if arguments.graph else ''}: "
            f"{phase} {statistics.median(values):,.1f} us (median of {len(values)}, {timing}), "
            f"{pushed} ranges pushed in the window",
            file=sys.stderr,
        )
    return 0


def manifest_of(session: Session, iterations: int, pushed: int) -> dict[str, Any]:
    """The manifest of a bundle without its files."""
    from workloads.protocol import WARM_UP, compiled_kernels, conditions, environment

    name = f"{session.workload.name}-{session.variant.name}-{session.shape.name}{'-graph' if session.graph else ''}"
    steps = "step" if iterations == 1 else "steps"
    return Manifest(
        capture_id=name,
        workload=session.workload.name,
        variant=session.variant.name,
        description=f"{session.workload.doc}; {session.variant.doc}; {session.shape}; {iterations} {steps}",
        conditions=conditions(session),
        environment=environment(),
        ran={
            "iterations": iterations,
            "warmup": WARM_UP,
            "ranges_pushed": pushed,
            "roots": iterations,
            "baseline": session.workload.baseline,
            "root": str(session.root),
            "seed": session.seed,
            "shape": {"name": session.shape.name, "tokens": session.shape.tokens, **session.shape.dims},
            "lower_bound_bytes": session.workload.lower_bound_bytes(session.shape, element_bytes(session.dtype)),
            "flops": session.workload.flops(session.shape),
            "kernels": compiled_kernels(session.launches),
        },
    ).to_dict()


def element_bytes(dtype: str) -> int:
    """Bytes of an element of a dtype by its torch name."""
    from workloads.base import ELEMENT_BYTES

    return ELEMENT_BYTES[dtype]
