"""Metric names, units and kernel names of Nsight Compute."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.model import tables
from tracekit.read.ncu_metrics import COLUMN_OF, LABELS, METRICS, base_value, counters_table, nvtx_stacks, short_name

SAMPLES = Path(__file__).parents[1] / "captures"
IDENTITY = {"profile_id", "kind", "workload_type", "nvtx", "process", "name", "short_name"}


def value(text: str, unit: str, metric: str, decimal: str | None = ".") -> float | str | None:
    return base_value((text, unit), metric, decimal=decimal, source="a.csv")


def test_every_column_has_metrics_and_every_metric_one_column():
    assert set(METRICS) | IDENTITY == set(tables.COUNTERS.names)
    assert len(COLUMN_OF) == sum(len(names) for names in METRICS.values())
    assert set(LABELS.values()) <= set(COLUMN_OF)


@pytest.mark.parametrize(
    ("text", "unit", "metric", "expected"),
    [
        ("3.264000", "us", "gpu__time_duration.sum", 3264),
        ("2,368", "nsecond", "gpu__time_duration.sum", 2368),
        ("1.5", "msecond", "gpu__time_duration.avg", 1_500_000),
        ("2", "second", "gpu__time_duration.max", 2_000_000_000),
        ("352.482304", "Mbyte", "dram__bytes_read.sum", 352_482_304),
        ("1.1", "Gbyte", "dram__bytes_write.sum", 1_100_000_000),
        ("1,000", "sector", "dram__sectors_read.sum", 32_000),
        ("2", "Ksector", "lts__t_sectors.sum", 64_000),
        ("32.768", "Kbyte", "launch__shared_mem_config_size", 32_768),
        ("4.096000", "Kbyte/block", "launch__shared_mem_per_block_dynamic", 4096),
        ("255", "register/thread", "launch__registers_per_thread", 255),
        ("12.500000", "%", "sm__maximum_warps_per_active_cycle_pct", 0.125),
        ("2.000000", "block", "launch__occupancy_limit_registers", 2),
        ("277088", "inst", "sass__inst_executed_register_spilling", 277_088),
        ("1e+06", "byte", "dram__bytes_read.sum", 1_000_000),
        ("1 234,5", "byte", "dram__bytes_read.sum", 12345),
        ("62,914,560", "", "device__attribute_l2_cache_size", 62_914_560),
        ("NVIDIA H200", "", "device__attribute_display_name", "NVIDIA H200"),
        *[(text, "byte", "dram__bytes_read.sum", None) for text in ("", " ", "n/a", "no data", "nan", "-nan", "inf")],
    ],
)
def test_a_cell_in_base_units(text, unit, metric, expected):
    assert value(text, unit, metric) == expected


@pytest.mark.parametrize(
    ("text", "unit", "decimal"),
    [("5", "Mebibyte", "."), ("5", "ns", "."), ("five", "byte", "."), ("1,234", "byte", None), ("1.234", "byte", None)],
)
def test_what_cannot_be_read_is_an_error_that_shows_the_cell(text, unit, decimal):
    with pytest.raises(InputError, match=text):
        value(text, unit, "dram__bytes_read.sum", decimal)


@given(
    count=st.integers(0, 10**15),
    unit=st.sampled_from([("", 0), ("K", 3), ("M", 6), ("G", 9), ("T", 12)]),
    marks=st.sampled_from([(",", "."), (".", ","), ("\u202f", ","), ("", ".")]),
)
def test_bytes_survive_any_unit_separator_and_decimal_mark(count, unit, marks):
    prefix, power = unit
    thousands, decimal = marks
    text = f"{Decimal(count).scaleb(-power):,f}".replace(",", "t").replace(".", decimal).replace("t", thousands)
    assert value(text, f"{prefix}byte", "dram__bytes_read.sum", decimal) == count


LAMBDA = "[lambda() (instance 1)]::operator ()() const::[lambda(float) (instance 1)]"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add_rms", "add_rms"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("nvjet_sm90_tst_128x8_64x12_2x1_v_bz_splitK_NNT", "nvjet_sm90_tst_128x8_64x12_2x1_v_bz_splitK_NNT"),
        ("_ZN2at6native4kernE", "_ZN2at6native4kernE"),
        ('λ, "quoted"\nname', 'λ, "quoted"\nname'),
        ("add_parallel(const float *, const float *, float *, int)", "add_parallel"),
        (
            "void at::vectorized_elementwise_kernel<8, at::CUDAFunctor_add<c10::BFloat16>, std::array<char *, 3>>"
            "(int, T2, T3)",
            "vectorized_elementwise_kernel",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)8, at::native::<unnamed>::silu_kernel"
            f"(at::TensorIteratorBase &)::{LAMBDA}, std::array<char *, (unsigned long)2>>(int, T2, T3)",
            "vectorized_elementwise_kernel",
        ),
        ("void <unnamed>::softmax_warp_forward<float, (int)6, (bool)0>(T2 *, const T1 *)", "softmax_warp_forward"),
        ("void (anonymous namespace)::k<1>(int)", "k"),
        ("at::native::(anonymous namespace)::CatArrayBatchedCopy<T, 4>(char *)", "CatArrayBatchedCopy"),
        ("void cutlass::Kernel<A<1, 2>>(P)", "Kernel"),
        ("void k<(a > b), decltype(f() -> int)>(int)", "k"),
        ("void k<(1 << 4), (2 >> 1)>(int)", "k"),
        ("unsigned int *scan(int) const", "scan"),
        ("void f<int>(T1) [with T1 = float]", "f"),
        ("void ns::S::operator()(int) const", "operator()"),
        ("void ns::S<int>::operator ()<4>(int)", "operator()"),
        ("void ns::operator<<(S &, int)", "operator<<"),
        ("void my_operator_kernel<2>(int)", "my_operator_kernel"),
        ("void k<'λ', \"a,b\"\n>(int)", "k"),
        ("void k<" + "std::tuple<int, float>, " * 400 + "int>(int)", "k"),
        ("void cut::off<int, std::array<ch", "off"),
        ("[lambda(int) (instance 1)]", "[lambda(int) (instance 1)]"),
        ("", ""),
    ],
)
def test_short_name(name, expected):
    assert short_name(name) == expected


@pytest.mark.parametrize("timeline", sorted(SAMPLES.glob("*/timeline.sqlite")), ids=lambda path: path.parent.name)
def test_short_names_are_those_of_nsys(timeline):
    names = (
        "SELECT DISTINCT s.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.shortName JOIN StringIds d ON d.id = k.demangledName"
    )
    with closing(sqlite3.connect(f"{timeline.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        pairs = connection.execute(names).fetchall()
    assert pairs
    assert [short_name(name) for _, name in pairs] == [short for short, _ in pairs]


@given(st.text())
def test_every_name_has_a_short_name(name):
    assert bool(short_name(name)) == bool(name)


def test_stacks_keep_the_order_of_domains_and_ranges():
    ranges = [("<default domain>", "a"), ("tracekit", "x/y"), ("<default domain>", "b")]
    assert nvtx_stacks(ranges) == (("", ("a", "b")), ("tracekit", ("x/y",)))


def table(**cells):
    launches = {"workload_type": ["kernel"], "nvtx": [()], "name": ["k"]}
    named = {name.replace("__dot__", "."): [cell] for name, cell in cells.items()}
    return counters_table(launches, named, kind="cold", decimal=".", source="a.csv")


def test_spilling_requests_stand_in_and_say_so():
    frame = table(derived__local_spilling_requests=("12", ""))
    assert frame["spill_instruction_count"].tolist() == [12]
    assert any("spill_instruction_count counts derived__local_spilling_requests" in n for n in frame.attrs["notes"])


def test_spills_come_before_requests_and_local_loads_never_count_as_spills():
    spills, requests = ("7", "inst"), ("12", "")
    both = table(sass__inst_executed_register_spilling=spills, derived__local_spilling_requests=requests)
    assert both["spill_instruction_count"].tolist() == [7]
    assert both.attrs["metrics"]["spill_instruction_count"] == "sass__inst_executed_register_spilling"
    loads = table(smsp__inst_executed_op_local_ld__dot__sum=("5", "inst"))
    assert loads["local_load_instruction_count"].tolist() == [5]
    assert loads["spill_instruction_count"].isna().all()


def test_a_metric_without_any_value_gives_way_to_the_next():
    frame = table(dram__bytes_read__dot__sum=("n/a", ""), dram__sectors_read__dot__sum=("3", "sector"))
    assert frame["dram_read_bytes"].tolist() == [96]
    assert frame.attrs["metrics"]["dram_read_bytes"] == "dram__sectors_read.sum"


def test_missing_is_na_with_a_note_and_never_zero():
    frame = table()
    assert frame[list(METRICS)].isna().all(axis=None)
    assert any("no metric for" in note and "dram_read_bytes" in note for note in frame.attrs["notes"])
