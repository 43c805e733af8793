"""What gfx950 brought to the vector ALU, and its 8-bit floats, against exact arithmetic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.support.isa import table_vop1, table_vop2, table_vop3
from tests.support.isa.assembly import VOP1, VOP2, VOP3, VOP3P, assemble_each, row_names
from tests.support.isa.builders import plain
from tests.support.isa.float_oracle import F16, F32, Mode, clamp01
from tests.support.isa.int_oracle import low
from tests.support.isa.machine import ALL_LANES, DEFAULT_MODE, LANES, Machine, MachineFault
from tests.support.isa.table_gfx950 import (
    VOP1_OPS,
    VOP2_OPS,
    VOP3_OPS,
    dot2_bf16,
    maximum3,
    minimum3,
    prng,
    to_bf16,
)
from tests.support.isa.vectors import BOTH_MODES, HOLES, Op, check_forms, text_of

CPU = "gfx950"
FP16_OVFL = 1 << 23
MODES = (*BOTH_MODES, DEFAULT_MODE | FP16_OVFL)
FORMS = {
    **{name: (op, ("_e32", "_e64")) for name, op in {**VOP1_OPS, **VOP2_OPS}.items()},
    **{name: (op, ("",)) for name, op in VOP3_OPS.items()},
}
# Tested one by one below, or in test_scaled.
OTHERS = {
    *("v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_bitop3_b16", "v_bitop3_b32"),
    *("v_dot2_f32_bf16", "v_pk_minimum3_f16", "v_pk_maximum3_f16"),
}


@pytest.mark.parametrize("fmt", [VOP1, VOP2, VOP3, VOP3P])
def test_every_new_row_has_a_vector(fmt: int) -> None:
    new = row_names(fmt, CPU) - row_names(fmt)
    valu = {n for n in new if not n.startswith(("v_mfma", "v_smfmac", "v_cvt_scalef32"))}
    assert valu <= FORMS.keys() | OTHERS


@pytest.mark.parametrize("name", FORMS)
def test_plain(name: str) -> None:
    op, forms = FORMS[name]
    texts = [text_of(name, op, form) for form in forms]
    codes = assemble_each(texts, CPU)
    encodings = [(text, words) for text in texts if (words := codes[text]) is not None]
    assert encodings
    check_forms(name, op, encodings, MODES, count=320, cpu=CPU)


OLD_TABLES = {
    **{n: (op, ("_e32", "_e64")) for n, op in table_vop1.VOP1_OPS.items()},
    **{n: (op, ("_e32", "_e64")) for n, op in table_vop2.VOP2_OPS.items()},
    **{n: (op, ("",)) for n, op in table_vop3.VOP3_OPS.items()},
}


def check_old(name: str, count: int) -> None:
    op, forms = OLD_TABLES[name]
    texts = [text_of(name, op, form) for form in forms]
    codes = assemble_each(texts, CPU)
    encodings = [(text, words) for text in texts if (words := codes[text]) is not None]
    assert encodings
    check_forms(name, op, encodings, (DEFAULT_MODE,), count=count, cpu=CPU)


@pytest.mark.parametrize("name", sorted(OLD_TABLES.keys() - FORMS.keys())[::12])
def test_shared_rows_are_as_before(name: str) -> None:
    check_old(name, 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OLD_TABLES.keys() - FORMS.keys()))
def test_all_shared_rows_are_as_before(name: str) -> None:
    check_old(name, 320)


# ---- op_sel, clamp, DPP, SDWA -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32", "v_cvt_pk_fp8_f32"])
def test_results_in_the_upper_half(name: str) -> None:
    op = VOP3_OPS[name]

    def run(m: Mode, a: int, b: int, old: int) -> int:
        result = op.fn(m, a, b, 0)
        assert isinstance(result, int)
        return old & 0xFFFF | result << 16

    text = text_of(name, op, "") + " op_sel:[0,0,1]"
    words = assemble_each([text], CPU)[text]
    assert words is not None
    check_forms(text, dataclasses.replace(op, fn=run), [(text, words)], count=128, cpu=CPU)


@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("name", ["v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"])
def test_stochastic_bytes(name: str, byte: int) -> None:
    op = VOP3_OPS[name]

    def run(m: Mode, a: int, b: int, old: int) -> int:
        result = op.fn(m, a, b, 0)
        assert isinstance(result, int)
        return old & ~(0xFF << 8 * byte) | result << 8 * byte

    text = text_of(name, op, "") + f" op_sel:[0,0,{byte & 1},{byte >> 1}]"
    words = assemble_each([text], CPU)[text]
    assert words is not None
    check_forms(text, dataclasses.replace(op, fn=run), [(text, words)], count=128, cpu=CPU)


@pytest.mark.parametrize("name", ["v_minimum3_f32", "v_maximum3_f32"])
@pytest.mark.parametrize("mode", MODES)
def test_clamp_turns_nan_into_zero(name: str, mode: int) -> None:
    op = VOP3_OPS[name]

    def run(m: Mode, a: int, b: int, c: int) -> int:
        result = op.fn(m, a ^ F32.sign, b, c & ~F32.sign)
        assert isinstance(result, int)
        return clamp01(F32, m, result)

    text = f"{name} v16, -v0, v4, |v8| clamp"
    words = assemble_each([text], CPU)[text]
    assert words is not None
    check_forms(text, dataclasses.replace(op, fn=run), [(text, words)], (mode,), cpu=CPU)


def test_ashr_pk_of_the_upper_half() -> None:
    m = Machine(seed=1, cpu=CPU)
    m.v[2] = 1000
    old = m.v[3].copy()
    m.run("v_ashr_pk_u8_i32 v3, v2, v2, 3 op_sel:[0,0,0,1]")
    assert (m.v[3] == (old & 0xFFFF | 0x7D7D0000)).all()


def test_bf16_of_dpp_and_sdwa() -> None:
    m = Machine(seed=2, cpu=CPU)
    v = m.v.copy()
    m.run(
        "v_cvt_f32_bf16_sdwa v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1\n"
        "v_cvt_f32_bf16_sdwa v3, -v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0\n"
        "v_cvt_f32_bf16_dpp v4, |v2| row_newbcast:5 row_mask:0xf bank_mask:0xf\n"
        "v_cvt_f32_bf16 v5, -2.0\nv_cvt_f32_bf16 v6, 0x1234\nv_cvt_f32_bf16_e64 v7, -v2"
    )
    assert (m.v[1] == v[2] & 0xFFFF0000).all()
    assert (m.v[3] == (v[2] << 16 ^ 0x80000000)).all()
    broadcast = v[2].reshape(4, 16)[:, 5].repeat(16)
    assert (m.v[4] == (broadcast << 16 & 0x7FFFFFFF)).all()
    assert (m.v[5] == 0xC0000000).all() and (m.v[6] == 0x12340000).all()
    assert (m.v[7] == (v[2] << 16 ^ 0x80000000)).all()


def test_a_number_that_both_formats_hold_comes_back() -> None:
    m = Machine(seed=3, cpu=CPU)
    number = m.v[0] & 0x7F80 != 0x7F80
    m.run("v_cvt_f32_bf16 v1, v0\nv_cvt_pk_bf16_f32 v2, v1, v1")
    assert (m.v[2] == (m.v[0] & 0xFFFF) * 0x10001)[number].all()


# ---- v_bitop3 -----------------------------------------------------------------------------------


def looked_up(table: int, bits: int) -> Op:
    def run(a: int, b: int, c: int) -> int:
        rows = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1 for i in range(bits))
        return sum((table >> row & 1) << i for i, row in enumerate(rows))

    kind = f"b{bits}" if bits == 32 else "u16"
    return plain(kind, f"{kind} {kind} {kind}", run, keeps_high=True)


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("table", [0, 1, 0x14, 0x40, 0x96, 0xCA, 0xEA, 0xFE, 0xFF, 0x35])
def test_bitop3(bits: int, table: int) -> None:
    op = looked_up(table, bits)
    text = text_of(f"v_bitop3_b{bits}", op, "") + f" bitop3:{table}"
    words = assemble_each([text], CPU)[text]
    assert words is not None
    check_forms(text, op, [(text, words)], count=128, cpu=CPU)


def test_bitop3_of_halves() -> None:
    m = Machine(seed=4, cpu=CPU)
    v = m.v.copy()
    m.run("v_bitop3_b16 v16, v0, v4, v8 bitop3:0x96 op_sel:[1,0,1,1]")
    want = v[0] >> 16 ^ v[4] & 0xFFFF ^ v[8] >> 16
    assert (m.v[16] == (v[16] & 0xFFFF | want << 16)).all()


# ---- VOP3P --------------------------------------------------------------------------------------


def halves(word: int) -> tuple[int, int]:
    return word & 0xFFFF, word >> 16


@pytest.mark.parametrize("mode", BOTH_MODES)
@pytest.mark.parametrize("name", ["minimum3", "maximum3"])
def test_packed_extremes(name: str, mode: int) -> None:
    fn = {"minimum3": minimum3, "maximum3": maximum3}[name]

    def run(m: Mode, a: int, b: int, c: int) -> int:
        lows, highs = zip(*map(halves, (a, b, c)), strict=True)
        return fn(F16, m, *lows) | fn(F16, m, *highs) << 16

    op = Op("pf16", ("pf16",) * 3, run)
    text = text_of(f"v_pk_{name}_f16", op, "")
    words = assemble_each([text], CPU)[text]
    assert words is not None
    check_forms(text, op, [(text, words)], (mode,), cpu=CPU)

    def modified(m: Mode, a: int, b: int, c: int) -> int:
        (a0, a1), (b0, b1), (c0, c1) = map(halves, (a, b, c))
        low = fn(F16, m, a1, b0, c0 ^ 0x8000)
        return clamp01(F16, m, low) | clamp01(F16, m, fn(F16, m, a0, b1 ^ 0x8000, c1)) << 16

    text += " op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,0,1] neg_hi:[0,1,0] clamp"
    words = assemble_each([text], CPU)[text]
    assert words is not None
    op = dataclasses.replace(op, fn=modified)
    check_forms(text, op, [(text, words)], (mode,), count=128, cpu=CPU)


@pytest.mark.parametrize("mode", [*BOTH_MODES, DEFAULT_MODE | 0xF, DEFAULT_MODE | 0x2])
def test_dot2(mode: int) -> None:
    """Whatever MODE says of rounding and denormals."""
    op = Op("f32", ("pbf16", "pbf16", "f32"), dot2_bf16)
    text = text_of("v_dot2_f32_bf16", op, "")
    words = assemble_each([text], CPU)[text]
    assert words is not None
    check_forms(text, op, [(text, words)], (mode,), cpu=CPU)
    if mode != DEFAULT_MODE:
        op = VOP2_OPS["v_dot2c_f32_bf16"]
        text = text_of("v_dot2c_f32_bf16", op, "_e32")
        words = assemble_each([text], CPU)[text]
        assert words is not None
        check_forms(text, op, [(text, words)], (mode,), cpu=CPU)


def test_dot2_with_signs_and_dpp() -> None:
    m = Machine(seed=5, cpu=CPU)
    one, two, three = 0x3F80, 0x4000, 0x4040
    m.v[0], m.v[1] = three << 16 | two, two << 16 | one
    m.v[2] = np.float32(0.5).view(np.uint32)
    m.v[3] = m.v[2]
    m.v[0, 16:] = one  # of other rows' first lanes
    m.run(
        "v_dot2_f32_bf16 v4, v0, v1, v2 neg_lo:[1,0,0] neg_hi:[0,1,0]\n"
        "v_dot2_f32_bf16 v5, 1.0, v1, v2\n"
        "v_dot2c_f32_bf16_dpp v3, v0, v1 row_newbcast:0 row_mask:0x1 bank_mask:0xf"
    )
    assert (m.v[4, :16].view(np.float32) == 0.5 - 2 - 6).all()
    assert (m.v[5].view(np.float32) == 1.5).all()  # the constant lies in the lower half
    assert (m.v[3, :16].view(np.float32) == 0.5 + 2 + 6).all()
    assert (m.v[3, 16:] == m.v[2, 16:]).all()


# ---- between lanes ------------------------------------------------------------------------------


def swapped(a: np.ndarray, b: np.ndarray, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """The manual: odd groups of the first with the even ones before them of the second."""
    a, b = a.copy(), b.copy()
    for lane in range(LANES):
        if not lane // distance % 2:
            a[lane + distance], b[lane] = b[lane], a[lane + distance]
    return a, b


@pytest.mark.parametrize("suffix", ["_e32", "_e64"])
@pytest.mark.parametrize("distance", [16, 32])
def test_swaps_of_rows(distance: int, suffix: str) -> None:
    m = Machine(seed=6, cpu=CPU)
    a, b = swapped(m.v[3], m.v[9], distance)
    m.run(f"v_permlane{distance}_swap_b32{suffix} v3, v9")
    assert (m.v[3] == a).all() and (m.v[9] == b).all()
    m.run(f"v_permlane{distance}_swap_b32{suffix} v3, v9")  # its own inverse
    assert (m.v[3] == Machine(seed=6, cpu=CPU).v[3]).all()


@pytest.mark.parametrize("modifiers", ["", " bound_ctrl:1", " fi:1", " bound_ctrl:1 fi:1"])
@pytest.mark.parametrize("distance", [16, 32])
def test_swaps_with_inactive_lanes(distance: int, modifiers: str) -> None:
    """As with DPP: a lane that is inactive reads nothing; from one, 0 or the old value is read."""
    m = Machine(seed=7, cpu=CPU)
    m.exec = HOLES
    old = m.v[3].copy(), m.v[9].copy()
    new = swapped(*old, distance)
    partner = np.arange(LANES)
    partner = np.where(partner // distance % 2, partner - distance, partner + distance)
    readable = m.lanes[partner]
    m.run(f"v_permlane{distance}_swap_b32_e64 v3, v9{modifiers}")
    moves = [np.arange(LANES) // distance % 2 == side for side in (1, 0)]
    for reg, before, after, moved in zip((3, 9), old, new, moves, strict=True):
        if "fi" in modifiers:
            value = after
        else:
            value = np.where(readable, after, 0 if "bound" in modifiers else before)
        want = np.where(m.lanes & moved, value, before)
        assert (m.v[reg] == want).all()


def test_prng_has_the_longest_period_there_is() -> None:
    """Its step is invertible, and of 0 it is 0."""
    assert prng(0) == 0
    m = Machine(seed=8, cpu=CPU)
    start = m.v[0].copy()
    m.run("v_prng_b32 v1, v0\nv_prng_b32_e64 v2, 1\nv_prng_b32 v3, v1")
    assert [int(x) for x in m.v[1]] == [prng(int(x)) for x in start]
    assert (m.v[2] == 2).all()
    back = np.where(m.v[1] & 1, (m.v[1] ^ 197) >> 1 | 0x80000000, m.v[1] >> 1)
    assert (back == start).all()


def test_nan_of_bf16_stays_one() -> None:
    assert to_bf16(Mode(DEFAULT_MODE), 0x7F800001) == 0x7F81
    assert low(to_bf16(Mode(DEFAULT_MODE), 0xFFC00000), "u16") == 0xFFC0


@pytest.mark.parametrize(
    "text",
    [
        *("v_permlane16_swap_b32 v1, v2", "v_prng_b32 v1, v2", "v_cvt_f32_bf16 v1, v2"),
        *("v_bitop3_b32 v1, v2, v3, v4", "v_cvt_pk_bf16_f32 v1, v2, v3"),
        *("v_minimum3_f32 v1, v2, v3, v4", "v_dot2_f32_bf16 v1, v2, v3, v4"),
    ],
)
def test_gfx942_has_none_of_them(text: str) -> None:
    words = assemble_each([text], CPU)[text]
    assert words is not None
    with pytest.raises(MachineFault):
        Machine(seed=9).run(words)
    Machine(seed=9, cpu=CPU).run(words)


def test_exec_of_all_lanes_is_the_plain_path() -> None:
    """Results with every lane and with all but one are the same."""
    for name, (op, forms) in FORMS.items():
        whole, partial = Machine(seed=10, cpu=CPU), Machine(seed=10, cpu=CPU)
        partial.exec = ALL_LANES >> 1
        text = text_of(name, op, forms[0])
        whole.run(text)
        partial.run(text)
        assert (whole.v[:, :63] == partial.v[:, :63]).all(), name
