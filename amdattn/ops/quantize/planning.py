"""Chooses the kernel that quantises rows, and its launches. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.dtypes import FLOAT32
from amdattn.op.choices import Choices, KernelChoice
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.norm.planning import distance
from amdattn.ops.quantize.problem import BLOCK, BLOCKS, QuantizeProblem

QUANTIZE_FP8 = "quantize_fp8"  # the value of KernelSpec.op
# The value of KernelSpec.grid: x = ceil(rows / tile.rows); y = ceil(columns / tile.columns) if rows
# get no scales; otherwise a workgroup has whole rows.
GRID = "tiles_of_rows_and_shared_columns"
OF_BLOCKS = "quantize_blocks"
GRID_OF_BLOCKS = "blocks_of_rows_and_columns"  # x = ceil(rows / tile.rows), y along columns
MAXIMA = "quantize_maxima"
MAXIMA_GRID = "turns_of_tiles"  # x = min(tiles of rows and columns, CUs)

_MAX_ELEMENTS = 2**44  # maxima of all tiles count them in 32 bits

# Clk at the peak clock, near those of the performance model.
_TRIP_CLK = 300  # from the first load to the first result, without HBM's latency and arithmetic
_CHUNK_CLK = 220  # of the vector unit, for 16 bytes a lane of a wave
_ROW_CLK = 300  # for the maximum over lanes, the scale and its reciprocal


def mismatches(kernel: KernelSpec, problem: QuantizeProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = _of_type(kernel, problem)
    if problem.to not in kernel.accepts["to"]:
        found.append(Mismatch("to", problem.to, tuple(kernel.accepts["to"])))
    if problem.per == BLOCKS and problem.columns % BLOCK:
        found.append(Mismatch("columns", problem.columns, (f"multiples of {BLOCK}",)))
    columns = "columns_of_row" if makes_scale_of_row(problem) else "columns"
    sizes = {"columns": (problem.columns, columns), "rows": (problem.rows, "rows")}
    for name, (value, allowed) in sizes.items():
        least, most = kernel.accepts[allowed]
        if not least <= value <= most:
            found.append(Mismatch(name, value, (Span(least, most),)))
    most = _MAX_ELEMENTS // problem.columns
    if problem.per == "tensor" and not problem.scale and problem.rows > most:
        found.append(Mismatch("rows", problem.rows, (Span(1, most),)))
    if not found:
        limits = "max_workgroups", "max_workgroups_yz"
        per = {"rows": kernel.tile["rows"], "columns": kernel.tile["columns"]}
        for (name, tile), limit, count in zip(
            per.items(), limits, grid(kernel, problem), strict=False
        ):
            if count > (most := kernel.accepts[limit]):
                found.append(Mismatch(name, getattr(problem, name), (Span(1, most * tile),)))
    return found


def _of_type(kernel: KernelSpec, problem: QuantizeProblem) -> list[Mismatch]:
    wrong = problem.dtype != kernel.dtype
    return [Mismatch("dtype", problem.dtype, (kernel.dtype,))] if wrong else []


def makes_scale_of_row(problem: QuantizeProblem) -> bool:
    """Whether a workgroup must read all of a row before it writes any of it."""
    return problem.per == "row" and not problem.scale


def grid(kernel: KernelSpec, problem: QuantizeProblem) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID_OF_BLOCKS if problem.per == BLOCKS else GRID)
    tile = kernel.tile
    shares = 1 if makes_scale_of_row(problem) else -(-problem.columns // tile["columns"])
    return -(-problem.rows // tile["rows"]), shares, 1


def cost_clk(kernel: KernelSpec, problem: QuantizeProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch with cold caches, to choose among kernels that take it."""
    arch = props.architecture
    x, y, _ = grid(kernel, problem)
    waves = x * y * kernel.workgroup[0] / LANES_PER_WAVE
    blocks = -(-problem.columns // (kernel.tile["columns"] * y))
    of_row = _ROW_CLK + kernel.params["steps"] * _CHUNK_CLK * blocks * (1 + (blocks > 1))
    of_wave = kernel.params["row_steps"] * of_row
    of_simd = -(-waves // (props.num_cus * arch.simds_per_cu))
    dispatched = waves / props.num_xcds * arch.dispatch_wave_clk + of_wave
    stream = problem.nbytes / props.hbm_bytes_per_ns * props.peak_clock_ghz
    fixed = arch.first_fetch_clk + props.hbm_latency_clk + _TRIP_CLK
    slowest: float = max(dispatched, of_simd * of_wave, stream)
    return fixed + slowest


def choices(
    problem: QuantizeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem."""
    op = OF_BLOCKS if problem.per == BLOCKS else QUANTIZE_FP8
    found = [(row, mismatches(row, problem)) for row in candidates(rows, op, props)]
    items = [KernelChoice(row, cost_clk(row, problem, props)) for row, wrong in found if not wrong]
    rejected = sorted(((row, wrong) for row, wrong in found if wrong), key=distance)
    return Choices(tuple(items), tuple(rejected), rows)


def best(items: Sequence[KernelChoice]) -> KernelChoice:
    """The choice of the least estimated time; of equal ones, the longest pieces of rows."""
    return min(items, key=lambda choice: (choice.clk, -choice.kernel.tile["columns"]))


def build(
    problem: QuantizeProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[QuantizeProblem]:
    """Make the plan of a choice."""
    kernel = choice.kernel
    launches, regions, maxima = [], [], 0
    scales: Argument = Address("scale") if problem.scale else 0
    if problem.per == "tensor" and not problem.scale:
        launch = _maxima(problem, props, choices.rows)
        maxima = launch.grid[0]
        launches.append(launch)
        regions.append(Region("maxima", FLOAT32.itemsize * maxima))
        scales = Address("maxima")
    args: dict[str, Argument] = {
        "x": Address("x"),
        "y": Address("out"),
        "scales": scales,
        "scale_out": 0 if problem.scale else Address("out_scale"),
        "x_stride": Stride("x", "row"),
        "y_stride": Stride("out", "row"),
        "columns": problem.columns,
        "rows": problem.rows,
        "scale_stride": int(problem.per == "row"),
        "maxima": maxima,
    }
    writes = frozenset({"out"} if problem.scale else {"out", "out_scale"})
    launches.append(Launch(kernel, grid(kernel, problem), kernel.kernarg.filled(args), writes))
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{kernel.tile['rows']} rows x {kernel.tile['columns']} columns",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    layout = WorkspaceLayout.of(regions)
    return Plan(problem, props, tuple(launches), layout, tuple(reasons.items()))


def _maxima(problem: QuantizeProblem, props: DeviceProps, rows: Sequence[KernelSpec]) -> Launch:
    """The launch that finds the greatest magnitudes of parts."""
    fit = [
        row
        for row in candidates(rows, MAXIMA, props)
        if not _of_type(row, problem) and row.accepts["columns"][0] <= problem.columns
    ]
    kernel = max(fit, key=lambda row: int(row.params["chunk"]))
    kernel.check_grid(MAXIMA_GRID)
    slices = -(-problem.columns // kernel.tile["columns"])
    tiles = -(-problem.rows // kernel.tile["rows"]) * slices
    workgroups = min(tiles, props.num_cus)
    args: dict[str, Argument] = {
        "x": Address("x"),
        "maxima": Address("maxima"),
        "x_stride": Stride("x", "row"),
        "columns": problem.columns,
        "rows": problem.rows,
        "tiles": tiles,
        "workgroups": workgroups,
    }
    return Launch(kernel, (workgroups, 1, 1), kernel.kernarg.filled(args), frozenset({"maxima"}))
