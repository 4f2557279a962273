"""Every table of tracekit, declared: source tables as readers fill them, derived tables as analysis makes them.

``docs/tables.md`` is generated from these declarations. A time is an integer count of nanoseconds since the capture's
session began; two captures share no clock, so times of different captures are never subtracted.
"""

from __future__ import annotations

from tracekit.model.schema import Better, Column, DType, Table
from tracekit.model.units import Unit

GAP_PARTS: tuple[str, ...] = (
    "host", "sync", "other_call", "launch_call", "launch_latency", "dispatch", "in_graph", "unknown",
)  # fmt: skip
"""What the host was doing about the operation that ends a gap; the parts sum to the gap, to the nanosecond."""

HOST_PARTS: tuple[str, ...] = ("host", "sync", "other_call", "launch_call", "launch_latency")
"""The gap parts that need a host timeline which the tracer did not stretch."""

DRAM_KINDS: tuple[str, ...] = ("in_model", "cold", "replay_warm")
"""Cache states of DRAM bytes, by preference: never mixed, always labelled."""


def _id(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, DType.INT, Unit.ID, doc, nullable)


def _text(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, DType.TEXT, Unit.TEXT, doc, nullable)


def _flag(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, DType.FLAG, Unit.FLAG, doc, nullable)


def _int(name: str, unit: Unit, doc: str, *, nullable: bool = False, better: Better = Better.NONE) -> Column:
    return Column(name, DType.INT, unit, doc, nullable, better)


def _float(name: str, unit: Unit, doc: str, *, better: Better = Better.NONE) -> Column:
    return Column(name, DType.FLOAT, unit, doc, nullable=True, better=better)


_START = _int("start_ns", Unit.NS, "When it began.")
_END = _int("end_ns", Unit.NS, "When it ended.")
_PROCESS = _id("process", "nsys global process id: hardware, virtual machine and process id packed.")
_DEVICE = _id("device_id", "The row of table gpus that it ran on.")
_CORRELATION = _id("correlation", "Correlation id; unique only within its process.", nullable=True)
_GRAPH_NODE = _id("graph_node", "Node of a CUDA graph, where it was launched by one.", nullable=True)

CAPTURES = Table(
    "captures",
    "One report file of a capture, and how it was made, as far as a manifest tells.",
    "file",
    (
        _text("file", "Path of the report file."),
        _text("capture_id", "Name of the capture that the file belongs to.", nullable=True),
        _text("tool", "nsys or ncu."),
        _text("tool_version", "Version of the tool or of its exporter.", nullable=True),
        _text("workload", "Workload that ran.", nullable=True),
        _text("variant", "Variant of the workload.", nullable=True),
        _text("replay_mode", "How ncu replayed: kernel, application, range or app-range.", nullable=True),
        _text("cache_control", "Whether ncu flushed caches before each replay: all or none.", nullable=True),
        _text("clock_control", "Whether ncu locked clocks: base or none.", nullable=True),
        _text("sha256", "SHA-256 of the file, where the manifest records it.", nullable=True),
    ),
)

GPUS = Table(
    "gpus",
    "A GPU as the capture's processes saw it: a physical GPU where known, else a (process, ordinal) pair.",
    "device_id",
    (
        _id("device_id", "Number of the device within this capture."),
        _id(
            "process",
            "The process whose ordinal this is; NA where the GPU is known physically.",
            nullable=True,
        ),
        _id("ordinal", "CUDA device ordinal."),
        _text("name", "Marketing name.", nullable=True),
        _text("uuid", "Universally unique id, where not scrubbed.", nullable=True),
        _int("sm_count", Unit.COUNT, "Streaming multiprocessors.", nullable=True),
        _int("cc_major", Unit.ID, "Compute capability, major.", nullable=True),
        _int("cc_minor", Unit.ID, "Compute capability, minor.", nullable=True),
        _int("l2_bytes", Unit.BYTES, "Size of the L2 cache.", nullable=True),
        _int("memory_bytes", Unit.BYTES, "Device memory.", nullable=True),
        _int(
            "memory_bytes_per_second",
            Unit.BYTES_PER_SECOND,
            "Peak DRAM bandwidth by data sheet.",
            nullable=True,
        ),
    ),
)

