"""Nsight Systems exports of every generation, whole and damaged, by the names of their columns."""

from __future__ import annotations

import pytest
from nsys_builder import GENERATIONS, global_id

from tracekit.model import tables
from tracekit.read.bundle import read_trace

KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
MEMCPY, MEMSET, GRAPH_TRACE = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("MEMCPY", "MEMSET", "GRAPH_TRACE"))
TIMELINE = ("gpus", "ranges", "calls", "kernels", "copies", "graphs", "graph_nodes")


def rows(frame, *columns):
    return list(frame[list(columns)].astype(object).itertuples(index=False, name=None))


def read_all(path):
    trace = read_trace(path)
    return {name: trace.table(name) for name in TIMELINE}


# Generations


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_reads_the_same(nsys, generation):
    builder = nsys(generation).gpu().range(0, 90, "step", domain="d")
    builder.launch((10, 20), (30, 40), name="void f<int>(int)", short_name="f", grid=(3, 2, 1), block=(64, 4, 2))
    builder.copy(40, 50, bytes=77, kind=2).memset(50, 55, bytes=8)
    trace = read_trace(builder.write())
    assert rows(
        trace.table("kernels"), "name", "short_name", "start_ns", "end_ns", "device_id", "context", "stream"
    ) == [("void f<int>(int)", "f", 30, 40, 0, 1, 7)]
    assert rows(trace.table("kernels"), "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z") == [
        (3, 2, 1, 64, 4, 2)
    ]
    assert rows(trace.table("kernels"), "registers_count", "configured_smem_bytes", "correlation") == [
        (32, 32768, 1001)
    ]
    assert rows(trace.table("copies"), "name", "copied_bytes", "start_ns") == [
        ("[memcpy DtoH]", 77, 40),
        ("[memset]", 8, 50),
    ]
    assert rows(trace.table("calls"), "name", "start_ns", "end_ns", "correlation") == [
        ("cudaLaunchKernel", 10, 20, 1001)
    ]
    assert rows(trace.table("ranges"), "domain", "label", "start_ns", "end_ns", "open") == [("d", "step", 0, 90, False)]
    assert trace.table("kernels")["process"].tolist() == [global_id(100)]
    assert trace.table("calls")["thread"].tolist() == [global_id(100, 101)]
    assert trace.tool_version == (f"{generation}.1.1" if generation >= "2022" else None)


@pytest.mark.parametrize(
    ("generation", "cluster", "known"),
    [("2023.4", (2, 1, 1), None), ("2025.5", (2, 1, 1), 2), ("2025.5", (0, 0, 0), 0)],
)
def test_clusters_are_missing_where_the_export_predates_them(nsys, generation, cluster, known):
    axes = dict(zip(("clusterX", "clusterY", "clusterZ"), cluster, strict=True))
    frame = read_trace(nsys(generation).kernel(1, 2, **axes).write()).table("kernels")
    assert rows(
        frame.astype({"cluster_blocks": object}).where(frame["cluster_blocks"].notna(), None), "cluster_blocks"
    ) == [(known,)]


def test_zero_local_memory_is_unknown(nsys):
    builder = nsys().kernel(1, 2, localMemoryPerThread=0).kernel(3, 4, localMemoryPerThread=16)
    local = read_trace(builder.write()).table("kernels")["local_thread_bytes"]
    assert local.isna().tolist() == [True, False]
    assert local[1] == 16


@pytest.mark.parametrize("generation", ["2021.3", "2025.5"])
def test_what_a_gpu_is(nsys, generation):
    frame = read_trace(nsys(generation).gpu(sm_count=34, cc=(8, 9), name="4060").kernel(1, 2).write()).table("gpus")
    assert rows(frame, "name", "sm_count", "cc_major", "cc_minor", "l2_bytes") == [("4060", 34, 8, 9, 62914560)]


def test_the_oldest_gpu_table_tells_nothing_and_a_note_says_so(nsys):
    trace = read_trace(nsys("2020.5").gpu().kernel(1, 2).write())
    assert trace.table("gpus")["sm_count"].isna().all()
    assert any("does not describe the GPU" in note for note in trace.notes)


