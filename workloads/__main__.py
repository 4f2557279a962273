"""The command line of the workloads: ``python -m workloads list | run | bench | quality | resources``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence

from tracekit.errors import TracekitError, UsageError
from workloads import bench, quality, resources, run
from workloads.base import find, registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 fine, 1 a check failed, 2 a usage or input error."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads", description="Annotated workloads to profile, measure and check."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="workloads with their variants and shapes (needs no torch)")
    listing.add_argument("name", nargs="?", metavar="WORKLOAD", help="this one alone")
    listing.add_argument("--shapes", help="these instead of its usual ones, comma-separated; needs WORKLOAD")
    listing.add_argument("--format", choices=("text", "json"), default="text")
    listing.set_defaults(run=_list)
    for command in (run, bench, quality, resources):
        command.add_parser(commands)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.run is not _list and importlib.util.find_spec("torch") is None:
            raise UsageError(
                "PyTorch is not installed, and all but `list` needs it",
                remedy="pip install 'tracekit[workloads]'",
            )
        code: int = chosen.run(chosen)
        return code
    except TracekitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _list(arguments: argparse.Namespace) -> int:
    workloads = list(registry().values()) if arguments.name is None else [find(arguments.name)]
    if arguments.shapes is not None and arguments.name is None:
        raise UsageError("--shapes without a workload", remedy="name the workload: python -m workloads list WORKLOAD")
    names = [name for name in (arguments.shapes or "").split(",") if name]
    shapes = {each.name: [each.shape(name) for name in names] or each.shapes for each in workloads}
    if arguments.format == "json":
        data = [
            {
                "name": workload.name,
                "doc": workload.doc,
                "baseline": workload.baseline,
                "dtypes": list(workload.dtypes),
                "phase": workload.phase,
                "variants": [
                    {"name": variant.name, "doc": variant.doc, "kind": str(variant.kind)}
                    for variant in workload.variants
                ],
                "shapes": [
                    {"name": shape.name, "tokens": shape.tokens, **shape.dims} for shape in shapes[workload.name]
                ],
            }
            for workload in workloads
        ]
        print(json.dumps(data, indent=1))
        return 0
    for workload in workloads:
        print(f"{workload.name}: {workload.doc} ({', '.join(workload.dtypes)})")
        for variant in workload.variants:
            mark = "*" if variant.name == workload.baseline else " "
            print(f"  {mark} {variant.name:<22} {variant.doc}")
        print(f"    shapes: {', '.join(shape.name for shape in shapes[workload.name])}")
    print("* the baseline that the others are compared with")
    return 0


if __name__ == "__main__":
    sys.exit(main())
