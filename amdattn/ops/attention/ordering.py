"""The order of the tiles of few sequences of several lengths, which each workgroup finds itself.

It reads all lengths, and finds the tile that comes nth by how many keys a tile sees, most first, as
asm_src/attn/tile_order.h does it. Of each tile there is a workgroup for every head. Those of most
keys may be in parts, all in as many, if they are not more than the plan has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Argument, Launch
from amdattn.op.workspace import Region
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import column_groups
from amdattn.ops.attention.varlen_cost import (
    attends_to_itself,
    best_cut,
    is_causal,
    most_blocks,
    most_tiles,
    room_for_parts,
)

FIND_CLK = 1200  # of a workgroup
IN_ORDER = -1  # instead of whole tiles
_CLASSES_LOG2 = 6  # 2 * kTopClass of asm_src/attn/tile_order.h


@dataclass(frozen=True, slots=True)
class Order:
    """How much there may be of what.

    Attributes
    ----------
    heads : int
        Workgroups of a tile, or of a part of one.
    tiles, tiles_in_parts : int
        Of rows, at most; those of them that are in parts, if they are not more.
    parts : int
        Of each of those.
    least_class : int
        Of keys, of those; in units of ``2**class_log2``.
    """

    heads: int
    tiles: int
    tiles_in_parts: int
    parts: int
    least_class: int
    class_log2: int

    @property
    def partials(self) -> int:
        """Parts of tiles."""
        return self.tiles_in_parts * self.parts

    @property
    def merges(self) -> int:
        """Tiles in parts."""
        return self.tiles_in_parts

    @property
    def num_workgroups(self) -> int:
        """Of the attention kernel."""
        return (self.tiles + self.tiles_in_parts * (self.parts - 1)) * self.heads

    def regions(self) -> tuple[Region, ...]:
        """Nothing is written for it."""
        return ()

    def launches(self, kernels: Callable[[str], KernelSpec]) -> list[Launch]:
        """Nor is there a launch."""
        return []

    @property
    def merge_arguments(self) -> Mapping[str, Argument]:
        """Of the kernel that merges parts: it finds the tiles as they were found before."""
        return {}

    def arguments(self, inverse: tuple[int, int]) -> Mapping[str, Argument]:
        """What the attention kernel takes; `inverse` is that of `heads`."""
        return {
            "q_tiles": self.heads,
            "q_tiles_inverse": inverse[0],
            "q_tiles_shift": inverse[1],
            "whole_tiles": IN_ORDER,
            "parts": self.parts,
            "merge_tiles": self.tiles_in_parts * self.heads,
            "num_heads_q_inverse": self.least_class,
            "num_heads_q_shift": self.class_log2,
        }

    @property
    def text(self) -> str:
        """For explanations."""
        parts = "whole"
        if self.parts > 1:
            keys = self.least_class << self.class_log2
            those = f"those of {keys} keys or more" if keys else "each"
            parts = f"{those} in {self.parts} parts"
            if keys:
                parts += f" if they are up to {self.tiles_in_parts}"
        return (
            f"by each workgroup, from the lengths: up to {self.tiles} tiles of {self.heads} heads, "
            f"most keys first, {parts}"
        )


def can_order(problem: AttentionProblem, kernel: KernelSpec) -> bool:
    """Whether workgroups of a kernel find their tiles of so many sequences."""
    most = "max_ordered_sequences"
    return most in kernel.accepts and bool(problem.batch <= kernel.accepts[most])


def order_of(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> Order:
    """The order of few sequences of several lengths."""
    p = problem
    heads = p.num_heads_q * column_groups(kernel, p)
    tiles = most_tiles(p, kernel)
    keys = most_blocks(p, kernel) * kernel.tile["kv"]  # of plans alike: basis.py
    class_log2 = max(0, keys.bit_length() - _CLASSES_LOG2)
    if p.num_splits:
        return Order(heads, tiles, tiles if p.num_splits > 1 else 0, p.num_splits, 0, class_log2)
    cut = best_cut(p, kernel, props, class_log2)
    if cut.parts == 1:
        return Order(heads, tiles, 0, 1, 0, class_log2)
    room = room_for_parts(p, heads, cut.parts, props)
    in_parts = min(tiles, room, max(cut.tiles, _most_in_parts(p, kernel, cut.least_keys)))
    return Order(heads, tiles, in_parts, cut.parts, cut.least_keys >> class_log2, class_log2)


def _most_in_parts(problem: AttentionProblem, kernel: KernelSpec, least_keys: int) -> int:
    """Tiles that see so many keys; all of them, of rows that do not attend to themselves."""
    p = problem
    if not attends_to_itself(p, kernel):
        return most_tiles(p, kernel)
    rows = p.total_q * (1 - least_keys / p.seqlen_kv) if is_causal(p) else p.total_q
    return int(rows / kernel.tile["q"]) + min(p.batch, p.total_q // max(1, least_keys))
