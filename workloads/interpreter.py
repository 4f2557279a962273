"""Makes Triton's interpreter compute in bfloat16 as a GPU does, so that the quality gate means the same on a CPU.

The interpreter of Triton 3.6 keeps bfloat16 as bit patterns: ``tl.dot`` multiplies the patterns as integers, and a
cast from float32 truncates where the hardware rounds to the nearest even. Both are put right; kernels stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle

from tracekit.errors import UsageError

_cast, _dot, _to_float = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot, InterpreterBuilder.create_fp_to_fp


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _rounded(handle: Any) -> Any:
    bits = np.ascontiguousarray(handle.data).view(np.uint32).astype(np.uint64)
    nearest_even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    patterns = np.where(np.isnan(handle.data), 0x7FC0, nearest_even).astype(np.uint16)
    return TensorHandle(patterns, tl.bfloat16)


def _cast_impl(self: Any, source: Any, target: Any) -> Any:
    if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
        return _rounded(source)
    if source.dtype.scalar == tl.bfloat16 and target.scalar == tl.float32:
        return _widened(source)
    return _cast(self, source, target)


def _create_fp_to_fp(self: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
    if {source.dtype.scalar, target.scalar} == {tl.bfloat16, tl.float32}:
        return _cast_impl(self, source, target)
    return _to_float(self, source, target, rounding_mode)


def _create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
    return _dot(self, _widened(a), _widened(b), d, *options)


def mend() -> None:
    """Puts this process's interpreter right; UsageError where Triton was imported before it was told to interpret."""
    if not isinstance(tl.sum, InterpretedFunction):
        raise UsageError(
            "Triton was imported before TRITON_INTERPRET was set", remedy="set TRITON_INTERPRET=1 before Python starts"
        )
    InterpreterBuilder.cast_impl = _cast_impl
    InterpreterBuilder.create_fp_to_fp = _create_fp_to_fp
    InterpreterBuilder.create_dot = _create_dot
