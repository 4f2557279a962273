"""Binary reports of Nsight Compute."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tracekit.errors import InputError
from tracekit.read.ncu_csv import read_ncu_csv
from tracekit.read.ncu_rep import read_ncu_rep

SPILLING = Path(__file__).parents[1] / "captures/decode_spilling"
REPORT = SPILLING / "spilling.ncu-rep"


@pytest.fixture(scope="module")
def counters():
    return read_ncu_rep(REPORT, kind="cold")


def test_the_spilling_kernel(counters):
    assert counters["name"].tolist() == counters["short_name"].tolist() == ["add_rms", "deep"]
    deep = counters.iloc[1]
    assert (deep.registers_count, deep.grid_x, deep.block_x, deep.limit_registers_count) == (255, 56, 128, 2)
    assert deep.configured_smem_bytes == 32768
    assert deep.waves == pytest.approx(56 / 264)
    assert deep.theoretical_occupancy_ratio == 0.125
    assert (deep.sm_count, deep.cc_major, deep.cc_minor, deep.gpu) == (132, 9, 0, "NVIDIA H200")
    assert deep.nvtx == (("tracekit", ("spill/T1/iter", "layer0", "swiglu_ffn")),)
    assert counters["kind"].tolist() == ["cold", "cold"]
    assert counters["workload_type"].tolist() == ["kernel", "kernel"]


def test_a_metric_that_was_not_collected_is_na(counters):
    assert counters["spill_instruction_count"].isna().all()
    assert counters["process"].isna().all()
    assert "spill_instruction_count" not in counters.attrs["metrics"]
    assert any("spill_instruction_count" in note for note in counters.attrs["notes"])


def test_report_and_csv_agree(counters):
    csv = read_ncu_csv(SPILLING / "scaled_units.ncu.csv", kind="cold")
    csv = csv[csv["short_name"].isin(["add_rms", "deep"])].reset_index(drop=True)
    launch = [name for name, metric in counters.attrs["metrics"].items() if metric.startswith(("launch__", "device__"))]
    exact = ["nvtx", "short_name", *[name for name in launch if name != "waves"]]
    assert csv[exact].astype(object).equals(counters[exact].astype(object))
    assert csv["dram_read_bytes"].tolist() == pytest.approx(counters["dram_read_bytes"].tolist(), rel=1e-3)


@pytest.mark.parametrize("kept", [4, 10, 20_000, -20_000, -1])
def test_a_truncated_report_is_refused(tmp_path, kept):
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(REPORT.read_bytes()[:kept])
    with pytest.raises(InputError, match="truncated"):
        read_ncu_rep(cut, kind=None)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"SQLite format 3\x00", "begins with"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path, content, found):
    path = tmp_path / "a.ncu-rep"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=found):
        read_ncu_rep(path, kind=None)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(InputError, match="pip install ncu-report"):
        read_ncu_rep(REPORT, kind=None)