RANGES = Table(
    "ranges",
    "An NVTX range as it was pushed or started on one thread.",
    "range_id",
    (
        _id("range_id", "Number of the range within this capture, in order of start."),
        _text("domain", "NVTX domain; the default domain is an empty text."),
        _text("label", "The range's text, less the running numbers of PyTorch's emit_nvtx."),
        _id("thread", "nsys global thread id of the thread that opened it."),
        _START,
        _int("end_ns", Unit.NS, "When it ended; the end of the capture where it was still open."),
        _flag("start_end", "True for a start/end range, false for push/pop."),
        _flag("open", "True where the range was still open when the capture ended."),
    ),
)

CALLS = Table(
    "calls",
    "A CUDA runtime or driver API call.",
    "call_id",
    (
        _id("call_id", "Number of the call within this capture, in order of start."),
        _text("name", "API function without its version suffix."),
        _id("thread", "nsys global thread id of the calling thread."),
        _CORRELATION,
        _START,
        _END,
    ),
)

KERNELS = Table(
    "kernels",
    "One kernel execution.",
    "kernel_id",
    (
        _id("kernel_id", "Number of the execution within this capture, in order of start."),
        _text("name", "Demangled name with its template arguments."),
        _text("short_name", "Function name alone; for display, since different kernels may share it."),
        _PROCESS,
        _DEVICE,
        _id("context", "CUDA context."),
        _id("stream", "CUDA stream."),
        _CORRELATION,
        _GRAPH_NODE,
        _START,
        _END,
        _int("grid_x", Unit.BLOCKS, "Blocks of the grid along x."),
        _int("grid_y", Unit.BLOCKS, "Blocks of the grid along y."),
        _int("grid_z", Unit.BLOCKS, "Blocks of the grid along z."),
        _int("block_x", Unit.THREADS, "Threads of a block along x."),
        _int("block_y", Unit.THREADS, "Threads of a block along y."),
        _int("block_z", Unit.THREADS, "Threads of a block along z."),
        _int(
            "cluster_blocks",
            Unit.BLOCKS,
            "Blocks of a thread block cluster; NA where the export predates it.",
            nullable=True,
        ),
        _int("registers_count", Unit.COUNT, "Registers per thread."),
        _int("static_smem_bytes", Unit.BYTES, "Static shared memory per block."),
        _int("dynamic_smem_bytes", Unit.BYTES, "Dynamic shared memory per block."),
        _int(
            "configured_smem_bytes",
            Unit.BYTES,
            "Shared memory per SM that the driver configured for the launch.",
            nullable=True,
        ),
        _int(
            "local_thread_bytes",
            Unit.BYTES,
            "Local memory per thread; NA where the export says 0, which means unknown.",
            nullable=True,
        ),
    ),
)

COPIES = Table(
    "copies",
    "A memory copy or memory set on a device.",
    "copy_id",
    (
        _id("copy_id", "Number of the operation within this capture, in order of start."),
        _text("name", "Kind, such as [memcpy HtoD] or [memset]."),
        _PROCESS,
        _DEVICE,
        _id("context", "CUDA context."),
        _id("stream", "CUDA stream."),
        _CORRELATION,
        _GRAPH_NODE,
        _START,
        _END,
        _int("copied_bytes", Unit.BYTES, "Bytes copied or set."),
    ),
)

GRAPHS = Table(
    "graphs",
    "One execution of a whole CUDA graph, where the capture traced graphs and not their nodes.",
    "graph_exec_id",
    (
        _id("graph_exec_id", "Number of the execution within this capture, in order of start."),
        _id("graph", "CUDA graph id.", nullable=True),
        _PROCESS,
        _DEVICE,
        _id("context", "CUDA context."),
        _id("stream", "CUDA stream."),
        _CORRELATION,
        _START,
        _END,
    ),
)

GRAPH_NODES = Table(
    "graph_nodes",
    "The creation of one CUDA graph node, or its cloning into another graph.",
    "graph_node",
    (
        _id("graph_node", "Id of the node."),
        _id("original_graph_node", "The node it was cloned from.", nullable=True),
        _id("thread", "nsys global thread id of the creating thread."),
        _int("start_ns", Unit.NS, "When it was created."),
    ),
)

