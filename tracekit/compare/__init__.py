"""Pairs the regions and kernels of two reports and states what changed."""
