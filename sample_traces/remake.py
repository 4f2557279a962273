"""Remakes the sample traces: captures them on a GPU, then finishes, scrubs and places them here.

python sample_traces/remake.py FOLDER              # both halves, where a GPU and the whole of Nsight Systems are
python sample_traces/remake.py FOLDER --capture    # on the GPU's machine; it goes on where it was stopped
python sample_traces/remake.py FOLDER --place      # where the importer is
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LARGEST_BYTES = 10**6
ALL_BYTES = 12 * 10**6
SPILLING = "one_kernel_spilling"
BEGIN, END = "<!-- figures: remake.py writes them -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Set:
    """One ``tracekit capture``: the name that its bundles get here, the workload, and options."""

    name: str
    workload: str
    variants: str
    shape: str
    options: str = ""
    repeats: int = 1


def _sets() -> list[Set]:
    ffn = ("swiglu_ffn", "eager,two_kernel")
    cold, settled = "--kinds in_model,cold", "--processes 10"
    both, timed = f"{cold} {settled}", f"--tool nsys --no-quality {settled}"
    return [
        Set("request", "decoder", "eager,fused", "llama8b_t128_n4_l4",
            f"--iterations 1 --counter-iterations 1 {cold} --metrics traffic,occupancy", repeats=10),
        Set("swiglu_t1", "swiglu_ffn", f"eager,two_kernel,{SPILLING}", "t1_h4096_f14336", both),
        Set("swiglu_t1_graph", *ffn, "t1_h4096_f14336", f"--graphs node --with-construction {timed}"),
        Set("swiglu_t2048", *ffn, "t2048_h4096_f14336", f"--iterations 10 {both}"),
        Set("rmsnorm_t1", "residual_rmsnorm", "eager,triton", "t1_h4096", both),
        Set("rmsnorm_t2048", "residual_rmsnorm", "eager,triton", "t2048_h4096", both),
        Set("quantized_t1", "quantized_linear", "dequantize,fused_int4", "t1_h4096_o14336", both),
        Set("quantized_t2048", "quantized_linear", "dequantize,fused_int4", "t2048_h4096_o14336", both),
        Set("flashnorm_t1", "flashnorm_linear", "eager,deferred", "t1_h4096_o6144", both),
        Set("flashnorm_t1024", "flashnorm_linear", "eager,deferred", "t1024_h4096_o6144", both),
        Set("swiglu_t16", *ffn, "t16_h4096_f14336", timed),
        Set("swiglu_t128", *ffn, "t128_h4096_f14336", timed),
    ]  # fmt: skip


SETS = _sets()


def capture(folder: Path) -> int:
    """Captures what is not there yet, the set of ten repeats first; 0 where all of it is there."""
    code = 0
    for each in SETS:
        command = [sys.executable, "-m", "tracekit.capture", each.workload, "--variants", each.variants]
        command += ["--shapes", each.shape, "--repeats", str(each.repeats), "-o", str(folder / each.name)]
        started = time.monotonic()
        code |= subprocess.run(command + each.options.split(), check=False).returncode
        print(f"{each.name}: {time.monotonic() - started:.0f} s", flush=True)
    return code | _spilling_report(folder)


def _spilling_report(folder: Path) -> int:
    """One .ncu-rep of the spilling kernel. A report cannot be scrubbed: it is made in a folder that names nobody."""
    target = folder / "spilling.ncu-rep"
    if target.is_file():
        return 0
    sys.path.insert(0, str(HERE.parent))
    from tracekit.capture.command import PURPOSES, nvtx_filter
    from tracekit.capture.tools import Search

    ncu = Search.here().ncu()
    if ncu is None:
        print("no ncu here: spilling.ncu-rep is not made")
        return 2
    command = [
        str(ncu.path), "--clock-control", "none", "--nvtx", "--force-overwrite",
        "--nvtx-include", nvtx_filter(f"{SPILLING}/T1/iter"), "--launch-count", "1",
        *(word for purpose in PURPOSES.values() for name in purpose.sections for word in ("--section", name)),
        "--metrics", ",".join(name for purpose in PURPOSES.values() for name in purpose.metrics),
        "-o", target.stem, sys.executable, "-m", "workloads", "run", "swiglu_ffn", "--variant", SPILLING,
        "--iterations", "1",
    ]  # fmt: skip
    code = subprocess.run(command, cwd=HERE.parent, check=False, timeout=120).returncode
    if code == 0:
        shutil.move(HERE.parent / target.name, target)
    return code


def place(folder: Path) -> int:
    """Finishes, scrubs and names the captures, checks their sizes, and replaces the bundles that lie here."""
    from tracekit.capture.finish import finish, unfinished
    from tracekit.capture.scrub import scrub

    ready = folder / "placed"
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    for each in SETS:
        for bundle in sorted((folder / each.name).glob("*/manifest.json")):
            source = bundle.parent
            if unfinished(source):
                print("\n".join(finish(source, None)))
            told = json.loads(bundle.read_text())
            repeat = source.name.rpartition("-r")[2]
            name = f"{each.name}_{told['variant']}"
            if repeat != "1":  # In a folder of their own: they are of use together, and not one by one.
                name = f"{each.name}_repeats/{told['variant']}_r{int(repeat):02d}"
                (ready / name).parent.mkdir(exist_ok=True)
            scrub(source, ready / name)
            _adopt(ready / name, folder / "spilling.ncu-rep" if name == f"swiglu_t1_{SPILLING}" else None)
    files = [path for path in ready.rglob("*") if path.is_file()]
    if large := [path for path in files if path.stat().st_size > LARGEST_BYTES]:
        print(f"over {LARGEST_BYTES:,} bytes: {', '.join(map(str, large))}")
        return 2
    whole = sum(path.stat().st_size for path in files)
    print(f"{len(list(ready.iterdir()))} bundles, {whole:,} bytes")
    if whole > ALL_BYTES:
        return 2
    for old in HERE.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    for new in ready.iterdir():
        shutil.copytree(new, HERE / new.name)
    write_figures()
    return 0


def _adopt(bundle: Path, report: Path | None) -> None:
    """Gives the manifest the bundle's name here, and the .ncu-rep a place after the CSVs, which hold more.

    Bench and quality are of all repeats together: the first one carries them.
    """
    import hashlib

    path = bundle / "manifest.json"
    told = json.loads(path.read_text())
    told["capture_id"] = bundle.name
    if bundle.parent.name.endswith("_repeats"):
        for name in ("bench", "quality"):
            if entry := told.pop(name, None):
                (bundle / entry["file"]).unlink()
    if report is not None and report.is_file():
        shutil.copyfile(report, bundle / report.name)
        digest = hashlib.sha256(report.read_bytes()).hexdigest()
        told["counters"].append(
            {"file": report.name, "sha256": digest, "tool": told["counters"][0]["tool"], "replay_mode": "kernel",
             "cache_control": "all", "clock_control": "none"}
        )  # fmt: skip
    path.write_text(json.dumps(told, indent=1) + "\n")


def figures() -> str:
    """The README's table of the bundles that lie here: medians over a timeline's steps, and untraced latency."""
    import tracekit
    from tracekit.model.units import Unit, write

    lines = [
        "| bundle | steps | kernels | traced | busy | idle | DRAM read, written (in model) | latency | processes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(HERE.glob("*/manifest.json")):
        report = tracekit.report(path.parent)
        root = next(region for region in report.regions if len(region.path) == 1 and "/" in region.path[0])
        metrics = root.metrics
        moved = [metrics[f"dram_{way}_bytes"].kinds.get("in_model") for way in ("read", "write")]
        bench = next((entry for entry in report.latency if entry.protocol == "synchronized"), None)
        cells = [
            f"`{path.parent.name}`", f"{root.instances:,}", write(metrics["kernel_count"].value, Unit.COUNT),
            *(write(metrics[name].value, Unit.NS) for name in ("wall_ns", "busy_ns", "gap_ns")),
            ", ".join(write(each.value if each else None, Unit.BYTES) for each in moved) if any(moved) else "–",
            write(bench.median_ns if bench else None, Unit.NS), f"{bench.processes:,}" if bench else "–",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_figures() -> None:
    """Puts the table into the README, between its marks."""
    readme = HERE / "README.md"
    before, begin, rest = readme.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    readme.write_text(f"{before}{begin}\n{figures()}{end}{after}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Remake the sample traces.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the captures lie before they are placed")
    parser.add_argument("--capture", action="store_true", help="only capture")
    parser.add_argument("--place", action="store_true", help="only finish, scrub and place")
    chosen = parser.parse_args()
    both = chosen.capture == chosen.place
    code = capture(chosen.folder) if chosen.capture or both else 0
    return code or (place(chosen.folder) if chosen.place or both else 0)


if __name__ == "__main__":
    sys.exit(main())
