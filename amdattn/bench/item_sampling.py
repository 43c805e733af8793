"""Models launches each of whose workgroups has a CU to itself: time is a sum of costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.item_cost import Cost, Sample
from amdattn.bench.items import Items
from amdattn.bench.kernels import Launch
from amdattn.bench.modelled import TOLERANCE, AnyKernel, Modelled, NotLinear, SamplerBase
from amdattn.bench.replay import Timeline, longest, replay
from amdattn.bench.traffic import beyond_l2
from amdattn.energy import matrix_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from amdattn.device.profiling import LaunchProfile

_ORDER_TRIALS = 8


class ItemSampler(SamplerBase[AnyKernel]):
    """Derives the cost of workgroups from simulated launches, and a whole launch from the cost."""

    def _simulate(
        self, launch: Launch, items: Items, ids: NDArray[np.int64], masked: bool, events: int
    ) -> Sample:
        """Simulate the first workgroups of XCD 0, `ids`, whose operands are filled."""
        self._num_waves = launch.num_waves
        self._tell(self._shape)
        (profile,) = self._profiles([launch], len(ids), 0, events)
        if profile.resident_per_cu != 1:
            raise NotLinear(f"{launch.symbol}: {profile.resident_per_cu} workgroups share a CU")
        self._done += int(items.walk.kv_rows[ids].sum())
        self._tell(self._shape)
        times = sorted(profile.times, key=lambda time: time.flat_id)
        seen: set[int] = set()
        warm = np.zeros(len(times))
        for i in sorted(range(len(times)), key=lambda i: times[i].start):
            warm[i] = times[i].cu in seen
            seen.add(times[i].cu)
        return Sample(
            np.column_stack([items.figures[ids], warm]),
            np.array([time.end - time.start for time in times], float),
            np.array([time.cu for time in times]),
            profile,
            masked,
        )

    # -- from the sample to the launch -----------------------------------------------------------

    def _replay(
        self, figures: NDArray[np.float64], cost: Cost, factor: NDArray[np.float64] | float = 1.0
    ) -> Timeline:
        """Replay the workgroups of one XCD."""
        durations = (cost.durations(figures) * factor).tolist()
        return replay(durations, cost.speed(figures), 1, self._num_waves, self._arch)

    def _replay_device(
        self, figures: NDArray[np.float64], cost: Cost, rng: np.random.Generator | None = None
    ) -> list[Timeline]:
        """Replay every XCD; with `rng`, vary every duration by the tolerance."""
        known: dict[bytes, Timeline] = {}
        timelines = []
        for xcd in range(min(self._arch.num_xcds, len(figures))):
            own = figures[xcd :: self._arch.num_xcds]
            if rng is not None:
                factor = 1 + TOLERANCE * rng.uniform(-1, 1, len(own))
                timelines.append(self._replay(own, cost, factor))
                continue
            key = own.tobytes()
            if key not in known:
                known[key] = self._replay(own, cost)
            timelines.append(known[key])
        return timelines

    def _order_range(self, figures: NDArray[np.float64], cost: Cost, cycles: float) -> list[float]:
        """Smallest and greatest change of the cycles if every duration varies by the tolerance."""
        if np.ptp(figures, axis=0).max() == 0:
            return [0.0, 0.0]
        rng = np.random.default_rng(0)
        found = [
            longest(self._replay_device(figures, cost, rng)).cycles / cycles - 1
            for _ in range(_ORDER_TRIALS)
        ]
        return [min(found), max(found)]

    def _extrapolated(
        self,
        launch: Launch,
        samples: Sequence[Sample],
        items: Items,
        timelines: Sequence[Timeline],
        sampled: dict[str, object],
    ) -> Modelled:
        """The whole launch, with totals of the mean XCD linear in the figures of the workgroups."""
        xcds = self._arch.num_xcds
        known = np.array([sample.figures[:, :-1].sum(axis=0) for sample in samples])
        wanted = items.figures.sum(axis=0) / xcds
        timeline = longest(timelines)
        shared = beyond_l2(self._shape, items.walk, timelines, self._arch)

        def totals(of: Callable[[LaunchProfile], Mapping[str, float]]) -> dict[str, float]:
            found = [of(sample.profile) for sample in samples]
            values = np.array([[row[name] for name in found[0]] for row in found], float)
            fitted = wanted @ np.linalg.lstsq(known, values, rcond=None)[0]
            return dict(zip(found[0], np.maximum(fitted, 0.0).tolist(), strict=True))

        last = samples[-1].profile
        clk = totals(lambda profile: profile.clk)
        stalls = totals(
            lambda profile: {r: x * profile.clk["wave"] for r, x in profile.stalls.items()}
        )
        return Modelled(
            launch,
            timeline.cycles + max(sample.profile.write_back_clk for sample in samples),
            min(self._arch.num_cus, len(items.figures)) / xcds,
            1 / xcds,
            last.clock_ghz,
            1,
            totals(lambda profile: {"instructions": profile.instructions})["instructions"],
            clk,
            totals(lambda profile: profile.bytes)
            | {level: nbytes / xcds for level, nbytes in shared.items()},
            totals(matrix_flops),
            {reason: value / max(clk["wave"], 1.0) for reason, value in stalls.items()},
            last,
            timeline,
            sampled,
        )
