"""A launch as the model has it, and what all samplers have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import numpy as np

from amdattn import virtual
from amdattn.bench.clocks import Clocks, clocks
from amdattn.bench.inputs import NORMAL, Inputs
from amdattn.bench.kernels import Functions, Launch, Titled, Walk
from amdattn.bench.replay import Timeline
from amdattn.bench.shapes import Shape
from amdattn.bench.traffic import beyond_l2
from amdattn.device import runtime
from amdattn.energy import Activity, matrix_flops
from amdattn.errors import AmdattnError

if TYPE_CHECKING:
    from amdattn.device.profiling import LaunchProfile

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
        Clk until the last workgroup of the slowest XCD ended, in a full simulation of the one that
        has most work, and until its L2 has written back, as in the longest simulation.
    clk, bytes, flops : dict of str to float
        As LaunchProfile's, of `cus` CUs, which are `part` of the device's work; operations of MFMAs
        by MxNxK.
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
    flops: dict[str, float]
    stalls: dict[str, float]
    profile: LaunchProfile
    timeline: Timeline | None
    sampled: dict[str, Any]

    @property
    def activity(self) -> Activity:
        """What an estimate of the energy needs."""
        return Activity.counted(self.cycles, self.flops, self.clk, self.bytes, 1 / self.part)


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
        matrix_flops(profile),
        profile.stalls,
        profile,
        None,
        dict(sampled or {}),
    )


def of_mean_xcd(
    modelled: Modelled, arch: Clocks, num_workgroups: int, mean_over_this: float
) -> Modelled:
    """A full simulation of one XCD; its totals scaled to what the mean XCD has."""
    return dataclasses.replace(
        modelled,
        cus=min(arch.num_cus, num_workgroups) / arch.num_xcds,
        part=1 / arch.num_xcds,
        instructions=modelled.instructions * mean_over_this,
        clk={unit: clk * mean_over_this for unit, clk in modelled.clk.items()},
        bytes={level: count * mean_over_this for level, count in modelled.bytes.items()},
        flops={shape: count * mean_over_this for shape, count in modelled.flops.items()},
    )


def with_shared_cache(modelled: Modelled, shape: Shape, walk: Walk, arch: Clocks) -> Modelled:
    """A full simulation of one XCD; its bytes of HBM as if all XCDs had shared what was fetched."""
    times = sorted(modelled.profile.times, key=lambda time: time.flat_id)
    own = Timeline(
        np.array([time.start for time in times], float),
        np.array([time.end for time in times], float),
        np.array([time.cu for time in times]),
    )
    # Of the others nothing is known but that they do alike.
    most = -(-len(walk.stream) // arch.num_xcds)
    own = Timeline(np.resize(own.start, most), np.resize(own.end, most), np.resize(own.cu, most))
    shared = beyond_l2(shape, walk, [own] * arch.num_xcds, arch)
    return dataclasses.replace(
        modelled, bytes=modelled.bytes | {"hbm": shared["hbm"] * modelled.part}
    )


class NotLinear(AmdattnError):
    """Sampling cannot model this launch within its tolerance."""


class ModelOptions(TypedDict, total=False):
    """How to model an operation: keywords of `SamplerBase`, where they are described."""

    method: str
    clock_mhz: int
    trace_events: int
    advance: Advance | None
    inputs: Inputs


AnyKernel = TypeVar("AnyKernel", bound=Titled)


class SamplerBase(Generic[AnyKernel]):
    """Simulates launches of one kernel, or of the kernels of one operation, at one shape.

    Parameters
    ----------
    method : {"auto", "full", "sampled"}
        Whether to simulate every workgroup of the XCD that has most work; see the classes.
    trace_events : int
        Events of CU 0 to keep of the longest simulation.
    advance : callable, optional
        Called with what is simulated, how much is done and how much there is, in KV rows.
    inputs : Inputs
        What q, k and v hold. Samples read the beginning of what the whole problem would.
    """

    def __init__(
        self,
        kernel: AnyKernel,
        shape: Shape,
        functions: Functions,
        *,
        method: str = "auto",
        clock_mhz: int = 0,
        trace_events: int = 0,
        advance: Advance | None = None,
        inputs: Inputs = NORMAL,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"sampling={method!r} must be one of {', '.join(METHODS)}")
        self._kernel: AnyKernel = kernel
        self._shape, self._functions = shape, functions
        self._method, self._clock_mhz, self._trace_events = method, clock_mhz, trace_events
        self._inputs = inputs
        self._advance = advance or (lambda what, done, total: None)
        self._done = self._total = 0
        self._arch = clocks(runtime.device_props())

    def _profiles(
        self, launches: Sequence[Launch], limit: int, xcd: int, events: int
    ) -> list[LaunchProfile]:
        """One launch after the other, the first `limit` workgroups of an XCD (0: all)."""

        def run() -> None:
            for launch in launches:
                launch.enqueue(self._functions)

        return virtual.profiled(
            run,
            clock_mhz=self._clock_mhz,
            simulated_workgroups=limit,
            simulated_xcd=xcd,
            trace_events=events,
        )

    def _tell(self, shape: Shape) -> None:
        what = f"{self._kernel.peer} {self._kernel.round_mode} {shape}"
        self._advance(what, min(self._done, self._total), self._total)
