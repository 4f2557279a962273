"""The ``tracekit`` command: one subcommand a verb. Data goes to stdout or a file, advice to stderr."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tracekit.errors import NotComparableError, TracekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from tracekit.capture.session import Outcome
    from tracekit.model.report import Comparison, Gate

app = typer.Typer(
    name="tracekit",
    help='Answers "did this kernel change help, by how much, and why?" from Nsight reports.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(StrEnum):
    """How a result is written."""

    TEXT = "text"
    JSON = "json"


class DiffFormat(StrEnum):
    """How a comparison is written: markdown suits a pull-request comment, html is one self-contained page."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    JUNIT = "junit"


TraceArgument = Annotated[
    str, typer.Argument(help="A bundle folder, an nsys .sqlite export, an .ncu-rep or an ncu CSV.", metavar="TRACE")
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How to write the result.")]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite FILE.")]
DepthOption = Annotated[int | None, typer.Option("--depth", min=1, help="Levels of regions to print as text.")]
CountersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--counters",
        metavar="[KIND=]FILE",
        help="Add Nsight Compute data; KIND is cold, replay_warm or in_model, which a CSV does not record.",
    ),
]


@app.command()
def show(
    trace: TraceArgument,
    counters: CountersOption = None,
    format: FormatOption = Format.TEXT,
    output: OutputOption = None,
    force: ForceOption = False,
    depth: DepthOption = None,
) -> None:
    """Show one capture: every region's time, gaps, DRAM bytes, spills and active blocks."""
    _refuse_overwrite(output, force, trace, *counters or ())
    from tracekit import pipeline

    report = pipeline.report(trace, counters=counters or ())
    if format is Format.JSON:
        from tracekit.render.json import show_json

        _write(show_json(report), output)
    else:
        from tracekit.render.text import show_text

        _write(show_text(report, depth=depth), output)


@app.command()
def gaps(
    trace: TraceArgument,
    format: FormatOption = Format.TEXT,
    output: OutputOption = None,
    force: ForceOption = False,
    longest: Annotated[int, typer.Option("--longest", min=0, help="How many of the longest gaps to list.")] = 10,
    at_least: Annotated[float, typer.Option("--at-least", min=0, metavar="US", help="Leave shorter gaps out.")] = 0,
    region: Annotated[str | None, typer.Option("--region", metavar="PATH", help="Only gaps of that region.")] = None,
) -> None:
    """Show idle device time: in gaps of which length, for which cause, and the longest ones."""
    _refuse_overwrite(output, force, trace)
    from tracekit import pipeline

    report = pipeline.report(trace)
    within = None if region is None else pipeline.region_named(report, region)
    data = pipeline.idle_report(report, longest=longest, at_least_ns=round(at_least * 1000), within=within)
    if format is Format.JSON:
        from tracekit.render.json import gaps_json

        _write(gaps_json(data), output)
    else:
        from tracekit.render.text import gaps_text

        _write(gaps_text(data), output)


def _print_rules(wanted: bool) -> None:
    """Prints the rules by which kernel names are made equal, and ends."""
    if wanted:
        from tracekit import pipeline

        typer.echo("\n".join(f"{rule.name:20} {rule.doc}" for rule in pipeline.NAME_RULES))
        raise typer.Exit