def test_a_scrubbed_uuid_is_no_uuid(nsys):
    zero, real = "00000000-0000-0000-0000-000000000000", "5f7a-1"
    builder = nsys().gpu(0, uuid=zero).gpu(1, uuid=real).kernel(1, 2, device=0).kernel(1, 2, device=1)
    uuids = read_trace(builder.write()).table("gpus")["uuid"]
    assert uuids.isna().tolist() == [True, False]
    assert uuids[1] == real


# Reading


def test_only_the_wanted_tables_are_read(nsys):
    builder = nsys().range(0, 90, "step").launch((10, 20), (30, 40)).sql(f"UPDATE {KERNEL} SET gridX = 'abc'")
    trace = read_trace(builder.write())
    assert trace._tables == {}
    assert len(trace.table("ranges")) == 1
    assert set(trace._tables) == {"ranges"}
    assert trace.table("ranges") is trace.table("ranges")


def test_reading_changes_nothing(nsys, tmp_path):
    path = nsys().gpu().range(0, 90, "step").launch((10, 20), (30, 40)).copy(50, 60).write()
    before = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        read_all(path)
    finally:
        tmp_path.chmod(0o755)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "a%20b", "a&mode=rw", "ü名", "-a", "cold=a", "a'\"b"])
def test_any_file_name(nsys, name):
    assert len(read_trace(nsys(file=f"{name}.sqlite").kernel(1, 2).write()).table("kernels")) == 1


def test_rows_come_in_order_of_start(nsys):
    builder = nsys().kernel(50, 60, name="b").kernel(30, 40, name="a").copy(9, 10).copy(7, 8).memset(8, 9)
    builder.call(20, 21, "second").call(10, 11, "first").range(5, 6, "second").range(1, 9, "first")
    trace = read_trace(builder.write())
    assert rows(trace.table("kernels"), "kernel_id", "name") == [(0, "a"), (1, "b")]
    assert rows(trace.table("copies"), "copy_id", "start_ns") == [(0, 7), (1, 8), (2, 9)]
    assert rows(trace.table("calls"), "call_id", "name") == [(0, "first"), (1, "second")]
    assert rows(trace.table("ranges"), "range_id", "label") == [(0, "first"), (1, "second")]


def test_ids_of_more_than_53_bits_are_exact(nsys):
    node = (2**60 << 1) + 1
    builder = nsys(hw=200).launch((10, 20), (30, 40), graph_node=node).kernel(50, 60, process=None)
    builder.range(0, 90, "a").range(1, 80, "b", thread=2**24 - 1)
    trace = read_trace(builder.write())
    thread = global_id(100, 101, hw=200)
    assert thread < 0
    assert trace.table("calls")["thread"].tolist() == [thread]
    assert trace.table("ranges")["thread"].tolist() == [thread, global_id(100, 2**24 - 1, hw=200)]
    assert trace.table("kernels")["process"].tolist() == [global_id(100, hw=200)] * 2
    assert trace.table("kernels")["graph_node"][0] == node


def test_ids_that_are_missing(nsys):
    builder = nsys().kernel(1, 2).call(3, 4).copy(5, 6)
    trace = read_trace(builder.write())
    assert trace.table("kernels")[["correlation", "graph_node"]].isna().all(axis=None)
    assert trace.table("calls")["correlation"].isna().all()
    assert trace.table("copies")["correlation"].isna().all()


def test_a_row_without_process_is_of_the_only_process_or_of_none(nsys):
    builder = nsys(file="one.sqlite").call(1, 2, process=100).kernel(3, 4, process=None)
    assert read_trace(builder.write()).table("kernels")["process"].tolist() == [global_id(100)]
    builder = nsys(file="two.sqlite").call(1, 2, process=100).call(1, 2, process=200).kernel(3, 4, process=None)
    assert read_trace(builder.write()).table("kernels")["process"].tolist() == [0]


