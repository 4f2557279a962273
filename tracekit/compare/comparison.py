"""Runs the room's functions in order on two reports and assembles a comparison."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tracekit.compare.align import align
from tracekit.compare.answer import answer
from tracekit.compare.conditions import check_conditions, differing_environment, refuse
from tracekit.compare.drift import drift_control
from tracekit.compare.findings import findings, main_region
from tracekit.compare.kernels import match_kernels
from tracekit.compare.quality import computes_wrong, quality_notes
from tracekit.compare.statistics import ENOUGH, Sample, estimate
from tracekit.compare.traffic import roof, traffic
from tracekit.compare.waterfall import traced_waterfall, untraced_waterfall
from tracekit.model.labels import UNATTRIBUTED, Path
from tracekit.model.report import (
    Change,
    Comparison,
    DriftControl,
    Latency,
    Metric,
    Region,
    RegionDelta,
    RegionPair,
    Report,
    Waterfall,
)
from tracekit.model.tables import BENCH, DRAM_KINDS, REGION_METRICS
from tracekit.model.units import Unit, write
from tracekit.model.verdict import MARGIN, judge_figures, reconsidered

_Key = TypeVar("_Key", bound=Hashable)


def compare(
    base: Report,
    test: Report,
    *,
    rename: Sequence[tuple[str, str]] = (),
    told: Sequence[tuple[Path, Path]] = (),
    waive: Sequence[str] = (),
    matching: str = "ranges",
    notes: Sequence[str] = (),
) -> Comparison:
    """``test`` against ``base``. Raises NotComparableError for a condition that differs and is not waived.

    ``rename`` maps labels and ``told`` whole paths of the base to those of the test. ``matching`` says what the
    reports' regions are.
    """
    mismatches, unknown = check_conditions(base, test, waive)
    refuse(mismatches, unknown)
    alignment = align(base.regions, test.regions, rename, told)
    notes = [*notes, *alignment.notes]
    if unknown:
        notes.append(f"Not known on both sides, so not checked: {', '.join(unknown)}.")
    notes += [f"Waived: {m.condition} differs ({m.base} against {m.test})." for m in mismatches]
    if alignment.pairs and not any(b is not None and t is not None for b, t in alignment.pairs):
        notes.append("No region of one side has a counterpart on the other: use --rename OLD=NEW.")
    notes += differing_environment(base, test)
    fewest = min((entry.processes for report in (base, test) for entry in report.latency), default=ENOUGH)
    if fewest < ENOUGH:
        notes.append(
            f"Untraced latency rests on as few as {fewest} processes a side; fewer than {ENOUGH} cannot settle a small "
            "difference."
        )
    if any(_of_two_runs(entry, other) for entry in base.latency for other in test.latency):
        notes.append(
            "Untraced samples are of two runs of the bench, not interleaved with each other: they are not paired. "
            "Capture both variants at once."
        )
    notes += [*quality_notes("base", base), *quality_notes("test", test), *_differing_clocks(base, test)]
    wrong = computes_wrong(test)
    drift = drift_control(base, test)
    pairs = tuple(_pair(b, t, wrong) for b, t in alignment.pairs)
    latency = _latency(base, test, wrong)
    main = main_region(pairs)
    waterfalls, deltas = _accounts(main, pairs, base, test, latency, drift)
    if main is not None and _several_roots(main, pairs):
        notes.append(
            "Several roots hold device work: untraced latency, which is of them all, is not split by the main one's."
        )
    compared = Comparison(
        base=base,
        test=test,
        comparable=True,
        mismatches=mismatches,
        unknown=unknown,
        regions=pairs,
        latency=latency,
        drift=drift,
        notes=(*notes, drift.sentence, *_notes_of("base", base), *_notes_of("test", test)),
        answer=answer(main, pairs, base, test, latency, drift, waterfalls),
        waterfalls=waterfalls,
        region_deltas=deltas,
        matching=matching,
        phases=_phases(base, test, wrong),
    )
    return replace(compared, findings=findings(compared), traffic=traffic(compared), roof=roof(compared))


def _accounts(
    main: RegionPair | None,
    pairs: Sequence[RegionPair],
    base: Report,
    test: Report,
    latency: Mapping[str, Change],
    drift: DriftControl,
) -> tuple[tuple[Waterfall, ...], tuple[RegionDelta, ...]]:
    """The waterfalls that can be made, the untraced one first, and the deltas by region."""
    if main is None:
        return (), ()
    traced, deltas = traced_waterfall(main, pairs, base, test)
    untraced = None if _several_roots(main, pairs) else untraced_waterfall(main, base, test, latency, drift)
    both = (untraced, traced)
    return tuple(waterfall for waterfall in both if waterfall is not None), deltas


_ELSEWHERE: Final = 0.1


def _several_roots(main: RegionPair, pairs: Sequence[RegionPair]) -> bool:
    """Whether other ranges that are no part of the main region hold a tenth as much device time, on either side."""
    for side, paths in (("base", [p.base_path for p in pairs]), ("test", [p.test_path for p in pairs])):
        times = [0.0, 0.0]
        for pair, path in zip(pairs, paths, strict=True):
            if path is None or len(path) != 1 or path == (UNATTRIBUTED,):
                continue
            value = getattr(pair.metrics["device_ns"], side) if "device_ns" in pair.metrics else None
            instances = pair.base_instances if side == "base" else pair.test_instances
            times[pair is not main] += value * instances if isinstance(value, int | float) else 0.0
        if times[1] > _ELSEWHERE * times[0]:
            return True
    return False


def _notes_of(side: str, report: Report) -> list[str]:
    """What a capture's own report warns of holds for the comparison, too."""
    return [f"{side}: {note}" for note in report.notes]


