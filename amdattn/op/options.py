"""Arguments of problems as commands have them."""

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
        As `Operation.problem` takes it.
    type : type
        Of its value.
    default
        `REQUIRED` if there is none.
    help : str
    flags : tuple of str
        Without any ``--`` and the name.
    """

    name: str
    type: Any
    default: Any
    help: str
    flags: tuple[str, ...] = ()
