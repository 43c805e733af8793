"""Runs planned operations as benchmarks, on given or random operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amdattn.arrays.buffers import DeviceArray
from amdattn.bench.kernels import Launch
from amdattn.bench.modelled import Modelled, simulated
from amdattn.bench.operation import activity, of_parts
from amdattn.bench.record import MEASURED, MODELLED, Record
from amdattn.bench.run import Outcome, is_virtual, settled, timed_record
from amdattn.device import runtime
from amdattn.op.executor import RunnablePlan
from amdattn.op.operation import Operation
from amdattn.tuning import runner
from amdattn.virtual import profiled


@dataclass(frozen=True)
class Planned:
    """A problem of an operation, planned for the bound device."""

    operation: Operation[Any, Any]
    problem: Any

    def __str__(self) -> str:
        text: str = self.problem.brief
        return text

    def plan(self) -> RunnablePlan[Any]:
        """The plan that a call would run; raises UnsupportedProblem if there is none."""
        return self.operation.planned(self.problem, runtime.device_props())

    def compared(self, outcome: Outcome) -> Outcome:
        """Relabel the outcome of a code object with this problem, so that both are in one table."""
        record = outcome.record
        part = "first_workgroups" in record.sampled  # no rate follows from a part of a launch
        named = dataclasses.replace(
            record, shape=str(self), flops=record.flops or self.problem.flops * (not part)
        )
        return dataclasses.replace(outcome, record=named)


def run_planned(
    planned: Planned,
    *,
    clock_mhz: int = 0,
    trace_events: int = 0,
    inputs: str = "",
    given: Mapping[str, DeviceArray] = {},
    is_whole: bool = False,
) -> Outcome:
    """Model or measure one problem; operands that are not given are random.

    Parameters
    ----------
    planned : Planned
    clock_mhz : int
        Assumed sustained clock; 0: the architecture's.
    trace_events : int
        Events of CU 0 to keep.
    inputs : str
        The name of the given operands in the record.
    given : dict of str to DeviceArray
        Operands by name.
    is_whole : bool
        Execute an operation of several launches once before it is modelled. The model executes only
        a part of the workgroups; this way each launch still reads what earlier launches write.
    """
    plan = planned.plan()
    is_modelled = is_virtual()
    blank = Record(
        planned.operation.name,
        str(planned),
        dataclasses.asdict(planned.problem),
        "amdattn",
        "",
        MODELLED if is_modelled else MEASURED,
        flops=planned.problem.flops,
        inputs=inputs,
    )
    run = runner(plan, given=given)
    # They only name the kernels in the record; `run` passes the arguments.
    launches = [
        Launch(
            *(launch.kernel.read_code_object(), launch.kernel.symbol, launch.grid),
            launch.kernel.workgroup,
            kernarg=b"",
        )
        for launch in plan.launches
    ]
    if not is_modelled:
        return Outcome(timed_record(blank, launches, run))

    if is_whole and is_modelled and len(plan.launches) > 1:
        run()
        runtime.synchronize()

    def model(mhz: int, events: int = 0) -> list[Modelled]:
        profiles = profiled(run, clock_mhz=mhz, trace_events=events)
        return list(map(simulated, launches, profiles))

    parts = model(clock_mhz, trace_events)
    main = max(range(len(parts)), key=lambda i: parts[i].cycles)
    record = of_parts(blank, parts, main)
    if record.short:
        record = settled(record, lambda mhz: activity(model(mhz)))
    return Outcome(record, parts[main])
