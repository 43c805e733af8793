"""What a matrix product costs, for planning: modelled clocks, every constant of it in here.

They only decide between ways to do the same work. Except where said, they were fitted to what the
performance model of the virtual device gives for the shipped kernels on an MI300X, at the peak
clock, at which kernels that wait for memory run. Rates, queues, latencies and matrix instructions
are the device's own; what is fitted is taken to be the same on every architecture (docs/gemm.md has
the errors).
"""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops.gemm.problem import GemmProblem

_ELEMENT_BYTES = 2
_LOAD_CLK = 80  # of a load, beside the latency of HBM
_LOAD_BYTES = 1024  # 16 a lane
# From dispatch to the first rows and from the last ones to the end, with one fragment; for every
# wave that is started; for each fragment; where waves of a workgroup add up their sums.
_START_CLK, _WAVE_CLK, _FRAGMENT_CLK, _EXCHANGE_CLK = 2000, 5.2, 255, 543
# Of the matrix instructions that loads in the queue's way keep waiting, what nothing hides; and the
# operations of those for a fragment and 8 elements a lane.
_BLOCKED_LOSS, _MATRIX_FLOPS = 0.45, 2 * 16 * 16 * 32
# HBM and the loads of a CU overlap: the greater one counts, and more the nearer they are.
_OVERLAP = 6.1
# Of what CUs that have one workgroup more than others load when those are done.
_ALONE = 0.14
# Parts along k: written through, counted, read again by the last one to arrive, for each part and
# fragment; or added in memory, where only the sum is read.
_SPLIT_CLK, _PART_CLK = 2360, 11
_ADD_CLK, _ADDED_CLK = 1810, 6.2
# The kernels that load element by element, in comparison.
_ELEMENT_FACTOR = 3.6


@dataclass(frozen=True, slots=True)
class Cost:
    """Clocks of the slowest XCD, and what they are made of."""

    clk: float
    memory_clk: float  # HBM
    loads_clk: float  # of the CU with most of them
    split_clk: float
    floor_us: float  # of any kernel: bytes through HBM, or the launch
    clock_ghz: float  # the device's greatest, by which clocks are time

    @property
    def us(self) -> float:
        """The estimate as a time."""
        return self.clk / self.clock_ghz / 1000

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.us:.1f} us estimated at {self.clock_ghz} GHz (HBM {self.memory_clk:.0f} clk, "
            f"loads of a CU {self.loads_clk:.0f} clk, splits {self.split_clk:.0f} clk); no kernel "
            f"takes less than {self.floor_us:.1f} us"
        )


def floor_us(problem: GemmProblem, props: DeviceProps) -> float:
    """What no kernel can beat: every byte through HBM once, or one launch after another."""
    launch_ns = 1000 * props.architecture.launch_us
    return max(problem.nbytes / props.hbm_bytes_per_ns, launch_ns) / 1000


