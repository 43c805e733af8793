"""Tables for a terminal of 80 columns, and wide ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_GAP = 2
_INDENT = 2
_WIDEST = 1000


@dataclass(frozen=True)
class Line:
    """A row: texts by column, and a style of rich. Columns without a text are empty."""

    cells: Mapping[str, str]
    style: str = ""


def print_groups(
    console: Console, columns: Sequence[str], groups: Mapping[str, Sequence[Line]], *, left: int = 1
) -> None:
    """Print groups of rows with the same columns, each group under a heading.

    Columns are as wide as their longest text. If they do not fit the console, the texts of the
    first column are shortened.

    Parameters
    ----------
    groups : dict of str to sequence of Line
        By heading; "": no heading.
    left : int
        The first `left` columns are left-justified, the others right-justified.
    """
    lines = [line for group in groups.values() for line in group]
    widths = [
        max(len(name), *(len(line.cells.get(name, "")) for line in lines)) for name in columns
    ]
    indent = _INDENT if any(groups) else 0
    widths[0] += indent
    rest = sum(widths[1:]) + _GAP * (len(columns) - 1)
    widths[0] = max(min(widths[0], console.width - rest), len(columns[0]))

    def row(texts: Iterable[str], style: str) -> None:
        shown = [
            _fitted(text, width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        console.print(Text((" " * _GAP).join(shown).rstrip(), style), soft_wrap=True)

    row(columns, "dim")
    for heading, group in groups.items():
        if heading:
            console.print(Text(heading, "cyan"), soft_wrap=True)
        for line in group:
            first, *others = (line.cells.get(name, "") for name in columns)
            row([" " * indent + first, *others], line.style)


def _fitted(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def print_wide(console: Console, table: Table) -> None:
    """Print a table at its full width, even if the terminal is narrower."""
    wide = console.options.update(max_width=_WIDEST)
    width = Measurement.get(console, wide, table).maximum
    before = console.width
    console.width = max(width, before)
    try:
        console.print(table)
    finally:
        console.width = before
