"""Models operations of the attention family, each of whose workgroups has a CU to itself.

The time of a workgroup is a constant, plus a cost per KV block, more per block that a mask cuts,
more if its result is a part to be merged, and less once caches are warm. These figures are fitted
to launches of the same kernel over fewer rows of K and V; one more launch checks the fit. Then the
dispatch of the whole launch is replayed. A launch that merges is simulated in full.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from amdattn.bench.item_cost import FIGURES, Cost, Sample
from amdattn.bench.item_sampling import ItemSampler
from amdattn.bench.items import Items
from amdattn.bench.kernels import Operands
from amdattn.bench.modelled import Modelled, NotLinear, of_mean_xcd, simulated, with_shared_cache
from amdattn.bench.replay import longest
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped_launches import ShippedLaunches
from amdattn.ops.attention.work import GRID_XCDS, WorkMap

# Rows of K and V to simulate without a mask, plus a remainder: two rounds of workgroups, one round,
# and one round that checks the prediction from the others.
_LENGTHS = (256, 512, 768)
# Up to this many rows per XCD the launch is simulated in full, which takes half a minute; up to the
# second number, three minutes, for a plan that cannot be sampled because the last part of a tile
# does more than the others.
_AFFORDABLE, _AFFORDABLE_MERGING = 200_000, 1_200_000
# The most tiles of each head to simulate under a mask; the second number is that of the check.
_MASKED_TILES = (8, 12)


class FamilySampler(ItemSampler[ShippedLaunches]):
    """Models all launches of an attention operation at one shape.

    A full simulation runs one launch after the other; each finds the L2 and the last level cache as
    the previous one left them. "auto" simulates in full if that takes at most half a minute, or at
    most three minutes if parts are merged in the launch that computes them, because such a launch
    cannot be sampled.
    """

    @property
    def _work(self) -> WorkMap:
        return self._kernel.work(self._shape)

    def model(self) -> list[Modelled]:
        """Model every launch.

        Raises
        ------
        NotLinear
            This operation cannot be sampled, and `method` is "sampled".
        """
        items = self._kernel.items(self._shape)
        rows = self._rows_of_xcds(items)
        planned, merges = self._kernel, self._kernel.merges_parts(self._shape)
        affordable = _AFFORDABLE_MERGING if merges else _AFFORDABLE
        if self._method == "full" or (self._method == "auto" and max(rows) <= affordable):
            return self._full(int(np.argmax(rows)))
        if merges:
            # Another plan stands for this one: it merges in a launch of its own. Planning did not
            # choose it, because it estimates a longer time for it.
            self._kernel = planned.merging_apart()
            items = self._kernel.items(self._shape)
        if why := self._why_not():
            if self._method == "sampled":
                raise NotLinear(f"{self._shape}: {why}; simulate in full")
            self._kernel = planned
            return self._full(int(np.argmax(rows)))
        first, *others = self._sampled(items)
        if merges:
            first.sampled["merged_apart"] = True
        return [first, *others]

    def _rows_of_xcds(self, items: Items) -> list[int]:
        rows, xcds = items.walk.kv_rows, self._arch.num_xcds
        return [int(rows[xcd::xcds].sum()) for xcd in range(xcds)]

    def _why_not(self) -> str:
        shape = self._shape
        if shape.window != (-1, -1):
            return "windows cannot be sampled"
        if self._kernel.residents(shape) > 1:
            return "workgroups that share a CU cannot be sampled"
        longest = self._of_length(shape, _LENGTHS[-1])
        if shape.causal:
            longest = self._of_tiles(self._masked_tiles()[-1])
        if longest.seqlen_kv >= shape.seqlen_kv:
            return "too few rows of K and V to sample"
        if shape.causal and shape.seqlen_q > shape.seqlen_kv:
            return "rows of Q without keys cannot be sampled"
        return ""

    # -- the whole operation ---------------------------------------------------------------------

    def _full(self, xcd: int) -> list[Modelled]:
        walk = self._kernel.walk(self._shape)
        ids = np.arange(xcd, len(walk.kv_rows), self._arch.num_xcds)
        self._total, self._done = int(walk.kv_rows[ids].sum()), 0
        with Operands(self._shape, self._inputs) as operands:
            launches = self._kernel.launches(self._shape, operands)
            operands.fill_for(self._shape, walk, ids)
            profiles = self._profiles(launches, 0, xcd, self._trace_events)
        self._done = self._total
        self._tell(self._shape)
        parts = [
            simulated(launch, profile) for launch, profile in zip(launches, profiles, strict=True)
        ]
        mean = float(walk.kv_rows.sum() / max(self._total, 1)) / self._arch.num_xcds
        parts[0] = of_mean_xcd(parts[0], self._arch, len(walk.kv_rows), mean)
        parts[0] = with_shared_cache(parts[0], self._shape, walk, self._arch)
        return parts

    # -- samples ---------------------------------------------------------------------------------

    def _sampled(self, items: Items) -> list[Modelled]:
        figures = items.figures
        shape = self._shape
        cus, xcds = self._arch.cus_per_xcd, self._arch.num_xcds
        busiest = -(-len(figures) // xcds)  # workgroups of an XCD
        full, two_rounds = min(cus, busiest), min(2 * cus, busiest)
        parts = self._work.parts if figures[:, -1].any() else 1
        whole, split = (self._kernel.split(count, self._work.q_tile) for count in (1, parts))
        plain = dataclasses.replace(shape, causal=False)
        runs = [
            (whole, self._of_length(plain, _LENGTHS[0]), two_rounds),
            (whole, self._of_length(plain, _LENGTHS[1]), full),
        ]
        if shape.causal:
            few, more = (self._of_tiles(tiles) for tiles in self._masked_tiles())
            runs.append((whole, few, full))
            if parts > 1:
                runs.append((split, few, full))
            runs.append((whole, more, full))
        else:
            if parts > 1:
                rows = min(parts * _LENGTHS[0], shape.seqlen_kv - self._work.kv_tile)
                runs.append((split, self._of_length(plain, rows), full))
            runs.append((whole, self._of_length(plain, _LENGTHS[2]), full))
        self._done, self._total = 0, sum(self._rows(*run) for run in runs)
        samples = []
        with Operands(shape, self._inputs) as operands:
            for run in runs:
                events = self._trace_events if run is runs[-1] else 0
                samples.append(self._run(operands, *run, events))
            launches = self._kernel.launches(shape, operands)
            rest = [self._profiles([launch], 0, 0, 0)[0] for launch in launches[1:]]
        before = Cost.of(samples[:-1])
        predicted = before.durations(samples[-1].figures[:, :-1]).sum()
        cost = Cost.of(samples)
        timelines = self._replay_device(items.figures, cost)
        sampled = {
            "lengths": [of.seqlen_kv for _, of, _ in runs],
            "check_error": float(predicted / samples[-1].durations.sum() - 1),
            "simulated_workgroups": [len(sample.durations) for sample in samples],
            "simulated_kv_rows": self._done,
            "of_kv_rows": int(self._kernel.walk(shape).kv_rows[::xcds].sum()),
            "clk": dict(zip(FIGURES, cost.clk.tolist(), strict=True)),
            "order_range": self._order_range(items.figures, cost, longest(timelines).cycles),
        }
        merged = [simulated(*pair) for pair in zip(launches[1:], rest, strict=True)]
        return [self._extrapolated(launches[0], samples, items, timelines, sampled), *merged]

    def _rows(self, kernel: ShippedLaunches, shape: Shape, limit: int) -> int:
        return int(kernel.walk(shape).kv_rows[:: self._arch.num_xcds][:limit].sum())

    def _of_length(self, shape: Shape, length: int) -> Shape:
        """The shape with at least `length` rows of K and V in whole blocks; same remainder."""
        kv_tile = self._work.kv_tile
        return shape.with_lengths(
            shape.seqlen_q, -(-length // kv_tile) * kv_tile + shape.seqlen_kv % kv_tile
        )

    def _masked_tiles(self) -> list[int]:
        """Numbers of tiles per head that fill an XCD, within limits: fewer, and more."""
        heads = min(self._shape.batch * self._shape.heads_q, 8 * GRID_XCDS)
        enough = -(-self._arch.num_cus // heads)
        fewer_rows = self._shape.seqlen_kv // self._work.q_tile - 1
        most = max(3, min(_MASKED_TILES[1], enough, fewer_rows))
        return [min(_MASKED_TILES[0], most - 1), most]

    def _of_tiles(self, tiles: int) -> Shape:
        """The shape with `tiles` whole tiles of Q; the last tile and the mask stay the same."""
        shape, granule = self._shape, self._work.q_tile
        seqlen_kv = tiles * granule + shape.seqlen_kv % granule
        fewer = max(0, shape.seqlen_q - seqlen_kv)
        return shape.with_lengths(shape.seqlen_q - -(-fewer // granule) * granule, seqlen_kv)

    def _run(
        self, operands: Operands, kernel: ShippedLaunches, shape: Shape, limit: int, events: int
    ) -> Sample:
        items = kernel.items(shape)
        ids = np.arange(0, len(items.figures), self._arch.num_xcds)[:limit]
        operands.fill_for(shape, items.walk, ids)
        return self._simulate(kernel.launch(shape, operands), items, ids, shape.causal, events)
