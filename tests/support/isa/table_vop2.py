"""VOP2: what every instruction computes."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.isa import float_oracle as fo
from tests.support.isa.builders import binary, dot, dot2_f16, float2, mad16, plain, s24
from tests.support.isa.float_oracle import F16, F32, F64, Fmt, Mode
from tests.support.isa.int_oracle import low, shift_right
from tests.support.isa.vectors import Op


def reverse_sub(fmt: Fmt, m: Mode, a: int, b: int) -> int:
    """b - a; which NaN comes through still goes by operand position."""
    if fmt.is_nan(a) or fmt.is_nan(b):
        return fo.nan_of(fmt, m, a, b)
    return fo.sub(fmt, m, b, a)


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
    "v_subrev_f32": float2("f32", reverse_sub),
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
    "v_subrev_f16": float2("f16", reverse_sub),
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
