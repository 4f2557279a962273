"""Measures what RESULTS.md tells: ``python -m workloads.results measure -o results.json``, on a GPU.

The file is written anew after each section, so that a run that is cut short keeps what it has. ``traffic`` adds what
Nsight Compute measured; ``workloads.results_page`` writes the page.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tracekit.errors import TracekitError
from workloads import bench
from workloads.base import Kind, Shape, Tolerance, Variant, Workload, find
from workloads.files import read_json, write_json
from workloads.protocol import L2, Session, Timing, clocks, compiled_kernels, environment, require_gpu

Data = dict[str, Any]

FLASHNORM_WIDTHS: Final = ((576, 960), (2048, 3072), (4096, 6144))
UNTUNED_WIDTHS: Final = ((1024, 1536), (3072, 4608), (5120, 7680))
"""Widths that nobody looked at when the chooser was made."""
FLASHNORM_TOKENS: Final = (1, 16, 64, 256, 1024, 4096)
UNTUNED_TOKENS: Final = (1, 8, 48, 200, 800, 3000)
SPREAD: Final = (1, 16, 128, 1024, 4096, 8192)


# --- measuring -----------------------------------------------------------------------------------------------------


def _measured(workload: Workload, variants: Sequence[str], shapes: Iterable[Shape], **how: Any) -> Data:
    options: Data = {
        "blocks": 10, "iterations": 20, "graph": True, "l2": L2.WARM, "timings": [Timing.EVENTS], "steps_per_graph": 1,
    } | how  # fmt: skip
    samples, conditions = bench.measure(
        workload, [workload.variant(name) for name in variants], shapes, "bfloat16", **options
    )
    return {
        "workload": workload.name,
        "baseline": variants[0],
        "conditions": conditions,
        "protocol": {name: [*value] if name == "timings" else value for name, value in options.items()},
        "cells": _cells(samples),
    }


def _cells(samples: Sequence[Data]) -> list[Data]:
    """The samples by variant, shape, phase and timing: latencies in order of the blocks, and the range of clocks."""
    cells: dict[tuple[Any, ...], Data] = {}
    for sample in sorted(samples, key=lambda sample: (sample["process"], sample["block"])):
        identity = {name: sample[name] for name in ("variant", "shape", "tokens", "phase", "protocol")}
        cell = cells.setdefault(tuple(identity.values()), {**identity, "latency_us": [], "sm_clock_mhz": []})
        cell["latency_us"].append(sample["latency_us"])
        cell["sm_clock_mhz"].append(sample["sm_clock_mhz"])
    for cell in cells.values():
        known = [clock for clock in cell["sm_clock_mhz"] if clock is not None]
        cell["sm_clock_mhz"] = [min(known), max(known)] if known else None
    return list(cells.values())


def ratios_of(measured: Data) -> list[bench.Ratio]:
    """Every variant against the baseline of a measured section."""
    samples = [
        {**cell, "process": 0, "block": block, "latency_us": latency}
        for cell in measured["cells"]
        for block, latency in enumerate(cell["latency_us"])
    ]
    return bench.ratios(samples, measured["baseline"])


# What Nsight Compute was asked to replay: file stem -> (ranges of a prefill, ranges of a decode step) of one request,
# or None where the program has one kind of step only.
_REQUEST_RANGES: Final[dict[str, tuple[int, int]]] = {
    "decoder.layer1.eager": (1, 1), "decoder.layer1.fused": (1, 1),
    "decoder.swiglu_ffn.eager": (4, 4), "decoder.swiglu_ffn.fused": (4, 4),
    "decoder.residual_rmsnorm.eager": (8, 8), "decoder.residual_rmsnorm.fused": (8, 0),
}  # fmt: skip


def traffic_of(folder: Path) -> list[Data]:
    """DRAM bytes of ranges in the running program, from ncu CSV files of application-range replay, caches uncontrolled.

    Medians over the last three steps of a program, which has warmed up before.
    """
    from statistics import median

    import tracekit

    rows = []
    for path in sorted(folder.glob("*.csv")):
        (frame,) = tracekit.open_trace(path).counters
        prefill, decode = _REQUEST_RANGES.get(path.stem, (0, 1))
        step = prefill + decode
        for phase, first, count in (("prefill", 0, prefill), ("decode" if prefill else "iter", prefill, decode)):
            steps = [
                frame.iloc[at + first : at + first + count] for at in range(len(frame) - 3 * step, len(frame), step)
            ]
            if count:
                read, written = (
                    median(float(part[name].sum()) for part in steps)
                    for name in ("dram_read_bytes", "dram_write_bytes")
                )
                rows.append(
                    {"file": path.stem, "phase": phase, "ranges": count, "read_bytes": read, "write_bytes": written}
                )
    return rows


def _copy_workload(total_bytes: int) -> Workload:
    """A device-to-device copy that moves that many bytes, half of them read: the ceiling that memory sets."""
    elements = total_bytes // 4

    def inputs(_shape: Shape, dtype: Any, device: str, _seed: int) -> Data:
        import torch

        source = torch.empty(elements, dtype=dtype, device=device)
        return {"source": source if device == "meta" else source.normal_(), "target": torch.empty_like(source)}

    return Workload(
        name="copy", doc="device-to-device copy", baseline="copy",
        variants=(Variant("copy", "torch copy_", lambda inputs: inputs["target"].copy_(inputs["source"])),),
        shapes=(Shape("copy", 1, {"elements": elements}),), dtypes=("bfloat16",), inputs=inputs,
        reference=lambda inputs: inputs["source"], tolerances={"bfloat16": Tolerance(0)},
        lower_bound_bytes=lambda shape, size: 2 * shape.dims["elements"] * size, flops=lambda _: 0,
    )  # fmt: skip


def _with_liger(workload: Workload) -> Workload:
    """residual_rmsnorm with Liger-Kernel's fused kernel beside it, where that package is installed."""
    try:
        from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward
    except ImportError:
        return workload

    def run(inputs: Data) -> Any:
        normed, total, *_ = fused_add_rms_norm_forward(
            inputs["x"], inputs["residual"], inputs["weight"], 1e-5, 0.0, "llama"
        )
        return normed, total

    liger = Variant("liger", "Liger-Kernel's fused_add_rms_norm", run, kind=Kind.EAGER, needs_gpu=True)
    return replace(workload, variants=(*workload.variants, liger))


