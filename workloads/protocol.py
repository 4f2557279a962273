"""Makes a variant ready and runs its steps: the one protocol that traced runs and benchmarks share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tracekit.errors import UsageError
from tracekit.model.labels import RootLabel
from workloads.base import (
    Kind,
    Launch,
    Output,
    Shape,
    Variant,
    Workload,
    annotate,
    multiprocessors,
    recorded_launches,
    timed_phases,
)

if TYPE_CHECKING:
    import torch

WARM_UP: Final = 3
"""Steps before anything counts: they compile, tune and allocate."""

HOLD_CYCLES: Final = 400_000
"""Clock cycles that the device waits before a step timed by events: 0.2 ms at 2 GHz."""

ROTATION_FACTOR: Final = 3
"""Rotated inputs together are this many times the L2, so that a step finds nothing of its own there."""


class Timing(StrEnum):
    """How steps are timed; the first two are what a caller waits for, the third is the device alone."""

    SYNCHRONIZED = "synchronized"
    """Each step is waited for: wall clock from its first call to the return of the wait."""
    PIPELINED = "pipelined"
    """Steps are queued without waiting: wall clock of all of them over their number."""
    EVENTS = "events"
    """CUDA events around each step, the device held back until it is queued: the device's own time.

    Where the host needs longer than the hold to queue a step, the gaps that follow count too.
    """


class L2(StrEnum):
    """What a step finds in the L2 cache."""

    WARM = "warm"
    """What the step before left there: the same inputs, again and again, as inside a model's small layers."""
    FLUSHED = "flushed"
    """Nothing: a buffer of several times the L2 is written before each step, outside the timed part."""
    ROTATED = "rotated"
    """Nothing of its own: steps take turns on copies of the inputs that together exceed the L2."""


def require_gpu(what: str) -> None:
    """Raises UsageError where there is no GPU, and says what runs without one."""
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"{what} needs a GPU, and PyTorch {torch.__version__} sees none",
            remedy="without one, `list` and `resources` work; kernels are tested in Triton's interpreter: "
            "TRITON_INTERPRET=1 pytest tests/workloads",
        )


