"""The options of capture, doctor, scrub and read, for the bare module and the tracekit command alike."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from tracekit.capture.command import PURPOSES, Graphs, Kind, Window
from tracekit.capture.session import Request
from tracekit.errors import UsageError
from tracekit.model.manifest import CONDITIONS

SEPARATOR: Final = "--"


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are UsageErrors, like all others of tracekit."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of ending the process."""
        raise UsageError(message, remedy=f"{self.prog} --help lists the options")


def capture_parser(prog: str) -> Parser:
    """The options of ``capture``."""
    parser = Parser(
        prog=prog,
        usage=f"{prog} WORKLOAD [options] -o DIR\n       {prog} [options] -o DIR -- COMMAND [ARGUMENTS...]",
        description="Capture a workload, or your own program, under Nsight Systems and Nsight Compute into trace "
        "bundles, and compare what ran with what the reports hold. Run it again to resume: whole bundles are kept.",
    )
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", help="as `python -m workloads list` names it")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="where the bundles appear")
    what = parser.add_argument_group("what to capture")
    what.add_argument("--variants", metavar="A,B", default="", help="default: all of the workload")
    what.add_argument("--shapes", metavar="A,B", default="", help="default: the workload's first")
    what.add_argument("--dtype", default="bfloat16")
    what.add_argument("--repeats", type=_positive, default=1, metavar="N", help="bundles of each, interleaved (1)")
    what.add_argument("--iterations", type=_positive, default=20, metavar="N", help="steps in a timeline (20)")
    what.add_argument("--graphs", choices=list(map(str, Graphs)), help="as a CUDA graph, traced by node or as a whole")
    what.add_argument("--with-construction", action="store_true", help="trace how the graph is built, too")
    what.add_argument("--seed", type=int, default=0, help="of the data and of the order (0)")
    what.add_argument("--label", help="name of your own program in bundles; default: its file name")
    what.add_argument(
        "--condition", action="append", default=[], metavar="NAME=VALUE", help=f"what was held: {', '.join(CONDITIONS)}"
    )
    how = parser.add_argument_group("how")
    how.add_argument("--tool", choices=("nsys", "ncu", "both"), help="default: those that are here")
    how.add_argument("--trace", default="cuda,nvtx", help="of nsys (cuda,nvtx); nvtx alone for a program without CUDA")
    how.add_argument(
        "--window", choices=list(map(str, Window)),
        help="record between cudaProfilerStart and Stop; default: for workloads, not for your own program",
    )  # fmt: skip
    how.add_argument("--limit", type=_seconds, default=300.0, metavar="SECONDS", help="for each run of a tool (300)")
    how.add_argument("--blocks", type=_count, default=10, metavar="N", help="of the untraced bench; 0: none (10)")
    how.add_argument(
        "--processes", type=_count, metavar="N",
        help="bench in N fresh processes of one block each, which a verdict takes ten of; 0: in blocks of one process "
        "(default: as many as --repeats, where that is over 1)",
    )  # fmt: skip
    how.add_argument("--quality", action=argparse.BooleanOptionalAction, default=True, help="check the results, too")
    how.add_argument("--python", default=sys.executable, help="interpreter of the workloads; default: this one")
    how.add_argument("--keep-report", action="store_true", help="keep the .nsys-rep; it holds secrets")
    how.add_argument("--force", action="store_true", help="capture again what is there already")
    counters = parser.add_argument_group("counters (ncu)")
    counters.add_argument(
        "--metrics", default=",".join(PURPOSES), metavar="A,B", help=f"{', '.join(PURPOSES)}, or metrics by name"
    )
    counters.add_argument(
        "--kinds", default="in_model,cold", metavar="A,B",
        help="of traffic: in_model (the range as it runs), cold (caches flushed), replay_warm (in_model,cold)",
    )  # fmt: skip
    counters.add_argument("--region", metavar="LABEL", help="push/pop range to measure; default: a workload's root")
    counters.add_argument("--skip", type=_count, default=0, metavar="N", help="launches to skip")
    counters.add_argument("--count", type=_positive, metavar="N", help="results to collect at most")
    counters.add_argument("--counter-iterations", type=_positive, default=2, metavar="N", help="steps under ncu (2)")
    counters.add_argument("--counter-repeats", type=_positive, default=1, metavar="N", help="repeats with counters (1)")
    counters.add_argument("--clock-control", choices=("none", "base"), default="none")
    return parser


