"""Turns report files into the tables of the model, one reader a format."""

from tracekit.read.bundle import add_counters, read_manifest, read_trace

__all__ = ["add_counters", "read_manifest", "read_trace"]
