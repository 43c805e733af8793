"""What attention of sequences of several lengths takes, as far as the plan can tell: estimates.

It knows how many sequences there are, the greatest lengths and the sums of all.
"""

from __future__ import annotations

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention.cost import block_clk, merge_clk, workgroup_clk
from amdattn.ops.attention.kv_split import MAX_PARTS, WORTH
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import column_groups

# Of a part, of what is beside its blocks. Shorter ones are not worth it.
_LEAST_OF_PART = 2
# With so much work for every slot, in tiles of the longest sequence, the end of the launch hardly
# counts.
_LONG = 4
_OF_SCHEDULE = 8000  # clk of its kernel
_END = 0.15  # of the longest tile: what the end of a launch takes longer


def slots(props: DeviceProps) -> int:
    """What tiles take turns on: workgroups of a CU share its matrix units, one after another."""
    return props.num_cus


def has_schedules(problem: AttentionProblem, kernel: KernelSpec) -> bool:
    """Whether the device has to find the order of the tiles, if there are enough of them.

    Not of sequences that all are as long as the longest: the plan knows their tiles.
    """
    p = problem
    if not p.varlen or kernel.accepts["max_tile_heads"] > 1:
        return False
    return (p.total_q, p.total_kv) != (p.batch * p.seqlen_q, p.batch * p.seqlen_kv)


def best_parts(
    problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps
) -> tuple[float, int]:
    """The least clk of attention, and in how many parts the longest tiles are then.

    Of one sequence of the greatest length, which there is, and others that are equally long.
    """
    p, num_slots = problem, slots(props)
    heads = p.num_heads_q * column_groups(kernel, p)
    rows = min(p.seqlen_q, p.total_q)
    of_longest = tile_clk(p, kernel, p.seqlen_kv)
    tiles = -(-rows // kernel.tile["q"]) * heads
    work = tiles * of_longest
    if p.batch > 1:
        mean = (p.total_q - rows) / (p.batch - 1)
        others = ((p.total_q - rows) / kernel.tile["q"] + (p.batch - 1) / 2) * heads
        work += others * tile_clk(p, kernel, min(mean, p.seqlen_kv))
    outside = workgroup_clk(kernel, 0)
    # Under a causal mask it has twice the mean number of blocks.
    longest = outside + (of_longest - outside) * (2 if is_causal(p) else 1)

    def clk(parts: int) -> float:
        rounds = 1 if is_causal(p) else -(-tiles * parts // num_slots)
        of_part = outside + (longest - outside) / parts
        merge = merge_clk(kernel, tiles * parts, props) if parts > 1 else 0.0
        busy = work + tiles * (parts - 1) * outside
        return max(busy / num_slots + _END * of_part, rounds * of_part) + merge

    most = most_parts(p, kernel, props)
    return min((clk(parts) / (WORTH if parts > 1 else 1), parts) for parts in range(1, most + 1))


def is_causal(problem: AttentionProblem) -> bool:
    """Whether tiles see half of the keys in the mean."""
    return problem.window[1] == 0


def mean_keys(problem: AttentionProblem) -> float:
    """Of a sequence."""
    return min(problem.total_q / problem.batch, problem.seqlen_kv)


def tile_clk(problem: AttentionProblem, kernel: KernelSpec, keys: float) -> float:
    """Of a whole tile that may see so many keys, or of the mean one under a causal mask."""
    blocks = keys / kernel.tile["kv"] / (2 if is_causal(problem) else 1)
    return workgroup_clk(kernel, 0) + blocks * block_clk(kernel)


def schedule_clk(props: DeviceProps) -> float:
    """Of the launch that makes it."""
    return _OF_SCHEDULE + props.architecture.launch_us * 1e3 * props.peak_clock_ghz


def most_tiles(problem: AttentionProblem, kernel: KernelSpec) -> int:
    """Of rows, of one head, at most."""
    p, rows = problem, kernel.tile["q"]
    return min(p.batch * -(-p.seqlen_q // rows), p.total_q // rows + min(p.batch, p.total_q))


def most_blocks(problem: AttentionProblem, kernel: KernelSpec) -> int:
    """KV blocks of a tile."""
    return -(-problem.seqlen_kv // kernel.tile["kv"])


def attends_to_itself(problem: AttentionProblem, kernel: KernelSpec) -> bool:
    """Whether sequences have as many rows as keys, as far as the greatest lengths tell."""
    return -(-problem.seqlen_q // kernel.tile["kv"]) == most_blocks(problem, kernel)


def most_parts(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> int:
    """Of a tile, where the plan does not know the lengths: 1 where none can be worth it."""
    p, outside = problem, workgroup_clk(kernel, 0)
    of_longest = most_blocks(p, kernel) * block_clk(kernel)
    if of_longest / 2 < merge_clk(kernel, 0, props):
        return 1
    if attends_to_itself(p, kernel):
        # The least work of so many rows is that of sequences that are equally long.
        length = min(p.total_q / p.batch, p.seqlen_q)
        blocks = length / kernel.tile["kv"] / (2 if is_causal(p) else 1)
        if p.window[0] < 0:
            clk = p.total_q / kernel.tile["q"] * (outside + blocks * block_clk(kernel))
            if clk * p.num_heads_q / slots(props) >= _LONG * of_longest:
                return 1
    return max(1, min(MAX_PARTS, int(of_longest / (_LEAST_OF_PART * outside))))
