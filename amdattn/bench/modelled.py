"""A modelled launch, and what all samplers have in common."""

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
TOLERANCE = 0.01  # relative error that is allowed in the length that checks the others
# Called with a description, how many KV rows are simulated and how many there are.
Advance = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Modelled:
    """A modelled launch.

    Attributes
    ----------
    launch : Launch
    cycles : float
        Clk until the last workgroup of the slowest XCD has ended (in a full simulation, of the XCD
        that has most work) and its L2 has written back, which takes as long as in the longest
        simulation.
    cus, part : float
        The counts below are of this number of CUs, which do this share of the device's work.
    clock_ghz : float
        The sustained clock that was assumed.
    residents : int
        Workgroups per CU.
    instructions : float
    clk, bytes : dict of str to float
        As in LaunchProfile.
    flops : dict of str to float
        Operations of MFMAs by MxNxK.
    stalls : dict of str to float
        Share of the waves' lifetime by reason.
    profile : LaunchProfile
        The longest simulation, for the sites of stalls and the trace.
    timeline : Timeline or None
        When the workgroups of the slowest XCD ran, if they were replayed.
    sampled : dict
        What was simulated, and how well the prediction agreed; empty for a full simulation.
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
    """A launch without extrapolation: the counts are those of its simulation."""
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
    """A full simulation of one XCD with its totals scaled to those of the mean XCD."""
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
    """A full simulation of one XCD, with bytes of HBM as if all XCDs shared what each fetches."""
    times = sorted(modelled.profile.times, key=lambda time: time.flat_id)
    own = Timeline(
        np.array([time.start for time in times], float),
        np.array([time.end for time in times], float),
        np.array([time.cu for time in times]),
    )
    # Nothing is known about the other XCDs; they are assumed to behave alike.
    most = -(-len(walk.stream) // arch.num_xcds)
    own = Timeline(np.resize(own.start, most), np.resize(own.end, most), np.resize(own.cu, most))
    shared = beyond_l2(shape, walk, [own] * arch.num_xcds, arch)
    return dataclasses.replace(
        modelled, bytes=modelled.bytes | {"hbm": shared["hbm"] * modelled.part}
    )


class NotLinear(AmdattnError):
    """Sampling cannot model this launch within its tolerance."""


class ModelOptions(TypedDict, total=False):
    """How to model an operation: keyword arguments of `SamplerBase`, which describes them."""

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
    kernel : Titled
        The kernel or operation to model.
    shape : Shape
    functions : Functions
        Code objects that are loaded already.
    method : {"auto", "full", "sampled"}
        "full" simulates every workgroup of the XCD that has most work, "sampled" only some
        launches, and "auto" chooses as the subclass describes.
    clock_mhz : int
        Assumed sustained clock; 0: the architecture's.
    trace_events : int
        Events of CU 0 to keep from the longest simulation.
    advance : callable, optional
        Called with a description, how many KV rows are simulated and how many there are.
    inputs : Inputs
        Contents of q, k and v. Samples read the beginning of the contents of the whole problem.

    Raises
    ------
    ValueError
        `method` is none of these.
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
        """Simulate the first `limit` workgroups of an XCD (0: all) of each launch, in order."""

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
