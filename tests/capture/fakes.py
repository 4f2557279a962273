"""Fake nsys, importer, ncu and workloads: small programs that behave, or misbehave as the real ones have done."""

from __future__ import annotations

import json
import stat
import sys
import textwrap
from pathlib import Path

from nsys_builder import NsysFile

NSYS = """
import json, os, pathlib, shutil, subprocess, sys, time
here = pathlib.Path(__file__).resolve().parent
arguments = sys.argv[1:]
if arguments == ["--version"]:
    print("NVIDIA Nsight Systems version @VERSION@.54-234433681190v0")
    sys.exit()
with open(here / "log.jsonl", "a") as file:
    file.write(json.dumps(arguments) + "\\n")
modes = (here / "modes").read_text().split()
mode = modes[0]
if len(modes) > 1:
    (here / "modes").write_text(" ".join(modes[1:]))
options = {}
while arguments[1].startswith("-"):
    name, _, value = arguments.pop(1).partition("=")
    options[name] = value
output = pathlib.Path(options["--output"])
if arguments[0] == "export":
    if mode == "export-fails":
        print("ERROR: Failed to process events")
        sys.exit(1)
    shutil.copyfile(here / (pathlib.Path(arguments[1]).read_text() + ".sqlite"), output)
    sys.exit()
report = output.with_name(output.name + ".nsys-rep")
if mode == "hang":
    print("Collecting data...", flush=True)
    pid = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    (here / "agent").write_text(str(pid))
    time.sleep(600)
if mode == "die":
    print("The target application terminated. FATAL ERROR: agent failed", flush=True)
    report.write_text("half")
    os.kill(os.getpid(), 11)
if mode == "full":
    report.write_text("half")
    print("Error: write failed: No space left on device")
    sys.exit(1)
if mode == "nothing":
    print("No reports were generated")
    sys.exit()
child = subprocess.run(arguments[1:])
if mode == "wait":
    (here / "waiting").write_text(str(output))
    time.sleep(600)
if mode == "qdstrm":
    print("Importer error status: Importer binary not found")
    output.with_name(output.name + ".qdstrm").write_text("NVIDIA Tegra Profiler Report @AT@@-1\\n")
    sys.exit()
shape = arguments[arguments.index("--shape") + 1] if "--shape" in arguments else "whole"
report.write_text(mode if mode in ("cuda-less", "empty") else shape)
sys.exit(child.returncode)
"""

IMPORTER = """
import pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("no version")
    sys.exit(1)
stream = pathlib.Path(sys.argv[2])
here = pathlib.Path(__file__).resolve().parent
if (here / "importer-fails").exists():
    print((here / "importer-fails").read_text())
    print("**** Errors occurred while processing the raw events. ****")
stream.with_suffix(".nsys-rep").write_text("whole")
"""

NCU = """
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).resolve().parent
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)")
    sys.exit()
with open(here / "ncu-log.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
mode = (here / "ncu-mode").read_text()
log = pathlib.Path(sys.argv[sys.argv.index("--log-file") + 1])
if mode == "refused":
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
                   "Counters on the target device 0.\\n")
    sys.exit(1)
if mode == "hang":
    time.sleep(600)
if mode == "nothing":
    log.write_text("==PROF== Connected to process 1\\n==WARNING== No kernels were profiled.\\n")
    sys.exit()
subprocess.run(sys.argv[sys.argv.index("--metrics") + 2:])
log.write_text("==PROF== Connected to process 1\\n"
               '"ID","Process ID","Process Name","Host Name","Kernel Name","dram__bytes_read.sum"\\n'
               '"","","","","","byte"\\n"0","1","python3","127.0.0.1","add","1000"\\n')
"""

