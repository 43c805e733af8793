"""Judges the estimates of the GEMM planner by the performance model, and fits their constants.

    python -m benchmarks.gemm_estimate FILE [--model] [--products COUNT] [--fit]

--model models launches of products, the choices that are estimated to be the fastest of each and
others, and writes them to FILE. What FILE has is then compared with the estimates: the error of a
launch, and what the choice with the least estimate takes beyond the fastest one. --fit says with
which constants of amdattn/ops/gemm/cost.py the error is least, that of launches near the fastest
above all: for all products, and, as a check, for every second one, with the error on the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from amdattn import tuning
from amdattn.cli.output import progress_bar
from amdattn.device import manifest, runtime
from amdattn.ops import registry
from amdattn.ops.gemm import cost as gemm_cost, grids, planning
from amdattn.ops.gemm.choice import Choice
from amdattn.ops.gemm.problem import GemmProblem
from build_scripts.gemm_table import PRODUCTS

MOST_PRODUCTS = 72
_ROWS = (1, 128, 16, 64, 8, 32, 100, 4, 48, 2)
_NEAREST = 8  # choices of a product with the least estimates, whatever they are; then
_SPLITS = (1, 2, 3, 4, 6, 8)  # every member with these, in the width of the least estimate,
_MOST_SPLIT_TILES, _LEAST_K = 800, 256  # so many workgroups with parts, so much of k for each.
# Weight of an error: a half where a launch takes so much more than the fastest of its product. What
# choices of a product differ by counts so many times as much as what all are off by.
_NEAR, _OF_DIFFERENCES = 0.05, 3.0
_FARTHEST = 2.0  # that a constant's logarithm goes from where it is
# What is fitted; all else are widths, rates and sizes of the device.
CONSTANTS = (
    *("_LOAD_CLK", "_START_CLK", "_WAVE_CLK", "_FRAGMENT_CLK", "_EXCHANGE_CLK"),
    *("_BLOCKED_LOSS", "_OVERLAP", "_ALONE", "_PACES", "_IN_TURN"),
    *("_SPLIT_CLK", "_PART_CLK", "_ADD_CLK", "_ADDED_CLK"),
)
OF_ELEMENTS = ("_ELEMENT_FACTOR",)  # of kernels that load element by element, by themselves


@dataclass(frozen=True)
class Launch:
    """A choice, and the modelled clk of its launch."""

    problem: GemmProblem
    kernel: str
    splits: int
    columns: int
    clk: float


def products(count: int) -> Iterator[GemmProblem]:
    """Those of the shipped table with some rows each, then any; some with what changes the cost."""
    some = random.Random(0)
    for i in range(count):
        n, k = PRODUCTS[i % len(PRODUCTS)]
        m = _ROWS[(i + i // len(PRODUCTS)) % len(_ROWS)]
        if i % 3 == 2:
            m, n, k = some.randint(1, 129), 8 * some.randint(4, 900), 64 * some.randint(8, 120)
        yield GemmProblem(
            *(m, n, k),
            deterministic=i % 4 != 1,
            aligned=i % 18 != 8,
            activation="silu_and_mul" if i % 9 == 4 else None,
        )


def tried(problem: GemmProblem, every: Sequence[Choice]) -> list[Choice]:
    """Choices for a product: those near the planner's, and each member with some parts."""
    choices = sorted(every, key=lambda choice: choice.cost.clk)
    found = {(one.kernel.name, one.splits, one.columns): one for one in choices[:_NEAREST]}
    widths = set()
    for one in choices:
        tiles = math.prod(grids.tiles(problem, one.kernel, one.columns))
        is_split = one.splits > 1
        if (
            one.splits in _SPLITS
            and (one.kernel, one.splits) not in widths
            and one.kernel.tile["m"] <= max(16, 2 * problem.m - 1)
            and not (is_split and tiles * one.splits > _MOST_SPLIT_TILES)
            and not (is_split and problem.k < _LEAST_K * one.splits)
        ):
            widths.add((one.kernel, one.splits))
            found[one.kernel.name, one.splits, one.columns] = one
    return list(found.values())


def model(problems: Sequence[GemmProblem]) -> Iterator[Launch]:
    """Launches of choices for each."""
    operation = registry.operation("gemm")
    with progress_bar() as progress:
        task = progress.add_task("products", total=len(problems))
        for problem in problems:
            choices = tuning.choices_of(operation, problem)
            some = tried(problem, choices.items)
            for timed in tuning.tune(operation, problem, choices, some).timed:
                choice = timed.choice
                clk = timed.us * 1000 * choice.cost.clock_ghz
                yield Launch(problem, choice.kernel.name, choice.splits, choice.columns, clk)
            progress.advance(task)


