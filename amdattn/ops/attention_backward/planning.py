"""Chooses the kernel that computes gradients of attention, and the launches around it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.errors import UnsupportedProblem
from amdattn.op.choices import Choices, KernelChoice, Rejected
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Launch, Plan
from amdattn.op.support import Mismatch, Span
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.attention_backward.arguments import arguments_of
from amdattn.ops.attention_backward.kernels import (
    BACKWARD,
    BACKWARD_GRID,
    ROUND,
    ROUND_GRID,
    ROWS,
    ROWS_GRID,
    SINKS,
    SINKS_GRID,
    SUM,
    SUM_GRID,
)
from amdattn.ops.attention_backward.problem import BackwardProblem
from amdattn.ops.attention_backward.splitting import (
    MOST_ROWS,
    Splits,
    best_splits,
    blocks,
    in_order,
    key_blocks,
    row_tiles,
    rows_of_keys,
    split_clk,
    sums_bytes,
    tile_clk,
)

_WAVES = 4  # kWaves of asm_src/attn_bwd/shape.h
_COLUMNS_OF_LANE, _ROWS_OF_LANE = 8, 4  # kColumnsOfLane, kRows of attn_bwd_round.hip
_TURN_BYTES = 4
# Arguments with a greatest value.
_LIMITED = ("batch", "seqlen_q", "seqlen_kv", "num_heads_q", "num_splits")
_LISTED = ("causal", "sinks", "varlen", "top_left")
_UNBUILT: Mapping[str, object] = {"dropout_p": 0.0, "gather": ""}


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
            least = 0 if argument == "num_splits" else 1
            found.append(Mismatch(argument, value, (Span(least, limit),)))
    if not found:
        of_head = key_blocks(kernel, problem) * max(1, p.num_splits)
        most = accepts["max_workgroups"]
        if blocks(kernel, problem) * max(1, p.num_splits) > most:
            found.append(Mismatch("batch", p.batch, (Span(1, most // of_head // p.num_heads_kv),)))
    return found


def cost_clk(kernel: KernelSpec, problem: BackwardProblem, props: DeviceProps) -> float:
    """Clk of the matrix units for whole tiles, in whole rounds of CUs."""
    p = problem.forward
    rounds = -(-blocks(kernel, problem) // props.num_cus)
    group = p.num_heads_q // p.num_heads_kv
    return rounds * group * row_tiles(kernel, problem) * tile_clk(kernel)


def choices(
    problem: BackwardProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[KernelChoice]:
    """Every kernel that solves a problem, those with fewer columns first."""
    found = [(row, mismatches(row, problem)) for row in candidates(rows, BACKWARD, props)]
    found.sort(key=_columns)
    items = [KernelChoice(row, cost_clk(row, problem, props)) for row, wrong in found if not wrong]
    rejected = [one for one in found if one[1]]
    rejected.sort(key=lambda one: (len(one[1]), -_columns(one)))
    return Choices(tuple(items), tuple(rejected), rows)


def _columns(one: Rejected) -> int:
    return int(one[0].params["head_dim"] + one[0].params["head_dim_v"])


def best(items: Sequence[KernelChoice]) -> KernelChoice:
    """The choice with the fewest columns that suffice."""
    return items[0]


# -- the plan --------------------------------------------------------------------------------------


def build(
    problem: BackwardProblem,
    props: DeviceProps,
    choice: KernelChoice,
    choices: Choices[KernelChoice],
) -> Plan[BackwardProblem]:
    """The plan of a choice."""
    kernel = choice.kernel
    splits = best_splits(kernel, problem, props)
    launches = tuple(_launches(problem, props, kernel, splits, choices.rows))
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
        "splits": _why_splits(problem, kernel, splits, props),
        "dq": f"sums of float32 {sums}, added {order}",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.flops:.4g} floating point operations",
    }
    return Plan(
        problem, props, launches, workspace(problem, kernel, splits), tuple(reasons.items())
    )


def _why_splits(
    problem: BackwardProblem, kernel: KernelSpec, splits: Splits, props: DeviceProps
) -> str:
    clk = split_clk(kernel, problem, splits, props)
    asked = "as num_splits says" if problem.forward.num_splits else "modelled"
    if splits.count == 1:
        return f"none of a block of keys, {asked}: {clk:.0f} clk"
    whole = split_clk(kernel, problem, Splits(), props)
    return (
        f"{splits.heads} of query heads x {splits.rows} of rows of a block of keys, summed by a "
        f"launch, {asked}: {clk:.0f} clk, {whole:.0f} without"
    )


def heads_at_once(kernel: KernelSpec, problem: BackwardProblem, props: DeviceProps) -> int:
    """The number of heads whose blocks of keys are interleaved.

    Workgroups are distributed over the XCDs round robin, so each head stays on one XCD. Under a
    mask more heads are interleaved: blocks that many rows see then start before those that few rows
    see, so that no long block starts last. For sequences of several lengths, if KV heads do not
    spread evenly over the XCDs, the heads of one sequence are interleaved, so that the blocks of a
    long sequence are on all XCDs; under a mask only if one sequence has most of the keys.
    """
    p = problem.forward
    is_masked = p.window != (-1, -1)
    of_xcd = ATTENTION_KERNELS[kernel.arch].heads_of_xcd if is_masked else 1
    most = of_xcd * props.num_xcds
    one_at_once = not is_masked or 2 * p.seqlen_kv > p.total_kv
    if p.varlen and p.num_heads_kv % props.num_xcds and one_at_once:
        most = p.num_heads_kv
    return min(most, p.batch * p.num_heads_kv)


def workspace(problem: BackwardProblem, kernel: KernelSpec, splits: Splits) -> WorkspaceLayout:
    """Scratch memory: sums of rows, float32 sums of dq unless dq is float32, splits, and turns."""
    p = problem.forward
    tiles = p.batch * p.num_heads_q * row_tiles(kernel, problem)
    regions = [Region("rows", tiles * kernel.tile["q"] * 2 * 4)]
    if not problem.keeps_floats:
        rows = p.total_q or p.batch * p.seqlen_q
        regions.append(Region("dq_sums", rows * p.num_heads_q * p.head_dim * 4))
    if splits.count > 1:
        of_dk, of_dv = sums_bytes(problem, splits)
        regions += [Region("dk_sums", of_dk), Region("dv_sums", of_dv)]
    if in_order(problem):
        regions.append(Region("order", p.batch * 4))
    if problem.deterministic:
        # A count of the workgroups that have started precedes the turns of each tile and wave.
        regions.append(Region("turns", (1 + tiles) * _WAVES * _TURN_BYTES, "zero_at_rest"))
    return WorkspaceLayout.of(regions)


def _launches(
    problem: BackwardProblem,
    props: DeviceProps,
    kernel: KernelSpec,
    splits: Splits,
    rows: Sequence[KernelSpec],
) -> Iterator[Launch]:
    p, args = (
        problem.forward,
        arguments_of(problem, kernel, splits, heads_at_once(kernel, problem, props)),
    )
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
    of_rows, written = p.batch * p.num_heads_q * -(-padded // first.tile["rows"]), {"rows", sums}
    if in_order(problem):
        of_rows += -(-p.batch // first.workgroup[0])
        written.add("order")
    yield launch(first, of_rows, written, set())
    kernel.check_grid(BACKWARD_GRID)
    updated = {sums} | ({"turns"} if problem.deterministic else set())
    of_keys = {"dk_sums", "dv_sums"} if splits.count > 1 else set()
    if splits.some_are_whole:
        of_keys |= {"dk", "dv"}
    whole = splits.whole_blocks
    workgroups = whole + (blocks(kernel, problem) - whole) * splits.count
    yield launch(kernel, workgroups, of_keys | updated, updated)
    if splits.count > 1:
        last = _small(rows, SUM, SUM_GRID, p.dtype, props)
        of_heads = rows_of_keys(problem)
        first_row = args[SUM, "first_row"]
        assert isinstance(first_row, int)
        if of_heads > MOST_ROWS:
            raise UnsupportedProblem(
                f"num_splits={p.num_splits} of {of_heads} rows of all heads of k: kernel "
                f"{last.name} takes 1..{MOST_ROWS}"
            )
        lanes_of_rows = [n // last.tile["columns"] for n in (p.head_dim, p.head_dim_v)]
        at_a_time = [last.tile["rows"] * (last.workgroup[0] // lanes) for lanes in lanes_of_rows]
        yield launch(
            last, sum(-(-(of_heads - first_row) // n) for n in at_a_time), {"dk", "dv"}, set()
        )
    if p.sinks:
        last = _small(rows, SINKS, SINKS_GRID, "float32", props)
        yield launch(last, p.num_heads_q, {"dsinks"}, set())
    if not problem.keeps_floats:
        rounds = _small(rows, ROUND, ROUND_GRID, p.dtype, props)
        at_once = rounds.workgroup[0] // (p.head_dim // _COLUMNS_OF_LANE) * _ROWS_OF_LANE
        of_batch = (p.total_q or p.seqlen_q) * p.num_heads_q
        if of_batch > MOST_ROWS:
            raise UnsupportedProblem(
                f"seqlen_q={p.total_q or p.seqlen_q} x num_heads_q={p.num_heads_q} are {of_batch} "
                f"rows; kernel {rounds.name} takes 1..{MOST_ROWS}"
            )
        batch = 1 if p.varlen else p.batch
        yield launch(rounds, batch * -(-of_batch // at_once), {"dq"}, set())


def _small(
    rows: Sequence[KernelSpec], op: str, grid: str, dtype: str, props: DeviceProps
) -> KernelSpec:
    found = next(row for row in candidates(rows, op, props) if row.dtype == dtype)
    found.check_grid(grid)
    return found
