"""What came of a sweep, as the benchmarks print and write it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from tests.support.adversary.sweep import Row

Rows = Mapping[tuple[str, str], Row]  # by class, and by kind of launch


def table(rows: Rows, kinds: Sequence[str]) -> Table:
    """A row for each class, with columns for each kind of launch."""
    shown = Table("class")
    for kind in kinds:
        for title in (f"{kind}: cases", "failures", "worst", "control"):
            shown.add_column(title, justify="right")
    for name in dict.fromkeys(name for name, _ in rows):
        cells = []
        for kind in kinds:
            row = rows.get((name, kind), Row())
            cells += [str(row.cases), str(row.failures), f"{row.worst:.3g}", str(row.control)]
        shown.add_row(name, *cells)
    return shown


def total(rows: Rows) -> tuple[int, int]:
    """Failures and cases."""
    return sum(row.failures for row in rows.values()), sum(row.cases for row in rows.values())


def write(path: Path, rows: Rows, seed: int, title: str) -> None:
    """All rows as JSON; `title` is the field of the kind of launch."""
    found = [{"class": name, title: kind, **row.as_dict()} for (name, kind), row in rows.items()]
    path.write_text(json.dumps({"seed": seed, "classes": found}, indent=1) + "\n")
