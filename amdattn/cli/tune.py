"""The commands that find the fastest kernel on the device at hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from amdattn.cli.options import Activation, Bias, Deterministic, Dtype, K, N
from amdattn.cli.output import AsJson, print_json, progress_bar, stdout
from amdattn.output_files import check_outputs

if TYPE_CHECKING:
    from amdattn.tuning import Tuning

app = typer.Typer(
    help="Find the fastest kernel: modelled on the virtual device, measured on a GPU.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Keep `gemm` a command of its own: typer makes the only one of a group the group."""


@app.command()
def gemm(
    m: Annotated[list[int], typer.Option("--m", "-m", help="Rows of a. Repeatable.")],
    n: N,
    k: K,
    dtype: Dtype = "bfloat16",
    activation: Activation = None,
    bias: Bias = False,
    deterministic: Deterministic = True,
    splits: Annotated[
        str, typer.Option(help="Splits of k to try, e.g. 1,2,4; default: 1 to 16.")
    ] = "",
    candidates: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Time so many with the least estimated time; 0: all."
        ),
    ] = 0,
    table: Annotated[
        Path | None,
        typer.Option(help="File to add to; default: $AMDATTN_GEMM_TABLE or the user's own."),
    ] = None,
    rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Print so many of the fastest.")
    ] = 8,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time every kernel, width of tiles and number of parts; plans then take the fastest."""
    from amdattn import tuning
    from amdattn.device import runtime
    from amdattn.ops.gemm import small_m as gemm_module, table as gemm_table
    from amdattn.ops.gemm.problem import GemmProblem

    tried = _counts(splits)
    path = table or gemm_table.default_path()
    if not dry_run:
        if table is None:
            path.parent.mkdir(parents=True, exist_ok=True)
        check_outputs([("--table", path)])
        gemm_table.load(path)  # what is no table is an error before anything is timed
    problems = [
        GemmProblem(
            *(rows_of_a, n, k, dtype),
            bias=bias,
            activation=activation,
            deterministic=deterministic,
        )
        for rows_of_a in m
    ]
    choices = [tuning.choices_of(problem, tried, candidates) for problem in problems]
    found = []
    with progress_bar(quiet=as_json) as progress:
        task = progress.add_task("kernels", total=sum(map(len, choices)))
        for problem, some in zip(problems, choices, strict=True):
            found.append(tuning.tune(problem, some, lambda: progress.advance(task)))
    if not dry_run:
        props = runtime.device_props()
        keys = [gemm_table.Key.of(problem, props) for problem in problems]
        gemm_table.store(path, zip(keys, (one.best for one in found), strict=True))
        gemm_module.forget_plans()
    if as_json:
        print_json(
            {"table": None if dry_run else str(path), "tuned": [_facts(one) for one in found]}
        )
        return
    for one in found:
        _show(one, rows)
    stdout.print("nothing stored" if dry_run else f"stored in {path}", highlight=False)


def _counts(splits: str) -> list[int]:
    """Read A,B,... of --splits; "" is none."""
    parts = splits.split(",") if splits else []
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--splits={splits!r} must be counts of 1 and more, such as 1,2,4")
    return [int(part) for part in parts]


def _facts(tuning: Tuning) -> dict[str, object]:
    return {
        "problem": dataclasses.asdict(tuning.problem),
        "how": tuning.how,
        "choices": [
            {
                "kernel": one.choice.kernel.name,
                "splits": one.choice.splits,
                "columns": one.choice.columns,
                "us": one.us,
                "estimated_us": one.estimated_us,
            }
            for one in tuning.timed
        ],
    }


def _show(tuning: Tuning, rows: int) -> None:
    p = tuning.problem
    title = f"m={p.m} n={p.n} k={p.k} {p.dtype}, us {tuning.how}"
    table = Table("kernel", title=title, title_justify="left")
    for column in ("columns", "splits", "us", "to the fastest", "estimated"):
        table.add_column(column, justify="right")
    fastest = tuning.timed[0].us
    for i, one in enumerate(tuning.timed[:rows]):
        table.add_row(
            one.choice.kernel.name,
            str(one.choice.columns),
            str(one.choice.splits),
            f"{one.us:.2f}",
            f"{one.us / fastest:.2f}",
            f"{one.estimated_us:.2f}",
            style="bold" if i == 0 else "",
        )
    stdout.print(table)
    if len(tuning.timed) > rows:
        slowest = tuning.timed[-1]
        stdout.print(f"{len(tuning.timed) - rows} more, up to {slowest.us:.2f} us", style="dim")
