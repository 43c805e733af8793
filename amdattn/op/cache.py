"""The memory that plans keep of operands that they have seen."""

from __future__ import annotations

from typing import TypeVar

MAX_KEPT = 64
Kept = TypeVar("Kept")


def keep(cache: dict[object, Kept], key: object, value: Kept) -> None:
    """Remember a value, among at most `MAX_KEPT`. Safe for any number of threads.

    A full cache is emptied: then operands do not recur, or all of them soon will.
    """
    if len(cache) >= MAX_KEPT:
        cache.clear()
    cache[key] = value