COUNTERS = Table(
    "counters",
    "One Nsight Compute result: a launch, an NVTX range or a graph.",
    "profile_id",
    (
        _id("profile_id", "Number of the result within its file, in order of launch."),
        _text(
            "kind",
            "Cache state that bytes were counted in: in_model, cold or replay_warm; NA where the report does not tell.",
            nullable=True,
        ),
        _text("workload_type", "What was profiled: kernel, range or graph."),
        Column(
            "nvtx",
            DType.PATH,
            Unit.TEXT,
            "NVTX stacks at the launch: ((domain, (outermost, ..., innermost)), ...).",
        ),
        _id("process", "Process id.", nullable=True),
        _text("name", "Kernel name as the report gives it."),
        _text("short_name", "Function name alone."),
        _int("grid_x", Unit.BLOCKS, "Blocks of the grid along x.", nullable=True),
        _int("grid_y", Unit.BLOCKS, "Blocks of the grid along y.", nullable=True),
        _int("grid_z", Unit.BLOCKS, "Blocks of the grid along z.", nullable=True),
        _int("block_x", Unit.THREADS, "Threads of a block along x.", nullable=True),
        _int("block_y", Unit.THREADS, "Threads of a block along y.", nullable=True),
        _int("block_z", Unit.THREADS, "Threads of a block along z.", nullable=True),
        _float("duration_ns", Unit.NS, "GPU time of the profiled pass; not comparable with a timeline's."),
        _float("dram_read_bytes", Unit.BYTES, "Bytes read from DRAM.", better=Better.LOWER),
        _float("dram_write_bytes", Unit.BYTES, "Bytes written to DRAM.", better=Better.LOWER),
        _float("l2_bytes", Unit.BYTES, "Bytes that passed through L2.", better=Better.LOWER),
        _float("dram_throughput_ratio", Unit.RATIO, "DRAM throughput of its peak over the elapsed time."),
        _float("tensor_pipe_ratio", Unit.RATIO, "Tensor pipe activity of its peak over the elapsed time."),
        _float(
            "spill_instruction_count",
            Unit.COUNT,
            "Executed instructions that spill registers.",
            better=Better.LOWER,
        ),
        _float(
            "local_load_instruction_count",
            Unit.COUNT,
            "Executed local loads: an upper bound for spill loads.",
            better=Better.LOWER,
        ),
        _float(
            "local_store_instruction_count",
            Unit.COUNT,
            "Executed local stores: an upper bound for spill stores.",
            better=Better.LOWER,
        ),
        _float(
            "frame_bytes",
            Unit.BYTES,
            "Local memory of the compiled kernel per thread: spilled registers and arrays.",
            better=Better.LOWER,
        ),
        _int("registers_count", Unit.COUNT, "Registers per thread.", nullable=True),
        _int("static_smem_bytes", Unit.BYTES, "Static shared memory per block.", nullable=True),
        _int("dynamic_smem_bytes", Unit.BYTES, "Dynamic shared memory per block.", nullable=True),
        _int(
            "configured_smem_bytes",
            Unit.BYTES,
            "Shared memory per SM that the driver configured.",
            nullable=True,
        ),
        _int(
            "cluster_blocks",
            Unit.BLOCKS,
            "Blocks of a thread block cluster; 0 without clusters.",
            nullable=True,
        ),
        _int("barriers_count", Unit.COUNT, "Named barriers of a block.", nullable=True),
        _float("limit_registers_count", Unit.COUNT, "Blocks per SM that registers allow."),
        _float("limit_shared_memory_count", Unit.COUNT, "Blocks per SM that shared memory allows."),
        _float("limit_warps_count", Unit.COUNT, "Blocks per SM that warp slots allow."),
        _float("limit_blocks_count", Unit.COUNT, "Blocks per SM that the architecture allows."),
        _float("limit_barriers_count", Unit.COUNT, "Blocks per SM that named barriers allow."),
        _float("theoretical_occupancy_ratio", Unit.RATIO, "Warps that could be active, of the SM's warp slots."),
        _float(
            "achieved_occupancy_ratio",
            Unit.RATIO,
            "Warps that were active on average, of the SM's warp slots.",
        ),
        _float("waves", Unit.WAVES, "Grid blocks over the blocks that the GPU holds at once."),
        _int("sm_count", Unit.COUNT, "Streaming multiprocessors of the GPU.", nullable=True),
        _int("cc_major", Unit.ID, "Compute capability, major.", nullable=True),
        _int("cc_minor", Unit.ID, "Compute capability, minor.", nullable=True),
        _text("gpu", "Marketing name of the GPU.", nullable=True),
        _int("gpu_l2_bytes", Unit.BYTES, "Size of the GPU's L2 cache.", nullable=True),
    ),
)

