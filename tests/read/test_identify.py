"""What a path is, by its first bytes; and the refusal of what no reader can use."""

from __future__ import annotations

import os
import random

import pytest

from tracekit.read.bundle import read_trace
from tracekit.read.identify import Format, identify

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("decode_unfused", Format.BUNDLE),
        ("decode_unfused/timeline.sqlite", Format.NSYS_SQLITE),
        ("decode_spilling/spilling.ncu-rep", Format.NCU_REP),
        ("decode_spilling/scaled_units.ncu.csv", Format.NCU_CSV),
    ],
)
def test_real_files(samples, file, format):
    assert identify(samples / file) is format


@pytest.mark.parametrize("name", ["a.txt", "a", "a.nsys-rep", "a.csv"])
def test_content_counts_and_not_the_name(nsys, name):
    assert identify(nsys(file=name).kernel(1, 2).write()) is Format.NSYS_SQLITE


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.sqlite", b"", "an empty file"),
        ("a.ncu-rep", b"", "an empty file"),
        ("a.sqlite", LFS, "git lfs pull"),
        ("a.ncu-rep", LFS, "git lfs pull"),
        ("a.csv", LFS, "git lfs pull"),
        ("a.sqlite", b"SQLite for", "an SQLite database"),
        ("a.sqlite", b"hello", "b'hello'"),
        ("a.db", b"\x00" * 200, "an SQLite database"),
        ("a.ncu-rep", b"hello", "an Nsight Compute report"),
        ("a.nsys-rep", b"NVIDIA Tegra Profiler", "nsys export --type sqlite"),
        ("my run.qdrep", b"QDSTRM", "nsys export --type sqlite"),
        ("a.parquet", b"PAR1....", "Parquet"),
        ("a.arrow", b"ARROW1..", "Arrow"),
        ("a.h5", b"\x89HDF\r\n", "HDF5"),
        ("a.json.gz", b"\x1f\x8b\x08", "gzip"),
        ("a.zip", b"PK\x03\x04", "zip"),
        ("a.out", b"\x7fELF", "a program"),
        ("a.json", b' {"traceEvents": []}', "PyTorch"),
        ("random.sqlite", random.Random(1).randbytes(4096), "an SQLite database"),
        ("random", random.Random(1).randbytes(4096), "binary"),
    ],
)
def test_what_no_reader_can_use_is_refused(tmp_path, refused, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    assert words in refused(lambda: read_trace(path), path)


def test_a_missing_file_is_refused_and_not_created(tmp_path, refused):
    path = tmp_path / "absent.sqlite"
    assert "no such file" in refused(lambda: read_trace(path), path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_taken_for_a_folder_is_refused(nsys, refused):
    path = nsys().kernel(1, 2).write() / "inside"
    refused(lambda: read_trace(path), path)


def test_a_folder_without_a_manifest_is_refused(tmp_path, refused):
    assert "manifest.json" in refused(lambda: read_trace(tmp_path), tmp_path)


def test_a_path_too_long_for_the_file_system_is_refused(tmp_path, refused):
    path = tmp_path / ("a" * 300)
    refused(lambda: read_trace(path), path)


def test_a_folder_that_cannot_be_entered_is_refused(tmp_path, refused, monkeypatch):
    path = tmp_path / "a.sqlite"

    def denied(self, *arguments, **options):
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "stat", denied)
        patch.setattr(type(path), "open", denied)
        text = refused(lambda: read_trace(path), path)
    assert "Permission denied" in text


@pytest.mark.parametrize("name", ["pipe.sqlite", "pipe.csv", "pipe.ncu-rep"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, refused, name):
    os.mkfifo(tmp_path / name)
    assert "a pipe or a device" in refused(lambda: read_trace(tmp_path / name), tmp_path / name)
