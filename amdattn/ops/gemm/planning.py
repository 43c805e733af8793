"""Plan of a matrix product: the member of the families, and the parts along k."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.errors import ManifestError
from amdattn.op.choices import Choices
from amdattn.op.mismatch import Mismatch, Span
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Argument, Launch, PerRun, Plan, Stride
from amdattn.op.workspace import Init, Region, WorkspaceLayout
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.cost import Cost, clock_of, cost, cost_of, estimator
from amdattn.ops.gemm.problem import (
    ADDENDS,
    ALIGNED,
    BLOCK_FACTORS,
    FACTORS,
    LEAST_EPS,
    WORD_BYTES,
    GemmProblem,
)
from amdattn.ops.gemm.table import Tuned
from amdattn.scalars import FLOAT32_MAX

GEMM = "gemm_nt"  # of KernelSpec.op
_NEIGHBOURS = 4  # results of a lane in a row: tiles are so many columns wide, or a multiple
_FRAGMENT_BYTES = 1024
COUNTER_BYTES = 8  # of a tile: who has arrived, and in which run
_LEAST_TILES_IN_PARTS = 8  # of fewer kernels for few rows make more of a chip
_MOST_PARTS_OF_TILES = 512  # of kernels for many rows, of all tiles: more fill no chip better
_MOST_SPLITS = 16  # that are tried: more have never paid in the model
# Values of the argument out_type.
OUT_TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
# Of the argument activation, without FACTORS.
ACTIVATIONS = {None: 0, "silu": 1, "gelu_tanh": 2, "gelu": 3}
# Fewer parts unless more save this much: the model is not better than that.
_WORTH = 0.97


@dataclass(frozen=True, slots=True)
class Choice:
    """A member, the parts of its tiles along k, their columns, and what they cost."""

    kernel: KernelSpec
    splits: int
    columns: int
    cost: Cost

    @property
    def facts(self) -> dict[str, object]:
        """What tells it from the others."""
        return {"kernel": self.kernel.name, "columns": self.columns, "splits": self.splits}


def plan_gemm(
    problem: GemmProblem,
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    tuned: Tuned | None = None,
) -> Plan[GemmProblem]:
    """Choose kernel, parts and grid. Pure: equal plans of equal facts.

    Parameters
    ----------
    tuned : Tuned, optional
        The choice of a table, which is taken.

    Raises
    ------
    ValueError
        `tuned` is none of the choices that there are.
    UnsupportedProblem, UnsupportedDeviceError
        No kernel in `rows` solves `problem` on `props`.
    """
    best, found = choose(problem, props, rows, tuned), choices(problem, props, rows)
    return build(problem, props, best, found, "" if tuned is None else f"tuned: {tuned}")


def choose(
    problem: GemmProblem,
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    tuned: Tuned | None = None,
) -> Choice:
    """The choice of `plan_gemm`, which raises the same; most of the others are not estimated."""
    taking = _taking(problem, candidates(rows, GEMM, props))
    if not taking:
        choices(problem, props, rows).require(props)
    if tuned is None:
        return _least_estimated(problem, props, taking)
    for kernel, splits, columns in _ways(problem, taking):
        if (kernel.name, splits, columns) == (tuned.kernel, tuned.splits, tuned.columns):
            return Choice(kernel, splits, columns, cost(problem, kernel, splits, columns, props))
    raise ValueError(_no_such_choice(problem, tuned, choices(problem, props, rows).items))


def _least_estimated(
    problem: GemmProblem, props: DeviceProps, taking: Sequence[KernelSpec]
) -> Choice:
    """`least_estimated` of all choices, without those that are certainly not near it.

    Members are tried with few parts first: most products want few.
    """
    clock_ghz = clock_of(problem, props)
    of_kernels = [
        (kernel, estimator(problem, kernel, props, clock_ghz), _splits(problem, kernel))
        for kernel in taking
    ]
    found, least = [], math.inf
    for is_split in (False, True):
        for order, (kernel, of_kernel, all_splits) in enumerate(of_kernels):
            for splits in all_splits:
                if is_split != (splits > 1):
                    continue
                tried = _columns(problem, kernel, splits)
                if is_split and of_kernel.at_least(splits, tried[0]) * _WORTH > least:
                    break
                for columns in tried:
                    estimate = of_kernel.estimate(splits, columns)
                    least = min(least, estimate.clk)
                    found.append((order, splits, columns, estimate))
    frugal = [way for way in found if way[3].clk * _WORTH <= least]
    order, splits, columns, estimate = min(frugal, key=lambda way: (way[1], way[3].clk, way[0]))
    return Choice(taking[order], splits, columns, cost_of(estimate, problem, props))


def _no_such_choice(problem: GemmProblem, tuned: Tuned, choices: Sequence[Choice]) -> str:
    """Which of a table's values is none that there is, given those before it."""
    found = [(choice.kernel.name, choice.splits, choice.columns) for choice in choices]
    values = (tuned.kernel, tuned.splits, tuned.columns)
    # The first that no choice has beside those before it.
    i = next(i for i in range(3) if all(one[: i + 1] != values[: i + 1] for one in found))
    have = sorted({one[i] for one in found if one[:i] == values[:i]})
    return (
        f"the tuning table's entry for m={problem.m}, n={problem.n}, k={problem.k}, "
        f"{problem.dtype}: {('kernel', 'splits', 'columns')[i]}={values[i]!r} must be one of "
        f"{', '.join(map(str, have))}; `amdattn tune gemm` replaces it"
    )


