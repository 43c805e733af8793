"""Into how many workgroups a block of keys is split: by query heads of its group, then by rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn.arch.architectures import architecture
from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention_backward.problem import BackwardProblem

# Of a workgroup, beside its tiles, and of each further query head that it goes through, modelled:
# kernels in the order of asm_src/attn_bwd/step_order.h, and in the compiler's.
_OUTSIDE_CLK = (22000, 12000)
_ANOTHER_CLK = (5000, 0)
_NEAR = 1.07  # of the least: fewer splits are less memory
_SUM_CLK = 4000  # of a workgroup that sums splits


@dataclass(frozen=True, slots=True)
class Splits:
    """Of every block of keys.

    Attributes
    ----------
    heads : int
        Of the query heads of a group, which it divides.
    rows : int
        Of the tiles of rows that see the block; of all tiles if dq is added to in turns.
    """

    heads: int = 1
    rows: int = 1

    @property
    def count(self) -> int:
        """Workgroups of a block of keys."""
        return self.heads * self.rows

    @classmethod
    def of(cls, count: int, problem: BackwardProblem) -> Splits:
        """So many: of heads what divides both."""
        heads = math.gcd(count, problem.forward.num_heads_q // problem.forward.num_heads_kv)
        return cls(heads, count // heads)


def key_blocks(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Of the longest sequence."""
    return -(-problem.forward.seqlen_kv // kernel.tile["kv"])


def row_tiles(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Of the longest sequence."""
    return -(-problem.forward.seqlen_q // kernel.tile["q"])


def rows_of_keys(problem: BackwardProblem) -> int:
    """Of k, of all heads."""
    p = problem.forward
    return (p.total_kv or p.batch * p.seqlen_kv) * p.num_heads_kv


def blocks(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Of keys, of all heads."""
    p = problem.forward
    return p.batch * p.num_heads_kv * key_blocks(kernel, problem)


def tile_clk(kernel: KernelSpec) -> float:
    """Clocks of the matrix units for the five products of a tile of rows."""
    columns = 3 * kernel.params["head_dim"] + 2 * kernel.params["head_dim_v"]
    of_tile = 2 * kernel.tile["kv"] * kernel.tile["q"] * columns
    return float(of_tile / architecture(kernel.arch).matrix_flops_per_clk)


def sums_bytes(problem: BackwardProblem, splits: Splits) -> tuple[int, int]:
    """Memory of the float32 splits of dk and of dv: nothing of one."""
    p, rows = problem.forward, rows_of_keys(problem) * (splits.count if splits.count > 1 else 0)
    return rows * p.head_dim * 4, rows * p.head_dim_v * 4


def split_clk(
    kernel: KernelSpec, problem: BackwardProblem, splits: Splits, props: DeviceProps
) -> float:
    """Clocks of the rounds of CUs, and of the launch that sums splits."""
    p, in_turns = problem.forward, problem.deterministic
    compiled = bool(kernel.accepts["softcaps"][1])
    tiles = row_tiles(kernel, problem)
    seen = min(tiles, _rows_of_block(kernel, problem) // kernel.tile["q"] + 1)
    of_split = min(seen, -(-(tiles if in_turns else seen) // splits.rows))
    heads = p.num_heads_q // p.num_heads_kv // splits.heads
    costs = ATTENTION_KERNELS[kernel.arch]
    of_limit = costs.backward_compiled if compiled else costs.backward_ordered
    of_tile = tile_clk(kernel) * of_limit
    rounds = -(-blocks(kernel, problem) * splits.count // props.num_cus)
    outside = _OUTSIDE_CLK[compiled] + (heads - 1) * _ANOTHER_CLK[compiled]
    clk = rounds * (outside + heads * of_split * of_tile)
    if splits.count == 1:
        return clk
    bytes_per_clk = props.mall_bytes_per_ns / props.peak_clock_ghz / 2  # written and read
    launch_clk = props.architecture.launch_us * 1e3 * props.peak_clock_ghz
    return clk + launch_clk + _SUM_CLK + sum(sums_bytes(problem, splits)) / bytes_per_clk


def _rows_of_block(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """That see some key of it, at most."""
    left, right = problem.forward.window
    if left < 0 or right < 0:
        return problem.forward.seqlen_q
    return int(min(problem.forward.seqlen_q, kernel.tile["kv"] + left + right))


def best_splits(kernel: KernelSpec, problem: BackwardProblem, props: DeviceProps) -> Splits:
    """What was asked for; else the fewest of about the least time that leave one round of CUs.

    So partial sums take no more memory than those of one block of keys for every CU.
    """
    asked = problem.forward.num_splits
    if asked:
        return Splits.of(asked, problem)
    most = min(props.num_cus // blocks(kernel, problem), kernel.accepts["max_num_splits"])
    found = [Splits.of(count, problem) for count in range(1, max(1, most) + 1)]
    tiles = row_tiles(kernel, problem)
    possible = [one for one in found if one.rows <= tiles]
    clks = [split_clk(kernel, problem, one, props) for one in possible]
    return next(one for one, clk in zip(possible, clks, strict=True) if clk <= _NEAR * min(clks))
