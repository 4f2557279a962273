"""What a workload is: its variants, shapes, inputs, reference and bounds; and the registry of all of them.

A declaration module ``workloads/STEM.py`` defines ``WORKLOAD``. It must import without torch, since listing needs none:
it names torch and its kernels (``workloads/kernels/STEM.py``) through :class:`Lazy`, or imports them inside functions.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tracekit.errors import UsageError
from tracekit.model import labels

if TYPE_CHECKING:
    import torch

Inputs: TypeAlias = "dict[str, torch.Tensor]"
Output: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...]"
_T = TypeVar("_T")

ELEMENT_BYTES: Final[Mapping[str, int]] = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Bytes of an element of each dtype that a workload may run in; the names are torch's."""


class Kind(StrEnum):
    """How a variant is built, which decides where it can run and who may annotate it."""

    EAGER = "eager"
    """Library calls, one after the other."""
    COMPILED = "compiled"
    """``torch.compile``: ranges inside it would break the graph or vanish, so it is annotated from outside only."""
    TRITON = "triton"
    """Has kernels of this project, which ``resources`` compiles; on a CPU they need ``TRITON_INTERPRET=1``."""


@dataclass(frozen=True)
class Shape:
    """A problem size: ``tokens`` rows, the widths in ``dims`` (``{"hidden": 4096}``), the model where it is of one."""

    name: str
    tokens: int
    dims: Mapping[str, int]
    model: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.sizes})"

    @property
    def sizes(self) -> str:
        """The sizes in words: ``tokens 8, hidden 4096``."""
        return ", ".join(f"{name} {size}" for name, size in {"tokens": self.tokens, **self.dims}.items())

    def with_tokens(self, tokens: int) -> Shape:
        """The same widths at another number of tokens; the name follows."""
        return replace(self, name=re.sub(r"(?<![a-z0-9])t\d+", f"t{tokens}", self.name), tokens=tokens)


@dataclass(frozen=True)
class Variant:
    """One way to compute a workload.

    ``prepare(inputs)`` folds, packs or allocates outside the timed region (None: the inputs as they are).
    ``run(prepared)`` is one step: it must not change what ``prepare`` returned, and it allocates its output.
    Both also run on device ``meta``, where ``resources`` reads the launches off: no ``.item()``, no branch on values.
    ``graphed(prepared)`` returns the step as CUDA graphs (None: the whole of ``run`` is captured as one graph).
    ``unsupported(shape, dtype)`` returns the reason why the variant cannot run there, or None.
    """

    name: str
    doc: str
    run: Callable[[Any], Output]
    prepare: Callable[[Inputs], Any] | None = None
    graphed: Callable[[Any], Callable[[], Output]] | None = None
    kind: Kind = Kind.EAGER
    needs_gpu: bool = False
    min_capability: tuple[int, int] = (0, 0)
    unsupported: Callable[[Shape, str], str | None] | None = None

    def prepared(self, inputs: Inputs) -> Any:
        """What ``run`` takes, made from ``inputs``."""
        return inputs if self.prepare is None else self.prepare(inputs)

    def why_not(self, shape: Shape, dtype: str) -> str | None:
        """The reason why this variant cannot run that shape and dtype, or None."""
        return None if self.unsupported is None else self.unsupported(shape, dtype)


@dataclass(frozen=True)
class Tolerance:
    """What the quality gate accepts: relative L2 errors against float64, and the ratio to the baseline's error.

    An error below a quarter of the dtype's epsilon passes whatever the ratio: it is that of one correct rounding.
    """

    relative_l2: float
    ratio: float = 1.25