def build(
    problem: GemmProblem,
    props: DeviceProps,
    best: Choice,
    choices: Choices[Choice],
    why: str = "",
) -> Plan[GemmProblem]:
    """The plan of a choice; `why` it was taken, if not for its estimated time."""
    kernel = best.kernel
    per_cu, limit = workgroups_per_cu(kernel, props)
    reasons = {
        "why this kernel": why or _kernel_text(choices.items),
        "tiles": _tiles_text(problem, best, choices.items),
        "k": f"{steps(problem, kernel)} steps of {kernel.params['step']}, in turn by "
        f"{kernel.params['waves_k']} waves, {kernel.params['steps_in_flight']} of each in "
        "flight",
        "splits": _splits_text(problem, best, choices.items),
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes, {problem.flops:.4g} floating point operations",
        "time": best.cost.text(),
    }
    return dataclasses.replace(unexplained(problem, props, best), reasons=tuple(reasons.items()))


def unexplained(problem: GemmProblem, props: DeviceProps, best: Choice) -> Plan[GemmProblem]:
    """The same without its reasons, for which all choices are estimated."""
    kernel, splits, columns = best.kernel, best.splits, best.columns
    num_tiles = grids.num_tiles(problem, kernel, columns)
    workspace = _workspace(problem, num_tiles, splits, kernel)
    args = _arguments(problem, kernel, splits, columns, bool(workspace.regions))
    args["chunk"] = grids.chunk(kernel, props)
    if splits > 1:
        args["batches"] = -splits
    fields = kernel.kernarg.filled(args)
    writes = frozenset({"out", *(region.name for region in workspace.regions)})
    added = frozenset(one.name for one in workspace.regions if one.init == "zero_at_rest")
    grid = grids.grid(problem, kernel, splits, columns)
    launch = Launch(kernel, grid, fields, writes, added)
    return Plan(problem, props, (launch,), workspace, ())


