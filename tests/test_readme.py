"""The README tells the truth: its figures are those that its commands print, and its Python runs."""

import doctest
import re
from pathlib import Path

from tracekit import pipeline
from tracekit.compare.findings import _ROW_OF
from tracekit.compare.gate import parse_rule
from tracekit.render.words import headline

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.M | re.S)


def test_the_five_rows_are_those_of_the_samples() -> None:
    (shown,) = [block for block in blocks() if block.startswith("compare")]
    comparison = pipeline.diff(ROOT / "sample_traces/request_eager", ROOT / "sample_traces/request_fused")
    lines = shown.splitlines()[1:]
    rows = pipeline.findings(comparison)
    assert len(lines) == len(rows) == 5
    for line, row in zip(lines, rows, strict=True):
        cells = re.split(r" {2,}", line.strip())
        assert cells[0] == row.topic
        for cell, whole in zip(cells[1:4], (row.base, row.test, row.delta), strict=True):
            assert len(cell) >= 5
            assert whole.startswith(cell), f"{cell} is not how {whole} begins"


def test_the_figures_in_prose_are_those_of_the_samples() -> None:
    report = pipeline.report(ROOT / "sample_traces/request_eager")
    norm = report.region(("eager/T128/request", "prefill", "layer0", "residual_rmsnorm")).metrics
    assert (norm["kernel_count"].value, round(norm["busy_ns"].value / 1000, 1)) == (9, 25.7)
    fused = pipeline.report(ROOT / "sample_traces/request_fused")
    norm = fused.region(("fused/T128/request", "prefill", "layer0", "residual_rmsnorm")).metrics
    assert (norm["kernel_count"].value, round(norm["busy_ns"].value / 1000, 1)) == (1, 2.3)
    assert "9 kernels became 1, and 25.7 us of busy time\n2.3 us" in README


def test_the_python_runs(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    for block in blocks("python"):
        exec(block, {})


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_first_sentence_is_that_of_the_samples() -> None:
    comparison = pipeline.diff(ROOT / "sample_traces/request_eager", ROOT / "sample_traces/request_fused")
    (shown,) = [block.strip() for block in blocks() if block.startswith("Fusion helped")]
    assert headline(comparison).startswith(shown)


def test_the_rules_and_links_of_the_ci_page_hold() -> None:
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    rules = re.findall(r"--fail-on '([^']+)'", page + README)
    assert len(rules) >= 5
    assert all(parse_rule(rule) for rule in rules)
    for target in re.findall(r"\]\((?!http)([^)#]+)", page):
        assert (ROOT / "docs" / target).exists(), target


def test_the_api_example_runs(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    found = doctest.testmod(pipeline)
    assert found.attempted >= 5
    assert found.failed == 0


def test_every_reason_is_documented() -> None:
    page = (ROOT / "docs/reasons.md").read_text(encoding="utf-8")
    table = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(_ROW_OF)
