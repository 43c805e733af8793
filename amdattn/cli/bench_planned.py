"""The bench commands that the registry makes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from amdattn.cli.bench_output import (
    ClockMhz,
    Csv,
    Details,
    Markdown,
    Output,
    Plot,
    Readings,
    Trace,
    Wide,
    chosen_readings,
    show,
)
from amdattn.cli.output import AsJson, spinner
from amdattn.op.operation import Operation

if TYPE_CHECKING:
    from amdattn.bench.run import Outcome


def bench(
    operation: Operation[Any, Any],
    problem: Any,
    *,
    clock_mhz: ClockMhz = 0,
    reading: Readings = None,
    as_json: AsJson = False,
    csv: Csv = None,
    markdown: Markdown = False,
    wide: Wide = False,
    plot: Plot = None,
    trace: Trace = None,
    details: Details = False,
) -> None:
    """Model or measure one problem."""
    from amdattn.bench import run
    from amdattn.bench.planned import Planned, run_planned

    output = Output(as_json, markdown, wide, csv, plot or [], trace)
    planned = Planned(operation, problem)
    planned.plan()  # what no kernel does is an error before anything runs
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    with spinner(str(planned), quiet=as_json):
        for way in chosen_readings(reading):
            with run.reading(way):
                outcomes.append(
                    run_planned(planned, clock_mhz=clock_mhz, trace_events=output.trace_events)
                )
    seconds = time.perf_counter() - start
    show(operation.name, outcomes, output, seconds, details=details, unit="us")