def _residual_rmsnorm() -> Data:
    workload = _with_liger(find("residual_rmsnorm"))
    shape = workload.shape("t8192_h4096")
    copy = _copy_workload(workload.lower_bound_bytes(shape, 2))
    names = ["eager", "torch_rms_norm", "compiled", *(["liger"] if workload.variants[-1].name == "liger" else [])]
    return {
        "copy": _measured(copy, ["copy"], copy.shapes, l2=L2.FLUSHED),
        "large": _measured(workload, [*names, "triton"], [shape], l2=L2.FLUSHED),
        "small": _measured(workload, [*names, "triton"], [workload.shape("t1_h4096")], steps_per_graph=20),
        "bound_bytes": workload.lower_bound_bytes(shape, 2),
    }


def _swiglu_ffn() -> Data:
    workload = find("swiglu_ffn")
    one = ["eager", "merged", "two_kernel", "two_kernel_cublas", "one_kernel", "one_kernel_spilling"]
    shape = workload.shape("t1_h4096_f14336")
    return {
        "decode": _measured(workload, one, [shape], steps_per_graph=4),
        "recompute": _measured(workload, ["eager", "one_kernel_recompute"], [shape], blocks=5, iterations=5),
        "small": _measured(
            workload, [*one, "one_kernel_recompute"], [workload.shape("t1_h576_f1536")], steps_per_graph=20, blocks=5
        ),
        "sweep": _measured(
            workload, ["eager", "merged", "two_kernel"], [shape.with_tokens(tokens) for tokens in SPREAD],
            blocks=5, iterations=10, steps_per_graph=2,
        ),
        "bound_bytes": workload.lower_bound_bytes(shape, 2),
    }  # fmt: skip


def _flashnorm_linear() -> Data:
    workload = find("flashnorm_linear")
    variants = ["torch_rms_norm", "deferred", "chosen", "folded"]

    def grid(widths: Any, tokens: Any) -> list[Shape]:
        return [workload.shape(f"t{count}_h{hidden}_o{out}") for hidden, out in widths for count in tokens]

    how: Data = {"steps_per_graph": 20, "blocks": 10, "iterations": 10}
    return {
        "tuned": _measured(workload, variants, grid(FLASHNORM_WIDTHS, FLASHNORM_TOKENS), **how),
        "untuned": _measured(workload, variants[:3], grid(UNTUNED_WIDTHS, UNTUNED_TOKENS), **how),
    }


def _quantized_linear() -> Data:
    workload = find("quantized_linear")
    variants = ["bf16", "dequantize", "fused_int4", "dequantize_fp8", "fused_fp8"]
    return {
        "decode": _measured(
            workload, variants, [workload.shape(name) for name in ("t1_h4096_o14336", "t1_h14336_o4096")],
            l2=L2.ROTATED, steps_per_graph=12,
        ),
        "batch": _measured(
            workload, variants, [workload.shape("t1_h4096_o14336").with_tokens(tokens) for tokens in (16, 128, 1024)],
            l2=L2.ROTATED, steps_per_graph=12, blocks=5, iterations=10,
        ),
    }  # fmt: skip


