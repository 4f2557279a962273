"""Captures made where there is no importer, finished later: in place, through the cache, by no other version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracekit.capture.finish import cached_export
from tracekit.errors import InputError
from tracekit.pipeline import report

BUNDLE = Path("out/fake-unfused-small-r1")


def files() -> list[str]:
    return sorted(path.name for path in BUNDLE.iterdir())


@pytest.fixture
def unfinished(capture, tools) -> Path:
    """A bundle whose timeline is still a .qdstrm."""
    tools.behave("qdstrm", "whole")
    code, out, _ = capture("--blocks", "0", "--no-quality")
    assert code == 0
    assert "no importer here" in out
    assert files() == ["manifest.json", "timeline.qdstrm"]
    return BUNDLE


def test_a_bundle_is_finished_in_its_place(unfinished, tools, run):
    tools.with_importer()
    code, out, err = run("read", unfinished)
    assert code == 0, err
    assert "imported and exported by Nsight Systems 2023.4.4" in out
    assert "kernels: 2 in the report" in out
    assert files() == ["manifest.json", "timeline.sqlite"]
    assert json.loads((BUNDLE / "manifest.json").read_text())["timeline"]["file"] == "timeline.sqlite"
    assert run("read", unfinished)[1].strip().endswith("nothing to do, its timeline is an export already")


def test_reading_finishes_by_itself_and_keeps_the_bundle(unfinished, tools):
    tools.with_importer()
    before = {path.name: path.read_bytes() for path in BUNDLE.iterdir()}
    assert len(report(unfinished).frames["instances"]) == 4
    exports = len(tools.calls())
    assert report(unfinished).kernels[0].count == 2
    assert len(tools.calls()) == exports, "the second time it comes from the cache"
    assert {path.name: path.read_bytes() for path in BUNDLE.iterdir()} == before


def test_without_the_matching_importer_the_version_is_named(unfinished, tools, tracekit):
    code, _, err = tracekit("show", unfinished)
    assert code == 2
    assert "expected a QdstrmImporter of Nsight Systems 2023.4.4 on this machine" in err
    assert "found none" in err
    assert "remedy: install Nsight Systems 2023.4.4" in err


@pytest.mark.parametrize(
    ("said", "words", "remedy"),
    [
        ("", "processed the events with errors", "capture again"),
        (
            "[tag_message*] = Unknown runtime API function index: 468",
            "a call of a CUDA that is newer than itself",
            "without --with-construction",
        ),
    ],
)
def test_an_importer_that_drops_events_is_a_failure(unfinished, tools, run, said, words, remedy):
    """It exits with 0 and leaves a report: with CUDA rows missing, nothing else tells."""
    tools.with_importer(fails=said)
    code, _, err = run("read", unfinished)
    assert code == 2
    assert words in err
    assert remedy in err
    assert said in err
    assert files() == ["manifest.json", "timeline.qdstrm"]


def test_a_stream_that_is_not_the_one_captured_is_refused(unfinished, tools, run):
    tools.with_importer()
    with (BUNDLE / "timeline.qdstrm").open("ab") as file:
        file.write(b"more")
    code, _, err = run("read", unfinished)
    assert code == 2
    assert "SHA-256" in err
    assert "remedy: copy the bundle again" in err


def test_a_bare_stream_becomes_a_file_beside_it(unfinished, tools, run):
    tools.with_importer()
    stream = BUNDLE.rename("other") / "timeline.qdstrm"
    code, out, err = run("read", stream)
    assert code == 0, err
    assert out.strip() == "other/timeline.sqlite: exported by nsys 2023.4.4"
    assert run("read", stream)[0] == 2, "nothing is overwritten"
    assert run("read", stream, "--force")[0] == 0


def test_an_empty_report_is_refused(tmp_path, tools):
    empty = tmp_path / "a.nsys-rep"
    empty.touch()
    with pytest.raises(InputError, match="found"):
        cached_export(empty)
