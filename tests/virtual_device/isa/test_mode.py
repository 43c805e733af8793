"""MODE: rounding, denormals, IEEE, overflow of f16: every float row that follows them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from tests.support.isa import float_oracle as fo
from tests.support.isa.assembly import assemble_each
from tests.support.isa.float_oracle import F16, F32, F64, Fmt, Mode
from tests.support.isa.machine import LANES, Machine
from tests.support.isa.table_vop1 import TRANS16, TRANS32, VOP1_OPS
from tests.support.isa.table_vop2 import VOP2_OPS
from tests.support.isa.table_vop3 import VOP3_OPS
from tests.support.isa.table_vopc import VOPC_OPS
from tests.support.isa.vectors import FLOATS, Op, check_forms, text_of

TRANSCENDENTAL = {
    f"v_{name}_{kind}"
    for name in (*TRANS16, *TRANS32, "exp_legacy", "log_legacy")
    for kind in ("f16", "f32", "f64")
}
FLOAT_OPS = {
    n: op
    for n, op in {**VOP1_OPS, **VOP2_OPS, **VOP3_OPS}.items()
    if any(k in FLOATS or k == "pf16" for k in (*op.srcs, op.dst)) and n not in TRANSCENDENTAL
}
# All rounding modes (f32 and f16/f64 differ), each with another denormal setting and IEEE bit.
MODES = [
    r | (3 - r) << 2 | d << 4 | (3 - d) << 6 | dx10 << 8 | ieee << 9
    for (r, d), (dx10, ieee) in zip(
        itertools.product(range(4), range(4)),
        itertools.cycle([(0, 0), (1, 1), (0, 1)]),
        strict=False,
    )
]


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(text_of(n, op, form_of(n)) for n, op in FLOAT_OPS.items())


def form_of(name: str) -> str:
    return "" if name in VOP3_OPS else "_e32"


@pytest.mark.parametrize("name", FLOAT_OPS)
def test_rounding_and_denormals(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = FLOAT_OPS[name]
    text = text_of(name, op, form_of(name))
    words = code[text]
    assert words is not None
    check_forms(name, op, [(text, words)], MODES, count=LANES)


@pytest.mark.parametrize("name", [n for n in VOPC_OPS if n.startswith("v_cmp_lt_f")])
def test_compares_flush_denormals(name: str) -> None:
    op = VOPC_OPS[name]
    fmt = FLOATS[op.srcs[0]]
    m = Machine(seed=1)
    for mode in (0x300, 0x3F0):
        m.mode = mode
        wide = "[0:1]" if fmt is F64 else "0"
        zero = fmt.width == 64
        for reg, bits in ((0, 0), (2, 1)):
            m.v[reg], m.v[reg + 1] = bits, 0
        m.run(f"{name} vcc, v{wide}, v{'[2:3]' if zero else '2'}")
        assert m.vcc == ((1 << 64) - 1 if mode == 0x3F0 else 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["v_exp_f32", "v_rcp_f32", "v_sqrt_f32", "v_rsq_f32", "v_log_f32"])
def test_transcendentals_ignore_rounding_and_denormals(name: str, mode: int) -> None:
    m = Machine(seed=2)
    m.run(f"{name} v1, v0")
    want = m.v[1].copy()
    m.mode = mode
    m.run(f"{name} v1, v0")
    nan = np.isnan(want.view(np.float32))
    assert ((m.v[1] == want) | nan).all()


def exact_sum(fmt: Fmt, how: int, a: int, b: int) -> int:
    total = fmt.value(a) + fmt.value(b)
    return fo.encode(fmt, total, how) if total else fmt.sign if how == fo.DOWN else 0


@pytest.mark.parametrize("how", range(4))
def test_sums_of_many_exponents_are_exactly_rounded(how: int) -> None:
    """Against rationals; the rounding field of the other formats holds another rule."""
    m = Machine(seed=3 + how)
    other = (how + 1) % 4
    rng = m.rng
    for _ in range(4):
        m.mode = 0x3F0 | how | other << 2
        m.v[0:2] = rng.integers(0x3E000000, 0x42000000, (2, LANES), np.uint32)
        m.v[1] ^= rng.integers(0, 2, LANES, np.uint32) << 31
        m.run("v_add_f32 v2, v0, v1")
        want = [exact_sum(F32, how, int(a), int(b)) for a, b in zip(m.v[0], m.v[1], strict=True)]
        assert m.v[2].tolist() == want
        m.mode = 0x3F0 | how << 2 | other
        x = rng.integers(0x3F80 << 48, 0x4080 << 48, (2, LANES), np.uint64)
        x[1] ^= rng.integers(0, 2, LANES, np.uint64) << np.uint64(63)
        m.set_v64(4, x[0])
        m.set_v64(6, x[1])
        m.run("v_add_f64 v[8:9], v[4:5], v[6:7]\nv_add_f32 v10, v0, v1")
        want64 = [exact_sum(F64, how, int(a), int(b)) for a, b in zip(x[0], x[1], strict=True)]
        assert m.v64(8).tolist() == want64
        want = [exact_sum(F32, other, int(a), int(b)) for a, b in zip(m.v[0], m.v[1], strict=True)]
        assert m.v[10].tolist() == want


@pytest.mark.parametrize(
    ("mode", "want"),
    [(0x3F0, 0x00400000), (0x3E0, 0), (0x3D0, 0), (0x3C0, 0)],
)
def test_f32_denormal_settings(mode: int, want: int) -> None:
    """Bit 4 keeps denormal operands, bit 5 denormal results."""
    m = Machine(seed=4, mode=mode)
    m.v[0], m.v[1] = 0x00400000, 0x3F800000
    m.run("v_mul_f32 v2, v0, v1\nv_mul_f32 v3, -v0, v1\nv_max_f32 v4, v0, v0")
    assert (m.v[2] == want).all() and (m.v[4] == want).all()
    assert (m.v[3] == (want | 0x80000000)).all()  # a flushed zero keeps its sign


def test_denormal_operand_with_normal_result() -> None:
    """2^-127 * 4 = 2^-125: only the operand setting matters."""
    for mode, want in ((0x3D0, 0x01000000), (0x3E0, 0), (0x3F0, 0x01000000), (0x3C0, 0)):
        m = Machine(seed=5, mode=mode)
        m.v[0] = 0x00400000
        m.run("v_mul_f32 v2, 4.0, v0\nv_fma_f32 v3, v0, 4.0, 0\nv_fmac_f32 v4, 0, v4")
        assert (m.v[2] == want).all() and (m.v[3] == want).all(), hex(mode)


def test_moves_and_selects_ignore_mode() -> None:
    m = Machine(seed=6, mode=0x000)
    m.v[0], m.v[1] = 1, 0x7FA00000
    m.vcc = (1 << 64) - 1
    m.run(
        "v_mov_b32 v2, v0\nv_cndmask_b32 v3, v1, v0, vcc\nv_cndmask_b32 v4, v0, v1, vcc\n"
        "v_perm_b32 v5, v0, v1, v0\nv_cndmask_b32_e64 v6, v0, -v1, vcc"
    )
    assert [int(m.v[i, 0]) for i in (2, 3, 4, 6)] == [1, 1, 0x7FA00000, 0xFFA00000]


@pytest.mark.parametrize(("ieee", "want"), [(0, 0x7FA00001), (1, 0x7FE00001)])
def test_signalling_nan_is_quieted_only_with_ieee(ieee: int, want: int) -> None:
    m = Machine(seed=7, mode=0x0F0 | ieee << 9)
    m.v[0], m.v[1] = 0x7FA00001, 0x3F800000
    m.run(
        "v_add_f32 v2, v0, v1\nv_mul_f32 v3, v1, v0\nv_fma_f32 v4, v1, v1, v0\n"
        "v_pk_add_f32 v[6:7], v[0:1], v[0:1]"
    )
    assert all((m.v[i] == want).all() for i in (2, 3, 4, 6))


def test_max_of_signalling_nan() -> None:
    """IEEE: the sNaN comes out quiet; otherwise NaN loses. max3 then drops the quiet NaN."""
    m = Machine(seed=8)
    m.v[0], m.v[1], m.v[2] = 0x7FA00001, 0x3F800000, 0xBF800000
    text = "v_max_f32 v3, v0, v1\nv_max_f32 v4, v1, v0\nv_max3_f32 v5, v0, v1, v2"
    m.run(text)
    assert [int(m.v[i, 0]) for i in (3, 4, 5)] == [0x7FE00001, 0x7FE00001, 0xBF800000]
    m.mode = 0x0F0
    m.run(text)
    assert [int(m.v[i, 0]) for i in (3, 4, 5)] == [0x3F800000, 0x3F800000, 0x3F800000]


def test_f16_overflow_saturates_with_fp16_ovfl() -> None:
    for ovfl, want in ((0, F16.inf), (1 << 23, F16.inf - 1)):
        m = Machine(seed=9, mode=0x3F0 | ovfl)
        m.v[0] = 0x47C35000  # 1e5
        m.run("v_cvt_f16_f32 v1, v0")
        assert (m.v[1] == want).all()


def test_fp8_overflow_saturates_with_fp16_ovfl() -> None:
    for ovfl, want in ((0, 0x8080), (1 << 23, 0xFF7F)):
        m = Machine(seed=10, mode=0x3F0 | ovfl)
        m.v[0], m.v[1], m.v[2] = 0x47C35000, 0xFF800000, 0
        m.run("v_cvt_pk_fp8_f32 v2, v0, v1")
        assert (m.v[2] == want).all(), hex(int(m.v[2, 0]))


@pytest.mark.parametrize("ieee", [0, 1])
def test_omod_needs_ieee_off_and_results_flushed(ieee: int) -> None:
    for denorm in (0, 3):
        m = Machine(seed=11, mode=denorm << 4 | ieee << 9)
        m.v[0] = 0x40400000  # 3
        m.run("v_mul_f32_e64 v1, v0, 1.0 mul:2\nv_mul_f32_e64 v2, v0, 1.0 mul:4\n"
              "v_mul_f32_e64 v3, v0, 1.0 div:2\nv_mul_f32_e64 v4, v0, 1.0 clamp mul:4")  # fmt: skip
        applied = denorm == 0 and not ieee
        want = [6.0, 12.0, 1.5, 1.0] if applied else [3.0, 3.0, 3.0, 1.0]
        assert [float(m.v[i].view(np.float32)[0]) for i in (1, 2, 3, 4)] == want


def test_fma_is_fused() -> None:
    """(1 + 2^-23)(1 - 2^-23) - 1 = -2^-46."""
    m = Machine(seed=12)
    m.v[0], m.v[1] = 0x3F800001, 0x3F7FFFFE
    m.run("v_fma_f32 v2, v0, v1, -1.0\nv_mov_b32 v3, -1.0\nv_fmac_f32 v3, v0, v1")
    assert (m.v[2] == 0xA8800000).all() and (m.v[3] == 0xA8800000).all()


def test_mad_f16_rounds_twice_and_flushes() -> None:
    """v_mad_f16 rounds the product; v_fma_f16 does not."""
    m = Machine(seed=13)
    a, b, c = 0x3C01, 0x3BFE, 0xBC00
    m.v[0], m.v[1], m.v[2], m.v[3:5] = a, b, c, 0
    m.run("v_mad_f16 v3, v0, v1, v2\nv_fma_f16 v4, v0, v1, v2")
    exact = F16.value(a) * F16.value(b) + F16.value(c)
    assert int(m.v[4, 0]) == fo.encode(F16, exact, fo.NEAREST) and exact != 0
    rounded = F16.value(fo.encode(F16, F16.value(a) * F16.value(b), fo.NEAREST))
    rest = rounded + F16.value(c)
    assert int(m.v[3, 0]) == (fo.flush(F16, fo.encode(F16, rest, fo.NEAREST)) if rest else 0)


def test_mode_of_the_oracle_is_the_manuals() -> None:
    """MODE[3:0] rounding: f32 then f16/f64; [7:4] denormals; 8 DX10_CLAMP; 9 IEEE."""
    mode = Mode(0x2D6)
    assert (mode.round(F32), mode.round(F64)) == (fo.DOWN, fo.UP)
    assert mode.keeps_in(F32) and not mode.keeps_out(F32)
    assert mode.keeps_in(F16) and mode.keeps_out(F16)
    assert mode.ieee and not mode.dx10_clamp
    assert fo.encode(F32, Fraction(1, 3), fo.NEAREST) == 0x3EAAAAAB
    assert isinstance(VOP2_OPS["v_add_f32"], Op)
