"""VOP2: every row, both encodings, against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import float_oracle as fo
import pytest
from float_oracle import F16, F32, F64, Mode
from int_oracle import clamp_s, low, shift_right, signed
from machine import DEFAULT_MODE, Machine
from vectors import BOTH_MODES, VOP2, Op, assemble_each, check_forms, row_names, text_of


def plain(dst: str, srcs: str, fn: Callable[..., object], **options: bool) -> Op:
    """An operation that does not look at MODE."""
    return Op(dst, tuple(srcs.split()), lambda _m, *a: fn(*a), **options)


def binary(dst: str, fn: Callable[..., int]) -> Op:
    """An integer operation on two operands of the result's type."""
    return plain(dst, f"{dst} {dst}", lambda a, b: low(fn(a, b), dst))


def float2(kind: str, fn: Callable[..., int]) -> Op:
    fmt = {"f16": F16, "f32": F32, "f64": F64}[kind]
    return Op(kind, (kind, kind), lambda m, a, b: fn(fmt, m, a, b))


def reverse(fn: Callable[..., int]) -> Callable[..., int]:
    return lambda fmt, m, a, b: fn(fmt, m, b, a)


def mad16(m: Mode, a: int, b: int, c: int) -> int:
    """v_mad_f16, v_mac_f16: product rounded, sum rounded, f16 denormals always flushed."""
    flushing = Mode(m.bits & ~0xC0)
    if any(F16.is_nan(x) for x in (a, b, c)):
        return fo.nan_of(F16, m, a, b, c)
    return fo.add(F16, flushing, fo.mul(F16, flushing, a, b), c)


def dot2_f16(m: Mode, a: int, b: int, c: int) -> int:
    """Products added one by one with f32 FMA, f16 denormals kept."""
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


def carry_sum(a: int, b: int, c: int = 0) -> tuple[int, bool]:
    return low(a + b + c), a + b + c > 0xFFFFFFFF


def borrow(a: int, b: int, c: int = 0) -> tuple[int, bool]:
    return low(a - b - c), b + c > a


def pk_fmac(m: Mode, a: int, b: int, c: int) -> int:
    halves = [fo.fma(F16, m, a >> i & 0xFFFF, b >> i & 0xFFFF, c >> i & 0xFFFF) for i in (0, 16)]
    return halves[0] | halves[1] << 16


def carry(fn: Callable[..., tuple[int, bool]], *, carry_in: bool = False) -> Op:
    return plain("u32", "u32 u32", fn, carry_in=carry_in, carry_out=True)