BENCH = Table(
    "bench",
    "One untraced latency sample: the figure of one process (or block) under one protocol.",
    "sample",
    (
        _id("sample", "Number of the sample, in the order run."),
        _text("variant", "Variant that ran."),
        _id("process", "Number of the process, in the order run."),
        _text("protocol", "synchronized (each step waited for) or pipelined."),
        _float(
            "latency_ns",
            Unit.NS,
            "Latency of a step: the process's median, or its mean when pipelined.",
            better=Better.LOWER,
        ),
        _text("phase", "What the step is: iter, prefill, decode or request; NA where not recorded.", nullable=True),
        _text("shape", "Name of the problem size; NA where not recorded.", nullable=True),
        _id("block", "Number of the interleaved block that it belongs to: one turn of every variant.", nullable=True),
        _id("order", "Its place in the random order of its block.", nullable=True),
        _text(
            "run",
            "The run of the bench: blocks are interleaved within one alone; NA where not recorded.",
            nullable=True,
        ),
        _float("sm_clock_mhz", Unit.MHZ, "Clock of the SMs after the sample."),
        _float("power_w", Unit.WATT, "Power draw of the GPU after the sample."),
        _float("temperature_c", Unit.CELSIUS, "Temperature of the GPU after the sample."),
    ),
)

QUALITY = Table(
    "quality",
    "A check of numbers or of task quality: what the variant computed against a reference.",
    "check",
    (
        _text("check", "What was checked."),
        _text("reference", "What it was checked against."),
        Column("error", DType.FLOAT, Unit.TEXT, "The error found, in the check's own measure.", nullable=True),
        Column("tolerance", DType.FLOAT, Unit.TEXT, "The largest error that passes.", nullable=True),
        _flag("passed", "The verdict of the check."),
    ),
)

SOURCE_TABLES: tuple[Table, ...] = (
    CAPTURES, GPUS, RANGES, CALLS, KERNELS, COPIES, GRAPHS, GRAPH_NODES, COUNTERS, BENCH, QUALITY,
)  # fmt: skip

OPERATIONS = Table(
    "operations",
    "A device operation (kernel, copy, memset or whole graph) with its launch call, its range and the gap it ends.",
    "operation_id",
    (
        _id("operation_id", "Number of the operation, by device and then by start."),
        _text("kind", "kernel, copy or graph."),
        _text("name", "Name of the kernel, or kind of the copy."),
        _id("source_id", "Its key in the table that kind names."),
        _DEVICE,
        _PROCESS,
        _id("context", "CUDA context."),
        _id("stream", "CUDA stream."),
        _id("launch", "Its launch configuration: the row of table launches."),
        _START,
        _END,
        _id("call_id", "The API call that launched it; NA where that is not in the capture.", nullable=True),
        _id(
            "range_id",
            "The innermost range open on the calling thread at the launch; NA outside every range.",
            nullable=True,
        ),
        _id(
            "built_in_range_id",
            "For a graph node: the range in which the node was created, where captured.",
            nullable=True,
        ),
        _int("charged_busy_ns", Unit.NS, "Its time not already covered by earlier operations of its device."),
        _int("gap_ns", Unit.NS, "Idle device time that it ends."),
        _int("gap_host_ns", Unit.NS, "Part of the gap before the launch call, outside CUDA."),
        _int("gap_sync_ns", Unit.NS, "Part before the launch call, inside a synchronizing call."),
        _int("gap_other_call_ns", Unit.NS, "Part before the launch call, inside any other CUDA call."),
        _int("gap_launch_call_ns", Unit.NS, "Part inside the launch call."),
        _int(
            "gap_launch_latency_ns",
            Unit.NS,
            "Part after the launch call, where the call ended inside the gap.",
        ),
        _int("gap_dispatch_ns", Unit.NS, "The gap, where the call had returned before it began."),
        _int("gap_in_graph_ns", Unit.NS, "The gap, between operations of one graph launch."),
        _int("gap_unknown_ns", Unit.NS, "The gap, where the host's part in it cannot be known."),
    ),
)