@dataclass(frozen=True)
class Workload:
    """A computation with its variants, one of which is the baseline that the others are judged against.

    ``inputs(shape, dtype, device, seed)`` makes fresh random data, weights scaled by their fan-in.
    ``reference(inputs)`` computes in float64 what every variant approximates.
    ``lower_bound_bytes(shape, element_bytes)`` are the HBM bytes that no implementation can avoid with a cold cache,
    ``flops(shape)`` the multiplications and additions of the mathematics.
    ``odd_shapes`` are the sizes that break kernels: non-multiples, one row, one column, zero rows.
    ``dimensions`` names the letters of a shape's name, so that ``t37_h4096_f14336`` is a shape although nobody listed
    it; or ``spell`` makes a shape of a name in a form of its own. ``phase`` is what one step is: ``iter``, or
    ``request`` where it has phases of its own (:func:`phase`).
    """

    name: str
    doc: str
    baseline: str
    variants: tuple[Variant, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    inputs: Callable[[Shape, torch.dtype, str, int], Inputs]
    reference: Callable[[Inputs], Output]
    tolerances: Mapping[str, Tolerance]
    lower_bound_bytes: Callable[[Shape, int], int]
    flops: Callable[[Shape], int]
    odd_shapes: tuple[Shape, ...] = ()
    dimensions: Mapping[str, str] = field(default_factory=dict)
    spell: Callable[[str], Shape | None] | None = None
    phase: str = "iter"

    def __post_init__(self) -> None:
        for what, names in (
            ("variants", [variant.name for variant in self.variants]),
            ("shapes", [shape.name for shape in (*self.shapes, *self.odd_shapes)]),
            ("dtypes", list(self.dtypes)),
        ):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{self.name}: {what} must be named, each once: {names}")
        for variant in self.variants:
            if "/" in variant.name:
                raise ValueError(f"{self.name}: a slash in the variant {variant.name!r}")
        if [variant.name for variant in self.variants].count(self.baseline) != 1:
            raise ValueError(f"{self.name}: the baseline {self.baseline!r} is no variant")
        if strange := set(self.dtypes) - set(ELEMENT_BYTES):
            raise ValueError(f"{self.name}: dtypes {sorted(strange)} are not among {sorted(ELEMENT_BYTES)}")
        if missing := set(self.dtypes) - set(self.tolerances):
            raise ValueError(f"{self.name}: no tolerance for {sorted(missing)}")

    def variant(self, name: str) -> Variant:
        """The variant of that name; UsageError with the valid ones."""
        return _named(name, {variant.name: variant for variant in self.variants}, f"variant of {self.name}")

    def shape(self, name: str) -> Shape:
        """The shape of that name, listed or spelled out; UsageError with the valid ones."""
        shapes = {shape.name: shape for shape in (*self.shapes, *self.odd_shapes)}
        if name not in shapes and (spelled := self.spell(name) if self.spell else self._spelled_out(name)):
            return spelled
        form = "".join(f"_{letter}{width.upper()}" for letter, width in self.dimensions.items())
        return _named(name, shapes, f"shape of {self.name}", f" (or any tTOKENS{form})" if form else "")

    def _spelled_out(self, name: str) -> Shape | None:
        sizes = [re.fullmatch(r"([a-z])(\d{1,9})", part) for part in name.split("_")]
        if not self.dimensions or [size and size[1] for size in sizes] != ["t", *self.dimensions]:
            return None
        tokens, *widths = (int(size[2]) for size in sizes if size)
        return Shape(name, tokens, dict(zip(self.dimensions.values(), widths, strict=True))) if all(widths) else None

    def dtype(self, name: str) -> str:
        """That dtype's name, checked; UsageError with the valid ones."""
        return _named(name, {dtype: dtype for dtype in self.dtypes}, f"dtype of {self.name}")


@cache
def registry() -> dict[str, Workload]:
    """Every workload by its name: those that the modules of this package declare."""
    import workloads

    found = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(workloads.__path__) if not info.ispkg):
        if module not in ("base", "__main__", "interpreter"):
            declared = getattr(importlib.import_module(f"workloads.{module}"), "WORKLOAD", None)
            if isinstance(declared, Workload):
                found[declared.name] = declared
    return found


def find(name: str) -> Workload:
    """The workload of that name; UsageError with the valid ones."""
    return _named(name, registry(), "workload")


def _named(name: str, known: Mapping[str, _T], what: str, more: str = "") -> _T:
    if name not in known:
        raise UsageError(f"no {what} is named {name!r}", remedy=f"use one of: {', '.join(known)}{more}")
    return known[name]


class Lazy:
    """A module that is imported at the first use of one of its names: ``torch = Lazy("torch")``.

    A name is looked up once, so that steps pay no import; type checkers should see the real import instead.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function under ``torch.compile``, which starts at the first call. It must not annotate anything inside."""
    made: list[Callable[..., Any]] = []

    def call(*arguments: Any) -> Any:
        if not made:
            import torch

            made.append(torch.compile(function, **options))
        return made[0](*arguments)

    return call


