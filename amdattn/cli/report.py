"""Runs and prints `amdattn selftest --report`."""

from __future__ import annotations

from pathlib import Path

import typer

from amdattn.cli.output import progress_bar, stdout


def write_report(given: Path, quick: bool, step_limit: float | None) -> None:
    """Run every step, write the two files and print a summary.

    Parameters
    ----------
    given : Path
        The name of the files, without suffix or with one of them.
    quick : bool
        Run only a part of each step.
    step_limit : float or None
        Seconds that a step may take; None: the limits of the steps.

    Raises
    ------
    ValueError
        `step_limit` is not positive, or the files cannot be written.
    typer.Exit
        With code 1 if a step failed.
    """
    from amdattn.report import document, make

    if step_limit is not None and not step_limit > 0:
        raise ValueError(f"--step-limit={step_limit} must be positive, in seconds")
    files = document.files_of(given)
    of = make.parts(quick, step_limit)
    with progress_bar() as progress:
        task = progress.add_task("report", total=sum(len(part.planned) for part in of))

        def advance(title: str) -> None:
            progress.update(task, advance=1, description=title)

        report = make.make(of, files, quick=quick, advance=advance)
    for status, names in report["steps_not_ok"].items():
        stdout.print(f"{status}: {', '.join(names)}", style="red", highlight=False)
    name = report["device"].get("name", "no device")
    count = len(report["device_steps"]) + len(report["model_steps"])
    stdout.print(
        f"{count} steps on {name}, {report['seconds']:g} s: {files[0]} and {files[1]}",
        highlight=False,
        soft_wrap=True,
    )
    if not report["ok"]:
        raise typer.Exit(1)
