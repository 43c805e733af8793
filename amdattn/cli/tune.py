"""The commands that find the fastest kernel on the bound device."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from amdattn.cli.options import Activation, Bias, Deterministic, Dtype, K, N
from amdattn.cli.output import AsJson, print_json, progress_bar, stderr, stdout
from amdattn.cli.problem import registry_group
from amdattn.op.operation import Operation
from amdattn.ops.gemm.choice import Choice
from amdattn.output_files import check_outputs

if TYPE_CHECKING:
    from amdattn.tuning import Tuning


def _time(
    operation: Operation[Any, Any],
    problem: Any,
    *,
    shown: Annotated[int, typer.Option(metavar="N", min=1, help="Print the N fastest.")] = 8,
    as_json: AsJson = False,
) -> None:
    from amdattn import tuning

    found = tuning.choices_of(operation, problem)
    with _progress(tuning.prospect(operation, found.items), len(found.items), as_json) as advance:
        timed = tuning.tune(operation, problem, found, advance=advance)
    if as_json:
        print_json({"table": None, "tuned": [_facts(timed)]})
    else:
        _show(timed, shown)
        stdout.print(
            f"nothing is stored, because plans of {operation.name} use no table", highlight=False
        )


app = typer.Typer(
    cls=registry_group(_time, "Time every choice for {}."),
    help="Find the fastest kernel: modelled on the virtual device, measured on a GPU.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Keep this a group."""


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
            metavar="N", min=0, help="Time only the N choices with the least estimates; 0: all."
        ),
    ] = 0,
    table: Annotated[
        Path | None,
        typer.Option(help="Table to add to; default: $AMDATTN_GEMM_TABLE, or the user's table."),
    ] = None,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Print the N fastest.")] = 8,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time every kernel, width of tiles and number of parts; later plans take the fastest."""
    from amdattn import tuning
    from amdattn.device import runtime
    from amdattn.ops import registry
    from amdattn.ops.gemm import plans, table as gemm_table
    from amdattn.ops.gemm.problem import GemmProblem

    tried = _counts(splits)
    path = table or gemm_table.default_path()
    if not dry_run:
        if table is None:
            _make_folder(path.parent)
        check_outputs([("--table", path)])
        gemm_table.load(path)  # raises if it is not a table, before anything is timed
    problems = [
        GemmProblem(
            *(rows_of_a, n, k, dtype),
            bias=bias,
            activation=activation,
            deterministic=deterministic,
        )
        for rows_of_a in m
    ]
    operation = registry.operation("gemm")
    choices = [tuning.choices_of(operation, problem) for problem in problems]
    chosen = [_chosen(every.items, tried, candidates) for every in choices]
    found = []
    all_chosen = [choice for some in chosen for choice in some]
    text = tuning.prospect(operation, all_chosen)
    with _progress(text, len(all_chosen), as_json) as advance:
        for problem, every, some in zip(problems, choices, chosen, strict=True):
            found.append(tuning.tune(operation, problem, every, some, advance))
    if not dry_run:
        props = runtime.device_props()
        keys = [gemm_table.Key.of(problem, props) for problem in problems]
        best = [gemm_table.Tuned.of(one.timed[0].choice, one.timed[0].us, one.how) for one in found]
        gemm_table.store(path, zip(keys, best, strict=True))
        plans.forget_plans()
    if as_json:
        print_json(
            {"table": None if dry_run else str(path), "tuned": [_facts(one) for one in found]}
        )
        return
    for one in found:
        _show(one, rows)
    stdout.print("nothing is stored" if dry_run else f"stored in {path}", highlight=False)


@contextlib.contextmanager
def _progress(text: str, total: int, quiet: bool) -> Iterator[Callable[[Any, bool], None]]:
    """Print what will be done, then show which choice is being timed and how many are done."""
    if not quiet:
        stderr.print(text, highlight=False)
    with progress_bar(quiet=quiet) as progress:
        task = progress.add_task("", total=total)

        def advance(choice: Any, done: bool) -> None:
            what = ", ".join(
                str(fact) if name == "kernel" else f"{name} {fact}"
                for name, fact in choice.facts.items()
            )
            progress.update(task, description=what, advance=done)

        yield advance


def _make_folder(folder: Path) -> None:
    """Make the folder of the user's table."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the folder {folder} of the user's table cannot be created ({error.strerror}); name "
            "another file with --table or AMDATTN_GEMM_TABLE"
        ) from None


def _counts(splits: str) -> list[int]:
    """Read A,B,... of --splits; "" gives []."""
    parts = splits.split(",") if splits else []
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--splits={splits!r} must be counts of at least 1, such as 1,2,4")
    return [int(part) for part in parts]


def _chosen(choices: Sequence[Choice], splits: Sequence[int], candidates: int) -> list[Choice]:
    """The choices with these numbers of parts, cut to the `candidates` least estimated times.

    Without `splits` all numbers of parts count; with `candidates` 0 there is no cut.
    """
    chosen = [choice for choice in choices if not splits or choice.splits in splits]
    if not chosen:
        have = sorted({choice.splits for choice in choices})
        raise ValueError(f"splits={tuple(splits)} must include one of {have}")
    chosen.sort(key=lambda choice: choice.cost.clk)
    return chosen[: candidates or None]


def _facts(tuning: Tuning) -> dict[str, object]:
    return {
        "problem": dataclasses.asdict(tuning.problem),
        "how": tuning.how,
        "choices": [
            {
                **one.choice.facts,
                "us": one.us,
                "estimated_us": one.estimated_us,
            }
            for one in tuning.timed
        ],
    }


def _show(tuning: Tuning, rows: int) -> None:
    facts = [one.choice.facts for one in tuning.timed]
    table = Table("kernel", title=f"{tuning.problem.brief}, us {tuning.how}", title_justify="left")
    others = [name for name in facts[0] if name != "kernel"]
    for column in (*others, "us", "to the fastest", "estimated"):
        table.add_column(column, justify="right")
    fastest = tuning.timed[0].us
    for i, one in enumerate(tuning.timed[:rows]):
        table.add_row(
            *(str(facts[i][name]) for name in ("kernel", *others)),
            f"{one.us:.2f}",
            f"{one.us / fastest:.2f}",
            f"{one.estimated_us:.2f}",
            style="bold" if i == 0 else "",
        )
    stdout.print(table)
    if len(tuning.timed) > rows:
        slowest = tuning.timed[-1]
        stdout.print(f"{len(tuning.timed) - rows} more, up to {slowest.us:.2f} us", style="dim")
