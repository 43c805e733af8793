"""Prints what a step of k takes in the loop of kernels for products with many rows, modelled.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.gemm_loop [--dtype e4m3]
        [--scales tensor|row|block|mx] [--reading NAME]

It models one workgroup alone on an empty chip: the difference of its lifetimes with 2048 and 4096
elements of k, divided by the steps between. The limit is the time of a step's matrix instructions
at the rate of their type. "Outside" is the rest of a workgroup's lifetime. Workgroups that share a
CU in a launch are modelled alone here, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

import amdattn
from amdattn import virtual
from amdattn.arch.props import DeviceProps
from amdattn.device import manifest, runtime
from amdattn.ops.gemm import grids, planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import SCALES, GemmProblem
from benchmarks.gemm_many_rows import DTYPES, dtype_of

LENGTHS = (2048, 4096)


def kernels(problem: GemmProblem, props: DeviceProps) -> Iterator[manifest.KernelSpec]:
    """Those for many rows that take it."""
    for choice in planning.choices(problem, props, manifest.kernels()).items:
        if grids.has_windows(choice.kernel):
            yield choice.kernel


def lifetime(
    kernel: manifest.KernelSpec, problem: GemmProblem, props: DeviceProps, reading: str | None
) -> int:
    """Clk from the first instruction of the only workgroup to its last."""
    found = planning.choices(problem, props, [kernel])
    plan = GemmPlan.of(planning.build(problem, props, found.items[0], found))
    # What they hold does not matter for the time.
    of_scales = "uint8" if problem.is_mx else "float32"
    arrays = {
        name: amdattn.empty(shape, of_scales if name.startswith("scale") else problem.array_dtype)
        for name, shape in problem.input_shapes.items()
    }
    with virtual.profile(reading=reading) as profile:
        plan.run(**arrays)
        runtime.synchronize()
    (time,) = profile.launches[0].times
    return time.end - time.start


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bfloat16", help=DTYPES)
    parser.add_argument("--scales", choices=SCALES, help="of 8-bit operands")
    parser.add_argument("--reading", help="see docs/generated/readings.md")
    options = parser.parse_args()
    props = runtime.get().props
    dtype = dtype_of(options.dtype, props)
    scales = {name: options.scales for name in ("scale_a", "scale_b") if options.scales}
    table = Table(title=f"{props.name}, {options.dtype}, modelled, clk of one workgroup")
    for column in ("kernel", "a step", "limit", "of the limit", "outside"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for kernel in kernels(GemmProblem(64, 64, LENGTHS[0], dtype, **scales), props):
        m, n, step = kernel.tile["m"], kernel.tile["n"], kernel.params["step"]
        problems = [GemmProblem(m, n, k, dtype, **scales) for k in LENGTHS]
        least, most = (lifetime(kernel, one, props, options.reading) for one in problems)
        clk = (most - least) * step / (LENGTHS[1] - LENGTHS[0])
        rate = props.architecture.matrix_flops_per_clk * problems[0].matrix_rate
        limit = 2 * m * n * step / rate
        outside = most - clk * LENGTHS[1] / step
        table.add_row(
            kernel.name, f"{clk:.0f}", f"{limit:.0f}", f"{limit / clk:.1%}", f"{outside:.0f}"
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