def test_a_row_without_process_in_an_old_export(nsys):
    builder = nsys("2021.3").call(1, 2, process=100).kernel(3, 4, process=None)
    assert read_trace(builder.write()).table("kernels")["process"].tolist() == [global_id(100)]


@pytest.mark.parametrize(
    ("kind", "name"), [(1, "HtoD"), (2, "DtoH"), (8, "DtoD"), (10, "PtoP"), (11, "managed HtoD"), (99, "kind 99")]
)
def test_kinds_of_copies(nsys, kind, name):
    assert read_trace(nsys().copy(1, 2, kind=kind).write()).table("copies")["name"][0] == f"[memcpy {name}]"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("cudaLaunchKernel_v7000", "cudaLaunchKernel"), ("cuLaunchKernelEx", "cuLaunchKernelEx"), ("a_v1_b", "a_v1_b")],
)
def test_api_names_lose_their_version(nsys, name, shown):
    assert read_trace(nsys().call(1, 2, name).write()).table("calls")["name"][0] == shown


def test_names_that_are_missing_are_named_as_such(nsys):
    builder = nsys().kernel(1, 2, demangledName=None, shortName=999)
    trace = read_trace(builder.write())
    assert rows(trace.table("kernels"), "name", "short_name") == [("<unnamed>", "<string 999 is not in the export>")]
    assert any("StringIds is partial" in note for note in trace.notes)


@pytest.mark.parametrize("name", ["λ\n\t", "a\x00b", "k" * 9000 + ',"', "", "  "])
def test_names_are_kept_whole(nsys, name):
    assert read_trace(nsys().kernel(1, 2, name=name).write()).table("kernels")["name"][0] == name


def test_text_that_is_not_utf8_is_decoded_with_replacement(nsys):
    builder = (
        nsys().range(0, 9, b"a\xff", domain=b"d\xff").range(1, 8, b"b\xff", text_id=True).kernel(1, 2, name=b"k\xff")
    )
    trace = read_trace(builder.write())
    assert rows(trace.table("ranges"), "domain", "label") == [("d�", "a�"), ("", "b�")]
    assert trace.table("kernels")["name"][0] == "k�"


# NVTX


@pytest.mark.parametrize("domain_by_id", [False, True])
def test_labels_are_inline_or_registered(nsys, domain_by_id):
    builder = nsys()
    builder.domain("tk", text_id=domain_by_id)
    builder.range(0, 9, "inline", domain="tk").range(1, 8, "registered", domain="tk", text_id=True).range(2, 7, None)
    assert rows(read_trace(builder.write()).table("ranges"), "domain", "label") == [
        ("tk", "inline"),
        ("tk", "registered"),
        ("", "<unnamed>"),
    ]


def test_inline_text_wins_over_the_registered_one(nsys):
    builder = nsys().range(0, 9, "registered", text_id=True).sql(f"UPDATE {NVTX} SET text = 'inline'")
    assert read_trace(builder.write()).table("ranges")["label"].tolist() == ["inline"]


def test_the_oldest_exports_have_no_registered_text(nsys):
    assert read_trace(nsys("2020.5").range(0, 9, "a").write()).table("ranges")["label"].tolist() == ["a"]


def test_domains_are_numbered_by_process(nsys):
    builder = nsys()
    builder.domain("one", id=1, process=100)
    builder.domain("two", id=1, process=200)
    for process in (100, 200):
        builder.range(process, process + 9, "a", domain_id=1, process=process)
        builder.range(process + 1, process + 8, "b", domain_id=0, process=process)
        builder.range(process + 2, process + 7, "c", domain_id=5, process=process)
    assert rows(read_trace(builder.write()).table("ranges"), "domain", "label") == [
        ("one", "a"), ("", "b"), ("domain 5", "c"), ("two", "a"), ("", "b"), ("domain 5", "c"),
    ]  # fmt: skip


