"""HipKittens' wave specialisation on MI355X, modelled and as its authors measured it.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.performance_model.hipkittens DIRECTORY

DIRECTORY has six code objects of HazyResearch/HipKittens that the user compiled for M 7680, N 8192
and K 6144 and 9216: 8c4p_kK.hsaco and 12c4p_kK.hsaco of `kernels/gemm/bf16fp32/mi350x/micros/
producer_consumer/16x32` (micro_02, micro_04) and 8wave_kK.hsaco of `kernels/gemm/bf16fp32/mi350x`
(256_256_64_32_with16x32), without `#pragma unroll` in front of the loop over K, which the compiler
follows for some K only. An XCD's first round of workgroups runs, one on each CU; a time is that of
as many rounds as the product has on all CUs, at the sustained clock, and the launch. Nothing is
fitted. The rate of LDS reads is open: both readings are printed.
"""

from __future__ import annotations

import argparse
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amdattn import virtual
from amdattn.arch.architectures import architecture
from amdattn.arch.products import of_arch
from amdattn.bench.clocks import clocks
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile
from benchmarks.readings import LDS
from tests.support.peers.peer_device import Kernel
from tests.support.peers.removed_barriers import KERNELS

ARCH = "gfx950"
M, N, DEPTHS = 7680, 8192, (6144, 9216)  # compiled in
_CHIP = of_arch(ARCH)
ROUND = _CHIP.cus_of_xcd  # workgroups of an XCD
FLOPS_PER_CLK = architecture(ARCH).matrix_flops_per_clk


@dataclass(frozen=True)
class Variant:
    """A kernel, and what was measured of it.

    Attributes
    ----------
    grid_of_rows : bool
        The grid has two dimensions.
    table : int
        TFLOPS of the HipKittens document, of a product that it does not name.
    figure : dict of (M, N, K) to float
        TFLOPS of `analysis/paper_experiments/producer_consumer_micro/plot.py`; of its products
        those with K beyond 4096, as the shorter ones are hardly more than a round.
    """

    name: str
    tile: tuple[int, int]
    lanes: int
    lds_bytes: int
    grid_of_rows: bool
    table: int
    figure: dict[tuple[int, int, int], float]


_SHAPES = (
    (7680, 8192, 8192),
    (7680, 7680, 7680),
    (9216, 8192, 8192),
    (9216, 9216, 9216),
)


def _figure(*tflops: float) -> dict[tuple[int, int, int], float]:
    return dict(zip(_SHAPES, tflops, strict=True))


VARIANTS = (
    Variant("8c4p", (128, 256), 768, 98304, True, 893,
            _figure(964, 872.48, 1010.59, 900.17)),
    Variant("12c4p", (192, 256), 1024, 160000, True, 1278,
            _figure(1251.18, 1128.48, 1229.37, 1129.15)),
    Variant("8wave", (256, 256), 512, 160000, False, 1610,
            _figure(1521.94, 1443.73, 1490.14, 1418.23)),
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Clk of a workgroup: `base` and so many for each row of K."""

    base: float
    clk: float

    @classmethod
    def of(cls, means: tuple[float, float]) -> Cost:
        """From two depths."""
        clk = (means[1] - means[0]) / (DEPTHS[1] - DEPTHS[0])
        return cls(means[0] - clk * DEPTHS[0], clk)

    def use(self, variant: Variant) -> float:
        """Share of the loop in which the matrix units work."""
        return 2 * math.prod(variant.tile) / FLOPS_PER_CLK / self.clk

    def tflops(self, variant: Variant, shape: tuple[int, int, int], ghz: float) -> float:
        """Of a whole product."""
        m, n, k = shape
        rounds = math.ceil((m // variant.tile[0]) * (n // variant.tile[1]) / _CHIP.num_cus)
        us = rounds * (self.base + self.clk * k) / ghz / 1000 + architecture(ARCH).launch_us
        return 2 * m * n * k / us / 1e6


def profile(directory: Path, variant: Variant, depth: int, lds: str) -> LaunchProfile:
    """A round of an XCD."""
    image = (directory / f"{variant.name}_k{depth}.hsaco").read_bytes()
    symbol = next(name for name in KERNELS if name + b"\0" in image).decode()
    device, shapes = runtime.get(), ((M, depth), (N, depth), (M, N))
    at = [device.malloc(2 * rows * columns) for rows, columns in shapes]
    tensors = zip(at, shapes, strict=True)
    block = b"".join(struct.pack("<5Q8x", a, 1, 1, *shape) for a, shape in tensors) + bytes(8)
    rows, columns = M // variant.tile[0], N // variant.tile[1]
    grid = (columns, rows, 1) if variant.grid_of_rows else (rows * columns, 1, 1)
    with virtual.profile(simulated_workgroups=ROUND, reading=LDS[lds]) as found:
        Kernel(image, symbol).launch(grid, variant.lanes, block, variant.lds_bytes)
    for address in at:
        device.free(address)
    return found.launches[0]


def mean_clk(found: LaunchProfile) -> float:
    """Of a workgroup."""
    return sum(time.end - time.start for time in found.times) / len(found.times)


def costs(directory: Path, lds: str) -> Iterator[tuple[Variant, Cost]]:
    """Of every variant."""
    for variant in VARIANTS:
        short, long = (mean_clk(profile(directory, variant, depth, lds)) for depth in DEPTHS)
        yield variant, Cost.of((short, long))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    ghz = clocks(ARCH).sustained_ghz
    for lds in LDS:
        for variant, cost in costs(directory, lds):
            each = f"{cost.base:.0f} clk and {64 * cost.clk:.0f} for 64 of K"
            print(f"{variant.name}, LDS {lds}: {each},")
            print(f"  {cost.use(variant):.1%} of them matrix; TFLOPS at {ghz} GHz / published:")
            for shape in _SHAPES:
                modelled, seen = cost.tflops(variant, shape, ghz), variant.figure[shape]
                print(f"  {shape}: {modelled:.0f} / {seen:.0f} ({modelled / seen - 1:+.1%})")
            whole = cost.tflops(variant, _SHAPES[0], ghz)
            print(f"  the document's table: {variant.table} ({whole / variant.table - 1:+.1%})")


if __name__ == "__main__":
    main()
