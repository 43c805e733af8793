"""Compares two files that `amdattn bench --json` wrote, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from amdattn.bench.inputs import NORMAL
from amdattn.bench.record import Record, estimate_leads


@dataclass(frozen=True)
class Pair:
    """The same kernel source, rounding and shape in both files."""

    before: Record
    after: Record

    @property
    def ratio(self) -> float | None:
        """Time after / time before: below 1 is faster."""
        before, after = self.microseconds
        return after / before if before and after else None

    @property
    def microseconds(self) -> tuple[float | None, float | None]:
        """Before and after, at the clock by which both are to be compared."""
        estimated = estimate_leads([self.before, self.after])
        return self.before.us(estimated), self.after.us(estimated)

    @property
    def cycle_ratio(self) -> float | None:
        """Of the modelled cycles."""
        before, after = self.before.cycles, self.after.cycles
        return after / before if before and after else None


@dataclass(frozen=True)
class Comparison:
    """What is in both files, and what is in only one."""

    pairs: tuple[Pair, ...]
    only_before: tuple[Record, ...]
    only_after: tuple[Record, ...]

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios."""
        ratios = [pair.ratio for pair in self.pairs if pair.ratio is not None]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def compare(
    before: Sequence[Record], after: Sequence[Record], *, allow_mixed: bool = False
) -> Comparison:
    """Match the records of two runs.

    Parameters
    ----------
    allow_mixed : bool
        Compare modelled with measured times, which are different things.

    Raises
    ------
    ValueError
        Nothing is in both; or a pair mixes modelled and measured, or modelled times at two clocks.
    """
    known = {_key(record): record for record in before}
    pairs = [Pair(known[_key(record)], record) for record in after if _key(record) in known]
    if not pairs:
        raise ValueError("the two files have no shape, kernel, rounding and inputs in common")
    for pair in pairs:
        a, b = pair.before, pair.after
        what = f"{a.shape} {a.peer} {a.round_mode}"
        if a.origin != b.origin and not allow_mixed:
            raise ValueError(
                f"{what} is {a.origin} in one file and {b.origin} in the other; --mixed compares "
                "them all the same"
            )
        if a.clocks.get("sustained_ghz") != b.clocks.get("sustained_ghz") and a.origin == b.origin:
            raise ValueError(
                f"{what} was modelled at {a.clocks.get('sustained_ghz')} and at "
                f"{b.clocks.get('sustained_ghz')} GHz; run both at one clock"
            )
    matched = {_key(pair.after) for pair in pairs}
    return Comparison(
        tuple(pairs),
        tuple(record for record in before if _key(record) not in matched),
        tuple(record for record in after if _key(record) not in matched),
    )


def _key(record: Record) -> tuple[str, str, str, str, str, str]:
    of_inputs = record.inputs or NORMAL.name  # of which files without the field are
    what = record.operation, record.shape, record.peer, record.round_mode
    return *what, of_inputs, record.other_reading
