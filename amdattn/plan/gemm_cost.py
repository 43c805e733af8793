"""What a matrix product costs, for planning: modelled clocks, every constant of it in here.

They only decide between ways to do the same work. Except where said, they are what the performance
model of the virtual device gives for the shipped kernels at the peak clock, at which kernels that
wait for memory run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn.device import LANES_PER_WAVE, DeviceProps
from amdattn.gemm_problem import GemmProblem
from amdattn.manifest import KernelSpec
from amdattn.plan.occupancy import workgroups_per_cu

_ELEMENT_BYTES = 2
PEAK_CLOCK_GHZ = 2.1
HBM_BYTES_PER_NS = 4200  # sustained reads of the device
LAUNCH_NS = 2700  # between two kernels of a stream
_L1_BYTES_PER_CLK = 64  # of a CU
_L2_WRITE_BYTES_PER_CLK = 594  # of an XCD
_LOADED_BYTES = 65536  # under way in a CU
_LEAST_LATENCY_CLK = 1130  # of a load from HBM
# What streams lose against HBM's rate; for every doubling of the small tiles that share rows of B;
# matrix instructions of a lone workgroup against its loads.
_HBM_LOSS, _SHARED_LOSS, _MATRIX_LOSS = 1.0, 0.055, 0.315
# For each further workgroup of a CU, where several read the same rows of B: the L2 forgets them.
_DRIFT_LOSS = 0.15
# From dispatch to the first loads and from the last ones to the end: one fragment of 16 x 16
# results a wave, and each further one.
_WORKGROUP_CLK, _FRAGMENT_CLK = 1740, 235
_ROUND_SHARE = 1.1  # of that, where workgroups start when others end
_EMPTY_STEP_CLK = 115  # of a fragment
# Partial results: written through, counted, read again by the last to arrive.
_SPLIT_CLK, _PART_CLK, _SPLIT_FRAGMENT_CLK = 1820, 80, 65
# The kernels that load element by element, in comparison.
_ELEMENT_FACTOR = 4.0
_TILE = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """Clocks of the slowest XCD, and what they are made of."""

    clk: float
    memory_clk: float  # HBM
    loads_clk: float  # of the CU with most of them
    split_clk: float
    floor_us: float  # of any kernel: bytes through HBM, or the launch

    def text(self) -> str:
        """One line for people."""
        us = self.clk / PEAK_CLOCK_GHZ / 1000
        return (
            f"{us:.1f} us estimated at {PEAK_CLOCK_GHZ} GHz (HBM {self.memory_clk:.0f} clk, loads "
            f"of a CU {self.loads_clk:.0f} clk, splits {self.split_clk:.0f} clk); no kernel takes "
            f"less than {self.floor_us:.1f} us"
        )


def floor_us(problem: GemmProblem) -> float:
    """What no kernel can beat: every byte through HBM once, or one launch after another."""
    return max(problem.nbytes / HBM_BYTES_PER_NS, LAUNCH_NS) / 1000


def cost(
    problem: GemmProblem, kernel: KernelSpec, splits: int, columns: int, props: DeviceProps
) -> Cost:
    """Estimate for a member of the family, a number of parts and columns of a tile."""
    tile_m, tile_n = kernel.q_tile, columns * (1 + problem.has_factors)
    tiles_m, tiles_n = -(-problem.m // tile_m), -(-problem.n // columns)
    row_bytes = problem.k * _ELEMENT_BYTES
    tiles_of_xcd = -(-tiles_n // props.num_xcds)
    workgroups = tiles_of_xcd * tiles_m * splits
    cus = props.num_cus // props.num_xcds
    # Each XCD reads its rows of B, and all of A.
    of_xcd = (min(tiles_of_xcd * tile_n, problem.b_rows) + problem.m) * row_bytes
    hbm_rate = HBM_BYTES_PER_NS / props.num_xcds / PEAK_CLOCK_GHZ
    memory = of_xcd / hbm_rate
    sharing = max(math.log2(tiles_m * _TILE**2 / (tile_m * tile_n)), 0.0)
    memory *= _HBM_LOSS + _SHARED_LOSS * sharing
    of_workgroup = (tile_m + tile_n) * row_bytes / splits  # rows that do not exist are loads, too

    def loading(active: int) -> float:
        """Clk of a workgroup while so many CUs load: the more for HBM is under way, the later."""
        in_flight = active * _LOADED_BYTES * tile_n / (tile_m + tile_n) / tiles_m
        latency = max(_LEAST_LATENCY_CLK, in_flight / hbm_rate)
        return of_workgroup / min(_L1_BYTES_PER_CLK, _LOADED_BYTES / latency)

    waves = kernel.workgroup[0] // LANES_PER_WAVE
    whole, late = divmod(workgroups, cus)  # all CUs have some; the late ones one more
    loads = whole * loading(cus) + (loading(late) if late else 0.0)
    # 16 x 16 x 16 elements take 16 clk of a SIMD.
    matrix = tile_m * tile_n * problem.k / splits / _TILE**2 / waves
    fragments = tile_m * tile_n // _TILE**2
    fixed = _WORKGROUP_CLK + _FRAGMENT_CLK * (fragments - 1)
    # The loop is unrolled as often as steps are in flight: the last round may be half empty.
    depth = kernel.constraint("steps_in_flight")
    steps = -(-problem.k // (kernel.constraint("step") * splits * kernel.constraint("waves_k")))
    fixed += _EMPTY_STEP_CLK * fragments * (-steps % depth)
    per_cu, _ = workgroups_per_cu(kernel, props)
    rounds = -(-workgroups // (per_cu * cus))
    fixed *= 1 + _ROUND_SHARE * (rounds - 1)
    split = 0.0
    if splits > 1:
        partial = workgroups * tile_m * tile_n * 4
        split = _SPLIT_CLK + _PART_CLK * splits + _SPLIT_FRAGMENT_CLK * fragments
        split += partial / _L2_WRITE_BYTES_PER_CLK
    alone = loading(late) if whole and late else 0.0  # when the others have ended
    stream = max(memory, memory * (1 - late / workgroups) + alone, loads + _MATRIX_LOSS * matrix)
    if tiles_m > 1:  # tiles that share rows of B drift apart where CUs have several
        stream *= 1 + _DRIFT_LOSS * max(workgroups / cus - 1, 0.0)
    if kernel.constraint("k_multiple") == 1:
        stream *= _ELEMENT_FACTOR
    return Cost(fixed + stream + split, memory, loads, split, floor_us(problem))
