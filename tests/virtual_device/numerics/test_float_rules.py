"""NaN, zero, class, rounding and division rules against literal restatements of the manual."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.scalar_library import (
    ALL_MXCSR,
    DOWN,
    DX10_CLAMP,
    HIP_MODE,
    IEEE,
    NEAREST,
    ROUNDINGS,
    ScalarLibrary,
    mode,
    mxcsr,
)

# References cast signalling NaNs and overflow on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow)")

Bits = npt.NDArray[Any]
UINT: dict[str, Any] = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64}
FLOAT: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
MAN = {"f16": 10, "f32": 23, "f64": 52}
WIDTH = {"f16": 16, "f32": 32, "f64": 64}
FORMAT = pytest.mark.parametrize("fmt", ["f16", "f32", "f64"])
WIDE = pytest.mark.parametrize("fmt", ["f32", "f64"])


def inf(fmt: str) -> int:
    return (1 << (WIDTH[fmt] - 1)) - (1 << MAN[fmt])


def sign(fmt: str) -> int:
    return 1 << (WIDTH[fmt] - 1)


def quiet_bit(fmt: str) -> int:
    return 1 << (MAN[fmt] - 1)


def specials(fmt: str) -> list[int]:
    one = (inf(fmt) >> 1) & ~((1 << MAN[fmt]) - 1)
    hidden = 1 << MAN[fmt]
    positive = [
        0,
        1,
        hidden - 1,
        hidden,
        one - 1,
        one,
        one + 1,
        one + hidden,
        inf(fmt) - 1,
        inf(fmt),
        inf(fmt) | 1,
        inf(fmt) | quiet_bit(fmt),
        inf(fmt) | quiet_bit(fmt) | 5,
    ]
    return positive + [x | sign(fmt) for x in positive]


def random_bits(fmt: str, n: int, seed: int) -> Bits:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << WIDTH[fmt], n, dtype=UINT[fmt])
    near = np.array(rng.uniform(-40, 40, n // 2), FLOAT[fmt]).view(UINT[fmt])
    bits[: n // 2] = near
    return np.concatenate([np.array(specials(fmt), UINT[fmt]), bits])


def value(fmt: str, bits: int) -> float:
    return float(np.array(bits, UINT[fmt]).view(FLOAT[fmt]))


def is_nan(fmt: str, bits: int) -> bool:
    return bits & ~sign(fmt) > inf(fmt)


def is_snan(fmt: str, bits: int) -> bool:
    return is_nan(fmt, bits) and not bits & quiet_bit(fmt)


def manual_max(fmt: str, a: int, b: int, ieee: bool) -> int:
    """v_max: the manual's chain of conditions."""
    if ieee and is_snan(fmt, a):
        return a | quiet_bit(fmt)
    if ieee and is_snan(fmt, b):
        return b | quiet_bit(fmt)
    if is_nan(fmt, a):
        return b
    if is_nan(fmt, b):
        return a
    if (a, b) in ((0, sign(fmt)), (sign(fmt), 0)):
        return 0
    return a if value(fmt, a) > value(fmt, b) else b


def manual_min(fmt: str, a: int, b: int, ieee: bool) -> int:
    if ieee and is_snan(fmt, a):
        return a | quiet_bit(fmt)
    if ieee and is_snan(fmt, b):
        return b | quiet_bit(fmt)
    if is_nan(fmt, a):
        return b
    if is_nan(fmt, b):
        return a
    if (a, b) in ((0, sign(fmt)), (sign(fmt), 0)):
        return sign(fmt)
    return a if value(fmt, a) < value(fmt, b) else b


def manual_med3(fmt: str, a: int, b: int, c: int, ieee: bool) -> int:
    if any(is_nan(fmt, x) for x in (a, b, c)):
        return manual_min(fmt, manual_min(fmt, a, b, ieee), c, ieee)
    top = value(fmt, manual_max(fmt, manual_max(fmt, a, b, ieee), c, ieee))
    if top == value(fmt, a):
        return manual_max(fmt, b, c, ieee)
    if top == value(fmt, b):
        return manual_max(fmt, a, c, ieee)
    return manual_max(fmt, a, b, ieee)


