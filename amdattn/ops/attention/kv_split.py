"""Decides which tiles are computed in parts along KV, so that the last round fills the device.

Tiles are assigned in order, each to the first free CU. This list schedule is modelled, with the
cost of each tile under the mask.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention.cost import (
    block_clk,
    merges_itself,
    merging_clk,
    residents,
    workgroup_clk,
)
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.work import WorkMap

MAX_PARTS = 16
# Only the last rounds of a long queue are scheduled one by one; before them all CUs are equally
# busy.
_ROUNDS = 3
WORTH = 0.995  # a split, or more of it, must save this much
_SCHEDULED_PARTS = 4096  # if the caller requests more, only the mean is computed


@dataclass(frozen=True, slots=True)
class Split:
    """A way to cut the tiles: the last `tiles` of them in `parts` each; `clk` is modelled.

    All but the last part have `part_blocks` KV blocks; 0: parts are equal.
    """

    tiles: int
    parts: int
    clk: float
    part_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen split, the best one for each number of split tiles, and common facts."""

    best: Split
    considered: tuple[Split, ...]
    busy_clk: float  # of all workgroups together, without a split


class Costs:
    """Modelled clk of the tiles of a problem, in their order."""

    def __init__(self, problem: AttentionProblem, kernel: KernelSpec) -> None:
        work = WorkMap.of_kernel(problem, kernel)
        runs = work.runs()
        self._blocks = [blocks for _, blocks in runs]
        self.num_tiles = work.tiles
        self.equal = not work.by_length
        self.known = self.equal and not problem.varlen  # blocks of each tile, before it runs
        self.most_blocks = max(self._blocks)
        self._block_clk = block_clk(kernel)
        edges = sum(side >= 0 for side in problem.window)
        self._workgroup_clk = workgroup_clk(kernel, edges)
        self._begins = [0, *accumulate(count for count, _ in runs)]
        self._before = [0.0, *accumulate(count * self._of(blocks) for count, blocks in runs)]

    def _of(self, blocks: int) -> float:
        return self._workgroup_clk + blocks * self._block_clk

    def sum_before(self, tile: int) -> float:
        """Clk of the first `tile` tiles together."""
        run = bisect.bisect_right(self._begins, tile) - 1
        if run == len(self._blocks):
            return self._before[-1]
        return self._before[run] + (tile - self._begins[run]) * self._of(self._blocks[run])

    def equal_blocks(self, parts: int, merged: bool) -> int:
        """Blocks of all but the last part of tiles that are cut as evenly as possible.

        0 if another launch merges them, or tiles may differ.
        """
        if not self.known or not merged:
            return 0
        blocks = -(-self.most_blocks // parts)
        return blocks if (parts - 1) * blocks < self.most_blocks else 0

    def uneven(self, tiles: int, parts: int, part_blocks: int) -> list[float]:
        """Clk of the parts of `tiles` equal tiles, in the order of parts."""
        last = self.most_blocks - (parts - 1) * part_blocks
        return [self._of(part_blocks)] * (tiles * (parts - 1)) + [self._of(last)] * tiles

    def part_blocks(self, tiles: int, parts: int, slots: int) -> int:
        """Blocks of the long parts of equal tiles, which start together on `slots`; 0: impossible.

        Slots without a long part process n last parts one after the other, in the time of a long
        one.
        """
        spare = slots - tiles * (parts - 1)
        if spare <= 0:
            return 0
        n, beside = -(-tiles // spare), self._workgroup_clk / self._block_clk
        blocks = math.ceil((n * (self.most_blocks + beside) - beside) / (1 + n * (parts - 1)))
        return blocks if 0 < self.most_blocks - (parts - 1) * blocks < blocks else 0

    def of_range(self, begin: int, end: int, parts: int = 1) -> list[float]:
        """Clk of consecutive tiles, or of the parts of each of them."""
        costs: list[float] = []
        run = bisect.bisect_right(self._begins, begin) - 1
        while begin < end:
            until = min(end, self._begins[run + 1])
            each, longer = divmod(self._blocks[run], parts)
            tile = [self._of(each + 1)] * longer + [self._of(each)] * (parts - longer)
            costs += tile * (until - begin)
            begin = until
            run += 1
        return costs


class _Schedule:
    """The whole tiles on their CUs, to which parts of the other tiles are added.

    Workgroups are distributed over XCDs round robin; each XCD assigns its own to its first free CU.
    """

    def __init__(self, costs: Costs, whole: int, slots: int, num_xcds: int) -> None:
        self._whole = whole
        self.slots = slots
        queues = self.queues = num_xcds if slots % num_xcds == 0 else 1
        # Full rounds before the tail: exact for tiles that cost the same.
        tail = min(whole, whole % slots + (0 if costs.equal else _ROUNDS * slots))
        level = costs.sum_before(whole - tail) / slots
        idle = [level] * (slots // queues)
        tiles, first = costs.of_range(whole - tail, whole), whole - tail
        self._levels = [
            _levels_after(idle, tiles[(queue - first) % queues :: queues])
            for queue in range(queues)
        ]
        self._mean = costs.sum_before(whole) / slots
        self._last = max(map(max, self._levels))
        self._is_level = all(cus[0] == self._last for cus in self._levels)

    def clk(self, parts: Sequence[float]) -> float:
        """Clk at which the last workgroup ends if these parts follow."""
        queues, cus = len(self._levels), len(self._levels[0])
        if self._is_level and len(parts) <= queues * cus:
            return self._last + max(parts, default=0.0)  # each has a CU, one as free as another
        of_queues = [parts[(queue - self._whole) % queues :: queues] for queue in range(queues)]
        if self._is_level:  # queues differ in their parts only, and those of many are the same
            return max(
                max(_levels_after(self._levels[0], some)) for some in set(map(tuple, of_queues))
            )
        return max(
            max(_levels_after(levels, some))
            for levels, some in zip(self._levels, of_queues, strict=True)
        )

    def least_clk(self, parts: Sequence[float]) -> float:
        """A bound that no order of the parts can beat."""
        return max(self._last, self._mean + sum(parts) / self.slots)


def _levels_after(levels: list[float], parts: Sequence[float]) -> list[float]:
    """Until when the CUs of a queue are busy, in rising order, with more after these `levels`.

    While no workgroup of a round ends before the last one of it begins, the nth goes to the CU that
    is the nth to be free: the same as one after the other to the first that is free, but faster.
    """
    least = min(parts, default=0.0)
    begin = 0
    while begin < len(parts):
        of_round = parts[begin : begin + len(levels)]
        if levels[0] + least < levels[len(of_round) - 1]:
            levels = levels.copy()
            for cost in parts[begin:]:
                heapq.heapreplace(levels, levels[0] + cost)
            return sorted(levels)
        levels = [*map(operator.add, levels, of_round), *levels[len(of_round) :]]
        levels.sort()
        begin += len(of_round)
    return levels


@functools.lru_cache(maxsize=1024)
def choose(
    problem: AttentionProblem,
    kernel: KernelSpec,
    props: DeviceProps,
    slots: int,
    max_parts: int,
) -> Choice:
    """The way with the fewest modelled clocks; of equal ones that with less split.

    Parameters
    ----------
    slots : int
        Workgroups that run at a time.
    max_parts : int
        Of a tile; 1 allows no split. A problem with `num_splits` has every tile in as many parts.
    """
    costs = Costs(problem, kernel)
    tiles = costs.num_tiles
    schedules: dict[int, _Schedule] = {}

    def schedule(split_tiles: int) -> _Schedule:
        if split_tiles not in schedules:
            schedules[split_tiles] = _Schedule(costs, tiles - split_tiles, slots, props.num_xcds)
        return schedules[split_tiles]

    unsplit = Split(0, 1, schedule(0).clk(()))
    if problem.num_splits > 1:
        parts = problem.num_splits
        if tiles * parts <= _SCHEDULED_PARTS:
            clk = schedule(tiles).clk(costs.of_range(0, tiles, parts))
        else:
            clk = (costs.sum_before(tiles) + tiles * (parts - 1) * workgroup_clk(kernel, 0)) / slots
        forced = Split(tiles, parts, clk + merging_clk(kernel, tiles, parts, props))
        return Choice(forced, (unsplit, forced), costs.sum_before(tiles))
    best = unsplit
    considered = [unsplit]
    most = min(max_parts, MAX_PARTS, costs.most_blocks) if problem.num_splits == 0 else 1
    rest = tiles % slots
    for split_tiles in sorted({rest, min(rest + slots, tiles)} - {0}) if most > 1 else ():
        best_here: Split | None = None
        for parts in range(2, most + 1):
            merge = merging_clk(kernel, split_tiles, parts, props)
            pieces = costs.of_range(tiles - split_tiles, tiles, parts)
            found = min(best.clk, best_here.clk if best_here else math.inf)
            if schedule(split_tiles).least_clk(pieces) + merge > WORTH * found:
                break  # and more parts have a greater bound
            clk = schedule(split_tiles).clk(pieces) + merge
            merged = merges_itself(kernel, split_tiles, parts, props)
            split = Split(split_tiles, parts, clk, costs.equal_blocks(parts, merged))
            if best_here is None or split.clk < best_here.clk:
                best_here = split
        for split in _uneven(costs, kernel, schedule(split_tiles), split_tiles, most, props):
            if best_here is None or split.clk < best_here.clk:
                best_here = split
        if best_here is not None:
            considered.append(best_here)
            if best_here.clk < WORTH * best.clk:
                best = best_here
    return Choice(best, tuple(considered), costs.sum_before(tiles))


def _uneven(
    costs: Costs,
    kernel: KernelSpec,
    schedule: _Schedule,
    tiles: int,
    most: int,
    props: DeviceProps,
) -> Iterator[Split]:
    """Ways to cut so many of the last tiles in parts that differ, where merging them is cheap."""
    if not costs.known or residents(kernel) > 1:
        return
    queues, slots = schedule.queues, schedule.slots
    for parts in range(2, most + 1):
        if not merges_itself(kernel, tiles, parts, props):
            return
        blocks = costs.part_blocks(-(-tiles // queues), parts, slots // queues)
        if blocks:
            clk = schedule.clk(costs.uneven(tiles, parts, blocks))
            yield Split(tiles, parts, clk + merging_clk(kernel, tiles, parts, props), blocks)
