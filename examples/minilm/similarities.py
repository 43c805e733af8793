"""Sentences to compare, and how similar their embeddings are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from minilm import Array
from rich import box
from rich.table import Table
from rich.text import Text

SENTENCES = (
    "A cat is asleep on the sofa.",
    "The kitten naps on the couch.",
    "How do I change my password?",
    "I forgot my login and need a new one.",
    "Rain flooded the valley overnight.",
    "After the storm, the river burst its banks.",
    "The orchestra tuned its instruments before the concert began.",
    "Attention compares every token with every other one.",
)


def table_of(sentences: Sequence[str], similarity: Array) -> Table:
    """The cosine similarity of every pair, the nearest other sentence in bold."""
    others = np.where(np.eye(len(similarity), dtype=bool), -np.inf, similarity)
    table = Table(
        title="cosine similarity (bold: the nearest other sentence)",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("", justify="right")
    table.add_column("sentence", min_width=24)
    for number in range(1, len(similarity) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for row, sentence in enumerate(sentences):
        nearest = int(others[row].argmax())
        cells = [
            # + 0.0 turns the -0.0 of a rounded value into 0.0
            Text(f"{round(value, 2) + 0.0:.2f}", style=_style(row, column, nearest))
            for column, value in enumerate(similarity[row])
        ]
        table.add_row(str(row + 1), Text(sentence), *cells)
    return table


def _style(row: int, column: int, nearest: int) -> str:
    if row == column:
        return "dim"
    return "bold green" if column == nearest else ""
