"""Prints the quantisation of rows to 8 bits beside its bar, modelled.

    python -m benchmarks.quantize_fp8 [--dtype bfloat16] [--per row] [--scale] [--every]
                                      [--clock-mhz 2100] [--shapes ROWS,COLUMNS ...]

Caches are cold. The bar counts the overhead of each launch and 1.2 us, and every byte once at 0.95
of the rate at which the model copies (`hbm_rate` of the micro kernels); times count the overhead as
well. For one scale of all of x, another launch reads x first, which the bar counts too. --every
runs every kernel, and says how far the one that the plan takes is behind the fastest.
"""

from __future__ import annotations

import argparse

import amdattn
from amdattn import virtual
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.bench.clocks import clocks
from amdattn.device import manifest, runtime
from amdattn.op import launch
from amdattn.op.choices import KernelChoice
from amdattn.op.plan import Operand
from amdattn.ops.quantize import planning
from amdattn.ops.quantize.problem import BLOCKS, PER, QuantizeProblem
from amdattn.ops.quantize.quantize_fp8 import QuantizePlan
from benchmarks.performance_model.micro import hbm_rate

ROWS = (1, 16, 64, 256, 512, 4096, 16384)
COLUMNS = (1024, 4096, 8192, 16384)
_FIXED_US, _SHARE_OF_RATE = 1.2, 0.95
_APART = 256


class Memory:
    """Device memory for the largest shape; what it holds does not matter for the time."""

    def __init__(self, problems: list[QuantizeProblem]) -> None:
        self._base = runtime.get().malloc(max(p.nbytes for p in problems) + (1 << 20))

    def operands(self, plan: QuantizePlan) -> dict[str, Operand]:
        """Of one plan, without gaps, and its scratch memory."""
        found, at = {}, self._base
        for spec in plan.specs().values():
            strides = compact_strides(spec.shape)
            view = View(at, spec.shape, strides, spec.dtype, False, None, ordinal=0)
            found[spec.name] = plan.operand(spec, view)
            at += -(-spec.nbytes // _APART) * _APART
        return found | {region.name: Operand(at, {}) for region in plan.workspace.regions}


def modelled_us(plan: QuantizePlan, memory: Memory, clock_mhz: int, launch_us: float) -> float:
    """With the launch overhead."""
    device = runtime.get()
    prepared = launch.PreparedLaunches(plan.launches).on(device)
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        launch.run(prepared, memory.operands(plan), device, 0)
        runtime.synchronize()
    return sum(launch_us + one.cycles / clock_mhz for one in profile.launches)


def _shape(text: str) -> tuple[int, int]:
    rows, columns = map(int, text.split(","))
    return rows, columns


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--per", choices=(*PER, BLOCKS), default="row")
    parser.add_argument("--scale", action="store_true", help="it is given")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--clock-mhz", type=int, default=2100)
    every = [(rows, columns) for columns in COLUMNS for rows in ROWS]
    parser.add_argument("--shapes", nargs="*", type=_shape, default=every)
    options = parser.parse_args()
    of_x, clock, props = {"dtype": options.dtype}, options.clock_mhz, amdattn.device_props()
    problems = [
        QuantizeProblem(*shape, **of_x, per=options.per, scale=options.scale)
        for shape in options.shapes
    ]
    memory, launch_us = Memory(problems), clocks(props.architecture.name).launch_us
    rate = 1000 * hbm_rate(1, True, mhz=clock)
    print(f"us, modelled at {clock} MHz; copies at {rate:.0f} bytes/ns\n")
    print("| rows x columns | bar | modelled | of bar | kernel |\n|---|--:|--:|--:|---|")
    met = 0
    for problem in problems:
        found = planning.choices(problem, props, manifest.kernels())

        def us(choice: KernelChoice, p: QuantizeProblem = problem, of: object = found) -> float:
            plan = QuantizePlan.of(planning.build(p, props, choice, of))
            return modelled_us(plan, memory, clock, launch_us)

        best = planning.best(found.items)
        took = us(best)
        launches = 1 + (problem.per == "tensor" and not problem.scale)
        nbytes = problem.nbytes + (launches - 1) * problem.x_bytes
        bar = launches * (launch_us + _FIXED_US) + nbytes / (_SHARE_OF_RATE * rate) / 1000
        met += took <= bar
        name = best.kernel.name.split("_", 3)[3]
        line = f"| {problem.rows} x {problem.columns} | {bar:.2f} | {took:.2f} | {took / bar:.3f} "
        if options.every:
            times = {choice.kernel.name: us(choice) for choice in found.items}
            fastest = min(times, key=lambda one: times[one])
            name += f"; {took / times[fastest] - 1:.0%} behind {fastest.split('_', 3)[3]}"
        print(f"{line}| {name} |", flush=True)
    print(f"\n{met} of {len(problems)} shapes meet the bar.")


if __name__ == "__main__":
    main()
