"""Compares two files of `amdattn bench --json` row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from amdattn.bench.inputs import NORMAL
from amdattn.bench.record import Record, estimate_leads


@dataclass(frozen=True)
class Pair:
    """Records of the same kernel, rounding, shape and inputs in both files."""

    before: Record
    after: Record

    @property
    def ratio(self) -> float | None:
        """Time after divided by time before; below 1 is faster. None if a time is missing."""
        before, after = self.microseconds
        return after / before if before and after else None

    @property
    def microseconds(self) -> tuple[float | None, float | None]:
        """Times before and after, at the clock at which both can be compared."""
        estimated = estimate_leads([self.before, self.after])
        return self.before.us(estimated), self.after.us(estimated)

    @property
    def cycle_ratio(self) -> float | None:
        """Modelled cycles after divided by those before; None if some are missing."""
        before, after = self.before.cycles, self.after.cycles
        return after / before if before and after else None


@dataclass(frozen=True)
class Comparison:
    """The records that both files have, and those that only one file has."""

    pairs: tuple[Pair, ...]
    only_before: tuple[Record, ...]
    only_after: tuple[Record, ...]

    @property
    def geometric_mean(self) -> float | None:
        """Geometric mean of the ratios of time; None if there are none."""
        ratios = [pair.ratio for pair in self.pairs if pair.ratio is not None]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def compare(
    before: Sequence[Record], after: Sequence[Record], *, allow_mixed: bool = False
) -> Comparison:
    """Match the records of two runs.

    Parameters
    ----------
    before, after : sequence of Record
        Records of the two files.
    allow_mixed : bool
        Compare modelled with measured times, although they are different quantities.

    Raises
    ------
    ValueError
        The runs have no record in common, or a pair mixes modelled and measured times, or times
        modelled at two clocks.
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
                "them anyway"
            )
        if a.clocks.get("sustained_ghz") != b.clocks.get("sustained_ghz") and a.origin == b.origin:
            raise ValueError(
                f"{what} was modelled at {a.clocks.get('sustained_ghz')} and at "
                f"{b.clocks.get('sustained_ghz')} GHz; run both at the same clock"
            )
    matched = {_key(pair.after) for pair in pairs}
    return Comparison(
        tuple(pairs),
        tuple(record for record in before if _key(record) not in matched),
        tuple(record for record in after if _key(record) not in matched),
    )


def _key(record: Record) -> tuple[str, str, str, str, str, str]:
    of_inputs = record.inputs or NORMAL.name  # files without the field are of normal inputs
    what = record.operation, record.shape, record.peer, record.round_mode
    return *what, of_inputs, record.other_reading
