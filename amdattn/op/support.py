"""The arguments of a problem that a kernel does not take, and those that it takes instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

# The type that holds bfloat16 where there is no such type.
_BITS, _BFLOAT16 = "uint16", "bfloat16"
_LISTED_NUMBERS = 8  # longer lists of evenly spaced numbers are printed as a range


class Span(NamedTuple):
    """Numbers from `low` to `high`; `text` describes them in words if it is given."""

    low: float
    high: float
    text: str = ""

    def __str__(self) -> str:
        if self.text:
            return self.text.format(self.high)
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class Support:
    """The answer of `supports`: true if `ok`, or the reason and the nearest arguments that work."""

    ok: bool
    reason: str
    nearest: Mapping[str, object] | None = None

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One argument of a problem that a kernel does not take; `allowed` are values and Spans.

    `why` is the reason if the value is more than merely not built.
    """

    argument: str
    value: object
    allowed: tuple[object, ...]
    why: str = ""

    def __str__(self) -> str:
        have = ", ".join(map(str, _joined(self.allowed)))
        numbers = self._numbers
        steps = {b - a for a, b in pairwise(numbers)}
        if len(numbers) > _LISTED_NUMBERS and len(steps) == 1:
            have = f"{numbers[0]}..{numbers[-1]} in steps of {steps.pop()}"
        why = self.why and f": {self.why}"
        if self.value == _BITS and _BFLOAT16 in self.allowed:
            why = f": if these are bfloat16, pass x.view(ml_dtypes.{_BFLOAT16})"
        return f"{self.argument}={self.value} is not built (have {have}){why}"

    @property
    def nearest(self) -> object:
        """A value that the kernel takes; the nearest one of numbers."""
        value, numbers = self.value, self._numbers
        if isinstance(value, int) and numbers:
            return min(numbers, key=lambda x: (abs(x - value), -x))
        first = self.allowed[0]
        if isinstance(value, (int, float)) and isinstance(first, Span):
            ends = [end for span in self.allowed if isinstance(span, Span) for end in span[:2]]
            return min(ends, key=lambda end: abs(end - value))
        return str(first) if isinstance(first, Span) else first

    @property
    def _numbers(self) -> list[int]:
        """The allowed values if all of them are numbers."""
        numbers = [x for x in self.allowed if isinstance(x, int) and not isinstance(x, bool)]
        return numbers if len(numbers) == len(self.allowed) else []


def _joined(values: Sequence[object]) -> list[object]:
    """Allowed values in which overlapping spans are joined."""
    others = [value for value in values if not isinstance(value, Span)]
    spans: list[Span] = []
    for span in sorted(value for value in values if isinstance(value, Span)):
        if spans and span.low <= spans[-1].high:
            spans[-1] = spans[-1]._replace(high=max(span.high, spans[-1].high))
        else:
            spans.append(span)
    return [*others, *spans]


def all_allowed(wrong: list[Mismatch], others: Sequence[list[Mismatch]]) -> list[Mismatch]:
    """The mismatches of a kernel, with the values of all kernels that differ in these arguments."""
    arguments = [mismatch.argument for mismatch in wrong]
    alike = [found for found in others if [m.argument for m in found] == arguments]
    return [
        Mismatch(
            of_nearest.argument,
            of_nearest.value,
            tuple(dict.fromkeys(value for mismatch in column for value in mismatch.allowed)),
            of_nearest.why,
        )
        for of_nearest, column in zip(wrong, zip(*alike, strict=True), strict=True)
    ]
