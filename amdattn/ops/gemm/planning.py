"""Plan of a matrix product: the member of the families, and the parts along k."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from operator import itemgetter

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.errors import ManifestError
from amdattn.op.choices import Choices
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Launch, Plan
from amdattn.op.workspace import Init, Region, WorkspaceLayout
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.arguments import arguments
from amdattn.ops.gemm.choice import Choice
from amdattn.ops.gemm.cost import clock_of, cost, cost_of, estimator
from amdattn.ops.gemm.explanation import kernel_text, splits_text, tiles_text
from amdattn.ops.gemm.matching import mismatches, most_products
from amdattn.ops.gemm.problem import BLOCKS, GemmProblem
from amdattn.ops.gemm.table import Tuned

GEMM = "gemm_nt"  # the value of KernelSpec.op
_NEIGHBOURS = 4  # results of a lane in a row; widths of tiles are multiples of it
_FRAGMENT_BYTES = 1024
COUNTER_BYTES = 8  # of a tile: how many workgroups have arrived, and in which run
_LEAST_TILES_IN_PARTS = 8  # with fewer tiles, kernels for few rows use more of a chip
_MOST_PARTS_OF_TILES = 512  # of all tiles, in kernels for many rows: more fill no chip better
_MOST_SPLITS = 16  # that are tried: more have never been faster in the model
# More parts must save this much: the model is no more exact than that.
_WORTH = 0.97
# Estimates within this factor count as equal. Of those, the choice that reads B least often is
# taken if no cache holds B: workgroups that are apart read it from HBM again, which is not
# estimated.
_EQUAL = 0.999


def plan_gemm(
    problem: GemmProblem,
    props: DeviceProps,
    rows: Sequence[KernelSpec],
    tuned: Tuned | None = None,
) -> Plan[GemmProblem]:
    """Choose kernel, parts and grid. Pure: equal facts give equal plans.

    Parameters
    ----------
    tuned : Tuned, optional
        The choice of a table, which the plan takes.

    Raises
    ------
    ValueError
        `tuned` is not among the choices.
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
    """The choice of `plan_gemm`, with its errors; most other choices are not estimated."""
    taking = _taking(problem, candidates(rows, GEMM, props))
    if not taking:
        choices(problem, props, rows).require(props)
    if tuned is None:
        return _least_estimated(problem, props, taking)
    for kernel, splits, columns in _ways(problem, taking):
        if (kernel.name, splits, columns) == (tuned.kernel, tuned.splits, tuned.columns):
            estimate = cost(problem, kernel, splits, columns, props)
            return Choice.of(problem, kernel, splits, columns, estimate, props)
    raise ValueError(_no_such_choice(problem, tuned, choices(problem, props, rows).items))


def _least_estimated(
    problem: GemmProblem, props: DeviceProps, taking: Sequence[KernelSpec]
) -> Choice:
    """`least_estimated` of all choices, without estimating those that are certainly far from it.

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
                if of_kernel.at_least(splits, tried[-1]) * _WORTH > least:
                    break
                for columns in tried:
                    estimate = of_kernel.estimate(splits, columns)
                    least = min(least, estimate.clk)
                    found.append((order, splits, columns, estimate))
    return least_estimated(
        [
            Choice.of(
                *(problem, taking[order], splits, columns),
                *(cost_of(estimate, problem, props), props),
            )
            for order, splits, columns, estimate in sorted(found, key=itemgetter(0))
            if estimate.clk * _WORTH <= least
        ]
    )


def _no_such_choice(problem: GemmProblem, tuned: Tuned, choices: Sequence[Choice]) -> str:
    """The message that names the first value of a table's choice that no choice has."""
    found = [(choice.kernel.name, choice.splits, choice.columns) for choice in choices]
    values = (tuned.kernel, tuned.splits, tuned.columns)
    # The first value that no choice has together with the values before it.
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
    """The plan of a choice; `why` says why it was taken, if not for its estimated time."""
    kernel = best.kernel
    per_cu, limit = workgroups_per_cu(kernel, props)
    reasons = {
        "why this kernel": why or kernel_text(choices.items),
        "tiles": tiles_text(problem, best, choices.items),
        "k": f"{grids.steps(problem, kernel)} steps of {kernel.params['step']}, in turn by "
        f"{kernel.params['waves_k']} waves, {kernel.params['steps_in_flight']} of each in "
        "flight",
        "splits": splits_text(problem, best, choices.items),
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes, {problem.flops:.4g} floating point operations",
        "time": best.cost.text(),
    }
    return dataclasses.replace(unexplained(problem, props, best), reasons=tuple(reasons.items()))


