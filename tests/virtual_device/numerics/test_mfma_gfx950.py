"""gfx950's matrix instructions: layouts as the CDNA4 manual prints them, f8f6f4, block scales.

The order of their sums is not public. What is held here is what any order gives, and that the
model is the one that `docs/generated/fidelity.md` names: CDNA3's rule in steps of 16 k.
"""

from __future__ import annotations

import ctypes
import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.virtual_device.numerics.test_mfma import (
    MXCSR,
    MXCSR_FLUSH_UP,
    Shape,
    Words,
    load_shapes,
    pointer,
    random_operands,
    read,
    round_f32,
    run as multiply,
    write,
)

F64 = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]

# The k that begins a register, of lanes 0, 16, 32, 48; chapters 7.1.5.1 and 7.5.1.3. Registers hold
# consecutive k.
MANUAL: dict[tuple[str, str], list[list[int]]] = {
    ("v_mfma_f32_16x16x32_bf16", "a"): [[0, 8, 16, 24], [2, 10, 18, 26], [4, 12, 20, 28],
                                        [6, 14, 22, 30]],
    ("v_mfma_i32_16x16x64_i8", "a"): [[0, 16, 32, 48], [4, 20, 36, 52], [8, 24, 40, 56],
                                      [12, 28, 44, 60]],
    ("v_mfma_i32_32x32x32_i8", "b"): [[0, 0, 16, 16], [4, 4, 20, 20], [8, 8, 24, 24],
                                      [12, 12, 28, 28]],
    ("v_smfmac_f32_16x16x64_bf16", "b"): [
        [0, 8, 16, 24], [2, 10, 18, 26], [4, 12, 20, 28], [6, 14, 22, 30],
        [32, 40, 48, 56], [34, 42, 50, 58], [36, 44, 52, 60], [38, 46, 54, 62]],
    ("v_smfmac_f32_32x32x32_f16", "b"): [
        [0, 0, 8, 8], [2, 2, 10, 10], [4, 4, 12, 12], [6, 6, 14, 14],
        [16, 16, 24, 24], [18, 18, 26, 26], [20, 20, 28, 28], [22, 22, 30, 30]],
    ("v_smfmac_i32_16x16x128_i8", "b"): [
        [0, 16, 32, 48], [4, 20, 36, 52], [8, 24, 40, 56], [12, 28, 44, 60],
        [64, 80, 96, 112], [68, 84, 100, 116], [72, 88, 104, 120], [76, 92, 108, 124]],
    ("v_smfmac_f32_32x32x64_fp8_bf8", "b"): [
        [0, 0, 16, 16], [4, 4, 20, 20], [8, 8, 24, 24], [12, 12, 28, 28],
        [32, 32, 48, 48], [36, 36, 52, 52], [40, 40, 56, 56], [44, 44, 60, 60]],
}  # fmt: skip
# cbsz, blgp: exponent and fraction bits, the type
FORMATS: dict[int, tuple[int, int, type]] = {
    0: (4, 3, ml_dtypes.float8_e4m3fn),
    1: (5, 2, ml_dtypes.float8_e5m2),
    2: (2, 3, ml_dtypes.float6_e2m3fn),
    3: (3, 2, ml_dtypes.float6_e3m2fn),
    4: (2, 1, ml_dtypes.float4_e2m1fn),
}
SIZES = {"16x16x128": (16, 128), "32x32x64": (32, 64)}
NAN = 0x7FC00000


@pytest.fixture(scope="module")
def shapes(vdev_lib: ctypes.CDLL) -> dict[str, Shape]:
    return load_shapes(vdev_lib, "gfx950")


