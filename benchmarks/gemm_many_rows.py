"""Prints products with many rows: modelled clk of whole launches, beside peers where they are.

    python -m benchmarks.gemm_many_rows [--shapes M,N,K ...] [--every-kernel]
                                        [--dtype e4m3 [--scales tensor|row|block|mx]]
                                        [--reading NAME ... | all]
                                        [--aiter CHECKOUT] [--triton] [--json FILE]

It runs the kernel that the plan takes (or every one for many rows) at the clock that the chip
sustains. Inputs are N(0,1), on which no time depends; a launch is counted on neither side. "of the
limit" counts all matrix units of the chip; with several readings it shows the first and the least.
Joules, and the time at the clock at which power meets its cap, are estimates (`amdattn.energy`),
except for matrix instructions whose energy is not known. Peers are AITER's tile of 256 x 256 (its
own code object; gfx950 only) and the best of three tiles of Triton's kernel (`triton_gemm`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path

from rich.console import Console
from rich.table import Table

import amdattn
from amdattn import virtual
from amdattn.arch import readings
from amdattn.arch.props import DeviceProps
from amdattn.bench.kernels import Functions
from amdattn.bench.run import energy
from amdattn.device import manifest, runtime
from amdattn.device.profiling import LaunchProfile
from amdattn.energy import Activity
from amdattn.ops.gemm import grids, planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import SCALES, GemmProblem
from benchmarks.gemm_peers import Aiter, Operands, Triton

# Squares and the largest published one; layers of Llama 8B and 70B on prompts.
SHAPES = (
    *((4096, 4096, 4096), (8192, 8192, 8192), (4096, 4864, 32896), (4096, 4096, 1024)),
    *((512, 6144, 4096), (2048, 6144, 4096), (2048, 4096, 4096), (2048, 28672, 4096)),
    *((2048, 4096, 14336), (4096, 10240, 8192), (4096, 8192, 8192), (4096, 8192, 28672)),
)
DTYPES = "or float16, e4m3, e5m2; with --scales mx e2m3fn, e3m2fn, e2m1fn"
MOST_TILES = 2**18  # of a peer's counters


@dataclass(frozen=True)
class Row:
    """One launch of a shape."""

    m: int
    n: int
    k: int
    whose: str
    reading: str
    clk: int
    of_the_limit: float
    estimate: float  # of the plan's cost, over the modelled clk at the greatest clock; 0: none
    joules: float  # by the estimate of energies, with the time in us at its clock; 0: none
    estimated_us: float


def profiled(
    run: Callable[[], object], reading: str | None, workgroups: int = 0
) -> list[LaunchProfile]:
    """Launches, whole or the first workgroups of an XCD, at the clock that the chip sustains."""
    with virtual.profile(reading=reading, simulated_workgroups=workgroups) as profile:
        run()
        runtime.synchronize()
    return profile.launches


def modelled(run: Callable[[], object], reading: str | None, workgroups: int = 0) -> int:
    """Their clk."""
    return sum(launch.cycles for launch in profiled(run, reading, workgroups))


def estimated(launches: Sequence[LaunchProfile]) -> tuple[float, float]:
    """Joules, and us at the clock at which power meets its cap."""
    found = energy(reduce(add, map(Activity.of, launches)))
    return found.get("joules", 0.0), found.get("microseconds", 0.0)


def dtype_of(name: str, props: DeviceProps) -> str:
    """What the device calls e4m3 and e5m2; others are called what they are."""
    arch = props.architecture
    return {"e4m3": arch.fp8, "e5m2": arch.bf8}.get(name, name)


def rows(
    shape: tuple[int, int, int], props: DeviceProps, options: argparse.Namespace
) -> Iterator[Row]:
    """Ours and the peers' of a shape."""
    m, n, k = shape
    scales = {name: options.scales for name in ("scale_a", "scale_b") if options.scales}
    problem = GemmProblem(m, n, k, dtype_of(options.dtype, props), **scales)
    functions = Functions()
    # What they hold does not matter for the time.
    a, b = (amdattn.empty(problem.input_shapes[x], problem.array_dtype) for x in "ab")
    out = amdattn.empty((m, n), problem.out_dtype)
    of_scales = "uint8" if problem.is_mx else "float32"
    factors = {name: amdattn.empty(problem.input_shapes[name], of_scales) for name in scales}
    zeros = amdattn.empty((MOST_TILES,), "int32")
    at = Operands(a.address, b.address, out.address, 0, zeros.address, 0)
    limit = props.num_cus * props.architecture.matrix_flops_per_clk * problem.matrix_rate

    def row(
        whose: str, reading: str, launches: Sequence[LaunchProfile], planned: float = 0.0
    ) -> Row:
        clk = sum(launch.cycles for launch in launches)
        share = problem.flops / limit / clk
        return Row(m, n, k, whose, reading, clk, share, planned / clk, *estimated(launches))

    found = planning.choices(problem, props, manifest.kernels())
    best = planning.least_estimated(found.items)
    for choice in found.items:
        every = options.every_kernel and grids.has_windows(choice.kernel)
        if choice is best or every:
            plan = GemmPlan.of(planning.build(problem, props, choice, found))
            for reading in options.readings:
                launches = profiled(partial(plan.run, a, b, out, **factors), reading)
                yield row(choice.kernel.name, reading, launches, choice.cost.clk)
    for peer in options.peers:
        for reading in options.readings:
            found_rows = []
            for attempt in peer.many_rows(m, n, k, at, problem.dtype):
                run = partial(attempt.launches[0].enqueue, functions)
                whose = f"{type(peer).__name__} {attempt.name}"
                found_rows.append(row(whose, reading, profiled(run, reading)))
            if found_rows:
                yield min(found_rows, key=lambda one: one.clk)


