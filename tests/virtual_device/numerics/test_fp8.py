"""8-bit float conversions against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.scalar_library import (
    ALL_MXCSR,
    FP16_OVFL,
    HIP_MODE,
    U32,
    ScalarLibrary,
    all_exponents_f32,
)

# References cast signalling NaNs and overflow on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow)")

FORMATS = {
    "fp8_fnuz": (ml_dtypes.float8_e4m3fnuz, 0x7F),
    "bf8_fnuz": (ml_dtypes.float8_e5m2fnuz, 0x7F),
    "fp8_ocp": (ml_dtypes.float8_e4m3fn, 0x7E),
    "bf8_ocp": (ml_dtypes.float8_e5m2, 0x7B),
}
FORMAT = pytest.mark.parametrize("fmt", FORMATS)
CODES = np.arange(256, dtype=np.uint8)


def oracle_decode(fmt: str, codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    decoded: npt.NDArray[np.float32] = codes.view(FORMATS[fmt][0]).astype(np.float32)
    return decoded


def oracle_encode(fmt: str, bits: U32) -> npt.NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(FORMATS[fmt][0]).view(np.uint8)


def is_nan_code(fmt: str, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    return np.isnan(oracle_decode(fmt, codes.astype(np.uint8)))


def boundaries(fmt: str) -> U32:
    """Every value, every midpoint of two, and the f32 neighbours of both, in both signs."""
    values = np.sort(np.unique(np.abs(oracle_decode(fmt, CODES))))
    values = values[np.isfinite(values)]
    step = values[-1] - values[-2]
    values = np.append(values, [values[-1] + step, values[-1] + 2 * step])
    middle = (values[:-1] + values[1:]) / 2
    bits = np.concatenate([values, middle]).astype(np.float32).view(np.uint32)
    around = [bits + np.uint32(d) for d in range(3)] + [bits[1:] - np.uint32(d) for d in (1, 2)]
    bits = np.concatenate(around)
    return np.concatenate([bits, bits | np.uint32(0x80000000)])


@FORMAT
def test_decode_exhaustive(scalar: ScalarLibrary, fmt: str) -> None:
    want = oracle_decode(fmt, CODES)
    for control in ALL_MXCSR:
        got = scalar.run32(f"{fmt}_decode", CODES, mxcsr=control)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(got[number], want[number].view(np.uint32))
        assert np.isnan(got[~number].view(np.float32)).all()
        assert (got[~number] & 0x400000).all()


@FORMAT
def test_encode(scalar: ScalarLibrary, fmt: str) -> None:
    rng = np.random.default_rng(1)
    bits = np.concatenate(
        [
            all_exponents_f32(rng, 1024),
            boundaries(fmt),
            rng.integers(0x38000000, 0x48000000, 1 << 20, dtype=np.uint32),
            rng.standard_normal(1 << 19).astype(np.float32).view(np.uint32),
        ]
    )
    want = oracle_encode(fmt, bits)
    got = scalar.run(f"{fmt}_encode", bits)
    # FNUZ has one NaN; OCP NaNs are compared by class (fp8 by sign as well, having one per sign)
    nan = is_nan_code(fmt, want) if fmt == "bf8_ocp" else np.zeros(bits.size, bool)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert is_nan_code(fmt, got[nan]).all()
    for control in ALL_MXCSR[4::5]:
        np.testing.assert_array_equal(scalar.run(f"{fmt}_encode", bits, mxcsr=control), got)


@FORMAT
def test_overflow_saturates_with_fp16_ovfl(scalar: ScalarLibrary, fmt: str) -> None:
    bits = np.concatenate([all_exponents_f32(np.random.default_rng(2), 256), boundaries(fmt)])
    plain = scalar.run(f"{fmt}_encode", bits)
    x = bits.view(np.float32)
    beyond = np.isinf(x) | (is_nan_code(fmt, plain) & ~np.isnan(x))
    if fmt == "bf8_ocp":
        beyond |= (plain & 0x7F) == 0x7C
    limit = (bits >> 24 & 0x80) | FORMATS[fmt][1]
    got = scalar.run(f"{fmt}_encode", bits, mode=HIP_MODE | FP16_OVFL)
    np.testing.assert_array_equal(got, np.where(beyond, limit, plain))
    assert beyond.any()


def test_overflow_counts(scalar: ScalarLibrary) -> None:
    """Overflowing sums of all finite pairs, as measured on gfx942 and gfx950."""
    counts = {"fp8_ocp": 436, "bf8_ocp": 120, "fp8_fnuz": 496, "bf8_fnuz": 120}
    for fmt, count in counts.items():
        values = oracle_decode(fmt, CODES)
        sums = (values[:, None] + values[None, :]).astype(np.float32)
        finite = np.isfinite(values)
        sums = sums[finite][:, finite].ravel()
        codes = scalar.run(f"{fmt}_encode", sums.view(np.uint32))
        overflow = ~np.isfinite(oracle_decode(fmt, codes.astype(np.uint8)))
        assert overflow.sum() == count, fmt


@FORMAT
def test_stochastic_rounding(scalar: ScalarLibrary, fmt: str) -> None:
    """The seed's leading bits, as a fraction of the spacing, are added before truncation."""
    rng = np.random.default_rng(3)
    bits = np.concatenate(
        [
            rng.integers(0x30000000, 0x48000000, 1 << 19, dtype=np.uint32),
            boundaries(fmt),
            all_exponents_f32(rng, 128),
        ]
    )
    bits = np.where(bits & 1 << 12, bits, bits | np.uint32(0x80000000))
    seed = rng.integers(0, 1 << 32, bits.size, dtype=np.uint32)
    seed[:4096] = 0
    seed[4096:8192] = 0xFFFFFFFF
    man = 3 if fmt.startswith("fp8") else 2
    drop = 23 - man
    values = np.sort(np.unique(np.abs(oracle_decode(fmt, CODES))))
    values = values[np.isfinite(values)].astype(np.float64)
    smallest = values[1]
    x = np.abs(bits.view(np.float32).astype(np.float64))
    number = np.isfinite(x)
    _, exponent = np.frexp(np.where(number, x, 0))
    spacing = np.maximum(np.exp2(exponent - 1 - man), smallest)
    truncated = (
        np.floor(np.where(number, x, 0) / spacing + (seed >> np.uint32(32 - drop)) / 2.0**drop)
        * spacing
    )
    got = scalar.run(f"{fmt}_encode_sr", bits, seed)
    decoded = np.abs(oracle_decode(fmt, got.astype(np.uint8)).astype(np.float64))
    inside = number & (truncated <= values[-1])
    np.testing.assert_array_equal(decoded[inside], truncated[inside])
    signed = inside & (decoded != 0)
    np.testing.assert_array_equal(got[signed] >> 7, bits[signed] >> 31)
    assert not np.isfinite(decoded[~inside]).any()
    saturated = scalar.run(f"{fmt}_encode_sr", bits, seed, mode=HIP_MODE | FP16_OVFL)
    over = ~inside & ~np.isnan(bits.view(np.float32))
    assert ((saturated[over] & 0x7F) == FORMATS[fmt][1]).all()


