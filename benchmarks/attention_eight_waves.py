"""Attention forward by eight waves on a CU of an MI355X: what designs of it take, modelled.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.attention_eight_waves [DESIGN ...]
        [--reading default lds-256 lost-slots-2] [--whole 1024 4096]

The kernels of benchmarks/eight_waves are studies and ship in no code object: bfloat16, 128 columns,
any rows of Q, keys a multiple of 64, no mask, no log-sum-exp, no second attempt for sums that
overflow. They are compiled here, by the clang of pip's ziglang. A loop is what 1024 more keys
take, clk of a CU for 256 rows and 128 keys, of which 4096 are matrix instructions; `--whole` is a
launch of 16 sequences with 16 heads of so many rows and keys, one XCD simulated in full, beside
ours of 256 rows.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.device.profiling import LaunchProfile
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem
from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.peers.peer_device import Buffers, Kernel, normal, read

SOURCES = Path(__file__).with_name("eight_waves")
ARCH, COLUMNS, MATRIX_CLK = "gfx950", 128, 4096
KEYS = (1024, 2048)
XCDS, CUS_OF_XCD = 8, 32
OURS = "attn_fwd_bf16_d128_q256_rtne"
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
    run: Callable[[Array, Array, Array], object], reading: str, *shapes: Any
) -> LaunchProfile:
    """Of operands of normal random numbers."""
    rng = np.random.default_rng(1)
    operands = [normal(rng, *shape) for shape in shapes]
    with virtual.profile(reading=reading) as profile:
        run(*operands)
    return profile.launches[0]


def loop(design: Design, reading: str) -> tuple[float, float]:
    """Clk for 256 rows of a CU and 128 keys, and of a workgroup outside of its loop.

    A workgroup of eight waves is alone; of four waves there are two on each CU of an XCD.
    """
    attention = Attention(design)
    heads = 1 if design.waves == 8 else 2 * CUS_OF_XCD * XCDS
    times = []
    for keys in KEYS:
        kv = (1, keys, 1, COLUMNS)
        launch = profiled(attention, reading, (1, design.rows, heads, COLUMNS), kv, kv)
        times.append(statistics.median(t.end - t.start for t in launch.times))
    more = times[1] - times[0]
    return more / (KEYS[1] - KEYS[0]) * 128, times[0] - more / (KEYS[1] - KEYS[0]) * KEYS[0]


def whole(run: Callable[[Array, Array, Array], object], rows: int, reading: str) -> int:
    """Clk of a launch."""
    shape = (16, rows, 16, COLUMNS)
    return profiled(run, reading, shape, shape, shape).cycles


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
    parser.add_argument("--whole", nargs="+", type=int, default=[], metavar="ROWS")
    given = parser.parse_args()
    for name in given.designs or DESIGNS:
        design = DESIGNS[name]
        print(f"{name}: {design.what}; predicted {design.predicted or '-'}, modelled")
        for reading in given.reading:
            clk, outside = loop(design, reading)
            print(
                f"  {reading}: {clk:.0f} clk, {MATRIX_CLK / clk:.1%} of them matrix; outside "
                f"{outside:.0f}",
                flush=True,
            )
        for rows in given.whole:
            for reading in given.reading:
                theirs = whole(Attention(design), rows, reading)
                shipped = whole(ours(rows), rows, reading)
                print(
                    f"  b16 h16 s{rows}, {reading}: {theirs} clk, {OURS} {shipped} "
                    f"({theirs / shipped - 1:+.1%})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