@FORMAT
@pytest.mark.parametrize("ieee", [True, False])
def test_min_max_med3(scalar: ScalarLibrary, fmt: str, ieee: bool) -> None:
    control = mode(flags=IEEE if ieee else 0)
    values = specials(fmt)
    triples = (
        list(itertools.product(values, repeat=3))
        if fmt == "f32"
        else [(a, b, c) for a, b in itertools.product(values, repeat=2) for c in values[::5]]
    )
    a, b, c = np.array(triples, np.uint64).T
    rules: dict[str, Callable[[int, int, int], int]] = {
        "max": lambda x, y, _: manual_max(fmt, x, y, ieee),
        "min": lambda x, y, _: manual_min(fmt, x, y, ieee),
        "max3": lambda x, y, z: manual_max(fmt, manual_max(fmt, x, y, ieee), z, ieee),
        "min3": lambda x, y, z: manual_min(fmt, manual_min(fmt, x, y, ieee), z, ieee),
        "med3": lambda x, y, z: manual_med3(fmt, x, y, z, ieee),
    }
    for name, rule in rules.items():
        step = 26 if name in ("max", "min") and fmt == "f32" else 1
        want = [rule(*t) for t in triples[::step]]
        got = scalar.run(f"{name}_{fmt}", a[::step], b[::step], c[::step], mode=control)
        np.testing.assert_array_equal(got, np.array(want, np.uint64), name)


@FORMAT
def test_min_max_flush(scalar: ScalarLibrary, fmt: str) -> None:
    denormal, negative_denormal = 5, sign(fmt) | 3
    assert scalar.run(f"max_{fmt}", denormal, sign(fmt) | 1, mode=mode(denorm=0))[()] == 0
    assert scalar.run(f"min_{fmt}", denormal, negative_denormal, mode=mode(denorm=0))[()] == sign(
        fmt
    )
    assert scalar.run(f"max_{fmt}", denormal, negative_denormal)[()] == denormal
    assert scalar.run(f"max_{fmt}", denormal, 1, mode=mode(denorm=1))[()] == 0


@FORMAT
def test_class(scalar: ScalarLibrary, fmt: str) -> None:
    def expected(bits: int) -> int:
        negative = bool(bits & sign(fmt))
        magnitude = bits & ~sign(fmt)
        if is_nan(fmt, bits):
            return 0 if is_snan(fmt, bits) else 1
        if magnitude == inf(fmt):
            return 2 if negative else 9
        if magnitude >> MAN[fmt]:
            return 3 if negative else 8
        if magnitude:
            return 4 if negative else 7
        return 5 if negative else 6

    for bits in specials(fmt):
        masks = 1 << np.arange(10)
        got = scalar.run(f"class_{fmt}", bits, masks, mode=0).tolist()
        assert got == [int(k == expected(bits)) for k in range(10)], hex(bits)
        assert scalar.run(f"class_{fmt}", bits, 0x3FF)[()] == 1


@FORMAT
def test_propagated_nan(scalar: ScalarLibrary, fmt: str) -> None:
    snan, qnan, one = inf(fmt) | 3, sign(fmt) | inf(fmt) | quiet_bit(fmt) | 9, inf(fmt) // 2
    run = scalar.run
    for flags, bit in ((IEEE, quiet_bit(fmt)), (0, 0)):
        control = mode(flags=flags)
        assert run(f"propagate_nan_{fmt}", snan, qnan, qnan, mode=control)[()] == snan | bit
        assert run(f"propagate_nan_{fmt}", one, qnan, snan, mode=control)[()] == qnan
        assert run(f"propagate_nan_{fmt}", one, one, snan, mode=control)[()] == snan | bit
    default = sign(fmt) | inf(fmt) | quiet_bit(fmt)
    assert run(f"propagate_nan_{fmt}", one, one, one)[()] == default


