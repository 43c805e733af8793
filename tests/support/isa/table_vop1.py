"""VOP1: what every instruction computes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import ml_dtypes
import numpy as np

from tests.support.isa import float_oracle as fo
from tests.support.isa.builders import float1, plain, unary
from tests.support.isa.float_oracle import DOWN, F16, F32, F64, NEAREST, UP, ZERO, Fmt, Mode
from tests.support.isa.int_oracle import clamp_u, low, signed
from tests.support.isa.vectors import Op

Exact = Callable[[Fraction], Fraction | None]
LONG = np.longdouble


def from_long(x: np.longdouble) -> Fraction:
    high = float(x)
    return Fraction(high) + Fraction(float(x - LONG(high)))


def long(x: Fraction) -> np.longdouble:
    high = x.numerator / x.denominator
    total: np.longdouble = LONG(high) + LONG(float(x - Fraction(high)))
    return total


def exp2(x: Fraction) -> Fraction:
    whole = round(x)
    return from_long(np.exp2(long(x - whole))) * Fraction(2) ** whole


def log2(x: Fraction) -> Fraction:
    e = fo.floor_log2(x)
    if x / Fraction(2) ** e > Fraction(3, 2):
        e += 1
    rest = x / Fraction(2) ** e - 1
    return e + from_long(np.log1p(long(rest)) / np.log(LONG(2)))


def square_root(x: Fraction) -> Fraction:
    """To 256 bits."""
    shift = 256 - fo.floor_log2(x) // 2
    scale = Fraction(2) ** shift
    return isqrt(int(x * scale * scale)) / scale


PI = from_long(LONG("3.14159265358979323846264338327950288"))


def sine(x: Fraction) -> Fraction:
    """sin(2 pi x); the reduction is exact."""
    turn = x - round(x)
    sign = -1 if turn < 0 else 1
    turn = min(abs(turn), Fraction(1, 2) - abs(turn))
    return (
        sign * from_long(np.sin(2 * LONG(np.pi) * long(turn)))
        if abs(turn) > 1e-6
        else (sign * 2 * PI * turn)
    )


def cosine(x: Fraction) -> Fraction:
    return sine(x + Fraction(1, 4))


def transcendental(
    fmt: Fmt,
    function: Callable[[Fraction], Fraction],
    *,
    zero: int | Callable[[int], int],
    infinity: int | Callable[[int], int],
    negative_ok: bool,
    flush: bool,
) -> Callable[[Mode, int], int]:
    """A function of the transcendental unit: always to nearest even.

    `zero` and `infinity` are the results for a zero and an infinite operand (or functions of it).
    With `flush`, denormals go both ways to zeros of their sign, whatever MODE says.
    """

    def special(rule: int | Callable[[int], int], x: int) -> int:
        return rule(x) if callable(rule) else rule

    def run(m: Mode, x: int) -> int:
        if fmt.is_nan(x):
            return x | fmt.quiet
        x = fo.flush(fmt, x) if flush else fo.flush_in(fmt, m, x)
        if fmt.is_zero(x):
            return special(zero, x)
        if fmt.negative(x) and not negative_ok:
            return fmt.default_nan
        if fmt.is_inf(x):
            return special(infinity, x)
        exact = function(fmt.value(x))
        if exact == 0:
            return 0
        r = fo.encode(fmt, exact, NEAREST)
        return fo.flush(fmt, r) if flush else fo.flush_out(fmt, m, r)

    return run


def bounded_exp2(fmt: Fmt) -> Callable[[Fraction], Fraction]:
    limit = 2 * fmt.bias + 2 * fmt.man
    return lambda x: exp2(max(Fraction(-limit), min(Fraction(limit), x)))


def trans_family(fmt: Fmt, *, flush: bool) -> dict[str, Callable[[Mode, int], int]]:
    signed_inf = lambda x: x & fmt.sign | fmt.inf  # noqa: E731
    signed_zero = lambda x: x & fmt.sign  # noqa: E731
    nan, make = fmt.default_nan, transcendental
    exp_inf = lambda x: 0 if fmt.negative(x) else fmt.inf  # noqa: E731
    same = lambda x: x  # noqa: E731
    minus_inf = fmt.sign | fmt.inf
    return {
        "exp": make(fmt, bounded_exp2(fmt), zero=fmt.one, infinity=exp_inf, negative_ok=True,
                    flush=flush),
        "log": make(fmt, log2, zero=minus_inf, infinity=fmt.inf, negative_ok=False, flush=flush),
        "rcp": make(fmt, lambda x: 1 / x, zero=signed_inf, infinity=signed_zero, negative_ok=True,
                    flush=flush),
        "rsq": make(fmt, lambda x: 1 / square_root(x), zero=signed_inf, infinity=0,
                    negative_ok=False, flush=flush),
        "sqrt": make(fmt, square_root, zero=same, infinity=fmt.inf, negative_ok=False, flush=flush),
        "sin": make(fmt, sine, zero=same, infinity=nan, negative_ok=True, flush=False),
        "cos": make(fmt, cosine, zero=fmt.one, infinity=nan, negative_ok=True, flush=False),
    }  # fmt: skip


TRANS32 = trans_family(F32, flush=True)
TRANS16 = trans_family(F16, flush=False)
# f64 keeps denormals whatever MODE says.
KEEP = Mode(0x3F0)


def keeping(fn: Callable[[Mode, int], int]) -> Callable[[Mode, int], int]:
    return lambda _m, x: fn(KEEP, x)


TRANS64 = {name: keeping(fn) for name, fn in trans_family(F64, flush=False).items()}
TRANS = {"f16": TRANS16, "f32": TRANS32, "f64": TRANS64}


def trans(kind: str, name: str) -> Op:
    return Op(kind, (kind,), TRANS[kind][name], ulp=1)


def leading_zeros(x: int) -> int:
    return 32 - x.bit_length() if x else -1


def sign_run(x: int) -> int:
    return leading_zeros(~x & 0xFFFFFFFF if x >> 31 else x)


def to_int(kind: str, fmt: Fmt, how: int, dst: str) -> Op:
    bits = int(dst[1:])
    bounds = (0, (1 << bits) - 1) if dst[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return Op(dst, (kind,), lambda _m, x: low(fo.to_int(fmt, x, how, *bounds), dst))


def round_half_up(x: int) -> int:
    """v_cvt_rpi: floor(x + 0.5) of the exact sum."""
    if F32.is_nan(x) or F32.is_inf(x):
        return low(fo.to_int(F32, x, ZERO, -(1 << 31), (1 << 31) - 1))
    n = (F32.value(x) + Fraction(1, 2)).__floor__()
    return low(max(-(1 << 31), min((1 << 31) - 1, n)))


def to_norm(m: Mode, x: int, *, is_signed: bool) -> int:
    """f16 scaled to the whole range of 16 bits."""
    if F16.is_nan(x):
        return 0
    scale = 32767 if is_signed else 65535
    bottom = -scale if is_signed else 0
    if F16.is_inf(x):
        return low(bottom if F16.negative(x) else scale, "u16")
    n = fo.round_integer(F16.value(x) * scale, m.round(F16))
    return low(max(bottom, min(scale, n)), "u16")


def fp8_table(dtype: np.dtype[np.void] | type) -> list[int]:
    """f32 bits of every byte of an 8-bit float type; NaN as the hardware's default."""
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    return [F32.default_nan if np.isnan(f) else int(f.view(np.uint32)) for f in values]