def cost(
    problem: GemmProblem, kernel: KernelSpec, splits: int, columns: int, props: DeviceProps
) -> Cost:
    """Estimate for a member of the family, a number of parts and columns of a tile."""
    arch = props.architecture
    rows_of_b = columns * (1 + problem.has_factors)
    row_bytes = problem.k * _ELEMENT_BYTES
    tiles_m = -(-problem.m // kernel.tile["m"])
    tiles_of_xcd = -(-problem.n // (columns * props.num_xcds))
    workgroups = tiles_of_xcd * tiles_m * splits
    cus = props.num_cus // props.num_xcds
    full, late = divmod(workgroups, cus)
    of_cu = full + (late > 0)  # of the CU with most
    at_once, _ = workgroups_per_cu(kernel, props)

    # Each XCD reads its rows of B, and all of A.
    of_xcd = (min(tiles_of_xcd * rows_of_b, problem.b_rows) + problem.m) * row_bytes
    hbm_bytes_per_clk = props.hbm_bytes_per_ns / props.num_xcds / props.peak_clock_ghz
    memory = of_xcd / hbm_bytes_per_clk

    # Loads are of whole fragments; of rows that do not exist they bring nothing.
    waves = kernel.workgroup[0] // LANES_PER_WAVE
    tile: int = kernel.params["mfma"]
    step: int = kernel.params["step"]
    load_latency = _LOAD_CLK + props.hbm_latency_clk
    waves_k: int = kernel.params["waves_k"]
    depth: int = kernel.params["steps_in_flight"]
    parts = step * tile * _ELEMENT_BYTES // _LOAD_BYTES  # loads of a step that make a fragment
    fragments = kernel.tile["m"] * kernel.tile["n"] // tile**2
    loads_of_step = parts * (kernel.tile["m"] + kernel.tile["n"]) // tile
    steps = -(-problem.k // (step * splits * waves_k))
    under_way = waves * depth * loads_of_step

    def waiting(count: int, resident: int) -> float:
        """Clk in which the loads of so many workgroups of a CU come."""
        limit = min(arch.vmem_queue, resident * under_way)
        return count * waves * steps * loads_of_step * load_latency / limit

    split = 0.0
    if splits > 1:
        at_all, each = (_SPLIT_CLK, _PART_CLK) if problem.deterministic else (_ADD_CLK, _ADDED_CLK)
        split = at_all + each * splits * fragments
    fixed: float = _START_CLK + _FRAGMENT_CLK * fragments + _EXCHANGE_CLK * (waves > 1)

    asked = min(problem.m / tiles_m, kernel.tile["m"]) + rows_of_b
    through_l1 = of_cu * asked * row_bytes / splits / arch.l1_bytes_per_clk
    of_simd = max(of_cu * waves / arch.simds_per_cu, 1)
    matrix_clk = _MATRIX_FLOPS * arch.simds_per_cu / arch.matrix_flops_per_clk
    matrix = of_simd * steps * parts * fragments * matrix_clk
    resident = min(of_cu, at_once)
    # Of a CU with more workgroups than it holds, each one's own time, one after the other; the
    # first start and the last end are counted below.
    own = waiting(1, 1) + (fixed + split) * (of_cu > at_once)
    in_turn = own * of_cu / at_once if of_cu > at_once else 0.0
    # A wave that cannot issue its next load makes no matrix instructions meanwhile.
    blocked = 1 - min(arch.vmem_queue / (resident * under_way), 1)
    loads = max(waiting(of_cu, resident), through_l1, in_turn) + _BLOCKED_LOSS * blocked * matrix
    alone = 0.0
    if full and late:
        # CUs with one more get more of HBM's bytes only if they ask for more. What is left of that
        # one when the others are done, they load with HBM to themselves.
        asking, of_others = (
            min(arch.vmem_queue, min(count, at_once) * under_way) for count in (of_cu, full)
        )
        left = max(of_cu - full * asking / of_others, 0)
        alone = left * max(own - late * memory / workgroups, 0)
    stream = ((memory + _ALONE * alone) ** _OVERLAP + loads**_OVERLAP) ** (1 / _OVERLAP)
    if kernel.accepts["k_multiple"] == 1:
        stream *= _ELEMENT_FACTOR
    fixed += _WAVE_CLK * waves * min(workgroups, cus * at_once)
    # Results are in the L2 until the end, which lasts until HBM has them.
    fixed += problem.m * problem.n * _ELEMENT_BYTES / props.num_xcds / hbm_bytes_per_clk
    if splits > 1:
        parts_there = splits if problem.deterministic else 1
        sums = tiles_of_xcd * tiles_m * parts_there * kernel.tile["m"] * kernel.tile["n"] * 4
        split += sums / arch.l2_write_bytes_per_clk
    floor = floor_us(problem, props)
    return Cost(fixed + stream + split, memory, loads, split, floor, props.peak_clock_ghz)
