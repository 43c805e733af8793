"""Options and counters of the virtual device.

The virtual device is a CPU library with the HIP runtime ABI that executes the same code objects as
a GPU. What is here exists only there: every function raises BindingError when a GPU is bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from amdattn import scalars
from amdattn.checking.arrays import Arrays
from amdattn.checking.findings import Finding
from amdattn.checking.session import Check
from amdattn.checking.suppressions import Suppression, Suppressions
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile, Profile
from amdattn.device.virtual_library import OPTIONS

__all__ = [
    "Check",
    "Finding",
    "LaunchProfile",
    "Profile",
    "Suppression",
    "Suppressions",
    "check",
    "counter",
    "forget_faults",
    "last_report",
    "profile",
    "set_option",
]

# The options that checks and profiles set.
_CHECK = ("check", "max_errors", "late_loads", "late_stores")
_PROFILE = (
    *("timing", "clock_mhz", "simulated_workgroups", "simulated_xcd", "trace_events", "warm_code"),
)
_OPTIONS = tuple(key for key in OPTIONS if key not in _CHECK + _PROFILE)


def set_option(key: str, value: object) -> None:
    """Set an option of the virtual device.

    Parameters
    ----------
    key : str
        "threads", "quantum", "seed", "max_instructions", "max_total_instructions",
        "resident_workgroups" or "null": see docs/virtual-device.md. For readings of the performance
        model "trans_exclusive", "lds_published", "mfma_lost_slots", "short_mfma_lost_slots",
        "wait_clk", "three_source_slots", "hbm_channels", "translation_ns" or "write_back_ns": see
        docs/generated/readings.md.
    value : int

    Raises
    ------
    BindingError
        A GPU is bound.
    ValueError
        There is no such option, or it does not allow the value.
    """
    exports = runtime.get().virtual_exports()
    if key not in _OPTIONS:
        raise ValueError(f"option {key!r} must be one of {_OPTIONS}")
    exports.set_option(key, scalars.integer(key, value))


def counter(name: str) -> int:
    """Read a counter of the virtual device, e.g. "instructions", "mfma" or "workgroups"."""
    return runtime.get().virtual_exports().counter(name)


def last_report() -> str:
    """The virtual device's report of the last fault; "" if there was none."""
    return runtime.get().virtual_exports().last_report()


def forget_faults() -> None:
    """Wait for all work, and stop reporting launches that have faulted so far.

    After a fault, copies that wait for the stream of the faulting launch fail in every thread until
    the thread calls `amdattn.synchronize`, because any thread may have been given the results. This
    includes threads that start later, until this function (or hipDeviceReset) is called. A thread
    is always told of faults of launches that it has queued itself.

    Raises
    ------
    BindingError
        A GPU is bound.
    """
    device = runtime.get()
    device.virtual_exports()
    device.check("hipDeviceReset", device.hip.hipDeviceReset())


def check(
    *,
    raise_on: str | None = "error",
    read_only: Arrays = (),
    zero_at_end: Arrays = (),
    suppressions: Suppressions | str | os.PathLike[str] | None = None,
    max_errors: int = 0,
    late_loads: bool = True,
    late_stores: bool = True,
) -> Check:
    """Check every launch inside a ``with`` block; see docs/checked-mode.md for what is found.

    ``with amdattn.virtual.check() as found: ...`` raises CheckError at its end if a launch had a
    defect. All findings are in ``found.findings``, and by severity in ``found.errors``,
    ``found.counted`` and ``found.advice``. Launches of every thread are checked.

    Parameters
    ----------
    raise_on : {"error", None}
        None collects findings only, and keeps a HIP error that a finding explains in
        ``found.fault``.
    read_only : sequence or mapping of device arrays
        No kernel may write to them. The keys of a mapping name them in reports.
    zero_at_end : sequence or mapping of device arrays
        Every launch must leave them zero.
    suppressions : path or Suppressions, optional
        Accepted findings, or a .toml or .json file with the kernel, pc, kind and reason of each.
    max_errors : int
        End a launch after this many errors of different kinds or instructions; 0: never.
    late_loads : bool
        Loads arrive at the last moment that the waits allow. False: some arrive at once.
    late_stores : bool
        Stores with sc1 and atomics without return take effect at the last moment that the waits
        allow. False: at once.

    Returns
    -------
    Check
        A context manager that returns itself.

    Raises
    ------
    CheckError
        At the end of the block. A HIP error that the findings explain is its cause.
    BindingError
        A GPU is bound.
    RuntimeError
        A check or a profile is running already.
    """
    return Check(
        runtime.get(),
        raise_on=raise_on,
        read_only=read_only,
        zero_at_end=zero_at_end,
        suppressions=suppressions,
        max_errors=max_errors,
        late_loads=late_loads,
        late_stores=late_stores,
    )


def profile(
    *,
    clock_mhz: int = 0,
    simulated_workgroups: int = 0,
    simulated_xcd: int = 0,
    trace_events: int = 0,
    warm_code: bool = True,
    reading: str | None = None,
) -> Profile:
    """Model the cycles of every launch inside a ``with`` block.

    ``with amdattn.virtual.profile() as p: ...`` leaves one LaunchProfile per launch in
    ``p.launches``. The CUs of one XCD are simulated. Workgroups of other XCDs are executed only if
    a simulated workgroup asks a counter which of them arrived before, so the results of launches in
    the block are incomplete. The L2 and the last level cache are empty at first; every launch finds
    there what earlier launches of the block left.

    Parameters
    ----------
    clock_mhz : int
        Engine clock that converts latencies in ns to cycles; 0: the architecture's sustained clock.
    simulated_workgroups : int
        Simulate only this many workgroups, the first ones of the XCD; 0: all.
    simulated_xcd : int
        The XCD to simulate; workgroups are distributed over XCDs round robin.
    trace_events : int
        Number of events of CU 0 to keep.
    warm_code : bool
        Assume that kernels have run before, so that the instruction caches hold their code. False:
        the first launch of the block fetches it from HBM.
    reading : str, optional
        A reading of unknown hardware behaviour: "default", or the name of one assumption that
        differs, such as "lost-slots-2" (docs/generated/readings.md). None: as the options of the
        virtual device are set, initially "default".

    Returns
    -------
    Profile
        A context manager that returns itself.

    Raises
    ------
    BindingError
        A GPU is bound.
    RuntimeError
        A check or a profile is running already.
    ValueError
        The architecture has no such reading, or a number is negative.
    """
    return Profile(
        runtime.get(),
        clock_mhz,
        simulated_workgroups,
        simulated_xcd,
        trace_events,
        warm_code,
        reading,
    )


def profiled(run: Callable[[], object], **options: Any) -> list[LaunchProfile]:
    """Profile the launches of a call; keyword arguments are those of `profile`."""
    with profile(**options) as found:
        run()
        runtime.synchronize()
    return found.launches
