"""Of attention over a cache."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

ARGUMENTS: tuple[Stated, ...] = ()
