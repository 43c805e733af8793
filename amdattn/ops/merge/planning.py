"""Chooses the kernel that merges partial attention results, and its launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.dtypes import as_dtype
from amdattn.op.choices import Choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.merge.problem import LSE_BYTES, MergeProblem

MERGE_STATE = "merge_state"  # the value of KernelSpec.op
# The value of KernelSpec.grid: x and z are two of the axes of rows, and y =
# ceil(rows / rows of a workgroup) is the third.
GRID = "two_axes_of_rows_and_tiles_of_the_third"
STRIDE_BYTES = 16  # bytes that strides of o and out count

# Clk at the peak clock, fitted to the performance model's times of the shipped kernels on an
# MI300X: in 78 shapes, the kernel that they prefer takes at most 5 % longer than the fastest. They
# do not count instructions, and are taken to be the same on every architecture. From the first
# instruction to the end of the last store, without HBM's latency and what follows.
_FIXED_CLK = 643
_TRIP_CLK = 135  # for loads that must arrive before the next ones, without HBM's latency
# For a wave: a part, one of its columns in a lane, and one column of the result, in 16 bits and in
# float32.
_PART_CLK, _COLUMN_CLK, _RESULT_CLK = 42, (4.6, 2.5), (13, 7.1)
_LSE_APART_BYTES = 36  # bytes that come with an lse whose neighbours another workgroup reads
_PARTS_AT_ONCE = 8  # kAtOnce in the source

# The axes of rows, by the argument that gives their length. Neighbouring workgroups are along the
# first axis that is left, since heads of a query lie next to each other.
_AXES = {"head": "num_heads", "seq": "seqlen", "batch": "batch"}


def in_bytes(axis: str) -> str:
    """The name of the stride of o or out along an axis, in units of a number of bytes."""
    return f"{axis} in {STRIDE_BYTES} bytes"


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel, the axes of rows on its grid, and its estimated clocks."""

    kernel: KernelSpec
    x: str
    row: str
    z: str
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """The facts that distinguish it from other choices."""
        return {"kernel": self.kernel.name, "rows_along": self.row}


def length(problem: MergeProblem, axis: str) -> int:
    """Length of an axis of rows."""
    found: int = getattr(problem, _AXES[axis])
    return found


def chunks_of_row(kernel: KernelSpec, problem: MergeProblem) -> int:
    """Chunks of a row, each of which one lane has."""
    found: int = problem.row_bytes // kernel.params["chunk_bytes"]
    return found


def tile_rows(kernel: KernelSpec, problem: MergeProblem) -> int:
    """Rows of a workgroup; each has a power of two of lanes, so that nothing is divided."""
    return kernel.tile["chunks"] >> (chunks_of_row(kernel, problem) - 1).bit_length()


