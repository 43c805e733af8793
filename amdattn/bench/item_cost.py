"""Fits the time of workgroups of the attention family to simulated launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from amdattn.bench.replay import Speed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from amdattn.device.profiling import LaunchProfile

# The figures of Items, and whether the CU had a workgroup before.
FIGURES = ("workgroup", "block", "cut_block", "part", "warm")
_FITTING_STEPS = 30
_LEAST_RESIDUE = 20.0  # clk


@dataclass(frozen=True)
class Sample:
    """One simulated launch; rows are its workgroups in the order of dispatch.

    Attributes
    ----------
    figures : (workgroups, 5) float64
        By FIGURES.
    durations : (workgroups,) float64
        Clk.
    cu : (workgroups,) int64
    profile : LaunchProfile
    masked : bool
        Whether the launch had a mask.
    """

    figures: NDArray[np.float64]
    durations: NDArray[np.float64]
    cu: NDArray[np.int64]
    profile: LaunchProfile
    masked: bool


def _joined(
    samples: Sequence[Sample],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Figures, durations and CUs of all workgroups."""
    return (
        np.concatenate([sample.figures for sample in samples] or [np.zeros((0, 5))]),
        np.concatenate([sample.durations for sample in samples] or [np.zeros(0)]),
        np.concatenate([sample.cu for sample in samples] or [np.zeros(0, np.int64)]),
    )


def _mean(values: NDArray[np.float64], which: NDArray[np.bool_]) -> float:
    return float(values[which].mean()) if which.any() else 0.0


@dataclass(frozen=True)
class Cost:
    """The cost of workgroups, in clk.

    Attributes
    ----------
    clk : (5,) float64
        Cost per unit of each figure of FIGURES.
    late : (CUs,) float64
        Additional time of the first workgroup of a CU if it is a whole tile.
    late_parts : (parts,) float64
        Additional time of the first parts of an XCD. Those that fetch data for others have to wait.
    """

    clk: NDArray[np.float64]
    late: NDArray[np.float64]
    late_parts: NDArray[np.float64]

    @staticmethod
    def of(samples: Sequence[Sample]) -> Cost:
        """Fit the costs to the samples without a mask, then what masked samples cost beyond them.

        A block costs the same in nearly all workgroups, so the fit minimises absolute deviations
        and not their squares. The few workgroups that wait for a first fetch, or whose scores
        outgrow the reference of the softmax, thus do not change the cost of a block; they add to
        the mean per workgroup.
        """
        plain = _joined([sample for sample in samples if not sample.masked])
        masked = _joined([sample for sample in samples if sample.masked])
        figures, durations, _ = plain
        weight = np.ones(len(durations))
        clk: NDArray[np.float64] = np.zeros(len(FIGURES))
        for _ in range(_FITTING_STEPS):
            weighted = np.linalg.lstsq(figures * weight[:, None], durations * weight, rcond=None)
            clk = weighted[0].astype(np.float64)
            rest = durations - figures @ clk
            weight = np.maximum(abs(rest), _LEAST_RESIDUE) ** -0.5
        is_part, is_warm = figures[:, 3] > 0, figures[:, 4] > 0
        first = ~is_part & ~is_warm
        extra = _mean(rest, first)
        clk[0] += extra
        rest -= extra
        for figure, which in ((3, is_part), (4, is_warm)):
            extra = _mean(rest, which)
            clk[figure] += extra
            rest[which] -= extra
        late_parts = rest[is_part]
        cus = plain[2]
        if len(masked[1]):
            figures, durations, cus = masked
            first = figures[:, 3] == 0
            rest = durations - figures @ clk
            clk[2] += rest[first].sum() / figures[first, 2].sum()
            rest = durations - figures @ clk
            clk[3] += _mean(rest, ~first)
            late_parts = np.zeros(0)  # under a mask it depends on the length of the parts
        late = [_mean(rest, first & (cus == cu)) for cu in range(cus.max() + 1)]
        return Cost(clk, np.array(late), late_parts)

    def durations(self, figures: NDArray[np.float64]) -> NDArray[np.float64]:
        """Clk of the workgroups of one XCD from the figures of Items, as if caches were cold."""
        found: NDArray[np.float64] = figures @ self.clk[:-1]
        parts = np.flatnonzero(figures[:, -1])[: len(self.late_parts)]
        found[parts] += self.late_parts[: len(parts)]
        return found

    def speed(self, figures: NDArray[np.float64]) -> Speed:
        """The speed for a replay of these workgroups, whose rows are their durations."""
        late = np.zeros(len(figures))
        whole = figures[: len(self.late), -1] == 0
        late[: len(whole)] = np.where(whole, self.late[: len(whole)], 0.0)
        return Speed({1: ((0.0, 1.0),)}, tuple(late.tolist()), float(self.clk[-1]))
