"""Triton's interpreter in this process; import this before torch and Triton.

A test module that imports it is skipped where torch or Triton is absent.
"""

from __future__ import annotations

import os

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # Read when a kernel is defined, Triton's own ``tl.sum`` among them.

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from workloads.interpreter import mend

mend()
