"""The command that times launches on the host."""

from __future__ import annotations

import dataclasses
import platform
import sys
from typing import Annotated

import typer
from rich.table import Table

import amdattn
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout


def launch(
    rounds: Annotated[int, typer.Option(help="Batches per path.")] = 300,
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables of docs/launch-overhead.md.")
    ] = False,
) -> None:
    """Host overhead: µs that one launch costs the calling thread, path by path.

    On the virtual device launches are accepted and not executed. Exit code 1 if a bar is missed.
    """
    from amdattn import runtime
    from amdattn.bench import launch as bench

    with progress_bar(quiet=as_json or markdown) as progress:
        task = progress.add_task("host overhead", total=bench.num_rounds(rounds))
        measurements = bench.measure(rounds, lambda: progress.advance(task))
    if as_json:
        print_json(
            {
                "device": runtime.get().title,
                "versions": {
                    "amdattn": amdattn.__version__,
                    "hip-python": runtime.get().hip_python_version(),
                    "python": platform.python_version(),
                },
                "unit": "microseconds per call",
                "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
            }
        )
    elif markdown:
        sys.stdout.write(bench.markdown(measurements))
    else:
        for measurement in measurements:
            table = Table(title=f"{measurement.title}, µs per call", title_justify="left")
            table.add_column("path")
            for column in ("min", "median", "quartiles", "beyond raw", "bar"):
                table.add_column(column, justify="right", no_wrap=True)
            for row in measurement.rows:
                path, *figures = bench.cells(row)
                table.add_row(path.replace("`", ""), *figures)
            stdout.print(table)
    # The call alone is judged: what a stream's thread takes of the CPU is not the host path's.
    if not all(row.ok for row in measurements[0].rows):
        raise typer.Exit(1)
