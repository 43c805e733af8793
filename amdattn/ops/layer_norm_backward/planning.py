"""Chooses the kernel for gradients of layer normalisation, and its launches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.layer_norm_backward.problem import LayerNormBackwardProblem
from amdattn.ops.norm.planning import distance, mismatches_of_rows
from amdattn.ops.norm_backward.planning import COLUMN_SUMS, GRID, SUMS_GRID, block_rows, blocks

NORM_BACKWARD = "norm_backward"  # the value of KernelSpec.op

_ROW_BYTES_PER_CLK = 24  # of a CU, to and from caches; for estimates


def mismatches(kernel: KernelSpec, problem: LayerNormBackwardProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    sizes = {"columns": problem.columns, "rows": problem.all_rows}
    found = mismatches_of_rows(kernel, problem.dtype, problem.weight_dtype, sizes)
    most = kernel.accepts["max_workgroups"]
    if problem.groups > most:  # each has at least one
        found.append(Mismatch("groups", problem.groups, (Span(1, most),)))
    return found


def cost_clk(kernel: KernelSpec, problem: LayerNormBackwardProblem, props: DeviceProps) -> float:
    """Estimated clocks: the trip to memory, and the bytes that a CU reads and writes."""
    of_cu = -(-problem.groups * blocks(kernel, problem, props) // props.num_cus)
    columns = kernel.tile["columns"] * (3 + problem.residual + problem.splits)
    row = columns * problem.forward.itemsize / _ROW_BYTES_PER_CLK
    trip = props.architecture.first_fetch_clk + props.hbm_latency_clk
    return trip + of_cu * block_rows(kernel, problem, props) * row


def choices(
    problem: LayerNormBackwardProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem, those for fewer columns first."""
    return kernel_choices(
        *(problem, props, rows, NORM_BACKWARD, mismatches, cost_clk, distance),
        order=lambda kernel: int(kernel.accepts["columns"][1]),
    )


def best(items: Sequence[KernelChoice]) -> KernelChoice:
    """The kernel for the fewest columns that suffice."""
    return items[0]


def build(
    problem: LayerNormBackwardProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[LayerNormBackwardProblem]:
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
        nbytes = 4 * problem.groups * count * (1 + problem.bias) * problem.columns
        regions.append(Region("partial_sums", nbytes))
    launches = tuple(_launches(problem, props, kernel, choices.rows))
    return Plan(problem, props, launches, WorkspaceLayout.of(regions), tuple(reasons.items()))


def _launches(
    problem: LayerNormBackwardProblem,
    props: DeviceProps,
    kernel: KernelSpec,
    rows: Sequence[KernelSpec],
) -> Iterator[Launch]:
    count, forward = blocks(kernel, problem, props), problem.forward
    sums = "partial_sums" if count > 1 else "dparameters"
    if_given = {
        "dsum": ("dresidual_out", problem.residual),
        "dresidual": ("dresidual", problem.splits),
    }
    args: dict[str, Argument] = {
        **{name: Address(name) for name in ("dout", "x", "weight", "dx")},
        **{f"{name}_stride": Stride(name, "row") for name in ("dout", "x", "dx")},
        **{field: Address(name) if has else 0 for field, (name, has) in if_given.items()},
        **{
            f"{field}_stride": Stride(name, "row") if has else 0
            for field, (name, has) in if_given.items()
        },
        "state": Address("state") if problem.draws else 0,
        "dparameters": Address(sums),
        "columns": problem.columns,
        "rows": problem.rows,
        "blocks": count,
        "block_rows": block_rows(kernel, problem, props),
        "bias": int(problem.bias),
        "centred": int(not problem.rms),
        "drops_x": int(problem.draws and not problem.residual),
        "behind": problem.behind,
        "threshold": forward.threshold << 16,
        "kept": forward.kept,
        "eps": problem.eps,
        "inverse_columns": 1 / problem.columns,
    }
    kernel.check_grid(GRID)
    writes = {"dx", sums, *(["dresidual"] * problem.splits)}
    grid = problem.groups * count, 1, 1
    yield Launch(kernel, grid, kernel.kernarg.filled(args), frozenset(writes))
    if count == 1:
        return
    last = next(iter(candidates(rows, COLUMN_SUMS, props)))
    last.check_grid(SUMS_GRID)
    columns = (1 + problem.bias) * problem.columns
    args = {"from": Address(sums), "to": Address("dparameters"), "columns": columns, "rows": count}
    grid = problem.groups, -(-columns // last.tile["columns"]), 1
    yield Launch(last, grid, last.kernarg.filled(args), frozenset({"dparameters"}))