REGION_METRICS = Table(
    "region_metrics",
    "The metrics of a region: each is a column here, and a value over the region's instances in a report.",
    "path",
    (
        Column("path", DType.PATH, Unit.TEXT, "The chain of enclosing labels, outermost first."),
        _float("kernel_count", Unit.COUNT, "Kernels.", better=Better.LOWER),
        _float("copy_count", Unit.COUNT, "Memory copies and sets.", better=Better.LOWER),
        _float("launch_call_count", Unit.COUNT, "API calls that launched work; a graph launch counts once.", better=Better.LOWER),
        _float("host_ns", Unit.NS, "The range itself, on its thread.", better=Better.LOWER),
        _float("device_span_ns", Unit.NS, "First start to last end of its operations.", better=Better.LOWER),
        _float("busy_ns", Unit.NS, "Union of its operations: the time in which at least one ran.", better=Better.LOWER),
        _float("device_ns", Unit.NS, "Charged device time: time not covered by earlier operations, plus gaps ended. Additive.", better=Better.LOWER),
        _float("gap_ns", Unit.NS, "Idle device time that its operations end.", better=Better.LOWER),
        _float("gap_host_ns", Unit.NS, "Gap part before the launch call, outside CUDA: framework, Python.", better=Better.LOWER),
        _float("gap_sync_ns", Unit.NS, "Gap part before the launch call, inside a synchronizing call.", better=Better.LOWER),
        _float("gap_other_call_ns", Unit.NS, "Gap part before the launch call, inside another CUDA call.", better=Better.LOWER),
        _float("gap_launch_call_ns", Unit.NS, "Gap part inside the launch call.", better=Better.LOWER),
        _float("gap_launch_latency_ns", Unit.NS, "Gap part after a launch call that came late.", better=Better.LOWER),
        _float("gap_dispatch_ns", Unit.NS, "Gaps of work that the device already had: its own turnaround.", better=Better.LOWER),
        _float("gap_in_graph_ns", Unit.NS, "Gaps between operations of one graph launch.", better=Better.LOWER),
        _float("gap_unknown_ns", Unit.NS, "Gaps whose host side is not in the capture, or distorted by it.", better=Better.LOWER),
        _float("wall_ns", Unit.NS, "Roots: range start to the later of range end and last operation's end.", better=Better.LOWER),
        _float("other_busy_ns", Unit.NS, "Roots: time inside the wall in which only other regions' operations ran.", better=Better.LOWER),
        _float("wall_gap_ns", Unit.NS, "Roots: gaps clipped to the wall, before the last operation ends.", better=Better.LOWER),
        *(
            _float(f"wall_gap_{part}_ns", Unit.NS, f"Roots: the {part} part of wall_gap_ns.", better=Better.LOWER)
            for part in GAP_PARTS
        ),
        _float("tail_ns", Unit.NS, "Roots: idle time inside the wall after its last operation.", better=Better.LOWER),
        _float("dram_read_bytes", Unit.BYTES, "Bytes read from DRAM, in the cache state that kind names.", better=Better.LOWER),
        _float("dram_write_bytes", Unit.BYTES, "Bytes written to DRAM, in the cache state that kind names.", better=Better.LOWER),
        _float("dram_throughput_ratio", Unit.RATIO, "Dominant kernel: DRAM throughput of its peak."),
        _float("tensor_pipe_ratio", Unit.RATIO, "Dominant kernel: tensor pipe activity of its peak."),
        _text("bound_by", "Dominant kernel: memory, math or latency, where counters tell (60 % of a peak is its bound).", nullable=True),
        _float("spill_instruction_count", Unit.COUNT, "Executed instructions that spill registers, of all its launches.", better=Better.LOWER),
        _float("local_load_instruction_count", Unit.COUNT, "Executed local loads, of all its launches: an upper bound of spill loads.", better=Better.LOWER),
        _float("local_store_instruction_count", Unit.COUNT, "Executed local stores, of all its launches: an upper bound of spill stores.", better=Better.LOWER),
        _float("frame_bytes", Unit.BYTES, "Dominant kernel: local memory of the compiled kernel per thread: spilled registers and arrays.", better=Better.LOWER),
        _float("local_thread_bytes", Unit.BYTES, "Dominant kernel: local memory per thread, as the timeline gives it.", better=Better.LOWER),
        _float("registers_count", Unit.COUNT, "Dominant kernel: registers per thread."),
        _float("static_smem_bytes", Unit.BYTES, "Dominant kernel: static shared memory per block."),
        _float("dynamic_smem_bytes", Unit.BYTES, "Dominant kernel: dynamic shared memory per block."),
        _float("active_blocks_count", Unit.COUNT, "Dominant kernel: blocks that one SM can hold at once."),
        _text("occupancy_limiter", "Dominant kernel: what limits its active blocks; grid where the grid leaves SMs short of blocks.", nullable=True),
        _float("sm_fill_ratio", Unit.RATIO, "Dominant kernel: grid blocks over what all SMs could hold, at most 1."),
        _float("waves", Unit.WAVES, "Dominant kernel: grid blocks over what all SMs could hold."),
        _float("achieved_occupancy_ratio", Unit.RATIO, "Dominant kernel: warps active on average, of the SM's warp slots."),
    ),
)  # fmt: skip

