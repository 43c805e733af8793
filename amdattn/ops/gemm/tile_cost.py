"""What a product costs by a kernel for many rows: rounds of tiles over the CUs, in modelled clk.

Every constant of it is in here, as in cost.py. They were fitted to what the performance model of
the virtual device gives for the shipped kernels (docs/gemm-many-rows.md has the errors).
"""

from __future__ import annotations

from typing import NamedTuple

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops.gemm.estimate import Estimate, Estimator
from amdattn.ops.gemm.grids import WINDOW, most_columns, tiles
from amdattn.ops.gemm.problem import BLOCKS, WORD_BYTES, GemmProblem


class _Clk(NamedTuple):
    """What a tile costs beside its matrix instructions."""

    step: float  # of a step of k, of a CU that is as full as it can be
    alone: float  # of one that could hold another workgroup
    begin: float  # from dispatch to the loop
    end: float  # behind the loop


# By whether loads go straight to LDS, and fragments of a wave.
_CLK = {
    (False, 16): _Clk(0, 0, 4800, 8400),
    (False, 12): _Clk(7, 7, 4600, 7000),
    (False, 8): _Clk(40, 40, 4300, 5200),
    (False, 4): _Clk(40, 420, 5000, 4200),
    (True, 16): _Clk(5, 5, 4600, 6600),
    (True, 12): _Clk(155, 155, 4700, 5600),
    (True, 8): _Clk(80, 80, 4700, 4000),
    (True, 4): _Clk(230, 990, 4000, 3000),
}
# Of scales of blocks.
_CLK_OF_BLOCKS = {
    (False, 8): _Clk(31, 31, 5300, 5700),
    (False, 4): _Clk(33, 33, 4300, 4000),
    (True, 8): _Clk(72, 72, 5600, 5400),
    (True, 4): _Clk(204, 204, 4200, 3600),
}


def estimator(problem: GemmProblem, kernel: KernelSpec, props: DeviceProps) -> Estimator:
    """The estimate of a member; it has one way to make a product."""
    arch = props.architecture
    tile_m, tile_n, step = kernel.tile["m"], kernel.tile["n"], kernel.params["step"]
    cus = props.num_cus // props.num_xcds
    # Groups are taken to have as many rows as each other.
    products = min(problem.products, problem.m) if problem.groups else problem.products
    tiles_m, tiles_n = tiles(problem, kernel, most_columns(problem, kernel))
    if problem.groups:
        tiles_m = -(-problem.m // (products * tile_m))
    of_xcd = -(-tiles_m * tiles_n * products // props.num_xcds)
    of_cu, at_once = -(-of_xcd // cus), workgroups_per_cu(kernel, props)[0]
    side_by_side = min(of_cu, at_once)
    clk = (_CLK_OF_BLOCKS if kernel.accepts["scales"] == [BLOCKS] else _CLK)[
        kernel.params["steps_in_flight"] > 1, tile_m * tile_n // (4 * kernel.params["mfma"] ** 2)
    ]

    steps = -(-problem.k // step)
    # Steps are a cache line of each row, but of 6 bits, in which matrix instructions of most types
    # take as long as of 16 bits.
    matrix = 2 * tile_m * tile_n * step / (arch.matrix_flops_per_clk * problem.matrix_rate)
    # Of a CU that has one more than it holds at once, that one is alone for half of its time.
    beside = clk.step * of_cu
    if of_cu == 1 < at_once:
        beside = clk.alone
    elif of_cu % at_once:
        beside += (clk.alone - clk.step) / 2
    loop = steps * (of_cu * matrix + beside)
    # Of workgroups that follow each other what is outside of their loops counts each time; of
    # those side by side about once.
    outside = (clk.begin + clk.end) * (-(-of_cu // at_once))
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.num_xcds / props.peak_clock_ghz
    last = min(of_xcd - (of_cu - side_by_side) * cus, side_by_side * cus)
    written = last * tile_m * tile_n * WORD_BYTES / hbm_bytes_per_clk
    # A product's tiles are of one XCD where an XCD has several products.
    of_product = min(of_xcd, tiles_m * tiles_n)
    rows = _rows_of_xcd(tiles_m, tiles_n, tile_m, tile_n, of_product) * of_xcd / of_product
    memory = rows * problem.k_of_array * problem.element_bytes / hbm_bytes_per_clk
    total = max(loop, memory) + outside + written
    estimate = Estimate(total, memory, loop, 0.0)
    return Estimator(lambda splits, columns: total, lambda splits, columns: estimate)


def _rows_of_xcd(tiles_m: int, tiles_n: int, tile_m: int, tile_n: int, of_xcd: int) -> int:
    """Rows of A and of B that an XCD reads at least: its tiles are windows one after the other."""
    high = min(tiles_m, WINDOW)
    wide = min(tiles_n, -(-of_xcd // high))
    return high * tile_m * -(-of_xcd // (high * wide)) + wide * tile_n