VOP2_OPS = {
    "v_cndmask_b32": plain("b32", "b32 b32", lambda a, b, c: b if c else a, carry_in=True),
    "v_add_f32": float2("f32", fo.add),
    "v_sub_f32": float2("f32", fo.sub),
    "v_subrev_f32": float2("f32", reverse(fo.sub)),
    "v_fmac_f64": Op("f64", ("f64", "f64"), lambda m, *x: fo.fma(F64, m, *x), acc=True),
    "v_mul_f32": float2("f32", fo.mul),
    "v_mul_i32_i24": binary("u32", lambda a, b: s24(a) * s24(b)),
    "v_mul_hi_i32_i24": binary("u32", lambda a, b: s24(a) * s24(b) >> 32),
    "v_mul_u32_u24": binary("u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mul_hi_u32_u24": binary("u32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32),
    "v_min_f32": float2("f32", fo.fmin),
    "v_max_f32": float2("f32", fo.fmax),
    "v_min_i32": binary("i32", min),
    "v_max_i32": binary("i32", max),
    "v_min_u32": binary("u32", min),
    "v_max_u32": binary("u32", max),
    "v_lshrrev_b32": binary("u32", lambda a, b: b >> (a & 31)),
    "v_ashrrev_i32": plain("u32", "u32 i32", lambda a, b: low(b >> (a & 31))),
    "v_lshlrev_b32": binary("u32", lambda a, b: b << (a & 31)),
    "v_and_b32": binary("u32", lambda a, b: a & b),
    "v_or_b32": binary("u32", lambda a, b: a | b),
    "v_xor_b32": binary("u32", lambda a, b: a ^ b),
    "v_add_co_u32": carry(carry_sum),
    "v_sub_co_u32": carry(borrow),
    "v_subrev_co_u32": carry(lambda a, b: borrow(b, a)),
    "v_addc_co_u32": carry(carry_sum, carry_in=True),
    "v_subb_co_u32": carry(borrow, carry_in=True),
    "v_subbrev_co_u32": carry(lambda a, b, c: borrow(b, a, c), carry_in=True),
    "v_add_f16": float2("f16", fo.add),
    "v_sub_f16": float2("f16", fo.sub),
    "v_subrev_f16": float2("f16", reverse(fo.sub)),
    "v_mul_f16": float2("f16", fo.mul),
    "v_mac_f16": Op("f16", ("f16", "f16"), mad16, acc=True),
    "v_add_u16": binary("u16", lambda a, b: a + b),
    "v_sub_u16": binary("u16", lambda a, b: a - b),
    "v_subrev_u16": binary("u16", lambda a, b: b - a),
    "v_mul_lo_u16": binary("u16", lambda a, b: a * b),
    "v_lshlrev_b16": binary("u16", lambda a, b: b << (a & 15)),
    "v_lshrrev_b16": binary("u16", lambda a, b: b >> (a & 15)),
    "v_ashrrev_i16": plain("u16", "u16 i16", lambda a, b: shift_right(b, a & 15, 16)),
    "v_max_f16": float2("f16", fo.fmax),
    "v_min_f16": float2("f16", fo.fmin),
    "v_max_u16": binary("u16", max),
    "v_max_i16": binary("i16", max),
    "v_min_u16": binary("u16", min),
    "v_min_i16": binary("i16", min),
    "v_ldexp_f16": Op("f16", ("f16", "i16"), lambda m, a, b: fo.ldexp(F16, m, a, b)),
    "v_add_u32": binary("u32", lambda a, b: a + b),
    "v_sub_u32": binary("u32", lambda a, b: a - b),
    "v_subrev_u32": binary("u32", lambda a, b: b - a),
    "v_dot2c_f32_f16": Op("f32", ("pf16", "pf16"), dot2_f16, acc=True),
    "v_dot2c_i32_i16": plain("u32", "u32 u32", dot(16), acc=True),
    "v_dot4c_i32_i8": plain("u32", "u32 u32", dot(8), acc=True),
    "v_dot8c_i32_i4": plain("u32", "u32 u32", dot(4), acc=True),
    "v_fmac_f32": Op("f32", ("f32", "f32"), lambda m, *x: fo.fma(F32, m, *x), acc=True),
    "v_pk_fmac_f16": Op("pf16", ("pf16", "pf16"), pk_fmac, acc=True),
    "v_xnor_b32": binary("u32", lambda a, b: ~(a ^ b)),
}
# With a literal of their own: no operand list as the others have, tested by test_literal_operand.
LITERAL_OPS = ("v_fmamk_f32", "v_fmaak_f32", "v_madmk_f16", "v_madak_f16")
K32, K16 = 0x40490FDB, 0x4248  # pi


def test_every_row_has_a_vector() -> None:
    assert row_names(VOP2) == {*VOP2_OPS, *LITERAL_OPS}


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(
        text_of(name, op, form) for name, op in VOP2_OPS.items() for form in ("_e32", "_e64")
    )


@pytest.mark.parametrize("name", VOP2_OPS)
def test_both_encodings(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = VOP2_OPS[name]
    codes = []
    for form in ("_e32", "_e64"):
        words = code[text_of(name, op, form)]
        if words is not None:
            codes.append((name + form, words))
    assert codes
    check_forms(name, op, codes, BOTH_MODES if "f" in op.dst else (DEFAULT_MODE,))


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (
            f"v_fmamk_f32 v16, v0, {K32:#x}, v4",
            Op("f32", ("f32", "f32"), lambda m, a, b: fo.fma(F32, m, a, K32, b)),
        ),
        (
            f"v_fmaak_f32 v16, v0, v4, {K32:#x}",
            Op("f32", ("f32", "f32"), lambda m, a, b: fo.fma(F32, m, a, b, K32)),
        ),
        (
            f"v_madmk_f16 v16, v0, {K16:#x}, v4",
            Op("f16", ("f16", "f16"), lambda m, a, b: mad16(m, a, K16, b)),
        ),
        (
            f"v_madak_f16 v16, v0, v4, {K16:#x}",
            Op("f16", ("f16", "f16"), lambda m, a, b: mad16(m, a, b, K16)),
        ),
    ],
)
def test_literal_operand(text: str, op: Op) -> None:
    words = assemble_each([text])[text]
    assert words is not None and len(words) == 2
    check_forms(text, op, [(text, words)], BOTH_MODES)


def test_literal_operand_shared_by_two_sources() -> None:
    """src0 may name the same literal as K."""
    m = Machine(seed=3)
    m.run(f"v_fmamk_f32 v16, {K32:#x}, {K32:#x}, v4")
    want = [fo.fma(F32, Mode(m.mode), K32, K32, int(x)) for x in m.v[4]]
    assert m.v[16].tolist() == want


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("v_add_u32", lambda a, b: min(a + b, 0xFFFFFFFF)),
        ("v_sub_u32", lambda a, b: max(a - b, 0)),
        ("v_subrev_u32", lambda a, b: max(b - a, 0)),
        ("v_add_u16", lambda a, b: min(a + b, 0xFFFF)),
        ("v_sub_u16", lambda a, b: max(a - b, 0)),
        ("v_subrev_u16", lambda a, b: max(b - a, 0)),
        ("v_mul_i32_i24", lambda a, b: low(clamp_s(s24(a) * s24(b), 32))),
        ("v_mul_u32_u24", lambda a, b: min((a & 0xFFFFFF) * (b & 0xFFFFFF), 0xFFFFFFFF)),
        ("v_add_co_u32", lambda a, b: (min(a + b, 0xFFFFFFFF), a + b > 0xFFFFFFFF)),
        ("v_subb_co_u32", lambda a, b, c: (max(a - b - c, 0), b + c > a)),
        (
            "v_dot4c_i32_i8",
            lambda a, b, c: low(
                clamp_s(
                    signed(c, 32)
                    + sum(x * y for x, y in zip(fields(a, 8), fields(b, 8), strict=True)),
                    32,
                )
            ),
        ),
    ],
)
def test_integer_clamp_saturates(name: str, function: Callable[..., object]) -> None:
    base = VOP2_OPS[name]
    op = Op(
        base.dst, base.srcs, lambda _m, *a: function(*a), acc=base.acc, carry_in=base.carry_in,
        carry_out=base.carry_out,
    )  # fmt: skip
    text = text_of(name, op, "_e64") + " clamp"
    words = assemble_each([text])[text]
    assert words is not None
    check_forms(text, op, [(text, words)])
