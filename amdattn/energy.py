"""Energy and clock under a power cap: an estimate beside the performance model, not part of it.

Modelled cycles say nothing of the clock. A kernel that keeps the matrix units busy runs an MI300X
into its power cap, which then lowers the clock; how far depends on the energy of what the kernel
does. Here the operations and bytes that the model counted, times energies from public sources, give
the clock at which the power equals the cap, and with it a time. Cycles are taken as they are.

Two numbers of `amdattn.arch.energies` are fitted (see there); docs/studies/performance-model.md
shows what comes out with and without them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdattn.arch.architectures import architecture
from amdattn.arch.energies import (
    ENERGIES,
    LARGE_TILE as LARGE_TILE,
    PJ_PER_FLOP_16X16X16 as PJ_PER_FLOP_16X16X16,
    PJ_PER_FMA as PJ_PER_FMA,
    PLAIN_VALU as PLAIN_VALU,
    Energies as Energies,
    mi300x as mi300x,
)
from amdattn.arch.products import REFERENCE

if TYPE_CHECKING:
    from amdattn.device.profiling import LaunchProfile

_MFMA = re.compile(r"v_mfma_\w+?_(\d+x\d+x\d+(?:_\d+b)?)_")
_BISECTIONS = 40
_LOWEST_GHZ = 0.1
_ARCH = architecture(REFERENCE.arch)


@dataclass(frozen=True)
class Activity:
    """What a launch does on the whole device.

    Attributes
    ----------
    cycles : float
        Modelled, until the last workgroup has ended.
    matrix_flops : mapping of str to float
        By MxNxK.
    vector_slots : float
        VALU instructions, MFMA apart, weighted by the slots of 4 clk that they take.
    lds_bytes, l1_bytes, l2_bytes, hbm_bytes : float
    """

    cycles: float
    matrix_flops: Mapping[str, float] = field(default_factory=dict)
    vector_slots: float = 0.0
    lds_bytes: float = 0.0
    l1_bytes: float = 0.0
    l2_bytes: float = 0.0
    hbm_bytes: float = 0.0

    @classmethod
    def of(cls, profile: LaunchProfile) -> Activity:
        """A launch of which one XCD was simulated in full; the others do alike."""
        scale = profile.workgroups / profile.simulated_workgroups
        return cls.counted(profile.cycles, matrix_flops(profile), profile.clk, profile.bytes, scale)

    @classmethod
    def counted(
        cls,
        cycles: float,
        flops: Mapping[str, float],
        clk: Mapping[str, float],
        nbytes: Mapping[str, float],
        scale: float,
    ) -> Activity:
        """From a model's counts of a part of the device, `scale` of which are the whole.

        Parameters
        ----------
        flops : by MxNxK, as `matrix_flops` has them
        clk, nbytes : as of a LaunchProfile
        """
        issues = sum(count / _flops_of_one(shape) for shape, count in flops.items())
        return cls(
            cycles=cycles,
            matrix_flops={shape: count * scale for shape, count in flops.items()},
            vector_slots=(clk["valu"] / _ARCH.slot_clk - issues) * scale,
            lds_bytes=(clk["lds"] + clk["lds_address"]) * _ARCH.lds_port_bytes * scale,
            l1_bytes=nbytes["l1"] * scale,
            l2_bytes=(nbytes["l2"] + nbytes["l2_write"]) * scale,
            hbm_bytes=(nbytes["hbm"] + nbytes["hbm_write"]) * scale,
        )

    def scaled(self, factor: float) -> Activity:
        """So many times this."""
        return Activity(
            self.cycles * factor,
            {shape: count * factor for shape, count in self.matrix_flops.items()},
            self.vector_slots * factor,
            self.lds_bytes * factor,
            self.l1_bytes * factor,
            self.l2_bytes * factor,
            self.hbm_bytes * factor,
        )

    def __add__(self, other: Activity) -> Activity:
        """One after the other."""
        shapes = {**self.matrix_flops, **other.matrix_flops}
        return Activity(
            self.cycles + other.cycles,
            {x: self.matrix_flops.get(x, 0) + other.matrix_flops.get(x, 0) for x in shapes},
            self.vector_slots + other.vector_slots,
            self.lds_bytes + other.lds_bytes,
            self.l1_bytes + other.l1_bytes,
            self.l2_bytes + other.l2_bytes,
            self.hbm_bytes + other.hbm_bytes,
        )


def _flops_of_one(shape: str) -> int:
    """Of "MxNxK" or "MxNxK_2b"."""
    tile, _, blocks = shape.partition("_")
    return 2 * math.prod(int(x) for x in tile.split("x")) * int(blocks.rstrip("b") or 1)


def matrix_flops(profile: LaunchProfile) -> dict[str, float]:
    """Operations of the simulated part by MxNxK of the MFMA, with its blocks if it has several."""
    flops: dict[str, float] = {}
    for site in profile.sites:
        found = _MFMA.match(site.text)
        if found:
            shape = found[1]
            flops[shape] = flops.get(shape, 0.0) + site.issued * _flops_of_one(shape)
    return flops


@dataclass(frozen=True)
class Estimate:
    """An estimate, not a result of the performance model.

    Attributes
    ----------
    clock_ghz, seconds : float
        The clock at which power meets the cap, at most the peak; cycles over it.
    watts : dict of str to float
        At that clock: idle, clock_tree, matrix, vector, lds, l1, l2, hbm.
    """

    clock_ghz: float
    seconds: float
    watts: dict[str, float]

    @property
    def joules(self) -> float:
        """Of the launch."""
        return sum(self.watts.values()) * self.seconds


def estimate(activity: Activity, energies: Energies = ENERGIES[REFERENCE.name]) -> Estimate:
    """Clock and time of a launch that lasts long enough, milliseconds, for the cap to act.

    Raises
    ------
    ValueError
        An MFMA has no energy here.
    """
    unknown = set(activity.matrix_flops) - set(energies.matrix_pj_per_flop)
    if unknown:
        raise ValueError(
            f"MFMA {sorted(unknown)} have no energy; there is {sorted(energies.matrix_pj_per_flop)}"
        )
    joules_at_1_ghz = {
        "matrix": sum(
            flops * energies.matrix_pj_per_flop[shape]
            for shape, flops in activity.matrix_flops.items()
        ),
        "vector": activity.vector_slots * energies.vector_pj_per_slot,
        "lds": activity.lds_bytes * energies.lds_pj_per_byte,
        "l1": activity.l1_bytes * energies.l1_pj_per_byte,
        "l2": activity.l2_bytes * energies.l2_pj_per_byte,
    }

    def watts(ghz: float) -> dict[str, float]:
        per_second = 1e-12 * ghz * 1e9 / activity.cycles
        return {
            "idle": energies.idle_watts,
            "clock_tree": energies.clock_tree_watts * ghz**1.5,
            **{part: pj * ghz**0.5 * per_second for part, pj in joules_at_1_ghz.items()},
            "hbm": activity.hbm_bytes * energies.hbm_pj_per_byte * per_second,
        }

    low, high = _LOWEST_GHZ, energies.peak_ghz
    if sum(watts(high).values()) > energies.cap_watts:
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if sum(watts(middle).values()) > energies.cap_watts:
                high = middle
            else:
                low = middle
    return Estimate(high, activity.cycles / high / 1e9, watts(high))
