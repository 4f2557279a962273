"""Annotated workloads to profile: one file a workload, its reference and variants side by side."""
