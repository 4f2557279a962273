"""Writes RESULTS.md from what was measured: every figure comes from results.json, none from here.

``python -m workloads.results_page workloads/results.json -o workloads/RESULTS.md`` needs no GPU; with Triton it
compiles the kernels anew, to compare them with what the GPU's driver said.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tracekit.errors import TracekitError
from workloads.base import find
from workloads.bench import Ratio
from workloads.files import read_json, write_text
from workloads.results import COMPILED_SHAPES, FLASHNORM_TOKENS, UNTUNED_TOKENS, ratios_of

Data = dict[str, Any]
Row = Sequence[str]

COPY_SHARE, OVER_EAGER, INT4_SPEEDUP, FASTER_SHAPES, SLOWER_BY = 0.92, 1.05, 2.5, 10, 1.01
FLOOR_MULTIPLE: Final = 8
SMOLLM2_WEIGHT_BYTES: Final = 2 * 134_515_008
"""Of SmolLM2-135M in 16 bits: what a decode step must read."""


def page(data: Data) -> str:
    """RESULTS.md as text."""
    versions = ", ".join(f"{name} {version}" for name, version in data["environment"].items())
    parts = [
        "# What the workloads measure\n",
        "Written by `python -m workloads.results_page workloads/results.json -o workloads/RESULTS.md`; measured by "
        "`python -m workloads.results measure`, and the DRAM bytes by Nsight Compute. Do not edit it by hand.\n",
        f"{data['gpu']}, {data['date']}; {versions}. Data type bfloat16 where none is named. Latencies are medians "
        "over ten interleaved blocks in random order (five where a note says so), intervals 95 % bootstraps over "
        "blocks. "
        "Single operations are timed by CUDA events under a CUDA graph on both sides, requests by the wall clock with "
        "every phase waited for. A ratio below 1 is faster than the baseline that the table names.\n",
        "## Targets\n",
        _table(("claim", "target", "measured", ""), _targets(data)),
        *_residual(data), *_swiglu(data), *_flashnorm(data), *_quantized(data), *_decoder(data), *_text(data),
        *_traffic(data), *_resources(data),
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


def _ratios(measured: Data) -> dict[tuple[str, str, str], Ratio]:
    """By variant, shape and phase."""
    return {(ratio.variant, ratio.shape, ratio.phase): ratio for ratio in ratios_of(measured)}


def _median(measured: Data, variant: str, shape: str, phase: str = "iter") -> float:
    return _ratios(measured)[variant, shape, phase].median_us


def _targets(data: Data) -> Iterator[Row]:
    residual, ffn = data["residual_rmsnorm"], data["swiglu_ffn"]["decode"]
    large, shape = residual["large"], "t8192_h4096"
    copy, fused = _median(residual["copy"], "copy", "copy"), _median(large, "triton", shape)
    yield _target(
        "residual_rmsnorm, 8192 x 4096, L2 flushed: share of the copy's bandwidth in the same run",
        f"at least {COPY_SHARE:.0%}", f"{copy / fused:.1%}", copy / fused >= COPY_SHARE,
    )  # fmt: skip
    for rival in ("compiled", "liger"):
        if (rival, shape, "iter") in _ratios(large):
            ratio = fused / _median(large, rival, shape)
            yield _target(f"the same over {rival}", "at most 1.00x", f"{ratio:.3f}x", ratio <= 1)
    shape = "t1_h4096_f14336"
    eager, merged, two, one = (_median(ffn, name, shape) for name in ("eager", "merged", "two_kernel", "one_kernel"))
    yield _target(
        f"swiglu_ffn, one token, 8B shapes: two_kernel against the eager chain ({eager:.1f} us)",
        f"at least {OVER_EAGER}x as fast", f"{eager / two:.3f}x ({two:.1f} us)", eager / two >= OVER_EAGER,
    )  # fmt: skip
    yield _target("two_kernel against merged", "at least 1x as fast", f"{merged / two:.3f}x", merged >= two)
    yield _target("one_kernel against eager (a stretch)", "1x as fast", f"{eager / one:.3f}x", eager >= one)
    tuned = _ratios(data["flashnorm_linear"]["tuned"])
    raw = [ratio for (variant, _, _), ratio in tuned.items() if variant == "deferred"]
    faster = [ratio for ratio in raw if ratio.verdict == "faster"]
    yield _target(
        "flashnorm_linear: shapes on which the one kernel is faster than norm + the library's product",
        f"at least {FASTER_SHAPES} of {len(raw)}", f"{len(faster)} of {len(raw)}", len(faster) >= FASTER_SHAPES,
    )  # fmt: skip
    for name, where in (("tuned", "on the shapes that the chooser was fitted to"), ("untuned", "on shapes it was not")):
        chosen = [r for (v, _, _), r in _ratios(data["flashnorm_linear"][name]).items() if v == "chosen"]
        worst = max(chosen, key=lambda ratio: ratio.ratio)
        slower = [ratio for ratio in chosen if ratio.ratio > SLOWER_BY]
        yield _target(
            f"the chosen variant {where}: more than 1 % slower", f"0 of {len(chosen)}",
            f"{len(slower)} of {len(chosen)} (worst {worst.ratio:.3f}x, {worst.shape})", not slower,
        )  # fmt: skip
    decode, shape = data["quantized_linear"]["decode"], "t1_h4096_o14336"
    speedup = _median(decode, "bf16", shape) / _median(decode, "fused_int4", shape)
    yield _target(
        "quantized_linear int4, one token, 4096 x 14336, weights rotated through more than the L2, against bf16",
        f"at least {INT4_SPEEDUP}x as fast", f"{speedup:.2f}x", speedup >= INT4_SPEEDUP,
    )  # fmt: skip
    small = "smollm2_t16_n32"
    plain, graph = data["decoder"]["smollm2, no graph"], data["decoder"]["smollm2, graph"]
    fused, eager = _median(graph, "fused", small, "decode"), _median(graph, "eager", small, "decode")
    unfused = _median(plain, "eager", small, "decode")
    bandwidth = _copy_bandwidth(data)
    floor = SMOLLM2_WEIGHT_BYTES / bandwidth * 1e6
    yield _target(
        f"decoder SmolLM2, fused + graph, a token: {eager / fused:.1f}x as fast as eager + graph, "
        f"{unfused / fused:.1f}x as eager; over the floor of {floor:.0f} us that reading the weights takes",
        f"within {FLOOR_MULTIPLE}x", f"{fused / floor:.1f}x ({fused:.1f} us)", fused / floor <= FLOOR_MULTIPLE,
    )  # fmt: skip


def _copy_bandwidth(data: Data) -> float:
    """Bytes a second of the measured copy."""
    residual = data["residual_rmsnorm"]
    return float(residual["bound_bytes"]) / _median(residual["copy"], "copy", "copy") * 1e6


def _target(claim: str, target: str, measured: str, met: bool) -> Row:
    return claim, target, measured, "met" if met else "**missed**"


def _residual(data: Data) -> Iterator[str]:
    residual = data["residual_rmsnorm"]
    copy = _median(residual["copy"], "copy", "copy")
    yield "## residual_rmsnorm\n"
    yield (
        f"A copy that moves the same {residual['bound_bytes'] / 1e6:,.1f} MB took {copy:.1f} us "
        f"({_copy_bandwidth(data) / 1e12:.2f} TB/s). At 8,192 tokens the L2 is flushed before every step; at one token "
        "it is warm, and 20 steps share a graph.\n"
    )
    yield _latencies([residual["large"], residual["small"]], "eager")


def _swiglu(data: Data) -> Iterator[str]:
    ffn = data["swiglu_ffn"]
    yield "## swiglu_ffn\n"
    yield (
        f"The bound of one token at 8B shapes is {ffn['bound_bytes'] / 1e6:,.1f} MB, "
        f"{ffn['bound_bytes'] / _copy_bandwidth(data) * 1e6:.1f} us at the bandwidth of the copy, which "
        "writes as much as it reads: reading alone can be faster. What bounds each variant: eager and merged by the "
        "library's matrix-vector kernels and their launches; two_kernel and one_kernel by DRAM; "
        "one_kernel_recompute by its grid of 128 blocks that compute the whole intermediate row each; "
        "one_kernel_spilling by 56 blocks on 132 SMs and by spill traffic (below). The recompute row and everything "
        "but 8B shapes at one token have five blocks.\n"
    )
    yield _latencies([ffn["decode"], ffn["recompute"], ffn["small"]], "eager")
    yield "Over tokens, where fusing gate, up and activation stops paying:\n"
    yield _latencies([ffn["sweep"]], "eager")


def _flashnorm(data: Data) -> Iterator[str]:
    yield "## flashnorm_linear\n"
    yield (
        "Ratios to `torch.nn.functional.rms_norm` + the library's product, the same graph mode on both sides. From "
        "some tokens on the one kernel loses, since Triton's product reaches two thirds of the library's rate there. "
        "The "
        "chooser that was measured used the one kernel up to 512 tokens at n <= 1024; the two shapes of width 1024 on "
        "which that was slower made us draw the line at 576, which was not measured again.\n"
    )
    for name, tokens in (("tuned", FLASHNORM_TOKENS), ("untuned", UNTUNED_TOKENS)):
        ratios = ratios_of(data["flashnorm_linear"][name])
        widths = list(dict.fromkeys(ratio.shape.split("_", 1)[1] for ratio in ratios))
        rows = []
        for variant in dict.fromkeys(ratio.variant for ratio in ratios if ratio.variant != "torch_rms_norm"):
            for width in widths:
                cells = {r.tokens: r for r in ratios if r.variant == variant and r.shape.endswith(width)}
                rows.append([variant, width, *(f"{cells[count].ratio:.3f}x" for count in tokens)])
        yield f"{'Fitted' if name == 'tuned' else 'Not fitted'} shapes, by tokens:\n"
        yield _table(("variant", "widths", *(f"{count:,}" for count in tokens)), rows)


def _quantized(data: Data) -> Iterator[str]:
    yield "## quantized_linear\n"
    yield (
        "Weights are rotated through more than the L2. With more than one token the fused kernels lose to bf16: each "
        "program converts its tile of the weight again for every tile of tokens, and the conversion is not overlapped "
        "with the product.\n"
    )
    yield _latencies([data["quantized_linear"]["decode"], data["quantized_linear"]["batch"]], "bf16")


def _decoder(data: Data) -> Iterator[str]:
    yield "## decoder\n"
    yield (
        "Prefill is the time to the first token, decode the time per output token, request the whole; five blocks of "
        "three requests. llama8b has 4 of its 32 layers, with random weights, and the whole head.\n"
    )
    rows = []
    for mode, measured in data["decoder"].items():
        for ratio in sorted(ratios_of(measured), key=lambda r: (r.shape, r.phase, r.variant)):
            rows.append((mode.split(", ")[1], *_cells_of(ratio)))
    yield _table(("graph", "shape", "variant", "phase", "median", "to eager", "interval"), rows)


def _text(data: Data) -> Iterator[str]:
    from workloads.models.text import Distance, gate

    text = data["text"]
    found = [Distance(**each) for each in text["distances"]]
    yield "## Quality of SmolLM2\n"
    answers = {answer.strip().splitlines()[0] for answer in text["answers"].values()}
    yield (
        f'"{text["prompt"]}" is continued with "{", ".join(sorted(answers))}" by {" and ".join(text["answers"])}. '
        "Below, real text (Python's own documentation) against eager float32.\n"
    )
    yield _table(
        ("variant", "dtype", "path", "tokens", "mean KL", "p99 KL", "same first choice", "perplexity", "float32's"),
        [
            (d.variant, d.dtype, d.path, f"{d.tokens:,}", f"{d.mean_kl:.3g}", f"{d.p99_kl:.3g}",
             f"{d.top1_agreement:.2%}", f"{d.perplexity:.4f}", f"{d.reference_perplexity:.4f}")
            for d in found
        ],
    )  # fmt: skip
    yield _table(
        ("check", "error", "tolerance", ""),
        [
            (check, f"{error:.3g}", f"{tolerance:.3g}", "passed" if error <= tolerance else "**failed**")
            for check, error, tolerance in gate(found)
        ],
    )


def _traffic(data: Data) -> Iterator[str]:
    yield "## DRAM bytes in the running program\n"
    yield (
        "Nsight Compute, application-range replay over the NVTX range, caches uncontrolled; medians of three steps "
        "after warm-up, summed over the ranges of one phase. The decoder is llama8b with 4 layers at 2,048 tokens: "
        "layer1 is one layer, residual_rmsnorm and swiglu_ffn are of all four. A fused decode step has no "
        "residual_rmsnorm: the addition is in the product before it, and the norm in the one behind.\n"
    )
    by_operation: dict[tuple[str, str], list[Data]] = {}
    for row in data["traffic"]:
        operation = row["file"].rsplit(".", 1)[0]
        by_operation.setdefault((operation, row["phase"]), []).append(row)
    rows = []
    for (operation, phase), found in by_operation.items():
        bound = _bound(operation, phase)
        for row in found:
            total = row["read_bytes"] + row["write_bytes"]
            rows.append(
                (
                    operation, phase, row["file"].rsplit(".", 1)[1], f"{row['ranges']}",
                    f"{row['read_bytes'] / 1e6:,.1f} MB", f"{row['write_bytes'] / 1e6:,.1f} MB",
                    "–" if bound is None else f"{bound / 1e6:,.1f} MB",
                    "–" if bound is None else f"{total / bound:.2f}x",
                )
            )  # fmt: skip
    yield _table(("operation", "phase", "variant", "ranges", "read", "written", "lower bound", "of it"), rows)
    yield (
        "A total below its bound stayed in the L2 in part: the bound counts a cold cache. The bound of a layer is not "
        "given, since attention's share has none here.\n"
    )


def _bound(operation: str, phase: str) -> int | None:
    """The lower bound of an operation's HBM bytes at the shape that was profiled."""
    shapes = {
        "flashnorm_linear": "t1024_h4096_o6144", "quantized_linear": "t1_h4096_o14336", "swiglu_ffn": "t1_h4096_f14336",
    }  # fmt: skip
    if operation in shapes:
        workload = find(operation)
        return workload.lower_bound_bytes(workload.shape(shapes[operation]), 2)
    tokens = 2048 if phase == "prefill" else 1
    if operation == "decoder.swiglu_ffn":
        workload = find("swiglu_ffn")
        return 4 * workload.lower_bound_bytes(workload.shape(f"t{tokens}_h4096_f14336"), 2)
    if operation == "decoder.residual_rmsnorm":
        workload = find("residual_rmsnorm")
        return 8 * workload.lower_bound_bytes(workload.shape(f"t{tokens}_h4096"), 2)
    return None


