"""What the tables of lane-wise operations are built from."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.isa import float_oracle as fo
from tests.support.isa.float_oracle import F16, F32, Mode
from tests.support.isa.int_oracle import low, signed
from tests.support.isa.vectors import FLOATS, Op


def plain(dst: str, srcs: str, fn: Callable[..., object], **options: bool) -> Op:
    """An operation that does not look at MODE."""
    return Op(dst, tuple(srcs.split()), lambda _m, *a: fn(*a), **options)


def binary(dst: str, fn: Callable[..., int]) -> Op:
    """An integer operation on two operands of the result's type."""
    return plain(dst, f"{dst} {dst}", lambda a, b: low(fn(a, b), dst))


def unary(dst: str, fn: Callable[..., int]) -> Op:
    return plain(dst, dst, lambda a: low(fn(a), dst))


def float_op(kind: str, arity: int, fn: Callable[..., int], **options: bool | int) -> Op:
    """An operation on `arity` floats: ``fn(fmt, mode, *sources)``."""
    fmt = FLOATS[kind]
    return Op(kind, (kind,) * arity, lambda m, *x: fn(fmt, m, *x), **options)  # type: ignore[arg-type]


def float1(kind: str, fn: Callable[..., int]) -> Op:
    return float_op(kind, 1, fn)


def float2(kind: str, fn: Callable[..., int]) -> Op:
    return float_op(kind, 2, fn)


def float3(kind: str, fn: Callable[..., int], *, keeps_high: bool = False) -> Op:
    return float_op(kind, 3, fn, keeps_high=keeps_high)


def mad16(m: Mode, a: int, b: int, c: int) -> int:
    """v_mad_f16, v_mac_f16: product rounded, sum rounded, f16 denormals always flushed."""
    flushing = Mode(m.bits & ~0xC0)
    if any(F16.is_nan(x) for x in (a, b, c)):
        return fo.nan_of(F16, m, a, b, c)
    return fo.add(F16, flushing, fo.mul(F16, flushing, a, b), c)


def dot2_f16(m: Mode, a: int, b: int, c: int) -> int:
    """Products added one by one with f32 FMA; f16 denormals kept, a denormal addend is +0."""
    c = 0 if F32.is_denorm(c) else c
    for i in (0, 16):
        x, y = (fo.convert(F16, F32, Mode(0x3F0), w >> i & 0xFFFF) for w in (a, b))
        if any(F32.is_nan(z) for z in (x, y)):
            return fo.nan_of(F32, m, c)
        c = fo.fma(F32, m, x, y, c)
    return c


def fields(word: int, bits: int) -> list[int]:
    return [signed(word >> i & ((1 << bits) - 1), bits) for i in range(0, 32, bits)]


def dot(bits: int) -> Callable[[int, int, int], int]:
    def run(a: int, b: int, c: int) -> int:
        return low(c + sum(x * y for x, y in zip(fields(a, bits), fields(b, bits), strict=True)))

    return run


def s24(x: int) -> int:
    return signed(x & 0xFFFFFF, 24)