def _pair(base: Region | None, test: Region | None, wrong: bool) -> RegionPair:
    known = base or test
    assert known is not None
    names = [column.name for column in REGION_METRICS if column.name in {*_metrics(base), *_metrics(test)}]
    notes = [f"{side}: {note}" for side, region in (("base", base), ("test", test)) if region for note in region.notes]
    notes = [*_unlike_kinds(base, test), *notes]
    if base is None or test is None:
        notes.insert(0, f"only the {'test' if base is None else 'base'} side has this region")
    return RegionPair(
        path=known.path,
        base_path=base.path if base else None,
        test_path=test.path if test else None,
        base_instances=base.instances if base else 0,
        test_instances=test.instances if test else 0,
        metrics={
            name: _judged(change(name, _metrics(base).get(name), _metrics(test).get(name)), wrong) for name in names
        },
        kernels=match_kernels(base.kernels if base else (), test.kernels if test else ()),
        notes=tuple(notes),
    )


def _unlike_kinds(base: Region | None, test: Region | None) -> list[str]:
    """A note where DRAM bytes were counted in different cache states, and so make no difference."""
    sides = [_metrics(region).get("dram_read_bytes") for region in (base, test)]
    kinds = [set(metric.kinds) for metric in sides if metric is not None and metric.kinds]
    if len(kinds) < 2 or kinds[0] & kinds[1] & set(DRAM_KINDS):
        return []
    words = [" and ".join(sorted(kind)) for kind in kinds]
    return [
        f"dram_read_bytes, dram_write_bytes: the cache state of the base is {words[0]} and of the test {words[1]}, so "
        "they are not subtracted"
    ]


def _metrics(region: Region | None) -> Mapping[str, Metric]:
    return region.metrics if region else {}


def change(name: str, base: Metric | None, test: Metric | None) -> Change:
    """A metric on both sides. DRAM bytes are compared in the first kind that both sides have, never across kinds."""
    column = REGION_METRICS[name]
    if base and test and (base.kinds or test.kinds):
        common = [kind for kind in DRAM_KINDS if kind in base.kinds and kind in test.kinds]
        if common:
            base, test = base.kinds[common[0]], test.kinds[common[0]]
        elif base.kind != test.kind or base.kind is None:
            # Each side keeps its figure, but figures of different cache states make no difference.
            return Change(base.value, test.value, None, None, column.unit, column.better)
    elif base and test and base.kind != test.kind:
        return Change(base.value, test.value, None, None, column.unit, column.better)
    delta, ratio = _difference(base.value if base else None, test.value if test else None)
    kind = base.kind if base and test else None
    return Change(
        base.value if base else None, test.value if test else None, delta, ratio, column.unit, column.better, kind
    )