def _decoder() -> Data:
    workload = find("decoder")
    how: Data = {"timings": [Timing.SYNCHRONIZED], "iterations": 3, "blocks": 5}
    small, out = workload.shape("smollm2_t16_n32"), {}
    for graph in (False, True):
        mode = "graph" if graph else "no graph"
        out[f"smollm2, {mode}"] = _measured(workload, ["eager", "compiled", "fused"], [small], graph=graph, **how)
    shapes = [workload.shape(name) for name in ("smollm2_t1024_n4", "llama8b_t128_n8_l4", "llama8b_t2048_n4_l4")]
    out["larger, graph"] = _measured(workload, ["eager", "fused"], shapes, graph=True, **how)
    return out


def _text() -> Data:
    from workloads.models import text

    found = text.distances(["eager", "fused"], "bfloat16", device="cuda", count=4, length=1024)
    found += text.distances(["eager", "fused"], "float16", device="cuda", count=2, length=1024)
    found += text.distances(["eager", "fused"], "bfloat16", device="cuda", count=1, length=512, path="decode")
    return {
        "prompt": text.PROMPT,
        "answers": {name: text.complete(text.PROMPT, make, "bfloat16", "cuda") for name, make in text.MODELS.items()},
        "distances": [vars(each) for each in found],
        "checks": [
            {"check": check, "error": error, "tolerance": tolerance, "passed": error <= tolerance}
            for check, error, tolerance in text.gate(found)
        ],
    }


COMPILED_SHAPES: Final = {
    "residual_rmsnorm": ("t1_h4096", "t8192_h4096", "t1024_h32768"),
    "swiglu_ffn": ("t1_h4096_f14336", "t16_h4096_f14336", "t128_h4096_f14336", "t2048_h4096_f14336"),
    "flashnorm_linear": ("t1_h4096_o6144", "t16_h2048_o3072", "t1024_h4096_o6144"),
    "quantized_linear": ("t1_h4096_o14336", "t16_h4096_o14336"),
    "decoder": ("llama8b_t128_n2_l4",),
}
"""Where what the GPU's driver says of a kernel is compared with what `resources` says without a GPU."""


def _compiled() -> Data:
    """What the driver says of every Triton kernel, as loaded."""
    rows = []
    for name, shapes in COMPILED_SHAPES.items():
        workload = find(name)
        for variant in workload.variants:
            for shape in map(workload.shape, shapes):
                if variant.kind is Kind.TRITON and variant.why_not(shape, "bfloat16") is None:
                    session = Session(workload, variant, shape, "bfloat16")
                    rows += [
                        {"workload": name, "variant": variant.name, "shape": shape.name, **kernel}
                        for kernel in compiled_kernels(session.launches)
                    ]
    return {"kernels": rows}


SECTIONS: Final[dict[str, Callable[[], Data]]] = {
    "residual_rmsnorm": _residual_rmsnorm,
    "swiglu_ffn": _swiglu_ffn,
    "flashnorm_linear": _flashnorm_linear,
    "quantized_linear": _quantized_linear,
    "decoder": _decoder,
    "text": _text,
    "compiled": _compiled,
}


def measure(output: Path, sections: Sequence[str], date: str) -> int:
    """Runs sections, writing the file after each; 1 where one failed."""
    import torch

    require_gpu("results")
    state = clocks()
    data: Data = {
        "date": date,
        "gpu": torch.cuda.get_device_name(),
        "environment": environment(),
        "state_at_start": vars(state) if state else None,
        "seconds": {},
        "failed": {},
    }
    if output.exists():
        data = {**read_json(output, "results of another run"), **data}
    for name in sections:
        start = time.perf_counter()
        try:
            data[name] = SECTIONS[name]()
        except Exception as error:  # Hours of other sections must not be lost to one.
            traceback.print_exc()
            data["failed"][name] = str(error)[:500]
        data["seconds"][name] = round(time.perf_counter() - start, 1)
        print(f"{name}: {data['seconds'][name]} s", file=sys.stderr, flush=True)
        write_json(output, data)
    return 1 if data["failed"] else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m workloads.results", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    measuring = commands.add_parser("measure")
    measuring.add_argument("-o", "--output", type=Path, required=True)
    measuring.add_argument("--sections", default=",".join(SECTIONS))
    measuring.add_argument("--date", default=time.strftime("%Y-%m-%d"))
    adding = commands.add_parser("traffic", help="add what Nsight Compute measured, from a folder of its CSV files")
    adding.add_argument("folder", type=Path)
    adding.add_argument("results", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "measure":
            return measure(chosen.output, chosen.sections.split(","), chosen.date)
        data = read_json(chosen.results, "results that `measure` wrote")
        write_json(chosen.results, {**data, "traffic": traffic_of(chosen.folder)})
        return 0
    except TracekitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
