"""Plans attention forward calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.errors import UnsupportedProblem
from amdattn.op.choices import Choices, Rejected
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, PerRun, Plan, Stride
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops.attention import gathering, head_split
from amdattn.ops.attention.basis import taken_alike
from amdattn.ops.attention.cost import merges_itself
from amdattn.ops.attention.explanation import order_text, split_text, tiles_text
from amdattn.ops.attention.kv_split import WORTH, Choice, Split, choose
from amdattn.ops.attention.ordering import Order
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.scheduling import Schedule, schedule_for
from amdattn.ops.attention.select import (
    ATTENTION,
    MERGE_GRID,
    WORK_GRID,
    gather_kernel,
    merge_kernel,
    nearest_first,
    with_other_tiles,
)
from amdattn.ops.attention.varlen_cost import best_cut, has_schedules
from amdattn.ops.attention.work import WorkMap
from amdattn.scalars import rest_of_float32

# Of the merge with a schedule, for each CU, at most: how many tiles there are to merge is not
# known, and to start a workgroup for nothing takes time, too.
_MERGE_WORKGROUPS = 2
# That a tile must do for where the caller fixed the parts along KV.
_BATCHES = (1, 2, 4, 16, 64)
# Of a workgroup, each of which counts its arrival for itself.
_WAVES = 4
COUNTER_BYTES = 8  # the number of parts that have arrived, and in which run


class PlannedAttention(Plan[AttentionProblem]):
    """A plan of attention that planning has made."""

    @property
    def forward(self) -> Launch:
        """The launch of the attention kernel itself."""
        return next(launch for launch in self.launches if launch.kernel.op == ATTENTION)


@dataclass(frozen=True, slots=True)
class TileChoice:
    """A kernel, how its tiles are cut along KV, and what that costs.

    Attributes
    ----------
    clk : float
        Estimated clk; kernels with fewer rows have a small handicap, so that ties go to the most
        rows. With `num_splits` it is the greatest ratio to the best kernel over all batches,
        because the tile must not depend on the batch.
    """

    kernel: KernelSpec
    split: Choice
    clk: float

    @property
    def estimated_clk(self) -> float:
        """Estimated clk of this problem, merging included; `clk` may rank by another value."""
        return self.split.best.clk

    @property
    def facts(self) -> dict[str, object]:
        """The facts that distinguish it from other choices."""
        best = self.split.best
        return {"kernel": self.kernel.name, "split tiles": best.tiles, "parts": best.parts}


def choices(
    problem: AttentionProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[TileChoice]:
    """The nearest kernel that solves a problem, and similar ones with tiles of fewer rows."""
    lengths = problem
    if problem.varlen:  # planned for the greatest lengths, whatever the sums of all are
        lengths = dataclasses.replace(problem, total_q=1, total_kv=1, gaps=0)
    nearest, kernels, rejected = _selected(problem, props, rows)
    items = []
    clks = _clks_whatever_the_batch(lengths, kernels, props) if problem.num_splits else []
    for nth, kernel in enumerate(kernels):
        split = _choose_split(lengths, kernel, props)
        of_nearest = kernel.tile["q"] == nearest.tile["q"]
        if has_schedules(problem, kernel):  # tiles are cut by the device, if at all
            whole = Split(0, 1, best_cut(problem, kernel, props).clk)
            split = dataclasses.replace(split, best=whole)
        clk = clks[nth] if clks else split.best.clk
        items.append(TileChoice(kernel, split, clk / (1 if of_nearest else WORTH)))
    return Choices(tuple(items), rejected, rows)


def plan_attention(
    problem: AttentionProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> PlannedAttention:
    """Choose kernels, the tiles to compute in parts, and grids. Pure: equal facts give equal plans.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError
        No kernel in `rows` solves `problem` on `props`.
    """
    found = choices(problem, props, rows)
    found.require(props)
    too_many = []
    for choice in sorted(found.items, key=lambda choice: choice.clk):
        try:
            return build(problem, props, choice, found)
        except _TooManyWorkgroups as error:  # of larger tiles there are fewer
            too_many.append(error)
    raise UnsupportedProblem(str(min(too_many, key=lambda error: error.times)))


class _TooManyWorkgroups(UnsupportedProblem):
    """A grid has `times` as many workgroups as a kernel supports."""

    def __init__(self, text: str, times: float) -> None:
        super().__init__(text)
        self.times = times


def build(
    problem: AttentionProblem,
    props: DeviceProps,
    chosen: TileChoice,
    choices: Choices[TileChoice],
    keeps_floats: bool = False,
) -> PlannedAttention:
    """The plan of a choice.

    keeps_floats : bool
        Whether O stays float32, to be merged with other keys, and lse is a pair of float32 whose
        sum counts. Only for a problem in several parts.
    """
    assert problem.num_splits > 1 or not keeps_floats
    kernel, choice, rows = chosen.kernel, chosen.split, choices.rows
    split = choice.best
    per_cu, limit = workgroups_per_cu(kernel, props)
    slots = per_cu * props.num_cus
    tiles = WorkMap.of_kernel(problem, kernel).tiles
    schedule = schedule_for(problem, kernel, props)
    if not schedule and problem.num_splits > 1:
        split = Split(tiles, problem.num_splits, split.clk)
    work = WorkMap.of_kernel(problem, kernel, tiles - split.tiles, split.parts, split.part_blocks)
    num_workgroups = schedule.num_workgroups if schedule else work.num_workgroups
    _check_grid(work, kernel, num_workgroups)
    partial_results = _partial_results(work, kernel, schedule)
    in_launch = not (schedule or keeps_floats) and merges_itself(
        kernel, split.tiles, split.parts, props
    )
    counters = _counters(work) if in_launch else ()
    of_schedule = schedule.regions() if schedule else ()
    workspace = WorkspaceLayout.of(
        (*counters, *partial_results, *of_schedule, *gathering.regions(problem))
    )
    args = _arguments(work, bool(partial_results), bool(counters), keeps_floats)
    results = frozenset({"o", "lse"} if problem.return_lse else {"o"})
    partials = frozenset(region.name for region in partial_results)
    launches = []
    if schedule:
        args = {**args, **schedule.arguments(inverse(schedule.heads))}
        launches += schedule.launches(lambda op: candidates(rows, op, props)[0])
    if problem.gather:
        launches += gathering.launches(problem, gather_kernel(rows, problem, props))
    kernel.check_grid(WORK_GRID)
    fields = _taken_by(kernel, args)
    updated = frozenset(region.name for region in counters)
    writes = partials | results | updated
    launches.append(Launch(kernel, (num_workgroups, 1, 1), fields, writes, updated))
    if partial_results and not counters:
        merge = merge_kernel(rows, kernel, problem.round_mode)
        if schedule:
            args = {**args, **schedule.merge_arguments}
        tiles_in_parts = schedule.merges * schedule.heads if schedule else split.tiles
        most = _MERGE_WORKGROUPS * props.num_cus if schedule else None
        launches.append(_merge(merge, kernel, tiles_in_parts, most, args, results))
    reasons = {
        "why this kernel": f"{kernel.arch}, dtype={kernel.dtype} "
        f"head_dim={kernel.params['head_dim']} round_mode={problem.round_mode} and every option "
        f"asked for{_tiles_compared(problem, choices.items, keeps_floats)}",
        "tiles": tiles_text(work),
        **({} if schedule else {"order": order_text(work)}),
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "rounds": f"{work.tiles} tiles on {slots} slots ({per_cu} x {props.num_cus} CUs): "
        f"{work.tiles / slots:.2f} rounds, "
        f"{1 - choice.busy_clk / slots / choice.considered[0].clk:.1%} of them stranded unsplit "
        "(modelled)",
        "KV split": schedule.text
        if schedule
        else split_text(work, kernel, choice, props, keeps_floats),
        **gathering.reasons(problem),
        "work": f"{problem.flops:.4g} floating point operations",
    }
    return PlannedAttention(problem, props, tuple(launches), workspace, tuple(reasons.items()))


def _selected(
    problem: AttentionProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> _Selection:
    """The nearest kernel, and those to choose from; equal for problems with equal `taken_alike`."""
    key = props.arch, id(rows), taken_alike(problem, rows, props.arch)
    of_rows, selection = _selections.get(key, ((), None))
    if of_rows is not rows or selection is None:
        ranked = nearest_first(rows, problem, props)
        nearest, wrong = ranked[0]
        if wrong:
            return nearest, [], tuple(ranked)
        selection = nearest, with_other_tiles(rows, nearest, problem), ()
        if isinstance(rows, tuple):  # a list may change
            if len(_selections) >= _MAX_SELECTIONS:
                _selections.clear()
            _selections[key] = rows, selection
    return selection


_Selection = tuple[KernelSpec, list[KernelSpec], tuple[Rejected, ...]]
_selections: dict[object, tuple[Sequence[KernelSpec], _Selection]] = {}
_MAX_SELECTIONS = 256


def _choose_split(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> Choice:
    if kernel.accepts["max_tile_heads"] > 1:
        slots = workgroups_per_cu(kernel, props)[0] * props.num_cus
        return head_split.choose(problem, kernel, props, slots)
    # Two workgroups of a CU share its matrix units: it takes as long as one after the other.
    return choose(problem, kernel, props, props.num_cus, kernel.accepts["max_num_splits"])


def _clks_whatever_the_batch(
    problem: AttentionProblem, kernels: Sequence[KernelSpec], props: DeviceProps
) -> list[float]:
    """The greatest ratio over batches of each kernel's clk to that of the best one."""
    most = [1.0] * len(kernels)
    if len(kernels) == 1:
        return most
    for batch in _BATCHES:
        of_batch = dataclasses.replace(problem, batch=batch)
        clks = [_choose_split(of_batch, kernel, props).best.clk for kernel in kernels]
        most = [max(of, clk / min(clks)) for of, clk in zip(most, clks, strict=True)]
    return most


