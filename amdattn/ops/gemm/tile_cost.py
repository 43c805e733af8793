"""The cost of a product by kernels for many rows: rounds of tiles over the CUs, modelled.

Rates, latencies and matrix instructions are those of the device, at the given clock. As in cost.py,
all fitted constants are here; they were fitted to the performance model's times of the shipped
kernels (docs/studies/gemm-many-rows-plans.md has the errors).
"""

from __future__ import annotations

from typing import NamedTuple

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops.gemm.estimate import Estimate, Estimator, memory_rates
from amdattn.ops.gemm.grids import (
    WINDOW,
    chunk,
    lines_of_step,
    most_columns,
    steps as steps_of,
    tiles,
)
from amdattn.ops.gemm.problem import BLOCKS, SCALES_OF_ROWS, WORD_BYTES, GemmProblem


class _Clk(NamedTuple):
    """Constants of kernels that load in the same way.

    Attributes
    ----------
    begin, latencies, fill : float
        The time from a workgroup's start to its loop: clk, latencies of HBM, and parts of the time
        in which a step's rows come from HBM.
    end, fragment, any_fragment, active_fragment, element_fragment : float
        The time after the loop; for each fragment of a wave; and in addition for results of another
        type, for activated ones, and for those that are stored one by one.
    scales, more_scales, block_scales : float
        The time for scales of rows or of a whole operand; in addition for widths that are no
        multiple of those that the end of a tile handles at a time; and for scales of blocks.
    wait, queue, l1 : float
        A load's time beyond the latency: clk, and parts of the time that a step takes the L2 and
        the L1.
    l2 : float
        The inverse of the part of its rate that the L2 reaches when it is always busy.
    again : float
        The part of the time outside of loops that no other workgroup of the CU hides.
    late : float
        The part of what the last round writes that is still to be written when its tiles end.
    arrive, arrive_latencies, through, add, sums, own : float
        Parts along k: the counter, in clk and latencies; parts of the time in which HBM takes the
        partial sums; latencies of the last level cache for each part and four fragments; parts of
        the time in which that cache brings the sums, and of the time of the L1 of the workgroup
        that adds.
    """

    begin: float
    latencies: float
    fill: float
    end: float
    fragment: float
    any_fragment: float
    active_fragment: float
    element_fragment: float
    scales: float
    more_scales: float
    block_scales: float
    wait: float
    queue: float
    l1: float
    l2: float
    again: float
    late: float
    arrive: float
    arrive_latencies: float
    through: float
    add: float
    sums: float
    own: float


# By whether loads go straight to LDS.
_CLK = {
    False: _Clk(
        *(3670, 0.68, 0.84, 810, 450, 573, 2170, 858, 3290, 7200, 3140),
        *(549, 0.07, 0.3, 0.936, 0.89, 1.15, 1270, 0, 1.1, 0.49, 0.18, 1.29),
    ),
    True: _Clk(
        *(2410, 0, 1.1, 700, 436, 786, 1712, 559, 3107, 6375, 2666),
        *(534, 0.114, 0, 0.944, 1, 1.265, 1740, 1.66, 0.525, 0.565, 0.67, 1.23),
    ),
}
# Clk of a step beside its matrix instructions, by loads and by fragments of a wave.
_STEP_CLK = {
    **{(False, 4): 42, (False, 7): 61, (False, 8): 30, (False, 12): 32, (False, 14): 17},
    **{(False, 16): 0, (True, 4): 74, (True, 8): 107, (True, 10): 96, (True, 12): 99},
    **{(True, 14): 25, (True, 16): 0},
}
_STEP_CLK_OF_BLOCKS = {(False, 4): 5, (False, 8): 23, (True, 4): 185, (True, 8): 111}

# Waits of a step overlap: the largest counts, and more if others are near.
_OVERLAP = 12
_ADDED_AT_ONCE = 4  # fragments, as in asm_src/gemm_tiles/splits.h
_SCALED_AT_ONCE = 128  # columns
_WHOLE = 8  # results that are stored together, if rows are multiples of it


