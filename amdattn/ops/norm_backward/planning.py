"""Chooses the kernel for gradients of normalised rows, and its launches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.norm.planning import distance, mismatches_of_rows
from amdattn.ops.norm_backward.problem import NormBackwardProblem

RMS_NORM_BACKWARD = "rms_norm_backward"  # the value of KernelSpec.op
# The value of KernelSpec.grid: x = groups * blocks of rows, y = ceil(columns / tile.columns). A
# workgroup reads whole rows even if it computes gradients of a part of them.
GRID = "blocks_of_rows"
COLUMN_SUMS = "column_sums"
SUMS_GRID = "tiles_of_columns"  # x = groups, y = ceil(columns / tile.columns)

_WAVES_OF_CU = 16  # that a grid has, if there are enough rows
_ROW_BYTES_PER_CLK = 32  # of a CU, to and from caches; for estimates


def mismatches(kernel: KernelSpec, problem: NormBackwardProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    sizes = {"columns": problem.columns, "rows": problem.all_rows}
    found = mismatches_of_rows(kernel, problem.dtype, problem.weight_dtype, sizes)
    most = kernel.accepts["max_workgroups"]
    if problem.groups > most:  # each has at least one
        found.append(Mismatch("groups", problem.groups, (Span(1, most),)))
    return found


class OfGroups(Protocol):
    """Sizes of gradients of rows."""

    @property
    def groups(self) -> int:
        """Groups of rows."""
        ...

    @property
    def rows(self) -> int:
        """Rows of a group."""
        ...

    @property
    def columns(self) -> int:
        """Columns of a row."""
        ...


def slices(kernel: KernelSpec, problem: OfGroups) -> int:
    """Workgroups that share the columns of a row."""
    return -(-problem.columns // kernel.tile["columns"])


def block_rows(kernel: KernelSpec, problem: OfGroups, props: DeviceProps) -> int:
    """Rows of a group that a workgroup handles in turn: a multiple of those it has at once."""
    of_workgroup = kernel.workgroup[0] // LANES_PER_WAVE
    per_cu = max(1, min(workgroups_per_cu(kernel, props)[0], _WAVES_OF_CU // of_workgroup))
    shared = problem.groups * slices(kernel, problem)
    wanted = max(1, per_cu * props.num_cus // shared)
    at_once = kernel.tile["rows"]
    tiles = -(-problem.rows // at_once)
    return -(-tiles // wanted) * at_once


def blocks(kernel: KernelSpec, problem: OfGroups, props: DeviceProps) -> int:
    """Blocks of the rows of a group."""
    return -(-problem.rows // block_rows(kernel, problem, props))


def cost_clk(kernel: KernelSpec, problem: NormBackwardProblem, props: DeviceProps) -> float:
    """Estimated clocks: the trip to memory, and the bytes that a CU reads and writes."""
    shared = problem.groups * slices(kernel, problem)
    of_cu = -(-shared * blocks(kernel, problem, props) // props.num_cus)
    columns = kernel.tile["columns"] * (3 + problem.residual)
    columns += 2 * problem.columns * (slices(kernel, problem) > 1)
    row = columns * problem.forward.itemsize / _ROW_BYTES_PER_CLK
    trip = props.architecture.first_fetch_clk + props.hbm_latency_clk
    return trip + of_cu * block_rows(kernel, problem, props) * row


def choices(
    problem: NormBackwardProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem, those for fewer columns first."""
    return kernel_choices(
        *(problem, props, rows, RMS_NORM_BACKWARD, mismatches, cost_clk, distance),
        order=lambda kernel: int(kernel.accepts["columns"][1]),
    )


def best(items: Sequence[KernelChoice]) -> KernelChoice:
    """The kernel for the fewest columns that suffice."""
    return items[0]


def build(
    problem: NormBackwardProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[NormBackwardProblem]:
    """Make the plan of a choice."""
    kernel = choice.kernel
    count = blocks(kernel, problem, props)
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"fewest columns that suffice: {tried}",
        "tiles": f"{kernel.tile['rows']} rows at once x {kernel.tile['columns']} columns",
        "blocks": f"{count} of {block_rows(kernel, problem, props)} rows in each of "
        f"{problem.groups} groups",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    regions = []
    if count > 1:
        regions.append(Region("partial_sums", 4 * problem.groups * count * problem.columns))
    launches = tuple(_launches(problem, props, kernel, choices.rows))
    return Plan(problem, props, launches, WorkspaceLayout.of(regions), tuple(reasons.items()))


def _launches(
    problem: NormBackwardProblem, props: DeviceProps, kernel: KernelSpec, rows: Sequence[KernelSpec]
) -> Iterator[Launch]:
    count = blocks(kernel, problem, props)
    sums = "partial_sums" if count > 1 else "dweight"
    args: dict[str, Argument] = {
        **{name: Address(name) for name in ("dout", "x", "weight", "dx")},
        **{f"{name}_stride": Stride(name, "row") for name in ("dout", "x", "dx")},
        "dsum": Address("dresidual_out") if problem.residual else 0,
        "dsum_stride": Stride("dresidual_out", "row") if problem.residual else 0,
        "dweight": Address(sums),
        "columns": problem.columns,
        "rows": problem.rows,
        "blocks": count,
        "block_rows": block_rows(kernel, problem, props),
        "eps": problem.eps,
        "inverse_columns": 1 / problem.columns,
    }
    kernel.check_grid(GRID)
    grid = problem.groups * count, slices(kernel, problem), 1
    yield Launch(kernel, grid, kernel.kernarg.filled(args), frozenset({"dx", sums}))
    if count == 1:
        return
    last = next(iter(candidates(rows, COLUMN_SUMS, props)))
    last.check_grid(SUMS_GRID)
    args = {
        "from": Address(sums),
        "to": Address("dweight"),
        "columns": problem.columns,
        "rows": count,
    }
    grid = problem.groups, -(-problem.columns // last.tile["columns"]), 1
    yield Launch(last, grid, last.kernarg.filled(args), frozenset({"dweight"}))
