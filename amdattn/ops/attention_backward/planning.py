"""Which kernel makes gradients of attention, and the launches around it. Pure."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from amdattn.arch.architectures import architecture
from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.errors import UnsupportedProblem
from amdattn.op.choices import Choices, Rejected
from amdattn.op.mismatch import Mismatch, Span
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, Plan, Stride
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.attention_backward.kernels import (
    BACKWARD,
    BACKWARD_GRID,
    ROUND,
    ROUND_GRID,
    ROWS,
    ROWS_GRID,
    SINKS,
    SINKS_GRID,
)
from amdattn.ops.attention_backward.problem import BackwardProblem
from amdattn.scalars import LOG2_E

_WAVES = 4  # kWaves of asm_src/attn_bwd/shape.h
_COLUMNS_OF_LANE = 8
_TURN_BYTES = 4
_MOST_ROWS = 2**31 - 1  # of dq in a batch entry, of all heads: their number has 32 bits
# Lowest and greatest of what has both.
_LIMITED = ("batch", "seqlen_q", "seqlen_kv", "num_heads_q")
_LISTED = ("causal", "sinks", "varlen", "top_left")
_UNBUILT: Mapping[str, object] = {"dropout_p": 0.0, "gather": "", "num_splits": 0}


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel and its estimated clocks."""

    kernel: KernelSpec
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """What tells it from the others."""
        return {"kernel": self.kernel.name}


# -- kernels ---------------------------------------------------------------------------------------


