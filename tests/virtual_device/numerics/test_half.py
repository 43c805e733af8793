"""f16 conversions and arithmetic against NumPy and exact rationals."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.scalar_library import (
    ALL_MXCSR,
    DOWN,
    DX10_CLAMP,
    FP16_OVFL,
    IEEE,
    NEAREST,
    ROUNDINGS,
    UP,
    ZERO,
    ScalarLibrary,
    all_exponents_f32,
    mode,
)

# References cast signalling NaNs and overflow on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow)")

U16 = npt.NDArray[np.uint16]
F64 = npt.NDArray[np.float64]
ALL = np.arange(1 << 16, dtype=np.uint16)
SPECIAL = np.array(
    [
        0x0000,
        0x8000,
        0x0001,
        0x8001,
        0x03FF,
        0x83FF,
        0x0400,
        0x8400,
        0x3BFF,
        0x3C00,
        0xBC00,
        0x3C01,
        0x4248,
        0x7BFF,
        0xFBFF,
        0x7C00,
        0xFC00,
        0x7C01,
        0xFD23,
        0x7E00,
        0xFE77,
    ],
    np.uint16,
)


def round_to_f16(exact: F64, rounding: int) -> U16:
    """Finite float64 values to f16, by stepping from NumPy's nearest to the wanted neighbour."""
    with np.errstate(over="ignore"):
        nearest = exact.astype(np.float16)
        if rounding == NEAREST:
            return nearest.view(np.uint16)
        toward = {UP: np.inf, DOWN: -np.inf, ZERO: 0}[rounding]
        back = nearest.astype(np.float64)
        if rounding == ZERO:
            step = np.abs(back) > np.abs(exact)
        else:
            step = back < exact if rounding == UP else back > exact
        stepped = np.nextafter(nearest, np.float16(toward))
        result = np.where(step, stepped, nearest)
        # a result that steps to zero keeps the sign of the exact value
        return np.copysign(result, exact).astype(np.float16).view(np.uint16)


def is_nan(bits: U16) -> npt.NDArray[np.bool_]:
    return (bits & 0x7FFF) > 0x7C00


