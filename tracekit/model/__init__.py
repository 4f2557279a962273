"""The only noun of the house: units, labels, typed tables, manifests, traces and reports.

Nothing here reads a file, computes a figure or draws. Importing this package imports the standard library alone, so
that the capture side and the workloads can use :mod:`tracekit.model.labels` in a bare container.
"""