WORKLOADS = """
import json, os, sys, uuid
verb, rest = sys.argv[1], sys.argv[2:]
shapes = [{"name": "small", "tokens": 1}, {"name": "large", "tokens": 2048}]
if verb == "list":
    print("a warning of some library")
    if rest[0] != "fake":
        sys.exit(f"error: no workload is named {rest[0]!r}\\n  remedy: use one of: fake")
    if "--shapes" in rest:
        known = {each["name"]: each for each in [*shapes, {"name": "t7", "tokens": 7}]}
        asked = rest[rest.index("--shapes") + 1].split(",")
        if strange := [name for name in asked if name not in known]:
            sys.exit(f"error: no shape of fake is named {strange[0]!r}\\n  remedy: use one of: small, or any tTOKENS")
        shapes = [known[name] for name in asked]
    print(json.dumps([{"name": "fake", "doc": "", "baseline": "unfused", "dtypes": ["bfloat16"], "phase": "iter",
                       "variants": [{"name": "unfused"}, {"name": "fused"}], "shapes": shapes}], indent=1))
    sys.exit()
option = lambda name: rest[rest.index(name) + 1]
if verb == "run":
    name = option("--shape")
    shape = next((each for each in shapes if each["name"] == name), {"tokens": 7})
    record = {"schema_version": 1, "capture_id": "x", "workload": "fake", "variant": option("--variant"),
              "conditions": {"model": "fake", "dtype": option("--dtype"), "gpu": "NVIDIA H200", "batch": 1,
                             "input_tokens": shape["tokens"], "tensor_parallel": 1, "graph_mode": "none",
                             "compile_mode": "none", "l2_state": "warm"},
              "environment": {"nvtx": os.environ.get("FAKE_NVTX", "0.2.11")},
              "ran": {"iterations": 2, "ranges_pushed": 4, "roots": 2, "root": "step",
                      "kernels": [{"name": "add", "launches": 1}]}}
    with open(os.environ["TRACEKIT_RECORD"], "w") as file:
        json.dump(record, file)
elif verb == "bench":
    samples = [{"variant": v, "process": p, "block": 0, "order": 0, "phase": "iter", "protocol": "synchronized",
                "latency_us": (10.0 if v == "fused" else 20.0) + p * p}
               for p in range(12) for v in option("--variants").split(",")]
    for each in samples:
        each["block"] = each["process"]
    with open(option("-o"), "w") as file:
        json.dump({"schema_version": 1, "run": str(uuid.uuid4()), "unit": "us", "samples": samples}, file)
elif verb == "quality":
    with open(option("-o"), "w") as file:
        json.dump({"schema_version": 1, "checks": [{"check": "relative L2", "reference": "float64", "error": 1e-4,
                                                    "tolerance": 1e-2, "passed": True}]}, file)
"""


class Tools:
    """A folder that is an Nsight installation: ``modes`` are how nsys behaves, one a capture, the last for ever."""

    def __init__(self, folder: Path, version: str = "2023.4.4") -> None:
        self.folder = folder
        self.version = version
        target = folder / "target-linux-x64"
        target.mkdir(parents=True)
        self.target = target
        at = version.replace(".", "@")
        _program(target / "nsys", NSYS.replace("@VERSION@", version).replace("@AT@", at))
        for name in ("small", "large", "t7", "whole"):
            _export(target / f"{name}.sqlite")
        NsysFile(target / "cuda-less.sqlite").range(0, 50, "step", domain="tracekit").write()
        NsysFile(target / "empty.sqlite").write()
        self.behave("whole")
        self.ncu("whole")

    def behave(self, *modes: str) -> None:
        """How nsys behaves in the captures to come."""
        (self.target / "modes").write_text(" ".join(modes))

    def ncu(self, mode: str) -> None:
        """How ncu behaves; None removes it."""
        (self.target / "ncu-mode").write_text(mode)
        _program(self.target / "ncu", NCU)

    def with_importer(self, *, fails: str | None = None) -> None:
        """Puts an importer beside it, one that ``fails`` with these words."""
        host = self.folder / "host-linux-x64"
        host.mkdir(exist_ok=True)
        _program(host / "QdstrmImporter", IMPORTER)
        if fails is not None:
            (host / "importer-fails").write_text(fails)

    def calls(self, tool: str = "nsys") -> list[list[str]]:
        """The arguments of every call so far."""
        log = self.target / ("log.jsonl" if tool == "nsys" else "ncu-log.jsonl")
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def workloads(folder: Path) -> Path:
    """A package ``workloads`` of one workload, ``fake``, that records and needs nothing."""
    package = folder / "workloads"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(textwrap.dedent(WORKLOADS))
    return folder


def _export(path: Path) -> None:
    """Two steps of two ranges and one kernel each, as the fake workload says that it ran."""
    file = NsysFile(path).gpu()
    for start in (0, 1000):
        file.range(start, start + 100, "step", domain="tracekit").range(start + 5, start + 90, "in", domain="tracekit")
        file.launch((start + 10, start + 20), (start + 30, start + 40), name="add")
    file.write()


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!{sys.executable} -IS\n{text.lstrip()}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
