"""Vector ALU instructions that gfx950 brought, or that convert other 8-bit floats there.

Conversions with a scale are in `scaled_oracle`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.support.isa import float_oracle as fo
from tests.support.isa.builders import float_op, plain, unary
from tests.support.isa.float_oracle import BF16, F16, F32, NEAREST, Fmt, Mode
from tests.support.isa.int_oracle import low
from tests.support.isa.vectors import Op

FP8_TYPES = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}


def prng(x: int) -> int:
    return low(x << 1) ^ (197 if x >> 31 else 0)


# ---- 8-bit floats -------------------------------------------------------------------------------


def decoded(name: str) -> list[int]:
    """Bits of the f32 that each code stands for; NaNs are quiet and keep their sign."""
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(FP8_TYPES[name]).astype(np.float32)
    bits = np.where(np.isnan(values), codes.astype(np.uint32) >> 7 << 31 | 0x7FC00000,
                    values.view(np.uint32))  # fmt: skip
    return [int(x) for x in bits]


FP8, BF8 = decoded("fp8"), decoded("bf8")


def to_fp8(m: Mode, name: str, x: int) -> int:
    """Nearest even. Infinity and what is too large: the largest number with FP16_OVFL."""
    sign = x >> 24 & 0x80
    greatest, infinity, nan = {"fp8": (0x7E, 0x7F, 0x7F), "bf8": (0x7B, 0x7C, 0x7E)}[name]
    if F32.is_nan(x):
        return sign | nan
    beyond = greatest if m.fp16_ovfl else infinity
    if F32.is_inf(x):
        return sign | beyond
    with np.errstate(over="ignore"):
        value = np.array([x & 0x7FFFFFFF], np.uint32).view(np.float32).astype(FP8_TYPES[name])
    code = int(value.view(np.uint8)[0])
    return sign | (beyond if code > greatest else code)


def cvt_pk(name: str) -> Op:
    def run(m: Mode, a: int, b: int, old: int) -> int:
        return old & 0xFFFF0000 | to_fp8(m, name, b) << 8 | to_fp8(m, name, a)

    return Op("b32", ("f32", "f32"), run, acc=True)


def stochastic(fmt: Fmt, x: int, seed: int) -> int:
    """Magnitude of a finite f32: the seed's leading bits are added to those that are dropped."""
    magnitude = abs(F32.value(x))
    if magnitude == 0:
        return 0
    exponent = max(fo.floor_log2(magnitude), 1 - fmt.bias)
    drop = 23 - fmt.man
    kept = int(magnitude / fo.power(exponent - fmt.man - drop)) + (seed >> (32 - drop)) >> drop
    return kept + (exponent + fmt.bias - 1 << fmt.man)


def cvt_sr8(name: str) -> Op:
    fmt = {"fp8": Fmt(8, 3), "bf8": Fmt(8, 2)}[name]
    greatest = {"fp8": 0x7E, "bf8": 0x7B}[name]

    def run(m: Mode, x: int, seed: int, old: int) -> int:
        if F32.is_nan(x) or F32.is_inf(x):
            return old & 0xFFFFFF00 | to_fp8(m, name, x)
        code = 0 if F32.is_denorm(x) else stochastic(fmt, x, seed)
        if code > greatest:
            return old & 0xFFFFFF00 | to_fp8(m, name, F32.inf | x & F32.sign)
        return old & 0xFFFFFF00 | code | x >> 24 & 0x80

    return Op("b32", ("f32", "b32"), run, acc=True)


# ---- f16 and bf16 -------------------------------------------------------------------------------


def to_bf16(m: Mode, x: int) -> int:
    """Nearest even. A NaN keeps its upper half; bit 0 says whether the lower one held anything."""
    if F32.is_nan(x):
        return x >> 16 | bool(x & 0xFFFF)
    x = fo.flush_in(F32, m, x)
    if F32.is_inf(x) or F32.is_zero(x):
        return x >> 16
    return fo.encode(BF16, F32.value(x), NEAREST, overflow_to_max=m.fp16_ovfl)


def to_f16(m: Mode, x: int) -> int:
    return fo.convert(F32, F16, m, x, NEAREST)


def sr_bf16(m: Mode, x: int, seed: int, old: int) -> int:
    if F32.is_nan(x) or F32.is_inf(x):
        return old & 0xFFFF0000 | to_bf16(m, x)
    x = fo.flush_in(F32, m, x)
    code = min(stochastic(BF16, x, seed), BF16.inf - m.fp16_ovfl)
    return old & 0xFFFF0000 | x >> 16 & 0x8000 | code