def random_normal(
    *sizes: int, dtype: torch.dtype, device: str, seed: int, scale: float = 1.0, fan_in: int | None = None
) -> torch.Tensor:
    """Fresh normal data, its deviation ``scale`` (divided by the root of ``fan_in``), the same for the same seed.

    Drawn in float32 on the device and rounded once. Give each tensor of a workload a seed of its own.
    """
    import torch

    generator = None
    if device != "meta":
        generator = torch.Generator(device=device)
        generator.manual_seed(seed)
    data = torch.randn(sizes, generator=generator, device=device, dtype=torch.float32)
    return (data * (scale / math.sqrt(fan_in or 1))).to(dtype)


_assumed_multiprocessors = 132


def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of a tensor's GPU; those of the assumed GPU where the device is none."""
    return _multiprocessors(device.index or 0) if device.type == "cuda" else _assumed_multiprocessors


@cache
def _multiprocessors(index: int) -> int:
    import torch

    return int(torch.cuda.get_device_properties(index).multi_processor_count)


@contextmanager
def assumed_multiprocessors(count: int) -> Iterator[None]:
    """Within this context, devices that are no GPU count as one of ``count`` multiprocessors."""
    global _assumed_multiprocessors
    before, _assumed_multiprocessors = _assumed_multiprocessors, count
    try:
        yield
    finally:
        _assumed_multiprocessors = before


class _Range:
    """A push/pop range of one label in tracekit's domain; may be entered many times, also inside itself."""

    __slots__ = ("_label", "_range")

    pushed = 0
    """Ranges pushed by this process so far."""

    def __init__(self, label: str) -> None:
        nvtx = _nvtx()
        self._label = label
        self._range = None if nvtx is None else nvtx.annotate(label, domain=labels.DOMAIN)

    def __enter__(self) -> None:
        _Range.pushed += 1
        if _recording is not None:
            _open.append(self._label)
        if self._range is not None:
            self._range.__enter__()

    def __exit__(self, *_: object) -> None:
        if _recording is not None:
            _open.pop()
        if self._range is not None:
            self._range.__exit__(None, None, None)


@cache
def _nvtx() -> Any:
    try:
        return importlib.import_module("nvtx")
    except ImportError:
        return None


@cache
def annotate(label: str) -> _Range:
    """A context that pushes an NVTX range of that label in domain ``tracekit``, where the nvtx package is there.

    Without the package it does nothing but count. Never use it inside a function that ``torch.compile`` traces.
    """
    return _Range(label)


_phase_timer: Callable[[str], AbstractContextManager[None]] | None = None


@contextmanager
def phase(name: str, index: int | None = None) -> Iterator[None]:
    """A part of a request: a range ``prefill`` or ``decode[3]``, and a latency of its own where a bench measures.

    The part ends when its result is there: a bench may synchronize at its end.
    """
    label = name if index is None else labels.indexed(name, index)
    with annotate(label), _phase_timer(name) if _phase_timer else nullcontext():
        yield


@contextmanager
def timed_phases(timer: Callable[[str], AbstractContextManager[None]]) -> Iterator[None]:
    """Within this context, ``timer(name)`` is entered around every :func:`phase`."""
    global _phase_timer
    before, _phase_timer = _phase_timer, timer
    try:
        yield
    finally:
        _phase_timer = before


def ranges_pushed() -> int:
    """Ranges that this process pushed so far, with or without the nvtx package."""
    return _Range.pushed


@dataclass
class Launch:
    """A launch of a Triton kernel: what it was called with, and what Triton compiled where it ran on a GPU.

    ``labels`` are those of the ranges around it, outermost first, as far as they were opened while it was recorded.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    compiled: Any = None


_recording: tuple[list[Launch], bool] | None = None
_open: list[str] = []


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Starts a Triton kernel, as ``kernel[grid](*arguments, **options)`` does.

    Every launch of a workload goes through here: so the manifest can name the registers of what ran, and ``resources``
    compiles the very launch (arguments, their alignment, options) without a GPU.
    """
    if _recording is None:
        kernel[grid](*arguments, **options)
        return
    launches, execute = _recording
    launches.append(Launch(kernel, grid, arguments, options, tuple(_open)))
    if execute:
        launches[-1].compiled = kernel[grid](*arguments, **options)


@contextmanager
def recorded_launches(*, execute: bool = True) -> Iterator[list[Launch]]:
    """Collects the launches within the context; with ``execute=False`` they are recorded and not started."""
    global _recording, _open
    before = _recording, _open
    launches: list[Launch] = []
    _recording, _open = (launches, execute), []
    try:
        yield launches
    finally:
        _recording, _open = before