class Session:
    """A variant of a workload with its inputs on the GPU, warmed up, perhaps captured in CUDA graphs.

    ``launches`` are the Triton kernels of one step, with what was compiled for them. ``steps_per_graph`` steps are
    captured in one graph, so that the launch of a graph does not count against steps of a few microseconds; latencies
    are divided by it. Raises UsageError where the
    variant cannot run there (no GPU, capability, shape), or where memory runs out: with the shape and the bytes needed.
    """

    def __init__(
        self,
        workload: Workload,
        variant: Variant,
        shape: Shape,
        dtype: str,
        *,
        seed: int = 0,
        graph: bool = False,
        l2: L2 = L2.WARM,
        steps_per_graph: int = 1,
    ) -> None:
        import torch

        require_gpu(f"{workload.name} ({variant.name})")
        if reason := variant.why_not(shape, dtype):
            raise UsageError(
                f"{workload.name}: {variant.name} does not run at {shape.name} in {dtype}: {reason}",
                remedy="choose another shape or variant; `list` shows them",
            )
        if (found := torch.cuda.get_device_capability()) < variant.min_capability:
            raise UsageError(
                f"{workload.name}: {variant.name} needs compute capability {_dotted(variant.min_capability)}, "
                f"and {torch.cuda.get_device_name()} has {_dotted(found)}",
                remedy="choose another variant; `list` shows them",
            )
        self.workload, self.variant, self.shape, self.dtype = workload, variant, shape, dtype
        self.graph, self.l2, self.seed = graph, l2, seed
        self.root = RootLabel(variant.name, shape.tokens, workload.phase)
        self._flush: torch.Tensor | None = None
        self._next = 0
        self.steps_per_launch = 1
        self._asked_steps = steps_per_graph
        try:
            self._steps = self._made_ready()
            torch.cuda.synchronize()
        except torch.OutOfMemoryError as error:
            needed = bytes_needed(workload, variant, shape, dtype) * self._copies
            free, total = torch.cuda.mem_get_info()
            raise UsageError(
                f"{workload.name}: {variant.name} at {shape} in {dtype} needs at least {needed / 1e9:,.2f} GB "
                f"for its inputs, and {free / 1e9:,.2f} of {total / 1e9:,.2f} GB are free",
                remedy="choose a smaller shape, or free the GPU's memory",
            ) from error

    def _made_ready(self) -> list[Callable[[], Output]]:
        import torch

        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._copies = 1
        if self.l2 is L2.ROTATED:  # Only then: tensors without data start torch._dynamo, which takes a second.
            needed = bytes_needed(self.workload, self.variant, self.shape, self.dtype)
            self._copies = min(1 + ROTATION_FACTOR * properties.L2_cache_size // max(needed, 1), 64)
        if self.l2 is L2.FLUSHED:
            self._flush = torch.empty(ROTATION_FACTOR * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        prepared = []
        for copy in range(self._copies):
            inputs = self.workload.inputs(self.shape, getattr(torch, self.dtype), "cuda", self.seed + copy)
            prepared.append(self.variant.prepared(inputs))
        with recorded_launches() as launches:
            self.variant.run(prepared[0])
        self.launches: list[Launch] = launches
        if not self.graph:
            for each in [*prepared, *prepared[:1] * WARM_UP]:
                self.variant.run(each)
            return [partial(self.variant.run, each) for each in prepared]
        if self.variant.graphed is not None:
            steps = [self.variant.graphed(each) for each in prepared]
            for step in steps * WARM_UP:
                step()
            return steps
        return [self._captured(prepared)]

    def _captured(self, prepared: list[Any]) -> Callable[[], Output]:
        """One graph of as many steps as asked for, and at least one of each copy."""
        import torch

        run, count = self.variant.run, max(self._asked_steps, len(prepared))
        self._read_by_graph = prepared  # A graph has addresses and keeps nothing alive.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # Libraries choose and allocate at their first calls, which no capture allows.
            for each in prepared * WARM_UP:
                run(each)
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for number in range(count):
                output = run(prepared[number % len(prepared)])
        self.steps_per_launch = count

        def replay() -> Output:
            captured.replay()
            return output

        replay()
        return replay

    def step(self) -> Output:
        """One step (or :attr:`steps_per_launch` of them in one graph), on the next copy of the inputs."""
        step = self._steps[self._next]
        self._next = (self._next + 1) % len(self._steps)
        return step()

    def flush(self) -> None:
        """Writes a buffer over the L2, where the session declares it flushed."""
        if self._flush is not None:
            self._flush.zero_()

    def latencies(self, iterations: int, timing: Timing) -> dict[str, list[float]]:
        """Latencies in us by phase: one a step, or one mean under :attr:`Timing.PIPELINED`.

        The root range is around every step. Phases that a step declares itself are measured where it is synchronized.
        """
        measure = {
            Timing.SYNCHRONIZED: self._synchronized,
            Timing.PIPELINED: self._pipelined,
            Timing.EVENTS: self._events,
        }[timing]
        steps = self.steps_per_launch
        return {phase: [value / steps for value in values] for phase, values in measure(iterations).items()}

    def _synchronized(self, iterations: int) -> dict[str, list[float]]:
        import torch

        root, phase, wait, clock = annotate(str(self.root)), self.root.phase, torch.cuda.synchronize, time.perf_counter
        times: dict[str, list[float]] = {phase: []}

        @contextmanager
        def timer(name: str) -> Iterator[None]:
            start = clock()
            yield
            wait()
            times.setdefault(name, []).append((clock() - start) * 1e6)

        with timed_phases(timer):
            for _ in range(iterations):
                self.flush()
                wait()
                start = clock()
                with root:
                    self.step()
                    wait()
                times[phase].append((clock() - start) * 1e6)
        return times

    def _pipelined(self, iterations: int) -> dict[str, list[float]]:
        import torch

        if self._flush is not None:
            raise UsageError(
                "pipelined steps cannot flush the L2 between them: the flush would be timed",
                remedy="use --l2 rotated, or --timings synchronized,events",
            )
        root = annotate(str(self.root))
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            with root:
                self.step()
        torch.cuda.synchronize()
        return {self.root.phase: [(time.perf_counter() - start) * 1e6 / iterations]}

    def _events(self, iterations: int) -> dict[str, list[float]]:
        import torch

        root = annotate(str(self.root))
        pairs = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(iterations)
        ]
        torch.cuda.synchronize()
        for start, end in pairs:
            self.flush()
            torch.cuda._sleep(HOLD_CYCLES)
            with root:
                start.record()
                self.step()
                end.record()
        torch.cuda.synchronize()
        return {self.root.phase: [start.elapsed_time(end) * 1e3 for start, end in pairs]}


def bytes_needed(workload: Workload, variant: Variant, shape: Shape, dtype: str) -> int:
    """Bytes of the inputs and of what the variant prepares, without allocating them."""
    import torch

    inputs = workload.inputs(shape, getattr(torch, dtype), "meta", 0)
    return sum(_tensor_bytes([inputs, variant.prepared(inputs)], set()))


def _tensor_bytes(value: Any, seen: set[int]) -> Iterator[int]:
    import torch

    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value.numel() * value.element_size()
    elif isinstance(value, torch.nn.Module):
        for tensor in (*value.parameters(), *value.buffers()):
            yield from _tensor_bytes(tensor, seen)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensor_bytes(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensor_bytes(item, seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensor_bytes(getattr(value, field.name), seen)


def conditions(session: Session) -> dict[str, Any]:
    """What must agree before two runs are compared, by the names of ``tracekit.model.manifest.CONDITIONS``."""
    import torch

    shape = session.shape
    of = [*([shape.model] if shape.model else []), *(f"{name} {size}" for name, size in shape.dims.items())]
    out = {
        "model": ": ".join([session.workload.name, *([", ".join(of)] if of else [])]),
        "dtype": session.dtype,
        "gpu": torch.cuda.get_device_name(),
        "batch": 1,
        "input_tokens": shape.tokens,
        "tensor_parallel": 1,
        "graph_mode": "cuda graph" if session.graph else "none",
        "compile_mode": "default" if session.variant.kind is Kind.COMPILED else "none",
        "l2_state": str(session.l2),
    }
    if "new_tokens" in shape.dims:
        out["kv_tokens"] = shape.tokens + shape.dims["new_tokens"]
    return out


def environment() -> dict[str, str]:
    """Versions of what ran, and the GPU's size; nothing that names a machine or a user."""
    import importlib.metadata
    import platform

    import torch

    out = {"python": platform.python_version(), "pytorch": torch.__version__}
    for package in ("triton", "nvtx", "transformers"):
        try:
            out[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        out["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        out["multiprocessors"] = str(multiprocessors(device))
        if state := clocks():
            out["driver"] = state.driver
    return out


@dataclasses.dataclass(frozen=True)
class Clocks:
    """What the GPU's own sensors say, None where they do not."""

    sm_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    driver: str


def clocks() -> Clocks | None:
    """Clock, power and temperature of the current GPU, through NVML; None where its Python binding is absent."""
    try:
        import pynvml
    except ImportError:
        return None
    import torch

    try:
        pynvml.nvmlInit()
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}".encode())
    except (pynvml.NVMLError, AttributeError):
        return None

    def ask(question: Callable[[], float]) -> float | None:
        try:
            return float(question())
        except pynvml.NVMLError:
            return None

    driver = pynvml.nvmlSystemGetDriverVersion()
    return Clocks(
        ask(lambda: pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)),
        ask(lambda: pynvml.nvmlDeviceGetPowerUsage(device) / 1000),
        ask(lambda: pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)),
        driver.decode() if isinstance(driver, bytes) else str(driver),
    )


def compiled_kernels(launches: list[Launch]) -> list[dict[str, Any]]:
    """What Triton compiled for the launches of a step: registers and local memory a thread, shared memory a block.

    One entry for each kernel, configuration and region, with the number of its launches in ``launches``.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for launch in launches:
        kernel = launch.compiled
        if kernel is None or not hasattr(kernel, "metadata"):
            continue
        kernel._init_handles()  # Registers are known once the module is loaded.
        row = {
            "name": kernel.metadata.name,
            "registers": kernel.n_regs,
            "frame_bytes": 4 * kernel.n_spills,  # Triton counts words of the function's local memory.
            "shared_bytes": kernel.metadata.shared,
            "warps": kernel.metadata.num_warps,
            "cluster": list(getattr(kernel.metadata, "cluster_dims", (1, 1, 1))),
            "grid": [*launch.grid, 1, 1][:3],
            "region": list(launch.labels),
        }
        key = tuple(str(value) for value in row.values())
        rows.setdefault(key, row | {"launches": 0})["launches"] += 1
    return list(rows.values())


@contextmanager
def capture_window(enabled: bool) -> Iterator[None]:
    """``cudaProfilerStart`` and ``cudaProfilerStop`` around what a profiler should record."""
    if not enabled:
        with nullcontext():
            yield
        return
    import torch

    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
