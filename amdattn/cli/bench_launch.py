"""The command that times launches on the host."""

from __future__ import annotations

import dataclasses
import platform
import sys
from typing import Annotated

import typer
from rich.text import Text

import amdattn
from amdattn.bench.terminal import Line, print_groups
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout


def launch(
    rounds: Annotated[int, typer.Option(help="Batches per path.")] = 300,
    as_json: AsJson = False,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print the tables of docs/studies/launch-overhead.md."),
    ] = False,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="Print all columns; default: those that fit 80 characters."),
    ] = False,
) -> None:
    """Time host overhead: µs that one launch costs the calling thread, by call path.

    The virtual device accepts launches here without executing them. Exit code 1 if a path exceeds
    its bar.
    """
    from amdattn.bench import launch as bench
    from amdattn.device import runtime

    with progress_bar() as progress:
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
        columns = bench.COLUMNS if wide else bench.FEW_COLUMNS
        for measurement in measurements:
            stdout.print(Text(f"{measurement.title}, µs per call", "bold"), soft_wrap=True)
            rows = [
                Line(
                    {name: text.replace("`", "") for name, text in bench.cells(row).items()},
                    "" if row.ok else "bold red",
                )
                for row in measurement.rows
            ]
            print_groups(stdout, columns, {"": rows})
            stdout.print()
        stdout.print(f"times {runtime.get().measured_on}", style="dim", highlight=False)
    # Only the first device counts: the CPU time of a stream's thread is not host overhead.
    if not all(row.ok for row in measurements[0].rows):
        raise typer.Exit(1)