def _maker(row: Row) -> str:
    """Of a peer's tiles the best one may be another under another reading."""
    return row.whose.split()[0]


def _shape(text: str) -> tuple[int, int, int]:
    m, n, k = (int(word) for word in text.split(","))
    return m, n, k


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", type=_shape, default=SHAPES)
    parser.add_argument("--dtype", default="bfloat16", help=DTYPES)
    parser.add_argument("--scales", choices=SCALES, help="of 8-bit operands")
    parser.add_argument("--every-kernel", action="store_true")
    parser.add_argument("--reading", nargs="+", help='see docs/generated/readings.md; or "all"')
    parser.add_argument("--aiter", type=Path, help="a checkout of AITER")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args()
    props = runtime.get().props
    options.peers = [Aiter(options.aiter, props)] if options.aiter else []
    options.peers += [Triton(props)] if options.triton else []
    options.readings = readings.chosen(options.reading, props.arch)
    ghz = props.sustained_clock_ghz
    table = Table(title=f"{props.name}, {options.dtype}, modelled at {ghz} GHz")
    least = [f"least of {len(options.readings)} readings"] * (len(options.readings) > 1)
    for column in ("m x n x k", "kernel", "clk", "of the limit", *least, "TFLOP/s", "estimate"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for column in ("J, estimated", "us, estimated"):
        table.add_column(column, justify="right")
    every = []
    for shape in options.shapes:
        found = list(rows(shape, props, options))
        every += found
        for one in (x for x in found if x.reading == options.readings[0]):
            worst = min((x for x in found if _maker(x) == _maker(one)), key=lambda x: -x.clk)
            tflops = 2 * one.m * one.n * one.k / one.clk * ghz / 1000
            table.add_row(
                *(f"{one.m} x {one.n} x {one.k}", one.whose),
                *(f"{one.clk:,}", f"{one.of_the_limit:.1%}"),
                *[f"{worst.of_the_limit:.1%} {worst.reading}"] * len(least),
                f"{tflops:.0f}",
                f"{one.estimate - 1:+.1%}" if one.estimate else "",
                f"{one.joules:.3f}" if one.joules else "-",
                f"{one.estimated_us:.0f}" if one.joules else "-",
            )
    Console(width=150).print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in every], indent=1) + "\n")


if __name__ == "__main__":
    main()