@pytest.mark.parametrize(("name", "side"), MANUAL)
def test_layout_is_the_manuals(shapes: dict[str, Shape], name: str, side: str) -> None:
    s, table = shapes[name], MANUAL[name, side]
    places = s.a_places(0) if side == "a" else s.b_places(0).swapaxes(0, 1)
    size = 8 if name.split("_")[-1].endswith("8") else 16
    assert (s.a_regs if side == "a" else s.b_regs) == len(table)
    for register, firsts in enumerate(table):
        for group, first in enumerate(firsts):
            for lane in range(group * 16, group * 16 + 16):
                for element in range(32 // size):
                    found = places[lane % s.m, first + element]
                    assert tuple(found) == (register, element * size, lane)


def bits_of(form: int) -> int:
    return 1 + FORMATS[form][0] + FORMATS[form][1]


def registers_of(form: int) -> int:
    return bits_of(form)  # 32 elements in each lane


def values_of(form: int, codes: Codes) -> F64:
    return codes.view(FORMATS[form][2]).astype(np.float64)


def packed(form: int, rows: int, codes: Codes) -> Words:
    """Codes (rows, k) as 8 registers: 16 k at a time go round the groups of lanes, or all 32."""
    size, groups = bits_of(form), 64 // rows
    run = 16 if size == 8 else 32
    # k is [chunk][group of lanes][element]; a lane is [group][row].
    lanes = codes.reshape(rows, 32 // run, groups, run).transpose(2, 0, 1, 3).reshape(64, 32)
    bits = np.unpackbits(lanes[..., None], axis=-1, count=size, bitorder="little")
    dense = np.packbits(bits.reshape(64, 32 * size), axis=-1, bitorder="little")
    words = np.zeros((8, 64), np.uint32)
    words[:size] = dense.view(np.uint32).T
    return words


def scales_of(scales: npt.NDArray[np.int64], byte: int, rng: np.random.Generator) -> Words:
    """Exponents (rows, k / 32) in one byte of a register; the others hold anything."""
    words = rng.integers(0, 2**32, 64, np.uint32)
    rows, blocks = scales.shape
    for row, block in itertools.product(range(rows), range(blocks)):
        lane = block * rows + row
        words[lane] &= np.uint32(~(0xFF << 8 * byte) & 0xFFFFFFFF)
        words[lane] |= np.uint32(int(scales[row, block]) << 8 * byte)
    return words


def run(
    lib: ctypes.CDLL,
    size: str,
    forms: tuple[int, int],
    a: Words,
    b: Words,
    c: npt.NDArray[np.uint32],
    scales: tuple[Words, int, Words, int] | None = None,
    *,
    exact: bool,
    mxcsr: int = MXCSR,
) -> npt.NDArray[np.uint32]:
    """D (m, n) of C (m, n): the layout that all matrix instructions have."""
    m, _ = SIZES[size]
    name = f"gfx950 v_mfma_{'scale_' if scales else ''}f32_{size}_f8f6f4"
    reg = np.array([[i % 4 + 4 * (i // 8) if m == 32 else i % 4] * m for i in range(m)])
    lane = np.array(
        [[j + m * (i // 4 % (64 // m)) for j in range(m)] for i in range(m)]
    )  # fmt: skip
    file = np.zeros((m * m // 64, 64), np.uint32)
    file[reg, lane] = c
    out = np.zeros_like(file)
    extra = (pointer(scales[0]), pointer(scales[2]), scales[1], scales[3]) if scales else (
        None, None, 0, 0)  # fmt: skip
    status = lib.vdev_test_mfma_scaled(
        name.encode(), 1, pointer(a), pointer(b), pointer(file), pointer(out), forms[0], 0,
        forms[1], 0, mxcsr, int(exact), *extra,
    )  # fmt: skip
    assert status == 0
    return out[reg, lane]


def finite_codes(rng: np.random.Generator, form: int, shape: tuple[int, int]) -> Codes:
    """Numbers whose sums of products are exact in f32: of few binades."""
    codes = rng.integers(0, 1 << bits_of(form), shape, np.uint8)
    values = values_of(form, codes)
    far = ~((np.abs(values) <= 8) & (np.abs(values) >= 2**-3))
    return np.where(far, 0, codes).astype(np.uint8)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("forms", list(itertools.product(FORMATS, FORMATS)))
@pytest.mark.parametrize("scaled", [False, True])
def test_products_of_formats(
    vdev_lib: ctypes.CDLL, size: str, forms: tuple[int, int], scaled: bool
) -> None:
    (m, k), rng = SIZES[size], np.random.default_rng(11)
    codes = [finite_codes(rng, form, (m, k)) for form in forms]
    a, b = (values_of(form, c) for form, c in zip(forms, codes, strict=True))
    scales = None
    if scaled:
        fields = [rng.integers(125, 130, (m, k // 32)) for _ in range(2)]
        byte = [int(x) for x in rng.integers(0, 4, 2)]
        words = [scales_of(f, n, rng) for f, n in zip(fields, byte, strict=True)]
        scales = (words[0], byte[0], words[1], byte[1])
        a, b = (x * np.repeat(2.0 ** (f - 127), 32, 1) for x, f in zip((a, b), fields, strict=True))
    c = rng.integers(-50, 51, (m, m)).astype(np.float32)
    packs = [packed(form, m, code) for form, code in zip(forms, codes, strict=True)]
    expected = a @ b.T + c
    for exact in (True, False):
        got = run(vdev_lib, size, forms, *packs, c.view(np.uint32), scales, exact=exact)
        np.testing.assert_allclose(got.view(np.float32), expected, rtol=3e-7, atol=1e-4)
        if not scaled and max(forms) != min(forms):
            np.testing.assert_array_equal(got.view(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
def test_every_code_is_its_value(vdev_lib: ctypes.CDLL, size: str, form: int, exact: bool) -> None:
    """One element of A in turn every code, times 1: ml_dtypes has the value; a NaN the default."""
    m, k = SIZES[size]
    one = np.full((m, k), 0x38, np.uint8)  # of fp8
    for first in range(0, 1 << bits_of(form), m):
        codes = np.zeros((m, k), np.uint8)
        codes[np.arange(m), np.arange(m) * 3 % k] = np.arange(first, first + m) % (
            1 << bits_of(form)
        )
        b = packed(0, m, one)
        c = np.zeros((m, m), np.uint32)
        out = run(vdev_lib, size, (form, 0), packed(form, m, codes), b, c, exact=exact)
        turned = run(vdev_lib, size, (0, form), b, packed(form, m, codes), c, exact=exact)
        values = values_of(form, codes[np.arange(m), np.arange(m) * 3 % k]).astype(np.float32)
        expected = np.where(np.isnan(values), NAN, (values + 0.0).view(np.uint32))
        np.testing.assert_array_equal(out[:, 0], expected)
        np.testing.assert_array_equal(turned[0], expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("forms", [(0, 0), (1, 1), (0, 1), (1, 0), (2, 4), (4, 4), (3, 1)])
@pytest.mark.parametrize("scale", [None, "near", "any"])
def test_both_ways_agree_on_any_bits(
    vdev_lib: ctypes.CDLL, size: str, forms: tuple[int, int], scale: str | None
) -> None:
    (m, k), rng = SIZES[size], np.random.default_rng(12)
    for calm in (False, True):
        a, b = (rng.integers(0, 2**32, (8, 64), np.uint32) for _ in range(2))
        c = rng.integers(0, 2**32, (m, m), np.uint32)
        if calm:
            a, b = a & np.uint32(0xB7B7B7B7), b & np.uint32(0xB7B7B7B7)
            c = (rng.standard_normal((m, m)) * 2.0 ** rng.integers(-30, 30, (m, m))).astype(
                np.float32).view(np.uint32)  # fmt: skip
        scales = None
        if scale:
            low, high = (110, 140) if scale == "near" else (0, 256)
            words = [scales_of(rng.integers(low, high, (m, k // 32)), n, rng) for n in (1, 2)]
            scales = (words[0], 1, words[1], 2)
        expected = run(vdev_lib, size, forms, a, b, c, scales, exact=True)
        for mxcsr in (MXCSR, MXCSR_FLUSH_UP):
            got = run(vdev_lib, size, forms, a, b, c, scales, exact=False, mxcsr=mxcsr)
            np.testing.assert_array_equal(got, expected)


def floor_log2(x: Fraction) -> int:
    n = abs(x.numerator).bit_length() - x.denominator.bit_length()
    return n if abs(x) >= Fraction(2) ** n else n - 1


def floor_at(x: Fraction, exponent: int) -> Fraction:
    unit = Fraction(2) ** exponent
    return x // unit * unit


def truncated_at(x: Fraction, exponent: int) -> Fraction:
    return floor_at(x, exponent) if x >= 0 else -floor_at(-x, exponent)


def step_of_16(products: list[tuple[Fraction, int]], c: np.float32) -> np.float32:
    """CDNA3's published rule of 8-bit floats: (product, sum of exponents) of 16 k, and C."""
    exact_c = Fraction(float(c))
    sums = []
    for group in (products[0::2], products[1::2]):
        real = [(p, e) for p, e in group if p]
        top = max((e for _, e in real), default=None)
        total = sum((truncated_at(p, top - 24) for p, _ in real), Fraction(0)) if real else 0
        sums.append((top, total))
    tops = [top for top, _ in sums if top is not None]
    c_exponent = max(floor_log2(exact_c), -126) if exact_c else -126
    if not tops:
        return c + np.float32(0)
    top = max(tops)
    total = sum((floor_at(Fraction(t), top - 24) for _, t in sums), Fraction(0))
    unit = max(top, c_exponent)
    total = floor_at(total, unit - 32)
    total += 0 if c_exponent < unit - 25 else floor_at(exact_c, unit - 24)
    if total:
        total = floor_at(total, max(floor_log2(total), -126) - 31)
    return round_f32(total)


@pytest.mark.parametrize("forms", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("scaled", [False, True])
def test_steps_of_the_model(vdev_lib: ctypes.CDLL, forms: tuple[int, int], scaled: bool) -> None:
    (m, k), rng = SIZES["16x16x128"], np.random.default_rng(13)
    codes = [rng.integers(0, 256, (m, k), np.uint8) & np.uint8(0xF7) for _ in range(2)]
    codes = [np.where(np.isfinite(values_of(f, x)), x, 0).astype(np.uint8)
             for f, x in zip(forms, codes, strict=True)]  # fmt: skip
    fields = [rng.integers(117, 137, (m, k // 32)) for _ in range(2)]
    if not scaled:
        fields = [np.full_like(f, 127) for f in fields]
    words = [scales_of(f, 3, rng) for f in fields]
    scales = (words[0], 3, words[1], 3) if scaled else None
    c = (rng.standard_normal((m, m)) * 2.0 ** rng.integers(-20, 30, (m, m))).astype(np.float32)
    packs = [packed(f, m, x) for f, x in zip(forms, codes, strict=True)]
    got = run(vdev_lib, "16x16x128", forms, *packs, c.view(np.uint32), scales, exact=False)

    def element(side: int, row: int, at: int) -> tuple[Fraction, int]:
        exponent_bits, _, kind = FORMATS[forms[side]]
        value = Fraction(float(codes[side][row, at : at + 1].view(kind)[0]))
        shift = int(fields[side][row, at // 32]) - 127
        smallest = 2 - (1 << (exponent_bits - 1))
        exponent = max(floor_log2(value), smallest) if value else 0
        return value * Fraction(2) ** shift, exponent + shift

    for i, j in [(int(x), int(y)) for x, y in rng.integers(0, m, (12, 2))]:
        value = c[i, j]
        for first in range(0, k, 16):
            pairs = [(element(0, i, at), element(1, j, at)) for at in range(first, first + 16)]
            value = step_of_16([(x[0] * y[0], x[1] + y[1]) for x, y in pairs], value)
        assert got[i, j] == value.view(np.uint32), (i, j)


@pytest.mark.parametrize("kind", ["bf16", "f16", "i8"])
@pytest.mark.parametrize("m", [16, 32])
def test_long_ones_are_short_ones_in_a_row(
    vdev_lib: ctypes.CDLL, shapes: dict[str, Shape], m: int, kind: str
) -> None:
    """Those with twice the k of gfx942's: bit by bit what two of gfx942's give, lower k first."""
    d_type = "i32" if kind == "i8" else "f32"
    k = (32 if m == 16 else 16) * (2 if kind == "i8" else 1)
    long = shapes[f"v_mfma_{d_type}_{m}x{m}x{k}_{kind}"]
    short = shapes[f"v_mfma_{d_type}_{m}x{m}x{k // 2}_{kind}"]
    rng = np.random.default_rng(15)
    for mode in ("normal", "wide", "bits", "bits"):
        a, b, c, _ = random_operands(rng, long, mode, 1)
        value = c
        for first in (0, k // 2):
            half = slice(first, first + k // 2)
            part_a, part_b = (np.zeros((1, n, 64), np.uint32) for n in (short.a_regs, short.b_regs))
            write(part_a, kind, short.a_places(0), read(a, kind, long.a_places(0)[:, half])[0])
            write(part_b, kind, short.b_places(0), read(b, kind, long.b_places(0)[half])[0])
            value = multiply(vdev_lib, short, part_a, part_b, value)
        np.testing.assert_array_equal(multiply(vdev_lib, long, a, b, c), value)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
@pytest.mark.parametrize("size", SIZES)
def test_special_scales(vdev_lib: ctypes.CDLL, size: str, exact: bool) -> None:
    """0xff makes every product of its 32 k a NaN; 0 and 254 are powers of two as others are."""
    (m, k), rng = SIZES[size], np.random.default_rng(14)
    ones = packed(0, m, np.full((m, k), 0x38, np.uint8))
    fields = np.full((m, k // 32), 127)
    fields[1, 0], fields[2, :], fields[3, :] = 0xFF, 0, 254
    plain = scales_of(np.full((m, k // 32), 127), 0, rng)
    c = np.zeros((m, m), np.uint32)
    out = run(vdev_lib, size, (0, 0), ones, ones, c, (scales_of(fields, 0, rng), 0, plain, 0),
              exact=exact)  # fmt: skip
    assert (out[1] == NAN).all()
    assert (out[2].view(np.float32) == np.float32(k * 2.0**-127)).all()
    assert (out[3] == 0x7F800000).all()  # k * 2^127
    assert (np.delete(out, [1, 2, 3], 0).view(np.float32) == k).all()
    small = scales_of(np.full((m, k // 32), 1), 2, rng)
    large = scales_of(np.full((m, k // 32), 253), 1, rng)
    out = run(vdev_lib, size, (0, 0), ones, ones, c, (small, 2, large, 1), exact=exact)
    assert (out.view(np.float32) == k).all()


def test_control_errors(vdev_lib: ctypes.CDLL) -> None:
    vdev_lib.vdev_test_mfma_control.restype = ctypes.c_char_p

    def error(name: str, cbsz: int, abid: int, blgp: int) -> str:
        found = vdev_lib.vdev_test_mfma_control(f"gfx950 {name}".encode(), cbsz, abid, blgp)
        return str(found.decode())

    for a, b in itertools.product(FORMATS, FORMATS):
        assert error("v_mfma_f32_16x16x128_f8f6f4", a, 0, b) == ""
    assert "cbsz" in error("v_mfma_f32_16x16x128_f8f6f4", 5, 0, 0)
    assert "blgp" in error("v_mfma_scale_f32_32x32x64_f8f6f4", 0, 0, 5)
    assert "abid" in error("v_mfma_f32_32x32x64_f8f6f4", 0, 1, 0)
    assert "abid" in error("v_smfmac_f32_16x16x64_f16", 0, 2, 0)
    assert error("v_smfmac_i32_16x16x128_i8", 2, 3, 0) == ""  # one set, both fields ignored
    assert error("v_mfma_f32_16x16x8_xf32", 0, 0, 0) == "no such instruction"
