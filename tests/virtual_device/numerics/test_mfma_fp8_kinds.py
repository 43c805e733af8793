"""Matrix products of both kinds of 8-bit floats: rows that share a mnemonic and an opcode."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.virtual_device.numerics.test_mfma import Shape, Words, load_shapes, run

KINDS = {
    "gfx942": {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
    "gfx950": {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
}
NAMES = [
    f"v_mfma_f32_{tile}_{a}_{b}"
    for tile in ("16x16x32", "32x32x16")
    for a in ("fp8", "bf8")
    for b in ("fp8", "bf8")
]
NAN = 0x7FC00000


def elements(registers: Words, kind: type, s: Shape, side: str) -> npt.NDArray[np.float64]:
    """As float64: (m, k) of A, (k, n) of B."""
    places = s.a_places(0) if side == "a" else s.b_places(0)
    reg, bit, lane = (places[..., n] for n in range(3))
    codes = (registers[0, reg, lane] >> bit.astype(np.uint32) & 0xFF).astype(np.uint8)
    return codes.view(kind).astype(np.float64)


@pytest.fixture(scope="module", params=[(cpu, name) for cpu in KINDS for name in NAMES])
def case(request: pytest.FixtureRequest, vdev_lib: ctypes.CDLL) -> tuple[Shape, type, type]:
    cpu, name = request.param
    *_, a, b = name.split("_")
    return load_shapes(vdev_lib, cpu)[name], KINDS[cpu][a], KINDS[cpu][b]


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
def test_products_of_a_kind(
    vdev_lib: ctypes.CDLL, case: tuple[Shape, type, type], exact: bool
) -> None:
    """Values of a few binades, whose sums are exact: the products that NumPy has."""
    s, a_kind, b_kind = case
    rng = np.random.default_rng(5)

    def some(kind: type, regs: int) -> Words:
        x = rng.choice([-3.0, -1.5, -1.0, -0.0, 0.0, 0.5, 1.0, 1.75, 2.0], (1, 64 * regs * 4))
        return x.astype(kind).view(np.uint32).reshape(1, regs, 64).copy()

    a, b = some(a_kind, s.a_regs), some(b_kind, s.b_regs)
    # -0 is a zero of the one kind, and no number of the other.
    has_nan = np.isnan(np.float64(np.array(0x80, np.uint8).view(a_kind)))
    if has_nan:
        assert not np.isnan(elements(a, a_kind, s, "a")).any()
    c = np.zeros((1, s.d_regs, 64), np.uint32)
    out = run(vdev_lib, s, a, b, c, exact=exact).view(np.float32)
    reg, _, lane = (s.d_places(0)[..., n] for n in range(3))
    expected = elements(a, a_kind, s, "a") @ elements(b, b_kind, s, "b")
    np.testing.assert_array_equal(out[0, reg, lane], expected)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
def test_every_code_is_its_value(
    vdev_lib: ctypes.CDLL, case: tuple[Shape, type, type], exact: bool
) -> None:
    """One element of A is not zero, in turn every code: D is it, a NaN the default one."""
    s, a_kind, b_kind = case
    one = int(np.ones(1, b_kind).view(np.uint8)[0])
    b = np.full((256, s.b_regs, 64), one * 0x01010101, np.uint32)
    a = np.zeros((256, s.a_regs, 64), np.uint32)
    reg, bit, lane = s.a_places(0)[3, 5]
    codes = np.arange(256, dtype=np.uint8)
    a[:, reg, lane] = codes.astype(np.uint32) << np.uint32(bit)
    out = run(vdev_lib, s, a, b, np.zeros((256, s.d_regs, 64), np.uint32), exact=exact)
    reg, _, lane = s.d_places(0)[3, 0]
    values = codes.view(a_kind).astype(np.float32)
    expected = np.where(np.isnan(values), NAN, (values + 0.0).view(np.uint32))
    np.testing.assert_array_equal(out[:, reg, lane], expected)


def test_both_ways_agree_on_any_bits(vdev_lib: ctypes.CDLL, case: tuple[Shape, type, type]) -> None:
    s, _, _ = case
    rng = np.random.default_rng(6)
    a, b, c = (
        rng.integers(0, 2**32, (12, regs, 64), dtype=np.uint32)
        for regs in (s.a_regs, s.b_regs, s.d_regs)
    )
    c[6:] = rng.standard_normal(c[6:].shape).astype(np.float32).view(np.uint32)
    a[9:] &= 0x3F3F3F3F  # no special values
    b[9:] &= 0x3F3F3F3F
    np.testing.assert_array_equal(run(vdev_lib, s, a, b, c), run(vdev_lib, s, a, b, c, exact=True))
