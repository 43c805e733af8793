"""Prints products of many rows by eight waves in ping-pong beside four interleaved ones, modelled.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.gemm_eight_waves
        [--reading default lds-256 | all] [--whole M,N,K ...]

Both make tiles of 256 x 256 on an MI355X and share everything except the loop: loads, epilogue and
the order of tiles. The eight waves are a study, benchmarks/eight_waves/gemm.hip, compiled here by
the clang of pip's ziglang; the four waves ship. Lines of a loop are those that are neither empty
nor comments. Eight waves take the reads of LDS and the multiplication from gemm_tiles/loop.h, whose
lines count there. A step is 128 bytes of k; its clk are the difference of 4096 and 8192 bytes of k
of one workgroup.
"""

from __future__ import annotations

import argparse
import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import amdattn
from amdattn import virtual
from amdattn.arch import readings
from amdattn.arch.props import DeviceProps
from amdattn.device import manifest, runtime
from amdattn.device.profiling import LaunchProfile
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from benchmarks.gemm_many_rows import _shape
from build_scripts import preload
from build_scripts.toolchain import ASM_SRC, LLVM22, compile_hip
from tests.support.peers.peer_device import Kernel

SOURCE = Path(__file__).with_name("eight_waves") / "gemm.hip"
ARCH, TILE, LANES = "gfx950", 256, 512
ELEMENTS = {"bfloat16": "kBf16", "float16": "kF16", "float8_e4m3fn": "kE4m3"}
OUT_TYPES = {"bfloat16": 1, "float16": 2}
STEP_BYTES, LENGTHS = 128, (4096, 8192)  # bytes of k
# The loop of each: where it is, from which line on, and up to which.
LOOPS = {
    "8 in ping-pong": ((SOURCE, "struct PingPong", "};"),),
    "4 interleaved": (
        (ASM_SRC / "gemm_tiles/loop.h", "template <class S>", "};"),
        (ASM_SRC / "gemm_tiles/order.h", "template <class S>", "};"),
    ),
}


@dataclass(frozen=True)
class Arrays:
    """Operands on the device, whose contents no time depends on."""

    m: int
    n: int
    k: int
    dtype: str

    @functools.cached_property
    def a(self) -> amdattn.DeviceArray:
        """[m, k]."""
        return amdattn.empty((self.m, self.k), self.dtype)

    @functools.cached_property
    def b(self) -> amdattn.DeviceArray:
        """[n, k]."""
        return amdattn.empty((self.n, self.k), self.dtype)

    @functools.cached_property
    def out(self) -> amdattn.DeviceArray:
        """[m, n]."""
        return amdattn.empty((self.m, self.n), self.out_dtype)

    @property
    def out_dtype(self) -> str:
        """That of the operands, or bfloat16."""
        return self.dtype if self.dtype in OUT_TYPES else "bfloat16"


@functools.cache
def _kernel(dtype: str) -> Kernel:
    defines = preload.defines("gemm_tiles.h", "GemmTilesArgs")
    macros = {"KERNEL": "eight_waves", "ELEMENT": ELEMENTS[dtype], **defines}
    given = tuple(f"{name}={value}" for name, value in macros.items())
    return Kernel(
        compile_hip(SOURCE, LLVM22, ARCH, given, preload.FLAGS).code_object, "eight_waves"
    )


def eight_waves(x: Arrays) -> None:
    """The study, without alpha, bias and what is added."""
    props = runtime.get().props
    addresses = (x.a.address, x.b.address), (0, 0, x.out.address)
    kernarg = struct.pack(
        "<2Q8i3Qqf3ifi2Q2iQ7q3Qq",
        *addresses[0], x.k, x.k, x.m, x.n, x.k, 0, props.num_cus // props.num_xcds, 1,
        *addresses[1], x.n, 1.0, 0, OUT_TYPES[x.out_dtype], 0, 0.0, 0,
        *(0,) * 16,
    )  # fmt: skip
    tiles = -(-x.m // TILE) * -(-x.n // TILE)
    _kernel(x.dtype).launch((tiles, 1, 1), LANES, kernarg)


def four_waves(x: Arrays) -> None:
    """The shipped kernel of the same tile."""
    problem = GemmProblem(x.m, x.n, x.k, x.dtype)
    (row,) = (
        row
        for row in manifest.kernels()
        if row.arch == ARCH and row.name == f"gemm_nt_{_short(x.dtype)}_t256x256"
    )
    plan = GemmPlan.of(planning.plan_gemm(problem, runtime.get().props, [row]))
    plan.run(x.a, x.b, x.out)
    runtime.synchronize()


def _short(dtype: str) -> str:
    return {"bfloat16": "bf16", "float16": "fp16"}.get(dtype, "e4m3")


WAYS: dict[str, Callable[[Arrays], None]] = {
    "8 in ping-pong": eight_waves,
    "4 interleaved": four_waves,
}


def lines(way: str) -> int:
    """Of the loop, neither empty nor comments."""
    count = 0
    for path, begins, ends in LOOPS[way]:
        inside = False
        for line in path.read_text().splitlines():
            inside = inside or line.startswith(begins)
            text = line.strip()
            count += inside and bool(text) and not text.startswith("//")
            if inside and line.startswith(ends):
                break
    return count


def _profiled(way: str, arrays: Arrays, reading: str) -> LaunchProfile:
    with virtual.profile(reading=reading) as profile:
        WAYS[way](arrays)
    return profile.launches[0]


def step(way: str, dtype: str, reading: str) -> tuple[float, float]:
    """Clk of a step, and of a workgroup outside of its loop."""
    times = []
    for length in LENGTHS:
        arrays = Arrays(TILE, TILE, length // as_dtype(dtype).itemsize, dtype)
        (time,) = _profiled(way, arrays, reading).times
        times.append(time.end - time.start)
    clk = (times[1] - times[0]) * STEP_BYTES / (LENGTHS[1] - LENGTHS[0])
    return clk, times[1] - clk * LENGTHS[1] / STEP_BYTES


def limit(props: DeviceProps, dtype: str) -> float:
    """Of a step: its matrix instructions."""
    rate = props.architecture.matrix_flops_per_clk * GemmProblem(1, 1, 16, dtype).matrix_rate
    return 2 * TILE * TILE * STEP_BYTES / as_dtype(dtype).itemsize / rate


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reading", nargs="+", default=["default", "lds-256"])
    parser.add_argument("--whole", nargs="*", default=[], metavar="M,N,K")
    given = parser.parse_args()
    props = runtime.get().props
    shapes = [_shape(one) for one in given.whole]
    table = Table(title=f"{props.name}, tiles of 256 x 256, modelled, clk")
    for column in ("dtype", "waves", "lines of the loop", "reading", "a step", "of the limit"):
        table.add_column(column)
    for column in ("outside", *given.whole):
        table.add_column(column, justify="right")
    for dtype in ELEMENTS:
        for way in WAYS:
            for reading in readings.chosen(given.reading, ARCH):
                clk, outside = step(way, dtype, reading)
                whole = (
                    f"{_profiled(way, Arrays(m, n, k, dtype), reading).cycles:,}"
                    for m, n, k in shapes
                )
                share = limit(props, dtype) / clk
                table.add_row(
                    *(dtype, way, str(lines(way)), reading),
                    *(f"{clk:.0f}", f"{share:.1%}", f"{outside:,.0f}", *whole),
                )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
