"""The transcendental unit against long double references."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.scalar_library import (
    ALL_MXCSR,
    HIP_MODE,
    ROUNDINGS,
    U32,
    ScalarLibrary,
    all_exponents_f32,
    mode,
    mxcsr,
)

# References cast signalling NaNs and overflow on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow)")

Floats = npt.NDArray[np.floating]
NAMES = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")
FLUSHING = ("exp", "log", "rcp", "rsq", "sqrt")
DEFAULT_NAN = 0xFFC00000
PI = np.longdouble("3.14159265358979323846264338327950288")


def exact(name: str, x: Floats) -> Floats:
    """The mathematical function, to the precision of x."""
    with np.errstate(all="ignore"):
        if name == "exp":
            return np.exp2(x)
        if name == "log":
            return np.where(x == 0, -np.inf, np.log2(x))
        if name == "rcp":
            return 1 / x
        if name == "rsq":
            return np.where(x == 0, 1 / x, 1 / np.sqrt(x))
        if name == "sqrt":
            return np.sqrt(x)
        turn = x - np.rint(x)
        side = np.abs(turn)
        circle = x.dtype.type(2 * PI)
        if name == "cos":
            return np.sin(circle * (0.25 - side))
        half = np.sin(circle * np.where(side > 0.25, 0.5 - side, side))
        return np.where(x == 0, x, np.where(half == 0, 0, np.copysign(half, turn)))


def reference_f32(
    name: str, bits: U32, kind: type[np.floating] = np.longdouble
) -> tuple[U32, Floats]:
    """Correctly rounded f32 results under the unit's flushing rules, and the exact values."""
    flush = name in FLUSHING
    mag = bits & 0x7FFFFFFF
    source = np.where(flush & (mag < 0x00800000), bits & 0x80000000, bits).astype(np.uint32)
    value = exact(name, source.view(np.float32).astype(kind))
    with np.errstate(all="ignore"):
        rounded = value.astype(np.float32).view(np.uint32)
    if flush:
        tiny = (rounded & 0x7FFFFFFF) < 0x00800000
        rounded = np.where(tiny, rounded & 0x80000000, rounded)
    if name == "exp":  # not -126 < x < 128 is outside whatever the rounding says
        rounded = np.where(source.view(np.float32) < -126, 0, rounded)
    rounded = np.where(np.isnan(value), DEFAULT_NAN, rounded)
    return np.where(mag > 0x7F800000, bits | 0x00400000, rounded).astype(np.uint32), value


def check_f32(name: str, bits: U32, got: U32, kind: type[np.floating] = np.longdouble) -> float:
    """Assert <= 1 ULP and exact specials; return the fraction of correctly rounded results."""
    want, value = reference_f32(name, bits, kind)
    wrong = got != want
    special = ((want & 0x7F800000) == 0x7F800000) | ((want & 0x7FFFFFFF) == 0)
    bad = wrong & special
    assert not bad.any(), [
        (hex(b), hex(g), hex(w))
        for b, g, w in zip(bits[bad][:5], got[bad][:5], want[bad][:5], strict=True)
    ]
    got_f, want_f = got[wrong].view(np.float32), want[wrong].view(np.float32)
    error = np.abs(got_f.astype(kind) - value[wrong]) / np.spacing(np.abs(want_f))
    assert error.size == 0 or error.max() <= 1, (name, error.max())
    return 1 - float(wrong.mean())


@pytest.mark.parametrize("name", NAMES)
def test_f32_every_exponent(scalar: ScalarLibrary, name: str) -> None:
    bits = all_exponents_f32(np.random.default_rng(1), 2048)
    fraction = check_f32(name, bits, scalar.lanes(f"{name}_f32", bits))
    assert fraction > (0.9999 if name != "exp" else 0.995), fraction


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("exp", -126, 128),
        ("exp", -30, 0),
        ("exp", -1, 1),
        ("log", 0.5, 2),
        ("log", 1e-30, 1e30),
        ("rsq", 0.25, 4),
        ("sin", -0.5, 0.5),
        ("sin", -256, 256),
        ("cos", -0.5, 0.5),
    ],
)
def test_f32_working_range(scalar: ScalarLibrary, name: str, low: float, high: float) -> None:
    x = np.random.default_rng(2).uniform(low, high, 1 << 18).astype(np.float32)
    fraction = check_f32(name, x.view(np.uint32), scalar.lanes(f"{name}_f32", x.view(np.uint32)))
    assert fraction > (0.9999 if name != "exp" else 0.995), fraction


