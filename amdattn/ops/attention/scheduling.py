"""The order of the tiles of sequences of several lengths, which only the device knows.

A launch of one workgroup (asm_src/kernels/attn_schedule.hip) reads the lengths, and writes an entry
for every tile that there is, those of most keys first, and long ones cut along KV where that is
faster. Each entry is as many workgroups of the attention kernel as there are heads. The plan says
how many entries there may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Address, Argument, Launch
from amdattn.op.workspace import Region
from amdattn.ops.attention.cost import block_clk, merge_clk, workgroup_clk
from amdattn.ops.attention.kv_split import MAX_PARTS
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import column_groups

# Of KernelSpec.op, and of KernelSpec.grid.
SCHEDULE, SCHEDULE_GRID = "attn_schedule", "one_workgroup"
ENTRIES, MERGES = "schedule", "schedule_of_merges"  # regions
ENTRY_BYTES = 32  # AttnScheduleEntry of asm_src/attn/schedule_entry.h
_CLASSES = 256  # of lengths: kClasses of asm_src/kernels/attn_schedule.hip
# Parts that take up to so many rounds; each has memory for its partial result.
_ROUNDS_OF_PARTS = 2
# Of a part, of what is beside its blocks. Shorter ones are not worth it.
_LEAST_OF_PART = 2
# With so much work for every slot, in tiles of the longest sequence, the end of the launch hardly
# counts.
_LONG = 4
_OF_SCHEDULE = 8000  # clk of its kernel
_END = 0.15  # of the longest tile: what the end of a launch takes longer


@dataclass(frozen=True, slots=True)
class Schedule:
    """How much there may be of what.

    Attributes
    ----------
    heads : int
        Workgroups of an entry.
    tiles, entries, merges, partials : int
        Tiles of rows; what is computed of them at once; of those, tiles in parts, and their parts.
    parts : int
        Of a tile, at most; with `num_splits` of every one.
    """

    problem: AttentionProblem
    kernel: KernelSpec
    props: DeviceProps
    heads: int
    tiles: int
    parts: int
    partials: int

    @property
    def entries(self) -> int:
        """Whole tiles and parts."""
        return self.partials if self.problem.num_splits > 1 else self.tiles + self.partials

    @property
    def merges(self) -> int:
        """Tiles in parts."""
        return self.tiles if self.problem.num_splits > 1 else self.partials // 2

    @property
    def num_workgroups(self) -> int:
        """Of the attention kernel."""
        return self.entries * self.heads

    def regions(self) -> tuple[Region, ...]:
        """What the schedule is written to."""
        merges = (Region(MERGES, self.merges * ENTRY_BYTES),) if self.merges else ()
        return (Region(ENTRIES, self.entries * ENTRY_BYTES), *merges)

    def launch(self, kernel: KernelSpec) -> Launch:
        """The launch that writes it."""
        kernel.check_grid(SCHEDULE_GRID)
        p, props, of = self.problem, self.props, self.kernel
        edges = sum(side >= 0 for side in p.window)
        launch_clk = props.architecture.launch_us * 1e3 * props.peak_clock_ghz
        merge = merge_clk(of, 0, props)
        values: dict[str, Argument] = {
            "cu_seqlens_q": Address("cu_seqlens_q"),
            "cu_seqlens_kv": Address("cu_seqlens_kv"),
            "entries": Address(ENTRIES),
            "merges": Address(MERGES) if self.merges else 0,
            **{name: getattr(p, name) for name in ("batch", "seqlen_q", "seqlen_kv")},
            **dict(zip(("window_left", "window_right"), p.window, strict=True)),
            "top_left": int(p.top_left),
            "tile_q": of.tile["q"],
            "kv_tile_log2": of.tile["kv"].bit_length() - 1,
            "max_entries": self.entries,
            "max_merges": self.merges,
            "max_partials": self.partials,
            "heads": self.heads,
            "slots": _slots(props),
            "max_parts": self.parts,
            "num_splits": p.num_splits,
            "class_shift": (_most_blocks(p, of) // _CLASSES).bit_length(),
            "block_clk": block_clk(of),
            "workgroup_clk": workgroup_clk(of, edges),
            # The launch is there in any case.
            "merge_clk": merge - launch_clk,
            "partial_clk": merge_clk(of, 1, props) - merge,
        }
        args = tuple((name, values[name]) for name, *_ in kernel.kernarg.fields)
        return Launch(
            kernel, (1, 1, 1), args, frozenset({region.name for region in self.regions()})
        )

    def arguments(self, inverse: tuple[int, int]) -> Mapping[str, Argument]:
        """What the attention kernel takes instead of lengths; `inverse` is that of `heads`."""
        return {
            "cu_seqlens_q": Address(ENTRIES),
            "cu_seqlens_kv": 0,
            "q_tiles": self.heads,
            "q_tiles_inverse": inverse[0],
            "q_tiles_shift": inverse[1],
            "whole_tiles": 0,
        }

    @property
    def text(self) -> str:
        """For explanations."""
        parts = "whole"
        if self.problem.num_splits > 1:
            parts = f"each in {self.parts} parts"
        elif self.parts > 1:
            parts = f"the longest in up to {self.parts} parts if that is faster"
        return (
            f"by the device, from the lengths: up to {self.tiles} tiles of {self.heads} heads, "
            f"most keys first, {parts}; up to {self.entries} entries"
        )


def _slots(props: DeviceProps) -> int:
    """What tiles take turns on: workgroups of a CU share its matrix units, one after another."""
    return props.num_cus


def schedule_for(
    problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps
) -> Schedule | None:
    """The schedule of sequences of several lengths, if it is worth its launch."""
    if not has_schedules(problem, kernel):
        return None
    slots = _slots(props)
    p = problem
    heads = p.num_heads_q * column_groups(kernel, p)
    tiles = _most_tiles(p, kernel)
    parts = p.num_splits or _most_parts(p, kernel, props)
    if parts == 1 or p.num_splits:
        padded = -(-p.seqlen_q // kernel.tile["q"]) * p.batch
        of_mean, of_longest = (_tile_clk(p, kernel, n) for n in (_mean_keys(p), p.seqlen_kv))
        without = -(-padded * heads * parts // slots) * of_mean + of_longest - of_mean
        scheduled = _schedule_clk(props) + max(tiles * heads * parts * of_mean / slots, of_longest)
        if without <= scheduled:
            return None
    partials = 0
    if p.num_splits > 1:
        partials = tiles * parts
    elif parts > 1:
        partials = min(tiles * parts, _ROUNDS_OF_PARTS * slots // heads)
        if partials < 2:
            parts, partials = 1, 0
    return Schedule(p, kernel, props, heads, tiles, parts, partials)


def has_schedules(problem: AttentionProblem, kernel: KernelSpec) -> bool:
    """Whether the device has to find the order of the tiles, if there are enough of them.

    Not of sequences that all are as long as the longest: the plan knows their tiles.
    """
    p = problem
    if not p.varlen or kernel.accepts["max_tile_heads"] > 1:
        return False
    return (p.total_q, p.total_kv) != (p.batch * p.seqlen_q, p.batch * p.seqlen_kv)


def estimated_clk(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> float:
    """Of attention with a schedule; to compare kernels.

    Of one sequence of the greatest length, which there is, and others that are equally long. As the
    schedule has it: the longest tiles in the number of parts for which the least is estimated.
    """
    p, slots = problem, _slots(props)
    heads = p.num_heads_q * column_groups(kernel, p)
    rows = min(p.seqlen_q, p.total_q)
    of_longest = _tile_clk(p, kernel, p.seqlen_kv)
    tiles = -(-rows // kernel.tile["q"]) * heads
    work = tiles * of_longest
    if p.batch > 1:
        mean = (p.total_q - rows) / (p.batch - 1)
        others = ((p.total_q - rows) / kernel.tile["q"] + (p.batch - 1) / 2) * heads
        work += others * _tile_clk(p, kernel, min(mean, p.seqlen_kv))
    outside = workgroup_clk(kernel, 0)
    # Under a causal mask it has twice the mean number of blocks.
    longest = outside + (of_longest - outside) * (2 if _is_causal(p) else 1)

    def clk(parts: int) -> float:
        rounds = 1 if _is_causal(p) else -(-tiles * parts // slots)
        of_part = outside + (longest - outside) / parts
        merge = merge_clk(kernel, tiles * parts, props) if parts > 1 else 0.0
        busy = work + tiles * (parts - 1) * outside
        return max(busy / slots + _END * of_part, rounds * of_part) + merge

    return min(map(clk, range(1, _most_parts(p, kernel, props) + 1)))


def _is_causal(problem: AttentionProblem) -> bool:
    return problem.window[1] == 0


def _mean_keys(problem: AttentionProblem) -> float:
    return min(problem.total_q / problem.batch, problem.seqlen_kv)


def _tile_clk(problem: AttentionProblem, kernel: KernelSpec, keys: float) -> float:
    blocks = keys / kernel.tile["kv"] / (2 if _is_causal(problem) else 1)
    return workgroup_clk(kernel, 0) + blocks * block_clk(kernel)


def _schedule_clk(props: DeviceProps) -> float:
    """Of the launch that makes it."""
    return _OF_SCHEDULE + props.architecture.launch_us * 1e3 * props.peak_clock_ghz


def _most_tiles(problem: AttentionProblem, kernel: KernelSpec) -> int:
    p, rows = problem, kernel.tile["q"]
    return min(p.batch * -(-p.seqlen_q // rows), p.total_q // rows + min(p.batch, p.total_q))


def _most_blocks(problem: AttentionProblem, kernel: KernelSpec) -> int:
    """KV blocks of a tile."""
    return -(-problem.seqlen_kv // kernel.tile["kv"])


def _most_parts(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> int:
    """Of a tile, where the plan does not know the lengths: 1 where none can be worth it."""
    p, outside = problem, workgroup_clk(kernel, 0)
    of_longest = _most_blocks(p, kernel) * block_clk(kernel)
    if of_longest / 2 < merge_clk(kernel, 0, props):
        return 1
    if -(-p.seqlen_q // kernel.tile["kv"]) == _most_blocks(p, kernel):  # rows attend to themselves
        # The least work of so many rows is that of sequences that are equally long.
        length = min(p.total_q / p.batch, p.seqlen_q)
        blocks = length / kernel.tile["kv"] / (2 if _is_causal(p) else 1)
        if p.window[0] < 0:
            clk = p.total_q / kernel.tile["q"] * (outside + blocks * block_clk(kernel))
            if clk * p.num_heads_q / _slots(props) >= _LONG * of_longest:
                return 1
    return max(1, min(MAX_PARTS, int(of_longest / (_LEAST_OF_PART * outside))))
