"""The order of the tiles of few sequences of several lengths, which each workgroup finds itself.

A workgroup reads all lengths and finds the nth tile in the order of keys that a tile sees, most
keys first, as in asm_src/attn/tile_order.h. There is a workgroup per tile and head. Tiles with most
keys may be computed in parts, all in the same number, if the plan has room for them.
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

FIND_CLK = 1200  # for a workgroup to find its tile
IN_ORDER = -1  # instead of whole tiles
_CLASSES_LOG2 = 6  # 2 * kTopClass of asm_src/attn/tile_order.h


@dataclass(frozen=True, slots=True)
class Order:
    """The limits of an order.

    Attributes
    ----------
    heads : int
        Workgroups of a tile, or of a part of one.
    tiles, tiles_in_parts : int
        The most tiles of rows, and the most tiles that may be in parts.
    parts : int
        Parts of each tile in parts.
    least_class : int
        The least keys of a tile in parts, in units of ``2**class_log2``.
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
        """Workgroups of the attention kernel."""
        return (self.tiles + self.tiles_in_parts * (self.parts - 1)) * self.heads

    def regions(self) -> tuple[Region, ...]:
        """No regions, because nothing is written."""
        return ()

    def launches(self, kernels: Callable[[str], KernelSpec]) -> list[Launch]:
        """No launches."""
        return []

    @property
    def merge_arguments(self) -> Mapping[str, Argument]:
        """Arguments of the kernel that merges parts, which finds the tiles in the same way."""
        return {}

    def arguments(self, inverse: tuple[int, int]) -> Mapping[str, Argument]:
        """Arguments of the attention kernel; `inverse` is that of `heads`."""
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
        """The text for explanations."""
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
    """Whether workgroups of a kernel can find their tiles among this number of sequences."""
    most = "max_ordered_sequences"
    return most in kernel.accepts and bool(problem.batch <= kernel.accepts[most])


def order_of(problem: AttentionProblem, kernel: KernelSpec, props: DeviceProps) -> Order:
    """The order for few sequences of several lengths."""
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
    """The most tiles that see this many keys; all tiles unless rows attend to themselves."""
    p = problem
    if not attends_to_itself(p, kernel):
        return most_tiles(p, kernel)
    rows = p.total_q * (1 - least_keys / p.seqlen_kv) if is_causal(p) else p.total_q
    return int(rows / kernel.tile["q"]) + min(p.batch, p.total_q // max(1, least_keys))
