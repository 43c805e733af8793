"""The rows and keys that each workgroup of an attention launch computes.

The kernels derive this from their index (asm_src/attn/work.h); this module does so for planning,
explanations and tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Launch
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import column_groups, tile_heads

# The order of the tiles is made for this many XCDs, whatever the device has.
GRID_XCDS = 8


class WorkItem(NamedTuple):
    """One workgroup: a tile of query rows of one head, and the range of its KV blocks."""

    batch: int
    head: int
    q_begin: int
    kv_begin: int  # in blocks
    kv_end: int
    part: int  # index of the partial result, -1 if the result is final
    column_group: int
    heads: int = 1  # from `head` on


@dataclass(frozen=True, slots=True)
class WorkMap:
    """The work items of a problem.

    Attributes
    ----------
    problem : AttentionProblem
    q_tile, kv_tile : int
        Rows of a tile and of a KV block.
    whole_tiles : int
        Tiles computed by one workgroup; those after them are computed in parts.
    parts : int
        Workgroups of each tile that is not whole.
    part_blocks : int
        Blocks of each part of a tile except the last; the first parts of all tiles come first.
        0: parts are equal, and those of a tile follow each other.
    column_groups : int
        Tiles of the same rows, each with a share of the columns of O. They follow each other like
        heads.
    tile_heads : int
        Query heads of a tile, which share a KV head. If there are several, the parts of a tile are
        not along KV: each has some of the heads, and its result is final.
    heads_at_once : int
        Under a mask, the longest tiles of this many heads come first, then the next shorter ones.
    in_pairs : bool
        Whether the number of such chunks of heads is even: CUs that had the short tiles of one
        chunk get the long ones of the next. The last chunk also has the remaining heads.
    """

    problem: AttentionProblem
    q_tile: int
    kv_tile: int
    whole_tiles: int
    parts: int
    column_groups: int = 1
    tile_heads: int = 1
    heads_at_once: int = 8 * GRID_XCDS
    in_pairs: bool = False
    part_blocks: int = 0

    @staticmethod
    def of_kernel(
        problem: AttentionProblem,
        kernel: KernelSpec,
        whole_tiles: int = 0,
        parts: int = 1,
        part_blocks: int = 0,
    ) -> WorkMap:
        """The work items of a problem that a kernel solves."""
        groups = column_groups(kernel, problem)
        heads = tile_heads(kernel, problem)
        order = ATTENTION_KERNELS[kernel.arch]
        tile = kernel.tile
        q_tiles = -(-problem.seqlen_q // tile["q"])
        at_once = max(order.heads_of_xcd, order.tiles_of_xcd >> (q_tiles - 1).bit_length())
        cut = whole_tiles, parts, groups, heads
        ordered = at_once * GRID_XCDS, order.tiles_of_xcd > 0
        return WorkMap(problem, tile["q"], tile["kv"], *cut, *ordered, part_blocks)

    @staticmethod
    def of(problem: AttentionProblem, launch: Launch) -> WorkMap:
        """The work items of a planned launch."""
        args = dict(launch.args)
        cut = []
        for name in ("whole_tiles", "parts", "part_blocks"):
            value = args[name]
            assert isinstance(value, int)
            cut.append(value)
        return WorkMap.of_kernel(problem, launch.kernel, *cut)

    @property
    def q_tiles(self) -> int:
        """Tiles of each head."""
        return -(-self.problem.seqlen_q // self.q_tile)

    @property
    def heads(self) -> int:
        """Heads of the whole batch, or groups of those of a tile, one for each column group."""
        return self.problem.batch * self.problem.num_heads_q * self.column_groups // self.tile_heads

    @property
    def tiles(self) -> int:
        """Tiles of all heads."""
        return self.heads * self.q_tiles

    @property
    def num_workgroups(self) -> int:
        """Size of the grid."""
        return self.whole_tiles + (self.tiles - self.whole_tiles) * self.parts

    @property
    def by_length(self) -> bool:
        """Whether the longest tiles of all heads come first, and not one head after the other."""
        return self.problem.window != (-1, -1)

    @property
    def last_chunk(self) -> tuple[int, int]:
        """Under a mask: chunks of `heads_at_once` before the last one, and the heads of that."""
        full = self.heads // self.heads_at_once
        if self.in_pairs:
            before = max(full // 2 * 2 - 1, 0)
        else:
            before = (self.heads - 1) // self.heads_at_once
        return before, self.heads - before * self.heads_at_once

    def runs(self) -> list[tuple[int, int]]:
        """KV blocks of the tiles in their order, as (how many tiles, blocks of each of them)."""
        if not self.by_length:
            return [(self.tiles, -(-self.problem.seqlen_kv // self.kv_tile))]
        begins = range((self.q_tiles - 1) * self.q_tile, -1, -self.q_tile)
        ranges = visible_blocks(self.problem, self.q_tile, self.kv_tile, begins)
        blocks = [end - begin for begin, end in ranges]
        last, left = self.last_chunk
        counts = [self.heads_at_once] * last + [left]
        return [(count, of_tile) for count in counts for of_tile in blocks]

    def tile(self, nth: int) -> tuple[int, int]:
        """The nth tile in the order of the work: its head (of `heads`), and its number there."""
        if self.by_length:
            return self._longest_first(nth)
        return divmod(self._renumbered(nth), self.q_tiles)

    def _renumbered(self, nth: int) -> int:
        """Give every XCD a contiguous range of whole tiles, so that those of a head share an L2."""
        first, count = 0, self.whole_tiles
        if nth >= count:
            if not self.part_blocks:
                return nth
            first, count = count, self.tiles - count
        nth -= first
        xcd = nth % GRID_XCDS
        in_range = xcd * (count // GRID_XCDS) + min(xcd, count % GRID_XCDS) + nth // GRID_XCDS
        return first + in_range

    def _longest_first(self, nth: int) -> tuple[int, int]:
        """Order long tiles first, so that short ones fill the end, for some heads at a time."""
        last, left = self.last_chunk
        chunk = min(nth // (self.heads_at_once * self.q_tiles), last)
        count = self.heads_at_once if chunk < last else left
        in_chunk = nth - chunk * self.heads_at_once * self.q_tiles
        from_last, head = divmod(in_chunk, count)
        if count % GRID_XCDS == 0:  # adjacent heads, which may share a KV head, on one XCD
            head = head % GRID_XCDS * (count // GRID_XCDS) + head // GRID_XCDS
        return chunk * self.heads_at_once + head, self.q_tiles - 1 - from_last

    def item(self, workgroup: int) -> WorkItem:
        """What workgroup number `workgroup` computes, with sequences of the full lengths."""
        whole = self.whole_tiles
        if self.tile_heads > 1:
            return self._item_of_heads(workgroup)
        nth, part, of_tile, parts = workgroup, -1, 0, 1
        if workgroup >= whole:
            part, parts = workgroup - whole, self.parts
            of_tile, in_parts = part % parts, part // parts
            if self.part_blocks:
                of_tile, in_parts = divmod(part, self.tiles - whole)
                part = in_parts * parts + of_tile
            nth = whole + in_parts
        group_head, tile = self.tile(nth)
        sequence_head, column_group = divmod(group_head, self.column_groups)
        batch, head = divmod(sequence_head, self.problem.num_heads_q)
        q_begin = tile * self.q_tile
        ((begin, end),) = visible_blocks(self.problem, self.q_tile, self.kv_tile, [q_begin])
        blocks = end - begin
        cuts = [blocks * (of_tile + n) // parts for n in range(2)]
        if self.part_blocks:
            cuts = [(of_tile + n) * self.part_blocks for n in range(2)]
            cuts[1] = cuts[1] if of_tile + 1 < parts else blocks
        return WorkItem(
            batch,
            head,
            q_begin,
            begin + cuts[0],
            begin + cuts[1],
            part,
            column_group,
        )

    def _item_of_heads(self, workgroup: int) -> WorkItem:
        """The item if tiles have several heads: all first parts, then all second ones, ..."""
        whole, part, parts, nth = self.whole_tiles, 0, 1, workgroup
        if workgroup >= whole:
            part, of_part = divmod(workgroup - whole, self.tiles - whole)
            nth, parts = whole + of_part, self.parts
        heads = self.tile_heads // parts
        group, tile = self.tile(nth)
        batch, head = divmod(group * self.tile_heads, self.problem.num_heads_q)
        q_begin = tile * self.q_tile
        ((begin, end),) = visible_blocks(self.problem, self.q_tile, self.kv_tile, [q_begin])
        return WorkItem(batch, head + part * heads, q_begin, begin, end, -1, 0, heads)


def visible_blocks(
    problem: AttentionProblem, q_tile: int, kv_tile: int, begins: Iterable[int]
) -> list[tuple[int, int]]:
    """KV blocks that tiles beginning at these rows must go over, as (begin, end), begin <= end."""
    left, right = problem.window
    diagonal, rows, keys = problem.diagonal, problem.seqlen_q, problem.seqlen_kv
    found = []
    for q_begin in begins:
        low = 0 if left < 0 else max(0, q_begin + diagonal - left)
        high = keys
        if right >= 0:
            high = min(keys, min(q_begin + q_tile, rows) + diagonal + right)
        begin = low // kv_tile
        found.append((begin, max(begin, -(-high // kv_tile))))
    return found
