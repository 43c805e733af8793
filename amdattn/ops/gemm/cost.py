"""The cost of a matrix product, for planning: modelled clocks, with all of their constants.

The estimates only decide between ways to do the same work. Unless a comment says otherwise,
constants were fitted to the performance model's times of the shipped kernels on an MI300X, at the
peak clock, at which kernels that wait for memory run. Rates, queues, latencies and matrix
instructions are those of the device; fitted constants are taken to be the same on every
architecture (docs/studies/gemm-design.md has the errors).
"""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.errors import ManifestError
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops.gemm import grids, tile_cost
from amdattn.ops.gemm.estimate import Estimate, Estimator, memory_rates
from amdattn.ops.gemm.problem import WORD_BYTES, GemmProblem

_LOAD_CLK = 80  # time of a load beside the latency of HBM
_LOAD_BYTES = 1024  # 16 a lane
# The time from dispatch to the first rows and from the last ones to the end, with one fragment; for
# each wave that is started; for each fragment; and if waves of a workgroup add up their sums.
_START_CLK, _WAVE_CLK, _FRAGMENT_CLK, _EXCHANGE_CLK = 2000, 5.2, 255, 543
# The part of the matrix instructions' time that nothing hides if they wait for queued loads; and
# their operations for a fragment and 8 elements a lane.
_BLOCKED_LOSS, _MATRIX_FLOPS = 0.45, 2 * 16 * 16 * 32
# For 8-bit elements: two instructions for each load, which take equally long everywhere.
_MATRIX_CLK_OF_8_BITS = 32
# HBM, the L2 and the loads of a CU overlap: the largest time counts, and more if others are near.
_OVERLAP = 10
# The part of their loads that CUs with one workgroup more make after the others have ended.
_ALONE = 0.14
# How often A is read for each time that all of it is asked for, if workgroups of a CU are apart
# from each other and the L2 does not hold what lies between them.
_PACES = 1.3
# The part of start and end of a workgroup alone on its CU that other CUs do not hide.
_IN_TURN = 0.8
# Parts along k: sums are written through, counted, and read again by the last one to arrive, for
# each part and fragment; or they are added in memory, and only the sum is read.
_SPLIT_CLK, _PART_CLK = 2360, 11
_ADD_CLK, _ADDED_CLK = 1810, 6.2
# Rounding does not make the sum of the estimate's terms larger than the estimate.
_SURELY = 1 - 1e-9
# Kernels that load element by element, compared with the others.
_ELEMENT_FACTOR = 3.6
# Their factor for operands that are stored by k, where estimates are less exact: without it, these
# kernels take 0.7 to 1.9 times the estimate. With it they are rarely slower than the kernels that
# they replace.
_BY_K_FACTOR = 1.5


@dataclass(frozen=True, slots=True)
class Cost:
    """Clocks of the slowest XCD, and their parts."""

    clk: float
    memory_clk: float  # HBM
    loads_clk: float  # of the CU with most of them
    split_clk: float
    floor_us: float  # of any kernel
    floor_of: str  # what takes so long
    clock_ghz: float  # by which clocks are time

    @property
    def us(self) -> float:
        """The estimate as a time."""
        return self.clk / self.clock_ghz / 1000

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.us:.1f} us estimated at {self.clock_ghz} GHz (HBM {self.memory_clk:.0f} clk, "
            f"loads of a CU {self.loads_clk:.0f} clk, splits {self.split_clk:.0f} clk); no kernel "
            f"takes less than {self.floor_us:.1f} us ({self.floor_of}), a launch not counted"
        )


def floor(problem: GemmProblem, props: DeviceProps) -> tuple[float, str]:
    """The time that no kernel can beat, in us, by calculation; and what bounds it.

    Either every byte goes through HBM once, or every multiplication runs on a matrix unit at the
    greatest clock, whichever takes longer. A launch is not counted, as in the estimate.
    """
    bytes_us, matrix_us = _floors(problem, props)
    return max(
        (bytes_us, "bytes through HBM"),
        (matrix_us, f"matrix units at {props.peak_clock_ghz} GHz"),
    )


def _floors(problem: GemmProblem, props: DeviceProps) -> tuple[float, float]:
    """The times of its bytes and of its multiplications, in us."""
    of_clk = props.architecture.matrix_flops_per_clk * problem.matrix_rate
    flops_per_us = 1000 * props.num_cus * of_clk * props.peak_clock_ghz
    return problem.nbytes / props.hbm_bytes_per_ns / 1000, problem.flops / flops_per_us


