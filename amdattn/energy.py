"""Energy and clock under a power cap: an estimate, which is not part of the performance model.

Modelled cycles do not determine the clock. A kernel that keeps the matrix units busy drives an
MI300X into its power cap, which then lowers the clock; how far depends on the energy of the
kernel's work. The estimate multiplies the operations and bytes that the model counts with energies
from public sources. The clock at which the resulting power equals the cap gives the time. The
cycles are those of the model.

Two numbers of `amdattn.arch.energies` are fitted (see there); docs/studies/performance-model.md
shows the results with and without them.
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
    """The operations and bytes of a launch on the whole device.

    Attributes
    ----------
    cycles : float
        Modelled cycles until the last workgroup has ended.
    matrix_flops : mapping of str to float
        Operations of MFMAs by MxNxK.
    vector_slots : float
        Issue slots of 4 clk that VALU instructions other than MFMA take.
    lds_bytes, l1_bytes, l2_bytes, hbm_bytes : float
        Bytes that each level delivers; L2 and HBM include writes.
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
        """The activity of a launch from a profile of one XCD; the others are assumed alike."""
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
        """The activity from a model's counts of a part of the device.

        Parameters
        ----------
        cycles : float
            Cycles of the launch.
        flops : mapping of str to float
            Operations by MxNxK, as from `matrix_flops`.
        clk, nbytes : mapping of str to float
            As in LaunchProfile.
        scale : float
            The whole device divided by the part.
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
        """This activity `factor` times."""
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
        """The activity of two launches one after the other."""
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
    """Operations of one MFMA, "MxNxK" or with its blocks "MxNxK_2b"."""
    tile, _, blocks = shape.partition("_")
    return 2 * math.prod(int(x) for x in tile.split("x")) * int(blocks.rstrip("b") or 1)


def matrix_flops(profile: LaunchProfile) -> dict[str, float]:
    """Operations of the simulated part by MxNxK of the MFMA, e.g. "32x32x8" or "32x32x4_2b"."""
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
        The clock at which power equals the cap, at most the peak clock, and the cycles divided by
        that clock.
    watts : dict of str to float
        Power at that clock by consumer: idle, clock_tree, matrix, vector, lds, l1, l2, hbm.
    """

    clock_ghz: float
    seconds: float
    watts: dict[str, float]

    @property
    def joules(self) -> float:
        """Energy of the launch."""
        return sum(self.watts.values()) * self.seconds


def estimate(activity: Activity, energies: Energies = ENERGIES[REFERENCE.name]) -> Estimate:
    """Estimate clock and time of a launch that lasts long enough for the cap to act: milliseconds.

    Parameters
    ----------
    activity : Activity
    energies : Energies
        Of the device; default: an MI300X.

    Raises
    ------
    ValueError
        The energy of an MFMA is unknown.
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