FP8, BF8 = fp8_table(ml_dtypes.float8_e4m3fnuz), fp8_table(ml_dtypes.float8_e5m2fnuz)


def sat_u8(x: int) -> int:
    return clamp_u(signed(x & 0xFFFF, 16), 8) | clamp_u(signed(x >> 16, 16), 8) << 8


def ubyte(i: int) -> Op:
    return Op("f32", ("b32",), lambda m, x: fo.from_int(F32, m, x >> 8 * i & 0xFF))


def convert(source: str, to: str) -> Op:
    pair = {"f16": F16, "f32": F32, "f64": F64}
    return Op(to, (source,), lambda m, x: fo.convert(pair[source], pair[to], m, x))


def from_int(source: str, to: str) -> Op:
    fmt = {"f16": F16, "f32": F32, "f64": F64}[to]
    return Op(to, (source,), lambda m, x: fo.from_int(fmt, m, x))


def rounding(kind: str) -> dict[str, Op]:
    return {
        f"v_trunc_{kind}": float1(kind, fo.integral(ZERO)),
        f"v_ceil_{kind}": float1(kind, fo.integral(UP)),
        f"v_rndne_{kind}": float1(kind, fo.integral(NEAREST)),
        f"v_floor_{kind}": float1(kind, fo.integral(DOWN)),
        f"v_fract_{kind}": float1(kind, fo.fract),
        f"v_frexp_mant_{kind}": float1(kind, fo.frexp_mant),
    }


