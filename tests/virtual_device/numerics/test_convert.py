"""Integer and float conversions against NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.scalar_library import (
    ALL_MXCSR,
    DOWN,
    FP16_OVFL,
    NEAREST,
    ROUNDINGS,
    UP,
    ZERO,
    ScalarLibrary,
    all_exponents_f32,
    mode,
    mxcsr,
)

# References cast signalling NaNs and overflow on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow)")

I32 = (-(1 << 31), (1 << 31) - 1)
U32 = (0, (1 << 32) - 1)


def integers(exact: npt.NDArray[np.floating], low: int, high: int) -> npt.NDArray[np.uint64]:
    """Integral values, saturated, NaN as 0, as 32-bit patterns."""
    clipped = np.clip(np.where(np.isnan(exact), 0, exact), low, high)
    return clipped.astype(np.int64).astype(np.uint64) & np.uint64(0xFFFFFFFF)


def rint(exact: npt.NDArray[np.floating], rounding: int) -> npt.NDArray[np.floating]:
    rounded: npt.NDArray[np.floating]
    rounded = {NEAREST: np.rint, UP: np.ceil, DOWN: np.floor, ZERO: np.trunc}[rounding](exact)
    return rounded


def sample_f32(seed: int) -> npt.NDArray[np.uint32]:
    rng = np.random.default_rng(seed)
    halves = (np.arange(-20000, 20000) / 4).astype(np.float32)
    powers = np.exp2(np.arange(0, 34)).astype(np.float32)
    edges = np.concatenate([halves, powers, -powers]).view(np.uint32)
    near = [edges, edges + np.uint32(1), edges - np.uint32(1)]
    wide = rng.uniform(-5e9, 5e9, 1 << 18).astype(np.float32).view(np.uint32)
    return np.concatenate([all_exponents_f32(rng, 1024), wide, *near])


def sample_f64(seed: int) -> npt.NDArray[np.uint64]:
    rng = np.random.default_rng(seed)
    top = np.arange(4096, dtype=np.uint64)[:, None] << np.uint64(52)
    low = rng.integers(0, 1 << 52, (4096, 64), dtype=np.uint64)
    low[:, :4] = [0, 1, (1 << 52) - 1, 1 << 28]
    wide = rng.uniform(-5e9, 5e9, 1 << 17)
    halves = np.arange(-(1 << 31) - 100, -(1 << 31) + 100) / 2
    return np.concatenate(
        [(top | low).ravel(), *(x.view(np.uint64) for x in (wide, halves, halves + 2.0**32))]
    )


def step_to(
    rounded: npt.NDArray[np.floating], exact: npt.NDArray[np.floating], rounding: int
) -> npt.NDArray[np.floating]:
    """Move a nearest-rounded array to the neighbour the rounding asks for."""
    wider = rounded.astype(np.longdouble)
    if rounding == NEAREST:
        return rounded
    kind = rounded.dtype.type
    if rounding == ZERO:
        moved = np.nextafter(rounded, kind(0))
        result = np.where(np.abs(wider) > np.abs(exact), moved, rounded)
    elif rounding == UP:
        result = np.where(wider < exact, np.nextafter(rounded, kind(np.inf)), rounded)
    else:
        result = np.where(wider > exact, np.nextafter(rounded, kind(-np.inf)), rounded)
    return np.copysign(result, exact.astype(kind)).astype(kind)


def test_f32_to_integers(scalar: ScalarLibrary) -> None:
    bits = sample_f32(1)
    with np.errstate(invalid="ignore"):
        x = bits.view(np.float32).astype(np.float64)
    half_up = np.floor(x.astype(np.longdouble) + 0.5)
    half_up = np.where((x > -1e-9) & (x < 0), 0, half_up)  # the sum rounds even in long double
    expected = {
        "cvt_i32_f32": integers(np.trunc(x), *I32),
        "cvt_u32_f32": integers(np.trunc(x), *U32),
        "cvt_flr_i32_f32": integers(np.floor(x), *I32),
        "cvt_rpi_i32_f32": integers(half_up, *I32),
    }
    for name, want in expected.items():
        for control in ALL_MXCSR[::3]:
            got = scalar.run(name, bits, mxcsr=control)
            np.testing.assert_array_equal(got, want, name)


def test_f64_to_integers(scalar: ScalarLibrary) -> None:
    bits = sample_f64(2)
    x = bits.view(np.float64)
    for name, limits in (("cvt_i32_f64", I32), ("cvt_u32_f64", U32)):
        got = scalar.run(name, bits, mxcsr=ALL_MXCSR[9])
        np.testing.assert_array_equal(got, integers(np.trunc(x), *limits), name)


def test_f16_to_integers_exhaustive(scalar: ScalarLibrary) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        x = bits.view(np.float16).astype(np.float64)
    signed = integers(np.trunc(x), -(1 << 15), (1 << 15) - 1) & np.uint64(0xFFFF)
    np.testing.assert_array_equal(scalar.run("cvt_i16_f16", bits), signed)
    unsigned = integers(np.trunc(x), 0, (1 << 16) - 1)
    np.testing.assert_array_equal(scalar.run("cvt_u16_f16", bits), unsigned)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_integers_to_f32(scalar: ScalarLibrary, rounding: int) -> None:
    rng = np.random.default_rng(3)
    n = rng.integers(0, 1 << 32, 1 << 19, dtype=np.uint32) >> rng.integers(
        0, 32, 1 << 19, dtype=np.uint32
    )
    n = np.concatenate([n, ~n, [np.uint32(0), np.uint32(1 << 31), np.uint32(0xFFFFFFFF)]])
    for name, exact in (("cvt_f32_i32", n.view(np.int32)), ("cvt_f32_u32", n)):
        wide = exact.astype(np.float64)
        want = step_to(wide.astype(np.float32), wide, rounding).view(np.uint32)
        got = scalar.run(name, n, mode=mode(rounding), mxcsr=mxcsr(rounding))
        np.testing.assert_array_equal(got, want, name)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_integers_to_f16(scalar: ScalarLibrary, rounding: int) -> None:
    n = np.arange(1 << 16, dtype=np.uint16)
    for name, exact in (("cvt_f16_i16", n.view(np.int16)), ("cvt_f16_u16", n)):
        wide = exact.astype(np.float64)
        with np.errstate(over="ignore"):
            want = step_to(wide.astype(np.float16), wide, rounding).view(np.uint16)
        got = scalar.run(name, n, mode=mode(rounding))
        np.testing.assert_array_equal(got, want, name)
        clamped = scalar.run(name, n, mode=mode(rounding) | FP16_OVFL)
        np.testing.assert_array_equal(clamped, np.where(want == 0x7C00, 0x7BFF, want))


def test_exact_widenings(scalar: ScalarLibrary) -> None:
    n = np.random.default_rng(4).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    np.testing.assert_array_equal(
        scalar.run("cvt_f64_i32", n), n.view(np.int32).astype(np.float64).view(np.uint64)
    )
    np.testing.assert_array_equal(
        scalar.run("cvt_f64_u32", n), n.astype(np.float64).view(np.uint64)
    )
    for byte in range(4):
        want = (n >> np.uint32(8 * byte) & 0xFF).astype(np.float32).view(np.uint32)
        np.testing.assert_array_equal(scalar.run("cvt_f32_ubyte", n, byte), want)
    nibble = ((n & 15).astype(np.int32) ^ 8) - 8
    np.testing.assert_array_equal(
        scalar.run("cvt_off_f32_i4", n), (nibble / 16).astype(np.float32).view(np.uint32)
    )


def test_f32_to_f64(scalar: ScalarLibrary) -> None:
    bits = all_exponents_f32(np.random.default_rng(5), 256)
    with np.errstate(invalid="ignore"):
        want = bits.view(np.float32).astype(np.float64).view(np.uint64)
    np.testing.assert_array_equal(scalar.run("cvt_f64_f32", bits), want)
    denormal = (bits & 0x7F800000) == 0
    flushed = scalar.run("cvt_f64_f32", bits[denormal], mode=0xC0)
    np.testing.assert_array_equal(flushed, (bits[denormal] & 0x80000000).astype(np.uint64) << 32)
    snan = np.uint32(0x7F800001)
    assert scalar.run("cvt_f64_f32", snan, mode=0xF0)[()] == 0x7FF0000020000000


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_f64_to_f32(scalar: ScalarLibrary, rounding: int) -> None:
    bits = sample_f64(6)
    x = bits.view(np.float64)
    number = ~np.isnan(x)
    with np.errstate(over="ignore", under="ignore"):
        want = step_to(x[number].astype(np.float32), x[number], rounding).view(np.uint32)
    got = scalar.run("cvt_f32_f64", bits[number], mode=mode(rounding), mxcsr=ALL_MXCSR[5])
    np.testing.assert_array_equal(got, want)
    nan = scalar.run32("cvt_f32_f64", bits[~number])
    assert np.isnan(nan.view(np.float32)).all()
    np.testing.assert_array_equal(nan >> 31, bits[~number] >> np.uint64(63))
    flushed = scalar.run("cvt_f32_f64", bits[number], mode=mode(rounding, denorm=1))
    np.testing.assert_array_equal(
        flushed, np.where((want & 0x7F800000) == 0, want & 0x80000000, want)
    )


def test_packed_saturation(scalar: ScalarLibrary) -> None:
    rng = np.random.default_rng(7)
    lo, hi = rng.integers(0, 1 << 32, (2, 1 << 16), dtype=np.uint32)
    lo[::2] &= 0x1FFFF
    hi[1::2] |= 0xFFFF0000
    signed = [np.clip(x.view(np.int32), -32768, 32767).astype(np.uint32) & 0xFFFF for x in (lo, hi)]
    np.testing.assert_array_equal(
        scalar.run("cvt_pk_i16_i32", lo, hi), signed[0] | signed[1] << np.uint32(16)
    )
    unsigned = [np.minimum(x, 65535) for x in (lo, hi)]
    np.testing.assert_array_equal(
        scalar.run("cvt_pk_u16_u32", lo, hi), unsigned[0] | unsigned[1] << np.uint32(16)
    )
    halves = lo.view(np.int16).reshape(-1, 2).clip(0, 255).astype(np.uint32)
    np.testing.assert_array_equal(
        scalar.run("sat_pk_u8_i16", lo), halves[:, 0] | halves[:, 1] << np.uint32(8)
    )


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_normalised(scalar: ScalarLibrary, rounding: int) -> None:
    rng = np.random.default_rng(8)
    bits = np.concatenate(
        [
            rng.uniform(-1.2, 1.2, 1 << 17).astype(np.float32).view(np.uint32),
            ((np.arange(-65536, 65536) + 0.5) / 65535).astype(np.float32).view(np.uint32),
            all_exponents_f32(rng, 32),
        ]
    )
    other = rng.permutation(bits)
    half = np.arange(1 << 16, dtype=np.uint16)
    control = mode(rounding)
    for kind, low, scale in (("i16", -32767, 32767), ("u16", 0, 65535)):

        def norm(
            x: npt.NDArray[np.floating], low: int = low, scale: int = scale
        ) -> npt.NDArray[np.uint64]:
            with np.errstate(invalid="ignore"):
                exact = x.astype(np.float64) * scale
            return integers(rint(exact, rounding), low, scale) & np.uint64(0xFFFF)

        want = norm(bits.view(np.float32)) | norm(other.view(np.float32)) << np.uint64(16)
        got = scalar.run(f"cvt_pknorm_{kind}_f32", bits, other, mode=control)
        np.testing.assert_array_equal(got, want, kind)
        want16 = norm(half.view(np.float16))
        got16 = scalar.run(f"cvt_pknorm_{kind}_f16", half, half[::-1], mode=control)
        np.testing.assert_array_equal(got16, want16 | want16[::-1] << np.uint64(16), kind)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_pk_u8(scalar: ScalarLibrary, rounding: int) -> None:
    bits = sample_f32(9)[::7]
    old = np.random.default_rng(9).integers(0, 1 << 32, bits.size, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        x = bits.view(np.float32).astype(np.float64)
    byte = integers(rint(x, rounding), 0, 255)
    for select in (0, 1, 3, 6):
        shift = np.uint64(8 * (select & 3))
        keep = np.uint64(0xFFFFFFFF) & ~(np.uint64(0xFF) << shift)
        got = scalar.run("cvt_pk_u8_f32", bits, select, old, mode=mode(rounding))
        np.testing.assert_array_equal(got, (old & keep) | byte << shift)


def test_bf16(scalar: ScalarLibrary) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = all_exponents_f32(np.random.default_rng(10), 1024)
    with np.errstate(invalid="ignore"):
        want = bits.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    got = scalar.run("f32_to_bf16", bits)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    kept = bits[nan] >> np.uint32(16) | ((bits[nan] & 0xFFFF) != 0)
    np.testing.assert_array_equal(got[nan], kept)
    clamped = scalar.run("f32_to_bf16", np.uint32(0xFF7FFFFF), mode=mode() | FP16_OVFL)
    assert clamped[()] == 0xFF7F
