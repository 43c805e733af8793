"""The `amdattn.virtual.profile` context manager: the performance model's figures of launches.

Every number here is modelled: cycles by the virtual device's model of the architecture, times from
cycles at a stated clock. Nothing was measured on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arch import readings
from amdattn.device import watching

if TYPE_CHECKING:
    from types import TracebackType

    from amdattn.device.runtime import Runtime

STALLS = (
    "waitcnt",  # s_waitcnt: a memory operation is under way
    "barrier",  # other waves of the workgroup have not arrived
    "matrix",  # the SIMD's matrix unit is busy
    "vector",  # the SIMD's vector unit is busy
    "lds",  # LDS queue
    "vmem",  # vector memory queue
    "arbitration",  # another wave of the SIMD issued
    "fetch",  # instruction cache miss
    "branch",  # a taken branch, s_nop, s_sleep
)
TRACKS = ("wave", "matrix", "vector", "lds", "memory")


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction of a kernel.

    Attributes
    ----------
    offset : int
        Bytes from the kernel's entry.
    text : str
        Disassembly.
    issued : int
        How often it was issued, over all waves.
    stalls : dict of str to int
        Clk that waves waited before it, by reason (`STALLS`), summed over waves.
    """

    offset: int
    text: str
    issued: int
    stalls: dict[str, int]


@dataclass(frozen=True, slots=True)
class WorkgroupTime:
    """The time in which a workgroup ran, in clk from the start of the launch."""

    flat_id: int
    cu: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """The work of an instruction on one track (`TRACKS`) of CU 0, in clk."""

    start: int
    end: int
    simd: int
    wave: int
    track: str
    offset: int


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """The model's figures of one launch.

    Attributes
    ----------
    cycles : int
        Clk from the dispatch to the end of the last simulated workgroup of one XCD, and until the
        L2 has written back what it holds.
    write_back_clk : int
        The part of `cycles` after the end of that workgroup.
    clock_ghz : float
        The clock that was assumed for latencies in ns.
    reading : str
        The reading that was simulated (docs/generated/readings.md), usually "default"; for several
        readings, or one without a name, their options.
    mfma_use, valu_use, lds_use : float
        Share of `cycles` in which the unit is busy, over the simulated CUs.
    clk : dict of str to float
        Busy clk by unit, summed over CUs: mfma, valu, salu, lds, lds_address, lds_conflict, l1,
        l2, hbm; and the lifetimes of all waves as "wave".
    bytes : dict of str to int
        Bytes by the level that served them (l1, l2, mall, hbm) or took them (l2_write, mall_write,
        hbm_write).
    """

    kernel: str
    arch: str
    reading: str
    cycles: int
    write_back_clk: int
    clock_ghz: float
    workgroups: int
    simulated_workgroups: int
    simulated_cus: int
    resident_per_cu: int
    instructions: int
    mfma_use: float
    valu_use: float
    lds_use: float
    clk: dict[str, float]
    bytes: dict[str, int]
    sites: tuple[Site, ...]
    times: tuple[WorkgroupTime, ...]
    events: tuple[TraceEvent, ...]

    @property
    def stalls(self) -> dict[str, float]:
        """The share of the waves' lifetime that each reason takes."""
        total = {
            reason: sum(site.stalls.get(reason, 0) for site in self.sites) for reason in STALLS
        }
        return {reason: clk / max(self.clk["wave"], 1) for reason, clk in total.items()}

    def microseconds(self, clock_ghz: float | None = None) -> float:
        """`cycles` as time at a clock, the assumed one by default: modelled, not measured."""
        return self.cycles / (clock_ghz or self.clock_ghz) / 1000


_UNITS = ("mfma", "valu", "salu", "lds", "lds_address", "lds_conflict", "l1", "l2", "hbm", "wave")
_LEVELS = ("l1", "l2", "l2_write", "mall", "mall_write", "hbm", "hbm_write")
_COUNTS = (
    "cycles",
    "workgroups",
    "simulated_workgroups",
    "simulated_cus",
    "resident_per_cu",
    "instructions",
)


def read_profile(raw: dict[str, Any]) -> LaunchProfile:
    """Read one launch from the library's JSON."""
    return LaunchProfile(
        kernel=raw["kernel"],
        arch=raw["arch"],
        reading=readings.name_of(raw["readings"]),
        clock_ghz=raw["clock_ghz"],
        write_back_clk=int(raw["write_back_clk"]),
        mfma_use=raw["mfma_use"],
        valu_use=raw["valu_use"],
        lds_use=raw["lds_use"],
        clk={unit: raw[f"{unit}_clk"] for unit in _UNITS},
        bytes={level: int(raw[f"{level}_bytes"]) for level in _LEVELS},
        sites=tuple(
            Site(
                site["offset"],
                site["text"],
                site["issued"],
                {reason: site[reason] for reason in STALLS if reason in site},
            )
            for site in raw["sites"]
        ),
        times=tuple(WorkgroupTime(*row) for row in raw["times"]),
        events=tuple(
            TraceEvent(start, end, simd, wave, TRACKS[track], offset)
            for start, end, simd, wave, track, offset in raw["events"]
        ),
        **{name: int(raw[name]) for name in _COUNTS},
    )


class Profile:
    """Models every launch of the process while its `with` block runs.

    Attributes
    ----------
    launches : list of LaunchProfile
        Launches in the order in which they ended; filled at the end of the block.
    """

    def __init__(
        self,
        device: Runtime,
        clock_mhz: int,
        simulated_workgroups: int,
        simulated_xcd: int,
        trace_events: int,
        warm_code: bool,
        reading: str | None,
    ) -> None:
        chosen = {} if reading is None else readings.options(reading, device.props.arch)
        self.launches: list[LaunchProfile] = []
        self._device = device
        self._exports = device.virtual_exports()
        self._options = {
            name: scalars.integer(name, value)
            for name, value in (
                ("clock_mhz", clock_mhz),
                ("simulated_workgroups", simulated_workgroups),
                ("simulated_xcd", simulated_xcd),
                ("trace_events", trace_events),
            )
        }
        for name, number in self._options.items():
            if number < 0:
                raise ValueError(f"{name}={number} must be an int >= 0")
        self._options["warm_code"] = int(scalars.boolean("warm_code", warm_code))
        self._options |= chosen

    def __enter__(self) -> Profile:
        watching.begin("a profile")
        try:
            self._device.check("hipDeviceSynchronize", self._device.hip.hipDeviceSynchronize())
            self._restore = self._exports.set_options(**self._options, timing=1)
        except BaseException:
            watching.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.launches += [read_profile(raw) for raw in self._exports.take_profiles()]
        finally:
            self._exports.set_options(**self._restore)
            watching.end()
