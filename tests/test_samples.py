"""The sample traces: small, scrubbed, made by a command that still runs, and described by their own figures."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracekit import pipeline
from tracekit.model.manifest import Manifest
from workloads.base import find

SAMPLES = Path(__file__).parents[1] / "sample_traces"
BUNDLES = sorted(path.parent for path in SAMPLES.rglob("manifest.json"))


@pytest.fixture(scope="module")
def remake() -> dict[str, Any]:
    return runpy.run_path(str(SAMPLES / "remake.py"))


def test_the_table_is_that_of_the_bundles(remake: dict[str, Any]) -> None:
    readme = (SAMPLES / "README.md").read_text()
    table = readme.partition(remake["BEGIN"] + "\n")[2].partition(remake["END"])[0]
    assert table == remake["figures"](), "run: remake.py's write_figures()"
    prose = readme.partition(remake["BEGIN"])[0]
    for name in re.findall(r"`(\w+_\w+)`", prose):
        assert (SAMPLES / name).is_dir() or name == "request", name


def test_they_are_small(remake: dict[str, Any]) -> None:
    sizes = [path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()]
    assert max(sizes) <= remake["LARGEST_BYTES"]
    assert sum(sizes) <= remake["ALL_BYTES"]


def test_the_sets_name_workloads_that_there_are(remake: dict[str, Any]) -> None:
    made = {path.name for path in SAMPLES.iterdir() if path.is_dir()}
    for each in remake["SETS"]:
        workload = find(each.workload)
        shape = workload.shape(each.shape)
        for name in each.variants.split(","):
            assert workload.variant(name).why_not(shape, "bfloat16") is None
            assert f"{each.name}_{name}" in made


def strings(path: Path) -> Iterator[str]:
    yield from (found.decode() for found in re.findall(rb"[\x20-\x7e]{5,}", path.read_bytes()))


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_nothing_private_is_left(bundle: Path) -> None:
    private = re.compile(
        r"(?<![\w/])/(home|root|work|tmp|opt|usr|mnt|data)/\w|PATH=|[A-Z_]*TOKEN=|@[a-z]+\.[a-z]{2,}\b"
    )
    for path in bundle.iterdir():
        if path.suffix != ".ncu-rep":  # A report cannot be scrubbed; the README says what it keeps.
            assert not [text for text in strings(path) if private.search(text)][:3], path
    told = Manifest.from_dict(json.loads((bundle / "manifest.json").read_text()), source=str(bundle))
    assert told.capture_id == bundle.name
    assert not any(key in json.dumps(told.to_dict()).lower() for key in ("hostname", "/home", "uuid"))


def test_each_pair_has_a_verdict_or_says_why_not() -> None:
    matrix = pipeline.diff_matrix(SAMPLES)
    verdicts = {(cell.base, cell.test): str(cell.verdict) for cell in matrix.cells}
    assert len(verdicts) == 13
    assert verdicts["request_eager", "request_fused"] == "better"
    assert verdicts["swiglu_t1_eager", "swiglu_t1_one_kernel_spilling"] == "worse"
    assert verdicts["swiglu_t2048_eager", "swiglu_t2048_two_kernel"] == "worse"
    assert verdicts["quantized_t1_dequantize", "quantized_t1_fused_int4"] == "undetermined", "one process"


def test_the_repeats_are_of_the_headline_pair() -> None:
    repeats = pipeline.list_traces(SAMPLES / "request_repeats")
    assert sorted(repeats) == [f"{side}_r{n:02d}" for side in ("eager", "fused") for n in range(2, 11)]
    first = pipeline.report(repeats["fused_r02"])
    root = next(region for region in first.regions if region.path == ("fused/T128/request",))
    assert root.metrics["kernel_count"].value == 132
