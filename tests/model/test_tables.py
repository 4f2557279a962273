"""The declarations of tables: names carry units, docs are generated, frames conform or say what does not fit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import InputError
from tracekit.model.schema import Column, DType, Table
from tracekit.model.tables import ALL_TABLES, KERNELS, REGION_METRICS
from tracekit.model.units import SUFFIX, Unit
from tracekit.render.table_docs import table_docs

ROOT = Path(__file__).parents[2]

TINY = Table(
    "tiny",
    "A table for tests.",
    "tiny_id",
    (
        Column("tiny_id", DType.INT, Unit.ID, "Key."),
        Column("taken_ns", DType.INT, Unit.NS, "Time.", nullable=True),
        Column("share_ratio", DType.FLOAT, Unit.RATIO, "Share.", nullable=True),
        Column("name", DType.TEXT, Unit.TEXT, "Name.", nullable=True),
        Column("on", DType.FLAG, Unit.FLAG, "Flag.", nullable=True),
    ),
)


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda t: t.name)
def test_a_name_carries_its_unit(table: Table) -> None:
    assert table.key in table.names
    assert len(set(table.names)) == len(table.names)
    for column in table:
        assert column.doc.endswith("."), column.name
        for unit, suffix in SUFFIX.items():
            assert column.name.endswith(suffix) == (column.unit is unit) or (
                suffix == "_bytes" and column.name.endswith("_bytes_per_second")
            ), column.name


def test_the_contract_of_region_metrics_is_declared() -> None:
    contract = """kernel_count copy_count launch_call_count host_ns device_span_ns busy_ns device_ns gap_ns gap_host_ns
    gap_sync_ns gap_other_call_ns gap_launch_call_ns gap_launch_latency_ns gap_dispatch_ns gap_in_graph_ns
    gap_unknown_ns wall_ns other_busy_ns tail_ns dram_read_bytes dram_write_bytes dram_throughput_ratio
    tensor_pipe_ratio spill_instruction_count local_thread_bytes registers_count static_smem_bytes dynamic_smem_bytes
    active_blocks_count occupancy_limiter sm_fill_ratio waves achieved_occupancy_ratio"""
    assert set(contract.split()) <= set(REGION_METRICS.names)


def test_the_docs_are_generated_from_the_declarations() -> None:
    assert (ROOT / "docs" / "tables.md").read_text() == table_docs(), (
        "run: python -m tracekit.render.table_docs > docs/tables.md"
    )


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda t: t.name)
def test_an_empty_table_has_its_columns_and_types(table: Table) -> None:
    frame = table.empty()
    assert tuple(frame.columns) == table.names
    assert len(frame) == 0


def test_missing_stays_missing_and_undeclared_goes() -> None:
    frame = TINY.conform({"tiny_id": [1, 2], "taken_ns": [None, 5], "extra": [0, 0]}, source="here")
    assert tuple(frame.columns) == TINY.names
    assert frame["taken_ns"].isna().tolist() == [True, False]
    assert frame["share_ratio"].isna().all()


def test_the_input_is_not_mutated() -> None:
    given_frame = pd.DataFrame({"tiny_id": [1], "taken_ns": [2]})
    before = given_frame.copy()
    TINY.conform(given_frame, source="here")
    pd.testing.assert_frame_equal(given_frame, before)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"tiny_id": [1, 2], "taken_ns": [3, "abc"]}, ["here", "tiny", "taken_ns", "'abc'", "row 1"]),
        ({"tiny_id": [1, 2], "taken_ns": [3, 2.5]}, ["here", "tiny", "taken_ns", "2.5", "row 1"]),
        ({"tiny_id": [1, None]}, ["here", "tiny", "tiny_id", "row 1"]),
        ({"tiny_id": [1], "on": ["yes"]}, ["here", "tiny", "column on", "'yes'", "row 0"]),
        ({"tiny_id": [1], "name": [7]}, ["here", "tiny", "column name", "7", "row 0"]),
        ({"tiny_id": [2**63]}, ["here", "tiny", "tiny_id", str(2**63)]),
        ({"taken_ns": [1]}, ["here", "tiny", "tiny_id"]),
        ({"tiny_id": [1, 2], "taken_ns": [1]}, ["here", "tiny", "one length"]),
    ],
)
def test_what_does_not_fit_is_named(data: dict[str, object], expected: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        TINY.conform(data, source="here")
    for part in expected:
        assert part in str(caught.value)
    assert caught.value.remedy


@given(
    st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.none() | st.integers(-(2**62), 2**62), st.none() | st.text()),
        max_size=20,
    )
)
def test_every_value_survives_and_na_is_na(rows: list[tuple[int, int | None, str | None]]) -> None:
    ids, times, names = zip(*rows, strict=True) if rows else ((), (), ())
    for build in (list, lambda values: pa.array(list(values))):
        frame = TINY.conform(
            {"tiny_id": np.array(ids, np.int64), "taken_ns": build(times), "name": build(names)}, source="here"
        )
        assert frame["tiny_id"].tolist() == list(ids)
        assert [None if pd.isna(v) else v for v in frame["taken_ns"]] == list(times)
        assert [None if pd.isna(v) else v for v in frame["name"]] == list(names)


def test_conforming_twice_changes_nothing() -> None:
    frame = TINY.conform({"tiny_id": [1, 2], "name": ["a", None], "share_ratio": [0.5, None]}, source="here")
    pd.testing.assert_frame_equal(TINY.conform(frame, source="again"), frame)
    assert KERNELS.conform(KERNELS.empty(), source="again").dtypes.equals(KERNELS.empty().dtypes)
