"""The body of the bench commands that are made from the registry of operations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from amdattn.cli.bench_output import (
    ClockMhz,
    Csv,
    Details,
    InputsName,
    Markdown,
    Output,
    Plot,
    Readings,
    TileInputs,
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
    inputs: InputsName = "normal",
    tile_inputs: TileInputs = False,
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
    """Model or measure one problem of an operation and print its row."""
    from amdattn.bench import run
    from amdattn.bench.cache_inputs import operands
    from amdattn.bench.inputs import NORMAL, named
    from amdattn.bench.planned import Planned, run_planned

    output = Output(as_json, markdown, wide, csv, plot or [], trace)
    planned = Planned(operation, problem)
    contents = named(inputs, is_tiled=tile_inputs)
    given = operands(planned.plan(), contents)  # raises for unsupported problems before they run
    if not given and contents != NORMAL:
        raise ValueError(
            f"--inputs={inputs!r} must be {NORMAL.name} for {operation.name} {planned}"
        )
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    with spinner(str(planned), quiet=as_json):
        for way in chosen_readings(reading):
            with run.reading(way):
                outcomes.append(
                    run_planned(
                        planned,
                        clock_mhz=clock_mhz,
                        trace_events=output.trace_events,
                        inputs=contents.name if given else "",
                        given=given,
                        is_whole=bool(given),
                    )
                )
    seconds = time.perf_counter() - start
    show(operation.name, outcomes, output, seconds, details=details, unit="us")
