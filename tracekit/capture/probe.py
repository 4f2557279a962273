"""A program to capture: pushes NVTX ranges, and on a GPU launches a kernel in each, and records what it did.

Run as a file by its path, so it needs no package on the path but nvtx; CUDA is the driver's library through ctypes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any

RANGES = 10
DOMAIN = "tracekit"
ROOT = "probe/T1/iter"
KERNEL = "tracekit_probe"
_PTX = f""".version 6.0
.target sm_50
.address_size 64
.visible .entry {KERNEL}() {{ ret; }}
"""


class Gpu:
    """The first GPU, an empty kernel on it, and cudaProfilerStart's counterpart of the driver."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.function = ctypes.c_void_p()
        self._check("cuInit", 0)
        self._check("cuDeviceGet", ctypes.byref(device), 0)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._check("cuCtxSetCurrent", context)
        self._check("cuModuleLoadData", ctypes.byref(module), _PTX.encode())
        self._check("cuModuleGetFunction", ctypes.byref(self.function), module, KERNEL.encode())

    def launch(self) -> None:
        """One launch, waited for."""
        one = ctypes.c_uint(1)
        nothing, zero = ctypes.c_void_p(), ctypes.c_uint(0)
        self._check("cuLaunchKernel", self.function, *(one,) * 6, zero, nothing, nothing, nothing)
        self._check("cuCtxSynchronize")

    def _check(self, name: str, *arguments: Any) -> None:
        if code := getattr(self.driver, name)(*arguments):
            raise OSError(f"{name} returned {code}")


def ranges() -> tuple[Any, str | None]:
    """A function that makes a range, and the version of the package that pushes it."""
    try:
        import nvtx

        return nvtx.annotate, version("nvtx")
    except (ImportError, PackageNotFoundError):
        return None, None


def main() -> int:
    """Pushes, launches, records; 0 also without a GPU and without nvtx, which the record then tells."""
    annotate, nvtx_version = ranges()
    try:
        gpu, why = Gpu(), ""
    except OSError as error:
        gpu, why = None, str(error)
    pushed = launched = 0
    for _ in range(RANGES):
        context: AbstractContextManager[Any] = annotate(ROOT, domain=DOMAIN) if annotate else nullcontext()
        with context:
            pushed += annotate is not None
            if gpu is not None:
                gpu.launch()
                launched += 1
            time.sleep(0.001)
    ran = {"ranges_pushed": pushed, "roots": pushed, "root": ROOT, "iterations": RANGES, "launches": launched}
    record = {"ran": ran, "environment": {"nvtx": nvtx_version or "absent", "gpu_error": why}}
    if path := os.environ.get("TRACEKIT_RECORD"):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(record, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
