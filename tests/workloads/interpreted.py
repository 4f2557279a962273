"""Triton's interpreter in this process, computing in bfloat16 as a GPU does; import this before torch and Triton.

A test module that imports it is skipped where torch or Triton is absent.

The interpreter of Triton 3.6 keeps bfloat16 as bit patterns: ``tl.dot`` multiplies the patterns as integers, and a
cast from float32 truncates where the hardware rounds to the nearest even. Both are put right here; kernels stay as
they are.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # Read when a kernel is defined, Triton's own ``tl.sum`` among them.

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle

assert isinstance(tl.sum, InterpretedFunction), "triton was imported before TRITON_INTERPRET was set"

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


InterpreterBuilder.cast_impl = _cast_impl
InterpreterBuilder.create_fp_to_fp = _create_fp_to_fp
InterpreterBuilder.create_dot = _create_dot
