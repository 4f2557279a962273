"""Active blocks against known answers, ncu's own limits in real captures, and NVIDIA's header where it is installed."""

from __future__ import annotations

import csv
import importlib.util
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from tracekit.analyze.occupancy import LIMITS, active_blocks, is_known

SAMPLES = Path(__file__).parents[1] / "captures"
KNOWN = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
HOPPER = (9, 0)
LIMIT_COLUMNS = [f"limit_{name}_count" for name in ("registers", "shared_memory", "warps", "blocks", "barriers")]


def launch(registers: int | None = 32, smem: int | None = 0, threads: int | None = 128, **more: Any) -> dict[str, Any]:
    row = {"threads": threads, "registers_count": registers, "static_smem_bytes": 0, "dynamic_smem_bytes": smem}
    return {**row, "grid_blocks": 1 << 20, "barriers_count": 0, "cluster_blocks": 0, **more}


def analyze(*rows: dict[str, Any], cc: tuple[int, int] = HOPPER, sm_count: int | None = 132) -> pd.DataFrame:
    return active_blocks(pd.DataFrame(rows), cc=cc, sm_count=sm_count)


def active(*args: Any, cc: tuple[int, int] = HOPPER, **more: Any) -> int:
    return int(analyze(launch(*args, **more), cc=cc)["active_blocks_count"].iloc[0])


# --- known answers: cuda_occupancy.h, compiled on a CPU ---


@pytest.mark.parametrize(
    ("registers", "static", "dynamic", "threads", "blocks"),
    [
        (37, 0, 0, 128, (12, 8, 12, 12, 12, 12, 12, 12)),
        (37, 0, 0, 320, (4, 3, 4, 4, 4, 4, 4, 4)),
        (200, 0, 0, 32, (8,) * 8),
        (184, 0, 0, 96, (2,) * 8),
        (224, 0, 0, 288, (0,) * 8),
        (65, 0, 0, 1024, (0,) * 8),
        (32, 0, 0, 64, (32, 16, 32, 16, 24, 32, 32, 24)),
        (32, 0, 0, 256, (8, 4, 8, 6, 6, 8, 8, 6)),
        (8, 0, 12288, 32, (8, 5, 12, 7, 7, 17, 17, 7)),
        (64, 4096, 32768, 128, (2, 1, 4, 2, 2, 6, 6, 2)),
        (40, 0, 49152, 256, (2, 1, 3, 2, 2, 4, 4, 2)),
        (168, 0, 232448, 384, (0, 0, 0, 0, 0, 1, 1, 0)),
        (168, 0, 232449, 384, (0,) * 8),
    ],
)
def test_known_answers(registers: int, static: int, dynamic: int, threads: int, blocks: tuple[int, ...]) -> None:
    got = tuple(active(registers, dynamic, threads, static_smem_bytes=static, cc=cc) for cc in KNOWN)
    assert got == blocks


@pytest.mark.parametrize(("barriers", "blocks"), [(0, 32), (1, 32), (4, 16), (16, 4)])
def test_barriers_limit_hopper(barriers: int, blocks: int) -> None:
    assert active(32, 0, 64, barriers_count=barriers) == blocks


@pytest.mark.parametrize(("cc", "blocks"), [((8, 9), 24), ((9, 0), 16), ((10, 0), 16), ((11, 0), 6), ((12, 0), 6)])
def test_barriers_by_generation(cc: tuple[int, int], blocks: int) -> None:
    row = analyze(launch(32, 0, 64, barriers_count=4), cc=cc).iloc[0]
    assert row["active_blocks_count"] == blocks
    assert pd.isna(row["limit_barriers_count"]) == (cc < (9, 0))


