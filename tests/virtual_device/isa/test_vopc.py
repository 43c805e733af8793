"""VOPC: every compare, both encodings; the v_cmpx forms write EXEC too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.assembly import VOPC, assemble_each, row_names
from tests.support.isa.machine import ALL_LANES, DEFAULT_MODE, EXEC, LANES, VCC, Machine
from tests.support.isa.table_vopc import VOPC_OPS
from tests.support.isa.vectors import (
    BOTH_MODES,
    CARRY_OUT,
    HOLES,
    Outcome,
    Vector,
    compare,
    operand_sets,
    shared_machine,
    text_of,
)


def test_every_row_has_a_vector() -> None:
    assert row_names(VOPC) == {*VOPC_OPS}


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(
        text_of(name, op, form) for name, op in VOPC_OPS.items() for form in ("_e32", "_e64")
    )


@pytest.mark.parametrize("name", VOPC_OPS)
def test_both_encodings(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = VOPC_OPS[name]
    writes_exec = name.startswith("v_cmpx")
    m = shared_machine()
    modes = BOTH_MODES if op.srcs[0][0] == "f" else (DEFAULT_MODE,)
    for mode in modes:
        sets = operand_sets(op.srcs, 3 * LANES, mode)
        for n, exec_mask in enumerate((ALL_LANES, HOLES, 0)):
            vector = Vector(op, sets[n * LANES : (n + 1) * LANES], exec_mask, mode)
            _, mask = vector.results()
            for form, target in (("_e32", VCC), ("_e64", CARRY_OUT)):
                text = text_of(name, op, form)
                words = code[text]
                assert words is not None
                vector.load(m, short=form == "_e32")
                want = Outcome(m.v.copy(), m.s.copy())
                for pair in (target, EXEC) if writes_exec else (target,):
                    want.s[pair : pair + 2] = mask & 0xFFFFFFFF, mask >> 32
                m.run(words)
                compare(text, vector, m, want)


def test_result_may_be_exec_or_vcc() -> None:
    m = Machine(seed=1)
    m.exec = HOLES
    greater = sum(1 << i for i in range(LANES) if m.v[0, i] > m.v[1, i])
    m.run("v_cmp_gt_u32_e64 vcc, v0, v1\nv_cmp_gt_u32_e64 exec, v0, v1")
    assert m.vcc == m.exec == greater & HOLES


def test_cmpx_of_no_lane_empties_exec() -> None:
    m = Machine(seed=2)
    m.exec = HOLES
    m.run("v_cmpx_f_f32 vcc, v0, v1\nv_mov_b32 v5, 0")
    assert m.exec == m.vcc == 0 and np.count_nonzero(m.v[5]) > 0


def test_scalar_and_constant_operands() -> None:
    m = Machine(seed=3)
    m.v[0] = np.arange(LANES)
    m.s[3] = 40
    m.run("v_cmp_gt_u32 vcc, s3, v0\nv_cmp_eq_u32_e64 s[8:9], v0, 17\nv_cmp_gt_u32 s[4:5], v0, s3")
    assert m.vcc == (1 << 40) - 1
    assert m.pair(8) == 1 << 17
    assert m.pair(4) == ALL_LANES & ~((1 << 41) - 1)


@pytest.mark.parametrize(("kind", "one"), [("f32", 0x3F800000), ("f16", 0x3C00)])
def test_class_ignores_denormal_mode(kind: str, one: int) -> None:
    for denormals in (0x000, 0x0F0):
        m = Machine(seed=4, mode=0x300 | denormals)
        m.v[0] = 1
        m.v[1] = one
        m.s[20], m.s[21] = 1 << 7, 1 << 8
        m.run(f"v_cmp_class_{kind} s[4:5], v0, s20\nv_cmp_class_{kind} s[6:7], v1, s21")
        assert m.pair(4) == m.pair(6) == ALL_LANES