def _tiles_m(problem: GemmProblem, products: int, tile_m: int) -> float:
    """Tiles along m of a product; the average for groups, whose sizes the host does not know."""
    if problem.groups and not problem.groups_share_k:
        # If groups have more rows than a tile, their last tiles are half full on average.
        return max(1, problem.m / (products * tile_m) + (tile_m - 1) / (2 * tile_m))
    return -(-problem.m // tile_m)


def estimator(
    problem: GemmProblem, kernel: KernelSpec, props: DeviceProps, clock_ghz: float
) -> Estimator:
    """The estimator of a member, which has one width of tiles."""
    arch = props.architecture
    tile_m: int = kernel.tile["m"]
    tile_n: int = kernel.tile["n"]
    step: int = kernel.params["step"]
    cus = props.num_cus // props.num_xcds
    groups_rows = problem.groups and not problem.groups_share_k
    products = min(problem.products, problem.m) if groups_rows else problem.products
    tiles_n = tiles(problem, kernel, most_columns(problem, kernel))[1]
    tiles_m = _tiles_m(problem, products, tile_m)
    of_product = tiles_m * tiles_n
    at_once = workgroups_per_cu(kernel, props)[0]
    most = chunk(kernel, props)  # side by side on an XCD
    stages: int = kernel.params["steps_in_flight"]
    is_direct = stages > 1
    again = _CLK[is_direct].again if at_once > 1 else 1
    fragments: int = tile_m * tile_n // (4 * kernel.params["mfma"] ** 2)
    clk = _CLK[is_direct]
    has_blocks = kernel.accepts["scales"] == [BLOCKS]
    # Steps whose loads are under way while one is worked on.
    ahead = stages - 1 if is_direct else 1 + has_blocks
    beside: float = (_STEP_CLK_OF_BLOCKS if has_blocks else _STEP_CLK)[is_direct, fragments]

    all_steps = steps_of(problem, kernel)
    # A step is a cache line of each row, except for 6 bits. In it, matrix instructions of most
    # types take as long as those of 16 bits.
    matrix: float = 2 * tile_m * tile_n * step / (arch.matrix_flops_per_clk * problem.matrix_rate)
    element_bytes = problem.element_bytes
    step_bytes: float = step * element_bytes * problem.k_of_array / problem.k if problem.k else 0
    hbm_bytes_per_clk, mall_bytes_per_clk = memory_rates(props, clock_ghz)
    latency, mall_latency = arch.hbm_latency_ns * clock_ghz, arch.mall_latency_ns * clock_ghz
    row_bytes = problem.k_of_array * element_bytes
    lines = lines_of_step(row_bytes) if not any(problem.by_k) else 1
    through_l2: float = clk.l2 * (tile_m + tile_n) * step_bytes * lines / arch.l2_bytes_per_clk
    through_l1 = clk.l1 * (tile_m + tile_n) * step_bytes / arch.l1_bytes_per_clk
    out_bytes = 4 if problem.out_dtype == "float32" else WORD_BYTES
    tile_clk = tile_m * tile_n * out_bytes / hbm_bytes_per_clk  # of what is written
    started = arch.first_fetch_clk + arch.dispatch_wave_clk / 2 * (
        kernel.workgroup[0] // LANES_PER_WAVE * min(most, -(-of_product * products // 8))
    )

    is_whole = problem.n % _WHOLE == 0
    is_own = problem.out_dtype == (problem.dtype if element_bytes > 1 else "bfloat16")
    of_fragment = clk.fragment
    if problem.activation:
        of_fragment += clk.active_fragment / (1 + problem.has_factors)
    if not (is_whole and is_own) or problem.activation or problem.adds:
        of_fragment += clk.any_fragment
    if not is_whole:
        of_fragment += clk.element_fragment
    end: float = clk.end + of_fragment * fragments
    if problem.scale_a in SCALES_OF_ROWS or problem.scale_b in SCALES_OF_ROWS:
        end += clk.scales + clk.more_scales * (tile_n % _SCALED_AT_ONCE > 0)
    elif has_blocks:
        end += clk.block_scales
    begin: float = clk.begin + clk.latencies * latency

    def rows_of(workgroups: float) -> float:
        """Rows of A and B that a number of tiles have that follow each other in a window."""
        run = min(workgroups, of_product)
        high = min(run, tiles_m, WINDOW)
        wide = min(tiles_n, -(-run // high))
        of_run = high * tile_m * -(-run // (high * wide)) + wide * tile_n
        return of_run * workgroups / run

    def step_clk(of_cu: float, workgroups: float) -> tuple[float, float]:
        """Clk of a step of a number of tiles side by side; and the clk that its rows take HBM."""
        memory = rows_of(workgroups) * step_bytes / hbm_bytes_per_clk
        l2 = workgroups * through_l2
        arrives = latency + clk.wait + clk.queue * l2 + of_cu * through_l1
        work = of_cu * (matrix + beside)
        each = work**_OVERLAP + memory**_OVERLAP + l2**_OVERLAP + (arrives / ahead) ** _OVERLAP
        slowest: float = each ** (1 / _OVERLAP)
        return slowest, memory

    arrives_clk = clk.arrive + clk.arrive_latencies * latency
    part_clk = clk.add * mall_latency * -(-fragments // _ADDED_AT_ONCE)
    part_clk += clk.own * tile_m * tile_n * 4 / arch.l1_bytes_per_clk

    def at_least(splits: int, columns: int) -> float:
        split = arrives_clk + splits * part_clk if splits > 1 else 0.0
        return started + begin + end + split

    def estimate(splits: int, columns: int) -> Estimate:
        workgroups = -(-of_product * products * splits // props.num_xcds)  # of an XCD
        rounds = -(-workgroups // most)
        last = workgroups - (rounds - 1) * most
        steps = -(-all_steps // splits)
        of_last, filled = step_clk(-(-last // cus), last)
        loop, memory = steps * of_last, steps * filled
        if rounds > 1:
            of_step, filled = step_clk(at_once, most)
            loop += (rounds - 1) * steps * of_step
            memory += (rounds - 1) * steps * filled
        outside = (begin + clk.fill * filled + end) * (1 + again * (rounds - 1))
        written = clk.late * last * tile_clk / splits
        split = 0.0
        if splits > 1:
            side_by_side = min(workgroups, most)
            # An XCD's share of the last level cache holds the sums that all of them write.
            held = props.mall_bytes / props.num_xcds**2
            sums = side_by_side * tile_m * tile_n * 4
            split = arrives_clk + splits * part_clk + clk.through * sums / hbm_bytes_per_clk
            split += clk.sums * sums / (hbm_bytes_per_clk if sums > held else mall_bytes_per_clk)
        return Estimate(started + loop + outside + written + split, memory, loop, split)

    return Estimator(at_least, estimate)