@pytest.mark.parametrize(("registers", "threads", "naive"), [(37, 320, 5), (200, 32, 10), (184, 96, 3), (224, 288, 1)])
def test_registers_are_not_one_pool(registers: int, threads: int, naive: int) -> None:
    of_block = -(-registers * 32 // 256) * 256 * -(-threads // 32)
    assert 65536 // of_block == naive
    assert active(registers, 0, threads) < naive


def test_the_driver_reserves_shared_memory() -> None:
    assert 233472 // 12288 == 19
    assert active(8, 12288, 32) == 17


@pytest.mark.parametrize(
    ("cc", "registers", "smem", "threads", "blocks", "occupancy"),
    [
        ((7, 0), 37, 0, 128, 12, 0.75),  # CUDA Best Practices Guide
        ((7, 0), 37, 0, 320, 4, 0.625),
        ((10, 0), 16, 0, 32, 32, 0.5),  # CUDA Programming Guide
        ((8, 6), 37, 8192, 1024, 1, 2 / 3),  # a public SGEMM worklog on an A6000
    ],
)
def test_public_examples(
    cc: tuple[int, int], registers: int, smem: int, threads: int, blocks: int, occupancy: float
) -> None:
    row = analyze(launch(registers, smem, threads), cc=cc, sm_count=None).iloc[0]
    assert row["active_blocks_count"] == blocks
    assert row["theoretical_occupancy_ratio"] == pytest.approx(occupancy)


def test_the_spilling_kernel_of_the_h200() -> None:
    spilling = launch(255, 4096, 128, configured_smem_bytes=32768, grid_blocks=56, barriers_count=1)
    row = analyze(spilling).iloc[0]
    assert row[LIMIT_COLUMNS].tolist() == [2, 6, 16, 32, 32]
    assert row["active_blocks_count"] == 2
    assert row["occupancy_limiter"] == "registers and grid"
    assert row["sm_fill_ratio"] == 56 / 264
    assert row["waves"] == pytest.approx(0.2121, abs=5e-5)
    assert row["theoretical_occupancy_ratio"] == 0.125
    assert not row["upper_bound"]


# --- what limits, and what is unknown ---


@pytest.mark.parametrize(
    ("row", "limiter"),
    [
        (launch(168, 0, 128), "registers"),
        (launch(32, 100_000, 128), "shared memory"),
        (launch(16, 0, 1024), "warps"),
        (launch(16, 0, 32), "blocks"),
        (launch(16, 0, 32, barriers_count=16), "barriers"),
        (launch(16, 0, 32, barriers_count=2), "blocks and barriers"),
        (launch(16, 0, 32, configured_smem_bytes=32768), "shared memory and blocks"),
        (launch(32, 0, 64, barriers_count=2), "registers and warps and blocks and barriers"),
        (launch(32, 0, 256, grid_blocks=8 * 132), "registers and warps"),
        (launch(32, 0, 256, grid_blocks=8 * 132 - 1), "registers and warps and grid"),
        (launch(32, 1 << 20, 128), "shared memory"),
        (launch(255, 0, 512, grid_blocks=1), "registers"),
    ],
)
def test_limiters(row: dict[str, Any], limiter: str) -> None:
    assert analyze(row)["occupancy_limiter"].iloc[0] == limiter


def test_limits_are_reported_capped_but_tie_uncapped() -> None:
    row = analyze(launch(16, 0, 32, barriers_count=1)).iloc[0]
    assert row[LIMIT_COLUMNS].tolist() == [128, 32, 64, 32, 32]
    assert row["occupancy_limiter"] == "blocks"


def test_configured_shared_memory_is_used_as_it_is() -> None:
    # 12 KB and the driver's share are 13,312 bytes; 40,000 is no carve-out, and 64 KB would hold four.
    rows = [launch(8, 12288, 32, configured_smem_bytes=size) for size in (32768, 40000, 65536, None)]
    assert analyze(*rows)["active_blocks_count"].tolist() == [2, 3, 4, 17]


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (launch(256, 0, 32), "limit_registers_count"),
        (launch(65, 0, 1024), "limit_registers_count"),
        (launch(16, 0, 1025), "limit_warps_count"),
        (launch(16, 227 * 1024 + 1, 32), "limit_shared_memory_count"),
    ],
)
def test_what_cannot_launch_has_zero_blocks(row: dict[str, Any], column: str) -> None:
    out = analyze(row).iloc[0]
    assert out[column] == out["active_blocks_count"] == 0
    assert out[["sm_fill_ratio", "waves", "theoretical_occupancy_ratio"]].isna().all()


