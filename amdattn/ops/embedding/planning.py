"""Chooses the kernel that gathers rows, and its launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.embedding.problem import EmbeddingProblem

EMBEDDING = "embedding"  # the value of KernelSpec.op
# The value of KernelSpec.grid: x = ceil(rows / tile.rows), y = ceil(bytes of a row / tile.columns).
GRID = "tiles_of_rows_and_bytes"

_LOST = {"bfloat16": 0x7FC07FC0, "float16": 0x7E007E00, "float32": 0x7FC00000}  # NaN
# Clk at the peak clock, near those of the performance model.
_CHUNK_CLK, _WAVE_CLK = 150, 20


def mismatches(kernel: KernelSpec, problem: EmbeddingProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found, accepts = [], kernel.accepts
    if problem.dtype not in accepts["out_dtype"]:
        found.append(Mismatch("dtype", problem.dtype, tuple(accepts["out_dtype"])))
        return found
    least, most = accepts["rows"]
    most = min(most, accepts["max_workgroups"] * kernel.tile["rows"])
    if not least <= problem.rows <= most:
        found.append(Mismatch("rows", problem.rows, (Span(least, most),)))
    columns = accepts["max_workgroups_yz"] * kernel.tile["columns"] // problem.itemsize
    columns = min(columns, 2**31 // problem.itemsize - kernel.tile["columns"])
    if problem.columns > columns:
        found.append(Mismatch("columns", problem.columns, (Span(1, columns),)))
    return found


def grid(kernel: KernelSpec, problem: EmbeddingProblem) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID)
    tile, row_bytes = kernel.tile, problem.columns * problem.itemsize
    return -(-problem.rows // tile["rows"]), -(-row_bytes // tile["columns"]), 1


def cost_clk(kernel: KernelSpec, problem: EmbeddingProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch with cold caches."""
    arch = props.architecture
    x, y, _ = grid(kernel, problem)
    waves = x * y * kernel.workgroup[0] / LANES_PER_WAVE
    of_wave = kernel.params["steps"] * _CHUNK_CLK
    dispatched = waves / props.num_xcds * _WAVE_CLK + of_wave
    stream = problem.nbytes / props.hbm_bytes_per_ns * props.peak_clock_ghz
    slowest: float = max(dispatched, stream)
    return arch.first_fetch_clk + 2 * props.hbm_latency_clk + slowest  # the index, then its row


def choices(
    problem: EmbeddingProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem."""
    return kernel_choices(problem, props, rows, EMBEDDING, mismatches, cost_clk)


def best(items: Sequence[KernelChoice]) -> KernelChoice:
    """The choice of the least estimated time; of equal ones, the longest pieces of rows."""
    return min(items, key=lambda choice: (choice.clk, -choice.kernel.tile["columns"]))


def build(
    problem: EmbeddingProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[EmbeddingProblem]:
    """Make the plan of a choice."""
    kernel = choice.kernel
    args: dict[str, Argument] = {
        **{name: Address(name) for name in ("table", "indices", "out")},
        **{f"{name}_stride": Stride(name, "row") for name in ("table", "out")},
        "table_rows": problem.table_rows,
        "row_bytes": problem.columns * problem.itemsize,
        "rows": problem.rows,
        "lost": _LOST[problem.dtype],
        "log2_bytes": problem.itemsize.bit_length() - 1,
    }
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{kernel.tile['rows']} rows x {kernel.tile['columns']} bytes",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    fields = kernel.kernarg.filled(args)
    launch = Launch(kernel, grid(kernel, problem), fields, frozenset({"out"}))
    return Plan(problem, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))
