"""Chooses the kernel that normalises rows with all options, and its launch. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.layer_norm.problem import LayerNormProblem
from amdattn.ops.norm.planning import distance, goes_through, mismatches_of_rows

NORM = "norm"  # the value of KernelSpec.op
GRID = "tiles_of_rows"  # the value of KernelSpec.grid: x = ceil(rows / tile.rows)

ARRIVED = "arrived"  # a counter of workgroups that have read the state
_COUNTER_BYTES = 4
# Clk at the peak clock, near those of the performance model.
_TRIP_CLK = 600  # from the first load to the first result, without HBM's latency and arithmetic
# Clk of the vector unit for a chunk of a wave.
_CHUNK_CLK, _RESIDUAL_CLK, _DRAWN_CLK, _NARROW_CLK = 330, 300, 350, 50
_PARTIAL_CLK = 150  # if rows do not fill a kernel
_WAVE_CLK = 150  # for sums over lanes and waves, for each wave


def mismatches(kernel: KernelSpec, problem: LayerNormProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    sizes = {"rows": problem.rows, "columns": problem.columns}
    found = mismatches_of_rows(kernel, problem.dtype, problem.weight_dtype, sizes)
    if not found:
        most = kernel.accepts["max_workgroups"]
        if workgroups(kernel, problem) > most:
            allowed = (Span(1, most * kernel.tile["rows"]),)
            found.append(Mismatch("rows", problem.rows, allowed))
    return found


def workgroups(kernel: KernelSpec, problem: LayerNormProblem) -> int:
    """Workgroups of a launch."""
    kernel.check_grid(GRID)
    return -(-problem.rows // kernel.tile["rows"])


def cost_clk(kernel: KernelSpec, problem: LayerNormProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch with cold caches, to choose among kernels that take it."""
    arch, params = props.architecture, kernel.params
    waves = kernel.workgroup[0] / LANES_PER_WAVE
    of_chunk = _CHUNK_CLK + _RESIDUAL_CLK * problem.residual
    of_chunk += _DRAWN_CLK * problem.draws + _NARROW_CLK * problem.narrow
    most = kernel.accepts["columns"][1]
    of_chunk += _PARTIAL_CLK * (problem.columns < most)
    vector: float = params["steps"] * of_chunk + _WAVE_CLK * (1 + math.log2(waves))
    count = workgroups(kernel, problem)
    of_cu = -(-count // props.num_cus)
    shared = math.ceil(of_cu * waves / arch.simds_per_cu) * vector
    last = -(-count // props.num_xcds) * waves * arch.dispatch_wave_clk + vector
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.peak_clock_ghz
    written = (problem.nbytes - problem.read_bytes) / hbm_bytes_per_clk
    at_the_end = min(written, arch.l2_bytes * props.num_xcds / hbm_bytes_per_clk)
    if goes_through(kernel, problem.rows, problem.columns):
        at_the_end = 0
    stream = problem.nbytes / hbm_bytes_per_clk - at_the_end
    fixed = arch.first_fetch_clk + props.hbm_latency_clk + _TRIP_CLK
    slowest: float = max(shared, last, stream) + max(shared, last) / 4  # HBM hides a part of it
    return fixed + slowest + at_the_end  # then the L2s write back what they hold


def choices(
    problem: LayerNormProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem."""
    return kernel_choices(problem, props, rows, NORM, mismatches, cost_clk, distance)


def build(
    problem: LayerNormProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[LayerNormProblem]:
    """Make the plan of a choice."""
    kernel, has, draws = choice.kernel, problem.residual, problem.draws
    given = problem.narrow and not problem.makes_scale
    count = workgroups(kernel, problem)
    args: dict[str, Argument] = {
        "x": Address("x"),
        "residual": Address("residual") if has else 0,
        "weight": Address("weight"),
        "bias": Address("bias") if problem.bias else 0,
        "x_stride": Stride("x", "row"),
        "residual_stride": Stride("residual", "row") if has else 0,
        "columns": problem.columns,
        "rows": problem.rows,
        "state": Address("state") if draws else 0,
        "arrived": Address(ARRIVED) if draws else 0,
        "out": Address("out"),
        "sum": Address("residual_out") if has else 0,
        "out_stride": Stride("out", "row"),
        "sum_stride": Stride("residual_out", "row") if has else 0,
        "scales": Address("scale") if given else 0,
        "scale_out": Address("out_scale") if problem.makes_scale else 0,
        "scale_stride": int(problem.scale == "row"),
        "narrow": int(problem.narrow),
        "centred": int(not problem.rms),
        "threshold": problem.threshold << 16,
        "kept": problem.kept,
        "eps": problem.eps,
        "inverse_columns": 1 / problem.columns,
        "workgroups": count,
    }
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{kernel.tile['rows']} rows x {kernel.tile['columns']} columns",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    updates = {"state", ARRIVED} if draws else set()
    writes = {"out", *(["residual_out"] * has), *(["out_scale"] * problem.makes_scale), *updates}
    launch = Launch(
        *(kernel, (count, 1, 1), kernel.kernarg.filled(args), frozenset(writes)),
        updates=frozenset(updates),
    )
    regions = [Region(ARRIVED, _COUNTER_BYTES, "zero_at_rest")] if draws else []
    layout = WorkspaceLayout.of(regions)
    return Plan(problem, props, (launch,), layout, tuple(reasons.items()))
