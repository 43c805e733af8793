"""Texts of `explain`: why a product gets its kernel, tiles and parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amdattn.ops.gemm import grids
from amdattn.ops.gemm.choice import Choice
from amdattn.ops.gemm.problem import GemmProblem


def _clk(value: float) -> str:
    return f"{value:,.0f} clk".replace(",", " ")


def kernel_text(choices: Sequence[Choice]) -> str:
    """Why this kernel."""
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


def splits_text(problem: GemmProblem, best: Choice, choices: Sequence[Choice]) -> str:
    """Why so many parts along k."""
    if problem.split_k:
        asked = f"split_k={problem.split_k} was given"
        return (
            asked if best.splits == problem.split_k else f"{best.splits} ({asked}: no empty part)"
        )
    of_kernel = [choice for choice in choices if choice.kernel == best.kernel]
    return f"{best.splits} (estimated: {_tried(of_kernel, lambda choice: choice.splits)})"


def tiles_text(problem: GemmProblem, best: Choice, choices: Sequence[Choice]) -> str:
    """The tiles, and why they have so many columns."""
    kernel, columns = best.kernel, best.columns
    tiles_m, tiles_n = grids.tiles(problem, kernel, columns)
    like = [c for c in choices if (c.kernel, c.splits) == (kernel, best.splits)]
    tried = _tried(like, lambda choice: choice.columns)
    tile = f"{kernel.tile['m']} x {columns} results"
    if problem.products > 1:
        most = "at most " * bool(problem.groups)
        tile += f", {most}{grids.num_tiles(problem, kernel, columns)} in all"
    return f"{tiles_m} x {tiles_n} of {tile} (columns estimated: {tried})"
