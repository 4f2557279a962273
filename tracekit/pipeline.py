"""Composes the rooms: open a trace, analyze it, compare two. The only module that knows them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from difflib import get_close_matches
from os import PathLike
from os.path import isfile
from pathlib import Path

from tracekit import compare as rules
from tracekit.analyze import Tracks, analyze, without_ranges
from tracekit.analyze import idle_report as idle_report
from tracekit.analyze import what_if as what_if
from tracekit.capture import finish
from tracekit.compare import RegionMap, Rule, compare, parse_map
from tracekit.compare import judge_gate as judge_gate
from tracekit.compare import parse_rule as parse_rule
from tracekit.compare import propose_map as propose_map
from tracekit.errors import InputError, UsageError
from tracekit.model import labels, manifest
from tracekit.model.report import Comparison, Matrix, RegionPair, Report
from tracekit.model.timeline import Place, Source
from tracekit.model.trace import Trace
from tracekit.read import add_counters, read_manifest, read_trace
from tracekit.render.words import Row, rows

NAME_RULES = rules.RULES
"""The rules by which kernel names are made equal."""

_SLOW_TABLES = ("kernels", "calls", "ranges")
_BARE_FILES = {".sqlite", ".ncu-rep", ".csv", *finish.SUFFIXES}


def open_trace(path: str | PathLike[str], *, counters: Sequence[str | PathLike[str]] = ()) -> Trace:
    """The trace at ``path``: a bundle folder, an nsys ``.sqlite``, an ``.ncu-rep`` or an ncu CSV.

    A ``.qdstrm`` or ``.nsys-rep``, bare or a bundle's timeline, is finished first by this machine's Nsight Systems, and
    its export kept in the user's cache.
    ``counters`` adds Nsight Compute files to it; ``cold=FILE``, ``replay_warm=FILE`` or ``in_model=FILE`` tells the
    cache state that a CSV does not record. Raises InputError for a file that cannot be used.
    """
    trace = read_trace(Path(path), timeline=_finished(Path(path)))
    for item in counters:
        add_counters(trace, str(item))
    return trace


def report(trace: Trace | str | PathLike[str], *, counters: Sequence[str | PathLike[str]] = ()) -> Report:
    """The report of a trace: every region's metrics, with coverage and notes. Times in ns, sizes in bytes."""
    if not isinstance(trace, Trace):
        trace = open_trace(trace, counters=counters)
    if trace.has_timeline:
        with ThreadPoolExecutor(len(_SLOW_TABLES)) as pool:
            list(pool.map(trace.table, _SLOW_TABLES))
    return analyze(trace)


def reports(sides: Sequence[tuple[str | PathLike[str], Sequence[str]]]) -> list[Report]:
    """The reports of several (path, counters), made side by side. Raises the first one's error where several fail."""
    with ThreadPoolExecutor(max(1, len(sides))) as pool:
        pending = [pool.submit(report, path, counters=counters) for path, counters in sides]
        return [one.result() for one in pending]


def diff(
    base: Report | Trace | str | PathLike[str],
    test: Report | Trace | str | PathLike[str],
    *,
    rename: Sequence[tuple[str, str]] = (),
    region_map: RegionMap | None = None,
    waive: Sequence[str] = (),
) -> Comparison:
    """``test`` against ``base``: regions paired by path, kernels many to many, every metric's delta and ratio.

    ``rename`` maps labels of the base to labels of the test, and ``region_map`` (of :func:`read_map`) whole paths.
    ``waive`` names conditions that may differ. Raises NotComparableError where another condition differs.

    >>> import tracekit
    >>> comparison = tracekit.diff("sample_traces/request_eager", "sample_traces/request_fused")
    >>> print(comparison.answer.verdict, f"{comparison.answer.interval.value:.3f}")
    better 0.397
    >>> [reason.code for reason in comparison.answer.reasons if reason.role == "because"]
    ['launches_removed']
    >>> comparison.frame("regions").loc[lambda frame: frame["metric"] == "kernel_count", ["base", "test"]].head(2)
      base test
    0  882  132
    1  201   45
    >>> comparison.frame("waterfalls")[["step", "delta_ns"]].head(2)
                    step  delta_ns
    0  kernel_fixed_cost   -528000
    1         dram_bytes    -34117
    """
    made = [side if isinstance(side, Report) else report(side) for side in (base, test)]
    first, second, matching, notes = without_ranges(made[0], made[1])
    told = region_map or RegionMap()
    return compare(
        first,
        second,
        rename=(*told.labels, *rename),
        told=told.regions,
        waive=waive,
        matching=matching,
        notes=notes,
    )


