"""VOP3-only instructions: what every one computes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np

from tests.support.isa import float_oracle as fo
from tests.support.isa.builders import binary, float2, float3, mad16, plain, s24
from tests.support.isa.float_oracle import F16, F32, F64, NEAREST, ZERO, Fmt, Mode
from tests.support.isa.int_oracle import clamp_s, clamp_u, low, shift_right, signed
from tests.support.isa.vectors import Op


def ternary(dst: str, fn: Callable[..., int], *, keeps_high: bool = False) -> Op:
    return plain(dst, f"{dst} {dst} {dst}", lambda *x: low(fn(*x), dst), keeps_high=keeps_high)


def median(*x: int) -> int:
    return sorted(x)[1]


def bytes_of(x: int) -> list[int]:
    return [x >> i & 0xFF for i in (0, 8, 16, 24)]


def sad(a: int, b: int) -> int:
    return sum(abs(x - y) for x, y in zip(bytes_of(a), bytes_of(b), strict=True))


def masked_sad(a: int, b: int) -> int:
    return sum(abs(x - y) for x, y in zip(bytes_of(a), bytes_of(b), strict=True) if y)


def sad16(a: int, b: int) -> int:
    return abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16))


def sliding(one: Callable[[int, int], int], width: int) -> Callable[[int, int, int], int]:
    """Four sums over windows of a that slide by a byte, added to fields of c."""

    def run(a: int, b: int, c: int) -> int:
        sums = (one(a >> 8 * i & 0xFFFFFFFF, b) + (c >> width * i) for i in range(4))
        return sum((x & ((1 << width) - 1)) << width * i for i, x in enumerate(sums))

    return run


def lerp(a: int, b: int, c: int) -> int:
    rows = zip(bytes_of(a), bytes_of(b), bytes_of(c), strict=True)
    return sum((x + y + (z & 1) >> 1) << 8 * i for i, (x, y, z) in enumerate(rows))


def permute(a: int, b: int, selector: int) -> int:
    data = bytes_of(b) + bytes_of(a)

    def byte(s: int) -> int:
        if s >= 13:
            return 0xFF
        if s == 12:
            return 0
        return 0xFF * (data[2 * s - 15] >> 7) if s >= 8 else data[s]

    return sum(byte(s) << 8 * i for i, s in enumerate(bytes_of(selector)))


def bfe_u(x: int, offset: int, width: int) -> int:
    return x >> (offset & 31) & ((1 << (width & 31)) - 1)


def bfe_i(x: int, offset: int, width: int) -> int:
    """The shift is arithmetic: a field beyond the top is filled with the sign."""
    return low(signed(x >> (offset & 31), width & 31)) if width & 31 else 0


def cube_face(x: int, y: int, z: int) -> int:
    """0..5 = +x -x +y -y +z -z; ties prefer z, then y. Compares of NaNs are false."""
    ax, ay, az = (w & 0x7FFFFFFF for w in (x, y, z))

    def ge(a: int, b: int) -> bool:
        return not F32.is_nan(a) and not F32.is_nan(b) and a >= b

    def below_zero(w: int) -> bool:
        return F32.negative(w) and not F32.is_zero(w) and not F32.is_nan(w)

    if ge(az, ax) and ge(az, ay):
        return 4 + below_zero(z)
    if ge(ay, ax):
        return 2 + below_zero(y)
    return below_zero(x)


def cube(choose: Callable[[int, int, int, int], int]) -> Op:
    def run(m: Mode, *v: int) -> int:
        return choose(cube_face(*(fo.flush_in(F32, m, x) for x in v)), *v)

    return Op("f32", ("f32",) * 3, run)


NEG = 0x80000000


def cube_sc(face: int, x: int, y: int, z: int) -> int:
    return (z ^ NEG, z, x, x, x, x ^ NEG)[face]


def cube_tc(face: int, x: int, y: int, z: int) -> int:
    return (y ^ NEG, y ^ NEG, z, z ^ NEG, y ^ NEG, y ^ NEG)[face]


def cube_ma(m: Mode, x: int, y: int, z: int) -> int:
    major = (x, y, z)[cube_face(*(fo.flush_in(F32, m, w) for w in (x, y, z))) // 2]
    return fo.add(F32, Mode(m.bits | 0x200), major, major)  # a NaN comes out quiet


def pk_u8(m: Mode, x: int, byte: int, old: int) -> int:
    shift = 8 * (byte & 3)
    return old & ~(0xFF << shift) | fo.to_int(F32, x, m.round(F32), 0, 255) << shift


def div_fixup(fmt: Fmt, m: Mode, q: int, d: int, n: int) -> int:
    """The specials of n / d, else the quotient with the right sign.

    A NaN that the division sequence made of finite operands stands for an overflow.
    """
    for x in (n, d):
        if fmt.is_nan(x):
            return x | fmt.quiet
    n, d = fo.flush_in(fmt, m, n), fo.flush_in(fmt, m, d)
    sign = (n ^ d) & fmt.sign
    if (fmt.is_zero(n) and fmt.is_zero(d)) or (fmt.is_inf(n) and fmt.is_inf(d)):
        return fmt.default_nan
    if fmt.is_zero(d) or fmt.is_inf(n):
        return sign | fmt.inf
    if fmt.is_inf(d) or fmt.is_zero(n):
        return sign
    far = {F32: -150, F64: -1075}.get(fmt)
    if far is not None and fmt.exponent_field(n) - fmt.exponent_field(d) < far:
        tiny = Fraction(1 if sign == 0 else -1, 1 << 3000)
        return fo.flush_out(fmt, m, fo.encode(fmt, tiny, m.round(fmt)))
    if far is not None and fmt.is_nan(q):
        huge = Fraction(1 if sign == 0 else -1) * (1 << 3000)
        return fo.encode(fmt, huge, m.round(fmt))
    return sign | q & (fmt.sign - 1)


def mad64_unsigned(a: int, b: int, c: int) -> tuple[int, bool]:
    return low(a * b + c, "u64"), a * b + c >> 64 != 0


def mad64_signed(a: int, b: int, c: int) -> tuple[int, bool]:
    """The carry is bit 64 of the 65-bit sum."""
    return low(a * b + c, "u64"), a * b + c < 0


def mul_legacy(m: Mode, a: int, b: int) -> int:
    zero = any(F32.is_zero(fo.flush_in(F32, m, x)) for x in (a, b))
    return 0 if zero else fo.mul(F32, m, a, b)


def norm(kind: str, fmt: Fmt, *, is_signed: bool) -> Op:
    """Two floats scaled to the whole range of 16 bits each."""
    scale, bottom = (32767, -32767) if is_signed else (65535, 0)

    def one(m: Mode, x: int) -> int:
        if fmt.is_nan(x):
            return 0
        if fmt.is_inf(x):
            return low(bottom if fmt.negative(x) else scale, "u16")
        n = fo.round_integer(fmt.value(x) * scale, m.round(fmt))
        return low(max(bottom, min(scale, n)), "u16")

    return Op("b32", (kind, kind), lambda m, a, b: one(m, a) | one(m, b) << 16)


def pkrtz(m: Mode, a: int, b: int) -> int:
    x, y = (fo.convert(F32, F16, m, w, ZERO) for w in (a, b))
    return x | y << 16


def two_over_pi() -> int:
    """floor(2/pi * 2^1201), pi by Machin's formula."""
    bits = 1300

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, (1 << bits) // n, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (1 << bits + 1 + 1201) // pi


