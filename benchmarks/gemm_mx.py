"""Prints products of MXFP4 beside AITER's own code objects, modelled: results, loops, launches.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.gemm_mx --aiter CHECKOUT
        [--shapes M,N,K ...] [--reading NAME]

AITER's objects take b and the scales in orders of their own, which the host makes and which are not
counted. First, both make the same products of random operands, and the results are compared. Then
comes the loop of one workgroup of 256 x 256, by the difference of 2048 and 4096 elements of k, and
then whole launches at the clock that the chip sustains, with the best of AITER's three tiles. A
launch is not counted.
"""

from __future__ import annotations

import argparse
import csv
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import amdattn
from amdattn import virtual
from amdattn.arch.props import DeviceProps
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import manifest, runtime
from amdattn.ops.gemm import mx, planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import MX, GemmProblem
from benchmarks.gemm_loop import LENGTHS
from benchmarks.gemm_many_rows import _shape, modelled

Bytes = npt.NDArray[np.uint8]
DTYPE, TILE, LANES = "float4_e2m1fn", 256, 256
TILES = ("256x256", "256x128", "128x256")
SHAPES = ((2048, 4096, 4096), (4096, 4096, 4096), (4096, 4096, 1024), (8192, 8192, 8192))
# As of gemm_peers: slots of 16 bytes: addresses of D, C, A, B; alpha, beta; strides of D, C, A, B,
# two each; M, N, K; addresses of scales of A and B; their strides, two each; log2 of splits. From
# the public launcher, csrc/py_itfs_cu/asm_gemm_a4w4.cu.
_SLOTS = "<" + "Q8x" * 4 + "f12x" * 2 + "I12x" * 8 + "I12x" * 3 + "Q8x" * 2 + "I12x" * 4 + "i"