def test_a_domain_made_by_another_thread_of_the_process(nsys):
    builder = nsys()
    builder.domain("tk", id=1, thread=102)
    builder.range(0, 9, "a", domain_id=1, thread=101)
    assert read_trace(builder.write()).table("ranges")["domain"].tolist() == ["tk"]


def test_ranges_of_both_styles_and_nothing_else(nsys):
    builder = nsys().range(0, 9, "pushed").range(1, 8, "started", kind="start_end", end_thread=102)
    builder.range(2, 2, "mark", kind="mark").range(3, 4, "imported", event_type=70).range(4, 5, "too", event_type=71)
    builder.domain("d")
    assert rows(read_trace(builder.write()).table("ranges"), "label", "start_end", "thread") == [
        ("pushed", False, global_id(100, 101)),
        ("started", True, global_id(100, 101)),
        ("imported", False, global_id(100, 101)),
        ("too", True, global_id(100, 101)),
    ]


@pytest.mark.parametrize("kind", ["push_pop", "start_end"])
def test_an_open_range_ends_with_the_capture(nsys, kind):
    builder = (
        nsys().range(5, None, "open", kind=kind).range(6, 9, "closed").call(10, 20).kernel(30, 70).kernel(80, 2**62)
    )
    trace = read_trace(builder.write())
    assert rows(trace.table("ranges"), "label", "end_ns", "open") == [("open", 70, True), ("closed", 9, False)]
    assert "1 NVTX ranges were still open when the capture ended; they end there." in trace.notes


def test_an_open_range_alone_ends_where_it_began(nsys):
    builder = nsys().range(5, None, "open", text_id=True)
    assert rows(read_trace(builder.write()).table("ranges"), "start_ns", "end_ns", "open") == [(5, 5, True)]


@pytest.mark.parametrize(
    ("label", "shown"),
    [("aten::add, op_id = 314", "aten::add"), ("a/b", "a/b"), ("x = 5", "x = 5"), ("f, seq = 3, op_id = 4", "f")],
)
@pytest.mark.parametrize("text_id", [False, True])
def test_running_numbers_leave_labels(nsys, label, shown, text_id):
    builder = nsys().range(0, 9, label, text_id=text_id).kernel(1, 2)
    assert read_trace(builder.write()).table("ranges")["label"].tolist() == [shown]


# CUDA graphs


@pytest.mark.parametrize("generation", ["2022.2", "2023.4", "2024.5", "2026.2"])
def test_node_creation_is_found_where_the_generation_keeps_it(nsys, generation):
    builder = nsys(generation).graph_node(5, 10).graph_node(9, 20, original=5).kernel(30, 40, graph_node=9)
    trace = read_trace(builder.write())
    assert rows(trace.table("graph_nodes"), "graph_node", "thread", "start_ns") == [
        (5, global_id(100, 101), 10),
        (9, global_id(100, 101), 20),
    ]
    assert trace.table("graph_nodes")["original_graph_node"].tolist()[1] == 5
    assert trace.table("kernels")["graph_node"].tolist() == [9]


def test_graph_events_of_later_exports_are_no_nodes(nsys):
    builder = nsys("2025.5").graph_node(5, 10).kernel(30, 40)
    assert len(read_trace(builder.write(without=["CUDA_GRAPH_NODE_EVENTS"])).table("graph_nodes")) == 0


def test_whole_graphs(nsys):
    builder = nsys("2024.5").graph(10, 110, graph=3, correlation=9).graph(120, 0, graph=3, correlation=10)
    trace = read_trace(builder.write())
    assert rows(trace.table("graphs"), "graph", "correlation", "start_ns", "end_ns") == [(3, 9, 10, 110)]
    assert sum(trace.rejected.values()) == 1
    assert len(trace.table("kernels")) == 0


@pytest.mark.parametrize(("written", "read"), [("Node", "node"), ("Graph", "graph"), (None, None)])
def test_how_graphs_were_traced(nsys, written, read):
    assert read_trace(nsys(graph_trace=written).kernel(1, 2).write()).graph_trace == read


# Times


