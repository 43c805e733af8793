"""Attention forward by eight waves on a CU of an MI355X: what designs of it take, modelled.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.attention_eight_waves [DESIGN ...]
        [--reading default lds-256 lost-slots-2 | all] [--inputs NAME ...] [--whole 1024 4096]

The kernels of benchmarks/eight_waves are studies and ship in no code object: bfloat16, 128 columns,
any rows of Q, keys a multiple of 64, no mask, no log-sum-exp, no second attempt for sums that
overflow. They are compiled here, by the clang of pip's ziglang. A loop is what 1024 more keys
take, clk of a CU for 256 rows and 128 keys, of which 4096 are matrix instructions, or, with --keys,
what the second length takes beyond the first; of inputs whose heads differ (`amdattn.bench.inputs`)
the mean of heads and the slowest one. `--whole` is a launch of 16 sequences with 16 heads of so
many rows and keys, N(0, 1), one XCD simulated in full, beside ours of 256 rows.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import statistics
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import amdattn
from amdattn import virtual
from amdattn.arch import readings
from amdattn.bench.inputs import NORMAL, Inputs, Sizes, entry, named
from amdattn.device.profiling import LaunchProfile
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem
from benchmarks.attention_loop import operand
from benchmarks.attention_readings import heads_of
from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.peers.peer_device import Buffers, Kernel, read

SOURCES = Path(__file__).with_name("eight_waves")
ARCH, COLUMNS, MATRIX_CLK = "gfx950", 128, 4096
KEYS = (1024, 2048)
XCDS, CUS_OF_XCD = 8, 32
OURS = "attn_fwd_bf16_d128_q256_rtne"
BF16 = ml_dtypes.bfloat16
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Design:
    """A kernel; `predicted` is what was expected of it, if anything was, clk of the loop."""

    what: str
    source: str
    defines: tuple[str, ...]
    predicted: int | None
    waves: int = 8

    @property
    def rows(self) -> int:
        """Of a workgroup."""
        return 32 * self.waves


DESIGNS = {
    "clusters": Design(
        "clusters by turns, all of the softmax beside matrix instructions",
        "stream", ("WAVES=8", "CLUSTERS=8"), 5630,
    ),
    "clusters7": Design(
        "the same, an eighth of the softmax beside LDS reads",
        "stream", ("WAVES=8", "CLUSTERS=7"), None,
    ),
    "split": Design("scores and output by a wave each", "split", (), 4180),
    "stream": Design("a stream of each, the older wave first", "stream", ("PRIORITY=0",), 4350),
    "follow": Design("a stream of each, who is behind first", "stream", ("PRIORITY=1",), 4180),
    "two": Design(
        "the same, two workgroups of four waves", "stream", ("WAVES=4", "PRIORITY=1"), None, 4
    ),
}  # fmt: skip


@functools.cache
def image(design: Design) -> bytes:
    """Its code object."""
    source = SOURCES / f"{design.source}.hip"
    defines = ("KERNEL=eight_waves", *design.defines)
    return compile_hip(source, LLVM22, ARCH, defines).code_object


class Attention:
    """A design on the bound device."""

    def __init__(self, design: Design) -> None:
        self._kernel = Kernel(image(design), "eight_waves")
        self.design = design

    def __call__(self, q: Array, k: Array, v: Array) -> Array:
        """O of bfloat16 arrays [batch, rows, heads, 128]; the keys are a multiple of 64."""
        batch, rows, heads, _ = q.shape
        keys, heads_kv = k.shape[1:3]
        q_row, kv_row = 2 * COLUMNS * heads, 2 * COLUMNS * heads_kv
        with Buffers() as buffers:
            tensors = [buffers.put(x) for x in (q, k, v)]
            out = buffers.unwritten(q.shape, q.dtype)
            kernarg = struct.pack(
                "<4Q3q6ifi",
                *tensors, out, rows * q_row, keys * kv_row, rows * q_row, q_row, kv_row, q_row,
                rows, keys, heads // heads_kv, math.log2(math.e) / math.sqrt(COLUMNS), 0,
            )  # fmt: skip
            grid = (heads, -(-rows // self.design.rows), batch)
            self._kernel.launch(grid, 64 * self.design.waves, kernarg)
            return read(out, q.shape, q.dtype)


def profiled(
    run: Callable[[Array, Array, Array], object], reading: str, *operands: Array
) -> LaunchProfile:
    """Of a launch."""
    with virtual.profile(reading=reading) as profile:
        run(*operands)
    return profile.launches[0]


def loop(
    design: Design, reading: str, keys: Sequence[int] = KEYS, inputs: Inputs = NORMAL, head: int = 0
) -> tuple[float, float]:
    """Clk for 256 rows of a CU and 128 keys, and of a workgroup outside of its loop.

    A workgroup of eight waves is alone; of four waves there are two on each CU of an XCD.
    """
    attention, times = Attention(design), []
    for count in keys:
        sizes = Sizes(1, design.rows, count, head + 1, head + 1, COLUMNS, COLUMNS)
        q, k, v = (operand(which, inputs, sizes, head, BF16) for which in "qkv")
        if design.waves != 8:
            q = np.repeat(q, 2 * CUS_OF_XCD * XCDS, axis=2)
        launch = profiled(attention, reading, q, k, v)
        times.append(statistics.median(t.end - t.start for t in launch.times))
    each = (times[1] - times[0]) / (keys[1] - keys[0])
    return each * 128, times[0] - each * keys[0]


def whole(run: Callable[[Array, Array, Array], object], rows: int, reading: str) -> int:
    """Clk of a launch."""
    sizes = Sizes(16, rows, rows, 16, 16, COLUMNS, COLUMNS)
    q, k, v = (
        np.stack([entry(NORMAL, sizes, which, b) for b in range(16)]).astype(BF16)
        for which in "qkv"
    )
    return profiled(run, reading, q, k, v).cycles


def ours(rows: int) -> Callable[[Array, Array, Array], object]:
    """The shipped kernel of 256 rows."""
    problem = AttentionProblem(16, rows, rows, 16, 16, COLUMNS, COLUMNS, dtype="bfloat16")
    plan = planned_with(problem, amdattn.device_props(), OURS)

    def run(q: Array, k: Array, v: Array) -> object:
        return plan.run(q, k, v)

    return run


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("designs", nargs="*", help=", ".join(DESIGNS))
    parser.add_argument("--reading", nargs="+", default=["default", "lds-256"])
    parser.add_argument("--inputs", nargs="+", default=[NORMAL.name], metavar="NAME")
    parser.add_argument("--keys", nargs=2, type=int, default=KEYS)
    parser.add_argument("--whole", nargs="+", type=int, default=[], metavar="ROWS")
    given = parser.parse_args()
    chosen = readings.chosen(given.reading, ARCH)
    for name in given.designs or DESIGNS:
        design = DESIGNS[name]
        print(f"{name}: {design.what}; predicted {design.predicted or '-'}, modelled")
        for reading, inputs in itertools.product(chosen, map(named, given.inputs)):
            found = [
                loop(design, reading, given.keys, inputs, head) for head in range(heads_of(inputs))
            ]
            clk, outside = (statistics.mean(of) for of in zip(*found, strict=True))
            slowest = f", slowest head {max(found)[0]:.0f}" * (len(found) > 1)
            print(
                f"  {reading}, {inputs.name}: {clk:.0f} clk, {MATRIX_CLK / clk:.1%} of them matrix"
                f"{slowest}; outside {outside:.0f}",
                flush=True,
            )
        for rows in given.whole:
            for reading in chosen:
                theirs = whole(Attention(design), rows, reading)
                shipped = whole(ours(rows), rows, reading)
                print(
                    f"  b16 h16 s{rows}, {reading}: {theirs} clk, {OURS} {shipped} "
                    f"({theirs / shipped - 1:+.1%})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
