"""Chooses the kernel that rotates pairs, and its launch. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32
from amdattn.op.choices import Choices, KernelChoice, kernel_choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.quotients import Reciprocal
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.rotary.problem import RotaryProblem

ROTARY = "rotary"  # the value of KernelSpec.op
GRID = "lanes_of_x_and_k"  # x = ceil(lanes of x / lanes) + the same for k

_MOST_DIM, _MOST_HEADS = 2**12, 2**12  # the kernel's numbers are exact up to these
_MOST_PAIRS = 8  # columns of a lane, if they divide all columns
_WHY_OF_NORM = "a head that is normalised is of one wave"
# Clk at the peak clock, near those of the performance model; _WAVE_CLK is the time between the
# waves of an XCD.
_TRIP_CLK, _HEAD_CLK, _WAVE_CLK = 500, 350, 25
_NORM_CLK = 250  # of a head


def columns_of_lane(problem: RotaryProblem) -> int:
    """Columns of a head that a lane has."""
    most = 2 * _MOST_PAIRS
    whole = problem.head_dim % most == 0 and problem.rotary_dim % most == 0
    return most if whole else 2


def lanes_of_head(problem: RotaryProblem) -> int:
    """Lanes of a head; a power of two if they share sums."""
    lanes = problem.head_dim // columns_of_lane(problem)
    return 1 << (lanes - 1).bit_length() if problem.is_normed else lanes


def lanes_of_token(kernel: KernelSpec, problem: RotaryProblem, heads: int) -> int:
    """Lanes of a token with a number of heads."""
    of_lane: int = kernel.params["steps"]
    return -(-heads // of_lane) * lanes_of_head(problem)


def mismatches(kernel: KernelSpec, problem: RotaryProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []
    if problem.dtype != kernel.dtype:
        found.append(Mismatch("dtype", problem.dtype, (kernel.dtype,)))
    if problem.is_normed != kernel.params["norm"]:
        name = "q_norm" if problem.q_norm else "k_norm"
        found.append(Mismatch(name, problem.is_normed, (kernel.params["norm"],)))
    if problem.head_dim % 2:
        found.append(Mismatch("head_dim", problem.head_dim, ("even numbers",)))
        return found
    if problem.is_normed and lanes_of_head(problem) > LANES_PER_WAVE:
        most = LANES_PER_WAVE * columns_of_lane(problem)
        found.append(Mismatch("head_dim", problem.head_dim, (Span(2, most),), _WHY_OF_NORM))
    for name, most in (("head_dim", _MOST_DIM), ("heads", _MOST_HEADS), ("heads_k", _MOST_HEADS)):
        if (value := getattr(problem, name)) > most:
            found.append(Mismatch(name, value, (Span(1, most),)))
    of_token = lanes_of_token(kernel, problem, max(problem.heads, problem.heads_k))
    most = kernel.accepts["max_lanes"] // of_token
    if problem.tokens > most:
        found.append(Mismatch("batch * seqlen", problem.tokens, (Span(1, most),)))
    return found


def grid(kernel: KernelSpec, problem: RotaryProblem) -> tuple[int, int, int]:
    """Workgroups along x, y and z."""
    kernel.check_grid(GRID)
    lanes = kernel.tile["lanes"]
    items = (
        problem.tokens * lanes_of_token(kernel, problem, heads)
        for heads in (problem.heads, problem.heads_k)
    )
    return sum(-(-count // lanes) for count in items), 1, 1


def cost_clk(kernel: KernelSpec, problem: RotaryProblem, props: DeviceProps) -> float:
    """Estimated clocks of a launch with cold caches."""
    arch = props.architecture
    waves = grid(kernel, problem)[0] * kernel.workgroup[0] / LANES_PER_WAVE
    steps = kernel.params["steps"]
    of_wave = _HEAD_CLK * (1 + steps)  # and the work that all heads share
    of_wave += _NORM_CLK * steps * kernel.params["norm"]
    of_simd = -(-waves // (props.num_cus * arch.simds_per_cu))
    dispatched = waves / props.num_xcds * _WAVE_CLK + of_wave
    stream = problem.nbytes / props.hbm_bytes_per_ns * props.peak_clock_ghz
    fixed = arch.first_fetch_clk + props.hbm_latency_clk + _TRIP_CLK
    slowest: float = max(dispatched, of_simd * of_wave, stream)
    return fixed + slowest


def choices(
    problem: RotaryProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """All kernels that take a problem; of the others, those for the same norms come first."""
    found = kernel_choices(problem, props, rows, ROTARY, mismatches, cost_clk)
    rejected = sorted(found.rejected, key=lambda one: one[0].params["norm"] != problem.is_normed)
    return dataclasses.replace(found, rejected=tuple(rejected))


def build(
    problem: RotaryProblem, props: DeviceProps, choice: KernelChoice, choices: Choices[KernelChoice]
) -> Plan[RotaryProblem]:
    """Make the plan of a choice."""
    p, kernel = problem, choice.kernel
    per_head = lanes_of_head(p)
    several = p.batch > 1
    of_batch = Reciprocal.of(p.seqlen)
    given = {"none": "", "offsets": "seqlen_offsets", "tokens": "positions"}[p.positions]
    flags = p.interleaved | 2 * (p.table == FLOAT32) | 4 * bool(given)
    flags |= 8 * (p.positions == "tokens") | 16 * several | of_batch.shift << 16
    args: dict[str, Argument] = {
        **{name: Address(name) for name in ("cos", "sin")},
        **_of_array(kernel, p, "x", "x", p.heads),
        **_of_array(kernel, p, "k", "k" if p.heads_k else "", p.heads_k),
        **_of_result("x", "x", "out"),
        **_of_result("k", *(("k", "k_out") if p.heads_k else ("", ""))),
        "dims": p.head_dim << 16 | p.rotary_dim,
        "seqlen": p.seqlen if several else 0,
        "flags": flags,
        "table_rows": p.table_rows,
        "batch_factor": of_batch.factor,
        "positions": Address(given) if given else 0,
        "positions_batch": Stride(given, "batch") if given else 0,
        "positions_seq": int(p.positions == "tokens"),
        "norm_eps": p.norm_eps,
        "x_norm": Address("q_norm_weight") if p.q_norm else 0,
        "k_norm": Address("k_norm_weight") if p.k_norm else 0,
    }
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{kernel.params['steps']} heads a lane, {per_head} lanes for them",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{p.nbytes} bytes",
    }
    writes = frozenset({"out", "k_out"} if p.heads_k else {"out"})
    launch = Launch(kernel, grid(kernel, p), kernel.kernarg.filled(args), writes)
    return Plan(p, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))


def _of_array(
    kernel: KernelSpec, problem: RotaryProblem, field: str, operand: str, heads: int
) -> dict[str, Argument]:
    per_token = lanes_of_token(kernel, problem, heads)
    of_token = Reciprocal.of(max(1, per_token))
    return {
        field: Address(operand) if operand else 0,
        **{f"{field}_{axis}": _stride(operand, axis) for axis in ("seq", "head")},
        f"{field}_factor": of_token.factor,
        f"{field}_facts": heads << 16 | of_token.shift,
        f"{field}_items": problem.tokens * per_token,
    }


def _of_result(field: str, operand: str, result: str) -> dict[str, Argument]:
    axes = ("batch", "seq", "head")
    return {
        f"{field}_out": Address(result) if result else 0,
        f"{field}_batch": _stride(operand, "batch"),
        **{f"{field}_out_{axis}": _stride(result, axis) for axis in axes},
    }


def _stride(operand: str, axis: str) -> Argument:
    return Stride(operand, axis) if operand else 0
