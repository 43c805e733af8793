"""SOPP and program control: branches, calls, MODE and hardware registers, GPR indexing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.assembly import SOPP, row_names
from tests.support.isa.machine import (
    ALL_LANES,
    DEFAULT_MODE,
    EXEC,
    M0,
    VCC,
    FaultKind,
    Machine,
    MachineFault,
)
from tests.support.isa.vectors import HOLES

GPR_IDX_EN, VSKIP = 1 << 27, 1 << 28
BRANCHES = {
    "s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz",
    "s_cbranch_execz", "s_cbranch_execnz",
}  # fmt: skip
NOTHING = (
    "s_nop 7", "s_wakeup", "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)", "s_sleep 3", "s_setprio 2",
    "s_trap 3",
    "s_sendmsg sendmsg(MSG_INTERRUPT)", "s_icache_inv", "s_incperflevel 1", "s_decperflevel 1",
    "s_ttracedata", "s_cbranch_cdbgsys 3", "s_cbranch_cdbguser 3", "s_cbranch_cdbgsys_or_user 3",
    "s_cbranch_cdbgsys_and_user 3", "s_barrier",
)  # fmt: skip
ENDS = ("s_endpgm", "s_endpgm_saved")
FAULTS = {
    "s_setkill 1": FaultKind.ILLEGAL_INSTRUCTION,
    "s_sethalt 1": FaultKind.ILLEGAL_INSTRUCTION,
    "s_sendmsghalt sendmsg(MSG_INTERRUPT)": FaultKind.ILLEGAL_INSTRUCTION,
    "s_trap 2": FaultKind.TRAP,
    "s_endpgm_ordered_ps_done": FaultKind.ILLEGAL_INSTRUCTION,
}
INDEXING = {"s_set_gpr_idx_off", "s_set_gpr_idx_mode"}


def test_every_row_has_a_vector() -> None:
    single = {t.split()[0] for t in (*NOTHING, *ENDS, *FAULTS)}
    assert row_names(SOPP) == {*BRANCHES, *single, *INDEXING}


@pytest.mark.parametrize("text", NOTHING)
def test_leaves_state_alone(text: str) -> None:
    m = Machine(seed=1)
    v, s = m.v.copy(), m.s.copy()
    run = m.run(text)
    assert (m.v == v).all() and (m.s == s).all() and run.instructions == 1
    assert m.mode == DEFAULT_MODE and m.scc == 0


@pytest.mark.parametrize("text", ENDS)
def test_end_of_program(text: str) -> None:
    m = Machine(seed=2)
    m.s[3] = 1
    m.run(f"{text}\ns_mov_b32 s3, 2")
    assert m.s[3] == 1


@pytest.mark.parametrize("text", FAULTS)
def test_faults(text: str) -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run("s_nop 0\n" + text)
    assert fault.value.kind == FAULTS[text] and fault.value.pc == 1


@pytest.mark.parametrize(
    ("name", "taken", "not_taken"),
    [
        ("s_branch", {}, None),
        ("s_cbranch_scc0", {"scc": 0}, {"scc": 1}),
        ("s_cbranch_scc1", {"scc": 1}, {"scc": 0}),
        ("s_cbranch_vccz", {"vcc": 0}, {"vcc": 1 << 63}),
        ("s_cbranch_vccnz", {"vcc": 1 << 63}, {"vcc": 0}),
        ("s_cbranch_execz", {"exec": 0}, {"exec": 1 << 32}),
        ("s_cbranch_execnz", {"exec": 1 << 32}, {"exec": 0}),
    ],
)
def test_branch(name: str, taken: dict[str, int], not_taken: dict[str, int] | None) -> None:
    code = f"s_mov_b32 s0, 1\n{name} over\ns_mov_b32 s0, 2\nover: s_mov_b32 s1, 3"
    for state, want in ((taken, 1), (not_taken, 2)):
        if state is None:
            continue
        m = Machine(seed=3)
        for field, value in state.items():
            setattr(m, field, value)
        m.run(code)
        assert m.s[:2].tolist() == [want, 3]


def test_loop_counts_down() -> None:
    m = Machine(seed=4)
    run = m.run(
        "s_movk_i32 s0, 10\ns_mov_b32 s1, 0\nloop: s_add_u32 s1, s1, s0\ns_sub_u32 s0, s0, 1\n"
        "s_cmp_lg_u32 s0, 0\ns_cbranch_scc1 loop"
    )
    assert m.s[1] == 55 and run.instructions == 2 + 4 * 10


def test_runaway_loop_is_stopped() -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run("loop: s_branch loop", max_instructions=1000)
    assert fault.value.kind == FaultKind.RUNAWAY


def test_branch_out_of_the_code_faults() -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run("s_branch 0x7000")
    assert fault.value.kind == FaultKind.OUTSIDE_CODE


def test_call_and_return() -> None:
    m = Machine(seed=5)
    m.run(
        "s_mov_b32 s0, 1\ns_call_b64 s[30:31], function\ns_add_u32 s0, s0, 100\ns_endpgm\n"
        "function: s_lshl_b32 s0, s0, 3\ns_setpc_b64 s[30:31]"
    )
    assert m.s[0] == 108


def test_getpc_and_swappc() -> None:
    m = Machine(seed=6)
    m.run(
        "s_getpc_b64 s[2:3]\nhere: s_add_u32 s4, s2, target-here\ns_addc_u32 s5, s3, 0\n"
        "s_swappc_b64 s[6:7], s[4:5]\nback: s_mov_b32 s1, 7\ns_endpgm\n"
        "target: s_mov_b32 s0, 5\ns_setpc_b64 s[6:7]"
    )
    assert m.s[:2].tolist() == [5, 7]
    # s_add_u32 carries its literal: two dwords; then s_addc_u32 and s_swappc_b64.
    assert m.pair(6) == m.pair(2) + 4 * 4


def test_swappc_reads_the_target_before_it_writes() -> None:
    m = Machine(seed=7)
    m.run(
        "s_getpc_b64 s[2:3]\nhere: s_add_u32 s2, s2, target-here\ns_addc_u32 s3, s3, 0\n"
        "s_swappc_b64 s[2:3], s[2:3]\ns_endpgm\ntarget: s_mov_b32 s0, 5"
    )
    assert m.s[0] == 5


def test_setpc_outside_the_code_faults() -> None:
    m = Machine(seed=8)
    m.set_pair(2, 0x1234)
    with pytest.raises(MachineFault) as fault:
        m.run("s_setpc_b64 s[2:3]")
    assert fault.value.kind == FaultKind.OUTSIDE_CODE


# ---- hardware registers -------------------------------------------------------------------------


def test_getreg_of_mode() -> None:
    m = Machine(seed=9, mode=0x2F5)
    m.run(
        "s_getreg_b32 s0, hwreg(HW_REG_MODE)\ns_getreg_b32 s1, hwreg(HW_REG_MODE, 4, 4)\n"
        "s_getreg_b32 s2, hwreg(HW_REG_MODE, 9, 1)"
    )
    assert m.s[:3].tolist() == [0x2F5, 0xF, 1]


def test_setreg_changes_only_its_field() -> None:
    m = Machine(seed=10)
    m.s[3] = 0xFFFFFFFD
    m.run("s_setreg_b32 hwreg(HW_REG_MODE, 0, 2), s3")
    assert m.mode == DEFAULT_MODE | 1
    m.run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\ns_setreg_imm32_b32 hwreg(1, 9, 1), 0xe")
    assert m.mode == (DEFAULT_MODE | 1) & ~0x230


def test_setreg_takes_effect_on_the_next_instruction() -> None:
    """1 + 2^-24 rounds up only toward +inf."""
    m = Machine(seed=11)
    m.v[0] = 0x33800000
    m.run(
        "v_add_f32 v1, 1.0, v0\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\n"
        "v_add_f32 v2, 1.0, v0\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3\n"
        "v_add_f32 v3, 1.0, v0"
    )
    assert [int(m.v[i, 0]) for i in (1, 2, 3)] == [0x3F800000, 0x3F800001, 0x3F800000]


def test_getreg_of_status() -> None:
    m = Machine(seed=12)
    m.scc, m.exec, m.vcc = 1, 0, 5
    m.run("s_getreg_b32 s0, hwreg(HW_REG_STATUS)")
    assert m.s[0] & 1 and m.s[0] >> 9 & 1 and not m.s[0] >> 10 & 1


@pytest.mark.parametrize(
    ("register", "value"),
    [
        ("HW_REG_TRAPSTS", 0),
        ("HW_REG_HW_ID", 0),  # the first wave of the first workgroup
        ("HW_REG_IB_STS", 0),
        ("HW_REG_LDS_ALLOC", 3 << 12),  # in 512 bytes, rounded up
        ("HW_REG_LDS_ALLOC, 12, 9", 3),
        ("HW_REG_XCC_ID", 0),
    ],
)
def test_identity_registers(register: str, value: int) -> None:
    """Of a bare wave; tests/virtual_device/core has those of launches."""
    m = Machine(seed=19, lds_bytes=1032)
    s = m.s.copy()
    m.run(f"s_getreg_b32 s0, hwreg({register})")
    s[0] = value
    assert (m.s == s).all()


def test_bases_of_the_apertures() -> None:
    """High halves of what src_private_base and src_shared_base give."""
    m = Machine(seed=20)
    m.run(
        "s_getreg_b32 s0, hwreg(HW_REG_SH_MEM_BASES)\ns_mov_b64 s[2:3], src_private_base\n"
        "s_mov_b64 s[4:5], src_shared_base"
    )
    assert m.s[0] & 0xFFFF == m.s[3] >> 16 and m.s[0] >> 16 == m.s[5] >> 16
    assert m.s[0] & 0xFFFF != m.s[0] >> 16


@pytest.mark.parametrize(
    "text", ["s_getreg_b32 s0, hwreg(40)", "s_setreg_b32 hwreg(HW_REG_STATUS), s0"]
)
def test_unknown_hardware_registers_are_refused(text: str) -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run(text)
    assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION


# ---- GPR indexing and VSKIP ---------------------------------------------------------------------


def test_gpr_index_registers() -> None:
    m = Machine(seed=13)
    m.s[M0], m.s[5] = 0xABCDEF12, 0x107
    m.run("s_set_gpr_idx_on s5, gpr_idx(SRC0,DST)\ns_mov_b32 s0, m0")
    assert m.s[0] == 0xABCD9F07 and m.mode == DEFAULT_MODE | GPR_IDX_EN
    m.run("s_set_gpr_idx_mode gpr_idx(SRC1)\ns_mov_b32 s1, m0\ns_set_gpr_idx_idx 9\n"
          "s_mov_b32 s2, m0\ns_set_gpr_idx_off")  # fmt: skip
    assert m.s[1] == 0xABCD2F07 and m.s[2] == 0xABCD2F09 and m.mode == DEFAULT_MODE


@pytest.mark.parametrize(
    ("mode", "dst", "src0", "src1", "src2"),
    [
        ("SRC0", 0, 3, 0, 0),
        ("SRC1", 0, 0, 3, 0),
        ("SRC2", 0, 0, 0, 3),
        ("DST", 3, 0, 0, 0),
        ("SRC0,SRC1,SRC2,DST", 3, 3, 3, 3),
    ],
)
def test_gpr_indexing_moves_vector_operands(
    mode: str, dst: int, src0: int, src1: int, src2: int
) -> None:
    m = Machine(seed=14)
    m.exec = HOLES
    m.s[5] = 3
    v = m.v.copy()
    m.run(
        f"s_set_gpr_idx_on s5, gpr_idx({mode})\nv_add3_u32 v10, v20, v30, v40\n"
        "s_set_gpr_idx_off\nv_mov_b32 v60, v61"
    )
    total = v[20 + src0] + v[30 + src1] + v[40 + src2]
    v[10 + dst] = np.where(m.lanes, total, v[10 + dst])
    v[60] = np.where(m.lanes, v[61], v[60])
    assert (m.v == v).all()


def test_gpr_indexing_leaves_scalar_operands_alone() -> None:
    m = Machine(seed=15)
    m.s[5] = 4
    v, s7 = m.v.copy(), m.s[7]
    m.run("s_set_gpr_idx_on s5, gpr_idx(SRC0,SRC1,DST)\nv_add_u32 v10, s7, v20\ns_set_gpr_idx_off")
    v[14] = v[24] + s7
    assert (m.v == v).all()


def test_gpr_indexing_beyond_the_file_is_refused() -> None:
    m = Machine(seed=16)
    m.s[5] = 200
    with pytest.raises(MachineFault):
        m.run("s_set_gpr_idx_on s5, gpr_idx(SRC0)\nv_mov_b32 v0, v100")


def test_vskip_skips_vector_instructions() -> None:
    m = Machine(seed=17)
    v = m.v.copy()
    m.run(
        "s_setvskip -1, 0\nv_mov_b32 v0, 1\ns_mov_b32 s0, 4\nv_cmp_eq_u32 vcc, v0, v0\n"
        "s_setvskip 0, 0\nv_mov_b32 v1, 5"
    )
    v[1] = 5
    assert (m.v == v).all() and m.s[0] == 4 and m.s[VCC] == 0 and m.mode == DEFAULT_MODE


def test_writing_exec_changes_the_next_vector_instruction() -> None:
    m = Machine(seed=18)
    v = m.v.copy()
    m.run("s_mov_b64 exec, 0xf\nv_mov_b32 v0, 1\ns_mov_b64 exec, -1\nv_mov_b32 v1, 2")
    v[0, :4], v[1] = 1, 2
    assert (m.v == v).all() and m.exec == ALL_LANES and m.pair(EXEC) == ALL_LANES