_OF_INSTANCES = (
    "kernel_count", "copy_count", "launch_call_count", "device_span_ns", "busy_ns", "device_ns",
    *(column.name for column in REGION_METRICS if column.name.startswith(("gap_", "wall_"))),
    "other_busy_ns", "tail_ns",
)  # fmt: skip

INSTANCES = Table(
    "instances",
    "One instance of a region: an NVTX range with the work launched inside it; or all work launched outside ranges.",
    "range_id",
    (
        _id("range_id", "The row of table ranges; NA for what was launched outside every range.", nullable=True),
        Column("path", DType.PATH, Unit.TEXT, "The chain of enclosing labels, outermost first."),
        _id("parent", "The range that encloses it; NA for roots.", nullable=True),
        _id("depth", "How many ranges enclose it."),
        _id("instance", "How many ranges of the same path began before it."),
        _int("host_ns", Unit.NS, "The range itself, on its thread.", nullable=True),
        _int("device_start_ns", Unit.NS, "When the first of its operations began; NA without any.", nullable=True),
        *(_int(name, REGION_METRICS[name].unit, REGION_METRICS[name].doc, nullable=True) for name in _OF_INSTANCES),
    ),
)

LAUNCHES = Table(
    "launches",
    "A launch configuration: all executions of one kernel with one grid, block and resources; or all copies of a kind.",
    "launch",
    (
        _id("launch", "Number of the configuration, in order of appearance."),
        _text("kind", "kernel, copy or graph."),
        _text("name", "Name of the kernel, or kind of the copy."),
        _text("short_name", "Function name alone."),
        _DEVICE,
        _id("process", "nsys global process id.", nullable=True),
        *(
            Column(column.name, column.dtype, column.unit, column.doc, nullable=True)
            for column in KERNELS
            if column.name.startswith(("grid_", "block_", "cluster_", "registers_", "static_", "dynamic_"))
            or column.name in ("configured_smem_bytes", "local_thread_bytes")
        ),
        _int("barriers_count", Unit.COUNT, "Named barriers of a block, where profiled.", nullable=True),
        _flag("collective", "True for a collective of NCCL and the like: busy by time, but one that spins is waiting."),
        _int("execution_count", Unit.COUNT, "How often it ran."),
        _float("median_ns", Unit.NS, "Median duration of an execution."),
    ),
)

