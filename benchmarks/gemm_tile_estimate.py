"""Judges the planner's estimates of products with many rows by the performance model.

    python -m benchmarks.gemm_tile_estimate [--count 50] [--seed 0] [--dtype float16] [--others 0]
                                            [--json FILE]

It draws random products of at least 512 rows, with sides of layers and odd ones, up to 60 GFLOP,
and models the plan's choice at the clock that the plan is made for. The mark is 5 %. --others also
models that many other kernels, those with the next least estimates, to see what the choice takes
beyond the fastest of them.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import amdattn
from amdattn import virtual
from amdattn.arch.props import DeviceProps
from amdattn.cli.output import progress_bar
from amdattn.device import manifest, runtime
from amdattn.op.choices import Choices
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.choice import Choice
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem

MARK, NEAR = 0.05, 0.03
_SIDES = (1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 14336, 28672)
_ROWS = (512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
_MOST_FLOP, _ODD = 6e10, 4  # one of so many has odd sides
_K_MULTIPLE = 8


_Found = Choices[Choice]


@dataclass(frozen=True)
class Estimated:
    """A product, and how far its estimate is off."""

    m: int
    n: int
    k: int
    kernel: str
    splits: int
    clock_ghz: float
    clk: int
    error: float
    beyond: float  # of the fastest of all that were modelled


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


def _modelled(problem: GemmProblem, props: DeviceProps, choice: Choice, of: _Found) -> int:
    """Clk of a choice's launch, at the clock of its estimate."""
    plan = GemmPlan.of(planning.build(problem, props, choice, of))
    a, b = (amdattn.empty(problem.input_shapes[x], problem.array_dtype) for x in "ab")
    with virtual.profile(clock_mhz=round(1000 * choice.cost.clock_ghz)) as profile:
        plan.run(a, b)
        runtime.synchronize()
    return sum(launch.cycles for launch in profile.launches)


def judged(problem: GemmProblem, props: DeviceProps, others: int) -> Estimated:
    """The plan's choice, and the best of others, beside the model."""
    found = planning.choices(problem, props, manifest.kernels())
    best = planning.least_estimated(found.items)
    clk = _modelled(problem, props, best, found)
    of_kernels = {best.kernel.name: best}
    for choice in sorted(found.items, key=lambda one: one.cost.clk):
        of_kernels.setdefault(choice.kernel.name, choice)
    near = list(of_kernels.values())[1 : 1 + others]
    least = min((_modelled(problem, props, one, found) for one in near), default=clk)
    return Estimated(
        *(problem.m, problem.n, problem.k, best.kernel.name, best.splits, best.cost.clock_ghz),
        *(clk, best.cost.clk / clk - 1, clk / min(clk, least) - 1),
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--others", type=int, default=0, help="kernels beside the choice")
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args()
    props = runtime.get().props
    found = []
    with progress_bar() as progress:
        chosen = list(products(options.count, options.seed, options.dtype))
        for problem in progress.track(chosen):
            found.append(judged(problem, props, options.others))
    table = Table(title=f"{props.name}, {options.dtype}, modelled")
    for column in ("m x n x k", "kernel", "parts", "GHz", "clk", "estimate", "beyond"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for one in sorted(found, key=lambda one: one.error):
        size = f"{one.m} x {one.n} x {one.k}"
        clk, error, beyond = f"{one.clk:,}", f"{one.error:+.1%}", f"{one.beyond:.1%}"
        table.add_row(size, one.kernel, str(one.splits), str(one.clock_ghz), clk, error, beyond)
    Console(width=100).print(table)
    within = sum(abs(one.error) <= MARK for one in found)
    errors = sorted(abs(one.error) for one in found)
    print(f"{within} of {len(found)} within {MARK:.0%}; median {errors[len(errors) // 2]:.1%}")
    if options.others:
        near = sum(one.beyond <= NEAR for one in found)
        print(f"{near} of {len(found)} within {NEAR:.0%} of the fastest that was modelled")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
