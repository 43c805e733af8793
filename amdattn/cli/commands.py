"""Every command of `amdattn`, in one application."""

from __future__ import annotations

from typing import Annotated

import typer

import amdattn
from amdattn.cli import (
    bench,
    bench_gemm,
    bench_launch,
    bench_llama,
    bench_object,
    bench_output,
    build,
    check,
    compare,
    exec,
    explain,
    micro,
    operations,
    run,
    tune,
)

app = typer.Typer(
    help="Precompiled attention kernels for AMD Instinct, on a GPU or on the virtual device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    operations.info,
    operations.demo,
    run.run,
    check.check,
    build.build,
    compare.compare,
    operations.selftest,
):
    app.command()(command)
# Options after the program belong to the program.
app.command("exec", context_settings={"allow_interspersed_args": False})(exec.execute)
app.add_typer(explain.app, name="explain")
bench.app.command(cls=bench_output.BenchCommand)(bench_gemm.gemm)
bench.app.command("object", cls=bench_output.BenchCommand)(bench_object.bench_object)
bench.app.command("launch")(bench_launch.launch)
bench.app.command("llama")(bench_llama.llama)
bench.app.command("micro")(micro.micro)
app.add_typer(bench.app, name="bench")
app.add_typer(tune.app, name="tune")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"amdattn {amdattn.__version__}")
        raise typer.Exit


@app.callback()
def _of_all_commands(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Precompiled attention kernels for AMD Instinct, on a GPU or on the virtual device."""
