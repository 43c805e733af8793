"""A launch as the model has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn.bench.kernels import Launch
from amdattn.bench.replay import Timeline

if TYPE_CHECKING:
    from amdattn.profiling import LaunchProfile

METHODS = ("auto", "full", "sampled")
TOLERANCE = 0.01  # of the length that checks the others
# Called with what is simulated, how much is done and how much there is, in KV rows.
Advance = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Modelled:
    """A launch as the model has it.

    Attributes
    ----------
    cycles : float
        Clk until the last workgroup of the slowest XCD ended; in a full simulation of the one that
        has most work.
    clk, bytes : dict of str to float
        As LaunchProfile's, of `cus` CUs, which are `part` of the device's work.
    stalls : dict of str to float
        Share of the waves' lifetime by reason.
    profile : LaunchProfile
        The longest simulation, for the sites of stalls and the trace.
    timeline : Timeline or None
        When the workgroups of the slowest XCD ran, if replayed.
    sampled : dict
        What was simulated, and how well it agreed; empty for a full simulation.
    """

    launch: Launch
    cycles: float
    cus: float
    part: float
    clock_ghz: float
    residents: int
    instructions: float
    clk: dict[str, float]
    bytes: dict[str, float]
    stalls: dict[str, float]
    profile: LaunchProfile
    timeline: Timeline | None
    sampled: dict[str, Any]


def simulated(
    launch: Launch, profile: LaunchProfile, sampled: Mapping[str, Any] | None = None
) -> Modelled:
    """A launch of which nothing is extrapolated."""
    return Modelled(
        launch,
        float(profile.cycles),
        profile.simulated_cus,
        profile.simulated_workgroups / launch.num_workgroups,
        profile.clock_ghz,
        profile.resident_per_cu,
        profile.instructions,
        dict(profile.clk),
        {level: float(count) for level, count in profile.bytes.items()},
        profile.stalls,
        profile,
        None,
        dict(sampled or {}),
    )