def read(path: Path) -> list[Launch]:
    """What `write` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Launch(**{**row, "problem": GemmProblem(**row["problem"])}) for row in rows]


def write(path: Path, launches: Sequence[Launch]) -> None:
    """As JSON."""
    rows = [dataclasses.asdict(launch) for launch in launches]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def errors(launches: Sequence[Launch]) -> NDArray[np.float64]:
    """Logarithms of estimated by modelled clk."""
    kernels = {kernel.name: kernel for kernel in manifest.kernels()}
    props = runtime.device_props()
    estimated = [
        gemm_cost.cost(one.problem, kernels[one.kernel], one.splits, one.columns, props).clk
        for one in launches
    ]
    return np.log(estimated) - np.log([one.clk for one in launches])


def losses(launches: Sequence[Launch]) -> dict[GemmProblem, float]:
    """For each product, what the planner's choice of those launches takes beyond the fastest."""
    kernels = {kernel.name: kernel for kernel in manifest.kernels()}
    props = runtime.device_props()
    found = {}
    for problem in dict.fromkeys(one.problem for one in launches):
        clk = {}
        for one in launches:
            if one.problem == problem:
                kernel = kernels[one.kernel]
                estimate = gemm_cost.cost(problem, kernel, one.splits, one.columns, props)
                choice = Choice.of(problem, kernel, one.splits, one.columns, estimate, props)
                clk[choice] = one.clk
        found[problem] = clk[planning.least_estimated(list(clk))] / min(clk.values()) - 1
    return found


def weights(launches: Sequence[Launch]) -> NDArray[np.float64]:
    """Of errors: those of launches near the fastest of their product decide what is chosen."""
    fastest: dict[GemmProblem, float] = {}
    for one in launches:
        fastest[one.problem] = min(one.clk, fastest.get(one.problem, one.clk))
    beyond = [one.clk / fastest[one.problem] - 1 for one in launches]
    return np.asarray(1 / (1 + np.square(np.array(beyond) / _NEAR)))


def fit(
    launches: Sequence[Launch], names: Sequence[str] = CONSTANTS, steps: int = 14
) -> dict[str, float]:
    """Sets the constants to those of the least mean square error, and says what they are.

    Errors count, and more what they differ by from the mean of their product.
    """
    weight = weights(launches)
    ids = {problem: i for i, problem in enumerate(dict.fromkeys(one.problem for one in launches))}
    product = np.array([ids[one.problem] for one in launches])

    def put(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        for name, value in zip(names, np.exp(logarithms), strict=True):
            setattr(gemm_cost, name, float(value))
        error = errors(launches)
        mean = np.bincount(product, weight * error) / np.bincount(product, weight)
        return np.concatenate(
            [np.sqrt(weight) * error, _OF_DIFFERENCES * np.sqrt(weight) * (error - mean[product])]
        )

    at = np.log([getattr(gemm_cost, name) for name in names])
    least, most = at - _FARTHEST, at + _FARTHEST
    error, step, damping = put(at), 1e-3, 1e-3
    for _ in range(steps):
        slopes = np.stack([(put(at + step * unit) - error) / step for unit in np.eye(len(at))], 1)
        damped = slopes.T @ slopes + damping * len(launches) * np.eye(len(at))
        change = np.linalg.solve(damped, -slopes.T @ error)
        to = np.clip(at + change, least, most)
        tried = put(to)
        if np.square(tried).sum() < np.square(error).sum():
            at, error, damping = to, tried, damping / 3
        else:
            damping *= 10
    put(at)
    return {name: float(f"{value:.3g}") for name, value in zip(names, np.exp(at), strict=True)}


def report(title: str, launches: Sequence[Launch]) -> None:
    """Prints how far off the estimates are."""
    error, loss = errors(launches), losses(launches)
    worst = max(loss, key=loss.__getitem__)
    print(
        f"{title}: {len(launches)} launches of {len(loss)} products; rms error "
        f"{np.sqrt(np.mean(np.square(error))):.3f}, mean {np.mean(error):+.3f}; the choice takes "
        f"{np.mean(list(loss.values())):.2%} more than the fastest on average, {loss[worst]:.2%} "
        f"at most (m={worst.m}, n={worst.n}, k={worst.k})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--products", type=int, default=MOST_PRODUCTS, help="that are modelled")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args(arguments)
    if options.model:
        write(options.file, list(model(list(products(options.products)))))
    launches = read(options.file)
    aligned = [one for one in launches if one.problem.aligned]
    elements = [one for one in launches if not one.problem.aligned]
    report("as they are", aligned)
    if elements:
        report("as they are, element by element", elements)
    if options.fit:
        problems = list(dict.fromkeys(one.problem for one in aligned))
        half = set(problems[::2])
        before = {name: getattr(gemm_cost, name) for name in CONSTANTS}
        fit([one for one in aligned if one.problem in half])
        report("fitted to the others", [one for one in aligned if one.problem not in half])
        for name, value in before.items():
            setattr(gemm_cost, name, value)
        constants = fit(aligned)
        report("fitted", aligned)
        if elements:
            constants |= fit(elements, OF_ELEMENTS)
            report("fitted, element by element", elements)
        for name, value in constants.items():
            print(f"{name} = {value:g}")


if __name__ == "__main__":
    main()