def _resources(data: Data) -> Iterator[str]:
    yield "## Compiled without a GPU, and on it\n"
    gpu = {
        (row["workload"], row["variant"], row["shape"], row["name"], tuple(row["grid"])): row
        for row in data["compiled"]["kernels"]
    }
    cpu = _compiled_here()
    if cpu is None:
        yield "Not compared: Triton is not installed where this page was written.\n"
        return
    keys = [key for key in gpu if key in cpu]
    differing = [
        key for key in keys
        if (gpu[key]["registers"], gpu[key]["frame_bytes"] > 0, gpu[key]["shared_bytes"])
        != (cpu[key].registers, cpu[key].frame_bytes > 0, cpu[key].dynamic_smem_bytes)
    ]  # fmt: skip
    version = importlib.import_module("triton").__version__
    yield (
        f"`resources` for sm_90 with Triton {version} on a machine without a GPU, against what the GPU's driver says "
        f"of the kernels of the same launches (Triton {data['environment'].get('triton', 'unknown')}): registers, "
        f"spills "
        f"yes or no, and shared memory agree for {len(keys) - len(differing)} of {len(keys)} launches. "
        f"Left out: {data['compiled'].get('left_out', 'none')}.\n"
    )
    yield _table(
        ("workload", "variant", "shape", "kernel", "registers", "frame", "shared", "without a GPU"),
        [
            (
                key[0], key[1], key[2], key[3], f"{gpu[key]['registers']}", f"{gpu[key]['frame_bytes']:,} B",
                f"{gpu[key]['shared_bytes']:,} B",
                "the same" if key not in differing else f"{cpu[key].registers} registers, "
                f"{cpu[key].frame_bytes:,} B frame, {cpu[key].dynamic_smem_bytes:,} B shared",
            )
            for key in keys
        ],
    )  # fmt: skip