def _tiles_compared(
    problem: AttentionProblem, choices: Sequence[TileChoice], keeps_floats: bool
) -> str:
    """The text about the clk of each tile, and the rule by which one is chosen."""
    if len(choices) == 1:
        return ""
    clks = ", ".join(f"{c.kernel.tile['q']} rows {c.estimated_clk:.0f} clk" for c in choices)
    saving = f"more than {1 - WORTH:.1%}"
    estimates = f"; estimates for its tiles (modelled): {clks}"
    if keeps_floats:
        return f"{estimates}, all in parts"
    if not problem.num_splits:
        return f"{estimates}; a smaller tile is taken if it saves {saving}"
    batches = ", ".join(map(str, _BATCHES))
    return f"{estimates}; as num_splits is given, the tile closest to the best at batches {batches}"


def _check_grid(work: WorkMap, kernel: KernelSpec, num_workgroups: int) -> None:
    most = kernel.accepts["max_workgroups"]
    if num_workgroups > most:
        raise _TooManyWorkgroups(
            f"batch={work.problem.batch} x num_heads_q={work.problem.num_heads_q} x "
            f"{work.column_groups} groups of columns x {work.q_tiles} tiles of "
            f"seqlen_q={work.problem.seqlen_q} are {num_workgroups} workgroups in "
            f"num_splits={work.parts} parts; kernel {kernel.name} takes 1..{most}",
            num_workgroups / most,
        )