def shuffled(scales: Bytes) -> Bytes:
    """Scales in the order that AITER's objects take, of padded rows and columns."""
    rows, columns = scales.shape
    padded = np.zeros((-(-rows // 256) * 256, -(-columns // 8) * 8), np.uint8)
    padded[:rows, :columns] = scales
    m, n = padded.shape
    tiles = padded.reshape(m // 32, 2, 16, n // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)
    return np.ascontiguousarray(tiles).reshape(m, n)


def shuffled_rows(b: Bytes) -> Bytes:
    """Rows of 16 with 32 bytes of k of each together, in two halves."""
    n, k = b.shape
    tiles = b.reshape(n // 16, 16, k // 32, 2, 16).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(tiles).reshape(n, k)


class Aiter:
    """Its kernels that take a shuffled b."""

    def __init__(self, checkout: Path, props: DeviceProps) -> None:
        folder = checkout / "hsa" / props.architecture.name / "f4gemm"
        with open(folder / "f4gemm_bf16_per1x32Fp4.csv", newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["bpreshuffle"] == "1"]
        self._kernels = {
            f"{row['tile_M']}x{row['tile_N']}": (
                (folder / row["co_name"]).read_bytes(),
                row["knl_name"],
            )
            for row in rows
        }

    def launch(
        self, tile: str, m: int, n: int, k: int, out: int, a: int, b: int, *scales: int
    ) -> Launch:
        """Of operands at these addresses."""
        image, name = self._kernels[tile]
        tile_m, tile_n = map(int, tile.split("x"))
        kernarg = struct.pack(
            _SLOTS,
            *(out, 0, a, b, 1.0, 0.0),
            *(0, 0, n, 0, k, 0, k, 0),
            *(m, n, k, *scales),
            *(-(-k // 256) * 8, 0, -(-k // 256) * 8, 0, 0),
        )
        grid = -(-n // tile_n), -(-m // tile_m), 1
        return Launch(image, name, grid, (LANES, 1, 1), kernarg)


class Product:
    """One shape: operands, ours and AITER's."""

    def __init__(self, m: int, n: int, k: int, aiter: Aiter, props: DeviceProps) -> None:
        self.problem = GemmProblem(m, n, k, DTYPE, scale_a=MX, scale_b=MX)
        self._props = props
        rng = np.random.default_rng(0)
        self.host = {
            x: rng.integers(0, 256, (r, k // 2), np.uint8) for x, r in (("a", m), ("b", n))
        }
        self.scales = {
            f"scale_{x}": rng.integers(123, 132, (len(self.host[x]), k // 32), np.uint8)
            for x in "ab"
        }
        self.ours = {name: amdattn.asarray(x) for name, x in (self.host | self.scales).items()}
        of_b = shuffled_rows(self.host["b"])
        self._kept = [amdattn.asarray(x) for x in (of_b, *map(shuffled, self.scales.values()))]
        self.out = amdattn.empty((m, n), "bfloat16")
        at = self.out.address, self.ours["a"].address, *(x.address for x in self._kept)
        self._launches = {tile: aiter.launch(tile, m, n, k, *at) for tile in TILES}

    def run_aiter(self, tile: str) -> None:
        """To `out`."""
        self._launches[tile].enqueue(Functions())

    def plan(self, kernel: str = "") -> GemmPlan:
        """With one of our kernels, or the planner's."""
        rows = [row for row in manifest.kernels() if kernel in ("", row.name)]
        return GemmPlan.of(planning.plan_gemm(self.problem, self._props, rows))

    def run_ours(self, plan: GemmPlan) -> None:
        """To `out`."""
        plan.run(out=self.out, **self.ours)

    def result(self) -> npt.NDArray[np.float64]:
        """What is in `out`."""
        runtime.synchronize()
        found: npt.NDArray[np.float64] = self.out.numpy().astype(np.float64)
        return found


def compare(product: Product) -> tuple[float, float, float]:
    """Errors of both by the largest value of float64, and the share of equal bits."""
    a, b = (mx.values(product.host[x], product.scales[f"scale_{x}"], DTYPE) for x in "ab")
    best = a @ b.T
    product.run_aiter(TILES[0])
    theirs = product.result()
    product.run_ours(product.plan())
    ours = product.result()
    size = np.abs(best).max()
    errors = [float(np.abs(x - best).max() / size) for x in (ours, theirs)]
    return errors[0], errors[1], float((ours == theirs).mean())


def lifetime(run: Any, reading: str | None) -> int:
    """Clk from the first instruction of the only workgroup to its last."""
    with virtual.profile(reading=reading) as profile:
        run()
        runtime.synchronize()
    (time,) = profile.launches[0].times
    return time.end - time.start


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, required=True, help="a checkout of AITER")
    parser.add_argument("--shapes", nargs="*", type=_shape, default=SHAPES)
    parser.add_argument("--reading", help="see docs/generated/readings.md")
    options = parser.parse_args()
    props = runtime.get().props
    aiter, console = Aiter(options.aiter, props), Console(width=110)
    of_ours, of_theirs, equal = compare(Product(512, 768, 1024, aiter, props))
    console.print(
        f"512 x 768 x 1024, error by the largest value: ours {of_ours:.3g}, AITER {of_theirs:.3g}; "
        f"{equal:.1%} of the results are equal"
    )
    square = f"gemm_nt_e2m1_mx_t{TILE}x{TILE}"
    lives = []
    for k in LENGTHS:
        one = Product(TILE, TILE, k, aiter, props)
        runs = partial(one.run_ours, one.plan(square)), partial(one.run_aiter, TILES[0])
        lives.append([lifetime(run, options.reading) for run in runs])
    rate = props.architecture.matrix_flops_per_clk * one.problem.matrix_rate
    limit = 2 * TILE * TILE * (LENGTHS[1] - LENGTHS[0]) / rate
    for whose, least, most in zip(("ours", "AITER"), *lives, strict=True):
        outside = most - (most - least) * LENGTHS[1] / (LENGTHS[1] - LENGTHS[0])
        console.print(
            f"{whose}: loop {limit / (most - least):.1%} of the limit, outside {outside:.0f} clk"
        )
    limit = props.num_cus * rate
    table = Table(title=f"{props.name}, MXFP4, modelled at {props.sustained_clock_ghz} GHz")
    for column in ("m x n x k", "kernel", "clk", "of the limit", "AITER", "its tile", "/ ours"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for m, n, k in options.shapes:
        one = Product(m, n, k, aiter, props)
        plan = one.plan()
        clk = modelled(partial(one.run_ours, plan), options.reading)
        theirs = ((modelled(partial(one.run_aiter, t), options.reading), t) for t in TILES)
        other, tile = min(theirs)
        share = one.problem.flops / limit / clk
        table.add_row(
            *(f"{m} x {n} x {k}", plan.kernel.name, f"{clk:,}", f"{share:.1%}"),
            *(f"{other:,}", tile, f"{other / clk:.3f}"),
        )
    console.print(table)


if __name__ == "__main__":
    main()
