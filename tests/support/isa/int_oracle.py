"""Integer helpers of the oracles."""

from __future__ import annotations

from tests.support.isa.vectors import WIDTHS


def low(x: int, kind: str = "u32") -> int:
    """The low bits of x that an operand of this type holds."""
    return x & ((1 << WIDTHS[kind]) - 1)


def signed(x: int, bits: int) -> int:
    """The low `bits` bits of x as two's complement."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def clamp_s(x: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, x))


def clamp_u(x: int, bits: int) -> int:
    return max(0, min((1 << bits) - 1, x))


def shift_right(x: int, by: int, bits: int) -> int:
    """Arithmetic shift of a signed number, as `bits` bits."""
    return (x >> by) & ((1 << bits) - 1)
