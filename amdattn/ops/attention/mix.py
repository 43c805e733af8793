"""The tiles of sequences of several lengths, as far as a plan can tell.

A plan knows the number of sequences, the greatest lengths and the totals. It assumes one sequence
with the greatest lengths, and that the others share the remaining rows and keys evenly.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention.problem import AttentionProblem

_STEPS = 16  # the most different tiles of a sequence


@dataclass(frozen=True, slots=True)
class Tiles:
    """A number of tiles of rows of one head, which may have a fraction, and the keys of each."""

    count: float
    keys: float


def tiles_of_mix(problem: AttentionProblem, kernel: KernelSpec) -> list[Tiles]:
    """Tiles of the sequence with the greatest lengths, and of the others."""
    p = problem
    rows, keys = min(p.seqlen_q, p.total_q), min(p.seqlen_kv, p.total_kv)
    found = _tiles(p, kernel, 1, rows, keys)
    others = p.batch - p.gaps - 1
    if others > 0:
        of_rows = min((p.total_q - rows) / others, p.seqlen_q)
        of_keys = min((p.total_kv - keys) / others, p.seqlen_kv)
        found += _tiles(p, kernel, others, of_rows, of_keys)
    return found


def _tiles(
    problem: AttentionProblem, kernel: KernelSpec, sequences: int, rows: float, keys: float
) -> list[Tiles]:
    """Tiles of sequences with these lengths; in long ones some adjacent tiles count as equal."""
    of_tile = kernel.tile["q"]
    left, right = problem.window
    # Lengths that are means end anywhere in a tile.
    count = rows / of_tile + 0.5 if sequences > 1 and rows % of_tile else -(-rows // of_tile)
    if rows <= 0:
        return []
    if right < 0 and left < 0:
        return [Tiles(sequences * count, keys)]
    steps = max(1, min(_STEPS, int(count)))
    first = 0.0 if problem.top_left else keys - rows
    found = []
    for step in range(steps):
        begin = first + (step + 0.5) / steps * rows - min(of_tile, rows) / 2
        end = begin + min(of_tile, rows) + right if right >= 0 else keys
        begin = begin - left if left >= 0 else 0.0
        seen = max(0.0, min(end, keys) - max(begin, 0.0))
        found.append(Tiles(sequences * count / steps, seen))
    return found


def scheduled_clk(costs: Sequence[tuple[float, int]], slots: int) -> float:
    """When so many of each cost are done, each on the slot that is first free, the dearest first.

    Slots that are free at the same time are one entry, so that equal rounds take no time here.
    """
    levels = [(0.0, slots)]
    for cost, count in sorted(costs, reverse=True):
        left = count
        while left > 0:
            level, free = heapq.heappop(levels)
            if not levels:  # all alike: whole rounds at once
                rounds, left = divmod(left, free)
                level += rounds * cost
                heapq.heappush(levels, (level, free - left))
                if left:
                    heapq.heappush(levels, (level + cost, left))
                break
            taken = min(free, left)
            if taken < free:
                heapq.heappush(levels, (level, free - taken))
            heapq.heappush(levels, (level + cost, taken))
            left -= taken
    return max(level for level, _ in levels)