def frexp_exp(kind: str, fmt: Fmt, dst: str) -> Op:
    return Op(dst, (kind,), lambda m, x: low(fo.frexp_exp(fmt, m, x), dst))


VOP1_OPS = {
    "v_mov_b32": unary("b32", lambda x: x),
    "v_cvt_i32_f64": to_int("f64", F64, ZERO, "i32"),
    "v_cvt_f64_i32": from_int("i32", "f64"),
    "v_cvt_f32_i32": from_int("i32", "f32"),
    "v_cvt_f32_u32": from_int("u32", "f32"),
    "v_cvt_u32_f32": to_int("f32", F32, ZERO, "u32"),
    "v_cvt_i32_f32": to_int("f32", F32, ZERO, "i32"),
    "v_cvt_f16_f32": convert("f32", "f16"),
    "v_cvt_f32_f16": convert("f16", "f32"),
    "v_cvt_rpi_i32_f32": plain("i32", "f32", round_half_up),
    "v_cvt_flr_i32_f32": to_int("f32", F32, DOWN, "i32"),
    "v_cvt_off_f32_i4": Op(
        "f32", ("b32",), lambda m, x: fo.ldexp(F32, m, fo.from_int(F32, m, signed(x, 4)), -4)
    ),
    "v_cvt_f32_f64": convert("f64", "f32"),
    "v_cvt_f64_f32": convert("f32", "f64"),
    **{f"v_cvt_f32_ubyte{i}": ubyte(i) for i in range(4)},
    "v_cvt_u32_f64": to_int("f64", F64, ZERO, "u32"),
    "v_cvt_f64_u32": from_int("u32", "f64"),
    **rounding("f16"),
    **rounding("f32"),
    **rounding("f64"),
    **{f"v_{n}_f32": trans("f32", n) for n in TRANS32},
    **{f"v_{n}_f16": trans("f16", n) for n in TRANS16},
    **{f"v_{n}_f64": trans("f64", n) for n in ("rcp", "rsq", "sqrt")},
    "v_rcp_iflag_f32": trans("f32", "rcp"),
    "v_exp_legacy_f32": trans("f32", "exp"),
    "v_log_legacy_f32": trans("f32", "log"),
    "v_not_b32": unary("b32", lambda x: ~x),
    "v_bfrev_b32": unary("b32", lambda x: int(f"{x:032b}"[::-1], 2)),
    "v_ffbh_u32": unary("u32", leading_zeros),
    "v_ffbl_b32": unary("u32", lambda x: (x & -x).bit_length() - 1),
    "v_ffbh_i32": unary("u32", sign_run),
    "v_frexp_exp_i32_f64": frexp_exp("f64", F64, "i32"),
    "v_frexp_exp_i32_f32": frexp_exp("f32", F32, "i32"),
    "v_frexp_exp_i16_f16": frexp_exp("f16", F16, "i16"),
    "v_mov_b64": unary("b64", lambda x: x),
    "v_cvt_f16_u16": from_int("u16", "f16"),
    "v_cvt_f16_i16": from_int("i16", "f16"),
    "v_cvt_u16_f16": to_int("f16", F16, ZERO, "u16"),
    "v_cvt_i16_f16": to_int("f16", F16, ZERO, "i16"),
    "v_cvt_norm_i16_f16": Op("i16", ("f16",), lambda m, x: to_norm(m, x, is_signed=True)),
    "v_cvt_norm_u16_f16": Op("u16", ("f16",), lambda m, x: to_norm(m, x, is_signed=False)),
    "v_sat_pk_u8_i16": unary("b32", sat_u8),
    "v_cvt_f32_fp8": plain("f32", "b32", lambda x: FP8[x & 0xFF]),
    "v_cvt_f32_bf8": plain("f32", "b32", lambda x: BF8[x & 0xFF]),
    "v_cvt_pk_f32_fp8": plain("b64", "b32", lambda x: FP8[x & 0xFF] | FP8[x >> 8 & 0xFF] << 32),
    "v_cvt_pk_f32_bf8": plain("b64", "b32", lambda x: BF8[x & 0xFF] | BF8[x >> 8 & 0xFF] << 32),
}
