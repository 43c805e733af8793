"""VOP3-only instructions: every row against exact arithmetic; division sequences end to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.support.isa.assembly import VOP3, assemble_each, row_names
from tests.support.isa.builders import s24
from tests.support.isa.int_oracle import clamp_s, clamp_u, signed
from tests.support.isa.machine import (
    ALL_LANES,
    DEFAULT_MODE,
    LANES,
    FaultKind,
    Machine,
    MachineFault,
)
from tests.support.isa.table_vop3 import VOP3_OPS, masked_sad, sad, sad16
from tests.support.isa.vectors import BOTH_MODES, HOLES, check_forms, text_of

OTHER_ROWS = {
    "v_div_scale_f32",
    "v_div_scale_f64",
    "v_div_fmas_f32",
    "v_div_fmas_f64",
    "v_mqsad_u32_u8",
    "v_cvt_pkaccum_u8_f32",
    "v_readlane_b32",
    "v_writelane_b32",
    "v_mbcnt_lo_u32_b32",
    "v_mbcnt_hi_u32_b32",
}


def test_every_row_has_a_vector() -> None:
    assert row_names(VOP3) == {*VOP3_OPS, *OTHER_ROWS}


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(text_of(name, op, "") for name, op in VOP3_OPS.items())


@pytest.mark.parametrize("name", VOP3_OPS)
def test_plain(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = VOP3_OPS[name]
    text = text_of(name, op, "")
    words = code[text]
    assert words is not None, text
    floats = any(k in ("f16", "f32", "f64") for k in (*op.srcs, op.dst))
    check_forms(name, op, [(text, words)], BOTH_MODES if floats else (DEFAULT_MODE,), count=512)


def saturating(bits: int, *, is_signed: bool) -> Callable[[int], int]:
    return lambda x: (clamp_s if is_signed else clamp_u)(x, bits) & ((1 << bits) - 1)


S16, U16 = saturating(16, is_signed=True), saturating(16, is_signed=False)
S32, U32 = saturating(32, is_signed=True), saturating(32, is_signed=False)
# Name -> result with the clamp bit.
CLAMPED: dict[str, Callable[..., object]] = {
    "v_mad_i32_i24": lambda a, b, c: S32(s24(a) * s24(b) + signed(c, 32)),
    "v_mad_u32_u24": lambda a, b, c: U32((a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_sad_u8": lambda a, b, c: U32(sad(a, b) + c),
    "v_sad_hi_u8": lambda a, b, c: U32((sad(a, b) << 16) + c),
    "v_sad_u16": lambda a, b, c: U32(sad16(a, b) + c),
    "v_sad_u32": lambda a, b, c: U32(abs(a - b) + c),
    "v_msad_u8": lambda a, b, c: U32(masked_sad(a, b) + c),
    "v_mad_legacy_u16": lambda a, b, c: U16(a * b + c),
    "v_mad_legacy_i16": lambda a, b, c: S16(a * b + c),
    "v_mad_u16": lambda a, b, c: U16(a * b + c),
    "v_mad_i16": lambda a, b, c: S16(a * b + c),
    "v_mad_u32_u16": lambda a, b, c: U32(a * b + c),
    "v_mad_i32_i16": lambda a, b, c: S32(a * b + signed(c, 32)),
    "v_add_i32": lambda a, b: S32(a + b),
    "v_sub_i32": lambda a, b: S32(a - b),
    "v_add_i16": lambda a, b: S16(a + b),
    "v_sub_i16": lambda a, b: S16(a - b),
    "v_mad_u64_u32": lambda a, b, c: (clamp_u(a * b + c, 64), a * b + c >> 64 != 0),
    "v_mad_i64_i32": lambda a, b, c: (
        clamp_s(a * b + c, 64) & (1 << 64) - 1,
        a * b + c < 0,
    ),
    "v_qsad_pk_u16_u8": lambda a, b, c: sum(
        U16(sad(a >> 8 * i & 0xFFFFFFFF, b) + (c >> 16 * i & 0xFFFF)) << 16 * i for i in range(4)
    ),
}


@pytest.mark.parametrize("name", CLAMPED)
def test_integer_clamp_saturates(name: str) -> None:
    fn = CLAMPED[name]
    op = dataclasses.replace(VOP3_OPS[name], fn=lambda _m, *a: fn(*a))
    text = text_of(name, op, "") + " clamp"
    words = assemble_each([text])[text]
    assert words is not None
    check_forms(text, op, [(text, words)], count=384)


def test_mqsad_u32() -> None:
    m = Machine(seed=1)
    m.exec = HOLES
    m.v[5] &= 0xFF00FFFF  # a zero reference byte does not count
    v = m.v.copy()
    m.run("v_mqsad_u32_u8 v[16:19], v[2:3], v5, v[8:11]")
    for lane in range(LANES):
        window = int(v[2, lane]) | int(v[3, lane]) << 32
        for i in range(4):
            want = v[16 + i, lane]
            if HOLES >> lane & 1:
                part = masked_sad(window >> 8 * i & 0xFFFFFFFF, int(v[5, lane]))
                want = part + int(v[8 + i, lane]) & 0xFFFFFFFF
            assert m.v[16 + i, lane] == want


def test_pkaccum_is_refused() -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run("v_cvt_pkaccum_u8_f32 v1, v2, v3")
    assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION


@pytest.mark.parametrize("mask", [ALL_LANES, HOLES, 0])
def test_readlane_and_writelane_ignore_exec(mask: int) -> None:
    m = Machine(seed=2)
    m.exec = mask
    m.s[3], m.s[4] = 0xFFFFFF80 + 37, 0xABCD1234
    m.s[124] = 5  # M0
    v = m.v.copy()
    m.run(
        "v_readlane_b32 s8, v1, 63\nv_readlane_b32 s9, v1, s3\nv_readlane_b32 s10, v2, m0\n"
        "v_readlane_b32 vcc_lo, v2, 0\nv_writelane_b32 v7, s4, 12\nv_writelane_b32 v7, -3, s3\n"
        "v_writelane_b32 v7, s4, m0"
    )
    assert m.s[8] == v[1, 63] and m.s[9] == v[1, 37] and m.s[10] == v[2, 5]
    assert m.vcc & 0xFFFFFFFF == v[2, 0]
    v[7, 12], v[7, 37], v[7, 5] = 0xABCD1234, 0xFFFFFFFD, 0xABCD1234
    assert (m.v == v).all()


def test_mbcnt_gives_the_lane_and_counts_masks() -> None:
    m = Machine(seed=3)
    m.v[1] = 7
    m.s[2], m.s[3] = 0xF0F0_1234, 0x8421_0F0F
    m.run(
        "v_mbcnt_lo_u32_b32 v0, -1, 0\nv_mbcnt_hi_u32_b32 v0, -1, v0\n"
        "v_mbcnt_lo_u32_b32 v2, s2, v1\nv_mbcnt_hi_u32_b32 v2, s3, v2"
    )
    mask = m.pair(2)
    assert m.v[0].tolist() == list(range(LANES))
    assert m.v[2].tolist() == [7 + (mask & (1 << i) - 1).bit_count() for i in range(LANES)]


def test_mbcnt_honours_exec() -> None:
    m = Machine(seed=4)
    m.exec = HOLES
    old = m.v[2].copy()
    m.run("v_mbcnt_lo_u32_b32 v2, -1, 0")
    assert (m.v[2] == np.where(m.lanes, np.minimum(np.arange(LANES), 32), old)).all()


# ---- division -----------------------------------------------------------------------------------

# What compilers make of a / b for IEEE division: v2 = v0 / v1.
DIVIDE_F32 = """
v_div_scale_f32 v3, s[4:5], v1, v1, v0
v_rcp_f32 v4, v3
v_div_scale_f32 v5, vcc, v0, v1, v0
v_fma_f32 v6, -v3, v4, 1.0
v_fma_f32 v4, v6, v4, v4
v_mul_f32 v6, v5, v4
v_fma_f32 v7, -v3, v6, v5
v_fma_f32 v6, v7, v4, v6
v_fma_f32 v3, -v3, v6, v5
v_div_fmas_f32 v3, v3, v4, v6
v_div_fixup_f32 v2, v3, v1, v0
"""
DIVIDE_F64 = """
v_div_scale_f64 v[6:7], s[4:5], v[2:3], v[2:3], v[0:1]
v_rcp_f64 v[8:9], v[6:7]
v_fma_f64 v[10:11], -v[6:7], v[8:9], 1.0
v_fma_f64 v[8:9], v[8:9], v[10:11], v[8:9]
v_fma_f64 v[10:11], -v[6:7], v[8:9], 1.0
v_fma_f64 v[8:9], v[8:9], v[10:11], v[8:9]
v_div_scale_f64 v[10:11], vcc, v[0:1], v[2:3], v[0:1]
v_mul_f64 v[12:13], v[10:11], v[8:9]
v_fma_f64 v[6:7], -v[6:7], v[12:13], v[10:11]
v_div_fmas_f64 v[6:7], v[6:7], v[8:9], v[12:13]
v_div_fixup_f64 v[4:5], v[6:7], v[2:3], v[0:1]
"""


def interesting_floats(rng: np.random.Generator, width: int, count: int) -> np.ndarray:
    """Random bits, near-equal exponents, denormals, extremes, specials."""
    man = {32: 23, 64: 52}[width]
    unsigned = {32: np.uint32, 64: np.uint64}[width]
    bits = rng.integers(0, 1 << width, count, np.uint64)
    kind = rng.integers(0, 6, count)
    top = (1 << (width - 1 - man)) - 1
    sign_and_man = np.uint64((1 << (width - 1)) | ((1 << man) - 1))
    for k, (low, high) in enumerate(
        [(top // 2 - 3, top // 2 + 3), (0, 0), (1, 60), (top - 60, top)]
    ):
        field = rng.integers(low, high + 1, count).astype(np.uint64) << np.uint64(man)
        bits = np.where(kind == k, bits & sign_and_man | field, bits)
    return bits.astype(unsigned)


def same_bits(got: np.ndarray, want: np.ndarray, floating: type) -> np.ndarray:
    """Equal, or both NaN."""
    nan = np.isnan(got.view(floating)) & np.isnan(want.view(floating))
    return np.asarray((got == want) | nan)


def test_f32_division_is_correctly_rounded() -> None:
    words = assemble_each([DIVIDE_F32])[DIVIDE_F32]
    assert words is not None
    m = Machine(seed=5)
    with np.errstate(all="ignore"):
        for _ in range(150):
            m.v[0] = interesting_floats(m.rng, 32, LANES)
            m.v[1] = interesting_floats(m.rng, 32, LANES)
            n, d = m.v[0].copy(), m.v[1].copy()
            m.run(words)
            want = (n.view(np.float32) / d.view(np.float32)).view(np.uint32)
            wrong = np.flatnonzero(~same_bits(m.v[2], want, np.float32))
            assert not wrong.size, [
                f"{n[i]:#x} / {d[i]:#x}: got {m.v[2, i]:#x}, want {want[i]:#x}" for i in wrong[:4]
            ]


def test_f64_division_is_correctly_rounded() -> None:
    words = assemble_each([DIVIDE_F64])[DIVIDE_F64]
    assert words is not None
    m = Machine(seed=6)
    with np.errstate(all="ignore"):
        for _ in range(150):
            n = interesting_floats(m.rng, 64, LANES)
            d = interesting_floats(m.rng, 64, LANES)
            m.set_v64(0, n)
            m.set_v64(2, d)
            m.run(words)
            got = m.v64(4)
            want = (n.view(np.float64) / d.view(np.float64)).view(np.uint64)
            wrong = np.flatnonzero(~same_bits(got, want, np.float64))
            assert not wrong.size, [
                f"{n[i]:#x} / {d[i]:#x}: got {got[i]:#x}, want {want[i]:#x}" for i in wrong[:4]
            ]


# ---- f32 to bf16 as kernels do it on gfx942 -----------------------------------------------------

# v0 -> the bf16 in the upper half of v3; NaN becomes 0x7fff.
BF16_NEAREST_EVEN = """
s_mov_b32 s2, 0x7fff0000
s_movk_i32 s3, 0x7fff
v_cmp_u_f32_e64 s[4:5], v0, v0
v_bfe_u32 v3, v0, 16, 1
v_add3_u32 v3, v0, v3, s3
v_mov_b32 v4, s2
v_cndmask_b32_e64 v3, v3, v4, s[4:5]
"""


def test_bf16_rounding_sequence() -> None:
    words = assemble_each([BF16_NEAREST_EVEN])[BF16_NEAREST_EVEN]
    assert words is not None
    m = Machine(seed=7)
    with np.errstate(all="ignore"):
        for _ in range(40):
            m.v[0] = interesting_floats(m.rng, 32, LANES)
            m.v[0, :4] = 0x7FFFFFFF, 0x3F808000, 0x3F818000, 0x7F7FFFFF
            source = m.v[0].copy().view(np.float32)
            m.run(words)
            want = source.astype(ml_dtypes.bfloat16).view(np.uint16)
            want = np.where(np.isnan(source), 0x7FFF, want)
            assert (m.v[3] >> 16 == want).all()


def test_bf16_packing_by_truncation() -> None:
    m = Machine(seed=8)
    m.s[2] = 0x07060302
    m.run("v_perm_b32 v3, v1, v0, s2")
    assert (m.v[3] == (m.v[0] >> 16 | m.v[1] & 0xFFFF0000)).all()


def test_results_may_overwrite_their_sources() -> None:
    m = Machine(seed=9)
    for mask in (ALL_LANES, HOLES):
        m.exec = mask
        a, b, c = (m.v64(i).copy() for i in (0, 2, 4))
        low_a, low_c = m.v[6].copy(), m.v[9].copy()
        m.run(
            "v_lshlrev_b64 v[0:1], v1, v[0:1]\nv_mad_u64_u32 v[2:3], vcc, v2, v3, v[2:3]\n"
            "v_ashrrev_i64 v[4:5], v4, v[4:5]\nv_add_u32 v6, v6, v6\nv_swap_b32 v9, v9"
        )
        shift = (a >> np.uint64(32)) & np.uint64(63)
        lanes = m.lanes
        assert (m.v64(0) == np.where(lanes, a << shift, a)).all()
        product = (b & np.uint64(0xFFFFFFFF)) * (b >> np.uint64(32)) + b
        assert (m.v64(2) == np.where(lanes, product, b)).all()
        shifted = (c.view(np.int64) >> (c & np.uint64(63)).view(np.int64)).view(np.uint64)
        assert (m.v64(4) == np.where(lanes, shifted, c)).all()
        assert (m.v[6] == np.where(lanes, low_a + low_a, low_a)).all() and (m.v[9] == low_c).all()


@pytest.mark.parametrize("exponents", [95, 96, 97])
def test_div_scale_of_a_huge_f32_quotient(exponents: int) -> None:
    """The ISA manual: the denominator is scaled by 2^64 from 96 exponents apart on."""
    m = Machine(seed=1)
    denominator, numerator = np.float32(1.5 * 2.0**-50), np.float32(2.0 ** (exponents - 50))
    m.v[0], m.v[1] = denominator.view(np.uint32), numerator.view(np.uint32)
    m.exec = (1 << 64) - 1
    m.run("v_div_scale_f32 v2, vcc, v0, v0, v1\nv_div_scale_f32 v3, s[0:1], v1, v0, v1")
    huge = exponents >= 96
    assert (m.v[2].view(np.float32) == denominator * np.float32(2.0**64 if huge else 1)).all()
    assert (m.v[3] == m.v[1]).all()
    assert m.vcc == m.pair(0) == (m.exec if huge else 0)


@pytest.mark.parametrize("exponents", [767, 768, 769])
def test_div_scale_of_a_huge_f64_quotient(exponents: int) -> None:
    """By 2^128 from 768 exponents apart on."""
    m = Machine(seed=1)
    denominator, numerator = np.float64(1.5 * 2.0**-400), np.float64(2.0 ** (exponents - 400))
    m.set_v64(0, np.full(64, denominator).view(np.uint64))
    m.set_v64(2, np.full(64, numerator).view(np.uint64))
    m.exec = (1 << 64) - 1
    m.run("v_div_scale_f64 v[4:5], vcc, v[0:1], v[0:1], v[2:3]")
    huge = exponents >= 768
    found = (m.v[4].astype(np.uint64) | m.v[5].astype(np.uint64) << np.uint64(32)).view(np.float64)
    assert (found == denominator * (2.0**128 if huge else 1)).all()
    assert m.vcc == (m.exec if huge else 0)