@FORMAT
def test_clamp_and_omod(scalar: ScalarLibrary, fmt: str) -> None:
    bits = random_bits(fmt, 20000, 1)
    x = bits.view(FLOAT[fmt])
    nan = np.isnan(x)
    with np.errstate(invalid="ignore"):
        clamped = (np.clip(x, 0, 1) + FLOAT[fmt](0)).view(UINT[fmt])
    clamped = np.where(np.signbit(x), 0, clamped)
    got = scalar.run(f"clamp_{fmt}", bits)
    np.testing.assert_array_equal(got, np.where(nan, 0, clamped))
    passing = scalar.run(f"clamp_{fmt}", bits, mode=HIP_MODE & ~DX10_CLAMP)
    np.testing.assert_array_equal(passing, np.where(nan, bits, clamped))

    flushing = mode(denorm=0, flags=0)
    for omod, factor in ((0, 1.0), (1, 2.0), (2, 4.0), (3, 0.5)):
        got = scalar.run(f"omod_{fmt}", bits, omod, mode=flushing)
        assert (scalar.run(f"omod_{fmt}", bits, omod, mode=HIP_MODE) == bits).all()
        assert (scalar.run(f"omod_{fmt}", bits, omod, mode=mode(flags=0)) == bits).all()
        if omod == 0:
            assert (got == bits).all()
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            source = np.where(np.abs(x) < np.finfo(FLOAT[fmt]).tiny, FLOAT[fmt](0), x)
            want = (source * FLOAT[fmt](factor)).astype(FLOAT[fmt])
        want[np.abs(want) < np.finfo(FLOAT[fmt]).tiny] = 0  # -0 becomes +0 as well
        np.testing.assert_array_equal(got[~nan], want[~nan].view(UINT[fmt]))


@FORMAT
def test_integral_roundings(scalar: ScalarLibrary, fmt: str) -> None:
    bits = random_bits(fmt, 60000, 2)
    quarters = (np.arange(-4096, 4096) / 4).astype(FLOAT[fmt]).view(UINT[fmt])
    bits = np.concatenate([bits, quarters, quarters + UINT[fmt](1), quarters - UINT[fmt](1)])
    x = bits.view(FLOAT[fmt])
    nan = np.isnan(x)
    for name, function in (
        ("trunc", np.trunc),
        ("ceil", np.ceil),
        ("floor", np.floor),
        ("rndne", np.rint),
    ):
        with np.errstate(invalid="ignore"):
            want = function(x).astype(FLOAT[fmt]).view(UINT[fmt])
        want = np.where(nan, bits | UINT[fmt](quiet_bit(fmt)), want)
        got = scalar.run(f"{name}_{fmt}", bits, mxcsr=ALL_MXCSR[9])
        np.testing.assert_array_equal(got, want, name)
    assert scalar.run(f"ceil_{fmt}", 1, mode=mode(denorm=2))[()] == 0


@FORMAT
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fract(scalar: ScalarLibrary, fmt: str, rounding: int) -> None:
    bits = random_bits(fmt, 40000, 3)
    x = bits.view(FLOAT[fmt])
    finite = np.isfinite(x)
    bits, x = bits[finite], x[finite]
    if fmt == "f64":  # keep x - floor(x) exact in long double
        keep = (np.abs(x) >= 2.0**-10) | (x == 0)
        bits, x = bits[keep], x[keep]
    wide = x.astype(np.longdouble)
    exact = wide - np.floor(wide)
    kind = FLOAT[fmt]
    below_one = np.nextafter(kind(1), kind(0))
    nearest = exact.astype(kind)
    if rounding == NEAREST:
        want = nearest
    elif rounding == 1:
        want = np.where(nearest < exact, np.nextafter(nearest, kind(2)), nearest)
    else:
        want = np.where(nearest > exact, np.nextafter(nearest, kind(-2)), nearest)
    want = np.minimum(want, below_one).astype(kind)
    got = scalar.run(f"fract_{fmt}", bits, mode=mode(rounding)).astype(UINT[fmt])
    zero = want == 0
    np.testing.assert_array_equal(got[~zero], want[~zero].view(UINT[fmt]))
    assert (got[zero] == (sign(fmt) if rounding == DOWN else 0)).all()
    assert scalar.run(f"fract_{fmt}", sign(fmt) | 1)[()] == below_one.view(UINT[fmt])
    default = sign(fmt) | inf(fmt) | quiet_bit(fmt)
    assert scalar.run(f"fract_{fmt}", inf(fmt))[()] == default