def test_resources_that_a_launch_does_not_use_limit_nothing() -> None:
    row = analyze(launch(0, 0, 32, configured_smem_bytes=0), cc=(7, 0)).iloc[0]
    assert row[LIMIT_COLUMNS[:4]].tolist() == [32, 32, 64, 32]
    assert row["occupancy_limiter"] == "blocks"


def test_waves_beyond_one_fill_the_gpu() -> None:
    row = analyze(launch(255, 0, 128, grid_blocks=660)).iloc[0]
    assert (row["sm_fill_ratio"], row["waves"], row["occupancy_limiter"]) == (1, 2.5, "registers")


def test_without_the_number_of_sms_the_grid_is_left_open() -> None:
    row = analyze(launch(255, 0, 128, grid_blocks=1), sm_count=None).iloc[0]
    assert row[["active_blocks_count", "occupancy_limiter"]].tolist() == [2, "registers"]
    assert row[["sm_fill_ratio", "waves"]].isna().all()


def test_clusters_and_unknowns_make_an_upper_bound() -> None:
    rows = [launch(cluster_blocks=c, barriers_count=b) for c, b in ((0, 0), (1, 1), (2, 1), (None, 1), (0, None))]
    assert analyze(*rows)["upper_bound"].tolist() == [False, False, True, True, True]
    assert analyze(*rows, cc=(8, 9))["upper_bound"].tolist() == [False, False, True, False, False]


def test_optional_columns_may_be_absent() -> None:
    bare = {name: value for name, value in launch().items() if name not in ("barriers_count", "cluster_blocks")}
    row = analyze(bare).iloc[0]
    assert row["active_blocks_count"] == 16
    assert row["upper_bound"]
    assert pd.isna(row["limit_barriers_count"])


@pytest.mark.parametrize("row", [launch(None), launch(smem=None), launch(threads=None), launch(threads=0)])
def test_a_missing_input_is_no_zero(row: dict[str, Any]) -> None:
    out = analyze(row, launch())
    unknown = ["active_blocks_count", "occupancy_limiter", "sm_fill_ratio", "waves", "theoretical_occupancy_ratio"]
    assert out[unknown].isna().all(axis=1).tolist() == [True, False]
    assert out["limit_blocks_count"].tolist() == [32, 32]


def test_an_unknown_gpu_is_missing_throughout() -> None:
    assert not is_known((3, 5))
    assert all(is_known(cc) for cc in (*KNOWN, (8, 7), (11, 0)))
    out = analyze(launch(), launch(), cc=(3, 5))
    assert out.drop(columns="upper_bound").isna().to_numpy().all()
    assert out["upper_bound"].tolist() == [False, False]
    assert_frame_equal(out.iloc[:0], analyze(launch()).iloc[:0])  # the same columns and types


def test_the_index_is_kept_and_the_input_is_not_touched() -> None:
    launches = pd.DataFrame([launch(), launch(255)], index=[7, 7]).convert_dtypes(dtype_backend="pyarrow")
    before = launches.copy()
    out = active_blocks(launches, cc=HOPPER, sm_count=132)
    assert_frame_equal(launches, before)
    assert out.index.tolist() == [7, 7]
    assert out["active_blocks_count"].tolist() == [16, 2]
    assert len(active_blocks(launches.iloc[:0], cc=HOPPER, sm_count=132)) == 0


# --- properties ---

CCS = st.sampled_from(sorted(LIMITS))
LAUNCHES = st.builds(
    launch,
    st.integers(0, 260),
    st.one_of(st.integers(0, 4096), st.integers(0, 240_000)),
    st.integers(1, 1030),
    static_smem_bytes=st.integers(0, 2048),
    configured_smem_bytes=st.sampled_from([None, 16384, 32768, 102400]),
    grid_blocks=st.integers(1, 5000),
    barriers_count=st.one_of(st.none(), st.integers(0, 16)),
    cluster_blocks=st.sampled_from([None, 0, 1, 2, 8]),
)
quick = settings(max_examples=60, deadline=None)


