"""The CSV of Nsight Compute: real captures, and what other people's files hold."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.read.ncu_csv import _nvtx, read_ncu_csv

SAMPLES = Path(__file__).parents[1] / "captures"
LONG_FORM = Path(__file__).parents[3] / "shared/cases/public/ncu2023.1_long_form.csv"

WIDE = ["ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "CC"]
LAUNCH = ["0", "7", "k", "1", "7", "(128, 1, 1)", "(4, 2, 1)", "9.0"]
LONG = ["ID", "Process ID", "Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
RULES = ["Rule Name", "Rule Type", "Rule Description"]
READ, DURATION = "dram__bytes_read.sum", "gpu__time_duration.sum"


def lines(*rows: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


def wide(metrics: dict[str, tuple[str, ...]], *, names: tuple[str, ...] = ("k",), units: bool = True) -> str:
    """A raw page: ``metrics`` are (unit, value of each launch)."""
    rows = [
        [str(i), "7", name, *LAUNCH[3:], *(cells[i + 1] for cells in metrics.values())] for i, name in enumerate(names)
    ]
    unit_row = [[""] * len(WIDE) + [cells[0] for cells in metrics.values()]] if units else []
    return lines([*WIDE, *metrics], *unit_row, *rows)


@pytest.fixture
def read(tmp_path):
    def read_text(text: str | bytes, kind: str | None = "cold"):
        path = tmp_path / "a.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_ncu_csv(path, kind=kind)

    return read_text


@pytest.mark.parametrize(
    ("bundle", "launches", "read_mb", "written_mb"), [("unfused", 64, 1411.7, 29.2), ("fused", 24, 1410.4, 29.1)]
)
def test_a_cold_decode_step(bundle, launches, read_mb, written_mb):
    frame = read_ncu_csv(SAMPLES / f"decode_{bundle}/cold.ncu.csv", kind="cold")
    assert len(frame) == launches
    assert round(frame["dram_read_bytes"].sum() / 1e6, 1) == read_mb
    assert round(frame["dram_write_bytes"].sum() / 1e6, 1) == written_mb
    assert set(frame["kind"]) == {"cold"}
    assert set(frame["workload_type"]) == {"kernel"}
    assert frame["spill_instruction_count"].isna().all()
    assert frame["nvtx"].iloc[-1] == (("", ("down",)), ("tracekit", (f"{bundle}/T1/iter", "layer3", "swiglu_ffn")))
    last = frame.iloc[-1]
    assert (last.short_name, last.grid_x, last.block_x, last.block_y) == ("splitKreduce_kernel", 128, 32, 16)


@pytest.mark.parametrize(("bundle", "read_mb", "written_mb"), [("unfused", 1239, 416), ("fused", 1059, 227)])
def test_ranges_measured_in_the_running_model(bundle, read_mb, written_mb):
    frame = read_ncu_csv(SAMPLES / f"prefill_{bundle}/layer1_in_model.ncu.csv", kind=None)
    assert len(frame) == 57
    assert round(frame["dram_read_bytes"].median() / 1e6) == read_mb
    assert round(frame["dram_write_bytes"].median() / 1e6) == written_mb
    assert set(frame["kind"]) == {"in_model"}
    assert set(frame["workload_type"]) == {"range"}
    assert set(frame["nvtx"].iloc[:2]) == {(("tracekit", ("layer1",)),)}
    # ncu folds the launches of a range into one row: a grid of 32768 x 66 that no kernel had.
    assert frame[["grid_x", "registers_count", "waves"]].isna().all(axis=None)
    assert any("launch columns are NA" in note for note in frame.attrs["notes"])
    assert set(frame["sm_count"]) == {132}


@pytest.mark.parametrize("bundle", ["unfused", "fused"])
def test_replay_warm_joins_the_cold_capture_launch_by_launch(bundle):
    cold = read_ncu_csv(SAMPLES / f"decode_{bundle}/cold.ncu.csv", kind="cold")
    warm = read_ncu_csv(SAMPLES / f"decode_{bundle}/replay_warm.ncu.csv", kind="replay_warm")
    same = ["profile_id", "nvtx", "name", "grid_x", "grid_y", "block_x", "registers_count"]
    assert cold[same].astype(object).equals(warm[same].astype(object))
    assert warm["achieved_occupancy_ratio"].isna().all()


def test_scaled_units_and_spills():
    frame = read_ncu_csv(SAMPLES / "decode_spilling/scaled_units.ncu.csv", kind="cold").set_index("short_name")
    deep = frame.loc["deep"]
    assert (deep.registers_count, deep.grid_x, deep.spill_instruction_count) == (255, 56, 277_088)
    assert (deep.local_load_instruction_count, deep.local_store_instruction_count) == (247_296, 29_792)
    assert (deep.duration_ns, deep.dram_read_bytes, deep.dynamic_smem_bytes) == (291_104, 352_482_304, 4096)
    assert deep.dram_throughput_ratio == pytest.approx(0.25473389)
    assert frame.loc["add_rms"].spill_instruction_count == 0
    assert frame.attrs["metrics"]["spill_instruction_count"] == "sass__inst_executed_register_spilling"
    assert frame.attrs["dropped_lines"] == 0


@pytest.mark.skipif(not LONG_FORM.exists(), reason="the public case is not part of the project")
def test_a_long_form_of_2023():
    frame = read_ncu_csv(LONG_FORM, kind=None)
    assert len(frame) == 9
    assert frame["duration_ns"].iloc[0] == 10_776_576
    assert frame["short_name"].tolist()[:2] == ["basic", "gmem_coalesce"]
    assert frame["grid_z"].iloc[-1] == 5
    assert frame["kind"].isna().all()
    assert frame["dram_read_bytes"].isna().all()


def test_long_rows_scale_each_by_their_own_unit_and_rule_rows_measure_nothing(read):
    def row(number, metric, unit, value):
        return [str(number), "7", "void n::k<1>(int)", "Memory", metric, unit, value]

    frame = read(
        lines([*LONG, *RULES])
        # The details page leaves the columns of rules out of a metric's row, but for one comma.
        + lines(
            [*row(0, READ, "Mbyte", "900.00"), ""],
            [*row(0, "Memory Throughput", "%", "39.01"), ""],
            [*row(0, "Memory Throughput", "Gbyte/s", "1,425.29"), ""],
            [*row(0, "", "", ""), "SOLBottleneck", "OPT", "Look at 60.0%, and more"],
            [*row(1, READ, "Gbyte", "1.10"), ""],
            [*row(1, READ, "Gbyte", "1.10"), ""],
            [*row(1, "Registers Per Thread", "register/thread", "40"), ""],
            [*row(1, "Achieved Occupancy", "%", "6.25"), ""],
            [*row(1, DURATION, "", "n/a"), ""],
        )
    )
    assert frame["dram_read_bytes"].tolist() == [900_000_000, 1_100_000_000]
    assert frame["registers_count"].isna().tolist() == [True, False]
    assert frame["achieved_occupancy_ratio"].iloc[1] == 0.0625
    assert frame["duration_ns"].isna().all()
    assert frame["short_name"].tolist() == ["k", "k"]
    assert frame.attrs["metrics"]["registers_count"] == "launch__registers_per_thread"


def test_launch_ids_restart_with_each_process(read):
    rows = [["0", process, "k", "S", READ, "byte", size] for process, size in (("7", "5"), ("8", "6"))]
    frame = read(lines(LONG, *rows))
    assert frame[["profile_id", "process", "dram_read_bytes"]].to_numpy().tolist() == [[0, 7, 5], [1, 8, 6]]


def test_everything_around_the_rows_is_dropped_and_counted(read):
    table = wide({READ: ("byte", "5", "6"), DURATION: ("ns", "1", "2")}, names=("k", "l")).splitlines()
    table.insert(0, "==PROF== Connected to process 7\n==PROF== Profiling: 0%....100%\nstep 1, loss 2.0")
    table.insert(3, "a line, with a comma\n1,2,3")
    table[-1] = "no newline after this" + table[-1]
    frame = read("\n".join([*table, "==PROF== Disconnected", ""]))
    assert frame["dram_read_bytes"].tolist() == [5, 6]
    assert frame.attrs["dropped_lines"] == 6


def test_names_of_every_kind(read):
    names = ('λ "quoted", one\n\n==PROF== two', "void n::k<1, 2>(int)", "x" * 9000, "k\u2028l")
    frame = read(wide({READ: ("byte", "1", "2", "3", "4")}, names=names))
    assert frame["name"].tolist() == list(names)
    assert frame["short_name"].tolist() == [names[0], "k", names[2], names[3]]
    assert frame["dram_read_bytes"].tolist() == [1, 2, 3, 4]


def test_the_first_launch_is_kept_where_no_row_of_units_stands(read):
    frame = read(wide({READ: ("byte", "5"), "sm__maximum_warps_per_active_cycle_pct": ("%", "25")}, units=False))
    assert frame["dram_read_bytes"].tolist() == [5]
    assert frame["theoretical_occupancy_ratio"].tolist() == [0.25]
    assert any("no row of units" in note for note in frame.attrs["notes"])


def test_output_of_two_runs_in_one_file(read):
    frame = read(wide({READ: ("Mbyte", "1")}) + wide({READ: ("Kbyte", "1")}))
    assert frame["dram_read_bytes"].tolist() == [1_000_000, 1000]
    with pytest.raises(InputError, match="other columns in line 4"):
        read(wide({READ: ("byte", "1")}) + wide({DURATION: ("ns", "1")}))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark(read, encoding):
    text = wide({READ: ("byte", "5")}, names=("λ",)).replace("\n", "\r\n")
    assert read(text.encode(encoding))["name"].tolist() == ["λ"]


def test_bytes_that_are_not_utf8_are_replaced(read):
    assert read(wide({READ: ("byte", "5")}, names=("a?b",)).encode().replace(b"?", b"\xff"))["name"].tolist() == [
        "a\ufffdb"
    ]


def test_a_failed_launch_stays_and_is_counted(read):
    text = wide({READ: ("byte", "5", "nan"), DURATION: ("ns", "9", "nan")}, names=("k", "l"))
    frame = read(text + "==ERROR== ERR_NVGPUCTRPERM - no permission\n")
    assert frame["dram_read_bytes"].isna().tolist() == [False, True]
    assert any("failed to measure 1 of 2" in note for note in frame.attrs["notes"])
    assert any("ERR_NVGPUCTRPERM" in note for note in frame.attrs["notes"])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("9,00", "1.234,5"), (9, 1234.5)),
        (("9.00", "1,234.5"), (9, 1234.5)),
        (("1,234", "1,234,567"), (1234, 1_234_567)),
        (("1.234", "1.234.567"), (1234, 1_234_567)),
        (("1,234", "0,125"), (1.234, 0.125)),
        (("1.234", "12.50"), (1.234, 12.5)),
        (("7", "8"), (7, 8)),
    ],
)
def test_the_decimal_mark_is_decided_by_evidence(read, cells, expected):
    assert tuple(read(wide({READ: ("byte", *cells)}, names=("k", "l")))["dram_read_bytes"]) == expected


def test_evidence_comes_from_any_measured_cell_but_not_from_lists(read):
    others = {"sm__throughput": ("%", "12.50"), "numa__cpu_affinity": ("", "0,1")}
    assert read(wide({READ: ("byte", "1,234"), **others}))["dram_read_bytes"].tolist() == [1234]


@pytest.mark.parametrize(
    ("cells", "shown"), [(("1,234", "5"), "'1,234'"), (("1.234", "5"), "'1.234'"), (("1.5", "2,75"), "'2,75'")]
)
def test_an_undecidable_number_is_shown(read, cells, shown):
    with pytest.raises(InputError, match=shown):
        read(wide({READ: ("byte", *cells)}, names=("k", "l")))


def test_a_cut_row_is_left_out_and_noted(read):
    text = wide({READ: ("byte", "5", "678")}, names=("k", "l"))
    for kept in (-3, -20):
        frame = read(text[:kept])
        assert frame["dram_read_bytes"].tolist() == [5]
        assert any("1 rows are cut" in note for note in frame.attrs["notes"])


def test_a_header_without_rows_is_empty_with_a_note(read):
    frame = read(wide({READ: ("byte",)}, names=()))
    assert len(frame) == 0
    assert any("nothing was profiled" in note for note in frame.attrs["notes"])


@pytest.mark.parametrize(
    ("text", "found", "remedy"),
    [
        (b"", "empty file", "again"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer", "git lfs pull"),
        (b"NVR\x00\x02\x00", "binary file", "--csv --page raw"),
        (b"a,b\n1,2\n", "text that begins with 'a,b'", "--csv"),
        (b'"Start (ns)","Name"\n"1","k"\n', "text that begins with", "--csv"),
        (b"==PROF== Connected\n==WARNING== No kernels were profiled.\n", "No kernels were profiled", "--nvtx-include"),
        (
            b"==WARNING== x\n==ERROR== ERR_NVGPUCTRPERM - denied\n==WARNING== No kernels were profiled.\n",
            "denied",
            "root",
        ),
        (b"==PROF== Connected\n==ERROR== Failed to load\n", "Failed to load", "mend"),
        (b"==PROF== Report: /tmp/a.ncu-rep\n", "log lines only", "ncu --import"),
        (lines(WIDE).encode() + b"==ERROR== ERR_NVGPUCTRPERM - denied\n", "no whole row", "root"),
        (lines(WIDE, LAUNCH)[:-9].encode(), "no whole row", "ncu --import"),
    ],
)
def test_what_is_no_table_is_refused(read, text, found, remedy):
    with pytest.raises(InputError) as caught:
        read(text)
    assert found in caught.value.found
    assert remedy in caught.value.remedy


def entry(domain: str, label: str, *, registered: bool) -> str:
    return f'"{domain}:{label}:none:none:' + (f'RGB:0xff:REGISTERED:{label}"' if registered else 'none:none:none:none"')


LABEL = st.text(st.sampled_from('ab/: "λ\n0'), max_size=12)
DOMAIN = st.sampled_from(["<default domain>", "tracekit", "NCCL", "a b"])


@given(st.lists(st.tuples(DOMAIN, LABEL, st.booleans()), max_size=4))
def test_labels_with_colons_and_quotes(ranges):
    cell = "932  " + "  ".join(entry(domain, label, registered=flag) for domain, label, flag in ranges) + " "
    stacks = _nvtx(cell)
    flat = [(domain.replace("<default domain>", ""), label) for domain, label, _ in ranges]
    assert stacks is None or stacks == tuple(
        (domain, tuple(label for other, label in flat if other == domain))
        for domain in dict.fromkeys(d for d, _ in flat)
    )
    assert stacks is not None or any('"' in label for _, label in flat)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("",), ()),
        (("932 ",), ()),
        ((entry("a:b", "c:d", registered=True),), (("a:b", ("c:d",)),)),
        ((entry("CCCL", "cub::DeviceReduce::Reduce", registered=True),), (("CCCL", ("cub::DeviceReduce::Reduce",)),)),
        (('1  "d:l:UINT64:5:ARGB:0xff00:ASCII:l" ',), (("d", ("l",)),)),
        (
            ("0  " + entry("d", "started", registered=False), entry("d", "pushed", registered=False)),
            (("d", ("started", "pushed")),),
        ),
        (('1  "of an unknown form"',), None),
        (('1  "d:l:more:fields" ' + entry("d", "l", registered=False),), None),
    ],
)
def test_nvtx_cells(cells, expected):
    assert _nvtx(*cells) == expected


def test_stacks_that_cannot_be_read_are_noted(read):
    header = [*WIDE, "thread Domain:Push/Pop_Range:PL_Type", "Id:Domain:Start/Stop_Range:PL_Type", READ]
    rows = [
        [*LAUNCH, cell, entry("d", "s", registered=False), "1"] for cell in (entry("d", "p", registered=False), '"?"')
    ]
    frame = read(lines(header, *rows))
    assert frame["nvtx"].tolist() == [(("d", ("s", "p")),), ()]
    assert any("NVTX ranges of 1 of 2" in note for note in frame.attrs["notes"])


def test_a_kernel_that_is_named_range_is_a_kernel(read):
    launch = [*LAUNCH]
    launch[2] = "range"
    replayed = [*launch]
    replayed[4], replayed[5], replayed[6] = "n/a", "n/a", "n/a"
    frame = read(lines([*WIDE, "launch__registers_per_thread"], [*launch, "16"], [*replayed, "16"]))
    assert frame["workload_type"].tolist() == ["kernel", "range"]
    assert frame["kind"].tolist() == ["cold", "in_model"]
    assert frame["grid_x"].isna().tolist() == frame["registers_count"].isna().tolist() == [False, True]
