"""The compare command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from amdattn.cli.output import AsJson, print_json, stdout


def compare(
    before: Annotated[Path, typer.Argument(help="A file that `amdattn bench --json` wrote.")],
    after: Annotated[Path, typer.Argument(help="Another one.")],
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Compare modelled with measured times.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, help="Exit code 1 if a time grew by more than this share."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ratios of the times in two benchmark files: after / before, below 1 is faster."""
    from amdattn.bench.compare import compare as match
    from amdattn.bench.record import read

    found = match(read(before)[1], read(after)[1], allow_mixed=mixed)
    slower = [
        pair
        for pair in found.pairs
        if threshold is not None and pair.ratio is not None and pair.ratio > 1 + threshold
    ]
    if as_json:
        print_json(
            {
                "geometric_mean": found.geometric_mean,
                "pairs": [
                    {
                        "shape": pair.after.shape,
                        "peer": pair.after.peer,
                        "round_mode": pair.after.round_mode,
                        "origin": [pair.before.origin, pair.after.origin],
                        "time_us": [pair.before.best_us, pair.after.best_us],
                        "ratio": pair.ratio,
                        "cycle_ratio": pair.cycle_ratio,
                        "same_kernel": pair.before.sha256 == pair.after.sha256,
                    }
                    for pair in found.pairs
                ],
                "only_before": [dataclasses.asdict(record) for record in found.only_before],
                "only_after": [dataclasses.asdict(record) for record in found.only_after],
            }
        )
    else:
        table = Table("shape", "kernel", "before ms", "after ms", "ratio", "cycles", "origin")
        for pair in found.pairs:
            a, b = pair.before, pair.after
            table.add_row(
                b.shape,
                f"{b.peer} {b.round_mode}" + " (same code)" * (a.sha256 == b.sha256 != ""),
                _milliseconds(a.best_us),
                _milliseconds(b.best_us),
                _ratio(pair.ratio),
                _ratio(pair.cycle_ratio),
                a.origin if a.origin == b.origin else f"{a.origin} -> {b.origin}",
                style="red" if pair in slower else None,
            )
        stdout.print(table)
        if found.geometric_mean is not None:
            stdout.print(f"geometric mean {found.geometric_mean:.4f}", highlight=False)
        for name, only in (("before", found.only_before), ("after", found.only_after)):
            for record in only:
                line = f"only in {name}: {record.shape} {record.peer} {record.round_mode}"
                stdout.print(line, style="dim", markup=False, highlight=False)
    if slower:
        raise typer.Exit(1)


def _milliseconds(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds / 1000:.3f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
