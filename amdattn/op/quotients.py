"""Divisions by a number that the host knows, which kernels replace by a product and a shift."""

from __future__ import annotations

from typing import NamedTuple

from amdattn.scalars import INT32_MAX

MAX_DIVIDEND = INT32_MAX


class Reciprocal(NamedTuple):
    """``n // d == (n + 1) * factor >> 32 + shift`` for every n below `MAX_DIVIDEND`."""

    factor: int
    shift: int

    @classmethod
    def of(cls, divisor: int) -> Reciprocal:
        """The reciprocal of d >= 1, rounded down, even for powers of two, so that n + 1 fits."""
        shift = divisor.bit_length() - 1
        return cls(((1 << 32 + shift) - 1) // divisor, shift)
