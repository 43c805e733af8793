"""Chooses the kernel that draws tokens, and its launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, PerRun, Plan, Stride
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.sample.problem import SampleProblem

SAMPLE = "sample"  # the value of KernelSpec.op
GRID = "rows"  # the value of KernelSpec.grid: x = rows
GRID_OF_SLICES = "slices_of_rows"  # x = ceil(columns / tile.columns), y = rows

COUNTER_BYTES = 8  # of a row: how many workgroups have arrived, and in which run
_PARTIAL_BYTES, _LISTED_BYTES = 16, 8  # for a slice; for a column
_SHARED_BYTES = 12320  # of a row: SharedOfRow in asm_src/sample/slices.h
_MOST_BYTES = 2**27  # of a workspace
# Clk at the peak clock, by the performance model of an MI300X: fixed and for each column; fixed and
# for each workgroup of an XCD.
_ROW_CLK = {
    **{"greatest": (5200.0, 0.4), "all": (8900.0, 1.45), "limits": (8900.0, 1.45)},
    **{"bins": (0.0, 0.0), "top_k": (17000.0, 0.65), "top_p": (20000.0, 2.4)},
}
_SLICES_CLK = {
    **{"greatest": (5600.0, 56.0), "all": (9800.0, 71.0), "limits": (14700.0, 118.0)},
    **{"bins": (6000.0, 60.0), "top_k": (7000.0, 26.0), "top_p": (9000.0, 53.0)},
}


def is_sliced(kernel: KernelSpec) -> bool:
    """Whether a row has several workgroups."""
    return kernel.grid == GRID_OF_SLICES


def phases(problem: SampleProblem) -> tuple[int, ...]:
    """Launches of slices: the greatest logit, the bins of the limits, the draws."""
    if not problem.limits:
        return (0,)
    return (0, 1, 2) if problem.has_top_k or problem.has_top_p else (0, 2)


def workspace(kernel: KernelSpec, problem: SampleProblem) -> WorkspaceLayout:
    """Memory in which the workgroups of a row exchange results."""
    if not is_sliced(kernel):
        return WorkspaceLayout()
    rows, slices = problem.rows, -(-problem.columns // kernel.tile["columns"])
    regions = [
        Region("counters", rows * COUNTER_BYTES, "zero_at_rest"),
        Region("partials", rows * slices * _PARTIAL_BYTES),
    ]
    if problem.limits:
        regions.append(Region("shared", rows * _SHARED_BYTES))
    if problem.has_top_k or problem.has_top_p:
        regions.append(Region("lists", rows * problem.columns * _LISTED_BYTES))
    return WorkspaceLayout.of(regions)


def mismatches(kernel: KernelSpec, problem: SampleProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []
    if problem.dtype != kernel.dtype:
        found.append(Mismatch("dtype", problem.dtype, (kernel.dtype,)))
    nbytes = workspace(kernel, problem).total_bytes
    if nbytes > _MOST_BYTES:
        found.append(Mismatch("workspace", nbytes, (Span(0, _MOST_BYTES),)))
    for name in ("rows", "columns"):
        value, most = getattr(problem, name), kernel.accepts[f"max_{name}"]
        if value > most:
            found.append(Mismatch(name, value, (Span(1, most),)))
    return found


def cost_clk(kernel: KernelSpec, problem: SampleProblem, props: DeviceProps) -> float:
    """Estimated clocks of all launches, at the peak clock, and of the gaps between them."""
    clk = 0.0
    if not is_sliced(kernel):
        for fixed, of_column in _steps(problem, _ROW_CLK):
            clk += fixed + of_column * problem.columns
        residents = workgroups_per_cu(kernel, props)[0] * props.num_cus
        return clk * -(-problem.rows // residents)
    slices = -(-problem.columns // kernel.tile["columns"])
    of_xcd = -(-problem.rows * slices // props.num_xcds)
    for fixed, of_workgroup in _steps(problem, _SLICES_CLK):
        clk += fixed + of_workgroup * of_xcd
    gaps = len(phases(problem)) - 1
    return clk + gaps * props.architecture.launch_us * 1e3 * props.peak_clock_ghz


def _steps(
    problem: SampleProblem, table: Mapping[str, tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """The steps that a problem needs."""
    if not problem.draws:
        yield table["greatest"]
        return
    yield table["limits" if problem.limits else "all"]
    if problem.has_top_k or problem.has_top_p:
        yield table["bins"]
    if problem.has_top_k:
        yield table["top_k"]
    if problem.has_top_p:
        yield table["top_p"]


def choices(
    problem: SampleProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem."""
    return kernel_choices(problem, props, rows, SAMPLE, mismatches, cost_clk)


def build(
    problem: SampleProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[SampleProblem]:
    """Make the plan of a choice."""
    kernel = choice.kernel
    layout = workspace(kernel, problem)
    sliced = is_sliced(kernel)
    kernel.check_grid(GRID_OF_SLICES if sliced else GRID)
    slices = -(-problem.columns // kernel.tile["columns"]) if sliced else 1
    launches = tuple(
        _launch(problem, kernel, layout, (slices, problem.rows, 1), phase)
        if sliced
        else _launch(problem, kernel, layout, (problem.rows, 1, 1), phase)
        for phase in (phases(problem) if sliced else (0,))
    )
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "workgroups of a row": f"{slices}",
        "work": f"{problem.nbytes} bytes",
    }
    return Plan(problem, props, launches, layout, tuple(reasons.items()))


def _launch(
    problem: SampleProblem,
    kernel: KernelSpec,
    layout: WorkspaceLayout,
    grid: tuple[int, int, int],
    phase: int,
) -> Launch:
    has_tokens, draws, sliced = problem.history > 0, problem.draws, is_sliced(kernel)
    regions = {region.name for region in layout.regions}
    if phase == 1:
        regions &= {"shared"}
    elif phase == 2:
        regions -= {"counters"}
    else:
        regions -= {"lists"}

    def region(name: str) -> Argument:
        return Address(name) if name in regions else 0

    is_last = not sliced or phase == phases(problem)[-1]
    has_state = draws and phase != 1
    has_out = phase != 1
    args: dict[str, Argument] = {
        "logits": Address("logits"),
        "tokens": Address("tokens") if has_tokens else 0,
        "state": Address("state") if has_state else 0,
        "out": Address("out") if has_out else 0,
        **{name: region(name) for name in ("counters", "partials", "shared", "lists")},
        "generation": PerRun() if "counters" in regions else 0,
        "logits_stride": Stride("logits", "row"),
        "tokens_stride": Stride("tokens", "row") if has_tokens else 0,
        "columns": problem.columns,
        "history": problem.history,
        "top_k": problem.top_k,
        "scale": problem.scale,
        "top_p": problem.top_p,
        "log_min_p": problem.log_min_p,
        "penalty": problem.repetition_penalty,
        "phase": phase,
    }
    written = regions | ({"out"} if has_out else set())
    written |= {"state"} if has_state and is_last else set()
    found_before = {"counters", "state"} | ({"shared"} if phase else set())
    updates = written & (found_before | ({"out"} if phase == 2 else set()))
    return Launch(kernel, grid, kernel.kernarg.filled(args), frozenset(written), frozenset(updates))
