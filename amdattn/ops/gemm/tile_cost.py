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
from amdattn.ops.gemm.grids import WINDOW, chunk, most_columns, tiles
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
    (False, 14): _Clk(7, 7, 4700, 7700),
    (False, 12): _Clk(7, 7, 4600, 7000),
    (False, 8): _Clk(40, 40, 4300, 5200),
    (False, 7): _Clk(40, 40, 4300, 4700),
    (False, 4): _Clk(40, 420, 5000, 4200),
    (True, 16): _Clk(5, 5, 4600, 6600),
    (True, 14): _Clk(60, 60, 4700, 6100),
    (True, 12): _Clk(155, 155, 4700, 5600),
    (True, 10): _Clk(100, 100, 4700, 4800),
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

_LATE = 0.65  # of what the last round writes: what is still to be written when its tiles end
# Of what is outside of loops: what no other workgroup of the CU hides, as `_CLK`.
_OUTSIDE_ALONE = {False: 0.43, True: 0.6}


# Of parts along k: the counter, and by fragment of a wave what is written, and read of each part.
_ARRIVE_CLK, _STORE_CLK, _ADD_CLK = 4000, 300, 500


def estimator(problem: GemmProblem, kernel: KernelSpec, props: DeviceProps) -> Estimator:
    """The estimate of a member, which has one width of tiles."""
    arch = props.architecture
    tile_m, tile_n, step = kernel.tile["m"], kernel.tile["n"], kernel.params["step"]
    cus = props.num_cus // props.num_xcds
    # Groups are taken to have as many rows as each other.
    products = min(problem.products, problem.m) if problem.groups else problem.products
    tiles_m, tiles_n = tiles(problem, kernel, most_columns(problem, kernel))
    if problem.groups:
        tiles_m = -(-problem.m // (products * tile_m))
    at_once = workgroups_per_cu(kernel, props)[0]
    is_direct = kernel.params["steps_in_flight"] > 1
    fragments = tile_m * tile_n // (4 * kernel.params["mfma"] ** 2)
    clk = (_CLK_OF_BLOCKS if kernel.accepts["scales"] == [BLOCKS] else _CLK)[is_direct, fragments]

    all_steps = -(-problem.k // step)
    # Steps are a cache line of each row, but of 6 bits, in which matrix instructions of most types
    # take as long as of 16 bits.
    matrix = 2 * tile_m * tile_n * step / (arch.matrix_flops_per_clk * problem.matrix_rate)
    alone = _OUTSIDE_ALONE[is_direct] if at_once > 1 else 1
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.num_xcds / props.peak_clock_ghz

    def at_least(splits: int, columns: int) -> float:
        return clk.begin + clk.end + (_ARRIVE_CLK if splits > 1 else 0)

    def estimate(splits: int, columns: int) -> Estimate:
        of_xcd = -(-tiles_m * tiles_n * products * splits // props.num_xcds)
        of_cu = -(-of_xcd // cus)
        side_by_side = min(of_cu, at_once)
        steps = -(-all_steps // splits)
        # Of a CU that has one more than it holds at once, that one is alone for half of its time.
        beside = clk.step * of_cu
        if of_cu == 1 < at_once:
            beside = clk.alone
        elif of_cu % at_once:
            beside += (clk.alone - clk.step) / 2
        loop = steps * (of_cu * matrix + beside)
        # Of workgroups that follow each other what is outside of their loops counts each time; of
        # those side by side once, and of later ones in part: the others' loops go on beside it.
        outside = (clk.begin + clk.end) * (1 + alone * (-(-of_cu // at_once) - 1))
        last = min(of_xcd - (of_cu - side_by_side) * cus, side_by_side * cus)
        written = _LATE * last * tile_m * tile_n * WORD_BYTES / hbm_bytes_per_clk / splits
        # A product's tiles are of one XCD where an XCD has several products, or parts of k.
        of_product = min(of_xcd, tiles_m * tiles_n)
        rows = _rows_of_xcd(tiles_m, tiles_n, tile_m, tile_n, of_product, chunk(kernel, props)) * (
            of_xcd / of_product
        )
        memory = rows * problem.k_of_array * problem.element_bytes / hbm_bytes_per_clk / splits
        split = 0.0
        if splits > 1:
            split = _ARRIVE_CLK + fragments * (_STORE_CLK + splits * _ADD_CLK)
        return Estimate(max(loop, memory) + outside + written + split, memory, loop, split)

    return Estimator(at_least, estimate)


def _rows_of_xcd(
    tiles_m: int, tiles_n: int, tile_m: int, tile_n: int, of_xcd: int, chunk: int
) -> int:
    """Rows of A and of B that an XCD reads at least: those of each run of tiles of a window."""
    high, run = min(tiles_m, WINDOW), min(chunk, of_xcd)
    wide = min(tiles_n, -(-run // high))
    of_run = high * tile_m * -(-run // (high * wide)) + wide * tile_n
    return of_run * -(-of_xcd // run)
