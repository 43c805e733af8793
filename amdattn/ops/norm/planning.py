"""Chooses the kernel that normalises rows, and its launch. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.choices import Choices, KernelChoice, Rejected, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.norm.problem import NormProblem

RMS_NORM = "rms_norm"  # the value of KernelSpec.op
# The value of KernelSpec.grid: x = ceil(rows / tile.rows), y = ceil(columns / tile.columns). A
# workgroup reads whole rows even if its tile is a part of them.
GRID = "tiles_of_rows_and_columns"

_CHUNK = 8  # columns of a lane's load
# Clk at the peak clock, fitted to the performance model's times of the shipped bfloat16 kernels on
# an MI300X: in 84 shapes, the kernel that they prefer takes at most 6 % longer than the fastest.
# They do not count instructions, and are taken to be the same on every architecture.
_TRIP_CLK = 111  # from the first load to the first result, without HBM's latency and arithmetic
_WAVE_CLK, _ROW_CLK = 10, 93  # for a wave, and for each row that its lanes have one after the other
# Clk of the vector unit for a chunk: its squares, its residual, its result, its mask.
_SQUARES_CLK, _RESIDUAL_CLK, _OUTPUT_CLK, _PARTIAL_CLK = 14, 194, 264, 183
_LOAD_BYTES_PER_CLK = 65  # of a CU
_THROUGH = 1 << 19  # elements from which on results go through the L2


def mismatches_of_rows(
    kernel: KernelSpec, dtype: str, weight_dtype: str | None, sizes: Mapping[str, int]
) -> list[Mismatch]:
    """Types and sizes that a kernel of rows does not take, by name."""
    found = []
    if dtype != kernel.dtype:
        found.append(Mismatch("dtype", dtype, (kernel.dtype,)))
    if weight_dtype != kernel.params["weight_dtype"]:
        allowed = (kernel.params["weight_dtype"],)
        found.append(Mismatch("weight_dtype", weight_dtype, allowed))
    for name, value in sizes.items():
        least, most = kernel.accepts[name]
        if not least <= value <= most:
            found.append(Mismatch(name, value, (Span(least, most),)))
    return found


def mismatches(kernel: KernelSpec, problem: NormProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    sizes = {"rows": problem.rows, "columns": problem.columns}
    found = mismatches_of_rows(kernel, problem.dtype, problem.weight_dtype, sizes)
    if problem.residual not in kernel.accepts["residual"]:
        allowed = tuple(kernel.accepts["residual"])
        found.append(Mismatch("residual", problem.residual, allowed))
    if problem.in_place and not kernel.accepts["in_place"]:  # workgroups share rows
        found.append(Mismatch("in_place", True, (False,)))
    if not found:
        most = kernel.accepts["max_workgroups"]
        workgroups = math.prod(grid(kernel, problem))
        if workgroups > most:
            rows = most * kernel.tile["rows"]
            found.append(Mismatch("rows", problem.rows, (Span(1, rows),)))
    return found


def grid(kernel: KernelSpec, problem: NormProblem) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID)
    tile = kernel.tile
    return -(-problem.rows // tile["rows"]), -(-problem.columns // tile["columns"]), 1


def goes_through(kernel: KernelSpec, rows: int, columns: int) -> bool:
    """Whether results are stored through the L2, as in asm_src/norm/through.h."""
    tile, row_lanes = kernel.tile, kernel.params["row_lanes"]
    is_whole = tile["columns"] == columns == kernel.accepts["columns"][1]
    return is_whole and row_lanes >= LANES_PER_WAVE and rows * columns >= _THROUGH


def cost_clk(kernel: KernelSpec, problem: NormProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch with cold caches, to choose among kernels that take it."""
    tile, params, arch = kernel.tile, kernel.params, props.architecture
    rows, columns, residual = problem.rows, problem.columns, problem.residual
    x, y, _ = grid(kernel, problem)
    of_xcd = -(-x * y // props.num_xcds)
    cus = props.num_cus // props.num_xcds
    of_cu = -(-of_xcd // cus)
    waves = kernel.workgroup[0] / LANES_PER_WAVE

    # Clk of the vector unit for a wave. Slices add the residual to their part of the row again.
    chunks: int = params["steps"] * params["row_steps"]
    own: float = tile["columns"] / (params["row_lanes"] * _CHUNK) * params["row_steps"]
    is_slice = tile["columns"] < kernel.accepts["columns"][1]
    vector: float = (
        _WAVE_CLK + _ROW_CLK * params["row_steps"] + chunks * _SQUARES_CLK + own * _OUTPUT_CLK
    )
    if residual:
        vector += _RESIDUAL_CLK * (chunks * params["chunk"] / _CHUNK + is_slice * own)
    if columns < kernel.accepts["columns"][1]:
        vector += chunks * _PARTIAL_CLK
    read = tile["rows"] * columns * (1 + residual) + min(columns, tile["columns"])
    # A float32 weight counts like one of x's type: the kernels take about the same time.
    loads = read * problem.itemsize / _LOAD_BYTES_PER_CLK

    # The slowest of three: the last workgroup to start, all workgroups of a CU, HBM.
    dispatched = waves * arch.dispatch_wave_clk
    last = of_xcd * dispatched + loads + vector * math.ceil(waves / arch.simds_per_cu)
    shared = of_cu * max(loads, vector * max(1, waves / arch.simds_per_cu))
    shared += min(of_xcd, cus) * dispatched
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.num_xcds / props.peak_clock_ghz
    written = rows * columns * (1 + residual) * problem.itemsize / props.num_xcds
    at_the_end = min(written, arch.l2_bytes) / hbm_bytes_per_clk
    if goes_through(kernel, rows, columns):
        at_the_end = 0
    stream = 2 * written / hbm_bytes_per_clk - at_the_end
    slowest: float = max(last, shared, stream)
    fixed = arch.first_fetch_clk + props.hbm_latency_clk + _TRIP_CLK
    return fixed + slowest + at_the_end  # then the L2s write back what they hold


def choices(
    problem: NormProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem."""
    return kernel_choices(
        *(problem, props, rows, RMS_NORM, mismatches, cost_clk, distance),
    )


def distance(rejected: Rejected) -> tuple[int, bool]:
    """How near a rejected kernel is: rows are easier to change than a model's columns."""
    wrong = rejected[1]
    return len(wrong), any(one.argument == "columns" for one in wrong)


def build(
    problem: NormProblem, props: DeviceProps, choice: KernelChoice, choices: Choices[KernelChoice]
) -> Plan[NormProblem]:
    """Make the plan of a choice."""
    kernel = choice.kernel
    args: dict[str, Argument] = {
        "x": Address("x"),
        "weight": Address("weight"),
        "x_stride": Stride("x", "row"),
        "columns": problem.columns,
        "rows": problem.rows,
        "eps": problem.eps,
        "inverse_columns": 1 / problem.columns,
        "out": Address("out"),
        "out_stride": Stride("out", "row"),
    }
    has = problem.residual
    args |= {"residual": Address("residual") if has else 0}
    args |= {"sum": Address("residual_out") if has else 0}
    args |= {"residual_stride": Stride("residual", "row") if has else 0}
    args |= {"sum_stride": Stride("residual_out", "row") if has else 0}
    fields = kernel.kernarg.filled(args)
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{kernel.tile['rows']} rows x {kernel.tile['columns']} columns",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    writes = frozenset({"out", "residual_out"} if has else {"out"})
    launch = Launch(kernel, grid(kernel, problem), fields, writes)
    return Plan(problem, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))