@app.command()
def diff(
    base: Annotated[str | None, typer.Argument(help="The capture before the change.", metavar="BASE")] = None,
    test: Annotated[str | None, typer.Argument(help="The capture after it.", metavar="TEST")] = None,
    base_counters: Annotated[
        list[str] | None, typer.Option("--base-counters", metavar="[KIND=]FILE", help="Nsight Compute data of BASE.")
    ] = None,
    test_counters: Annotated[
        list[str] | None, typer.Option("--test-counters", metavar="[KIND=]FILE", help="Nsight Compute data of TEST.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Label OLD of BASE is NEW in TEST.")
    ] = None,
    waive: Annotated[
        list[str] | None, typer.Option("--waive", metavar="CONDITION", help="Compare although CONDITION differs.")
    ] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="FILE.toml", help="Which region of BASE is which of TEST.")
    ] = None,
    write_map: Annotated[
        Path | None, typer.Option("--write-map", metavar="FILE.toml", help="Write the pairing as a map to edit.")
    ] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(
            "--matrix", metavar="DIR", help="Compare every variant in DIR with its baseline, instead of BASE with TEST."
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="VARIANT", help="With --matrix: the variant to compare with.")
    ] = None,
    show_rules: Annotated[
        bool, typer.Option("--show-rules", is_eager=True, callback=_print_rules, help="List the rules for names.")
    ] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="RULE",
            help="Exit 1 where [REGION:] METRIC OP LIMIT holds: 'latency_ns > +2%', '*/norm: dram_read_bytes > +5%'.",
        ),
    ] = None,
    format: Annotated[DiffFormat, typer.Option("--format", "-f", help="How to write the result.")] = DiffFormat.TEXT,
    output: OutputOption = None,
    force: ForceOption = False,
    depth: DepthOption = None,
) -> None:
    """Compare two captures of the same work: did it help, by how much, and why.

    With --fail-on it is a gate: exit 1 where a rule failed, 4 where one cannot be told, 3 where the captures are not
    comparable, 2 where a rule matches nothing.
    """
    if matrix is not None:
        alone = (base, test, base_counters, test_counters, rename, map_file, write_map)
        if any(option is not None for option in alone):
            raise UsageError(
                "--matrix compares the bundles of a folder", remedy="leave out BASE, TEST, counters, renames and maps"
            )
        _matrix(matrix, baseline, waive or (), fail_on or (), format, output, force)
        return
    if base is None or test is None or baseline is not None:
        raise typer.BadParameter("diff takes BASE and TEST, or a folder of bundles with --matrix")
    inputs = [base, test, *(base_counters or ()), *(test_counters or ())]
    inputs += [str(map_file)] if map_file else []
    _refuse_overwrite(output, force, *inputs)
    _refuse_overwrite(write_map, force, *inputs)
    from tracekit import pipeline

    renames = [_rename(item) for item in rename or ()]
    rules = [pipeline.parse_rule(rule) for rule in fail_on or ()]
    region_map = pipeline.read_map(map_file) if map_file else None
    sides = ((base, base_counters or ()), (test, test_counters or ()))
    try:
        comparison = pipeline.diff(*pipeline.reports(sides), rename=renames, region_map=region_map, waive=waive or ())
    except NotComparableError as error:
        if format is not DiffFormat.TEXT:
            _write(_refusal(error, format), output)
        raise
    gate = pipeline.judge_gate(comparison, rules) if rules else None
    if write_map is not None:
        _write(pipeline.propose_map(comparison), write_map)
    _write(_comparison(comparison, gate, format, depth), output)
    _leave(gate.exit_code if gate else 0)


def _matrix(
    directory: Path,
    baseline: str | None,
    waive: Sequence[str],
    fail_on: Sequence[str],
    format: DiffFormat,
    output: Path | None,
    force: bool,
) -> None:
    """Every variant against its baseline, and the gate on each."""
    if format not in (DiffFormat.TEXT, DiffFormat.JSON, DiffFormat.MARKDOWN):
        raise UsageError(f"--matrix is not written as {format}", remedy="take text, json or markdown")
    _refuse_overwrite(output, force, str(directory))
    from tracekit import pipeline
    from tracekit.render.matrix import matrix_json, matrix_markdown, matrix_text

    rules = [pipeline.parse_rule(rule) for rule in fail_on]
    found = pipeline.diff_matrix(directory, baseline=baseline, waive=waive, gate=rules)
    writers = {DiffFormat.TEXT: matrix_text, DiffFormat.JSON: matrix_json, DiffFormat.MARKDOWN: matrix_markdown}
    _write(writers[format](found), output)
    _leave(found.exit_code)


def _leave(exit_code: int) -> None:
    """Ends with a gate's exit code where it is not 0, and says why."""
    if exit_code:
        sys.stderr.write(f"tracekit: the gate {'failed' if exit_code == 1 else 'is undetermined'}\n")
        raise typer.Exit(exit_code)


def _comparison(
    comparison: Comparison, gate: Gate | None, format: DiffFormat, depth: int | None
) -> str | RenderableType:
    from tracekit import pipeline

    rows, main_pair = pipeline.findings(comparison), pipeline.main_region(comparison)
    match format:
        case DiffFormat.JSON:
            from tracekit.render.json import diff_json

            return diff_json(comparison, gate)
        case DiffFormat.MARKDOWN:
            from tracekit.render.markdown import diff_markdown

            return diff_markdown(comparison, rows, main_pair, gate)
        case DiffFormat.HTML:
            from tracekit.render.html import diff_html

            return diff_html(comparison, rows, main_pair, gate)
        case DiffFormat.JUNIT:
            from tracekit.render.junit import diff_junit

            return diff_junit(comparison, gate)
        case _:
            from tracekit.render.text import diff_text

            return diff_text(comparison, rows, main_pair, depth=depth, gate=gate)


def _refusal(error: NotComparableError, format: DiffFormat) -> str:
    match format:
        case DiffFormat.MARKDOWN:
            from tracekit.render.markdown import refusal_markdown

            return refusal_markdown(error)
        case DiffFormat.HTML:
            from tracekit.render.html import refusal_html

            return refusal_html(error)
        case DiffFormat.JUNIT:
            from tracekit.render.junit import refusal_junit

            return refusal_junit(error)
        case _:
            from tracekit.render.json import refusal_json

            return refusal_json(error)