@FORMAT
def test_frexp(scalar: ScalarLibrary, fmt: str) -> None:
    bits = random_bits(fmt, 40000, 4)
    x = bits.view(FLOAT[fmt])
    finite = np.isfinite(x)
    mant, exponent = np.frexp(np.where(finite, x, 0).astype(np.float64))
    got_mant = scalar.run(f"frexp_mant_{fmt}", bits)
    got_exp = scalar.run32(f"frexp_exp_{fmt}", bits).view(np.int32)
    np.testing.assert_array_equal(got_mant[finite], mant.astype(FLOAT[fmt]).view(UINT[fmt])[finite])
    np.testing.assert_array_equal(got_exp, np.where(finite, exponent, 0))
    infinite = np.isinf(x)
    np.testing.assert_array_equal(got_mant[infinite], bits[infinite])


@FORMAT
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_ldexp(scalar: ScalarLibrary, fmt: str, rounding: int) -> None:
    bits = random_bits(fmt, 3000, 5)
    rng = np.random.default_rng(6)
    n = rng.integers(-40, 40, bits.size) * rng.choice([1, 1, 8, 50], bits.size)
    n[:4] = [2**31 - 1, -(2**31), 0, 1]
    got = scalar.run(f"ldexp_{fmt}", bits, n & 0xFFFFFFFF, mode=mode(rounding))
    one = 1 << MAN[fmt]
    lowest = 2 - (1 << (WIDTH[fmt] - MAN[fmt] - 2)) - MAN[fmt]
    for x, k, g in zip(bits.tolist(), n.tolist(), got.tolist(), strict=True):
        magnitude = x & ~sign(fmt)
        if magnitude >= inf(fmt) or magnitude == 0:
            quieted = quiet_bit(fmt) if magnitude > inf(fmt) else 0
            assert g == x | quieted
            continue
        field = magnitude >> MAN[fmt]
        significand = magnitude & (one - 1) | (one if field else 0)
        exponent = max(field, 1) - 1 + lowest + max(-5000, min(5000, k))
        top = exponent + significand.bit_length() - 1
        unit = max(top - MAN[fmt], lowest)
        shift = unit - exponent
        negative = bool(x & sign(fmt))
        if shift <= 0:
            kept = significand << -shift
        else:
            kept, rest = divmod(significand, 1 << min(shift, 300))
            middle = 1 << (min(shift, 300) - 1)
            if rounding == NEAREST:
                kept += rest > middle or (rest == middle and kept & 1)
            elif rest and rounding == (2 if negative else 1):
                kept += 1
        code = kept + ((unit - lowest) << MAN[fmt])
        if code >= inf(fmt):
            code = inf(fmt) - (rounding not in (NEAREST, 2 if negative else 1))
        assert g == code | (x & sign(fmt)), (hex(x), k)


def test_mul_legacy(scalar: ScalarLibrary) -> None:
    a, b = (random_bits("f32", 20000, s) for s in (7, 8))
    a[:52], b[:52] = np.repeat(a[:52:2], 2), np.tile([0, 0x80000000], 26)
    x, y = a.view(np.float32), b.view(np.float32)
    with np.errstate(all="ignore"):
        want = (x * y).view(np.uint32)
    want = np.where(np.isnan(x * y), 0xFFC00000, want)
    want = np.where(np.isnan(y), b | 0x400000, want)
    want = np.where(np.isnan(x), a | 0x400000, want)
    want = np.where((x == 0) | (y == 0), 0, want)
    np.testing.assert_array_equal(scalar.run("mul_legacy_f32", a, b), want)
    flush = mxcsr(denorm=0)
    assert scalar.run("mul_legacy_f32", 1, 0x7F800000, mode=0xC0, mxcsr=flush)[()] == 0


