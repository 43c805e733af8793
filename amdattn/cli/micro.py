"""The command that runs the micro kernels."""

from __future__ import annotations

from typing import Annotated

import typer

from amdattn.arch.readings import DEFAULT
from amdattn.cli.bench_output import Markdown
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout


def micro(
    only: Annotated[
        str, typer.Option(metavar="A,B,...", help="Run only rows with one of these in their names.")
    ] = "",
    reading: Annotated[
        str, typer.Option(help="The reading of the hardware to model: docs/generated/readings.md.")
    ] = DEFAULT,
    as_json: AsJson = False,
    markdown: Markdown = False,
) -> None:
    """Run micro kernels that test the performance model's assumptions: docs/real-gpu-report.md."""
    from rich.table import Table

    from amdattn.bench import micro as bench, run
    from amdattn.bench.run import is_virtual
    from amdattn.device import runtime

    if as_json and markdown:
        raise ValueError("--json and --markdown cannot be combined")
    rows = bench.rows(only)
    found = []
    with progress_bar(quiet=as_json) as progress, run.reading(reading):
        task = progress.add_task("micro kernels", total=len(rows))
        for figure in bench.figures(rows):
            found.append(figure)
            progress.update(task, advance=1, description=figure.row.what)
    if as_json:
        print_json(
            {
                "device": runtime.get().title,
                "reading": reading if is_virtual() else "",
                "rows": [figure.as_dict() for figure in found],
            }
        )
        return
    if markdown:
        typer.echo(bench.markdown(found), nl=False)
        return
    shown = Table(title=f"micro kernels, {runtime.get().title}")
    for column in bench.COLUMNS:
        shown.add_column(column)
    for figure in found:
        shown.add_row(*bench.cells(figure))
    stdout.print(shown)
    if is_virtual():
        ghz = runtime.device_props().peak_clock_ghz
        stdout.print(
            f"modelled, not measured: rates at the peak clock of {ghz:g} GHz", highlight=False
        )
