"""Estimates the time of attention on sequences of several lengths, as far as a plan can tell.

The tiles that are assumed (mix.py) each run on the slot that is free first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention.cost import block_clk, merge_clk, workgroup_clk
from amdattn.ops.attention.kv_split import MAX_PARTS, WORTH
from amdattn.ops.attention.mix import Tiles, scheduled_clk, tiles_of_mix
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import column_groups

# Of a part, of what is beside its blocks. Shorter ones are not worth it.
_LEAST_OF_PART = 2
# With so much work for every slot, in tiles of the longest sequence, the end of the launch hardly
# counts.
_LONG = 4
_OF_SCHEDULE = 8000  # clk of the kernel that writes the schedule
_ITEM_BYTES = 2  # per element that forward kernels read
# No tile is cut if parts are more: two of a CU take as long as one whole. Those under a causal mask
# differ, so that short ones fill the end.
_ROUNDS_OF_PARTS, _ROUNDS_OF_CAUSAL_PARTS = 1, 2


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut of tiles that see `least_keys` or more, `tiles` of a head, into parts.

    `clk` is estimated.
    """

    clk: float
    parts: int
    least_keys: int
    tiles: int


def slots(props: DeviceProps) -> int:
    """The slots for tiles: one per CU, because workgroups of a CU share its matrix units."""
    return props.num_cus


def has_schedules(problem: AttentionProblem, kernel: KernelSpec) -> bool:
    """Whether the device has to find the order of the tiles, if there are enough of them.

    If all sequences are as long as the longest, the plan knows their tiles.
    """
    p = problem
    if not p.varlen or kernel.accepts["max_tile_heads"] > 1:
        return False
    return (p.total_q, p.total_kv) != (p.batch * p.seqlen_q, p.batch * p.seqlen_kv)


