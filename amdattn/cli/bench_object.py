"""The bench command for a user's own code objects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amdattn.cli.bench_output import (
    Args,
    ClockMhz,
    Csv,
    DynamicLds,
    KernelName,
    Markdown,
    Output,
    Plot,
    Readings,
    SimulatedWorkgroups,
    Trace,
    Wide,
    Workgroup,
    chosen_readings,
    objects,
    run_object,
    show,
)
from amdattn.cli.output import AsJson, spinner

if TYPE_CHECKING:
    from amdattn.bench.run import Outcome


def bench_object(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Code objects, such as k.hsaco.")
    ],
    grid: Annotated[str, typer.Option(help="Workgroups: X, X,Y or X,Y,Z.")],
    kernel: KernelName = None,
    workgroup: Workgroup = None,
    args: Args = "",
    dynamic_lds: DynamicLds = 0,
    simulated_workgroups: SimulatedWorkgroups = 0,
    clock_mhz: ClockMhz = 0,
    reading: Readings = None,
    as_json: AsJson = False,
    csv: Csv = None,
    markdown: Markdown = False,
    wide: Wide = False,
    plot: Plot = None,
    trace: Trace = None,
) -> None:
    """Time a kernel of your own, with its bytes and stalls; several files run with the same grid.

    Grid, workgroup and arguments are those of `amdattn check FILE`.
    """
    from amdattn.bench import run
    from amdattn.bench.kernels import Functions

    output = Output(as_json, markdown, wide, csv, plot or [], trace)
    subjects = objects(files, kernel, grid, workgroup, args, dynamic_lds)
    functions = Functions()
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    for way in chosen_readings(reading):
        for subject in subjects:
            with spinner(subject.title, quiet=as_json), run.reading(way):
                outcomes.append(
                    run_object(
                        subject, functions, "object", simulated_workgroups, clock_mhz, output
                    )
                )
    seconds = time.perf_counter() - start
    show("code objects", outcomes, output, seconds, details=True, unit="us")
