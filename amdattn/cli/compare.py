"""The compare command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from amdattn.bench.terminal import Line, print_groups
from amdattn.cli.output import AsJson, print_json, stdout


def compare(
    before: Annotated[Path, typer.Argument(help="A file that `amdattn bench --json` wrote.")],
    after: Annotated[Path, typer.Argument(help="Another such file.")],
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Also compare modelled with measured times.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, help="Exit with code 1 if a time grew by more than this share."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the times in two benchmark files: after / before, where below 1 is faster."""
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
                        "time_us": list(pair.microseconds),
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
        groups: dict[str, list[Line]] = {}
        for pair in found.pairs:
            a, b = pair.before, pair.after
            cells = {
                "kernel": b.label + " (same code)" * (a.sha256 == b.sha256 != ""),
                "before ms": _milliseconds(pair.microseconds[0]),
                "after ms": _milliseconds(pair.microseconds[1]),
                "ratio": _ratio(pair.ratio),
                "cycles": _ratio(pair.cycle_ratio),
                "origin": a.origin if a.origin == b.origin else f"{a.origin} -> {b.origin}",
            }
            style = "red" if pair in slower else ""
            groups.setdefault(b.shape, []).append(Line(cells, style))
        print_groups(stdout, list(cells), groups)
        if found.geometric_mean is not None:
            stdout.print(f"geometric mean {found.geometric_mean:.4f}", highlight=False)
        for name, only in (("before", found.only_before), ("after", found.only_after)):
            for record in only:
                line = f"only in {name}: {record.shape} {record.label}"
                stdout.print(line, style="dim", markup=False, highlight=False)
    if slower:
        raise typer.Exit(1)


def _milliseconds(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds / 1000:.3f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
