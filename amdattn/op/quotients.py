"""Divisions by a number that the host knows, as kernels make them: a product and a shift."""

from __future__ import annotations

from typing import NamedTuple

from amdattn.scalars import INT32_MAX

MAX_DIVIDEND = INT32_MAX


class Reciprocal(NamedTuple):
    """``n // d == (n + 1) * factor >> 32 + shift`` of every n below `MAX_DIVIDEND`."""

    factor: int
    shift: int

    @classmethod
    def of(cls, divisor: int) -> Reciprocal:
        """Of 1 and more: a little less than it, also of powers of two, so that n + 1 is no more."""
        shift = divisor.bit_length() - 1
        return cls(((1 << 32 + shift) - 1) // divisor, shift)
