"""VOP2: every row, both encodings, against exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.isa import float_oracle as fo
from tests.support.isa.assembly import VOP2, assemble_each, row_names
from tests.support.isa.builders import fields, mad16, s24
from tests.support.isa.float_oracle import F32, Mode
from tests.support.isa.int_oracle import clamp_s, low, signed
from tests.support.isa.machine import DEFAULT_MODE, Machine
from tests.support.isa.table_vop2 import VOP2_OPS
from tests.support.isa.vectors import BOTH_MODES, Op, check_forms, text_of

# With a literal of their own: no operand list as the others have, tested by test_literal_operand.
LITERAL_OPS = ("v_fmamk_f32", "v_fmaak_f32", "v_madmk_f16", "v_madak_f16")
K32, K16 = 0x40490FDB, 0x4248  # pi


def test_every_row_has_a_vector() -> None:
    assert row_names(VOP2) == {*VOP2_OPS, *LITERAL_OPS}


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(
        text_of(name, op, form) for name, op in VOP2_OPS.items() for form in ("_e32", "_e64")
    )


@pytest.mark.parametrize("name", VOP2_OPS)
def test_both_encodings(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = VOP2_OPS[name]
    codes = []
    for form in ("_e32", "_e64"):
        words = code[text_of(name, op, form)]
        if words is not None:
            codes.append((name + form, words))
    assert codes
    check_forms(name, op, codes, BOTH_MODES if "f" in op.dst else (DEFAULT_MODE,))


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (
            f"v_fmamk_f32 v16, v0, {K32:#x}, v4",
            Op("f32", ("f32", "f32"), lambda m, a, b: fo.fma(F32, m, a, K32, b)),
        ),
        (
            f"v_fmaak_f32 v16, v0, v4, {K32:#x}",
            Op("f32", ("f32", "f32"), lambda m, a, b: fo.fma(F32, m, a, b, K32)),
        ),
        (
            f"v_madmk_f16 v16, v0, {K16:#x}, v4",
            Op("f16", ("f16", "f16"), lambda m, a, b: mad16(m, a, K16, b)),
        ),
        (
            f"v_madak_f16 v16, v0, v4, {K16:#x}",
            Op("f16", ("f16", "f16"), lambda m, a, b: mad16(m, a, b, K16)),
        ),
    ],
)
def test_literal_operand(text: str, op: Op) -> None:
    words = assemble_each([text])[text]
    assert words is not None and len(words) == 2
    check_forms(text, op, [(text, words)], BOTH_MODES)


def test_literal_operand_shared_by_two_sources() -> None:
    """src0 may name the same literal as K."""
    m = Machine(seed=3)
    m.run(f"v_fmamk_f32 v16, {K32:#x}, {K32:#x}, v4")
    want = [fo.fma(F32, Mode(m.mode), K32, K32, int(x)) for x in m.v[4]]
    assert m.v[16].tolist() == want


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("v_add_u32", lambda a, b: min(a + b, 0xFFFFFFFF)),
        ("v_sub_u32", lambda a, b: max(a - b, 0)),
        ("v_subrev_u32", lambda a, b: max(b - a, 0)),
        ("v_add_u16", lambda a, b: min(a + b, 0xFFFF)),
        ("v_sub_u16", lambda a, b: max(a - b, 0)),
        ("v_subrev_u16", lambda a, b: max(b - a, 0)),
        ("v_mul_i32_i24", lambda a, b: low(clamp_s(s24(a) * s24(b), 32))),
        ("v_mul_u32_u24", lambda a, b: min((a & 0xFFFFFF) * (b & 0xFFFFFF), 0xFFFFFFFF)),
        ("v_add_co_u32", lambda a, b: (min(a + b, 0xFFFFFFFF), a + b > 0xFFFFFFFF)),
        ("v_subb_co_u32", lambda a, b, c: (max(a - b - c, 0), b + c > a)),
        (
            "v_dot4c_i32_i8",
            lambda a, b, c: low(
                clamp_s(
                    signed(c, 32)
                    + sum(x * y for x, y in zip(fields(a, 8), fields(b, 8), strict=True)),
                    32,
                )
            ),
        ),
    ],
)
def test_integer_clamp_saturates(name: str, function: Callable[..., object]) -> None:
    base = VOP2_OPS[name]
    op = Op(
        base.dst, base.srcs, lambda _m, *a: function(*a), acc=base.acc, carry_in=base.carry_in,
        carry_out=base.carry_out,
    )  # fmt: skip
    text = text_of(name, op, "_e64") + " clamp"
    words = assemble_each([text])[text]
    assert words is not None
    check_forms(text, op, [(text, words)])


def test_wide_addition_by_carry_chain() -> None:
    """64- and 96-bit sums through VCC and through an SGPR pair that is read and written."""
    m = Machine(seed=4)
    parts = m.v[0:6].astype(object)
    a = parts[0] + (parts[1] << 32) + (parts[2] << 64)
    b = parts[3] + (parts[4] << 32) + (parts[5] << 64)
    m.run(
        "v_add_co_u32 v10, vcc, v0, v3\nv_addc_co_u32 v11, vcc, v1, v4, vcc\n"
        "v_addc_co_u32 v12, vcc, v2, v5, vcc\n"
        "v_sub_co_u32 v20, s[8:9], v0, v3\nv_subb_co_u32 v21, s[8:9], v1, v4, s[8:9]\n"
        "v_subb_co_u32 v22, s[8:9], v2, v5, s[8:9]"
    )
    for first, want in ((10, a + b), (20, a - b)):
        got = [m.v[first + i].astype(object) for i in range(3)]
        assert (got[0] + (got[1] << 32) + (got[2] << 64) == want % (1 << 96)).all()
    carries = sum(1 << i for i, x in enumerate(a + b) if x >> 96)
    borrows = sum(1 << i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x < y)
    assert m.vcc == carries and m.pair(8) == borrows