@quick
@given(
    LAUNCHES,
    CCS,
    st.sampled_from(["registers_count", "static_smem_bytes", "dynamic_smem_bytes", "threads"]),
    st.integers(1, 300),
)
def test_asking_for_more_never_gives_more_blocks(row: dict[str, Any], cc: tuple[int, int], what: str, by: int) -> None:
    less, more = analyze(row, {**row, what: row[what] + by}, cc=cc)["active_blocks_count"]
    assert more <= less


@quick
@given(LAUNCHES, CCS, st.integers(0, 16))
def test_unknown_barriers_give_an_upper_bound(row: dict[str, Any], cc: tuple[int, int], barriers: int) -> None:
    unknown, known = analyze({**row, "barriers_count": None}, {**row, "barriers_count": barriers}, cc=cc)[
        "active_blocks_count"
    ]
    assert known <= unknown


@quick
@given(LAUNCHES, CCS)
def test_active_is_the_least_limit_and_names_it(row: dict[str, Any], cc: tuple[int, int]) -> None:
    out = analyze(row, cc=cc).iloc[0]
    limits = out[LIMIT_COLUMNS].dropna()
    assert out["active_blocks_count"] == limits.min()
    names = set(out["occupancy_limiter"].split(" and ")) - {"grid"}
    tied = {
        name.removeprefix("limit_").removesuffix("_count").replace("_", " ")
        for name in limits[limits == limits.min()].index
    }
    assert names
    assert names <= tied


@quick
@given(st.lists(LAUNCHES, min_size=1, max_size=6), CCS, st.sampled_from([None, 1, 132]))
def test_all_rows_at_once_equal_row_by_row(rows: list[dict[str, Any]], cc: tuple[int, int], sms: int | None) -> None:
    alone = [analyze(row, cc=cc, sm_count=sms) for row in rows]
    assert_frame_equal(analyze(*rows, cc=cc, sm_count=sms), pd.concat(alone, ignore_index=True))


# --- ncu's own limits in real captures ---

NCU_INPUTS = {
    "threads": "launch__block_size",
    "registers_count": "launch__registers_per_thread",
    "static_smem_bytes": "launch__shared_mem_per_block_static",
    "dynamic_smem_bytes": "launch__shared_mem_per_block_dynamic",
    "configured_smem_bytes": "launch__shared_mem_config_size",
    "barriers_count": "launch__barrier_count",
    "cluster_blocks": "launch__cluster_size",
    "grid_blocks": "launch__grid_size",
}
NCU_LIMITS = dict(
    zip(
        LIMIT_COLUMNS,
        (f"launch__occupancy_limit_{name}" for name in ("registers", "shared_mem", "warps", "blocks", "barriers")),
        strict=True,
    )
)


