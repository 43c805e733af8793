"""Models operations of MoonMath's kernel: transposition of V, tiles, parts and their merge.

Its workgroups have a CU each to themselves. How long one takes is so much, so much per block of 64
keys, and more where a row's maximum grows, for it rescales its accumulators in a branch: nearly
always in the first blocks, ever more seldom later. The figures follow from launches over few blocks
of which some begin with keys so large that no later score exceeds theirs; one more launch says how
well. The transposition and the merge are simulated as they are.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.inputs import NORMAL
from amdattn.bench.item_cost import Cost, Sample
from amdattn.bench.item_sampling import ItemSampler
from amdattn.bench.items import Items
from amdattn.bench.kernels import Launch, Operands, Walk
from amdattn.bench.modelled import Modelled, NotLinear, of_mean_xcd, simulated, with_shared_cache
from amdattn.bench.replay import longest
from benchmarks.peers.moonmath import KV_TILE, Q_TILE, Division, MoonMath
from benchmarks.peers.scaled_keys import ScaledKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FIGURES = ("workgroup", "block", "part", "warm", "rescaling_block", "rescaled_tile")
_XCDS = 8  # of its order of tiles
# Blocks to simulate: two rounds of tiles, one, and parts that do not rescale; tiles as they begin;
# and some that check what the others predict.
_TWO_ROUNDS, _SETTLED, _OF_PART, _BEGIN, _CHECK = 4, 10, 4, 12, 24
_FEW = 12  # workgroups of those that only say what rescaling adds
# Times a row of K: the maximum of a block of them is never met again, or as seldom as after 100
# blocks.
_NO_LARGER_SCORE, _FEW_LARGER_SCORES = 4.0, 1.74
_GROUPS, _WAVES, _TILES, _TILE_ROWS = 2, 4, 3, 16  # of a workgroup, a group, a wave and a tile


def rescaling(blocks: int) -> NDArray[np.float64]:
    """How often workgroups wait for rescaling: by number of blocks up to `blocks`, two figures.

    Of the waves of a group, which meet at a barrier, the one that rescales most tiles counts: in
    how many blocks that is any, and how many tiles more than one. Those of the first block, always
    all, are left out. The maximum of n blocks of independent scores is in the last one with
    probability 1 / n, for each row of a tile.
    """
    grows = 1 - (1 - 1 / np.arange(1, blocks + 1)) ** _TILE_ROWS
    so_many = [math.comb(_TILES, n) * grows**n * (1 - grows) ** (_TILES - n) for n in range(_TILES)]
    more = 1 - np.cumsum(so_many, axis=0) ** _WAVES
    of_blocks = _GROUPS * np.column_stack([more[0], more[1:].sum(axis=0)])
    of_blocks[0] = 0
    return np.concatenate([np.zeros((1, 2)), np.cumsum(of_blocks, axis=0)])


@dataclass(frozen=True)
class _Forward:
    """Workgroups of a launch of the forward kernel: tile of each, and which part of it."""

    items: Items
    tiles: NDArray[np.int64]
    of_tile: NDArray[np.int64]
    rescaling: NDArray[np.float64]

    def items_at(self, clk: NDArray[np.float64]) -> Items:
        """With what the rescaling takes, at so much for each of its figures, as a figure."""
        figures = self.items.figures.copy()
        figures[:, 2] = self.rescaling @ clk
        return dataclasses.replace(self.items, figures=figures)


@dataclass(frozen=True)
class _Run:
    """A simulated launch, and the counted figures of `rescaling` of its workgroups."""

    sample: Sample
    rescaling: NDArray[np.float64]

    def at(self, clk: NDArray[np.float64]) -> Sample:
        """As _Forward.items_at."""
        figures = self.sample.figures.copy()
        figures[:, 2] = self.rescaling @ clk
        return dataclasses.replace(self.sample, figures=figures)


class MoonMathSampler(ItemSampler[MoonMath]):
    """Models all launches of that operation at one shape.

    A full simulation runs one launch after the other with the L2 and the last level cache that the
    one before left. "auto" does that if it is no more work.
    """

    def model(self) -> list[Modelled]:
        """Every launch.

        Raises
        ------
        NotLinear
            This operation cannot be sampled, and `method` demands it.
        """
        division = Division.of(self._shape)
        least = max(_CHECK, division.parts * _OF_PART)
        why = "" if division.blocks > least else "too few rows of K and V to sample"
        if self._inputs != NORMAL:
            why = (
                f"only of normal inputs is known how often maxima grow, not of {self._inputs.name}"
            )
        if self._method == "sampled" and why:
            raise NotLinear(f"{self._shape}: {why}; simulate in full")
        of_xcd = -(-division.tiles_of_head * division.heads // self._arch.num_xcds)
        few = of_xcd * division.blocks <= self._arch.cus_per_xcd * 2 * _CHECK
        if why or self._method == "full" or (self._method == "auto" and few):
            return self._full(division)
        return self._sampled(division)

    def _full(self, division: Division) -> list[Modelled]:
        shape = self._shape
        xcds = self._arch.num_xcds
        forwards = dict(zip(_forward_places(division), self._forwards(division), strict=True))
        with Operands(shape, self._inputs) as operands:
            for of in forwards.values():
                ids = np.arange(0, len(of.tiles), xcds)
                operands.fill_for(shape, of.items.walk, ids)
                self._total += int(of.items.walk.kv_rows[ids].sum())
            launches = self._kernel.launches(shape, operands)
            self._tell(shape)
            profiles = self._profiles(launches, 0, 0, self._trace_events)
        self._done = self._total
        self._tell(shape)
        parts = [simulated(*pair) for pair in zip(launches, profiles, strict=True)]
        for i, of in forwards.items():
            rows = of.items.walk.kv_rows
            mean = float(rows.sum() / rows[::xcds].sum()) / xcds
            parts[i] = of_mean_xcd(parts[i], self._arch, len(rows), mean)
            parts[i] = with_shared_cache(parts[i], shape, of.items.walk, self._arch)
        return parts

    # -- what the workgroups do ------------------------------------------------------------------

    def _forwards(self, division: Division) -> list[_Forward]:
        """Of the launches of its forward kernel."""
        found = [self._whole(division)] if division.whole_tiles else []
        return found + ([self._parts(division)] if division.split_tiles else [])

    def _whole(self, division: Division) -> _Forward:
        tiles = np.arange(division.whole_tiles)
        if not division.split_tiles:  # a head's tiles meet in one XCD
            of_xcds = _XCDS * division.tiles_of_head
            ordered = len(tiles) // of_xcds * of_xcds
            xcd, nth = tiles % _XCDS, tiles // _XCDS
            chunk, within = np.divmod(nth, division.tiles_of_head)
            renumbered = chunk * of_xcds + xcd * division.tiles_of_head + within
            tiles = np.where(tiles < ordered, renumbered, tiles)
        blocks = np.full(len(tiles), division.blocks)
        return self._forward(division, tiles, np.zeros_like(tiles), blocks, False)

    def _parts(self, division: Division) -> _Forward:
        tiles = division.whole_tiles + np.arange(division.split_tiles)
        of_tile = np.tile(np.arange(division.parts), len(tiles))
        blocks = -(-(division.blocks - of_tile) // division.parts)
        tiles = np.repeat(tiles, division.parts)
        return self._forward(division, tiles, of_tile, blocks, True)

    def _forward(
        self,
        division: Division,
        tiles: NDArray[np.int64],
        of_tile: NDArray[np.int64],
        blocks: NDArray[np.int64],
        are_parts: bool,
    ) -> _Forward:
        ones = np.ones(len(tiles))
        head, tile = np.divmod(tiles, division.tiles_of_head)
        items = Items(
            np.column_stack([ones, blocks, 0 * ones, ones * are_parts]),
            Walk(
                blocks * KV_TILE,
                head // self._shape.heads_q,
                np.minimum((tile + 1) * Q_TILE, self._shape.seqlen_q),
                head,
                np.zeros_like(blocks),
                np.full_like(blocks, division.blocks * KV_TILE),
            ),
        )
        return _Forward(items, tiles, of_tile, rescaling(int(blocks.max()))[blocks])

    # -- a sample of them ------------------------------------------------------------------------

    def _sampled(self, division: Division) -> list[Modelled]:
        cus = self._arch.cus_per_xcd
        # Blocks, workgroups, what the first block is multiplied by, whether of parts.
        runs: list[tuple[int, int, float, bool]] = []
        if division.whole_tiles:
            runs += [(_TWO_ROUNDS, 2 * cus, _NO_LARGER_SCORE, False)]
        runs += [(_SETTLED, cus, _NO_LARGER_SCORE, False)]
        if division.split_tiles:
            runs += [(_OF_PART * division.parts, cus, _NO_LARGER_SCORE, True)]
        settled = len(runs)
        runs += [(_BEGIN, _FEW, _NO_LARGER_SCORE, False)]
        runs += [(_BEGIN, _FEW, _FEW_LARGER_SCORES, False), (_BEGIN, _FEW, 1.0, False)]
        runs += [(_CHECK, _FEW, 1.0, False)]
        self._done, self._total = 0, sum(blocks * KV_TILE * count for blocks, count, *_ in runs)
        with ScaledKeys(self._shape) as operands:
            done = [
                self._run(operands, division, *run, self._trace_events if run is runs[-1] else 0)
                for run in runs
            ]
            launches = self._kernel.launches(self._shape, operands)
            forwards = dict(zip(_forward_places(division), self._forwards(division), strict=True))
            rest = {
                i: self._profiles([launch], 0, 0, 0)[0]
                for i, launch in enumerate(launches)
                if i not in forwards
            }
        cost, clk = _cost(done[:-1], settled)
        few, check = (done[i].at(clk) for i in (settled, -1))
        # The same few workgroups, for more blocks.
        predicted = few.durations + cost.durations((check.figures - few.figures)[:, :-1])
        error = predicted.sum() / check.durations.sum() - 1
        cost, clk = _cost(done, settled)
        samples = [run.at(clk) for run in done]
        sampled: dict[str, object] = {
            "lengths": [blocks * KV_TILE for blocks, *_ in runs],
            "check_error": float(error),
            "simulated_workgroups": [len(sample.durations) for sample in samples],
            "simulated_kv_rows": self._done,
            "of_kv_rows": sum(
                int(of.items.walk.kv_rows[::_XCDS].sum()) for of in forwards.values()
            ),
            "clk": dict(zip(_FIGURES, [*np.delete(cost.clk, 2), *clk], strict=True)),
        }
        return [
            simulated(launch, rest[i])
            if i in rest
            else self._of_items(launch, samples, forwards[i].items_at(clk), cost, sampled)
            for i, launch in enumerate(launches)
        ]

    def _run(
        self,
        operands: ScaledKeys,
        division: Division,
        blocks: int,
        limit: int,
        scale: float,
        parts: bool,
        events: int,
    ) -> _Run:
        """Of a launch as the shape divides it, over so many blocks."""
        last = self._shape.seqlen_kv - (division.blocks - 1) * KV_TILE
        shape = self._shape.with_lengths(self._shape.seqlen_q, (blocks - 1) * KV_TILE + last)
        short = Division(
            division.tiles_of_head,
            division.heads,
            blocks,
            division.split_tiles if parts else 0,
            division.parts if parts else 1,
        )
        forward = self._parts(short) if parts else self._whole(short)
        items = forward.items
        ids = np.arange(0, len(items.figures), self._arch.num_xcds)[:limit]
        operands.fill_for(shape, items.walk, ids)
        batches = np.unique(items.walk.batch[ids]).tolist()
        heads = (max(batches) + 1) * shape.heads_kv
        operands.put_random(
            self._kernel.transposed(operands), heads * blocks * KV_TILE * shape.head_dim_v
        )
        launch_of = self._kernel.parts if parts else self._kernel.whole
        first_rows = KV_TILE * short.parts  # what all of them begin with
        if scale > 1:
            operands.put_keys(shape, batches, first_rows, scale)
        counted = [self._counted(operands, short, forward, i, scale) for i in ids.tolist()]
        sample = self._simulate(launch_of(shape, operands, short), items, ids, False, events)
        if scale > 1:
            operands.put_keys(shape, batches, first_rows, 1.0)
        return _Run(sample, np.array(counted, float))

    def _counted(
        self, operands: ScaledKeys, division: Division, forward: _Forward, nth: int, scale: float
    ) -> tuple[float, float]:
        """As `rescaling`, but of a workgroup's own scores."""
        head, tile = divmod(int(forward.tiles[nth]), division.tiles_of_head)
        head %= self._shape.heads_q
        last = min((tile + 1) * Q_TILE, self._shape.seqlen_q)
        q = operands.rows("q", head, range(tile * Q_TILE, last))
        k = operands.rows("k", head, range(division.blocks * KV_TILE))
        k[: KV_TILE * division.parts] *= scale
        blocks = k.reshape(-1, KV_TILE, k.shape[1])[forward.of_tile[nth] :: division.parts]
        tops = (q @ blocks.reshape(-1, k.shape[1]).T).reshape(len(q), -1, KV_TILE).max(-1)
        before = np.maximum.accumulate(tops, axis=1)[:, :-1]
        # Not only a new maximum: a score that meets it takes the branch.
        grows = np.pad(tops[:, 1:] >= before, ((0, Q_TILE - len(q)), (0, 0)))
        of_tiles = np.any(grows.reshape(_GROUPS, _WAVES, _TILES, _TILE_ROWS, -1), axis=3)
        most = of_tiles.sum(2).max(1)
        return float((most > 0).sum()), float(np.maximum(most - 1, 0).sum())

    def _of_items(
        self,
        launch: Launch,
        samples: list[Sample],
        items: Items,
        cost: Cost,
        sampled: dict[str, object],
    ) -> Modelled:
        timelines = self._replay_device(items.figures, cost)
        order = self._order_range(items.figures, cost, longest(timelines).cycles)
        sampled = sampled | {"order_range": order}
        return self._extrapolated(launch, samples, items, timelines, sampled)


def _cost(runs: Sequence[_Run], settled: int) -> tuple[Cost, NDArray[np.float64]]:
    """From so many runs that do not rescale, one of fewer workgroups, and others like that.

    Also the clk of the figures of rescaling.
    Of what one tile takes a group of waves, a part passes while the other group computes; what more
    tiles take does not.
    """
    cost = Cost.of([run.sample for run in runs[:settled]])
    excess = np.array(
        [
            (run.sample.durations - cost.durations(run.sample.figures[:, :-1])).mean()
            for run in runs[settled:]
        ]
    )
    counted = np.array([run.rescaling.mean(axis=0) for run in runs[settled:]])
    excess, counted = excess[1:] - excess[0], counted[1:] - counted[0]
    clk: NDArray[np.float64] = np.linalg.lstsq(counted, excess, rcond=None)[0]
    with_rescaling = cost.clk.copy()
    with_rescaling[2] = 1.0  # the figure is in clk
    return dataclasses.replace(cost, clk=with_rescaling), clk


def _forward_places(division: Division) -> list[int]:
    """Which of the launches are of the forward kernel."""
    return list(range(1, 1 + (division.whole_tiles > 0) + (division.split_tiles > 0)))