def mismatches(kernel: KernelSpec, problem: MergeProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []
    if problem.dtype != kernel.dtype:
        found.append(Mismatch("dtype", problem.dtype, (kernel.dtype,)))
    least, most = kernel.accepts["num_parts"]
    if not least <= problem.num_parts <= most:
        found.append(Mismatch("num_parts", problem.num_parts, (Span(least, most),)))
    first, last, step = kernel.accepts["head_dims"]
    if problem.head_dim not in range(first, last + 1, step):
        allowed = tuple(range(first, last + 1, step))
        found.append(Mismatch("head_dim", problem.head_dim, allowed))
    if not found and not any(_orders(kernel, problem)):
        found += _too_long(kernel, problem)
    return found


def _orders(kernel: KernelSpec, problem: MergeProblem) -> Iterator[tuple[str, str, str]]:
    """Orders of the axes along x, the rows of a workgroup, and z that the grid allows."""
    most_x, most_yz = kernel.accepts["max_workgroups"], kernel.accepts["max_workgroups_yz"]
    for row in _AXES:
        if length(problem, row) == 1 < problem.rows:
            continue
        x, z = (axis for axis in _AXES if axis != row)
        if length(problem, z) > most_yz:
            x, z = z, x
        tiles = -(-length(problem, row) // tile_rows(kernel, problem))
        if tiles <= most_yz and length(problem, z) <= most_yz and length(problem, x) <= most_x:
            yield x, row, z


def _too_long(kernel: KernelSpec, problem: MergeProblem) -> list[Mismatch]:
    """Axes that are too long for every grid in any order."""
    most_x, most_yz = kernel.accepts["max_workgroups"], kernel.accepts["max_workgroups_yz"]
    most_rows = tile_rows(kernel, problem) * most_yz
    limits = max(most_x, most_rows), min(most_x, most_rows), most_yz
    by_length = sorted(_AXES, key=lambda axis: -length(problem, axis))
    return [
        Mismatch(_AXES[axis], length(problem, axis), (Span(1, most),))
        for axis, most in zip(by_length, limits, strict=True)
        if length(problem, axis) > most
    ]


def grid(kernel: KernelSpec, problem: MergeProblem, order: Sequence[str]) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID)
    x, row, z = (length(problem, axis) for axis in order)
    return x, -(-row // tile_rows(kernel, problem)), z


def cost_clk(
    kernel: KernelSpec, problem: MergeProblem, order: Sequence[str], props: DeviceProps
) -> float:
    """Estimated clocks of a launch with cold caches, to choose among kernels that take it."""
    arch, steps = props.architecture, kernel.params["steps"]
    x, y, z = grid(kernel, problem, order)
    of_xcd = -(-x * y * z // props.num_xcds)
    of_simd = of_xcd / (props.num_cus / props.num_xcds) / arch.simds_per_cu
    columns = kernel.params["chunk_bytes"] / as_dtype(problem.dtype).itemsize
    in_float32 = problem.dtype == "float32"
    of_part = _PART_CLK + columns * _COLUMN_CLK[in_float32]
    wave: float = steps * (problem.num_parts * of_part + columns * _RESULT_CLK[in_float32])
    loads = -(-problem.num_parts // _PARTS_AT_ONCE)
    trip = props.hbm_latency_clk + _TRIP_CLK
    waits = 0 if loads == 1 else 2 * loads * steps * trip  # all lse come first

    # Results that the L2s hold are written after all reads.
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.num_xcds / props.peak_clock_ghz
    written = problem.rows * (problem.row_bytes + LSE_BYTES) / props.num_xcds
    at_the_end = min(written, arch.l2_bytes) / hbm_bytes_per_clk
    moved = problem.nbytes
    if order[1] != _axis_of_lse(problem):
        moved += (problem.num_parts + 1) * problem.rows * _LSE_APART_BYTES
    stream = moved / props.num_xcds / hbm_bytes_per_clk - at_the_end
    # The time until the last wave has its loads: the start of waves, the work of those before, HBM.
    slowest: float = max(of_xcd * arch.dispatch_wave_clk, (of_simd - 1) * wave, stream)
    fixed = arch.first_fetch_clk + props.hbm_latency_clk + _FIXED_CLK
    return fixed + slowest + wave + waits + at_the_end


def _axis_of_lse(problem: MergeProblem) -> str:
    """The axis along which the lse of rows lie next to each other."""
    return "seq" if problem.seqlen > 1 else "head" if problem.num_heads > 1 else "batch"


def choices(
    problem: MergeProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[Choice]:
    """All kernels that take a problem, with rows along each axis."""
    found = [(row, mismatches(row, problem)) for row in candidates(rows, MERGE_STATE, props)]
    items = [
        Choice(row, *order, cost_clk(row, problem, order, props))
        for row, wrong in found
        if not wrong
        for order in _orders(row, problem)
    ]
    rejected = sorted(((row, wrong) for row, wrong in found if wrong), key=lambda one: len(one[1]))
    return Choices(tuple(items), tuple(rejected), rows)


def build(
    problem: MergeProblem, props: DeviceProps, choice: Choice, choices: Choices[Choice]
) -> Plan[MergeProblem]:
    """Make the plan of a choice."""
    kernel, order = choice.kernel, (choice.x, choice.row, choice.z)
    chunks = chunks_of_row(kernel, problem)
    args: dict[str, Argument] = {
        **{name: Address(name) for name in ("o", "lse", "out", "lse_out")},
        "o_part": Stride("o", in_bytes("part")),
        "lse_part": Stride("lse", "part"),
        "rows": length(problem, choice.row),
        "parts_and_chunks": problem.num_parts * 256 + chunks,
    }
    for name, axis in zip(("x", "row", "z"), order, strict=True):
        args |= {f"{of}_{name}": Stride(of, in_bytes(axis)) for of in ("o", "out")}
        args |= {f"{of}_{name}": Stride(of, axis) for of in ("lse", "lse_out")}
    fields = kernel.kernarg.filled(args)
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(
        f"{one.kernel.name} along {one.row}: {one.clk:.0f} clk" for one in choices.items
    )
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{tile_rows(kernel, problem)} rows along {choice.row}, {chunks} times "
        f"{kernel.params['chunk_bytes']} bytes each",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    launch = Launch(kernel, grid(kernel, problem, order), fields, frozenset({"out", "lse_out"}))
    return Plan(problem, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))