TWO_OVER_PI = two_over_pi()


def trig_preop(x: int, segment: int) -> int:
    """53 bits of 2/pi from bit 53 * segment on, further down for a huge exponent."""
    exponent = F64.exponent_field(x)
    shift = (segment & 31) * 53 + max(0, exponent - 1077)
    field = TWO_OVER_PI << shift >> (1201 - 53) & ((1 << 53) - 1)
    scale = -53 - shift + (128 if exponent >= 1968 else 0)
    value = Fraction(field) * Fraction(2) ** scale
    return fo.encode(F64, value, NEAREST) if value else 0


FP8_TYPES = {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz}


def to_fp8(name: str, x: int) -> int:
    """Nearest even, not saturating: overflow, infinities and NaN give 0x80."""
    with np.errstate(all="ignore"):
        value = np.array([x], np.uint32).view(np.float32).astype(FP8_TYPES[name])
    return int(value.view(np.uint8)[0])


def cvt_pk(name: str) -> Op:
    """The low half of the destination; the upper one stays."""
    return plain(
        "b32", "f32 f32",
        lambda a, b, old: old & 0xFFFF0000 | to_fp8(name, b) << 8 | to_fp8(name, a),
        acc=True,
    )  # fmt: skip


def stochastic(name: str, x: int, seed: int) -> int:
    """The seed's leading bits are added to the bits that are dropped, then the rest is cut."""
    man, bias, top = {"fp8": (3, 8, 0x7F), "bf8": (2, 16, 0x7F)}[name]
    if F32.is_nan(x) or F32.is_inf(x):
        return 0x80
    mag = abs(F32.value(x))
    if F32.is_denorm(x) or mag == 0:
        return 0
    exponent = max(fo.floor_log2(mag), 1 - bias)
    scaled = mag / Fraction(2) ** (exponent - man)  # in units of the last place
    drop = 23 - man
    kept = int(scaled * (1 << drop)) + (seed >> (32 - drop)) >> drop
    code = kept + ((exponent + bias - 1) << man)
    if code > top:
        return 0x80
    return code | (0x80 if F32.negative(x) and code else 0)


