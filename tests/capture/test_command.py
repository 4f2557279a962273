"""Command lines of the tools, and the order in which they run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tracekit.capture.command import (
    PURPOSES,
    Graphs,
    Kind,
    Window,
    chosen_metrics,
    ncu_profile,
    nsys_profile,
    nvtx_filter,
)
from tracekit.capture.plan import bundle_name, steps, targets
from tracekit.errors import UsageError
from tracekit.model.manifest import CounterEntry


def ncu(kind: Kind, **options) -> list[str]:
    return ncu_profile(Path("ncu"), Path("a.csv"), ["prog", "-x"], kind=kind, metrics=list(PURPOSES), **options)


def value(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


@pytest.mark.parametrize("kind", Kind)
def test_the_kind_of_traffic_is_the_one_that_a_manifest_tells(kind):
    command = ncu(kind)
    entry = CounterEntry(
        "a", replay_mode=value(command, "--replay-mode"), cache_control=value(command, "--cache-control")
    )
    assert entry.kind == kind
    assert value(command, "--clock-control") == "none"
    assert command[-2:] == ["prog", "-x"]


def test_counters_of_kernels_are_not_asked_of_a_range():
    names, sections = chosen_metrics(list(PURPOSES), Kind.IN_MODEL)
    assert "dram__bytes_read.sum" in names
    assert not any(name.startswith("sass__") for name in names)
    assert sections == []
    names, sections = chosen_metrics(list(PURPOSES), Kind.COLD)
    assert "sass__inst_executed_register_spilling" in names
    assert sections == ["MemoryWorkloadAnalysis", "LaunchStats", "Occupancy", "SpeedOfLight"]


def test_metrics_by_name_and_unknown_ones():
    assert chosen_metrics(["lts__t_bytes.sum"], Kind.COLD) == (["lts__t_bytes.sum", "gpu__time_duration.sum"], [])
    with pytest.raises(UsageError, match="no metrics are named 'speed'"):
        chosen_metrics(["speed"], Kind.COLD)


def test_restrictions_of_ncu():
    command = ncu(Kind.COLD, include="tracekit@a/", window=Window.PROFILER_API, skip=3, count=5)
    assert value(command, "--nvtx-include") == "tracekit@a/"
    assert value(command, "--profile-from-start") == "off"
    assert value(command, "--launch-skip") == "3"
    assert value(command, "--launch-count") == "5"


def test_an_nvtx_filter_escapes_what_ncu_takes_for_its_own():
    assert nvtx_filter("layer1") == "tracekit@layer1/"
    assert nvtx_filter("fused/T1/iter") == "tracekit@fused\\/T1\\/iter/"
    assert nvtx_filter("a[0],b", domain="") == "a\\[0\\]\\,b/"


def test_nsys_never_traces_what_makes_it_hang():
    command = nsys_profile(Path("nsys"), Path("d/r.nsys-rep"), ["prog"], graphs=Graphs.GRAPH)
    assert "--trace=cuda,nvtx" in command
    assert "--cuda-graph-trace=graph" in command
    assert "--output=d/r" in command
    assert not any("capture-range" in word for word in command)
    without_cuda = nsys_profile(Path("nsys"), Path("r.nsys-rep"), ["prog"], trace=["nvtx"], graphs=Graphs.NODE)
    assert not any("cuda" in word for word in without_cuda)


def test_a_bundle_is_named_for_a_file_system():
    assert bundle_name("rms", "fused", "t1", True, 3) == "rms-fused-t1-graph-r3"
    assert bundle_name("a b/c", None, None, False, 1) == "a_b_c-r1"


def planned(seed: int, repeats: int = 6):
    wanted = targets("w", ["a", "b"], ["s"], graph=False, repeats=repeats)
    return steps(wanted, timeline=True, kinds=[Kind.COLD], counter_repeats=1, seed=seed)


def test_steps_interleave_variants_in_blocks_of_random_order():
    order = planned(0)
    assert len(order) == 2 * 6 + 2
    assert [step.target.repeat for step in order] == sorted(step.target.repeat for step in order)
    assert Counter(step.tool for step in order) == {"nsys": 12, "ncu cold": 2}
    firsts = {repeat: next(s.target.variant for s in order if s.target.repeat == repeat) for repeat in range(1, 7)}
    assert set(firsts.values()) == {"a", "b"}


def test_the_order_is_that_of_the_seed():
    assert planned(3) == planned(3)
    assert planned(3, 20) != planned(4, 20)