def choices(
    problem: GemmProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[Choice]:
    """Members that take a problem, each with every number of parts that is worth a try.

    Those for aligned rows if there are, else those for any.
    """
    of_op = candidates(rows, GEMM, props)
    found = [(row, mismatches(row, problem)) for row in of_op]
    # One of the same type, then of the layout, then for several products, is nearer than others.
    rejected = sorted(
        ((row, wrong) for row, wrong in found if wrong),
        key=lambda one: (
            one[0].dtype != problem.dtype,
            ("norms_rows" in one[0].accepts) != (problem.rms_eps is not None),
            one[0].accepts["layout"] != problem.layout,
            any(getattr(problem, x) > _most_products(one[0], x) for x in ("batch", "groups")),
            len(one[1]),
        ),
    )
    taking = _taking(problem, of_op)
    clock_ghz = clock_of(problem, props)
    estimators = {kernel: estimator(problem, kernel, props, clock_ghz) for kernel in taking}
    items = tuple(
        Choice(
            *(kernel, splits, columns),
            cost_of(estimators[kernel].estimate(splits, columns), problem, props),
        )
        for kernel, splits, columns in _ways(problem, taking)
    )
    return Choices(items, tuple(rejected), rows)


def _taking(problem: GemmProblem, of_op: Sequence[KernelSpec]) -> list[KernelSpec]:
    """Members that take a problem: of those the ones with the widest loads.

    Of one product of operands that are stored by k all: the widest have no tiles for few rows.
    """
    taking = [row for row in of_op if row.dtype == problem.dtype and not mismatches(row, problem)]
    if any(problem.by_k) and not problem.of_columns:
        return taking
    widest = max((row.accepts["pointer_align_bytes"] for row in taking), default=0)
    return [row for row in taking if row.accepts["pointer_align_bytes"] == widest]


def _ways(
    problem: GemmProblem, taking: Sequence[KernelSpec]
) -> Iterator[tuple[KernelSpec, int, int]]:
    """Kernel, parts and columns of every choice."""
    for kernel in taking:
        for splits in _splits(problem, kernel):
            for columns in _columns(problem, kernel, splits):
                yield kernel, splits, columns


def least_estimated(choices: Sequence[Choice]) -> Choice:
    """The one that a plan makes where no table says another."""
    best = min(choices, key=lambda choice: choice.cost.clk)
    frugal = [choice for choice in choices if choice.cost.clk * _WORTH <= best.cost.clk]
    return min(frugal, key=lambda choice: (choice.splits, choice.cost.clk))


def steps(problem: GemmProblem, kernel: KernelSpec) -> int:
    """Steps of k: cache lines of a row, or two of them; of groups of k those of an even share."""
    step: int = kernel.params["step"]
    groups = problem.groups if problem.groups_share_k else 1
    return -(-problem.k // (step * groups))


def _columns(problem: GemmProblem, kernel: KernelSpec, splits: int) -> list[int]:
    """Columns of a tile to try: as many as it holds; fewer, if XCDs then have as many in all.

    Of those that leave an XCD with as many tiles the fewest; not less than half: a smaller member
    does that better. Parts along k are for products of few tiles, however wide.
    """
    most = grids.most_columns(problem, kernel)
    if grids.has_windows(kernel):
        return [most]
    most_tiles = kernel.accepts["max_n"] // (kernel.tile["n"] * grids.XCDS)  # of an XCD
    found: dict[int, int] = {}
    for columns in range(most, max(most // 2, _NEIGHBOURS) - 1, -_NEIGHBOURS):
        tiles_of_xcd = -(-problem.n // (columns * grids.XCDS))
        if tiles_of_xcd <= most_tiles:
            found[tiles_of_xcd] = columns
    if not found:
        raise ManifestError(
            f"kernel {kernel.name}: max_n={kernel.accepts['max_n']} is less than "
            f"{grids.XCDS} tiles of {kernel.tile['n']} columns"
        )
    return list(found.values())[: 1 if splits > 1 else None]


def split_steps(problem: GemmProblem, kernel: KernelSpec, splits: int) -> int:
    """Steps of each part; the last one may have fewer."""
    return -(-steps(problem, kernel) // splits)


def _splits(problem: GemmProblem, kernel: KernelSpec) -> list[int]:
    """Numbers of parts to try, each without an empty part."""
    all_steps = steps(problem, kernel)
    if problem.are_several:
        return [1]
    most = min(kernel.accepts["max_splits"], all_steps)
    tried = _MOST_SPLITS
    if grids.has_windows(kernel):
        tiles = grids.num_tiles(problem, kernel, grids.most_columns(problem, kernel))
        most_parts = _MOST_PARTS_OF_TILES // tiles if tiles >= _LEAST_TILES_IN_PARTS else 1
        tried = max(1, min(tried, most_parts))
    wanted = range(1, min(most, tried) + 1)
    if problem.split_k:
        wanted = range(min(problem.split_k, most), min(problem.split_k, most) + 1)
    of_parts = {-(-all_steps // splits) for splits in wanted}
    return sorted({-(-all_steps // steps_of_part) for steps_of_part in of_parts})


def _workspace(
    problem: GemmProblem, num_tiles: int, splits: int, kernel: KernelSpec
) -> WorkspaceLayout:
    if splits == 1:
        return WorkspaceLayout()
    in_order = problem.deterministic or grids.has_windows(kernel)
    partials = tile_bytes(kernel) * num_tiles * (splits if in_order else 1)
    sums: Init = "none" if in_order else "zero_at_rest"
    return WorkspaceLayout.of(
        (
            Region("counters", num_tiles * COUNTER_BYTES, "zero_at_rest"),
            Region("partials", partials, sums),
        )
    )


def tile_bytes(kernel: KernelSpec) -> int:
    """Of the float32 sums of a tile: those for few rows have four of a fragment in each lane."""
    if grids.has_windows(kernel):
        return int(kernel.tile["m"] * kernel.tile["n"] * 4)
    tile: int = kernel.params["mfma"]
    return kernel.tile["m"] * kernel.tile["n"] // tile**2 * _FRAGMENT_BYTES


def _arguments(
    problem: GemmProblem, kernel: KernelSpec, splits: int, columns: int, is_split: bool
) -> dict[str, Argument]:
    return {
        "a": Address("a"),
        "b": Address("b"),
        "bias": Address("bias") if problem.bias else 0,
        "a_stride": Stride("a", "row"),
        "b_stride": Stride("b", "row"),
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "split_steps": split_steps(problem, kernel, splits),
        "num_splits": splits,
        "tile_n": columns,
        "up_offset": problem.n if problem.has_factors else 0,
        "out": Address("out"),
        "out_stride": Stride("out", "row"),
        "alpha": problem.alpha,
        "out_type": OUT_TYPES[problem.out_dtype],
        "activation": ACTIVATIONS[problem.activation and problem.activation.removesuffix(FACTORS)],
        "accumulates": int(is_split and not problem.deterministic),
        "partials": Address("partials") if is_split else 0,
        "counters": Address("counters") if is_split else 0,
        "generation": PerRun() if is_split else 0,
        "scale_a": Address("scale_a") if problem.scale_a else 0,
        "scale_b": Address("scale_b") if problem.scale_b else 0,
        **{f"{name}_step": _step(problem, name) for name in ("scale_a", "scale_b")},
        **_addend(problem),
        **_products(problem),
        "inverse_k": 1 / problem.k,
        "rms_eps": problem.rms_eps or 0.0,
    }


def _addend(problem: GemmProblem) -> dict[str, Argument]:
    """What is added to results, of products that are told apart in `_products`."""
    if problem.adds is None:
        return {"addend": 0, "addend_stride": 0, "adds": 0, "beta": 0.0, "addend_batch": 0}
    return {
        "addend": Address(problem.adds),
        "addend_stride": Stride(problem.adds, "row"),
        "adds": 1 + ADDENDS.index(problem.adds),
        "beta": problem.beta,
        "addend_batch": Stride(problem.adds, "batch") if problem.of_results else 0,
    }


def _products(problem: GemmProblem) -> dict[str, Argument]:
    """From what is of a product to what is of the next one; 0 where groups follow each other."""
    has_rows, has_columns = bool(problem.of_rows), bool(problem.of_columns)
    has_results = bool(problem.of_results)
    return {
        "batches": problem.products,
        "group_rows": Address("group_sizes") if problem.groups else 0,
        "a_batch": Stride("a", "batch") if has_rows else 0,
        "b_batch": Stride("b", "batch") if has_columns else 0,
        "out_batch": Stride("out", "batch") if has_results else 0,
        "bias_batch": Stride("bias", "batch") if has_columns and problem.bias else 0,
        "scale_a_batch": _scale_batch(problem, "scale_a", problem.m) if has_rows else 0,
        "scale_b_batch": _scale_batch(problem, "scale_b", problem.b_rows) if has_columns else 0,
    }


def _scale_batch(problem: GemmProblem, scale: str, rows: int) -> Argument:
    """From the scales of a product to those of the next one."""
    if problem.scales_have_rows:
        return Stride(scale, "batch")
    return rows if getattr(problem, scale) == "row" else 0


def _step(problem: GemmProblem, scale: str) -> Argument:
    """From a scale to the next row's; of blocks, from a row of them to the next one."""
    if problem.scales_have_rows:
        return Stride(scale, "row")
    return int(getattr(problem, scale) == "row")


# -- which kernels take a problem ------------------------------------------------------------------


def _most_products(kernel: KernelSpec, name: str) -> int:
    """Of a batch, or groups, which only the kernels for many rows tell apart."""
    most: int = kernel.accepts["max_products"]
    return most if name == "batch" or grids.has_windows(kernel) else 0


def mismatches(kernel: KernelSpec, problem: GemmProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []

    def require(argument: str, value: object, allowed: Sequence[object]) -> None:
        if value not in allowed:
            found.append(Mismatch(argument, value, tuple(allowed)))

    require("dtype", problem.dtype, (kernel.dtype,))
    if problem.is_8_bit:
        require("b_dtype", problem.b_dtype, kernel.accepts["b_dtype"])
    for name in ("scale_a", "scale_b"):
        require(name, getattr(problem, name), kernel.accepts["scales"])
    norms_rows = "norms_rows" in kernel.accepts
    if norms_rows != (problem.rms_eps is not None):
        taken = Span(LEAST_EPS, FLOAT32_MAX) if norms_rows else None
        found.append(Mismatch("rms_eps", problem.rms_eps, (taken,)))
    require("layout", problem.layout, (kernel.accepts["layout"],))
    require("out_dtype", problem.out_dtype, kernel.accepts["out_dtype"])
    require("activation", problem.activation, kernel.accepts["activation"])
    limits = {"m": problem.m, "n": problem.n, "k": problem.k, "splits": problem.split_k}
    for name, value in limits.items():
        limit = kernel.accepts[f"max_{name}"]
        if name == "n":  # of rows of b
            limit //= 1 + problem.has_factors
        if value > limit:
            least = 0 if name == "splits" else 1
            argument = "split_k" if name == "splits" else name
            found.append(Mismatch(argument, value, (Span(least, limit),)))
    if problem.are_several and problem.split_k > 1:
        found.append(Mismatch("split_k", problem.split_k, (Span(0, 1),)))
    for name in ("batch", "groups"):
        limit = _most_products(kernel, name)
        if getattr(problem, name) > limit:
            found.append(Mismatch(name, getattr(problem, name), (Span(0, limit),)))
    if not grids.has_windows(kernel) and problem.batch:
        tile_m: int = kernel.tile["m"]
        needed, most = problem.batch * -(-problem.m // tile_m), kernel.accepts["max_m"] // tile_m
        if needed > most:
            found.append(Mismatch("batch times tiles of m", needed, (Span(1, most),)))
    if grids.has_windows(kernel):
        columns = grids.most_columns(problem, kernel)
        most = kernel.accepts["max_workgroups"]
        needed = grids.num_tiles(problem, kernel, columns)
        if needed > most:
            found.append(Mismatch("tiles of m and n", needed, (Span(1, most),)))
    for name in "mnk":
        multiple = kernel.accepts[f"{name}_multiple"]
        if limits[name] % multiple:
            found.append(Mismatch(name, limits[name], (f"multiples of {multiple}",)))
    if problem.has_blocks and problem.has_factors and problem.n % BLOCK_FACTORS:
        allowed = (f"multiples of {BLOCK_FACTORS}",)
        found.append(Mismatch("n", problem.n, allowed, "of factors with scales of blocks"))
    if not problem.aligned and kernel.accepts["pointer_align_bytes"] > WORD_BYTES:
        found.append(Mismatch("aligned", False, (True,), ALIGNED))
    return found


# -- explanation -----------------------------------------------------------------------------------


def _clk(value: float) -> str:
    return f"{value:,.0f} clk".replace(",", " ")


def _kernel_text(choices: Sequence[Choice]) -> str:
    if len({choice.kernel for choice in choices}) == 1:
        return "the only one for this type, k and alignment"
    return f"least estimated time: {_tried(choices, lambda choice: choice.kernel.name)}"


def _tried(choices: Sequence[Choice], what: Callable[[Choice], object]) -> str:
    """The least time of all choices that have something in common."""
    least: dict[object, float] = {}
    for choice in choices:
        key = what(choice)
        least[key] = min(choice.cost.clk, least.get(key, choice.cost.clk))
    return ", ".join(f"{key}: {_clk(clk)}" for key, clk in least.items())


def _splits_text(problem: GemmProblem, best: Choice, choices: Sequence[Choice]) -> str:
    if problem.split_k:
        asked = f"split_k={problem.split_k} was given"
        return (
            asked if best.splits == problem.split_k else f"{best.splits} ({asked}: no empty part)"
        )
    of_kernel = [choice for choice in choices if choice.kernel == best.kernel]
    return f"{best.splits} (estimated: {_tried(of_kernel, lambda choice: choice.splits)})"


def _tiles_text(problem: GemmProblem, best: Choice, choices: Sequence[Choice]) -> str:
    kernel, columns = best.kernel, best.columns
    tiles_m, tiles_n = grids.tiles(problem, kernel, columns)
    like = [c for c in choices if (c.kernel, c.splits) == (kernel, best.splits)]
    tried = _tried(like, lambda choice: choice.columns)
    tile = f"{kernel.tile['m']} x {columns} results"
    if problem.products > 1:
        most = "at most " * bool(problem.groups)
        tile += f", {most}{grids.num_tiles(problem, kernel, columns)} in all"
    return f"{tiles_m} x {tiles_n} of {tile} (columns estimated: {tried})"