def cvt_sr(name: str) -> Op:
    return plain(
        "b32", "f32 b32",
        lambda x, seed, old: old & 0xFFFFFF00 | stochastic(name, x, seed),
        acc=True,
    )  # fmt: skip


def select3(fn: Callable[..., int]) -> Callable[[str], Op]:
    return lambda kind: ternary(kind, fn)


def div_scale_unscaled(kind: str, fmt: Fmt) -> Op:
    """See test_vop3: here only operands that need no scaling."""
    return Op(kind, (kind, kind, kind), lambda _m, a, _d, _n: (a, False), carry_out=True)


VOP3_OPS = {
    "v_mad_i32_i24": plain("u32", "u32 u32 u32", lambda a, b, c: low(s24(a) * s24(b) + c)),
    "v_mad_u32_u24": ternary("u32", lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_cubeid_f32": cube(lambda face, *_: fo.from_int(F32, Mode(0), face)),
    "v_cubesc_f32": cube(cube_sc),
    "v_cubetc_f32": cube(cube_tc),
    "v_cubema_f32": Op("f32", ("f32", "f32", "f32"), cube_ma),
    "v_bfe_u32": ternary("u32", bfe_u),
    "v_bfe_i32": plain("u32", "i32 u32 u32", bfe_i),
    "v_bfi_b32": ternary("b32", lambda a, b, c: (a & b) | (~a & c)),
    "v_fma_f32": float3("f32", fo.fma),
    "v_fma_f64": float3("f64", fo.fma),
    "v_lerp_u8": ternary("u32", lerp),
    "v_alignbit_b32": ternary("b32", lambda a, b, c: (a << 32 | b) >> (c & 31)),
    "v_alignbyte_b32": ternary("b32", lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)),
    **{f"v_min3_{k}": ternary(k, min) for k in ("i32", "u32", "i16", "u16")},
    **{f"v_max3_{k}": ternary(k, max) for k in ("i32", "u32", "i16", "u16")},
    **{f"v_med3_{k}": ternary(k, median) for k in ("i32", "u32", "i16", "u16")},
    **{f"v_min3_{k}": float3(k, fo.fmin3) for k in ("f32", "f16")},
    **{f"v_max3_{k}": float3(k, fo.fmax3) for k in ("f32", "f16")},
    **{f"v_med3_{k}": float3(k, fo.fmed3) for k in ("f32", "f16")},
    "v_sad_u8": ternary("u32", lambda a, b, c: sad(a, b) + c),
    "v_sad_hi_u8": ternary("u32", lambda a, b, c: (sad(a, b) << 16) + c),
    "v_sad_u16": ternary("u32", lambda a, b, c: sad16(a, b) + c),
    "v_sad_u32": ternary("u32", lambda a, b, c: abs(a - b) + c),
    "v_cvt_pk_u8_f32": Op("u32", ("f32", "u32", "u32"), pk_u8),
    "v_div_fixup_f32": float3("f32", div_fixup),
    "v_div_fixup_f64": float3("f64", div_fixup),
    "v_div_fixup_f16": float3("f16", div_fixup, keeps_high=True),
    "v_div_fixup_legacy_f16": float3("f16", div_fixup),
    "v_msad_u8": ternary("u32", lambda a, b, c: masked_sad(a, b) + c),
    "v_qsad_pk_u16_u8": plain("u64", "u64 u32 u64", sliding(sad, 16)),
    "v_mqsad_pk_u16_u8": plain("u64", "u64 u32 u64", sliding(masked_sad, 16)),
    "v_mad_u64_u32": plain("u64", "u32 u32 u64", mad64_unsigned, carry_out=True),
    "v_mad_i64_i32": plain("u64", "i32 i32 i64", mad64_signed, carry_out=True),
    "v_mad_legacy_f16": Op("f16", ("f16",) * 3, mad16),
    "v_mad_legacy_u16": ternary("u16", lambda a, b, c: a * b + c),
    "v_mad_legacy_i16": ternary("i16", lambda a, b, c: a * b + c),
    "v_perm_b32": ternary("b32", permute),
    "v_fma_legacy_f16": float3("f16", fo.fma),
    "v_mad_u32_u16": plain("u32", "u16 u16 u32", lambda a, b, c: low(a * b + c)),
    "v_mad_i32_i16": plain("u32", "i16 i16 u32", lambda a, b, c: low(a * b + c)),
    "v_xad_u32": ternary("u32", lambda a, b, c: (a ^ b) + c),
    "v_lshl_add_u32": ternary("u32", lambda a, b, c: (a << (b & 31)) + c),
    "v_add_lshl_u32": ternary("u32", lambda a, b, c: a + b << (c & 31)),
    "v_add3_u32": ternary("u32", lambda a, b, c: a + b + c),
    "v_lshl_or_b32": ternary("b32", lambda a, b, c: a << (b & 31) | c),
    "v_and_or_b32": ternary("b32", lambda a, b, c: (a & b) | c),
    "v_or3_b32": ternary("b32", lambda a, b, c: a | b | c),
    "v_mad_f16": Op("f16", ("f16",) * 3, mad16, keeps_high=True),
    "v_mad_u16": ternary("u16", lambda a, b, c: a * b + c, keeps_high=True),
    "v_mad_i16": ternary("i16", lambda a, b, c: a * b + c, keeps_high=True),
    "v_fma_f16": float3("f16", fo.fma, keeps_high=True),
    "v_lshl_add_u64": plain("u64", "u64 u32 u64", lambda a, b, c: low((a << (b & 7)) + c, "u64")),
    "v_add_f64": float2("f64", fo.add),
    "v_mul_f64": float2("f64", fo.mul),
    "v_min_f64": float2("f64", fo.fmin),
    "v_max_f64": float2("f64", fo.fmax),
    "v_ldexp_f64": Op("f64", ("f64", "i32"), lambda m, a, b: fo.ldexp(F64, m, a, b)),
    "v_ldexp_f32": Op("f32", ("f32", "i32"), lambda m, a, b: fo.ldexp(F32, m, a, b)),
    "v_mul_lo_u32": binary("u32", lambda a, b: a * b),
    "v_mul_hi_u32": binary("u32", lambda a, b: a * b >> 32),
    "v_mul_hi_i32": binary("i32", lambda a, b: a * b >> 32),
    "v_bcnt_u32_b32": binary("u32", lambda a, b: a.bit_count() + b),
    "v_lshlrev_b64": plain("u64", "u32 u64", lambda a, b: low(b << (a & 63), "u64")),
    "v_lshrrev_b64": plain("u64", "u32 u64", lambda a, b: b >> (a & 63)),
    "v_ashrrev_i64": plain("u64", "u32 i64", lambda a, b: shift_right(b, a & 63, 64)),
    "v_trig_preop_f64": plain("f64", "f64 u32", trig_preop),
    "v_bfm_b32": binary("u32", lambda a, b: (1 << (a & 31)) - 1 << (b & 31)),
    "v_cvt_pknorm_i16_f32": norm("f32", F32, is_signed=True),
    "v_cvt_pknorm_u16_f32": norm("f32", F32, is_signed=False),
    "v_cvt_pknorm_i16_f16": norm("f16", F16, is_signed=True),
    "v_cvt_pknorm_u16_f16": norm("f16", F16, is_signed=False),
    "v_cvt_pkrtz_f16_f32": Op("b32", ("f32", "f32"), pkrtz),
    "v_cvt_pk_u16_u32": binary("u32", lambda a, b: clamp_u(a, 16) | clamp_u(b, 16) << 16),
    "v_cvt_pk_i16_i32": plain(
        "u32", "i32 i32", lambda a, b: low(clamp_s(a, 16), "u16") | low(clamp_s(b, 16) << 16)
    ),
    "v_add_i32": binary("i32", lambda a, b: a + b),
    "v_sub_i32": binary("i32", lambda a, b: a - b),
    "v_add_i16": binary("i16", lambda a, b: a + b),
    "v_sub_i16": binary("i16", lambda a, b: a - b),
    "v_pack_b32_f16": plain("b32", "f16 f16", lambda a, b: a | b << 16),
    "v_mul_legacy_f32": Op("f32", ("f32", "f32"), mul_legacy),
    "v_cvt_pk_fp8_f32": cvt_pk("fp8"),
    "v_cvt_pk_bf8_f32": cvt_pk("bf8"),
    "v_cvt_sr_fp8_f32": cvt_sr("fp8"),
    "v_cvt_sr_bf8_f32": cvt_sr("bf8"),
}