def test_impossible_times_are_left_out_and_counted(nsys):
    builder = nsys().kernel(0, 0).kernel(100, 50).kernel(10, 2**63 - 1).kernel(-(2**63), 2**63 - 1).kernel(10, 20)
    builder.copy(9, 5).memset(0, 0).call(30, 20).call(1, 2).range(30, 20, "bad").range(1, 2, "good")
    trace = read_trace(builder.write())
    assert rows(trace.table("kernels"), "kernel_id", "start_ns", "end_ns") == [(0, 10, 20)]
    assert len(trace.table("copies")) == 0
    assert rows(trace.table("calls"), "start_ns", "end_ns") == [(1, 2)]
    assert trace.table("ranges")["label"].tolist() == ["good"]
    assert trace.rejected == {
        "kernel rows without a time": 1,
        "kernel rows that end before they start": 1,
        "kernel rows longer than a day": 2,
        "memcpy rows that end before they start": 1,
        "memset rows without a time": 1,
        "runtime rows that end before they start": 1,
        "nvtx_events rows that end before they start": 1,
    }
    assert all(any(f"{count} {what}" in note for note in trace.notes) for what, count in trace.rejected.items())


@pytest.mark.parametrize(("start", "end"), [(5, 5), (-20, -10), (-5, 5), (0, 1), (155 * 10**9, 155 * 10**9 + 1)])
def test_possible_times_are_kept(nsys, start, end):
    trace = read_trace(nsys().kernel(start, end).write())
    assert rows(trace.table("kernels"), "start_ns", "end_ns") == [(start, end)]
    assert not trace.rejected


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (None, 30),
        (30, None),
        (None, None),
    ],
)
def test_a_time_that_is_missing_is_not_zero(nsys, start, end):
    trace = read_trace(nsys().kernel(start, end).kernel(10, 20).write())
    assert rows(trace.table("kernels"), "start_ns", "end_ns") == [(10, 20)]
    assert sum(trace.rejected.values()) == 1


# Partial and damaged exports


@pytest.mark.parametrize("generation", ["2020.5", "2026.2"])
def test_names_alone_are_typed_empty_tables_with_reasons(nsys, generation):
    path = nsys(generation).write()
    for name, frame in read_all(path).items():
        declared = next(table for table in tables.SOURCE_TABLES if table.name == name)
        assert len(frame) == 0
        assert list(frame.dtypes) == list(declared.empty().dtypes)
    notes = " ".join(read_trace(path).notes)
    assert "No table of device work" in notes
    assert "No NVTX ranges" in notes


@pytest.mark.parametrize("generation", ["2020.5", "2023.4", "2026.2"])
def test_empty_tables_as_lazy_false_writes_them(nsys, generation):
    assert all(len(frame) == 0 for frame in read_all(nsys(generation, lazy=False).write()).values())


def test_empty_tables_are_not_said_to_be_absent(nsys):
    notes = " ".join(read_trace(nsys(lazy=False).write()).notes)
    assert "No table of device work" not in notes


def test_an_export_without_names(nsys):
    builder = nsys().range(0, 90, "step", domain="d").launch((10, 20), (30, 40))
    trace = read_trace(builder.write(without=["StringIds"]))
    assert rows(trace.table("ranges"), "domain", "label") == [("d", "step")]
    assert rows(trace.table("kernels"), "name", "start_ns") == [("<string 3 is not in the export>", 30)]
    assert any("StringIds is partial" in note for note in trace.notes)


def test_kernels_without_names_in_the_export(nsys):
    trace = read_trace(nsys().kernel(30, 40).write(without=["StringIds"]))
    assert rows(trace.table("kernels"), "name", "start_ns") == [("<string 2 is not in the export>", 30)]
    assert any("StringIds is partial" in note for note in trace.notes)