def diff_matrix(
    directory: str | PathLike[str],
    *,
    baseline: str | None = None,
    waive: Sequence[str] = (),
    gate: Sequence[Rule] = (),
) -> Matrix:
    """Every variant of each workload in a folder of bundles against its baseline, shape by shape.

    ``baseline`` names the variant to compare with; else what the manifests say, or a usual name. Raises InputError for
    a folder without bundles, UsageError where the baseline cannot be told.
    """
    bundles = {name: path for name, path in list_traces(directory).items() if _is_bundle(path)}
    manifests = {name: read_manifest(path) for name, path in bundles.items()}
    plan = rules.plan_matrix(manifests, source=str(directory), baseline=baseline, waive=waive)
    waived = (*waive, "compile_mode")
    reports: dict[str, Report] = {}
    cells = []
    for planned in plan.cells:
        if planned.base not in reports:
            reports = {planned.base: report(bundles[planned.base])}
        comparison = diff(reports[planned.base], report(bundles[planned.test]), waive=waived)
        cells.append(rules.cell(planned, comparison, judge_gate(comparison, gate) if gate else None))
    return rules.assemble(plan, cells)


def usual_pair(traces: Mapping[str, Path]) -> tuple[str, str] | None:
    """The pair among traces by name to begin with: a baseline, and the variant that is compared with it first.

    A full request comes before its parts. None where the bundles tell of no such pair.
    """
    manifests = {}
    for name, path in traces.items():
        if _is_bundle(path):
            with suppress(InputError):
                manifests[name] = read_manifest(path)
    try:
        plan = rules.plan_matrix(manifests, source="")
    except (InputError, UsageError):
        return None
    of_request = [cell for cell in plan.cells if "kv_tokens" in manifests[cell.base].conditions]
    return next(((cell.base, cell.test) for cell in (*of_request, *plan.cells)), None)


def read_map(path: str | PathLike[str]) -> RegionMap:
    """The map in a TOML file; InputError that names the file where it cannot be used."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "bytes that are no UTF-8"
        raise InputError(
            path, expected="a map in TOML", found=(found or str(error)).lower(), remedy="write one with --write-map"
        ) from None
    return parse_map(text, source=str(path))


def region_named(report: Report, text: str) -> labels.Path:
    """The path of a region as it is written: labels joined by "/", a slash inside a label as "\\/".

    Raises UsageError with the nearest names where there is none.
    """
    known = {labels.join(region.path): region.path for region in report.regions}
    if text not in known:
        near = get_close_matches(text, known, n=3, cutoff=0.3) or list(known)[:3]
        raise UsageError(f"no region is named {text!r}", remedy=f"use one of tracekit show's: {', '.join(near)}")
    return known[text]


def main_region(comparison: Comparison) -> RegionPair | None:
    """The root that both sides have and that costs the base the most device time; None where no root is paired."""
    return rules.main_region(comparison.regions)


def timeline(report: Report) -> Source | None:
    """The timeline of a report, indexed, to be looked at window by window; None where the capture has none."""
    return Tracks.of(report.frames)


def places(
    comparison: Comparison,
    pair: RegionPair | None,
    sources: Mapping[str, Source | None],
    instances: Mapping[str, int | None],
) -> dict[str, Place | None]:
    """Where a region's instances lie on each side (base, test): those numbered, or the median ones.

    Where a side does not have the region, the nearest one around it stands for it, and at last the whole capture.
    """
    out: dict[str, Place | None] = {}
    for side, source in sources.items():
        path = rules.nearest_on(side, pair, comparison.regions) if pair else None
        found = None if source is None else source.find(path, instances.get(side))
        out[side] = found or (None if source is None else source.find(path) or source.find(None))
    return out


def findings(comparison: Comparison, pair: RegionPair | None = None) -> tuple[Row, ...]:
    """The five rows for a region in words, by default for the main one; none where no root is paired."""
    return rows(rules.findings(comparison, pair))


def _finished(path: Path) -> Path | None:
    """The export of a report that is none yet; None where nothing is to be finished."""
    report = finish.unfinished(path)
    return None if report is None else finish.cached_export(report, written_by=finish.tool_version(path))


def samples_directory() -> Path:
    """The bundled sample traces: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    places = (package / "sample_traces", package.parent / "sample_traces")
    for place in places:
        if place.is_dir():
            return place
    raise InputError(
        places[0],
        expected="the bundled sample traces",
        found="no such folder",
        remedy="install tracekit again, or name a folder of traces",
    )


def list_traces(directory: str | PathLike[str]) -> dict[str, Path]:
    """The traces in a folder by name: bundles and bare report files, and the folder itself where it is a bundle.

    Lists by name alone; a file that cannot be used says so when it is opened. Raises InputError for what is no folder.
    """
    folder = Path(directory)
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            folder,
            expected="a folder of traces",
            found=(error.strerror or str(error)).lower(),
            remedy="name a folder that holds trace bundles or report files",
        ) from None
    own = {folder.resolve().name: folder} if _is_bundle(folder) else {}
    return own | {
        entry.name: entry for entry in entries if _is_bundle(entry) or (entry.suffix in _BARE_FILES and isfile(entry))
    }


def _is_bundle(folder: Path) -> bool:
    """Whether a manifest can be seen there; os.path, since pathlib raises for a folder that one may not enter."""
    return isfile(folder / manifest.FILE_NAME)
