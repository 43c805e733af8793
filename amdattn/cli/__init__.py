"""The amdattn command."""

from __future__ import annotations

import sys

import typer

from amdattn.cli import bench, bench_launch, check, compare, micro, operations, tune
from amdattn.cli.output import stderr
from amdattn.errors import AmdattnError

app = typer.Typer(
    help="Precompiled attention kernels for AMD Instinct, on a GPU or on the virtual device.",
    no_args_is_help=True,
    add_completion=False,
)
for command in (
    operations.info,
    operations.demo,
    operations.run,
    check.check,
    compare.compare,
    operations.selftest,
    operations.explain,
):
    app.command()(command)
bench.app.command("launch")(bench_launch.launch)
bench.app.command("micro")(micro.micro)
app.add_typer(bench.app, name="bench")
app.add_typer(tune.app, name="tune")


def main() -> None:
    """Entry point: errors of the package become one line and exit code 2."""
    try:
        app()
    except (AmdattnError, ValueError, TypeError, OSError) as error:
        stderr.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        stderr.print(str(error), markup=False, highlight=False)
        sys.exit(2)