def test_cube(scalar: ScalarLibrary) -> None:
    rng = np.random.default_rng(9)
    points = rng.integers(-3, 4, (3, 4000)).astype(np.float32)
    points[:, ::2] += rng.standard_normal((3, 2000)).astype(np.float32)
    bits = points.view(np.uint32)
    results = {
        k: scalar.run32(f"cube_{k}_f32", *bits).view(np.float32) for k in ("id", "sc", "tc", "ma")
    }
    for i, (x, y, z) in enumerate(points.T):
        if abs(z) >= abs(x) and abs(z) >= abs(y):
            want = (5, -x, -y, 2 * z) if z < 0 else (4, x, -y, 2 * z)
        elif abs(y) >= abs(x):
            want = (3, x, -z, 2 * y) if y < 0 else (2, x, z, 2 * y)
        else:
            want = (1, z, -y, 2 * x) if x < 0 else (0, -z, -y, 2 * x)
        assert tuple(results[k][i] for k in ("id", "sc", "tc", "ma")) == want


def divide(lib: ScalarLibrary, fmt: str, num: Bits, den: Bits, rounding: int) -> Bits:
    """The compiler's expansion of an IEEE division."""
    control = mode(rounding)
    fma = f"div_fmas_{fmt}"
    flip = sign(fmt)

    def run(name: str, *operands: npt.ArrayLike) -> Bits:
        return lib.run(name, *operands, mode=control)

    d = run(f"div_scale_{fmt}", den, den, num)
    n = run(f"div_scale_{fmt}", num, den, num)
    vcc = run(f"div_scale_vcc_{fmt}", num, den, num)
    one = np.array(1, FLOAT[fmt]).view(UINT[fmt])
    minus_d = d ^ np.uint64(flip)
    if fmt == "f32":
        r = lib.lanes("rcp_f32", d.astype(np.uint32))
        steps = 1
    else:
        r = run("rcp_f64", d)
        steps = 2
    for _ in range(steps):
        r = run(fma, run(fma, minus_d, r, one), r, r)
    zero = np.zeros_like(n)
    q = run(fma, n, r, zero)
    if fmt == "f32":
        q = run(fma, run(fma, minus_d, q, n), r, q)
    rest = run(fma, minus_d, q, n)
    scaled = np.where(vcc, run(f"div_fmas_vcc_{fmt}", rest, r, q), run(fma, rest, r, q))
    return run(f"div_fixup_{fmt}", scaled, den, num)