def best_cut(
    problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps, class_log2: int = 0
) -> Cut:
    """The fastest way to cut tiles along KV.

    Parameters
    ----------
    class_log2 : int
        The number of keys from which tiles are cut is a multiple of 2 to this power.
    """
    p = problem
    heads = p.num_heads_q * column_groups(kernel, p)
    mix = tiles_of_mix(p, kernel)
    longest = most_blocks(p, kernel) * kernel.tile["kv"]

    def cut(parts: int) -> Cut:
        least = 0
        if parts > 1:
            least = min(-(-longest // parts), _worth_cutting(kernel, parts, props))
            least = least >> class_log2 << class_log2
        those = sum(some.count for some in mix if parts > 1 and some.keys >= least)
        tiles = min(math.ceil(those), most_tiles(p, kernel))
        pieces = [piece for some in mix for piece in _pieces(kernel, some, heads, parts, least)]
        merge = merge_clk(kernel, tiles * heads * parts, props) if parts > 1 else 0.0
        clk = max(scheduled_clk(pieces, slots(props)), of_bytes)
        return Cut(clk + merge, parts, least, tiles)

    of_bytes = _bytes_clk(p, heads, props)
    best = cut(1)
    for parts in range(2, most_parts(p, kernel, props) + 1):
        found = cut(parts)
        fits = 0 < found.tiles <= room_for_parts(p, heads, parts, props)
        if fits and found.clk < WORTH * best.clk:
            best = found
    return best


def room_for_parts(problem: AttentionProblem, heads: int, parts: int, props: DeviceProps) -> int:
    """The tiles of a head for which there is memory in `parts` parts."""
    rounds = _ROUNDS_OF_CAUSAL_PARTS if is_causal(problem) else _ROUNDS_OF_PARTS
    return rounds * slots(props) // (heads * parts)


def _bytes_clk(problem: AttentionProblem, heads: int, props: DeviceProps) -> float:
    """Clk to read keys and values from a cache, which parts do not shorten.

    An XCD has its share of HBM, and reads every KV head that one of its heads needs. Rows that were
    copied just before are nearer, and so may be arrays that a caller has just written.
    """
    p = problem
    if not p.gaps:
        return 0.0
    alike = heads % props.num_xcds == 0  # XCDs have the same heads of every sequence
    heads_kv = min(p.num_heads_kv, heads // props.num_xcds) if alike else p.num_heads_kv
    rows = min(p.total_kv, (p.batch - p.gaps) * p.seqlen_kv)
    if p.window[0] >= 0:
        rows = min(rows, (p.batch - p.gaps) * (p.seqlen_q + p.window[0]))
    nbytes = rows * heads_kv * (p.head_dim + p.head_dim_v) * _ITEM_BYTES
    return nbytes * props.num_xcds / props.hbm_bytes_per_ns * props.peak_clock_ghz


def _worth_cutting(kernel: KernelSpec, parts: int, props: DeviceProps) -> int:
    """The keys from which a tile is as fast in parts, if the merging launch runs anyway."""
    merge = merge_clk(kernel, parts, props) - props.architecture.launch_us * (
        1e3 * props.peak_clock_ghz
    )
    of_key = block_clk(kernel) / kernel.tile["kv"]
    return int((merge + workgroup_clk(kernel, 0)) / ((1 - 1 / parts) * of_key))


def _pieces(
    kernel: KernelSpec, tiles: Tiles, heads: int, parts: int, least_keys: int
) -> list[tuple[float, int]]:
    """The clk of workgroups, and how many there are of each."""
    if parts == 1 or tiles.keys < least_keys:
        parts = 1
    blocks = math.ceil(tiles.keys / kernel.tile["kv"])
    clk = workgroup_clk(kernel, 0) + math.ceil(blocks / parts) * block_clk(kernel)
    return [(clk, math.ceil(tiles.count * heads) * parts)]


def is_causal(problem: AttentionProblem) -> bool:
    """Whether earlier tiles of a sequence see fewer of its keys."""
    return problem.window[1] == 0


def mean_clk(problem: AttentionProblem, kernel: KernelSpec) -> float:
    """The mean clk of a whole tile."""
    mix = tiles_of_mix(problem, kernel)
    blocks = sum(some.count * some.keys for some in mix) / kernel.tile["kv"]
    return workgroup_clk(kernel, 0) + blocks / sum(some.count for some in mix) * block_clk(kernel)


def longest_clk(problem: AttentionProblem, kernel: KernelSpec) -> float:
    """The clk of the whole tile that sees most keys."""
    most = max(some.keys for some in tiles_of_mix(problem, kernel))
    return workgroup_clk(kernel, 0) + most / kernel.tile["kv"] * block_clk(kernel)


def schedule_clk(props: DeviceProps) -> float:
    """The clk of the launch that writes the schedule."""
    return _OF_SCHEDULE + props.architecture.launch_us * 1e3 * props.peak_clock_ghz


def most_tiles(problem: AttentionProblem, kernel: KernelSpec) -> int:
    """The most tiles of rows of one head."""
    p, rows = problem, kernel.tile["q"]
    sequences = min(p.batch - p.gaps, p.total_q)
    return min(sequences * -(-p.seqlen_q // rows), p.total_q // rows + sequences)


def most_blocks(problem: AttentionProblem, kernel: KernelSpec) -> int:
    """The most KV blocks of a tile."""
    return -(-problem.seqlen_kv // kernel.tile["kv"])


def attends_to_itself(problem: AttentionProblem, kernel: KernelSpec) -> bool:
    """Whether sequences have as many rows as keys, judging by the greatest lengths."""
    return -(-problem.seqlen_q // kernel.tile["kv"]) == most_blocks(problem, kernel)


def most_parts(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> int:
    """The most parts of a tile if the plan does not know the lengths; 1 if none can pay off."""
    p, outside = problem, workgroup_clk(kernel, 0)
    of_longest = most_blocks(p, kernel) * block_clk(kernel)
    if of_longest / 2 < merge_clk(kernel, 0, props):
        return 1
    if attends_to_itself(p, kernel):
        # The least work of so many rows is that of sequences that are equally long.
        length = min(p.total_q / (p.batch - p.gaps), p.seqlen_q)
        blocks = length / kernel.tile["kv"] / (2 if is_causal(p) else 1)
        if p.window[0] < 0:
            clk = p.total_q / kernel.tile["q"] * (outside + blocks * block_clk(kernel))
            if clk * p.num_heads_q / slots(props) >= _LONG * of_longest:
                return 1
    return max(1, min(MAX_PARTS, int(of_longest / (_LEAST_OF_PART * outside))))