def test_an_export_of_some_tables_says_so(nsys):
    meta = [("EXPORT_PARAM_TABLES_TO_EXPORT", KERNEL), ("EXPORT_PARAM_TIMES_TO_EXPORT", "")]
    notes = read_trace(nsys(meta=meta).kernel(1, 2).write()).notes
    assert any(f"partial (tables {KERNEL})" in note for note in notes)
    assert not any("partial" in note for note in read_trace(nsys(file="b.sqlite").kernel(1, 2).write()).notes)


@pytest.mark.parametrize("database", ["no tables", "other tables"])
def test_another_program_s_database_is_refused(nsys, refused, database):
    builder = nsys("2020.5").sql("CREATE TABLE moz_places (id)")
    if database == "no tables":
        builder.sql("DROP TABLE moz_places")
    path = builder.write(without=["StringIds"])
    text = refused(lambda: read_trace(path), path)
    assert ("without tables" if database == "no tables" else "moz_places") in text


def full(nsys):
    builder = nsys("2025.5").gpu().cuda_device(100, 0, 0).range(0, 90, "step", domain="d").launch((10, 20), (30, 40))
    return builder.copy(50, 60, process=None).memset(60, 65).graph(70, 80).graph_node(5, 10)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (KERNEL, "start"), (KERNEL, "end"), (KERNEL, "deviceId"), (KERNEL, "streamId"), (KERNEL, "demangledName"),
        (KERNEL, "registersPerThread"), (RUNTIME, "correlationId"), (RUNTIME, "globalTid"), (RUNTIME, "nameId"),
        (NVTX, "start"), (NVTX, "end"), (NVTX, "eventType"), (NVTX, "globalTid"), (MEMCPY, "bytes"),
        (MEMCPY, "copyKind"), (MEMSET, "start"), (GRAPH_TRACE, "end"), ("StringIds", "value"),
        (KERNEL, "gridX"),
        (KERNEL, "blockZ"),
        (KERNEL, "clusterY"),
        (KERNEL, "staticSharedMemory"),
        (KERNEL, "dynamicSharedMemory"),
        ("CUDA_GRAPH_NODE_EVENTS", "originalGraphNodeId"),
        ("CUDA_GRAPH_NODE_EVENTS", "globalTid"),
        ("TARGET_INFO_CUDA_DEVICE", "gpuId"),
        ("META_DATA_EXPORT", "value"),
    ],
)  # fmt: skip
def test_a_needed_column_that_is_missing_is_named(nsys, refused, table, column):
    path = full(nsys).sql(f'ALTER TABLE {table} DROP COLUMN "{column}"').write()
    text = refused(lambda: read_all(path), path)
    assert table in text
    assert f"no {column}" in text
    assert "damaged" not in text


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (KERNEL, "correlationId"), (KERNEL, "globalPid"), (KERNEL, "graphNodeId"), (KERNEL, "sharedMemoryExecuted"),
        (KERNEL, "localMemoryPerThread"), (NVTX, "domainId"), (NVTX, "textId"), (MEMCPY, "graphNodeId"),
    ],
)  # fmt: skip
def test_a_column_that_can_be_done_without(nsys, table, column):
    path = full(nsys).sql(f'ALTER TABLE {table} DROP COLUMN "{column}"').write()
    assert len(read_all(path)["kernels"]) == 1


@pytest.mark.parametrize(
    ("table", "column", "cell"),
    [
        (KERNEL, "start", "abc"), (KERNEL, "gridX", 5.5), (KERNEL, "demangledName", "abc"), (KERNEL, "globalPid", "x"),
        (RUNTIME, "correlationId", "abc"), (RUNTIME, "end", b"\xff"), (NVTX, "domainId", "abc"), (NVTX, "end", 1.5),
        (NVTX, "globalTid", "abc"), (MEMCPY, "bytes", "4 KB"), (MEMCPY, "copyKind", "HtoD"), (MEMSET, "streamId", "a"),
        (GRAPH_TRACE, "graphId", "g"), ("CUDA_GRAPH_NODE_EVENTS", "graphNodeId", "n"),
        ("PROCESSES", "globalPid", "abc"),
        ("TARGET_INFO_GPU", "id", "abc"),
        ("TARGET_INFO_GPU", "id", None),
        ("TARGET_INFO_CUDA_DEVICE", "pid", "abc"),
        ("TARGET_INFO_CUDA_DEVICE", "gpuId", "abc"),
        (NVTX, "eventType", "abc"),
        ("TARGET_INFO_GPU", "smCount", "many"),
    ],
)  # fmt: skip
def test_a_cell_of_the_wrong_type_is_named(nsys, refused, table, column, cell):
    path = full(nsys).sql(f'UPDATE {table} SET "{column}" = ?', cell).write()
    text = refused(lambda: read_all(path), path)
    assert table in text
    assert column in text
    assert (str(cell) if isinstance(cell, str | float) else "") in text


