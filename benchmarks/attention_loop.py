"""The steady main loop of attention forward, modelled: one workgroup, from 4096 to 8192 keys.

`python benchmarks/attention_loop.py [--kernel PATTERN] [--reading NAME ... | all] [--json FILE]`,
with AMDATTN_DEVICE=virtual:gfx950 for the kernels of that architecture

Cycles of the virtual device's performance model, of one workgroup alone on its CU, with operands of
N(0, 1) (`benchmarks.attention_readings` has others): what 4096 more keys take, per 64 keys and
divided by the rows of the workgroup / 384; and what a workgroup takes outside of its loop. The
matrix limit is what the fastest bfloat16 matrix instructions take, on gfx942 6144 cycles at
head_dim 128.
Readings are those of docs/generated/readings.md.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from amdattn.arch import readings
from amdattn.arch.architectures import architecture
from amdattn.bench.inputs import NORMAL, Inputs, Place, Sizes, normal
from amdattn.device import manifest
from amdattn.device.profiling import LaunchProfile
from amdattn.dtypes import as_dtype
from amdattn.ops.attention import select
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem

KEYS = (4096, 8192)
ROWS, BLOCK = 384, 64  # that a figure is for


def operand(
    which: str, inputs: Inputs, sizes: Sizes, head: int, element: Any
) -> NDArray[np.generic]:
    """(1, rows, 1, columns): q, k or v of one head of inputs, of which sizes have a head more."""
    _, count, _, columns = sizes.shape(which)
    some = normal(which, head * count * columns, count * columns).reshape(count, 1, columns)
    return inputs.rows(sizes, Place(which, 0, 0, head), some)[None].astype(element)


def profiled(
    kernel: Any, keys: int, reading: str | None = None, inputs: Inputs = NORMAL, head: int = 0
) -> LaunchProfile:
    """Of one workgroup, over one head of the inputs."""
    rows, columns = kernel.tile["q"], kernel.params["head_dim"]
    sizes = Sizes(1, rows, keys, head + 1, head + 1, columns, kernel.params["head_dim_v"])
    element = as_dtype(kernel.dtype).numpy()
    inputs.check(sizes)
    problem = AttentionProblem(
        1, kernel.tile["q"], keys, 1, 1, **kernel.params,
        dtype=kernel.dtype, softcap=min(30.0, kernel.accepts["softcaps"][1]),
        round_mode=kernel.accepts["round_mode"][0], num_splits=1,
    )  # fmt: skip
    plan = planned_with(problem, amdattn.device_props(), kernel.name)
    with virtual.profile(reading=reading) as profile:
        plan.run(*(operand(which, inputs, sizes, head, element) for which in "qkv"))
    return profile.launches[0]


def lifetime(kernel: Any, keys: int, reading: str) -> int:
    """Modelled cycles from a workgroup's first instruction to its last."""
    (time,) = profiled(kernel, keys, reading).times
    return time.end - time.start


def measure(kernel: Any, reading: str) -> dict[str, Any]:
    """One row of the table."""
    short, long = (lifetime(kernel, keys, reading) for keys in KEYS)
    blocks = (KEYS[1] - KEYS[0]) / BLOCK
    loop = (long - short) / blocks * ROWS / kernel.tile["q"]
    columns = kernel.params["head_dim"] + kernel.params["head_dim_v"]
    limit = 2 * ROWS * BLOCK * columns / architecture(kernel.arch).matrix_flops_per_clk
    return {
        "kernel": kernel.name,
        "reading": reading,
        "loop_clk": loop,
        "matrix_clk": limit,
        "matrix_use": limit / loop,
        "outside_clk": short - KEYS[0] / BLOCK * loop * kernel.tile["q"] / ROWS,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", default="attn_fwd_*", help="names that match")
    parser.add_argument("--reading", nargs="+", metavar="NAME", help="or all; several: a row each")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = readings.chosen(arguments.reading, amdattn.device_props().arch)
    rows = []
    heads = ("loop clk", 8), ("limit", 6), ("use", 6), ("outside", 8)
    names = f"{'kernel, modelled':42} {'reading':18}"
    print(names, *(f"{name:>{width}}" for name, width in heads))
    for kernel in manifest.kernels():
        if kernel.arch != amdattn.device_props().arch:
            continue
        # Kernels for narrow windows have no loop.
        if kernel.op != select.ATTENTION or kernel.accepts["max_window_keys"] < KEYS[1]:
            continue
        if not fnmatch.fnmatchcase(kernel.name, arguments.kernel):
            continue
        for reading in chosen:
            row = measure(kernel, reading)
            rows.append(row)
            print(
                f"{row['kernel']:42} {reading:18} {row['loop_clk']:8.0f} "
                f"{row['matrix_clk']:6.0f} {row['matrix_use']:6.1%} {row['outside_clk']:8.0f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
