"""Prints the merge of partial attention results beside its bar, modelled.

    python -m benchmarks.merge_state [--dtype bfloat16] [--every] [--clock-mhz 2100] [--json FILE]
                                     [--shapes PARTS,BATCH,SEQLEN,HEADS,HEAD_DIM ...]

Caches are cold. The bar is a launch, 1.2 us, and every byte once at 0.95 of 4.15 TB/s; times count
a launch as well. --every runs every kernel along every axis, and says how far the one that the plan
takes is behind the fastest.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import amdattn
from amdattn import virtual
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.bench.clocks import clocks
from amdattn.device import manifest, runtime
from amdattn.op import launch
from amdattn.op.choices import fastest
from amdattn.op.plan import Operand
from amdattn.ops.merge import planning
from amdattn.ops.merge.merge_state import MergePlan
from amdattn.ops.merge.planning import Choice
from amdattn.ops.merge.problem import MergeProblem

# Batch and length: a step of decoding, and a prompt.
QUERIES = ((1, 1), (64, 1), (1, 512), (1, 4096), (1, 16384))
HEADS_AND_DIMS = ((8, 64), (8, 128), (32, 128), (64, 128), (16, 256))
PARTS = (2, 4, 8)
_MAX_BYTES = 2 << 30  # a shape takes the virtual device a minute then
_LAUNCH_US = clocks("gfx942").launch_us
_FIXED_US, _BYTES_PER_US = 1.2, 0.95 * 4.15e6
_APART = 256


def bar_us(problem: MergeProblem) -> float:
    """What a launch of it may take."""
    return _LAUNCH_US + _FIXED_US + problem.nbytes / _BYTES_PER_US


class Memory:
    """Device memory for the largest shape; what it holds does not matter for the time."""

    def __init__(self, problems: list[MergeProblem]) -> None:
        self._base = runtime.get().malloc(max(p.nbytes for p in problems) + 4 * _APART)

    def operands(self, plan: MergePlan) -> dict[str, Operand]:
        """Of one plan, without gaps."""
        found, at = {}, self._base
        for spec in plan.specs().values():
            strides = compact_strides(spec.shape)
            view = View(at, spec.shape, strides, spec.dtype, False, None, ordinal=0)
            found[spec.name] = plan.operand(spec, view)
            at += -(-spec.nbytes // _APART) * _APART
        return found


def modelled_us(problem: MergeProblem, choice: Choice, memory: Memory, clock_mhz: int) -> float:
    """With the launch overhead."""
    props = amdattn.device_props()
    found = planning.choices(problem, props, manifest.kernels())
    plan = MergePlan.of(planning.build(problem, props, choice, found))
    device = runtime.get()
    prepared = launch.PreparedLaunches(plan.launches).on(device)
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        launch.run(prepared, memory.operands(plan), device, 0)
        runtime.synchronize()
    return _LAUNCH_US + profile.launches[0].cycles / clock_mhz


def _problems(dtype: str) -> list[MergeProblem]:
    every = [
        MergeProblem(parts, batch, seqlen, heads, dim, dtype)
        for heads, dim in HEADS_AND_DIMS
        for batch, seqlen in QUERIES
        for parts in PARTS
    ]
    return [problem for problem in every if problem.nbytes <= _MAX_BYTES]


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(map(int, text.split(",")))
    if len(counts) != 5:
        raise argparse.ArgumentTypeError(f"{text!r} must be PARTS,BATCH,SEQLEN,HEADS,HEAD_DIM")
    return counts


def _name(choice: Choice) -> str:
    return f"{choice.kernel.name.split('_', 3)[3]} along {choice.row}"


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    dtypes = ("bfloat16", "float16", "float32")
    parser.add_argument("--dtype", choices=dtypes, default="bfloat16")
    parser.add_argument("--every", action="store_true", help="every kernel along every axis")
    parser.add_argument("--clock-mhz", type=int, default=2100)
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--shapes", nargs="*", type=_counts)
    options = parser.parse_args()
    shapes: list[tuple[int, ...]] | None = options.shapes
    problems = _problems(options.dtype)
    if shapes is not None:
        problems = [MergeProblem(p, b, s, h, d, options.dtype) for p, b, s, h, d in shapes]
    memory, clock, props = Memory(problems), options.clock_mhz, amdattn.device_props()
    print(f"us, modelled at {clock} MHz\n")
    heads = ["parts", "batch x seqlen x heads x dim", "bar", options.dtype, "of bar", "kernel"]
    heads += ["fastest", "behind"] if options.every else []
    print(f"| {' | '.join(heads)} |\n|--:|---|--:|--:|--:|{'---|' * (len(heads) - 5)}")
    rows: list[dict[str, Any]] = []
    for problem in problems:
        items = planning.choices(problem, props, manifest.kernels()).items
        taken = fastest(items)
        bar, us = bar_us(problem), modelled_us(problem, taken, memory, clock)
        row = {**asdict(problem), "bar_us": bar, "us": us, "kernel": _name(taken)}
        sizes = f"{problem.batch} x {problem.seqlen} x {problem.num_heads} x {problem.head_dim}"
        cells = [str(problem.num_parts), sizes, f"{bar:.2f}", f"{us:.2f}", f"{us / bar:.3f}"]
        cells.append(_name(taken))
        if options.every:
            times = {_name(one): modelled_us(problem, one, memory, clock) for one in items}
            row["every_us"] = times
            quickest = min(times, key=times.__getitem__)
            cells += [quickest, f"{us / times[quickest] - 1:.1%}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        rows.append(row)
    met = sum(row["us"] <= row["bar_us"] for row in rows)
    worst = max(rows, key=lambda row: row["us"] / row["bar_us"])
    of_worst = " x ".join(str(worst[name]) for name in ("batch", "seqlen", "num_heads", "head_dim"))
    print(
        f"\n{met} of {len(rows)} shapes meet the bar; the farthest, {worst['num_parts']} parts of ",
        end="",
    )
    print(f"{of_worst}, takes {worst['us'] / worst['bar_us']:.3f} of it.")
    if options.json:
        document = {"clock_mhz": clock, "dtype": options.dtype, "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