def unexplained(problem: GemmProblem, props: DeviceProps, best: Choice) -> Plan[GemmProblem]:
    """The plan without its reasons, for which all choices would be estimated."""
    kernel, splits, columns = best.kernel, best.splits, best.columns
    num_tiles = grids.num_tiles(problem, kernel, columns)
    workspace = _workspace(problem, num_tiles, splits, kernel)
    args = arguments(problem, kernel, splits, columns, bool(workspace.regions))
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

    Members for any rows are used only if there are none for aligned rows.
    """
    of_op = candidates(rows, GEMM, props)
    found = [(row, mismatches(row, problem)) for row in of_op]
    # A kernel of the same type is nearest, then one of the layout, the scales, several products.
    rejected = sorted(
        ((row, wrong) for row, wrong in found if wrong),
        key=lambda one: (
            one[0].dtype != problem.dtype,
            ("norms_rows" in one[0].accepts) != (problem.rms_eps is not None),
            one[0].accepts["layout"] != problem.layout,
            (one[0].accepts["scales"] == [BLOCKS]) != problem.has_blocks,
            any(getattr(problem, x) > most_products(one[0], x) for x in ("batch", "groups")),
            len(one[1]),
        ),
    )
    taking = _taking(problem, of_op)
    clock_ghz = clock_of(problem, props)
    estimators = {kernel: estimator(problem, kernel, props, clock_ghz) for kernel in taking}
    items = tuple(
        Choice.of(
            *(problem, kernel, splits, columns),
            *(cost_of(estimators[kernel].estimate(splits, columns), problem, props), props),
        )
        for kernel, splits, columns in _ways(problem, taking)
    )
    return Choices(items, tuple(rejected), rows)


def _taking(problem: GemmProblem, of_op: Sequence[KernelSpec]) -> list[KernelSpec]:
    """Members that take a problem with the widest loads.

    For one product of operands stored by k, all members: the widest have no tiles for few rows.
    """
    taking = [row for row in of_op if row.dtype == problem.dtype and not mismatches(row, problem)]
    if any(problem.by_k) and not problem.of_columns:
        return taking
    widest = max((row.accepts["pointer_align_bytes"] for row in taking), default=0)
    return [row for row in taking if row.accepts["pointer_align_bytes"] == widest]


def _ways(
    problem: GemmProblem, taking: Sequence[KernelSpec]
) -> Iterator[tuple[KernelSpec, int, int]]:
    """The kernel, parts and columns of every choice."""
    for kernel in taking:
        for splits in _splits(problem, kernel):
            for columns in _columns(problem, kernel, splits):
                yield kernel, splits, columns


def least_estimated(choices: Sequence[Choice]) -> Choice:
    """The choice that a plan makes unless a table names another."""
    least = min(choice.cost.clk for choice in choices)
    frugal = [choice for choice in choices if choice.cost.clk * _WORTH <= least]
    best = min(frugal, key=lambda choice: (choice.splits, choice.cost.clk))
    equal = [
        choice
        for choice in frugal
        if choice.splits == best.splits and choice.cost.clk * _EQUAL <= best.cost.clk
    ]
    return min(equal, key=lambda choice: (choice.passes, choice.cost.clk))


def _columns(problem: GemmProblem, kernel: KernelSpec, splits: int) -> list[int]:
    """Widths of a tile to try: all of its columns, or fewer if XCDs still have as many in all.

    Of widths that give an XCD the same number of tiles, the smallest is tried. Widths below half
    are left to smaller members. Parts along k are for products of few tiles, however wide.
    """
    most = grids.most_columns(problem, kernel)
    if grids.has_windows(kernel):
        return [most]
    most_tiles = kernel.accepts["max_n"] // (kernel.tile["n"] * grids.XCDS)  # on an XCD
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


def _splits(problem: GemmProblem, kernel: KernelSpec) -> list[int]:
    """Numbers of parts to try; none has an empty part."""
    all_steps = grids.steps(problem, kernel)
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
    """Bytes of a tile's float32 sums; for few rows, each lane has four of a fragment."""
    if grids.has_windows(kernel):
        return int(kernel.tile["m"] * kernel.tile["n"] * 4)
    tile: int = kernel.params["mfma"]
    return kernel.tile["m"] * kernel.tile["n"] // tile**2 * _FRAGMENT_BYTES