@app.command(name="app")
def app_command(
    directory: Annotated[
        Path | None, typer.Argument(help="Folder of traces; the bundled samples if absent.", metavar="DIR")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on localhost.")] = 8501,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Open the dashboard on a folder of traces, or on the bundled samples."""
    from tracekit.app.server import serve

    raise typer.Exit(serve(directory, port=port, open_browser=browser))


class _Forwarding(TyperCommand):
    """A command whose arguments go to the capture side's own parser as they are.

    That side needs no typer, so that it runs in a bare container; what it takes is declared once, there.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return []


@app.command(cls=_Forwarding)
def capture(context: typer.Context) -> None:
    """Capture a workload, or your own program, under Nsight Systems and Nsight Compute into verified bundles."""
    from tracekit.capture.__main__ import capture as run

    progress = _Progress() if sys.stderr.isatty() else None
    raise typer.Exit(run(context.args, "tracekit capture", observer=progress, show=_show_summary))


@app.command(cls=_Forwarding)
def doctor(context: typer.Context) -> None:
    """Find the tools, say what is wrong with them, and try a capture."""
    from tracekit.capture.__main__ import doctor as run

    raise typer.Exit(run(context.args, "tracekit doctor"))


@app.command(cls=_Forwarding)
def scrub(context: typer.Context) -> None:
    """Copy a trace without what is private: environment, command lines, names, paths, UUIDs."""
    from tracekit.capture.__main__ import scrub as run

    raise typer.Exit(run(context.args, "tracekit scrub"))


@app.command(cls=_Forwarding)
def read(context: typer.Context) -> None:
    """Finish a capture that was made where there is no importer."""
    from tracekit.capture.__main__ import read as run

    raise typer.Exit(run(context.args, "tracekit read"))


class _Progress:
    """A progress bar on a terminal's stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("")
        self._started = 0

    def begin(self, total: int) -> None:
        """So many steps are to come."""
        self._bar.update(self._task, total=total)
        self._bar.start()

    def step(self, text: str) -> None:
        """A step starts, so that those before it are done."""
        self._bar.update(self._task, completed=self._started, description=text)
        self._started += 1

    def advice(self, text: str) -> None:
        """A line that stays above the bar."""
        self._bar.console.print(f"tracekit: {text}", markup=False, highlight=False)

    def end(self) -> None:
        """Takes the bar off."""
        self._bar.stop()


def _show_summary(outcomes: Sequence[Outcome]) -> None:
    from rich.table import Table

    from tracekit.capture import summary

    table = Table(box=None, pad_edge=False)
    for heading in summary.HEADINGS:
        table.add_column(heading, overflow="fold", justify="right" if heading in summary.NUMBERS else "left")
    for row in summary.rows(outcomes):
        table.add_row(*row)
    _print(table, None)
    sys.stdout.write(summary.closing(outcomes) + "\n")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        from tracekit import __version__

        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


def main() -> None:
    """The console script: exits 0, or with the exit code of the error, which is printed to stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe may not be UTF-8: replace what it cannot carry
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:
        sys.stderr.write("tracekit: interrupted\n")
        sys.exit(130)
    except TracekitError as error:
        message = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in str(error))
        sys.stderr.write(f"tracekit: {message}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _rename(item: str) -> tuple[str, str]:
    old, separator, new = item.partition("=")
    if not (old and separator and new):
        raise UsageError(f"--rename {item}: not of the form OLD=NEW", remedy="give both labels, joined by =")
    return old, new


def _refuse_overwrite(output: Path | None, force: bool, *inputs: str) -> None:
    """Before any work is done, so that nothing is lost at its end. Inputs are never replaced, even by force."""
    if output is None:
        return
    own = {os.path.realpath(item.rpartition("=")[2]) for item in inputs} | {os.path.realpath(item) for item in inputs}
    target = os.path.realpath(output)
    if target in own or os.path.dirname(target) in own:
        raise UsageError(f"{output}: is an input, or lies in one", remedy="name another file")
    if os.path.lexists(output) and not force:
        raise UsageError(f"{output}: exists already", remedy="name another file, or overwrite it with --force")
    if os.path.lexists(output) and not os.path.isfile(output):
        raise UsageError(f"{output}: is no regular file", remedy="name a file")
    if not os.path.isdir(output.parent):
        raise UsageError(f"{output.parent}: no such folder", remedy="make it, or name another file")


def _write(result: str | RenderableType, output: Path | None) -> None:
    """To stdout, or to a file that appears whole or not at all."""
    if output is None:
        if isinstance(result, str):
            sys.stdout.write(result + "\n")
        else:
            _print(result, None)
        return
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}", remedy="name a file that can be written") from None
    try:
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            if isinstance(result, str):
                file.write(result + "\n")
            else:
                _print(result, file)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, output)
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}", remedy="name a file that can be written") from None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _print(result: RenderableType, file: Any) -> None:
    from rich.console import Console

    width = None if file is None and (sys.stdout.isatty() or os.environ.get("COLUMNS")) else 160
    Console(file=file, width=width, markup=False, emoji=False, highlight=False).print(result)
