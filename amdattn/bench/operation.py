"""Runs an operation as a benchmark: one launch, or several with the launch overhead between."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

from amdattn.bench.clocks import clocks
from amdattn.bench.inputs import NORMAL, Inputs
from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.modelled import Advance, Modelled, NotLinear
from amdattn.bench.peer import Peer
from amdattn.bench.record import MEASURED, MODELLED, Record, Times
from amdattn.bench.run import (
    Outcome,
    energy,
    estimated_us,
    is_virtual,
    measured_record,
    modelled_record,
    settled,
)
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.energy import Activity

# The fields that the record keeps for each launch of an operation with several.
_OF_A_LAUNCH = (
    *("kernel", "sha256", "cycles", "times", "use", "stalls", "bytes"),
    *("workgroups", "residents", "rounds", "hottest"),
)


def run_operation(
    kernel: Peer,
    shape: Shape,
    functions: Functions,
    *,
    method: str = "auto",
    clock_mhz: int = 0,
    trace_events: int = 0,
    advance: Advance | None = None,
    inputs: Inputs = NORMAL,
) -> Outcome:
    """Model or measure one operation at one shape.

    If the kernel cannot solve the shape, the record states the reason. An operation of several
    launches gives one record: its cycles are the sum, its times include the launch overhead between
    launches, and `Record.launches` has the parts.

    Parameters
    ----------
    kernel : Peer
    shape : Shape
    functions : Functions
        Code objects that are loaded already.
    method, clock_mhz, trace_events, advance, inputs
        As in `SamplerBase`.
    """
    modelled = is_virtual()
    blank = Record(
        "attention",
        str(shape),
        dataclasses.asdict(shape),
        kernel.peer,
        kernel.round_mode,
        MODELLED if modelled else MEASURED,
        flops=shape.flops,
        inputs=inputs.name,
    )
    refusal = kernel.refusal(shape)
    if refusal:
        return Outcome(dataclasses.replace(blank, refused=refusal))
    if not modelled:
        return Outcome(_measured(kernel, shape, functions, blank, inputs))

    def model(mhz: int, events: int = 0) -> list[Modelled]:
        return kernel.model(
            shape,
            functions,
            method=method,
            clock_mhz=mhz,
            trace_events=events,
            advance=advance,
            inputs=inputs,
        )

    try:
        parts = model(clock_mhz, trace_events)
        main = max(range(len(parts)), key=lambda i: parts[i].clk["mfma"])
        record = of_parts(blank, parts, main)
        if record.short:
            record = settled(record, lambda mhz: activity(model(mhz)))
    except NotLinear as error:
        return Outcome(dataclasses.replace(blank, refused=str(error)))
    return Outcome(record, parts[main])


def activity(parts: Sequence[Modelled]) -> Activity:
    """The total activity of consecutive launches."""
    return functools.reduce(operator.add, (part.activity for part in parts))


def of_parts(blank: Record, parts: Sequence[Modelled], main: int) -> Record:
    """The record of consecutive launches, with the estimate of their energy.

    Details such as the hottest instructions are those of launch number `main`.
    """
    records = [modelled_record(blank, part) for part in parts]
    if len(records) == 1:
        return records[0]
    whole = combined(blank, records, main)
    found = energy(activity(parts))
    of_launches = estimated_us(found, whole.bytes, clocks(runtime.device_props()))
    between = whole.clocks["launch_us"] * (len(parts) - 1)
    us = None if of_launches is None else between + of_launches
    return dataclasses.replace(
        whole, energy=found, times=dataclasses.replace(whole.times, estimated_us=us)
    )


def _measured(
    kernel: Peer, shape: Shape, functions: Functions, blank: Record, inputs: Inputs
) -> Record:
    with Operands(shape, inputs) as operands:
        launches = kernel.launches(shape, operands)
        operands.fill_all()
        return measured_record(blank, launches, functions)


def combined(blank: Record, parts: Sequence[Record], main: int) -> Record:
    """One modelled record of consecutive launches; details are those of launch number `main`."""
    cycles = [part.cycles or 0 for part in parts]

    def mean(name: str) -> dict[str, float]:
        """Mean over the parts, weighted by their cycles."""
        rows: list[dict[str, float]] = [getattr(part, name) for part in parts]
        return {
            key: sum(clk * row[key] for clk, row in zip(cycles, rows, strict=True)) / sum(cycles)
            for key in rows[0]
        }

    between = parts[0].clocks["launch_us"] * (len(parts) - 1)
    by_use = [part.times.by_use_us for part in parts]
    by_use_us = None if None in by_use else between + sum(us or 0.0 for us in by_use)
    return dataclasses.replace(
        blank,
        kernel=" + ".join(part.kernel for part in parts),
        sha256=" + ".join(dict.fromkeys(part.sha256 for part in parts)),
        cycles=sum(cycles),
        times=Times(
            at_peak_us=between + sum(part.times.at_peak_us or 0.0 for part in parts),
            at_sustained_us=between + sum(part.times.at_sustained_us or 0.0 for part in parts),
            by_use_us=by_use_us,
        ),
        use=mean("use"),
        stalls=mean("stalls"),
        bytes={level: sum(part.bytes[level] for part in parts) for level in parts[0].bytes},
        workgroups=sum(part.workgroups for part in parts),
        residents=max(part.residents for part in parts),
        rounds=sum(part.rounds for part in parts),
        clocks=parts[main].clocks,
        reading=parts[0].reading,
        caches=parts[0].caches,
        sampled=parts[main].sampled,
        hottest=parts[main].hottest,
        launches=[_part(part) for part in parts],
    )


def _part(record: Record) -> dict[str, Any]:
    return {name: row for name, row in dataclasses.asdict(record).items() if name in _OF_A_LAUNCH}
