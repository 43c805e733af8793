"""What plans remember of the operands that they have met."""

from __future__ import annotations

from typing import TypeVar

MAX_KEPT = 64
Kept = TypeVar("Kept")


def keep(cache: dict[object, Kept], key: object, value: Kept) -> None:
    """Remember a value, among `MAX_KEPT` at most; threads may look up and remember at a time.

    All go when it is full: then operands do not come again, or all will soon.
    """
    if len(cache) >= MAX_KEPT:
        cache.clear()
    cache[key] = value