def capture_request(arguments: Sequence[str], prog: str) -> Request:
    """The request that a command line makes; raises UsageError where it makes none."""
    given = list(arguments)
    at = given.index(SEPARATOR) if SEPARATOR in given else len(given)
    chosen = capture_parser(prog).parse_args(given[:at])
    program = tuple(given[at + 1 :])
    if chosen.workload and program:
        raise UsageError(
            f"both a workload ({chosen.workload}) and a program ({program[0]})", remedy="name one of the two"
        )
    if program:
        for option in ("variants", "shapes"):
            if getattr(chosen, option):
                raise UsageError(f"--{option} is for workloads", remedy="give your program its own arguments after --")
    kinds = []
    for name in _names(chosen.kinds):
        if name not in list(Kind):
            raise UsageError(f"no kind of traffic is named {name!r}", remedy=f"use of: {', '.join(Kind)}")
        kinds.append(Kind(name))
    trace = _names(chosen.trace)
    if strange := set(trace) - {"cuda", "nvtx", "cublas", "cudnn", "osrt"}:
        raise UsageError(f"nsys does not trace {', '.join(sorted(strange))}", remedy="use cuda,nvtx")
    return Request(
        output=chosen.output, workload=chosen.workload, command=program, label=chosen.label,
        variants=_names(chosen.variants), shapes=_names(chosen.shapes), dtype=chosen.dtype,
        iterations=chosen.iterations, counter_iterations=chosen.counter_iterations, tool=chosen.tool,
        repeats=chosen.repeats, counter_repeats=chosen.counter_repeats,
        graphs=Graphs(chosen.graphs) if chosen.graphs else None, with_construction=chosen.with_construction,
        kinds=tuple(kinds), metrics=_names(chosen.metrics), region=chosen.region, skip=chosen.skip,
        count=chosen.count, clock_control=chosen.clock_control,
        window=Window(chosen.window) if chosen.window else None, trace=trace, limit_s=chosen.limit, seed=chosen.seed,
        blocks=chosen.blocks, processes=chosen.processes, quality=chosen.quality, keep_report=chosen.keep_report,
        force=chosen.force, python=chosen.python, conditions=dict(map(_condition, chosen.condition)),
    )  # fmt: skip


def doctor_parser(prog: str) -> Parser:
    """The options of ``doctor``."""
    parser = Parser(prog=prog, description="Find the tools, say what is wrong with them, and try a capture.")
    parser.add_argument("-f", "--format", choices=("text", "json"), default="text")
    parser.add_argument("--no-capture", action="store_true", help="leave the trial capture out")
    return parser


def scrub_parser(prog: str) -> Parser:
    """The options of ``scrub``."""
    parser = Parser(
        prog=prog,
        description="Copy a trace without environment variables, command lines, user, host and process names, paths "
        "and UUIDs. Every figure stays.",
    )
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a bundle folder, an nsys .sqlite or an ncu CSV")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True)
    parser.add_argument("--force", action="store_true", help="overwrite OUT")
    parser.add_argument("-f", "--format", choices=("text", "json"), default="text")
    return parser


def read_parser(prog: str) -> Parser:
    """The options of ``read``."""
    parser = Parser(
        prog=prog,
        description="Finish a capture that was made where there is no importer: import the .qdstrm, export it, compare "
        "it with what ran. A bundle is finished in its place.",
    )
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a bundle folder, a .qdstrm or a .nsys-rep")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the .sqlite of a bare report")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _condition(item: str) -> tuple[str, Any]:
    name, separator, value = item.partition("=")
    if not separator or not value or name not in CONDITIONS:
        raise UsageError(
            f"--condition {item}: not of the form NAME=VALUE", remedy=f"NAME is one of: {', '.join(CONDITIONS)}"
        )
    return name, int(value) if value.isdigit() else value


def _positive(text: str) -> int:
    return _at_least(text, 1)


def _count(text: str) -> int:
    return _at_least(text, 0)


def _at_least(text: str, least: int) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is less than {least}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds between 0 and a day")
    return value
