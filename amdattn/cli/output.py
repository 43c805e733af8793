"""Consoles, progress displays and printing functions that all commands share."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

stdout = Console()
stderr = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


@contextlib.contextmanager
def spinner(text: str, quiet: bool) -> Iterator[None]:
    """Show a line on stderr while the block runs, if stderr is a terminal."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=stderr,
        transient=True,
        disable=quiet or not stderr.is_terminal,
    ) as progress:
        progress.add_task(text, total=None)
        yield


def progress_bar(quiet: bool = False) -> Progress:
    """A progress bar on stderr with the remaining time, shown if stderr is a terminal."""
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1)),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=stderr,
        disable=quiet or not stderr.is_terminal,
        transient=True,
        expand=True,
    )


def print_facts(title: str, facts: Any) -> None:
    """Print a table of names and values."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(str(key), Text(str(value)))
    stdout.print(table)


def print_json(document: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