def mismatches(kernel: KernelSpec, problem: BackwardProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    p, accepts = problem.forward, kernel.accepts
    found = []

    def require(argument: str, value: object, allowed: Sequence[object]) -> None:
        if value not in allowed:
            found.append(Mismatch(argument, value, tuple(allowed)))

    require("dtype", p.dtype, (kernel.dtype,))
    for argument, sizes in (("head_dim", "head_dims"), ("head_dim_v", "head_dims_v")):
        low, high, step = accepts[sizes]
        require(argument, getattr(p, argument), range(low, high + 1, step))
    for argument in _LISTED:
        require(argument, getattr(p, argument), accepts[argument])
    require("deterministic", problem.deterministic, accepts["deterministic"])
    for argument, only in _UNBUILT.items():
        require(argument, getattr(p, argument), (only,))
    least, most = accepts["softcaps"]
    if p.softcap and not least <= p.softcap <= most:
        allowed = (0.0, Span(least, most)) if most else (0.0,)
        found.append(Mismatch("softcap", p.softcap, allowed))
    for argument in _LIMITED:
        value, limit = getattr(p, argument), accepts[f"max_{argument}"]
        if value > limit:
            found.append(Mismatch(argument, value, (Span(1, limit),)))
    if not found:
        blocks, most = key_blocks(kernel, problem), accepts["max_workgroups"]
        heads = p.batch * p.num_heads_kv
        if blocks * heads > most:
            found.append(Mismatch("batch", p.batch, (Span(1, most // blocks // p.num_heads_kv),)))
    return found


def key_blocks(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Of the longest sequence."""
    return -(-problem.forward.seqlen_kv // kernel.tile["kv"])


def row_tiles(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Of the longest sequence."""
    return -(-problem.forward.seqlen_q // kernel.tile["q"])


def cost_clk(kernel: KernelSpec, problem: BackwardProblem, props: DeviceProps) -> float:
    """Clocks of the matrix units for whole tiles, over the rounds of CUs."""
    p = problem.forward
    columns = 3 * kernel.params["head_dim"] + 2 * kernel.params["head_dim_v"]
    of_tile = 2 * kernel.tile["kv"] * kernel.tile["q"] * columns
    clk = of_tile / architecture(kernel.arch).matrix_flops_per_clk
    workgroups = p.batch * p.num_heads_kv * key_blocks(kernel, problem)
    rounds = -(-workgroups // props.num_cus)
    group = p.num_heads_q // p.num_heads_kv
    return float(rounds * group * row_tiles(kernel, problem) * clk)


def choices(
    problem: BackwardProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[Choice]:
    """Every kernel that takes a problem, those of fewer columns first."""
    found = [(row, mismatches(row, problem)) for row in candidates(rows, BACKWARD, props)]
    found.sort(key=_columns)
    items = [Choice(row, cost_clk(row, problem, props)) for row, wrong in found if not wrong]
    rejected = [one for one in found if one[1]]
    rejected.sort(key=lambda one: (len(one[1]), -_columns(one)))
    return Choices(tuple(items), tuple(rejected), rows)


def _columns(one: Rejected) -> int:
    return int(one[0].params["head_dim"] + one[0].params["head_dim_v"])


def best(items: Sequence[Choice]) -> Choice:
    """The one whose columns are nearest."""
    return items[0]


# -- the plan --------------------------------------------------------------------------------------


def build(
    problem: BackwardProblem, props: DeviceProps, choice: Choice, choices: Choices[Choice]
) -> Plan[BackwardProblem]:
    """The plan of a choice."""
    kernel = choice.kernel
    launches = tuple(_launches(problem, props, kernel, choices.rows))
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    sums = "in dq itself" if problem.keeps_floats else "in the workspace, rounded at the end"
    order = "in the order of blocks of keys" if problem.deterministic else "as they come"
    reasons = {
        "why this kernel": f"fewest columns that suffice; matrix products of whole tiles: {tried}",
        "tiles": f"{kernel.tile['kv']} keys of a workgroup, {kernel.tile['q']} rows of a step",
        "blocks of keys": f"{key_blocks(kernel, problem)} of each of "
        f"{problem.forward.batch * problem.forward.num_heads_kv} heads, "
        f"{heads_at_once(kernel, problem, props)} heads at once",
        "dq": f"sums of float32 {sums}, added {order}",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.flops:.4g} floating point operations",
    }
    return Plan(problem, props, launches, workspace(problem, kernel), tuple(reasons.items()))


def heads_at_once(kernel: KernelSpec, problem: BackwardProblem, props: DeviceProps) -> int:
    """Heads whose blocks of keys follow each other.

    Workgroups go round robin over the XCDs: each head stays on its own. Under a mask more of them:
    blocks that many rows see begin before those that few do, so that none of these long ones is
    the last to begin.
    """
    p = problem.forward
    is_masked = p.window != (-1, -1)
    of_xcd = ATTENTION_KERNELS[kernel.arch].heads_of_xcd if is_masked else 1
    return min(of_xcd * props.num_xcds, p.batch * p.num_heads_kv)


def workspace(problem: BackwardProblem, kernel: KernelSpec) -> WorkspaceLayout:
    """Sums of rows, of float32 those of dq unless it has them itself, and turns."""
    p = problem.forward
    tiles = p.batch * p.num_heads_q * row_tiles(kernel, problem)
    regions = [Region("rows", tiles * kernel.tile["q"] * 2 * 4)]
    if not problem.keeps_floats:
        rows = p.total_q or p.batch * p.seqlen_q
        regions.append(Region("dq_sums", rows * p.num_heads_q * p.head_dim * 4))
    if problem.deterministic:
        # Of each wave and tile, and a count of the workgroups that have begun.
        regions.append(Region("turns", (tiles * _WAVES + 1) * _TURN_BYTES, "zero_at_rest"))
    return WorkspaceLayout.of(regions)


def _launches(
    problem: BackwardProblem, props: DeviceProps, kernel: KernelSpec, rows: Sequence[KernelSpec]
) -> Iterator[Launch]:
    p, args = problem.forward, _arguments(problem, kernel, props)
    sums = "dq" if problem.keeps_floats else "dq_sums"

    def launch(row: KernelSpec, x: int, writes: set[str], updates: set[str]) -> Launch:
        most = row.accepts["max_workgroups"]
        if x > most:
            raise UnsupportedProblem(
                f"batch={p.batch} x num_heads_q={p.num_heads_q} x seqlen_q={p.seqlen_q} are {x} "
                f"workgroups of kernel {row.name}, which takes 1..{most}"
            )
        fields = tuple((name, args[row.op, name]) for name, *_ in row.kernarg.fields)
        return Launch(row, (x, 1, 1), fields, frozenset(writes), frozenset(updates))

    first = _small(rows, ROWS, ROWS_GRID, p.dtype, props)
    padded = row_tiles(kernel, problem) * kernel.tile["q"]
    yield launch(
        *(first, p.batch * p.num_heads_q * -(-padded // first.tile["rows"])),
        *({"rows", sums}, set()),
    )
    kernel.check_grid(BACKWARD_GRID)
    updated = {sums} | ({"turns"} if problem.deterministic else set())
    yield launch(
        *(kernel, p.batch * p.num_heads_kv * key_blocks(kernel, problem)),
        *({"dk", "dv"} | updated, updated),
    )
    if p.sinks:
        last = _small(rows, SINKS, SINKS_GRID, "float32", props)
        yield launch(last, p.num_heads_q, {"dsinks"}, set())
    if not problem.keeps_floats:
        rounds = _small(rows, ROUND, ROUND_GRID, p.dtype, props)
        at_once = rounds.workgroup[0] // (p.head_dim // _COLUMNS_OF_LANE)
        of_batch = (p.total_q or p.seqlen_q) * p.num_heads_q
        if of_batch > _MOST_ROWS:
            raise UnsupportedProblem(
                f"seqlen_q={p.total_q or p.seqlen_q} x num_heads_q={p.num_heads_q} are {of_batch} "
                f"rows; kernel {rounds.name} takes 1..{_MOST_ROWS}"
            )
        batch = 1 if p.varlen else p.batch
        yield launch(rounds, batch * -(-of_batch // at_once), {"dq"}, set())


def _small(
    rows: Sequence[KernelSpec], op: str, grid: str, dtype: str, props: DeviceProps
) -> KernelSpec:
    found = next(row for row in candidates(rows, op, props) if row.dtype == dtype)
    found.check_grid(grid)
    return found


def _arguments(
    problem: BackwardProblem, kernel: KernelSpec, props: DeviceProps
) -> dict[tuple[str, str], Argument]:
    """Of every launch, by `KernelSpec.op` and field."""
    p = problem.forward
    sums = "dq" if problem.keeps_floats else "dq_sums"
    tiles = row_tiles(kernel, problem)
    lengths: dict[str, Argument] = {
        name: Address(name) if p.varlen else 0 for name in ("cu_seqlens_q", "cu_seqlens_kv")
    }
    heads = p.batch * p.num_heads_kv
    scale = p.softmax_scale or 0.0
    window_left, window_right = p.window
    main: dict[str, Argument] = {
        **{name: Address(name) for name in ("q", "k", "v", "dout", "rows", "dk", "dv")},
        "dq": Address(sums),
        "turns": Address("turns") if problem.deterministic else 0,
        **lengths,
        **_strides(problem, "q", "k", "v", "dout", "dk", "dv"),
        **_strides_of_sums(problem, "dq"),
        **{name: getattr(p, name) for name in _SIZES},
        "softmax_scale": scale,
        "softmax_scale_log2": p.softmax_scale_log2,
        "softcap": p.softcap,
        "inverse_softcap": scale / p.softcap if p.softcap else 0.0,
        "window_left": window_left,
        "window_right": window_right,
        "top_left": int(p.top_left),
        "key_blocks": key_blocks(kernel, problem),
        "row_tiles": tiles,
        "heads": heads,
        "heads_at_once": heads_at_once(kernel, problem, props),
        "keeps_floats": int(problem.keeps_floats),
    }
    of_rows: dict[str, Argument] = {
        **{name: Address(name) for name in ("o", "dout", "lse", "rows")},
        "dlse": Address("dlse") if problem.dlse else 0,
        "dq": Address(sums),
        "cu_seqlens_q": lengths["cu_seqlens_q"],
        **_strides(problem, "o", "dout"),
        **_strides_of_sums(problem, "dq"),
        "lse_stride_batch": 0 if p.varlen else Stride("lse", "batch"),
        "lse_stride_head": Stride("lse", "head"),
        "dlse_stride_batch": Stride("dlse", "batch") if problem.dlse and not p.varlen else 0,
        "dlse_stride_head": Stride("dlse", "head") if problem.dlse else 0,
        **{name: getattr(p, name) for name in ("seqlen_q", "head_dim", "head_dim_v")},
        "row_tiles": tiles,
        "tile_rows": kernel.tile["q"],
        "num_heads": p.num_heads_q,
        **_log2_factor(problem),
    }
    of_sinks: dict[str, Argument] = {
        **{name: Address(name) for name in ("rows", "sinks", "dsinks")},
        "batch": p.batch,
        "num_heads": p.num_heads_q,
        "row_tiles": tiles,
        "tile_rows": kernel.tile["q"],
        **_log2_factor(problem),
    }
    rounding: dict[str, Argument] = {
        "from": Address(sums),
        "to": Address("dq"),
        "cu_seqlens_q": lengths["cu_seqlens_q"],
        **_strides_of_sums(problem, "from"),
        **{name.replace("dq", "to"): value for name, value in _strides(problem, "dq").items()},
        "seqlen": p.total_q or p.seqlen_q,
        "num_heads": p.num_heads_q,
        "columns": p.head_dim,
        "sequences": p.batch,
    }
    return {
        (op, name): value
        for op, args in ((BACKWARD, main), (ROWS, of_rows), (SINKS, of_sinks), (ROUND, rounding))
        for name, value in args.items()
    }


def _log2_factor(problem: BackwardProblem) -> dict[str, Argument]:
    """What natural logarithms are times for base 2, in two float32, as the main kernel has it.

    It scales scores by a float32; the sums they are compared with get the same error, so that of
    scores far from 0 only their distance counts.
    """
    p = problem.forward
    exact, rounded = p.softmax_scale or 0.0, _float32(p.softmax_scale_log2)
    if p.softcap:
        exact, rounded = p.softcap, _float32(p.softcap * _float32(LOG2_E))
    factor = rounded / exact if abs(rounded) > _LEAST_SCALE else LOG2_E
    return {"log2_factor": _float32(factor), "log2_rest": factor - _float32(factor)}


def _float32(x: float) -> float:
    return ctypes.c_float(x).value


_LEAST_SCALE = 2.0**-100  # of which the rounding is relative
_SIZES = ("num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_kv", "head_dim", "head_dim_v")
_AXES = ("batch", "seq", "head")


def _strides(problem: BackwardProblem, *operands: str) -> dict[str, Argument]:
    """Of operands, by field; those of a batch are 0 where sequences have several lengths."""
    return {
        f"{operand}_stride_{axis}": (
            0 if problem.forward.varlen and axis == "batch" else Stride(operand, axis)
        )
        for operand in operands
        for axis in _AXES
    }


def _strides_of_sums(problem: BackwardProblem, field: str) -> dict[str, Argument]:
    """Of the float32 sums of dq: its own, or in the workspace without gaps, heads innermost."""
    p = problem.forward
    if problem.keeps_floats:
        strides = _strides(problem, "dq")
        return {name.replace("dq", field): value for name, value in strides.items()}
    row = p.num_heads_q * p.head_dim
    return {
        f"{field}_stride_batch": 0 if p.varlen else p.seqlen_q * row,
        f"{field}_stride_seq": row,
        f"{field}_stride_head": p.head_dim,
    }