def _compiled_here() -> dict[tuple[Any, ...], Any] | None:
    if not all(importlib.util.find_spec(name) for name in ("torch", "triton")) or os.environ.get("TRITON_INTERPRET"):
        return None
    from workloads.resources import resources_of

    rows = {}
    for name, shapes in COMPILED_SHAPES.items():
        workload = find(name)
        for row in resources_of(workload, workload.variants, map(workload.shape, shapes), "bfloat16", "sm_90"):
            rows[row.workload, row.variant, row.shape, row.kernel, row.grid] = row
    return rows


def _latencies(measured: Iterable[Data], baseline: str) -> str:
    rows = [
        _cells_of(ratio)
        for each in measured
        for ratio in sorted(ratios_of(each), key=lambda r: (r.tokens, r.shape, r.ratio))
    ]
    kept = [(shape, variant, *rest) for shape, variant, _, *rest in rows]
    return _table(("shape", "variant", "median", f"to {baseline}", "interval"), kept)


def _cells_of(ratio: Ratio) -> Row:
    interval = "–" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
    return ratio.shape, ratio.variant, ratio.phase, f"{ratio.median_us:,.1f} us", f"{ratio.ratio:.3f}x", interval


def _table(header: Row, rows: Iterable[Row]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.results_page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    try:
        data = read_json(chosen.results, "results that `python -m workloads.results measure` wrote")
        write_text(chosen.output, page(data))
    except TracekitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyError, TypeError, AttributeError) as error:
        print(
            f"error: {chosen.results}: {type(error).__name__} {error}\n  remedy: measure all sections", file=sys.stderr
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
