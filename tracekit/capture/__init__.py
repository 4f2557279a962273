"""Captures a workload under Nsight Systems and Nsight Compute, and proves that the report holds what ran.

Standard library and nvtx alone, so that ``python -m tracekit.capture`` runs in a bare GPU container; reading what was
captured needs another machine. Importing this package imports nothing.
"""