LAUNCH_BYTES = Table(
    "launch_bytes",
    "DRAM bytes of one launch configuration in one region, where Nsight Compute profiled single launches of it.",
    "launch",
    (
        _id("launch", "The row of table launches."),
        Column("path", DType.PATH, Unit.TEXT, "The region: the chain of enclosing labels, outermost first."),
        _text("kind", "Cache state that bytes were counted in; NA where the report does not tell.", nullable=True),
        _float("dram_read_bytes", Unit.BYTES, "Bytes that an execution reads from DRAM: the median of those profiled."),
        _float("dram_write_bytes", Unit.BYTES, "Bytes that an execution writes to DRAM: the median of those profiled."),
    ),
)

SLICES = Table(
    "slices",
    "A mark of a timeline: one range, call or operation; or all those that one pixel would have to hold.",
    "lane",
    (
        _id("lane", "The lane that it is drawn in, counting from 0."),
        _int("start_ns", Unit.NS, "Where it begins, clipped to the window."),
        _int("end_ns", Unit.NS, "Where it ends, clipped to the window."),
        _int("row_count", Unit.COUNT, "How many rows of its table it stands for."),
        _int("busy_ns", Unit.NS, "Time in the window that these cover and that no earlier row of the lane covers."),
        _id("row", "The row of table ranges, calls or operations; NA where it stands for several.", nullable=True),
        _text("name", "Its label or name; of several, that with the most busy time.", nullable=True),
        Column("path", DType.PATH, Unit.TEXT, "The region it belongs to; of several, that with the most busy time."),
        Column(
            "built_in_path",
            DType.PATH,
            Unit.TEXT,
            "Of the node of a graph: the region in which it was created, where captured.",
            nullable=True,
        ),
        _float("share_ratio", Unit.RATIO, "Share of busy_ns that this name and path have; NA where there is none."),
        _int("duration_ns", Unit.NS, "Its whole duration; NA where it stands for several.", nullable=True),
        _text("role", "Of an operation: kernel, copy, memset or graph; of a call: launch, sync or other."),
        _flag("open", "Of a range: True where it was still open when the capture ended.", nullable=True),
        *(
            Column(column.name, column.dtype, column.unit, column.doc, nullable=True)
            for column in LAUNCHES
            if column.name.startswith(("grid_", "block_", "registers_", "static_", "dynamic_"))
        ),
        _int("copied_bytes", Unit.BYTES, "Bytes that a copy copied or set.", nullable=True),
        _float("dram_read_bytes", Unit.BYTES, "DRAM bytes that such a launch reads, where profiled."),
        _float("dram_write_bytes", Unit.BYTES, "DRAM bytes that such a launch writes, where profiled."),
        _text("dram_kind", "Cache state that those bytes were counted in.", nullable=True),
    ),
)

GAP_SLICES = Table(
    "gap_slices",
    "A mark of a timeline for idle time: one gap, or all those that one pixel would have to hold.",
    "lane",
    (
        _id("lane", "The lane that it is drawn in, counting from 0."),
        _int("start_ns", Unit.NS, "Where it begins; a single gap is not clipped to the window."),
        _int("end_ns", Unit.NS, "Where it ends; a single gap is not clipped to the window."),
        _int("row_count", Unit.COUNT, "How many gaps it stands for."),
        _int("busy_ns", Unit.NS, "Idle time in the window."),
        _id("row", "The operation that ends the gap; NA where it stands for several.", nullable=True),
        _text("part", "The part with the most time."),
        *(
            _int(f"gap_{part}_ns", Unit.NS, f"The {part} part of these gaps, as whole as they are.")
            for part in GAP_PARTS
        ),
    ),
)

DERIVED_TABLES: tuple[Table, ...] = (
    OPERATIONS, INSTANCES, LAUNCHES, LAUNCH_BYTES, REGION_METRICS, SLICES, GAP_SLICES,
)  # fmt: skip
ALL_TABLES: tuple[Table, ...] = SOURCE_TABLES + DERIVED_TABLES
