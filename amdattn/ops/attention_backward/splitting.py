"""Decides into how many workgroups a block of keys is split: by query heads, then by rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from amdattn.arch.architectures import architecture
from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention_backward.problem import BackwardProblem

# Modelled costs of a workgroup in addition to its tiles, and of each further query head that it
# processes, for kernels in the order of asm_src/attn_bwd/step_order.h and in the compiler's order.
_OUTSIDE_CLK = (22000, 12000)
_ANOTHER_CLK = (5000, 0)
_EMPTY_CLK = 1500  # of a workgroup beyond the keys of its sequence
_SUM_CLK = 9000  # of the launch that sums splits, in addition to its reads: 6000, and some more
_NEAR = 1.02  # times within this factor of the least count as equal: fewer splits take less memory
_ROUNDS = 4  # partial sums may take the memory of the blocks of keys of this many rounds of CUs
_MOST_IN_ORDER = 1024  # sequences; each is compared with all others
_SHORT = 4  # other sequences have on average at most this fraction of the longest one's rows
MOST_ROWS = 2**31 - 1  # of all heads, because their number has 32 bits


@dataclass(frozen=True, slots=True)
class Splits:
    """The splits of every block of keys.

    Attributes
    ----------
    heads : int
        Parts of the query heads of a group; a divisor of their number.
    rows : int
        Parts of the tiles of rows that see the block; of all tiles if dq is added to in turns.
    whole_blocks : int
        This many first blocks, those of complete rounds of CUs, are not split.
    whole_rows : int
        Blocks of sequences with at most this many rows are not split either; -1: all are split.
    """

    heads: int = 1
    rows: int = 1
    whole_blocks: int = 0
    whole_rows: int = -1

    @property
    def count(self) -> int:
        """Workgroups per block of keys."""
        return self.heads * self.rows

    @property
    def some_are_whole(self) -> bool:
        """Whether there are blocks that write dk and dv themselves."""
        return self.count == 1 or self.whole_blocks > 0 or self.whole_rows >= 0

    @classmethod
    def of(cls, count: int, problem: BackwardProblem) -> Splits:
        """`count` splits, as many of them as possible by heads."""
        heads = math.gcd(count, problem.forward.num_heads_q // problem.forward.num_heads_kv)
        return cls(heads, count // heads)


def in_order(problem: BackwardProblem) -> bool:
    """Whether sequences are processed in the order of their numbers of rows, longest first."""
    p = problem.forward
    return p.varlen and 1 < p.batch <= _MOST_IN_ORDER


def key_blocks(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Blocks of keys of the longest sequence."""
    return -(-problem.forward.seqlen_kv // kernel.tile["kv"])


def row_tiles(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Tiles of rows of the longest sequence."""
    return -(-problem.forward.seqlen_q // kernel.tile["q"])


def rows_of_keys(problem: BackwardProblem) -> int:
    """Rows of k in all heads."""
    p = problem.forward
    return (p.total_kv or p.batch * p.seqlen_kv) * p.num_heads_kv


def first_split_row(
    kernel: KernelSpec, problem: BackwardProblem, splits: Splits, heads_at_once: int
) -> int:
    """The number, among the keys of all heads, of the first key of a head with a split block."""
    before = splits.whole_blocks // (key_blocks(kernel, problem) * heads_at_once) * heads_at_once
    return before * problem.forward.seqlen_kv


def blocks(kernel: KernelSpec, problem: BackwardProblem) -> int:
    """Blocks of keys in all heads."""
    p = problem.forward
    return p.batch * p.num_heads_kv * key_blocks(kernel, problem)


def tile_clk(kernel: KernelSpec) -> float:
    """Clk of the matrix units for the five products of a tile of rows."""
    columns = 3 * kernel.params["head_dim"] + 2 * kernel.params["head_dim_v"]
    of_tile = 2 * kernel.tile["kv"] * kernel.tile["q"] * columns
    return float(of_tile / architecture(kernel.arch).matrix_flops_per_clk)


def sums_bytes(problem: BackwardProblem, splits: Splits) -> tuple[int, int]:
    """Bytes of the float32 partial sums of dk and of dv; 0 without splits."""
    p, rows = problem.forward, rows_of_keys(problem) * (splits.count if splits.count > 1 else 0)
    return rows * p.head_dim * 4, rows * p.head_dim_v * 4


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks of keys of sequences that count as equally long."""

    count: int
    most: float  # tiles of rows that see a block
    mean: float
    rows: float  # of q, per sequence


def _sequences(kernel: KernelSpec, problem: BackwardProblem) -> list[_Blocks]:
    """All sequences; if lengths differ, the longest one, and as many others as may remain."""
    p = problem.forward
    if not p.varlen or p.total_kv >= p.batch * p.seqlen_kv:
        return [_blocks_of(kernel, problem, blocks(kernel, problem), p.seqlen_q)]
    of_longest = key_blocks(kernel, problem)
    others, keys = p.batch - 1, max(0, p.total_kv - p.seqlen_kv)
    parts = min(others * of_longest, keys // kernel.tile["kv"] + min(others, keys))
    rows = max(0, p.total_q - p.seqlen_q) / max(1, min(others, keys))
    return [
        _blocks_of(kernel, problem, of_longest * p.num_heads_kv, p.seqlen_q),
        _blocks_of(kernel, problem, parts * p.num_heads_kv, rows),
    ]


def _blocks_of(kernel: KernelSpec, problem: BackwardProblem, count: int, rows: float) -> _Blocks:
    p, of_tile = problem.forward, kernel.tile["q"]
    left, right = p.window
    most = rows
    if left >= 0 and right >= 0:
        most = min(rows, kernel.tile["kv"] + left + right)
    pairs = p.batch * p.num_heads_q * p.seqlen_q * p.seqlen_kv * 2 * (p.head_dim + p.head_dim_v)
    seen = p.flops / pairs if pairs else 1.0
    mean = min(most, rows * seen + (kernel.tile["kv"] / 2 if seen < 1 else 0))
    tiles = row_tiles(kernel, problem)
    return _Blocks(
        count, min(tiles, most / of_tile + (most < rows)), min(tiles, mean / of_tile), rows
    )


def split_clk(
    kernel: KernelSpec, problem: BackwardProblem, splits: Splits, props: DeviceProps
) -> float:
    """Modelled clk of the main launch, and of the launch that sums splits.

    Equal workgroups run in rounds of CUs. Unequal ones fill the CUs, except for half a workgroup at
    the end.
    """
    p = problem.forward
    compiled = bool(kernel.accepts["softcaps"][1])
    costs = ATTENTION_KERNELS[kernel.arch]
    of_tile = tile_clk(kernel) * (costs.backward_compiled if compiled else costs.backward_ordered)
    tiles = row_tiles(kernel, problem)
    longest = busy = half = 0.0
    workgroups = 0
    sequences = _sequences(kernel, problem)
    for one in sequences:
        own = splits if one.rows > splits.whole_rows else Splits()
        heads = p.num_heads_q // p.num_heads_kv // own.heads
        outside = _OUTSIDE_CLK[compiled] + (heads - 1) * _ANOTHER_CLK[compiled]
        # If dq is added to in turns, rows are split at the same places in all blocks.
        of_all = tiles if problem.deterministic and own.rows > 1 else one.most
        of_split = min(math.ceil(one.most), math.ceil(of_all / own.rows))
        longest = max(longest, outside + heads * of_split * of_tile)
        mean = outside + heads * one.mean / own.rows * of_tile
        busy += one.count * own.count * mean / props.num_cus
        half = max(half, mean / 2)
        workgroups += one.count * own.count
    # With one length and without a mask all workgroups are equal.
    alike = sequences[0].mean == sequences[0].most
    behind = sequences[0].count - splits.whole_blocks
    rounds = -(-behind * splits.count // props.num_cus) if alike else 1
    clk = rounds * longest
    if splits.whole_blocks:
        whole = split_clk(kernel, problem, Splits(), props)
        clk += whole * splits.whole_blocks / props.num_cus / -(-sequences[0].count // props.num_cus)
    if workgroups > props.num_cus and not (alike and len(sequences) == 1):
        clk = max(clk, busy + half)
    clk += (blocks(kernel, problem) * splits.count - workgroups) * _EMPTY_CLK / props.num_cus
    if splits.count == 1:
        return clk
    # Writes overlap with products of other workgroups; the launch that sums them reads them.
    read_ns = sum(sums_bytes(problem, splits)) / props.hbm_bytes_per_ns
    if splits.whole_rows >= 0 and p.total_kv:  # only those of the longest sequence
        read_ns *= min(1.0, p.seqlen_kv / p.total_kv)
    read_ns *= behind / sequences[0].count
    launch_ns = props.architecture.launch_us * 1e3
    return clk + _SUM_CLK + (launch_ns + read_ns) * props.sustained_clock_ghz


def best_splits(kernel: KernelSpec, problem: BackwardProblem, props: DeviceProps) -> Splits:
    """The requested splits; by default the fewest whose time is close to the least.

    Partial sums may take as much memory as those of the blocks of keys of some rounds of CUs, or as
    float32 sums of dq, whichever is more.
    """
    asked, p = problem.forward.num_splits, problem.forward
    if asked:
        return Splits.of(asked, problem)
    of_row = 4 * (p.head_dim + p.head_dim_v)
    of_rounds = _ROUNDS * props.num_cus * kernel.tile["kv"] * of_row
    of_dq = (p.total_q or p.batch * p.seqlen_q) * p.num_heads_q * p.head_dim * 4
    rows = max(1, rows_of_keys(problem))
    most = min(
        max(of_rounds, of_dq) // (rows * of_row),
        kernel.accepts["max_num_splits"],
        kernel.accepts["max_workgroups"] // max(1, blocks(kernel, problem)),
        row_tiles(kernel, problem) * (p.num_heads_q // p.num_heads_kv),
    )
    if rows > MOST_ROWS:
        most = 1
    found = [Splits.of(count, problem) for count in range(1, max(1, most) + 1)]
    tiles = row_tiles(kernel, problem)
    possible = [one for one in found if one.rows <= tiles]
    several = [one for one in possible if one.count > 1]
    whole_blocks = blocks(kernel, problem) // props.num_cus * props.num_cus
    if p.varlen and _SHORT * (p.total_q - p.seqlen_q) <= (p.batch - 1) * p.seqlen_q:
        # Sequences whose blocks take no longer than a split of the longest one's; half of that if a
        # block processes several heads.
        of_split = [p.seqlen_q // max(2, one.count * min(2, one.heads)) for one in several]
        pairs = zip(several, of_split, strict=True)
        possible += [replace(one, whole_rows=rows) for one, rows in pairs if rows > 0]
    elif not p.varlen and p.window == (-1, -1) and whole_blocks:  # others are part of a round
        possible += [replace(one, whole_blocks=whole_blocks) for one in several]
    clks = {one: split_clk(kernel, problem, one, props) for one in possible}
    near = [one for one in possible if clks[one] <= _NEAR * min(clks.values())]
    return min(near, key=lambda one: (one.count, clks[one]))
