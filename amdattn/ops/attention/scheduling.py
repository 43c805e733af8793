"""The order of the tiles of sequences of several lengths, which only the device knows.

With few sequences each workgroup finds its own tile (ordering.py). With more, a launch of one
workgroup (asm_src/kernels/attn_schedule.hip) reads the lengths and writes an entry for every tile,
those with most keys first, with long tiles cut along KV if that is faster. For each entry the
attention kernel has one workgroup per head. The plan limits the number of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Address, Argument, Launch
from amdattn.op.workspace import Region
from amdattn.ops.attention.cost import block_clk, merge_clk, workgroup_clk
from amdattn.ops.attention.ordering import FIND_CLK, Order, can_order, order_of
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import column_groups
from amdattn.ops.attention.varlen_cost import (
    has_schedules,
    longest_clk,
    mean_clk,
    most_blocks,
    most_parts,
    most_tiles,
    schedule_clk,
    slots,
)

# Values of KernelSpec.op, and of KernelSpec.grid.
SCHEDULE, SCHEDULE_GRID = "attn_schedule", "one_workgroup"
ENTRIES, MERGES = "schedule", "schedule_of_merges"  # regions
ENTRY_BYTES = 32  # AttnScheduleEntry of asm_src/attn/schedule_entry.h
_CLASSES = 256  # of lengths: kClasses of asm_src/kernels/attn_schedule.hip
# Parts may take up to this many rounds; each has memory for its partial result.
_ROUNDS_OF_PARTS = 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """The limits of a schedule.

    Attributes
    ----------
    heads : int
        Workgroups of an entry.
    tiles, entries, merges, partials : int
        The most tiles of rows, entries (whole tiles and parts), tiles in parts, and parts.
    parts : int
        The most parts of a tile; with `num_splits` the parts of every tile.
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
        """Workgroups of the attention kernel."""
        return self.entries * self.heads

    def regions(self) -> tuple[Region, ...]:
        """Regions of the workspace for the schedule."""
        merges = (Region(MERGES, self.merges * ENTRY_BYTES),) if self.merges else ()
        return (Region(ENTRIES, self.entries * ENTRY_BYTES), *merges)

    def launches(self, kernels: Callable[[str], KernelSpec]) -> list[Launch]:
        """The launch that writes the schedule; `kernels` returns the kernel of an operation."""
        kernel = kernels(SCHEDULE)
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
            "slots": slots(props),
            "max_parts": self.parts,
            "num_splits": p.num_splits,
            "class_shift": (most_blocks(p, of) // _CLASSES).bit_length(),
            "block_clk": block_clk(of),
            "workgroup_clk": workgroup_clk(of, edges),
            # The launch is made in any case.
            "merge_clk": merge - launch_clk,
            "partial_clk": merge_clk(of, 1, props) - merge,
        }
        written = frozenset({region.name for region in self.regions()})
        return [Launch(kernel, (1, 1, 1), kernel.kernarg.filled(values), written)]

    @property
    def merge_arguments(self) -> Mapping[str, Argument]:
        """Arguments of the kernel that merges parts that differ from the attention kernel's."""
        return {"cu_seqlens_q": Address(MERGES)}

    def arguments(self, inverse: tuple[int, int]) -> Mapping[str, Argument]:
        """Arguments of the attention kernel instead of lengths; `inverse` is that of `heads`."""
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
        """The text for explanations."""
        parts = "whole"
        if self.problem.num_splits > 1:
            parts = f"each in {self.parts} parts"
        elif self.parts > 1:
            parts = f"the longest in up to {self.parts} parts if that is faster"
        return (
            f"by the device, from the lengths: up to {self.tiles} tiles of {self.heads} heads, "
            f"most keys first, {parts}; up to {self.entries} entries"
        )


def schedule_for(
    problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps
) -> Schedule | Order | None:
    """The way to find the order of sequences of several lengths; None if it is not worth it."""
    if not has_schedules(problem, kernel):
        return None
    p = problem
    heads = p.num_heads_q * column_groups(kernel, p)
    tiles = most_tiles(p, kernel)
    launch_clk = schedule_clk(props)
    order, find_clk = None, FIND_CLK * max(1, tiles * heads / slots(props))
    if can_order(p, kernel) and find_clk < launch_clk:
        order = order_of(p, kernel, props)
    parts = order.parts if order else p.num_splits or most_parts(p, kernel, props)
    if parts == 1 or p.num_splits:
        # Of what has no rows, too: XCDs have neighbours of such a grid, and some little else.
        padded = -(-p.seqlen_q // kernel.tile["q"]) * p.batch
        of_mean, of_longest = mean_clk(p, kernel), longest_clk(p, kernel)
        without = -(-padded * heads * parts // slots(props)) * of_mean + of_longest - of_mean
        least = max(tiles * heads * parts * of_mean / slots(props), of_longest)
        if without <= least + (find_clk if order else launch_clk):
            return None
    if order:
        return order
    partials = 0
    if p.num_splits > 1:
        partials = tiles * parts
    elif parts > 1:
        partials = min(tiles * parts, _ROUNDS_OF_PARTS * slots(props) // heads)
        if partials < 2:
            parts, partials = 1, 0
    return Schedule(p, kernel, props, heads, tiles, parts, partials)
