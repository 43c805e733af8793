"""Judges the planner's estimates of products with many rows by the performance model.

    python -m benchmarks.gemm_tile_estimate [--count 50] [--seed 0] [--dtype float16] [--json FILE]

Random products of at least 512 rows, sides of layers and odd ones, up to 60 GFLOP: the choice of
the plan, at the clock that the chip sustains. The mark is 5 %.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

import amdattn
from amdattn.arch.props import DeviceProps
from amdattn.cli.output import progress_bar
from amdattn.device import manifest, runtime
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from benchmarks.gemm_many_rows import modelled

MARK = 0.05
_SIDES = (1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 14336, 28672)
_ROWS = (512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
_MOST_FLOP, _ODD = 6e10, 4  # one of so many has odd sides
_K_MULTIPLE = 8


@dataclass(frozen=True)
class Estimated:
    """A product, and how far its estimate is off."""

    m: int
    n: int
    k: int
    kernel: str
    splits: int
    clk: int
    error: float


def products(count: int, seed: int, dtype: str) -> Iterator[GemmProblem]:
    """So many, each once."""
    some = random.Random(seed)
    found: set[GemmProblem] = set()
    while len(found) < count:
        m, n, k = some.choice(_ROWS), some.choice(_SIDES), some.choice(_SIDES)
        if some.randrange(_ODD) == 0:
            m, n = m + some.randint(1, m), some.randint(n // 2, n)
            k = _K_MULTIPLE * some.randint(k // _K_MULTIPLE // 2, k // _K_MULTIPLE)
        problem = GemmProblem(m, n, k, dtype)
        if problem.flops <= _MOST_FLOP and problem not in found:
            found.add(problem)
            yield problem


def judged(problem: GemmProblem, props: DeviceProps) -> Estimated:
    """The plan's choice beside the model."""
    found = planning.choices(problem, props, manifest.kernels())
    best = planning.least_estimated(found.items)
    plan = GemmPlan.of(planning.build(problem, props, best, found))
    a, b = (amdattn.empty(problem.input_shapes[x], problem.array_dtype) for x in "ab")
    clk = modelled(partial(plan.run, a, b), None)
    size = (problem.m, problem.n, problem.k)
    return Estimated(*size, best.kernel.name, best.splits, clk, best.cost.clk / clk - 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args()
    props = runtime.get().props
    found = []
    with progress_bar() as progress:
        chosen = list(products(options.count, options.seed, options.dtype))
        for problem in progress.track(chosen):
            found.append(judged(problem, props))
    table = Table(
        title=f"{props.name}, {options.dtype}, modelled at {props.sustained_clock_ghz} GHz"
    )
    for column in ("m x n x k", "kernel", "parts", "clk", "estimate"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for one in sorted(found, key=lambda one: one.error):
        size = f"{one.m} x {one.n} x {one.k}"
        table.add_row(size, one.kernel, str(one.splits), f"{one.clk:,}", f"{one.error:+.1%}")
    Console(width=100).print(table)
    within = sum(abs(one.error) <= MARK for one in found)
    print(f"{within} of {len(found)} within {MARK:.0%}")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
