"""Turns reports and comparisons into text, JSON, charts and pages; computes no figure."""
