"""Prints several products of a launch: batches beside a launch each, and groups of uneven rows.

    python -m benchmarks.gemm_products [--batches B,M,N,K ...] [--groups GROUPS,ROWS,N,K ...]
                                       [--layout nt|nn|tn] [--every-kernel] [--reading NAME]
                                       [--json FILE]

Times are modelled clk of whole launches at the clock that the chip sustains, of kernels only, in
bfloat16, on whose values no time depends. Groups are experts, whose rows are drawn from a Dirichlet
distribution of parameter 4 with seed 0. Only these rows count, not those that fill up tiles: "/ at
the rate" is the time divided by the time of these operations at the rate of the planned kernel's
loop; its mark is 1.15. In layout "tn" the rows are those of k, and groups have products of N x K:
the gradient of their matrices.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import amdattn
from amdattn.arch.props import DeviceProps
from amdattn.device import manifest, runtime
from amdattn.ops.gemm import grids, planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from benchmarks.gemm_loop import LENGTHS
from benchmarks.gemm_many_rows import modelled

DTYPE = "bfloat16"
BATCHES = ((16, 512, 512, 1024), (8, 1024, 1024, 1024))
GROUPS = ((64, 256, 4096, 2048), (64, 256, 4096, 4096), (64, 512, 4096, 2048))
UNEVENNESS = 4.0  # the parameter of the distribution of rows: the smaller the more uneven


@dataclass(frozen=True)
class Row:
    """One way of making the products of a shape."""

    products: str
    kernel: str
    clk: float
    of_the_limit: float
    over_the_rate: float  # 0: not asked


def uneven(groups: int, rows: int) -> NDArray[np.int32]:
    """Rows of each of so many groups, so many on average."""
    shares = np.random.default_rng(0).dirichlet(np.full(groups, UNEVENNESS))
    sizes = np.floor(shares * groups * rows).astype(np.int32)
    sizes[sizes.argmax()] += groups * rows - sizes.sum()
    return sizes


def limit(props: DeviceProps) -> float:
    """Operations a clk of all matrix units."""
    return float(props.num_cus * props.architecture.matrix_flops_per_clk)


def loop_share(kernel: manifest.KernelSpec, props: DeviceProps, reading: str | None) -> float:
    """Of the limit, in the loop: by two lengths of k, of one round of tiles, as square as it is."""
    tiles = grids.chunk(kernel, props) * grids.XCDS
    high = max(n for n in range(1, math.isqrt(tiles) + 1) if tiles % n == 0)
    m, n = kernel.tile["m"] * high, kernel.tile["n"] * (tiles // high)
    layout = kernel.accepts["layout"]
    problems = [GemmProblem(m, n, k, DTYPE, layout=layout) for k in LENGTHS]
    least, most = (_clk(_plan(one, kernel, props), one, reading) for one in problems)
    return (problems[1].flops - problems[0].flops) / (most - least) / limit(props)


def _plan(problem: GemmProblem, kernel: manifest.KernelSpec, props: DeviceProps) -> GemmPlan:
    return GemmPlan.of(planning.plan_gemm(problem, props, [kernel]))


def _clk(plan: GemmPlan, problem: GemmProblem, reading: str | None, **more: object) -> int:
    a, b = (amdattn.empty(problem.input_shapes[x], DTYPE) for x in "ab")
    run: Callable[[], object] = partial(plan.run, a, b, **more)
    return modelled(run, reading)


def _kernels(
    problem: GemmProblem, props: DeviceProps, every: bool
) -> Iterator[manifest.KernelSpec]:
    """That of the plan, or all for many rows."""
    best = planning.plan_gemm(problem, props, manifest.kernels()).launches[0].kernel
    yield best
    if every:
        for choice in planning.choices(problem, props, manifest.kernels()).items:
            if grids.has_windows(choice.kernel) and choice.kernel is not best:
                yield choice.kernel


def batches(
    shape: tuple[int, ...], props: DeviceProps, options: argparse.Namespace
) -> Iterator[Row]:
    """One launch, and a launch each."""
    batch, m, n, k = shape
    name = f"{batch} x {m} x {n} x {k}"
    together, alone = GemmProblem(m, n, k, DTYPE, batch=batch), GemmProblem(m, n, k, DTYPE)
    for kernel in _kernels(together, props, options.every_kernel):
        clk = _clk(_plan(together, kernel, props), together, options.reading)
        yield Row(name, kernel.name, clk, together.flops / clk / limit(props), 0)
    (kernel,) = _kernels(alone, props, every=False)
    clk = batch * _clk(_plan(alone, kernel, props), alone, options.reading)
    yield Row(name, f"{kernel.name}, a launch each", clk, together.flops / clk / limit(props), 0)


def groups(
    shape: tuple[int, ...], props: DeviceProps, options: argparse.Namespace
) -> Iterator[Row]:
    """One launch, by the planned kernel or every one."""
    count, rows, n, k = shape
    sizes_of = (n, k, count * rows) if options.layout == "tn" else (count * rows, n, k)
    problem = GemmProblem(*sizes_of, DTYPE, groups=count, layout=options.layout)
    sizes = amdattn.asarray(uneven(count, rows))
    rate = 0.0
    for kernel in _kernels(problem, props, options.every_kernel):
        rate = rate or loop_share(kernel, props, options.reading)
        clk = _clk(_plan(problem, kernel, props), problem, options.reading, group_sizes=sizes)
        share = problem.flops / clk / limit(props)
        name = f"{count} groups of {rows} x {n} x {k}" + f" {options.layout}" * (
            options.layout != "nt"
        )
        yield Row(name, kernel.name, clk, share, rate / share)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", nargs="*", type=_numbers, default=BATCHES)
    parser.add_argument("--groups", nargs="*", type=_numbers, default=GROUPS)
    parser.add_argument("--layout", choices=("nt", "nn", "tn"), default="nt", help="of groups")
    parser.add_argument("--every-kernel", action="store_true")
    parser.add_argument("--reading", help="see docs/generated/readings.md")
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args()
    props = runtime.get().props
    found = [
        *(row for shape in options.batches for row in batches(shape, props, options)),
        *(row for shape in options.groups for row in groups(shape, props, options)),
    ]
    ghz = props.sustained_clock_ghz
    table = Table(title=f"{props.name}, {DTYPE}, modelled at {ghz} GHz")
    for column in ("products", "kernel", "clk", "of the limit", "/ at the rate"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for row in found:
        over = f"{row.over_the_rate:.2f}" if row.over_the_rate else ""
        table.add_row(row.products, row.kernel, f"{row.clk:,.0f}", f"{row.of_the_limit:.1%}", over)
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