def clock_of(problem: GemmProblem, props: DeviceProps) -> float:
    """The clock at which all kernels of a problem are compared, in GHz.

    It is the greatest clock, unless matrix units bound the product even there: then it is the clock
    that the chip sustains.
    """
    bytes_us, matrix_us = _floors(problem, props)
    return props.peak_clock_ghz if bytes_us >= matrix_us else props.sustained_clock_ghz


def cost(
    problem: GemmProblem, kernel: KernelSpec, splits: int, columns: int, props: DeviceProps
) -> Cost:
    """Estimate for a member of the family, a number of parts and columns of a tile."""
    of_kernel = estimator(problem, kernel, props, clock_of(problem, props))
    return cost_of(of_kernel.estimate(splits, columns), problem, props)


def cost_of(estimate: Estimate, problem: GemmProblem, props: DeviceProps) -> Cost:
    """The cost of a given estimate, at the problem's clock."""
    return Cost(*estimate, *floor(problem, props), clock_of(problem, props))


def estimator(
    problem: GemmProblem, kernel: KernelSpec, props: DeviceProps, clock_ghz: float
) -> Estimator:
    """The estimator of one member; it computes what all estimates have in common.

    Times of memory are in ns, so their clk depend on the clock.
    """
    if grids.has_windows(kernel):
        return tile_cost.estimator(problem, kernel, props, clock_ghz)
    arch = props.architecture
    m, n, element_bytes = problem.m, problem.n, problem.element_bytes
    row_bytes = problem.k * element_bytes
    operands_of_column, b_rows = 1 + problem.has_factors, problem.b_rows
    num_xcds, cus = props.num_xcds, props.num_cus // props.num_xcds
    tile_m, tile_n = kernel.tile["m"], kernel.tile["n"]
    tiles_m = -(-m // tile_m)
    at_once, _ = workgroups_per_cu(kernel, props)
    hbm_bytes_per_clk, mall_bytes_per_clk = memory_rates(props, clock_ghz)

    # Loads bring whole fragments; for rows that do not exist they bring nothing.
    waves = kernel.workgroup[0] // LANES_PER_WAVE
    tile: int = kernel.params["mfma"]
    step: int = kernel.params["step"]
    depth: int = kernel.params["steps_in_flight"]
    k_of_step = step * kernel.params["waves_k"]
    # Loads of a step for one fragment.
    parts = step * tile * element_bytes // _LOAD_BYTES
    fragments = tile_m * tile_n // tile**2
    loads_of_step = parts * (tile_m + tile_n) // tile
    under_way = waves * depth * loads_of_step
    latency_of_step = waves * loads_of_step * (_LOAD_CLK + round(arch.hbm_latency_ns * clock_ghz))
    if not under_way or not fragments or parts < 1:
        raise ManifestError(
            f"kernel {kernel.name}: tile {dict(kernel.tile)} and {dict(kernel.params)} are no "
            "whole loads or fragments"
        )
    rows_asked = min(m / tiles_m, tile_m)
    matrix_clk: float = _MATRIX_CLK_OF_8_BITS
    if not problem.is_8_bit:
        matrix_clk = _MATRIX_FLOPS * arch.simds_per_cu / arch.matrix_flops_per_clk

    fixed_of_one: float = _START_CLK + _FRAGMENT_CLK * fragments + _EXCHANGE_CLK * (waves > 1)
    at_all, each = (_SPLIT_CLK, _PART_CLK) if problem.deterministic else (_ADD_CLK, _ADDED_CLK)
    # Results stay in the L2 until the end, and the launch lasts until HBM has them.
    products = problem.products
    written = products * m * n * WORD_BYTES / num_xcds / hbm_bytes_per_clk
    by_elements = kernel.accepts["k_multiple"] == 1
    factor = _ELEMENT_FACTOR if by_elements else 1
    # Lines that a load asks the L2 for: one, or two for rows that begin within a line.
    lines_bytes = row_bytes * (1 if by_elements else grids.lines_of_step(row_bytes))
    of_all = _BY_K_FACTOR if by_elements and any(problem.by_k) else 1
    k, queue, simds_per_cu = problem.k, arch.vmem_queue, arch.simds_per_cu
    l1_bytes_per_clk, tile_sums = arch.l1_bytes_per_clk, tile_m * tile_n * 4
    l2_bytes, l2_bytes_per_clk = arch.l2_bytes, arch.l2_bytes_per_clk
    at_a_time = cus * at_once  # workgroups of an XCD
    l2_write_bytes_per_clk, deterministic = arch.l2_write_bytes_per_clk, problem.deterministic

    def memory_clk(columns: int) -> float:
        """Clocks of HBM: each XCD reads its rows of B and all of A."""
        rows = -(-n // (columns * num_xcds)) * columns * operands_of_column
        return products * (min(rows, b_rows) + m) * row_bytes / hbm_bytes_per_clk

    def at_least(splits: int, columns: int) -> float:
        split = at_all + each * splits * fragments if splits > 1 else 0.0
        return (fixed_of_one + written + memory_clk(columns) + split) * _SURELY

    def estimate(splits: int, columns: int) -> Estimate:
        memory = memory_clk(columns)
        wide = -(-n // (columns * num_xcds))  # tiles of n, of an XCD
        tiles = wide * tiles_m * products
        workgroups = tiles * splits
        full, late = divmod(workgroups, cus)
        of_cu = full + (late > 0)  # of the CU with most
        resident = min(of_cu, at_once)
        asking = min(queue, resident * under_way)  # loads of the CU

        steps = -(-k // (k_of_step * splits))
        latency = steps * latency_of_step  # of a workgroup's loads, one after the other
        split = at_all + each * splits * fragments if splits > 1 else 0.0
        asked = rows_asked + columns * operands_of_column
        through_l1 = of_cu * asked * row_bytes / splits / l1_bytes_per_clk
        of_simd = max(of_cu * waves / simds_per_cu, 1)
        through_l2 = workgroups * asked * lines_bytes / splits / l2_bytes_per_clk
        read_a = tiles_m * splits  # workgroups that read all of A
        beside = at_a_time / read_a  # tiles of n that begin together
        rows_of_b = columns * operands_of_column
        if beside < wide and (m + beside * rows_of_b) * row_bytes > l2_bytes:
            # They share A, and the tiles of the next round read it once more.
            rounds, last = divmod(wide * read_a, at_a_time)
            times = rounds * min(beside, 1) + min(last / read_a, 1)
            if resident > 1:
                times = min(times * _PACES, wide)
            of_mall = products * (m * times + rows_of_b * wide) * row_bytes / mall_bytes_per_clk
            memory = max(memory, of_mall)
        matrix = of_simd * steps * parts * fragments * matrix_clk
        # On a CU with more workgroups than it holds, they run one after the other; the first start
        # and the last end are counted below.
        own = latency / min(queue, under_way) + (fixed_of_one + split) * (of_cu > at_once)
        in_turn = own * of_cu / at_once if of_cu > at_once else 0.0
        # A wave that cannot issue its next load issues no matrix instructions meanwhile.
        blocked = 1 - min(queue / (resident * under_way), 1)
        loads = max(of_cu * latency / asking, through_l1, in_turn)
        loads += _BLOCKED_LOSS * blocked * matrix
        alone = 0.0
        if full and late:
            # CUs with one workgroup more get more of HBM's bytes only if they ask for more. When
            # the others have ended, they load the rest with HBM to themselves.
            of_others = min(queue, min(full, at_once) * under_way)
            left = max(of_cu - full * asking / of_others, 0)
            alone = left * max(own - late * memory / workgroups, 0)
        memory_and_alone = memory + _ALONE * alone
        powers = memory_and_alone**_OVERLAP + loads**_OVERLAP + through_l2**_OVERLAP
        stream: float = powers ** (1 / _OVERLAP)
        if at_once == 1 < of_cu:
            # Rounds of workgroups run one after the other; each lasts as long as its slowest part.
            of_one = max(own - fixed_of_one - split, through_l1 / of_cu)
            of_each = max(memory, through_l2) / workgroups
            turns = full * max(of_one, of_each * cus) + (late > 0) * max(of_one, of_each * late)
            stream = max(stream, turns + _IN_TURN * (fixed_of_one + split) * (of_cu - 1))
        fixed = fixed_of_one + _WAVE_CLK * waves * min(workgroups, cus * at_once) + written
        if splits > 1:
            sums = tiles * (splits if deterministic else 1) * tile_sums
            split += sums / l2_write_bytes_per_clk
        return Estimate((fixed + stream * factor + split) * of_all, memory, loads, split)

    return Estimator(at_least, estimate)
