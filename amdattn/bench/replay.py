"""Replays the dispatch of a launch: when every workgroup of an XCD starts and ends.

It follows the simulator of the virtual device: round robin over XCDs, in order within an XCD, to
the CU with the most room, with a fixed number of clk between waves. Workgroups that share a CU slow
each other down. The scheduler prefers the older wave, so the speed of a workgroup depends on its
age among the residents.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.clocks import Clocks

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Speed:
    """How long workgroups take.

    Attributes
    ----------
    shared : dict of int to tuple of (clk, clk per row)
        By number of residents of a CU, then by age among them, oldest first. A workgroup with
        `rows` KV rows would take clk + rows * clk_per_row in that company.
    late : tuple of float
        By CU: the difference in clk of its first workgroups from the mean over CUs.
    warm : float
        Additional clk of later workgroups; negative if caches are warm.
    """

    shared: dict[int, tuple[tuple[float, float], ...]]
    late: tuple[float, ...] = ()
    warm: float = 0.0

    def duration(self, num_residents: int, age: int, rows: float) -> float:
        """Clk that a workgroup would take if the residents of its CU never changed."""
        fixed, per_row = self.shared[num_residents][age]
        return max(fixed + per_row * rows, 1.0)


@dataclass
class _ComputeUnit:
    residents: list[int] = field(default_factory=list)  # workgroups, oldest first
    admitted: int = 0  # including those that have not started yet
    began: int = 0
    now: float = 0.0
    version: int = 0


@dataclass(frozen=True)
class Timeline:
    """When the workgroups of an XCD ran, in the order of dispatch.

    Attributes
    ----------
    start, end : (workgroups,) float64
        Clk.
    cu : (workgroups,) int64
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    cu: NDArray[np.int64]

    @property
    def cycles(self) -> float:
        """Clk until the last workgroup ended."""
        return float(self.end.max(initial=0.0))


def replay(
    rows: Sequence[float], speed: Speed, residents: int, num_waves: int, clocks: Clocks
) -> Timeline:
    """Replay the workgroups of one XCD.

    Parameters
    ----------
    rows : sequence of float
        KV rows of each workgroup, in the order of dispatch.
    speed : Speed
    residents : int
        Workgroups that fit a CU.
    num_waves : int
        Waves of a workgroup.
    clocks : Clocks
        Of the device.
    """
    count = len(rows)
    cus = [_ComputeUnit() for _ in range(min(clocks.cus_per_xcd, count))]
    left = np.ones(count)
    start, end = np.zeros(count), np.zeros(count)
    home = np.zeros(count, np.int64)
    events: list[tuple[float, int, int, int]] = []  # clk, CU, version or -1, workgroup to start
    dispatched, dispatcher_free = 0, 0.0

    def dispatch(now: float) -> None:
        nonlocal dispatched, dispatcher_free
        while dispatched < count:
            index = min(range(len(cus)), key=lambda i: cus[i].admitted)
            if cus[index].admitted >= residents:
                return
            cus[index].admitted += 1
            dispatcher_free = max(dispatcher_free, now) + clocks.dispatch_wave_clk * num_waves
            heapq.heappush(events, (dispatcher_free, index, -1, dispatched))
            dispatched += 1

    def advance(index: int, now: float) -> None:
        """Advance the progress of the residents to `now`."""
        cu = cus[index]
        for age, w in enumerate(cu.residents):
            left[w] -= (now - cu.now) / speed.duration(len(cu.residents), age, rows[w])
        cu.now = now

    def plan_next(index: int) -> None:
        cu = cus[index]
        cu.version += 1
        ends = [
            (cu.now + max(left[w], 0) * speed.duration(len(cu.residents), age, rows[w]), w)
            for age, w in enumerate(cu.residents)
        ]
        if ends:
            at, w = min(ends)
            heapq.heappush(events, (at, index, cu.version, w))

    dispatch(clocks.first_fetch_clk)
    while events:
        now, index, version, w = heapq.heappop(events)
        cu = cus[index]
        if version not in (-1, cu.version):
            continue
        advance(index, now)
        if version == -1:
            cu.residents.append(w)
            start[w], home[w] = now, index
            extra = speed.warm
            if cu.began < residents:  # only for the last of the first ones, whose end counts
                is_last = cu.began == residents - 1 or count <= len(cus) * (cu.began + 1)
                extra = speed.late[index] if is_last and speed.late else 0.0
            left[w] += extra / speed.duration(1, 0, rows[w])
            cu.began += 1
        else:
            cu.residents.remove(w)
            cu.admitted -= 1
            end[w] = now
            dispatch(now)
        plan_next(index)
    return Timeline(start, end, home)


def longest(timelines: Sequence[Timeline]) -> Timeline:
    """The timeline of the XCD that ends last."""
    return max(timelines, key=lambda timeline: timeline.cycles)