@FORMAT
def test_stochastic_rounding_is_unbiased(scalar: ScalarLibrary, fmt: str) -> None:
    seed = np.random.default_rng(4).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    for value in (1.03, -0.0137, 3.3e-5):
        bits = np.float32(value).view(np.uint32)
        got = oracle_decode(fmt, scalar.run(f"{fmt}_encode_sr", bits, seed).astype(np.uint8))
        spread = float(got.std()) / 1024 + 1e-12
        assert abs(got.mean(dtype=np.float64) - np.float32(value)) < 5 * spread


@FORMAT
def test_packing_preserves_the_rest(scalar: ScalarLibrary, fmt: str) -> None:
    rng = np.random.default_rng(5)
    lo, hi = rng.standard_normal((2, 4096)).astype(np.float32).view(np.uint32)
    old = rng.integers(0, 1 << 32, 4096, dtype=np.uint32)
    a, b = (scalar.run(f"{fmt}_encode", x) for x in (lo, hi))
    pair = a | b << np.uint64(8)
    np.testing.assert_array_equal(scalar.run(f"{fmt}_pk0", lo, hi, old), (old & 0xFFFF0000) | pair)
    np.testing.assert_array_equal(
        scalar.run(f"{fmt}_pk1", lo, hi, old), (old & 0xFFFF) | pair << np.uint64(16)
    )
    byte = scalar.run(f"{fmt}_encode_sr", lo, hi)
    np.testing.assert_array_equal(
        scalar.run(f"{fmt}_sr_byte2", lo, hi, old), (old & 0xFF00FFFF) | byte << np.uint64(16)
    )
