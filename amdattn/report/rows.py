"""What reports are made of: rows, and the steps that find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

OK, FAILED, INFO, ABSENT = "ok", "failed", "info", "not measured"


@dataclass(frozen=True)
class Row:
    """One line of a report.

    Attributes
    ----------
    outcome : {"ok", "failed", "info", "not measured"}
        "info" states a fact and can be neither right nor wrong.
    text : str
        What was found.
    data : dict
        The same for programs, as JSON has it.
    """

    what: str
    outcome: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


def verdict(what: str, wrong: str, text: str, **data: Any) -> Row:
    """A row that holds if nothing is wrong."""
    return Row(what, FAILED if wrong else OK, wrong or text, data)


@dataclass(frozen=True)
class Step:
    """A part of the report.

    Attributes
    ----------
    limit_s : float
        The process that runs it is ended after so long.
    run : callable
        Gives rows as they are found. An exception fails the step.
    """

    name: str
    title: str
    limit_s: float
    run: Callable[[], Iterator[Row]]
