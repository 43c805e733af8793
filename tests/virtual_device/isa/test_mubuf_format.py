"""Typed buffer instructions against an independent model of the formats."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.buffer_oracle import BYTES, Buffer, Form, setup
from tests.support.isa.machine import DEFAULT_MODE, LANES, M0, MachineFault
from tests.support.isa.memory_oracle import MASK32, signed, vector

# Widths of the components, X first, by DFMT.
DATA_FORMATS = {
    1: [8],
    2: [16],
    3: [8, 8],
    4: [32],
    5: [16, 16],
    6: [11, 11, 10],
    7: [10, 11, 11],
    8: [2, 10, 10, 10],
    9: [10, 10, 10, 2],
    10: [8, 8, 8, 8],
    11: [32, 32],
    12: [16, 16, 16, 16],
    13: [32, 32, 32],
    14: [32, 32, 32, 32],
}
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7


def float_bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def short_float(raw: int, bits: int) -> float:
    """An unsigned float of 10 or 11 bits, or a binary16."""
    if bits == 16:
        return float(np.array([raw], np.uint16).view(np.float16)[0])
    mantissa_bits = bits - 5
    exponent, mantissa = raw >> mantissa_bits, raw & (1 << mantissa_bits) - 1
    if exponent == 31:
        return float("nan") if mantissa else float("inf")
    if exponent == 0:
        return float(mantissa * 2.0 ** (-14 - mantissa_bits))
    return float((1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - 15))


def decoded(raw: int, bits: int, nfmt: int) -> int:
    if bits == 32 or nfmt == UINT:
        return raw
    if nfmt == UNORM:
        return float_bits(raw / (2**bits - 1))
    if nfmt == SNORM:
        return float_bits(max(-1.0, signed(raw, bits) / (2 ** (bits - 1) - 1)))
    if nfmt == USCALED:
        return float_bits(raw)
    if nfmt == SSCALED:
        return float_bits(signed(raw, bits))
    if nfmt == SINT:
        return signed(raw, bits) & MASK32
    return float_bits(short_float(raw, bits))


def valid_formats() -> list[tuple[int, int]]:
    return [
        (dfmt, nfmt)
        for dfmt, widths in DATA_FORMATS.items()
        for nfmt in (UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT)
        if nfmt != FLOAT or not {2, 8} & set(widths)
    ]


def split(data: bytes, widths: list[int]) -> list[int]:
    word = int.from_bytes(data, "little")
    fields = []
    for width in widths:
        fields.append(word & (1 << width) - 1)
        word >>= width
    return fields


def is_nan32(x: int) -> bool:
    return x & 0x7FFFFFFF > 0x7F800000


@pytest.mark.parametrize("dfmt,nfmt", valid_formats())
def test_typed_load(dfmt: int, nfmt: int) -> None:
    """tbuffer_load_format_xyzw, and buffer_load_format_xyz with permuted selects."""
    widths = DATA_FORMATS[dfmt]
    size = sum(widths) // 8
    select = [7, 1, 4, 0]  # W, one, X, zero
    code = sum(x << 3 * i for i, x in enumerate(select))
    buffer = Buffer(0, 1000, nfmt=nfmt, dfmt=dfmt, select=code)
    form = Form(False, True, 0, "0")
    m = setup(14, buffer, form)
    m.v[2] = m.rng.integers(0, 1010 - size, LANES)
    before = m.v.copy()
    m.run(
        f"tbuffer_load_format_xyzw v[4:7], v2, s[8:11], 0 format:{dfmt | nfmt << 4} offen\n"
        "buffer_load_format_xyz v[8:10], v2, s[8:11], 0 offen"
    )
    for lane in range(LANES):
        offset = int(before[2, lane])
        at = BYTES // 2 + offset
        good = offset + size <= 1000
        fields = split(m.memory[at : at + size].tobytes(), widths) if good else [0] * len(widths)
        values = [decoded(f, w, nfmt) if good else 0 for f, w in zip(fields, widths, strict=True)]
        values += [0] * (4 - len(values))
        one = 1 if nfmt in (UINT, SINT) else 0x3F800000
        chosen = [one if s == 1 else values[s - 4] if s >= 4 else 0 for s in select]
        got = [int(x) for x in m.v[4:11, lane]]
        for actual, wanted in zip(got, values + chosen[:3], strict=True):
            assert actual == wanted or (is_nan32(actual) and is_nan32(wanted)), (lane, got, values)


@pytest.mark.parametrize("dfmt,nfmt", valid_formats())
def test_typed_store_and_load_agree(dfmt: int, nfmt: int) -> None:
    """Storing what was loaded restores memory; storing others is the nearest representable."""
    widths = DATA_FORMATS[dfmt]
    size = sum(widths) // 8
    buffer = Buffer(0, 1024, nfmt=nfmt, dfmt=dfmt)
    form = Form(False, True, 0, "0")
    m = setup(15, buffer, form)
    m.v[2] = m.rng.permutation(LANES) * 16
    half = m.memory[BYTES // 2 :]
    memory = half.copy()
    m.run(
        f"tbuffer_load_format_xyzw v[4:7], v2, s[8:11], 0 format:{dfmt | nfmt << 4} offen\n"
        f"tbuffer_store_format_xyzw v[4:7], v2, s[8:11], 8 format:{dfmt | nfmt << 4} offen"
        if size <= 8
        else "buffer_load_format_xyzw v[4:7], v2, s[8:11], 0 offen\n"
        "buffer_store_format_xyzw v[4:7], v2, s[8:11], 0 offen"
    )
    shift = 8 if size <= 8 else 0
    for lane in range(LANES):
        at = int(m.v[2, lane])
        old = split(memory[at : at + size].tobytes(), widths)
        new = split(half[at + shift : at + shift + size].tobytes(), widths)
        for a, b, width in zip(old, new, widths, strict=True):
            lowest = nfmt == SNORM and width < 32 and a == 1 << (width - 1)
            wanted = a + lowest  # -1.0 has two codes; the higher one is stored
            x, y = decoded(wanted, width, nfmt), decoded(b, width, nfmt)
            assert wanted == b or (nfmt == FLOAT and is_nan32(x) and is_nan32(y)), (lane, a, b)
    # Clamping and rounding of numbers outside the format.
    if nfmt in (UINT, SINT):
        return
    m.v[4:8] = m.rng.normal(0, 2.0, (4, LANES)).astype(np.float32).view(np.uint32)
    if nfmt in (USCALED, SSCALED):
        m.v[4:8] = (m.v[4:8].view(np.float32) * 300).view(np.uint32)
    numbers = m.v[4:8].view(np.float32).astype(np.float64)
    m.run("buffer_store_format_xyzw v[4:7], v2, s[8:11], 0 offen")
    for lane in range(LANES):
        at = int(m.v[2, lane])
        for c, (field, width) in enumerate(
            zip(split(half[at : at + size].tobytes(), widths), widths, strict=True)
        ):
            x = numbers[c, lane]
            top, top_signed = 2**width - 1, 2 ** (width - 1) - 1
            if width == 32:
                wanted = int(m.v[4 + c, lane])
            elif nfmt == UNORM:
                wanted = int(np.rint(min(max(x, 0), 1) * top))
            elif nfmt == SNORM:
                wanted = int(np.rint(min(max(x, -1), 1) * top_signed)) & top
            elif nfmt == USCALED:
                wanted = int(np.rint(min(max(x, 0), top)))
            elif nfmt == SSCALED:
                wanted = int(np.rint(min(max(x, -top_signed - 1), top_signed))) & top
            elif width == 16:
                wanted = int(np.float16(x).view(np.uint16))
            else:  # the largest code that is not greater
                codes = [i for i in range(31 << (width - 5)) if short_float(i, width) <= x]
                wanted = codes[-1] if codes else 0
            assert field == wanted, (lane, c, x)


def test_integer_stores_clamp() -> None:
    for nfmt, low, high in ((UINT, 0, 255), (SINT, -128, 127)):
        buffer = Buffer(0, 1024, nfmt=nfmt, dfmt=10)
        m = setup(16, buffer, Form(False, True, 0, "0"))
        m.v[2] = np.arange(LANES) * 4
        m.v[4:8] = m.rng.integers(-400, 400, (4, LANES)).astype(np.int32).view(np.uint32)
        m.run("buffer_store_format_xyzw v[4:7], v2, s[8:11], 0 offen")
        stored = m.memory[BYTES // 2 : BYTES // 2 + 256].reshape(LANES, 4)
        values = m.v[4:8].T.astype(np.int64)
        if nfmt == SINT:
            values = values.astype(np.uint32).view(np.int32)
        expected = np.clip(values, low, high).astype(np.int64) & 255
        np.testing.assert_array_equal(stored, expected)


@pytest.mark.parametrize("components", [1, 2, 3, 4])
@pytest.mark.parametrize("nfmt", [UNORM, SINT, FLOAT])
def test_d16_formats(components: int, nfmt: int) -> None:
    names = "xyzw"[:components]
    buffer = Buffer(0, 1024, nfmt=nfmt, dfmt=12)
    m = setup(17, buffer, Form(False, True, 0, "0"))
    m.v[2] = np.arange(LANES) * 8
    dwords = (components + 1) // 2
    m.run(f"buffer_load_format_d16_{names} {vector(4, dwords)}, v2, s[8:11], 0 offen")
    raw = m.memory[BYTES // 2 : BYTES // 2 + 512].view(np.uint16).reshape(LANES, 4)
    if nfmt == UNORM:
        halves = (raw / 65535.0).astype(np.float32).astype(np.float16).view(np.uint16)
    else:
        halves = raw
    got = np.ascontiguousarray(m.v[4 : 4 + dwords].T).view(np.uint16)
    if nfmt == FLOAT:
        nan = (halves & 0x7FFF) > 0x7C00
        assert ((got[:, :components] & 0x7FFF) > 0x7C00)[nan[:, :components]].all()
        halves = np.where(nan, 0, halves)
        got = np.where((got & 0x7FFF) > 0x7C00, 0, got)
    np.testing.assert_array_equal(got[:, :components], halves[:, :components])
    assert not got[:, components:].any()  # the unused half is 0
    if nfmt == SINT:
        memory = m.memory.copy()
        m.v[2] += 512
        m.run(f"buffer_store_format_d16_{names} {vector(4, dwords)}, v2, s[8:11], 0 offen")
        stored = memory[BYTES // 2 + 512 : BYTES // 2 + 1024].view(np.uint16).reshape(LANES, 4)
        stored[:, :components], stored[:, components:] = halves[:, :components], 0
        np.testing.assert_array_equal(m.memory, memory)


def test_d16_hi_forms() -> None:
    buffer = Buffer(0, 1024, nfmt=SINT, dfmt=1)
    m = setup(18, buffer, Form(False, True, 0, "0"))
    m.v[2] = np.arange(LANES)
    raw = m.memory[BYTES // 2 : BYTES // 2 + LANES].view(np.int8).copy()
    m.run(
        "buffer_load_format_d16_hi_x v4, v2, s[8:11], 0 offen\n"
        "buffer_store_format_d16_hi_x v4, v2, s[8:11], 0 offen offset:64"
    )
    np.testing.assert_array_equal(m.v[4], raw.astype(np.int32).view(np.uint32) << 16)
    stored = m.memory[BYTES // 2 + 64 : BYTES // 2 + 64 + LANES].view(np.int8)
    np.testing.assert_array_equal(stored, raw)


def test_format_load_to_lds() -> None:
    buffer = Buffer(0, 64, nfmt=UNORM, dfmt=1)
    m = setup(19, buffer, Form(False, True, 0, "0"), lds_bytes=256)
    m.v[2] = np.arange(LANES)
    m.s[M0] = 0
    m.run("buffer_load_format_x v2, s[8:11], 0 offen lds")
    raw = m.memory[BYTES // 2 : BYTES // 2 + LANES]
    np.testing.assert_array_equal(m.lds.view(np.float32), (raw / 255.0).astype(np.float32))


@pytest.mark.parametrize("dfmt,nfmt", [(15, UINT), (4, 6), (1, FLOAT), (9, FLOAT)])
def test_invalid_formats_are_refused(dfmt: int, nfmt: int) -> None:
    m = setup(20, Buffer(0, 64, nfmt=nfmt, dfmt=dfmt), Form(False, False, 0, "0"))
    with pytest.raises(MachineFault, match="typed buffer access"):
        m.run("buffer_load_format_x v4, off, s[8:11], 0")


def test_mode_does_not_matter() -> None:
    """Conversions keep denormals and round to nearest whatever MODE says."""
    results = []
    for mode in (DEFAULT_MODE, 0x00F):
        m = setup(21, Buffer(0, 1024, nfmt=FLOAT, dfmt=2), Form(False, True, 0, "0"))
        m.mode = mode
        m.v[2] = np.arange(LANES) * 2
        m.v[4] = (m.rng.normal(0, 1e-5, LANES)).astype(np.float32).view(np.uint32)
        m.run("buffer_store_format_x v4, v2, s[8:11], 0 offen")
        m.run("buffer_load_format_x v5, v2, s[8:11], 0 offen")
        results.append(m.v[5].copy())
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] << 1).all()