# The functional examples of the ISA manual, and the edges of the flushing rules.
EXAMPLES = {
    "exp": {
        0xFF800000: 0,
        0x80000000: 0x3F800000,
        0x7F800000: 0x7F800000,
        0xC2FC0000: 0x00800000,
        0xC2FC0001: 0,
        0x43000000: 0x7F800000,
        0x3F800000: 0x40000000,
        0x00000001: 0x3F800000,
    },
    "log": {
        0xFF800000: DEFAULT_NAN,
        0xBF800000: DEFAULT_NAN,
        0x80000000: 0xFF800000,
        0x00000000: 0xFF800000,
        0x3F800000: 0,
        0x7F800000: 0x7F800000,
        0x007FFFFF: 0xFF800000,
        0x807FFFFF: 0xFF800000,
        0x00800000: 0xC2FC0000,
    },
    "rcp": {
        0xFF800000: 0x80000000,
        0xC0000000: 0xBF000000,
        0x80000000: 0xFF800000,
        0x00000000: 0x7F800000,
        0x7F800000: 0,
        0x00000001: 0x7F800000,
        0xFF7FFFFF: 0x80000000,
        0x7E800000: 0x00800000,
        0x7E800001: 0,
    },
    "rsq": {
        0xFF800000: DEFAULT_NAN,
        0x80000000: 0xFF800000,
        0x00000000: 0x7F800000,
        0x40800000: 0x3F000000,
        0x7F800000: 0,
        0xBF800000: DEFAULT_NAN,
        0x807FFFFF: 0xFF800000,
    },
    "sqrt": {
        0xFF800000: DEFAULT_NAN,
        0x80000000: 0x80000000,
        0x00000000: 0,
        0x40800000: 0x40000000,
        0x7F800000: 0x7F800000,
        0x807FFFFF: 0x80000000,
    },
    "sin": {
        0xFF800000: DEFAULT_NAN,
        0xFF7FFFFF: 0,
        0x80000000: 0x80000000,
        0x3E800000: 0x3F800000,
        0x7F800000: DEFAULT_NAN,
        0xBF400000: 0x3F800000,
        0xBF000000: 0,
    },
    "cos": {
        0xFF800000: DEFAULT_NAN,
        0xFF7FFFFF: 0x3F800000,
        0x80000000: 0x3F800000,
        0x3E800000: 0,
        0x7F800000: DEFAULT_NAN,
        0x3F000000: 0xBF800000,
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_f32_examples(scalar: ScalarLibrary, name: str) -> None:
    cases = EXAMPLES[name] | {0x7F800001: 0x7FC00001, 0xFFABCDEF: 0xFFEBCDEF}
    x = np.array(list(cases), np.uint32)
    want = np.array(list(cases.values()), np.uint32)
    np.testing.assert_array_equal(scalar.lanes(f"{name}_f32", x), want)


@pytest.mark.parametrize("name", NAMES)
def test_f32_ignores_mxcsr(scalar: ScalarLibrary, name: str) -> None:
    bits = all_exponents_f32(np.random.default_rng(3), 64)
    want = scalar.lanes(f"{name}_f32", bits)
    for control in ALL_MXCSR if name in FLUSHING else [mxcsr(r) for r in ROUNDINGS]:
        np.testing.assert_array_equal(scalar.lanes(f"{name}_f32", bits, mxcsr=control), want)
        one = scalar.run32(f"{name}_f32", bits, mxcsr=control)
        np.testing.assert_array_equal(one, want)
    in_place = scalar.lanes(f"{name}_f32", bits, in_place=True)
    np.testing.assert_array_equal(in_place, want)


def test_sin_cos_denormals_follow_mxcsr(scalar: ScalarLibrary) -> None:
    x = np.array([0x00000001, 0x80000100, 0x00200000, 0x807FFFFF], np.uint32)
    sign = x & 0x80000000
    flushed = scalar.lanes("sin_f32", x, mxcsr=mxcsr(denorm=0))
    np.testing.assert_array_equal(flushed, sign)
    kept = scalar.lanes("sin_f32", x).view(np.float32)
    np.testing.assert_allclose(kept, x.view(np.float32) * np.float32(2 * np.pi), rtol=0.2)


def test_builds_agree(builds: tuple[ctypes.CDLL, ctypes.CDLL]) -> None:
    """The AVX2 and the portable build give the same bits."""
    portable, avx2 = map(ScalarLibrary, builds)
    rng = np.random.default_rng(4)
    bits = all_exponents_f32(rng, 1024)
    scores = rng.uniform(-130, 130, 1 << 20).astype(np.float32).view(np.uint32)
    for name in NAMES:
        for x in (bits, scores):
            np.testing.assert_array_equal(
                avx2.lanes(f"{name}_f32", x), portable.lanes(f"{name}_f32", x), name
            )
    wide = rng.integers(0, 1 << 64, (3, 1 << 17), dtype=np.uint64)
    wide[2, ::2] = wide[0, ::2] ^ np.uint64(1 << 63)
    for name in ("rcp_f64", "rsq_f64", "sqrt_f64", "fma_f64", "mul_f64"):
        np.testing.assert_array_equal(avx2.run(name, *wide), portable.run(name, *wide), name)


@pytest.mark.parametrize("name", NAMES)
def test_f16_exhaustive(scalar: ScalarLibrary, name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        value = exact(name, x.view(np.float16).astype(np.longdouble))
        want = value.astype(np.float64).astype(np.float16).view(np.uint16)
    want = np.where(np.isnan(value), 0xFE00, want)
    want = np.where((x & 0x7FFF) > 0x7C00, x | 0x200, want)
    for control in (0x1F80, mxcsr(2, 0)):
        np.testing.assert_array_equal(scalar.run(f"{name}_f16", x, mxcsr=control), want)
    flushed = scalar.run(f"{name}_f16", x, mode=mode(denorm=0))
    denormal = ((x & 0x7C00) == 0) & ((x & 0x3FF) != 0)
    zero = scalar.run(f"{name}_f16", x & 0x8000)
    np.testing.assert_array_equal(flushed[denormal], zero[denormal])
    normal = ~denormal
    tiny = (want & 0x7C00) == 0
    np.testing.assert_array_equal(flushed[normal], np.where(tiny, want & 0x8000, want)[normal])


def test_f64_rcp_sqrt(scalar: ScalarLibrary) -> None:
    bits = np.random.default_rng(5).integers(0, 1 << 64, 1 << 18, dtype=np.uint64)
    bits[:8] = [0, 1 << 63, 1, 0x7FF << 52, 0xFFF << 52, 0x7FF0000000000001, 5, 0x3FF << 52]
    x = bits.view(np.float64)
    nan = np.isnan(x)
    with np.errstate(all="ignore"):
        results = {"rcp_f64": 1 / x, "sqrt_f64": np.sqrt(x)}
    for name, result in results.items():
        want = np.where(np.isnan(result), np.uint64(0xFFF8 << 48), result.view(np.uint64))
        want = np.where(nan, bits | np.uint64(1 << 51), want)
        for control in (0x1F80, mxcsr(1, 0)):
            np.testing.assert_array_equal(scalar.run(name, bits, mxcsr=control), want)


def test_f64_rsq_is_correctly_rounded(scalar: ScalarLibrary) -> None:
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 0x7FF << 52, 20000, dtype=np.uint64)
    bits[:2000] >>= np.uint64(12)  # denormals
    bits[2000:2010] = (np.arange(10, dtype=np.uint64) + np.uint64(1000)) << np.uint64(52)
    for x, y in zip(bits, scalar.run("rsq_f64", bits, mxcsr=mxcsr(2, 0)), strict=True):
        # (y - ulp/2)^2 x < 1 < (y + ulp/2)^2 x, in integers
        xn, xd = float(x.view(np.float64)).as_integer_ratio()
        result = float(y.view(np.float64))
        yn, yd = result.as_integer_ratio()
        un, ud = float(np.spacing(result)).as_integer_ratio()
        half = un * yd, 2 * ud * yd  # ulp / 2 over the common denominator of y and it
        low, high = yn * 2 * ud - half[0], yn * 2 * ud + half[0]
        if yn & (yn - 1) == 0:  # the spacing below a power of two is half as wide
            near = 4 * yn * ud - half[0]
            assert near**2 * xn < (2 * half[1]) ** 2 * xd
        else:
            assert low**2 * xn < half[1] ** 2 * xd
        assert high**2 * xn > half[1] ** 2 * xd
    specials = {0: 0x7FF << 52, 1 << 63: 0xFFF << 52, 0x7FF << 52: 0, 0xBFF << 52: 0xFFF8 << 48}
    keys = np.array(list(specials), np.uint64)
    np.testing.assert_array_equal(
        scalar.run("rsq_f64", keys), np.array(list(specials.values()), np.uint64)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_f32_exhaustive(scalar: ScalarLibrary, name: str) -> None:
    """Every f32, against f64: long double would take hours."""
    correct = 0.0
    step = 1 << 20
    for start in range(0, 1 << 32, step):
        bits = np.arange(start, start + step, dtype=np.uint64).astype(np.uint32)
        got = scalar.lanes(f"{name}_f32", bits)
        correct += check_f32(name, bits, got, np.float64) * step
    assert correct / (1 << 32) > (0.9999 if name != "exp" else 0.995)


def test_mode_of_compilers_is_the_default() -> None:
    assert mode() == HIP_MODE