def _partial_results(
    work: WorkMap, kernel: KernelSpec, schedule: Schedule | Order | None
) -> tuple[Region, ...]:
    """Regions of the workspace for partial results."""
    parts = work.num_workgroups - work.whole_tiles
    if schedule:
        parts = schedule.partials * schedule.heads
    if not parts or work.tile_heads > 1:
        return ()
    rows = parts * kernel.tile["q"]
    return (
        Region("partial_o", rows * kernel.params["head_dim_v"] * 4),
        Region("partial_max_sum", rows * 2 * 4),
    )


def _counters(work: WorkMap) -> tuple[Region, ...]:
    """Regions for counters of arrivals per partial result and wave, if last parts merge tiles."""
    parts = work.num_workgroups - work.whole_tiles
    if not parts or work.tile_heads > 1:
        return ()
    return (Region("counters", parts * _WAVES * COUNTER_BYTES, "zero_at_rest"),)


def _merge(
    merge: KernelSpec,
    kernel: KernelSpec,
    tiles: int,
    most: int | None,
    args: Mapping[str, Argument],
    results: frozenset[str],
) -> Launch:
    """The launch that merges the parts of `tiles` tiles with at most `most` workgroups."""
    merge.check_grid(MERGE_GRID)
    rows = tiles * -(-kernel.tile["q"] // merge.tile["q"])
    grid = min(rows, merge.accepts["max_workgroups"] if most is None else most)
    args = {**args, "merge_tiles": tiles, "merge_workgroups": grid}
    return Launch(merge, (grid, 1, 1), _taken_by(merge, args), results)


def _arguments(
    work: WorkMap, has_parts: bool, has_counters: bool, keeps_floats: bool
) -> Mapping[str, Argument]:
    """Every argument that a kernel of the family may have."""
    problem = work.problem
    present = {
        "lse": problem.return_lse,
        "sinks": problem.sinks,
        "cu_seqlens_q": problem.varlen,
        "cu_seqlens_kv": problem.varlen,
        "partial_o": has_parts,
        "partial_max_sum": has_parts,
        "counters": has_counters,
    }
    args: dict[str, Argument] = {name: Address(name) for name in ("q", "k", "v", "o")}
    args |= {name: Address(name) if there else 0 for name, there in present.items()}
    for operand in ("q", "k", "v", "o"):
        for axis in ("batch", "seq", "head"):
            args[f"{operand}_stride_{axis}"] = Stride(operand, axis)
        if problem.varlen:
            args[f"{operand}_stride_batch"] = 0
    for operand in problem.gather:
        args |= gathering.arguments(problem, operand)
    for axis in ("batch", "head"):
        there = problem.return_lse and not (problem.varlen and axis == "batch")
        args[f"lse_stride_{axis}"] = Stride("lse", axis) if there else 0
    for name in ("batch", "num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_kv"):
        args[name] = getattr(problem, name)
    args["softmax_scale_log2"] = problem.softmax_scale_log2
    args["softcap_log2"] = problem.softcap_log2
    args["log2_rest"] = rest_of_float32(problem.softcap_log2 or problem.softmax_scale_log2)
    args["scales"] = 0
    args["head_dim"] = problem.head_dim
    args["head_dim_v"] = problem.head_dim_v
    args["column_groups"] = work.column_groups
    args["window_left"], args["window_right"] = problem.window
    args["top_left"] = int(problem.top_left)
    args["q_tiles"] = work.q_tiles
    args["whole_tiles"] = work.whole_tiles
    args["parts"] = work.parts
    args["part_blocks"] = work.part_blocks
    args |= {"merge_tiles": work.tiles - work.whole_tiles, "merge_workgroups": 0}
    args |= {"keeps_floats": int(keeps_floats), "padding": 0}
    args["generation"] = PerRun() if has_counters else 0
    divisors = {
        "q_tiles": work.q_tiles,
        "num_heads_q": problem.num_heads_q,
        "group": problem.num_heads_q // problem.num_heads_kv,
    }
    for name, divisor in divisors.items():
        args[f"{name}_inverse"], args[f"{name}_shift"] = inverse(divisor)
    return args


def inverse(divisor: int) -> tuple[int, int]:
    """(m, s) with n // divisor == (2 * n * m >> 32) >> s for 0 <= n < 2**31, m < 2**32.

    Granlund and Montgomery 1994, theorem 4.2: 2^(31+s) <= m d <= 2^(31+s) + 2^s.
    """
    shift = (divisor - 1).bit_length()
    return -(-(2 ** (31 + shift)) // divisor), shift


def _taken_by(kernel: KernelSpec, args: Mapping[str, Argument]) -> tuple[tuple[str, Argument], ...]:
    """The arguments that are fields of the kernel's argument block."""
    return tuple((name, args[name]) for name, *_ in kernel.kernarg.fields if name in args)
