"""Runs a kernel of a code object file, whose arguments are described, as a benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from amdattn.bench.kernels import Functions, Launch
from amdattn.bench.modelled import simulated
from amdattn.bench.record import MEASURED, MODELLED, Record
from amdattn.bench.run import Outcome, is_virtual, measured_record, modelled_record, settled
from amdattn.device import runtime
from amdattn.virtual import profiled

if TYPE_CHECKING:
    from amdattn.checking.subjects import CodeObject
    from amdattn.device.profiling import LaunchProfile


def run_code_object(
    subject: CodeObject,
    functions: Functions,
    *,
    operation: str,
    flops: int = 0,
    simulated_workgroups: int = 0,
    clock_mhz: int = 0,
    trace_events: int = 0,
    advance: Callable[[str, int, int], None] | None = None,
) -> Outcome:
    """Model or measure one launch.

    Parameters
    ----------
    subject : CodeObject
        The kernel, its grid and its arguments.
    functions : Functions
        Code objects that are loaded already.
    operation : str
        The operation that the record names.
    flops : int
        Useful operations of the launch; 0: unknown, and no TFLOP/s are stated.
    simulated_workgroups : int
        Simulate only this many workgroups, the first ones of one XCD; 0: all. The cycles are those
        of these workgroups. Nothing is extrapolated, because it is unknown what workgroups do.
    clock_mhz : int
        Assumed sustained clock; 0: the architecture's.
    trace_events : int
        Events of CU 0 to keep.
    advance : callable, optional
        Called with a title, how much is done and how much there is.
    """
    is_modelled = is_virtual()
    blank = Record(
        operation,
        f"grid {subject.grid} workgroup {subject.workgroup}",
        {"grid": list(subject.grid), "workgroup": list(subject.workgroup)},
        f"object={subject.path.name}",
        "",
        MODELLED if is_modelled else MEASURED,
        flops=flops,
    )
    arrays = subject.arrays()
    launch = Launch(
        subject.image,
        subject.kernel.name,
        subject.grid,
        subject.workgroup,
        subject.kernarg(arrays),
        subject.dynamic_lds_bytes,
    )
    if not is_modelled:
        return Outcome(measured_record(blank, [launch], functions))
    if advance is not None:
        advance(subject.title, 0, 1)

    def model(mhz: int, events: int = 0) -> LaunchProfile:
        (profile,) = profiled(
            lambda: launch.enqueue(functions),
            clock_mhz=mhz,
            simulated_workgroups=simulated_workgroups,
            trace_events=events,
        )
        return profile

    result = model(clock_mhz, trace_events)
    if advance is not None:
        advance(subject.title, 1, 1)
    of_xcd = -(-launch.num_workgroups // runtime.device_props().num_xcds)
    sampled = {}
    if result.simulated_workgroups < of_xcd:
        sampled = {"first_workgroups": result.simulated_workgroups, "of_workgroups": of_xcd}
    modelled = simulated(launch, result, sampled)
    record = modelled_record(blank, modelled)
    if record.short:
        record = settled(record, lambda mhz: simulated(launch, model(mhz)).activity)
    if sampled:  # these are cycles of a part, from which no rate of the whole follows
        record = dataclasses.replace(record, flops=0)
    return Outcome(record, modelled)
