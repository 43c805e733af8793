"""The mutation campaign of `amdattn check --mutate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from amdattn.cli.output import print_json, progress_bar, stdout
from amdattn.device import manifest, runtime
from amdattn.ops.attention import select
from amdattn.ops.gemm.planning import GEMM

if TYPE_CHECKING:
    from amdattn.checking.mutation.subject import Subject

# The ops of the manifest that they launch.
OPERATIONS = {
    "attention": (select.ATTENTION, select.MERGE, select.GATHER),
    "gemm": (GEMM,),
}


def shipped(name: str) -> list[Subject]:
    """The shipped kernels of an operation, or of "all"."""
    from amdattn.checking.mutation.subject import shipped_subjects

    wanted = {row.name for row in manifest.kernels() if name in ("all", *_operations(row.op))}
    return shipped_subjects(runtime.device_props(), wanted)


def _operations(op: str) -> list[str]:
    return [name for name, ops in OPERATIONS.items() if op in ops]


def mutate(subjects: Sequence[Subject], sample: int | None, seed: int, as_json: bool) -> None:
    """Mutate, launch, count. Exit code 1 if too few mutants are reported."""
    from amdattn.checking.mutation.campaign import campaign

    with progress_bar(quiet=as_json) as progress:
        task = progress.add_task("", total=None)

        def advance(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        report = campaign(subjects, sample=sample, seed=seed, progress=advance)
    if as_json:
        print_json(report.as_dict())
    else:
        stdout.print(report.table())
        for line in report.failures:
            stdout.print(line, style="bold red", markup=False, highlight=False)
    if report.failures:
        raise typer.Exit(1)
