"""Which kernel draws tokens, and its launch. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.mismatch import Mismatch, Span
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.sample.problem import SampleProblem

SAMPLE = "sample"  # of KernelSpec.op
GRID = "rows"  # of KernelSpec.grid: x = rows

_LOAD_BYTES_PER_CLK = 24  # of a workgroup, in a pass
_DIGITS = 4  # passes of a least key


def passes(problem: SampleProblem) -> int:
    """Times that a row is read."""
    of_k = _DIGITS * (0 < problem.top_k < problem.columns)
    of_p = (1 + _DIGITS) * (problem.top_p < 1)
    return 1 + (of_k + of_p + 1) * problem.draws


def mismatches(kernel: KernelSpec, problem: SampleProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []
    if problem.dtype != kernel.dtype:
        found.append(Mismatch("dtype", problem.dtype, (kernel.dtype,)))
    for name in ("rows", "columns"):
        value, most = getattr(problem, name), kernel.accepts[f"max_{name}"]
        if value > most:
            found.append(Mismatch(name, value, (Span(1, most),)))
    return found


def cost_clk(kernel: KernelSpec, problem: SampleProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch."""
    of_row = problem.columns * as_dtype(problem.dtype).itemsize / _LOAD_BYTES_PER_CLK
    rounds = -(-problem.rows // (2 * props.num_cus))
    return props.hbm_latency_clk + rounds * passes(problem) * of_row


def choices(
    problem: SampleProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """Every kernel that takes a problem."""
    return kernel_choices(problem, props, rows, SAMPLE, mismatches, cost_clk)


def best(items: Sequence[KernelChoice]) -> KernelChoice:
    """There is one of a type."""
    return items[0]


def build(
    problem: SampleProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[SampleProblem]:
    """The plan of a choice."""
    kernel = choice.kernel
    kernel.check_grid(GRID)
    has_tokens, draws = problem.history > 0, problem.draws
    args: dict[str, Argument] = {
        "logits": Address("logits"),
        "tokens": Address("tokens") if has_tokens else 0,
        "state": Address("state") if draws else 0,
        "out": Address("out"),
        "logits_stride": Stride("logits", "row"),
        "tokens_stride": Stride("tokens", "row") if has_tokens else 0,
        "columns": problem.columns,
        "history": problem.history,
        "top_k": problem.top_k,
        "scale": problem.scale,
        "top_p": problem.top_p,
        "log_min_p": problem.log_min_p,
        "penalty": problem.repetition_penalty,
        "padding": 0,
    }
    written = {"out", "state"} if draws else {"out"}
    launch = Launch(
        kernel,
        (problem.rows, 1, 1),
        kernel.kernarg.filled(args),
        frozenset(written),
        updates=frozenset(written - {"out"}),
    )
    reasons = {
        "why this kernel": f"the one of its type; estimated {choice.clk:.0f} clk",
        "passes": f"{passes(problem)} over each row, by a workgroup",
        "work": f"{problem.nbytes} bytes",
    }
    return Plan(problem, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))