def sr_f16(m: Mode, x: int, seed: int, old: int) -> int:
    if F32.is_nan(x) or F32.is_inf(x):
        return old & 0xFFFF0000 | to_f16(m, x)
    code = 0 if F32.is_denorm(x) else min(stochastic(F16, x, seed), F16.inf - m.fp16_ovfl)
    return old & 0xFFFF0000 | x >> 16 & 0x8000 | fo.flush_out(F16, m, code)


def dot2_bf16(m: Mode, a: int, b: int, c: int) -> int:
    """Products added one by one with f32 FMA, to nearest even, all denormals flushed."""
    m = Mode(m.bits & ~0xFF)
    for i in (0, 16):
        x, y = ((w >> i & 0xFFFF) << 16 for w in (a, b))
        if F32.is_nan(x) or F32.is_nan(y):
            return fo.nan_of(F32, m, c)
        c = fo.fma(F32, m, x, y, c)
    return c


# ---- minimum and maximum of IEEE 754-2019 -------------------------------------------------------


def extreme(fmt: Fmt, m: Mode, a: int, b: int, *, largest: bool) -> int:
    """A NaN is the result, made quiet; a signalling one before a quiet one."""
    for is_it in (fmt.is_snan, fmt.is_nan):
        for x in (a, b):
            if is_it(x):
                return x | fmt.quiet
    return (fo.fmax if largest else fo.fmin)(fmt, m, a, b)


def extreme3(fmt: Fmt, m: Mode, a: int, b: int, c: int, *, largest: bool) -> int:
    return extreme(fmt, m, extreme(fmt, m, a, b, largest=largest), c, largest=largest)


def minimum3(fmt: Fmt, m: Mode, a: int, b: int, c: int) -> int:
    return extreme3(fmt, m, a, b, c, largest=False)


def maximum3(fmt: Fmt, m: Mode, a: int, b: int, c: int) -> int:
    return extreme3(fmt, m, a, b, c, largest=True)


def ashr_pk(least: int, most: int) -> Op:
    def run(a: int, b: int, shift: int) -> int:
        x, y = (max(least, min(most, v >> (shift & 31))) & 0xFF for v in (a, b))
        return x | y << 8

    return plain("u16", "i32 i32 u32", run, keeps_high=True)


VOP1_OPS: dict[str, Op] = {
    "v_prng_b32": unary("u32", prng),
    "v_cvt_f32_bf16": plain("f32", "bf16", lambda x: x << 16),
    "v_cvt_f32_fp8": plain("f32", "b32", lambda x: FP8[x & 0xFF]),
    "v_cvt_f32_bf8": plain("f32", "b32", lambda x: BF8[x & 0xFF]),
    "v_cvt_pk_f32_fp8": plain("b64", "b32", lambda x: FP8[x & 0xFF] | FP8[x >> 8 & 0xFF] << 32),
    "v_cvt_pk_f32_bf8": plain("b64", "b32", lambda x: BF8[x & 0xFF] | BF8[x >> 8 & 0xFF] << 32),
}
VOP2_OPS: dict[str, Op] = {
    "v_dot2c_f32_bf16": Op("f32", ("pbf16", "pbf16"), dot2_bf16, acc=True),
}
VOP3_OPS: dict[str, Op] = {
    "v_ashr_pk_i8_i32": ashr_pk(-128, 127),
    "v_ashr_pk_u8_i32": ashr_pk(0, 255),
    "v_cvt_pk_f16_f32": Op("b32", ("f32",) * 2, lambda m, a, b: to_f16(m, a) | to_f16(m, b) << 16),
    "v_cvt_pk_bf16_f32": Op(
        "b32", ("f32",) * 2, lambda m, a, b: to_bf16(m, a) | to_bf16(m, b) << 16
    ),
    "v_cvt_sr_f16_f32": Op("b32", ("f32", "b32"), sr_f16, acc=True),
    "v_cvt_sr_bf16_f32": Op("b32", ("f32", "b32"), sr_bf16, acc=True),
    "v_minimum3_f32": float_op("f32", 3, minimum3),
    "v_maximum3_f32": float_op("f32", 3, maximum3),
    "v_cvt_pk_fp8_f32": cvt_pk("fp8"),
    "v_cvt_pk_bf8_f32": cvt_pk("bf8"),
    "v_cvt_sr_fp8_f32": cvt_sr8("fp8"),
    "v_cvt_sr_bf8_f32": cvt_sr8("bf8"),
}