def _difference(base: float | str | None, test: float | str | None) -> tuple[float | int | None, float | None]:
    if not isinstance(base, int | float) or not isinstance(test, int | float):
        return None, None
    return test - base, test / base if base else None


def _judged(change: Change, wrong: bool) -> Change:
    """The change with its verdict. Two figures that make no difference (of different cache states) are unmeasured."""
    numbers = isinstance(change.base, int | float) and isinstance(change.test, int | float)
    base, test = (None, None) if numbers and change.delta is None else (change.base, change.test)
    return replace(change, verdict=reconsidered(judge_figures(base, test, change.better), wrong=wrong))


def _latency(base: Report, test: Report, wrong: bool) -> dict[str, Change]:
    """Untraced latency by protocol: medians over processes, and the estimate of their ratio with its verdict."""
    sides = [{entry.protocol: entry for entry in report.latency} for report in (base, test)]
    return _estimated(sides[0], sides[1], wrong)


def _phases(base: Report, test: Report, wrong: bool) -> dict[tuple[str, str], Change]:
    """The same for the parts of a request that both sides measured, by (phase, protocol)."""
    sides = [{(str(entry.phase), entry.protocol): entry for entry in report.phases} for report in (base, test)]
    both = [{key: entry for key, entry in side.items() if key in sides[0] and key in sides[1]} for side in sides]
    return _estimated(both[0], both[1], wrong)


def _estimated(base: Mapping[_Key, Latency], test: Mapping[_Key, Latency], wrong: bool) -> dict[_Key, Change]:
    better = BENCH["latency_ns"].better
    out = {}
    for protocol in dict.fromkeys((*base, *test)):
        entries = [side.get(protocol) for side in (base, test)]
        first, second = (entry.median_ns if entry else None for entry in entries)
        together = not _of_two_runs(entries[0], entries[1])
        found = estimate(samples(entries[0], in_blocks=together), samples(entries[1], in_blocks=together))
        verdict = reconsidered(found.verdict, wrong=wrong) or found.verdict
        out[protocol] = Change(
            first,
            second,
            *_difference(first, second),
            Unit.NS,
            better,
            verdict=verdict,
            estimate=replace(found, verdict=verdict),
        )
    return out


def _of_two_runs(base: Latency | None, test: Latency | None) -> bool:
    """Whether two sides come from different runs of a bench: then block 3 of one has nothing to do with block 3 of the
    other. Files that do not record their run are taken at their word."""
    return base is not None and test is not None and base.run != test.run


def samples(entry: Latency | None, *, in_blocks: bool = True) -> list[Sample]:
    """The processes of one side; none where it was not measured. Without blocks they are not paired."""
    if entry is None:
        return []
    blocks = entry.blocks if entry.blocks and in_blocks else (None,) * len(entry.samples_ns)
    return [Sample(value, block) for value, block in zip(entry.samples_ns, blocks, strict=True)]


def _differing_clocks(base: Report, test: Report) -> list[str]:
    """A note for each protocol whose two sides ran at different clocks."""
    test_clocks = {entry.protocol: entry.sm_clock_mhz for entry in test.latency}
    notes = []
    for entry in base.latency:
        clocks = (entry.sm_clock_mhz, test_clocks.get(entry.protocol))
        if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > MARGIN:
            notes.append(
                f"Untraced samples, {entry.protocol}, ran at different SM clocks: a median of "
                f"{write(clocks[0], Unit.MHZ)} MHz against {write(clocks[1], Unit.MHZ)} MHz."
            )
    return notes