@pytest.mark.parametrize(("capture", "launches"), [("decode_unfused", 64), ("decode_fused", 24)])
def test_every_limit_is_ncus(capture: str, launches: int) -> None:
    with (SAMPLES / capture / "cold.ncu.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[1:]  # the first row holds the units

    def column(name: str) -> list[int]:
        return [int(row[name].replace(",", "")) for row in rows]

    out = active_blocks(
        pd.DataFrame({ours: column(theirs) for ours, theirs in NCU_INPUTS.items()}), cc=HOPPER, sm_count=132
    )
    assert len(out) == launches
    assert {ours: out[ours].tolist() for ours in NCU_LIMITS} == {o: column(theirs) for o, theirs in NCU_LIMITS.items()}
    waves = np.array([float(row["launch__waves_per_multiprocessor"]) for row in rows])
    assert out["waves"].to_numpy(float) == pytest.approx(waves, abs=0.005)
    assert out["upper_bound"].tolist() == [size > 1 for size in column("launch__cluster_size")]


# --- NVIDIA's header as the oracle ---

DRIVER = """
#include <stdio.h>
#include "cuda_occupancy.h"
int main(void) {
    int major, minor, warps, smem, optin, reserved, threads, regs, fixed, dynamic, barriers;
    while (scanf("%d%d%d%d%d%d%d%d%d%d%d", &major, &minor, &warps, &smem, &optin, &reserved,
                 &threads, &regs, &fixed, &dynamic, &barriers) == 11) {
        struct cudaOccDeviceProp gpu = {
            .computeMajor = major, .computeMinor = minor, .maxThreadsPerBlock = 1024, .warpSize = 32, .numSms = 1,
            .maxThreadsPerMultiprocessor = 32 * warps, .regsPerBlock = 65536, .regsPerMultiprocessor = 65536,
            .sharedMemPerBlock = 49152, .sharedMemPerMultiprocessor = smem, .sharedMemPerBlockOptin = optin,
            .reservedSharedMemPerBlock = reserved};
        struct cudaOccFuncAttributes kernel = {
            .maxThreadsPerBlock = 1024, .numRegs = regs, .sharedSizeBytes = fixed, .numBlockBarriers = barriers,
            .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN, .maxDynamicSharedSizeBytes = dynamic};
        struct cudaOccDeviceState state = {.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT};
        struct cudaOccResult out = {0};
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&out, &gpu, &kernel, &state, threads, dynamic);
        printf("%d %d %d %d %d %d %d\\n", error, out.blockLimitRegs, out.blockLimitSharedMem, out.blockLimitWarps,
               out.blockLimitBlocks, out.blockLimitBarriers, out.activeBlocksPerMultiprocessor);
    }
    return 0;
}
"""
UNKNOWN_DEVICE, UNLIMITED = 2, 2**31 - 1


def find_header() -> Path | None:
    """cuda_occupancy.h of PyPI's nvidia-cuda-runtime (CUDA 13) or nvidia-cuda-runtime-cu12, the newest installed."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec and spec.submodule_search_locations) or ()]
    return max((path for root in roots for path in root.glob("*/include/cuda_occupancy.h")), default=None)


@pytest.mark.parametrize("cc", sorted(LIMITS))
def test_random_launches_match_the_header(cc: tuple[int, int], tmp_path: Path) -> None:
    header, gcc = find_header(), shutil.which("gcc")
    if header is None or gcc is None:
        pytest.skip("needs gcc and the PyPI package nvidia-cuda-runtime-cu12")
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run([gcc, "-w", "-I", header.parent, "-o", tmp_path / "driver", tmp_path / "driver.c"], check=True)
    rng, gpu = random.Random(repr(cc)), LIMITS[cc]
    # Up to 255 registers: the header lets 256 pass, which no compiler allocates.
    rows = [
        launch(
            rng.randint(0, 255),
            rng.choice((0, rng.randrange(49152), rng.randrange(240_000))),
            rng.choice((rng.randint(1, 1030), 32 * rng.randint(1, 32))),
            static_smem_bytes=rng.choice((0, rng.randrange(4096))),
            barriers_count=rng.choice((0, 1, rng.randint(0, 16))),
        )
        for _ in range(400)
    ]
    names = ("threads", "registers_count", "static_smem_bytes", "dynamic_smem_bytes", "barriers_count")
    sizes = (*cc, gpu.warps, gpu.smem_bytes, gpu.block_smem_bytes, gpu.reserved_bytes)
    text = "\n".join(" ".join(map(str, (*sizes, *(row[name] for name in names)))) for row in rows)
    result = subprocess.run([tmp_path / "driver"], input=text, capture_output=True, text=True, check=True)
    errors, *expected = np.array([line.split() for line in result.stdout.splitlines()], dtype=int).T
    if UNKNOWN_DEVICE in errors:
        pytest.skip("the installed header predates this compute capability")
    out = analyze(*rows, cc=cc, sm_count=None)
    registers, smem, warps, slots, barriers, active = expected
    assert not errors.any()
    assert out["active_blocks_count"].tolist() == active.tolist()
    # Compared with the caps that ncu applies. Before 9.0 the header does not look at barriers, and here they are NA.
    capped = (np.where(registers == UNLIMITED, slots, registers), np.minimum(smem, slots), warps, slots)
    assert out[LIMIT_COLUMNS[:4]].to_numpy(int).T.tolist() == [limit.tolist() for limit in capped]
    known = np.minimum(barriers, slots).tolist() if cc >= (9, 0) else [-1] * len(rows)
    assert out["limit_barriers_count"].fillna(-1).tolist() == known
