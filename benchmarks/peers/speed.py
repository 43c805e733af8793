"""How long workgroups take, from simulated launches: linear in KV rows, by company on the CU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.modelled import NotLinear
from amdattn.bench.replay import Speed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from amdattn.device.profiling import LaunchProfile

_LEAST_PROGRESS = 1e-3


@dataclass(frozen=True)
class Simulation:
    """One simulated launch: its KV rows by order of dispatch on the XCD, and what it gave."""

    seqlen_kv: int
    residents: int
    rows: NDArray[np.int64]
    profile: LaunchProfile

    @property
    def ends(self) -> NDArray[np.float64]:
        """When each CU ended."""
        last = np.zeros(self.profile.simulated_cus)
        for time in self.profile.times:
            last[time.cu] = max(last[time.cu], time.end)
        return last


def fit(of: Sequence[Simulation], known: Speed, level: int) -> tuple[tuple[float, float], ...]:
    """Clk and clk per row of workgroups by age, among `level` residents.

    While fewer than `level` workgroups are on the CU, each progresses as `known` says; the rest of
    its work was done in the company of all.
    """
    points: list[list[tuple[float, float, float]]] = [[] for _ in range(level)]
    for simulation in of:
        for age, *point in _observed(simulation, known, level):
            points[age].append((point[0], point[1], point[2]))
    fitted = []
    for age, found in enumerate(points):
        rows, durations, share = np.array(found).T
        if np.ptp(rows) == 0:
            raise NotLinear(f"workgroups of age {age} have all the same KV rows {rows[:1]}")
        # The smaller the share of its work that was done in full company, the less is known.
        per_row, fixed = np.polyfit(rows, durations, 1, w=share)
        fitted.append((float(fixed), float(per_row)))
    return tuple(fitted)


def _observed(
    of: Simulation, known: Speed, level: int
) -> Iterator[tuple[int, float, float, float]]:
    """Of every workgroup: age, rows, clk in full company, and the share of its work done there."""
    times = sorted(of.profile.times, key=lambda time: time.flat_id)
    for cu in range(of.profile.simulated_cus):
        here = [(t, row) for t, row in zip(times, of.rows.tolist(), strict=True) if t.cu == cu]
        if len(here) < level:
            continue
        left = [1.0] * len(here)
        together = 0.0
        moments = sorted({moment for t, _ in here for moment in (t.start, t.end)})
        for begin, end in zip(moments[:-1], moments[1:], strict=True):
            present = [i for i, (t, _) in enumerate(here) if t.start <= begin and t.end >= end]
            if len(present) == level:
                together += end - begin
                continue
            for age, i in enumerate(present):
                left[i] -= (end - begin) / known.duration(len(present), age, here[i][1])
        if together <= 0:
            raise NotLinear(f"{level} workgroups never share a CU at {of.seqlen_kv} KV rows")
        for age, (_, row) in enumerate(here):
            share = max(left[age], _LEAST_PROGRESS)
            yield age, row, together / share, share
