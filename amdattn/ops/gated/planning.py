"""Chooses the kernel that multiplies activations, and its launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.quotients import Reciprocal
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.gated.problem import ACTIVATIONS, GatedProblem

GATED_ACTIVATION = "gated_activation"  # the value of KernelSpec.op
GRID = "tiles_of_chunks"  # the value of KernelSpec.grid: x = ceil(chunks of all rows / tile.chunks)

CHUNK = 8  # neighbouring columns of a lane
# Clk at the peak clock, near those of the performance model.
_TRIP_CLK, _CHUNK_CLK = 300, 900


def chunks_of_row(problem: GatedProblem) -> int:
    """Chunks of a row; the last one may have fewer columns."""
    return -(-problem.columns // CHUNK)


def mismatches(kernel: KernelSpec, problem: GatedProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []
    if problem.dtype != kernel.dtype:
        found.append(Mismatch("dtype", problem.dtype, (kernel.dtype,)))
    most = kernel.accepts["max_chunks"] // chunks_of_row(problem)
    if problem.rows > most:
        found.append(Mismatch("rows", problem.rows, (Span(1, most),)))
    return found


def grid(kernel: KernelSpec, problem: GatedProblem) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID)
    return -(-problem.rows * chunks_of_row(problem) // kernel.tile["chunks"]), 1, 1


def cost_clk(kernel: KernelSpec, problem: GatedProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch with cold caches."""
    arch = props.architecture
    waves = grid(kernel, problem)[0] * kernel.workgroup[0] / LANES_PER_WAVE
    of_wave = kernel.params["steps"] * _CHUNK_CLK
    of_simd = -(-waves // (props.num_cus * arch.simds_per_cu))
    dispatched = waves / props.num_xcds * arch.dispatch_wave_clk + of_wave
    stream = problem.nbytes / props.hbm_bytes_per_ns * props.peak_clock_ghz
    fixed = arch.first_fetch_clk + props.hbm_latency_clk + _TRIP_CLK
    slowest: float = max(dispatched, of_simd * of_wave, stream)
    return fixed + slowest


def choices(
    problem: GatedProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem."""
    return kernel_choices(problem, props, rows, GATED_ACTIVATION, mismatches, cost_clk)


def build(
    problem: GatedProblem, props: DeviceProps, choice: KernelChoice, choices: Choices[KernelChoice]
) -> Plan[GatedProblem]:
    """Make the plan of a choice."""
    kernel, chunks = choice.kernel, chunks_of_row(problem)
    reciprocal = Reciprocal.of(chunks)
    args: dict[str, Argument] = {
        **{name: Address(name) for name in ("gate", "up", "out")},
        **{f"{name}_stride": Stride(name, "row") for name in ("gate", "up", "out")},
        "columns": problem.columns,
        "total": problem.rows * chunks,
        "row_chunks": chunks,
        "factor": reciprocal.factor,
        "flags": reciprocal.shift | ACTIVATIONS[problem.activation] << 8,
    }
    per_cu, limit = workgroups_per_cu(kernel, props)
    reasons = {
        "why this kernel": f"of its type; estimated {choice.clk:.0f} clk",
        "tiles": f"{kernel.tile['chunks']} times {CHUNK} columns, over the ends of rows",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    fields = kernel.kernarg.filled(args)
    launch = Launch(kernel, grid(kernel, problem), fields, frozenset({"out"}))
    return Plan(problem, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))