def test_a_needed_cell_that_is_empty_is_refused(nsys, refused):
    path = full(nsys).sql(f"UPDATE {KERNEL} SET gridX = NULL").write()
    assert "grid_x" in refused(lambda: read_all(path), path)


# Devices


def gpus(path):
    trace = read_trace(path)
    frame = trace.table("gpus").astype(object)
    return rows(frame.where(frame.notna(), None), "name", "process", "ordinal"), trace


def two_processes(builder, ordinals=(0, 0)):
    for process, ordinal in zip((100, 200), ordinals, strict=True):
        builder.launch((10, 20), (30, 40), process=process, thread=process + 1, device=ordinal)
    return builder


def test_ordinals_of_processes_map_to_gpus(nsys):
    builder = nsys("2025.5").gpu(0, name="A").gpu(3, name="B").cuda_device(100, 0, 0).cuda_device(200, 0, 3)
    found, trace = gpus(two_processes(builder).write())
    assert found == [("A", None, 0), ("B", None, 0)]
    assert trace.table("kernels")["device_id"].tolist() == [0, 1]
    assert not any("ordinals" in note for note in trace.notes)


def test_two_ordinals_of_one_gpu_are_one_device(nsys):
    builder = nsys("2025.5").gpu(3, name="B").cuda_device(100, 0, 3).cuda_device(200, 1, 3)
    found, trace = gpus(two_processes(builder, (0, 1)).write())
    assert [name for name, *_ in found] == ["B"]
    assert trace.table("kernels")["device_id"].tolist() == [0, 0]


def test_without_a_map_a_device_is_a_process_and_an_ordinal_and_a_note_says_so(nsys):
    found, trace = gpus(two_processes(nsys().gpu(0).gpu(1)).write())
    assert found == [("NVIDIA H200", global_id(100), 0), ("NVIDIA H200", global_id(200), 0)]
    assert trace.table("kernels")["device_id"].tolist() == [0, 1]
    assert any("two of them may be one GPU" in note for note in trace.notes)


def test_unlike_gpus_are_not_guessed(nsys):
    found, _ = gpus(two_processes(nsys().gpu(0, name="A").gpu(1, name="B")).write())
    assert [name for name, *_ in found] == [None, None]


def test_one_gpu_serves_every_process(nsys):
    found, trace = gpus(two_processes(nsys().gpu(0, name="A")).write())
    assert found == [("A", None, 0)]
    assert trace.table("kernels")["device_id"].tolist() == [0, 0]


def test_one_process_with_two_gpus(nsys):
    builder = nsys().gpu(0, name="A", cu_device=1).gpu(1, name="B", cu_device=0).kernel(1, 2, device=0)
    found, trace = gpus(builder.kernel(3, 4, device=1).write())
    assert [(name, ordinal) for name, _, ordinal in found] == [("A", 1), ("B", 0)]
    assert trace.table("kernels")["device_id"].tolist() == [1, 0]


def test_a_map_counts_without_a_description_of_the_gpus(nsys):
    builder = nsys("2025.5").cuda_device(100, 0, 3).cuda_device(200, 1, 3)
    _, trace = gpus(two_processes(builder, (0, 1)).write())
    assert trace.table("kernels")["device_id"].tolist() == [0, 0]
    assert not any("does not map" in note for note in trace.notes)
