"""Names that hold markup, escape sequences, newlines or 9,000 characters break and enter no output format."""

from __future__ import annotations

import html.parser
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from nsys_builder import NsysFile
from rich.console import Console

from tracekit import pipeline
from tracekit.compare.gate import judge_gate, parse_rule
from tracekit.errors import NotComparableError
from tracekit.model.report import Comparison, KernelTotal, Report
from tracekit.render.html import diff_html, refusal_html
from tracekit.render.json import diff_json
from tracekit.render.junit import diff_junit, refusal_junit
from tracekit.render.markdown import diff_markdown, escaped, refusal_markdown
from tracekit.render.text import diff_text

SAMPLES = Path(__file__).parents[1] / "captures"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</table></details><h1>gone</h1>",
    "`code` **bold** [link](http://evil.example) ![i](x)",
    "| cell | break |",
    "@everyone #1 http://evil.example www.evil.example a@evil.example",
    "\x1b[2J\x1b]0;title\x07 \x9b31m",
    "line\nbreak\r\n# heading\n- item",
    "]]> <!-- --> &lt; &#60; &amp;",
    "\u202eright to left\u2066 \ufffe \ud800 \x00",
    "x" * 9000,
    "<" * 9000,
    ":tada: ~~struck~~ $math$ \\escape",
    "",
)


@pytest.fixture(scope="module")
def reports() -> tuple[Report, Report]:
    return pipeline.report(SAMPLES / "decode_unfused"), pipeline.report(SAMPLES / "decode_spilling")


def poisoned(report: Report, name: str) -> Report:
    """The report with the text wherever a file could have put it."""
    label = name or "empty"
    kernel = KernelTotal(name, 3, 5, 7)

    def path(old):
        return tuple(label if at == len(old) - 1 and at else part for at, part in enumerate(old))

    regions = tuple(
        replace(region, path=path(region.path), kernels=(kernel, *region.kernels), notes=(name,))
        for region in report.regions[:2]
    )
    capture = {**report.capture, "capture_id": name, "variant": name, "source": name, "description": name}
    capture["quality"] = [{"check": name, "reference": name, "error": 1.0, "tolerance": 0.0, "passed": False}]
    capture["environment"] = {"driver": name}
    latency = tuple(replace(entry, protocol=name) for entry in report.latency[:1])
    return replace(report, regions=regions, notes=(name,), capture=capture, latency=latency)


def outputs(reports, name) -> dict[str, str]:
    base, test = (poisoned(report, name) for report in reports)
    return written(pipeline.diff(base, test), name)


def written(comparison: Comparison, name: str) -> dict[str, str]:
    gate = judge_gate(comparison, [parse_rule("*: kernel_count > 1"), parse_rule("latency_ns > +2%")])
    main, rows = pipeline.main_region(comparison), pipeline.findings(comparison)
    assert main is not None
    file = io.StringIO()
    console = Console(file=file, width=200, markup=False, emoji=False, highlight=False)
    console.print(diff_text(comparison, rows, main, gate=gate))
    refusal = NotComparableError(f"not comparable: model: {name} against x", remedy=name)
    return {
        "text": file.getvalue(),
        "json": diff_json(comparison, gate),
        "markdown": diff_markdown(comparison, rows, main, gate),
        "html": diff_html(comparison, rows, main, gate),
        "junit": diff_junit(comparison, gate),
        "refusal_markdown": refusal_markdown(refusal),
        "refusal_html": refusal_html(refusal),
        "refusal_junit": refusal_junit(refusal),
    }


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, tuple(sorted(name for name, _ in attrs))))

    def handle_endtag(self, tag):
        self.seen.append(("/" + tag, ()))


def tags(text: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Tags()
    parser.feed(text)
    parser.close()
    return parser.seen


def shape(markdown: str) -> list[str]:
    """The structure that GitHub's flavour of Markdown makes of a text, without its words."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    out = []
    for token in tokens:
        out.append(token.type)
        out += [child.type for child in token.children or () if child.type not in ("text", "softbreak")]
    return out


@pytest.fixture(scope="module")
def harmless(reports) -> dict[str, str]:
    return outputs(reports, "harmless")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_format_is_broken_or_entered(reports, harmless, name):
    found = outputs(reports, name)
    for format in ("html", "refusal_html"):
        assert tags(found[format]) == tags(harmless[format])
        assert "http" not in re.sub(r"http-equiv", "", found[format].replace("http://evil.example", ""))
    for format in ("markdown", "refusal_markdown"):
        assert shape(found[format]) == shape(harmless[format])
        assert not re.search(r"@|https?://|www\.[a-z]", found[format])
        assert tags(found[format]) == tags(harmless[format])
    for format in ("junit", "refusal_junit"):
        suite, plain = (ElementTree.fromstring(one[format].encode("utf-8", "replace")) for one in (found, harmless))
        assert [element.tag for element in suite.iter()] == [element.tag for element in plain.iter()]
    json.loads(found["json"])
    for format, text in found.items():
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]", text), format
        if format != "json":
            assert max(len(word) for word in text.split(" ")) < 60_000


def exports(folder: Path, name: str) -> list[Path]:
    """Two exports whose ranges and kernels bear the text, with two steps each."""
    files = []
    for side, length in (("base", 40), ("test", 30)):
        file = NsysFile(folder / f"{side}.sqlite").gpu()
        for at in (0, 1000):
            file.range(at, at + 900, f"root {name}").range(at + 5, at + 800, f"inner {name}", domain=f"domain {name}")
            file.launch((at + 10, at + 20), (at + 30, at + 30 + length), name=f"{side} {name}")
            file.launch((at + 100, at + 120), (at + 130, at + 150), name=f"both {name}")
        file.path.unlink(missing_ok=True)
        files.append(file.write())
    return files


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\ud800" not in name], ids=lambda name: name[:12])
def test_names_in_a_file_break_and_enter_nothing(tmp_path, name):
    found, harmless = (written(pipeline.diff(*exports(tmp_path, text)), text) for text in (name, "harmless"))
    assert "Charged device time by region" in found["text"]
    assert tags(found["html"]) == tags(harmless["html"])
    assert shape(found["markdown"]) == shape(harmless["markdown"])
    suites = [ElementTree.fromstring(one["junit"]) for one in (found, harmless)]
    assert len(list(suites[0].iter())) == len(list(suites[1].iter()))
    paths = [region["path"] for region in json.loads(found["json"])["regions"]]
    assert [f"root {name}", f"inner {name}"] in paths
    for format, text in found.items():
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]", text), format


def test_a_comment_stays_within_what_github_takes(reports):
    assert len(outputs(reports, "<" * 9000)["markdown"]) < 65_536


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_one_run_of_text_in_markdown(text):
    inline = MarkdownIt("gfm-like", {"linkify": False}).parse(f"| a | b |\n|---|---|\n| x{escaped(text)} | y |")
    cells = [token for token in inline if token.type == "inline"]
    assert len(cells) == 4
    assert {child.type for child in cells[2].children} == {"text"}
