"""VOP1: every row, both encodings, against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.assembly import VOP1, assemble_each, row_names
from tests.support.isa.float_oracle import F16, F32, F64
from tests.support.isa.machine import ALL_LANES, DEFAULT_MODE, FaultKind, Machine, MachineFault
from tests.support.isa.table_vop1 import VOP1_OPS
from tests.support.isa.vectors import BOTH_MODES, HOLES, check_forms, text_of

# Not one lane at a time, or without a result: tested one by one below.
OTHER_ROWS = {
    "v_nop",
    "v_clrexcp",
    "v_readfirstlane_b32",
    "v_swap_b32",
    "v_accvgpr_mov_b32",
    "v_screen_partition_4se_b32",
}


def test_every_row_has_a_vector() -> None:
    assert row_names(VOP1) == {*VOP1_OPS, *OTHER_ROWS}


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(
        text_of(name, op, form) for name, op in VOP1_OPS.items() for form in ("_e32", "_e64")
    )


@pytest.mark.parametrize("name", VOP1_OPS)
def test_both_encodings(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = VOP1_OPS[name]
    texts = [text_of(name, op, form) for form in ("_e32", "_e64")]
    codes = [(t, words) for t in texts if (words := code[t]) is not None]
    assert codes
    floats = any(k in ("f16", "f32", "f64") for k in (*op.srcs, op.dst))
    check_forms(name, op, codes, BOTH_MODES if floats else (DEFAULT_MODE,), count=320)


@pytest.mark.parametrize("text", ["v_nop", "v_clrexcp", "v_nop_e64"])
def test_nothing_happens(text: str) -> None:
    words = assemble_each([text])[text]
    if words is None:
        pytest.skip("the assembler has no such form")
    m = Machine(seed=1)
    v, s = m.v.copy(), m.s.copy()
    m.run(words)
    assert (m.v == v).all() and (m.s == s).all()


@pytest.mark.parametrize(
    ("mask", "lane"), [(ALL_LANES, 0), (HOLES, 0), (0xF0 << 40, 44), (1 << 63, 63), (0, 0)]
)
def test_readfirstlane_takes_the_lowest_active_lane(mask: int, lane: int) -> None:
    m = Machine(seed=2)
    m.exec = mask
    m.run("v_readfirstlane_b32 s5, v7")
    assert m.s[5] == m.v[7, lane]


def test_swap_exchanges_active_lanes() -> None:
    m = Machine(seed=3)
    m.exec = HOLES
    v = m.v.copy()
    m.run("v_swap_b32 v3, v9")
    active = m.lanes
    assert (m.v[3] == np.where(active, v[9], v[3])).all()
    assert (m.v[9] == np.where(active, v[3], v[9])).all()


def test_accvgpr_mov_honours_exec() -> None:
    m = Machine(seed=4)
    m.exec = HOLES
    a = m.a.copy()
    m.run("v_accvgpr_mov_b32 a3, a9")
    assert (m.a[3] == np.where(m.lanes, a[9], a[3])).all()


def test_screen_partition_is_refused() -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run("v_screen_partition_4se_b32 v1, v2")
    assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION


@pytest.mark.parametrize(
    ("text", "x", "want"),
    [
        # The manual's functional examples.
        ("v_sqrt_f32 v1, v0", F32.sign | F32.inf, 0xFFC00000),
        ("v_sin_f32 v1, v0", 0x3E800000, 0x3F800000),
        ("v_sin_f32 v1, v0", 0xFF7FFFFF, 0),
        ("v_sin_f32 v1, v0", 0x80000000, 0x80000000),
        ("v_cos_f32 v1, v0", 0x7F7FFFFF, 0x3F800000),
        ("v_sin_f16 v1, v0", 0x7C00, 0xFE00),
        ("v_sin_f16 v1, v0", 0xFBFF, 0),
        # Denormals are flushed by the transcendental unit, results too.
        ("v_exp_f32 v1, v0", 0xC3020000, 0),  # 2^-130
        ("v_exp_f32 v1, v0", 0xC2FC0000, 0x00800000),  # 2^-126
        ("v_exp_f32 v1, v0", 0x43000000, F32.inf),  # 2^128
        ("v_exp_f32 v1, v0", 1, 0x3F800000),
        ("v_log_f32 v1, v0", 0x007FFFFF, 0xFF800000),
        ("v_rcp_f32 v1, v0", 0x00000001, F32.inf),
        ("v_rcp_f32 v1, v0", 0xFF000000, 0x80000000),  # -2^127: the result would be denormal
        ("v_rsq_f32 v1, v0", 0x80000000, 0xFF800000),
        # Ties and the edge below one half.
        ("v_cvt_rpi_i32_f32 v1, v0", 0x3EFFFFFF, 0),
        ("v_cvt_rpi_i32_f32 v1, v0", 0xBF000000, 0),
        ("v_cvt_rpi_i32_f32 v1, v0", 0x3F000000, 1),
        ("v_rndne_f32 v1, v0", 0x40200000, 0x40000000),
        ("v_cvt_u32_f32 v1, v0", 0xBF7FFFFF, 0),
        ("v_cvt_i32_f32 v1, v0", 0x4F000000, 0x7FFFFFFF),
        ("v_cvt_i32_f32 v1, v0", 0x7FC00000, 0),
        ("v_fract_f32 v1, v0", 0x80000001, 0x3F7FFFFF),
        # FNUZ: 0x80 is the only NaN, 0x7f is 240.
        ("v_cvt_f32_fp8 v1, v0", 0x80, F32.default_nan),
        ("v_cvt_f32_fp8 v1, v0", 0x7F, 0x43700000),
        ("v_cvt_f32_bf8 v1, v0", 0x7F, 0x47600000),
    ],
)
def test_published_points(text: str, x: int, want: int) -> None:
    m = Machine(seed=5)
    m.v[0] = x
    m.run(text)
    assert (m.v[1] == want).all(), hex(int(m.v[1, 0]))


def test_rcp_f64_of_a_denormal_is_infinite_or_huge() -> None:
    m = Machine(seed=6)
    m.set_v64(0, 1 << 52)  # the smallest normal number
    m.run("v_rcp_f64 v[2:3], v[0:1]")
    assert (m.v64(2) == (F64.bias + 1022 << 52)).all()


def test_exp_f16_saturates() -> None:
    m = Machine(seed=7)
    m.v[0] = 0x4C00  # 16.0
    m.run("v_exp_f16 v1, v0")
    assert (m.v[1] == F16.inf).all()
