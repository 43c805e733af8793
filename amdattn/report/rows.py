"""The parts of reports: rows, and the steps that yield them."""

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
        The finding.
    data : dict
        The finding for programs, as JSON.
    """

    what: str
    outcome: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)


def verdict(what: str, wrong: str, text: str, **data: Any) -> Row:
    """A row that is "ok" if nothing is wrong."""
    return Row(what, FAILED if wrong else OK, wrong or text, data)


@dataclass(frozen=True)
class Step:
    """A part of the report.

    Attributes
    ----------
    limit_s : float
        The time after which the process that runs it is ended.
    run : callable
        Yields rows as they are found. An exception fails the step.
    """

    name: str
    title: str
    limit_s: float
    run: Callable[[], Iterator[Row]]