@WIDE
def test_division_sequence_is_correctly_rounded(scalar: ScalarLibrary, fmt: str) -> None:
    rng = np.random.default_rng(10)
    n = 1 << 17
    num, den = rng.integers(0, 1 << WIDTH[fmt], (2, n), dtype=UINT[fmt])
    # denormal, tiny, huge and overflowing quotients; every pair of special values
    for operand in (num, den):
        operand[: n // 8] &= UINT[fmt](sign(fmt) | ((1 << (MAN[fmt] + 5)) - 1))
    num[n // 8 : n // 4] |= UINT[fmt](0x7C << (WIDTH[fmt] - 8))
    den[n // 4 : n // 2] |= UINT[fmt](0x7C << (WIDTH[fmt] - 8))
    grid = np.array(list(itertools.product(specials(fmt), repeat=2)), UINT[fmt]).T
    num, den = np.concatenate([num, grid[0]]), np.concatenate([den, grid[1]])
    with np.errstate(all="ignore"):
        quotient = num.view(FLOAT[fmt]) / den.view(FLOAT[fmt])
    want = quotient.view(UINT[fmt])
    got = divide(scalar, fmt, num, den, NEAREST)
    nan = np.isnan(quotient)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert (got[nan] & np.uint64(inf(fmt) | quiet_bit(fmt)) == inf(fmt) | quiet_bit(fmt)).all()
    tiny = np.finfo(FLOAT[fmt]).tiny
    assert (np.abs(quotient) < tiny)[quotient != 0].sum() > 1000


@FORMAT
def test_div_fixup_specials(scalar: ScalarLibrary, fmt: str) -> None:
    one, infinity, minus = inf(fmt) >> 1, inf(fmt), sign(fmt)
    one &= ~((1 << MAN[fmt]) - 1)
    default = minus | infinity | quiet_bit(fmt)
    cases = [  # quotient, denominator, numerator, result
        (one, one, infinity | 1, infinity | 1 | quiet_bit(fmt)),
        (one, infinity | 1, one, infinity | 1 | quiet_bit(fmt)),
        (one, 0, 0, default),
        (one, infinity, minus | infinity, default),
        (one, 0, minus | one, minus | infinity),
        (one, one, infinity, infinity),
        (one, minus | infinity, one, minus),
        (one, minus | one, 0, minus),
        (minus | one, one, one, one),
        (one, minus | one, one, minus | one),
    ]
    for q, d, n, want in cases:
        assert scalar.run(f"div_fixup_{fmt}", q, d, n)[()] == want


@WIDE
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_soft_fma_against_the_host(scalar: ScalarLibrary, fmt: str, rounding: int) -> None:
    """div_fmas without VCC is a plain fused multiply-add; the host has one for f64."""
    rng = np.random.default_rng(11)
    a, b, c = rng.integers(0, 1 << WIDTH[fmt], (3, 1 << 16), dtype=UINT[fmt])
    exponents = UINT[fmt](((1 << WIDTH[fmt]) - 1) ^ (0x3F << (WIDTH[fmt] - 8)))
    for operand in (a, b, c):
        operand[::2] = (operand[::2] & exponents) | UINT[fmt](0x3C << (WIDTH[fmt] - 8))
    if fmt == "f64":
        c[::4] = (a[::4].view(np.float64) * b[::4].view(np.float64)).view(np.uint64) ^ np.uint64(
            sign(fmt)
        )
        want = scalar.run("fma_f64", a, b, c, mode=mode(rounding), mxcsr=mxcsr(rounding))
    else:
        # an f32 product is exact in f64 and the sum in long double unless its terms are far apart
        x, y, z = (v.view(np.float32).astype(np.longdouble) for v in (a, b, c))
        with np.errstate(all="ignore"):
            product, exact = x * y, x * y + z
            gap = np.abs(np.log2(np.abs(product)) - np.log2(np.abs(z)))
        keep = np.isfinite(exact) & (gap < 12) & (np.abs(exact) > 1e-30) & (np.abs(exact) < 1e30)
        a, b, c, exact = a[keep], b[keep], c[keep], exact[keep]
        nearest = exact.astype(np.float32)
        if rounding == 3:
            low = np.abs(nearest) > np.abs(exact)
            nearest = np.where(low, np.nextafter(nearest, np.float32(0)), nearest)
        elif rounding != NEAREST:
            up = rounding == 1
            off = nearest < exact if up else nearest > exact
            away = np.float32(math.inf if up else -math.inf)
            nearest = np.where(off, np.nextafter(nearest, away), nearest)
        want = nearest.view(np.uint32)
        assert want.size > 4000
    got = scalar.run(f"div_fmas_{fmt}", a, b, c, mode=mode(rounding), mxcsr=ALL_MXCSR[13])
    np.testing.assert_array_equal(got, want)


def test_trig_preop(scalar: ScalarLibrary) -> None:
    # 2/pi to 1201 bits from Machin's formula
    precision = 1400

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, (1 << precision) // n, 0
        while term:
            total += (-term if k & 1 else term) // (2 * k + 1)
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    two_over_pi = (2 << (2 * precision)) // pi
    table = two_over_pi >> (precision - 1201)
    for exponent in (0, 1023, 1077, 1078, 1100, 1500, 1967, 1968, 2000, 2046):
        for segment in range(32):
            shift = segment * 53 + max(0, exponent - 1077)
            chunk = (table << shift >> (1201 - 53)) & ((1 << 53) - 1)
            scale = -53 - shift + (128 if exponent >= 1968 else 0)
            want = math.ldexp(chunk, scale)
            got = scalar.run("trig_preop_f64", exponent << 52 | 12345, segment)
            assert got.view(np.float64)[()] == want, (exponent, segment)
