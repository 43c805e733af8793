"""Arguments of problems as options of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REQUIRED: Any = ...


@dataclass(frozen=True, slots=True)
class Option:
    """One argument.

    Attributes
    ----------
    name : str
        The argument of `Operation.problem`.
    type : type
        Type of its value.
    default
        `REQUIRED` if there is none.
    help : str
    flags : tuple of str
        Flags; if there are none, ``--`` and the name.
    """

    name: str
    type: Any
    default: Any
    help: str
    flags: tuple[str, ...] = ()
