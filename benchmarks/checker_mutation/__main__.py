"""Mutates kernels, launches the mutants in checked mode, and counts which are reported.

    python -m benchmarks.checker_mutation attention|gemm|narrow_indices|all [--sample N]
    python -m benchmarks.checker_mutation kernel.hsaco --grid X,Y,Z --args ... [--sample N]

The page docs/studies/checked-mode-mutation.md is written by tests.support.mutation.campaign,
which has more kernels than the shipped ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from amdattn.cli import errors
from amdattn.cli.bench_output import Args, DynamicLds, Grid, KernelName, Workgroup
from amdattn.cli.check import object_of_file
from amdattn.cli.options import refuse_given
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout
from amdattn.device import manifest, runtime
from amdattn.ops import registry
from benchmarks.checker_mutation.campaign import campaign
from benchmarks.checker_mutation.object_file import object_subject
from benchmarks.checker_mutation.subject import Subject, shipped_subjects

# The ops of the manifest that an operation launches.
_CODE_OBJECT = ("kernel", "grid", "workgroup", "args", "dynamic_lds")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def mutate(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(help="attention, gemm, a shipped kernel, all of them, or a code object."),
    ],
    kernel: KernelName = None,
    grid: Grid = None,
    workgroup: Workgroup = None,
    args: Args = "",
    dynamic_lds: DynamicLds = 0,
    sample: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of the mutants, instead of every one.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of the inputs of an object, and of the sample.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Mutate, launch in checked mode, count. Exit code 1 if too few mutants are reported."""
    subjects: Sequence[Subject]
    if subject in (*registry.names(), *(row.name for row in manifest.kernels()), "all"):
        refuse_given(context, _CODE_OBJECT, f"cannot be combined with {subject}")
        subjects = shipped(subject)
    else:
        file = object_of_file(subject, kernel, grid, workgroup, args, dynamic_lds, seed)
        subjects = [object_subject(file)]
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


def shipped(name: str) -> list[Subject]:
    """The shipped kernels of an operation or of a name, or of "all"."""
    wanted = {
        row.name for row in manifest.kernels() if name in ("all", row.name, *_operations(row.op))
    }
    return shipped_subjects(runtime.device_props(), wanted)


def _operations(op: str) -> list[str]:
    return [one.name for one in registry.operations() if op in one.kernel_ops]


def main() -> int:
    """Run the command line; returns its exit code."""
    return errors.run(app, "python -m benchmarks.checker_mutation")


if __name__ == "__main__":
    sys.exit(main())