def random_pairs(n: int, count: int, seed: int) -> list[U16]:
    """Random patterns, a third of them with close exponents, and every pair of special values."""
    rng = np.random.default_rng(seed)
    operands = [rng.integers(0, 1 << 16, n, dtype=np.uint16) for _ in range(count)]
    close = rng.integers(0x3000, 0x4800, (count, n // 3), dtype=np.uint16)
    for x, y in zip(operands, close, strict=True):
        x[: n // 3] = y | (x[: n // 3] & 0x8000)
    grid = np.array(np.meshgrid(*[SPECIAL] * count)).reshape(count, -1)
    return [np.concatenate([x, g]) for x, g in zip(operands, grid, strict=True)]


def test_widening_is_exact(scalar: ScalarLibrary) -> None:
    with np.errstate(invalid="ignore"):
        want = ALL.view(np.float16).astype(np.float32).view(np.uint32)
    for control in ALL_MXCSR:
        got = scalar.run32("f16_to_f32", ALL, mxcsr=control)
        np.testing.assert_array_equal(got[~is_nan(ALL)], want[~is_nan(ALL)])
    nan = ALL[is_nan(ALL)].astype(np.uint32)
    payload = (nan & 0x8000) << 16 | 0x7F800000 | (nan & 0x3FF) << 13
    np.testing.assert_array_equal(scalar.run32("f16_to_f32", nan, mode=mode(flags=0)), payload)
    np.testing.assert_array_equal(scalar.run32("f16_to_f32", nan), payload | 0x400000)


def test_widening_flushes_by_the_f16_field(scalar: ScalarLibrary) -> None:
    got = scalar.run32("f16_to_f32", ALL[:0x400], mode=0x30)
    assert not got.any()
    assert scalar.run32("f16_to_f32", ALL[:0x400], mode=0xC0)[1:].all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_narrowing_f32(scalar: ScalarLibrary, rounding: int) -> None:
    bits = all_exponents_f32(np.random.default_rng(1), 512)
    # around every f16 value and every midpoint between two
    grid = ALL[:0x7C00].view(np.float16).astype(np.float32)
    middle = ((grid[:-1].astype(np.float64) + grid[1:]) / 2).astype(np.float32)
    edges = np.concatenate([grid, middle, [np.float32(65520)]]).view(np.uint32)
    edges = np.concatenate([edges, edges[1:] - np.uint32(1), edges + np.uint32(1)])
    bits = np.concatenate([bits, edges, edges | np.uint32(0x80000000)])
    x = bits.view(np.float32)
    finite = np.isfinite(x)
    bits, exact = bits[finite], x[finite].astype(np.float64)
    got = scalar.run("f32_to_f16", bits, rounding)
    np.testing.assert_array_equal(got, round_to_f16(exact, rounding))
    by_mode = scalar.run("cvt_f16_f32", bits, mode=mode(rounding), mxcsr=ALL_MXCSR[7])
    np.testing.assert_array_equal(by_mode, got)
    clamped = scalar.run("f32_to_f16", bits, rounding, mode=mode() | FP16_OVFL)
    infinite = (got & 0x7FFF) == 0x7C00
    np.testing.assert_array_equal(clamped, np.where(infinite, got - 1, got))
    flushed = scalar.run("f32_to_f16", bits, rounding, mode=mode(denorm=1))
    np.testing.assert_array_equal(flushed, np.where((got & 0x7C00) == 0, got & 0x8000, got))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_narrowing_f64(scalar: ScalarLibrary, rounding: int) -> None:
    rng = np.random.default_rng(2)
    exact = rng.standard_normal(1 << 18) * np.exp2(rng.integers(-30, 18, 1 << 18))
    exact[:6] = [65519.999, 65520, -65520, 5e-324, -1e-300, 2.0**-25]
    got = scalar.run("f64_to_f16", exact.view(np.uint64), rounding)
    np.testing.assert_array_equal(got, round_to_f16(exact, rounding))


def test_narrowing_specials(scalar: ScalarLibrary) -> None:
    x = np.array([0x7F800000, 0xFF800000, 0x7F800001, 0xFFC02000, 0x7FA00000], np.uint32)
    np.testing.assert_array_equal(
        scalar.run("cvt_f16_f32", x), [0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7F00]
    )
    np.testing.assert_array_equal(
        scalar.run("cvt_f16_f32", x, mode=mode(flags=0)), [0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7D00]
    )
    np.testing.assert_array_equal(
        scalar.run("cvt_f16_f32", x[:2], mode=mode() | FP16_OVFL), [0x7C00, 0xFC00]
    )


def test_pkrtz_truncates_whatever_mode_says(scalar: ScalarLibrary) -> None:
    rng = np.random.default_rng(3)
    lo, hi = (rng.standard_normal(1 << 16) * 300).astype(np.float32).reshape(2, -1)
    want = (
        round_to_f16(lo.astype(np.float64), ZERO).astype(np.uint32)
        | round_to_f16(hi.astype(np.float64), ZERO).astype(np.uint32) << 16
    )
    got = scalar.run("cvt_pkrtz_f16_f32", lo.view(np.uint32), hi.view(np.uint32), mode=mode(UP))
    np.testing.assert_array_equal(got, want)
    big = np.float32(1e9).view(np.uint32)
    assert scalar.run("cvt_pkrtz_f16_f32", big, big | 1 << 31)[()] == 0xFBFF7BFF


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_add_mul(scalar: ScalarLibrary, name: str, rounding: int) -> None:
    a, b = random_pairs(1 << 18, 2, 4)
    x, y = a.view(np.float16).astype(np.float64), b.view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact = {"add": x + y, "sub": x - y, "mul": x * y}[name]
    finite = np.isfinite(exact)
    if rounding == DOWN and name != "mul":
        # exact cancellation, and zeros of opposite sign, give -0
        other = y if name == "add" else -y
        both_plus_zero = (x == 0) & ~np.signbit(x) & (other == 0) & ~np.signbit(other)
        exact = np.where((exact == 0) & ~both_plus_zero, -0.0, exact)
    want = np.where(
        finite,
        round_to_f16(np.where(finite, exact, 0), rounding),
        exact.astype(np.float16).view(np.uint16),
    )
    want[np.isnan(exact)] = 0xFE00
    want = np.where(is_nan(b), b | 0x200, want)
    want = np.where(is_nan(a), a | 0x200, want)
    for control in (ALL_MXCSR[0], ALL_MXCSR[6], ALL_MXCSR[12]):
        got = scalar.run(f"{name}_f16", a, b, mode=mode(rounding), mxcsr=control)
        np.testing.assert_array_equal(got, want)


def fma_fraction(a: int, b: int, c: int, rounding: int) -> int:
    """The exactly rounded f16 a * b + c of finite operands, by rational arithmetic."""
    x, y, z = (Fraction(float(np.uint16(v).view(np.float16))) for v in (a, b, c))
    exact = x * y + z
    if exact == 0:
        product_sign, sign = (a ^ b) >> 15, c >> 15
        if x * y == 0 and z == 0 and product_sign == sign:
            return sign << 15
        return 0x8000 if rounding == DOWN else 0
    sign = exact < 0
    mag = abs(exact)
    exponent = -14
    while mag >= Fraction(2) ** (exponent + 1):
        exponent += 1
    scaled = mag / Fraction(2) ** (exponent - 10)
    whole = floor(scaled)
    rest = scaled - whole
    if rounding == NEAREST:
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)
    elif rest and rounding == (DOWN if sign else UP):
        whole += 1
    code = whole + (exponent + 14) * 1024
    if code >= 0x7C00:
        to_inf = rounding in (NEAREST, DOWN if sign else UP)
        code = 0x7C00 if to_inf else 0x7BFF
    return sign << 15 | code


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fma_single_rounding(scalar: ScalarLibrary, rounding: int) -> None:
    rng = np.random.default_rng(5 + rounding)
    a, b, c = rng.integers(0, 1 << 16, (3, 6000), dtype=np.uint16)
    # products far below, near and far above the addend; ties broken by a tiny product
    a[:2000] = rng.integers(0, 0x1000, 2000)
    c[1000:2000] = rng.integers(0x6000, 0x7BFF, 1000)
    grid = np.array(np.meshgrid(*[SPECIAL[np.isfinite(SPECIAL.view(np.float16))]] * 3))
    a, b, c = (np.concatenate([v, g]) for v, g in zip((a, b, c), grid.reshape(3, -1), strict=True))
    keep = ((a & 0x7C00) < 0x7C00) & ((b & 0x7C00) < 0x7C00) & ((c & 0x7C00) < 0x7C00)
    a, b, c = a[keep], b[keep], c[keep]
    got = scalar.run("fma_f16", a, b, c, mode=mode(rounding))
    want = [fma_fraction(int(x), int(y), int(z), rounding) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got, np.array(want, np.uint64))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_fma_two_ways(scalar: ScalarLibrary, rounding: int) -> None:
    """The f64 evaluation and the integer one agree, NaNs and infinities included."""
    a, b, c = random_pairs(1 << 19, 3, 9)
    want = scalar.run("soft_fma_f16", a, b, c, mode=mode(rounding))
    for control in (ALL_MXCSR[1], ALL_MXCSR[4], ALL_MXCSR[11], ALL_MXCSR[15]):
        got = scalar.run("fma_f16", a, b, c, mode=mode(rounding), mxcsr=control)
        np.testing.assert_array_equal(got, want)


def test_nan_order_and_quieting(scalar: ScalarLibrary) -> None:
    snan, qnan, one = 0x7C01, 0xFE77, 0x3C00
    for flags, bit in ((IEEE | DX10_CLAMP, 0x200), (0, 0)):
        m = mode(flags=flags)
        assert scalar.run("add_f16", snan, qnan, mode=m)[()] == snan | bit
        assert scalar.run("mul_f16", one, snan, mode=m)[()] == snan | bit
        assert scalar.run("fma_f16", one, qnan, snan, mode=m)[()] == qnan
        assert scalar.run("fma_f16", one, one, snan, mode=m)[()] == snan | bit
        assert scalar.run("mad_f16", one, one, snan, mode=m)[()] == snan | bit


def test_mad_rounds_twice_and_flushes(scalar: ScalarLibrary) -> None:
    a, b, c = random_pairs(1 << 16, 3, 11)
    product = scalar.run("mul_f16", a, b, mode=mode(denorm=0))
    want = scalar.run("add_f16", product, c, mode=mode(denorm=0))
    number = ~(is_nan(a) | is_nan(b) | is_nan(c))
    got = scalar.run("mad_f16", a, b, c)
    np.testing.assert_array_equal(got[number], want[number])


def test_flushing_arithmetic(scalar: ScalarLibrary) -> None:
    """Denormal operands count as zeros and denormal results become zeros, signs kept."""
    a, b = random_pairs(1 << 17, 2, 12)
    flush = {x: np.where((v & 0x7C00) == 0, v & 0x8000, v) for x, v in (("a", a), ("b", b))}
    kept = scalar.run("mul_f16", flush["a"], flush["b"])
    want = np.where((kept & 0x7C00) == 0, kept & 0x8000, kept)
    np.testing.assert_array_equal(scalar.run("mul_f16", a, b, mode=mode(denorm=0)), want)
