"""Where uninitialised bits are reported, and that carrying them about is not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.check.taint_machine import SCC, Bits, Finding, preassemble, step
from tests.support.isa.machine import EXEC, M0, VCC, Machine

ONES = 0xFFFFFFFF
ADDRESS, BRANCH, STORE = (
    "uninitialised_address",
    "uninitialised_branch",
    "uninitialised_store",
)


class Bench:
    """A wave whose v[0:1] holds lane addresses of memory, v2 small ones of LDS and scratch."""

    def __init__(self) -> None:
        self.m = Machine(seed=5, lds_bytes=1024, memory_bytes=4096, scratch_lane_bytes=64)
        lanes = np.arange(64, dtype=np.uint64)
        self.m.set_v64(0, self.m.address + 16 * lanes)
        self.m.v[2] = 16 * np.arange(64)
        self.m.v[3] = 4
        self.m.set_pair(4, self.m.address)
        self.m.s[8:12] = (self.m.address & ONES, self.m.address >> 32, 4096, 0x00020000)
        self.m.s[12], self.m.s[M0] = 16, 0
        self.bits = Bits(1024, 64)
        self.bits.lds[:] = self.bits.scratch[:] = 0

    def run(self, code: str) -> list[Finding]:
        return step(self.m, self.bits, code)


@pytest.fixture(scope="module")
def assembled() -> None:
    preassemble(code for table in (VECTOR_ADDRESSES, SCALAR_ADDRESSES, STORES) for _, code in table)
    preassemble(code for code, _, _ in PRECISE)


@pytest.fixture
def bench(assembled: None) -> Bench:
    return Bench()


# Register that is made uninitialised, the code that uses it, and what has to be said of it.
VECTOR_ADDRESSES = [
    (0, "global_load_dword v10, v[0:1], off"),
    (1, "global_load_dwordx4 v[10:13], v[0:1], off"),
    (0, "global_store_dword v[0:1], v3, off"),
    (1, "flat_load_dword v10, v[0:1]"),
    (1, "global_atomic_add v[0:1], v3, off"),
    (3, "global_load_dword v10, v3, s[4:5]"),
    (2, "ds_read_b32 v10, v2"),
    (2, "ds_write_b64 v2, v[4:5]"),
    (2, "ds_add_u32 v2, v3"),
    (2, "ds_read2_b32 v[10:11], v2 offset1:1"),
    (3, "buffer_load_dword v10, v3, s[8:11], 0 offen"),
    (3, "buffer_store_dword v4, v3, s[8:11], 0 offen"),
    (3, "scratch_load_dword v10, v3, off"),
    (3, "scratch_store_dword v3, v4, off"),
]


@pytest.mark.parametrize(("register", "code"), VECTOR_ADDRESSES, ids=str)
def test_vector_addresses(bench: Bench, register: int, code: str) -> None:
    assert bench.run(code) == []
    bench.bits.v[register, 5] = 0x10
    (found,) = bench.run(code)
    assert (found.kind, found.lane, found.where) == (ADDRESS, 5, f"v{register}")
    # One defect, one finding: the register counts as initialised from then on.
    assert bench.run(code) == []


@pytest.mark.parametrize(("register", "code"), VECTOR_ADDRESSES, ids=str)
def test_addresses_of_inactive_lanes_do_not_matter(bench: Bench, register: int, code: str) -> None:
    bench.m.exec = ~(1 << 5) & ((1 << 64) - 1)
    bench.bits.v[register, 5] = ONES
    assert bench.run(code) == []


SCALAR_ADDRESSES = [
    (4, "s_load_dword s20, s[4:5], 0x10"),
    (5, "s_load_dwordx8 s[20:27], s[4:5], 0x10"),
    (12, "s_load_dword s20, s[4:5], s12"),
    (10, "s_buffer_load_dword s20, s[8:11], 0"),
    (5, "global_load_dword v10, v3, s[4:5]"),
    (5, "global_store_dword v3, v4, s[4:5]"),
    (8, "buffer_load_dword v10, v3, s[8:11], 0 offen"),
    (11, "buffer_store_dword v4, v3, s[8:11], 0 offen"),
    (12, "buffer_load_dword v10, v3, s[8:11], s12 offen"),
    (12, "scratch_load_dword v10, off, s12"),
    (M0, "buffer_load_dword v3, s[8:11], 0 offen lds"),
    (M0, "global_load_lds_dword v[0:1], off"),
]


@pytest.mark.parametrize(("register", "code"), SCALAR_ADDRESSES, ids=str)
def test_scalar_addresses(bench: Bench, register: int, code: str) -> None:
    assert bench.run(code) == []
    bench.bits.s[register] = 1 << 20
    (found,) = bench.run(code)
    assert (found.kind, found.lane) == (ADDRESS, -1)
    assert found.where in (f"s{register}", "s[4:5]", "m0")
    assert bench.run(code) == []


def test_m0_does_not_matter_to_plain_lds_access(bench: Bench) -> None:
    bench.bits.s[M0] = ONES
    assert bench.run("ds_read_b32 v10, v2\nds_write_b32 v2, v3\nds_add_u32 v2, v3") == []


STORES = [
    (4, "global_store_dword v[0:1], v4, off"),
    (6, "global_store_dwordx4 v[0:1], v[4:7], off"),
    (4, "global_store_short v[0:1], v4, off"),
    (4, "flat_store_dword v[0:1], v4"),
    (4, "buffer_store_dword v4, v2, s[8:11], 0 offen"),
    (5, "buffer_store_dwordx2 v[4:5], v2, s[8:11], 0 offen"),
    (4, "buffer_store_byte v4, v2, s[8:11], 0 offen"),
    (4, "global_atomic_add v[0:1], v4, off"),
    (5, "global_atomic_cmpswap v[0:1], v[4:5], off"),
    (4, "global_atomic_swap v[0:1], v4, off"),
    (4, "buffer_atomic_add v4, v2, s[8:11], 0 offen"),
    (4, "tbuffer_store_format_x v4, v2, s[8:11], 0 format:68 offen"),
]


@pytest.mark.parametrize(("register", "code"), STORES, ids=str)
def test_stored_values(bench: Bench, register: int, code: str) -> None:
    assert bench.run(code) == []
    bench.bits.v[register, 63] = 0x01
    (found,) = bench.run(code)
    assert (found.kind, found.lane) == (STORE, 63)
    assert found.where.startswith("v")
    assert bench.run(code) == []


def test_bytes_that_are_not_stored_do_not_matter(bench: Bench) -> None:
    bench.bits.v[4] = 0xFFFF0000
    assert bench.run("global_store_short v[0:1], v4, off") == []
    (found,) = bench.run("global_store_short_d16_hi v[0:1], v4, off")
    assert found.kind == STORE
    bench.bits.v[4] = 0xFFFFFF00
    assert bench.run("global_store_byte v[0:1], v4, off") == []


def test_scalar_store(bench: Bench) -> None:
    bench.bits.s[20] = 1
    (found,) = bench.run("s_store_dword s20, s[4:5], 0x10")
    assert (found.kind, found.where) == (STORE, "s20")


@pytest.mark.parametrize("source", ["vgpr", "agpr", "sgpr", "lds", "scratch", "scc", "vcc"])
def test_sources(bench: Bench, source: str) -> None:
    """An uninitialised value of every place, on its way to memory; the twin has written it."""
    m, bits = bench.m, bench.bits
    code = {
        "vgpr": "v_mov_b32 v10, v9",
        "agpr": "v_accvgpr_read_b32 v10, a5",
        "sgpr": "v_mov_b32 v10, s20",
        "lds": "ds_read_b32 v10, v2",
        "scratch": "scratch_load_dword v10, v3, off",
        "scc": "s_cselect_b32 s21, 1, 2\nv_mov_b32 v10, s21",
        "vcc": "v_cndmask_b32 v10, v6, v7, vcc",
    }[source]
    repair = {
        "vgpr": "v_mov_b32 v9, 1",
        "agpr": "v_accvgpr_write_b32 a5, 1",
        "sgpr": "s_mov_b32 s20, 1",
        "lds": "ds_write_b32 v2, v6",
        "scratch": "scratch_store_dword v3, v6, off",
        "scc": "s_cmp_eq_u32 s12, 0",
        "vcc": "v_cmp_lt_u32 vcc, v6, v7",
    }[source]
    bits.v[9] = bits.v[256 + 5] = ONES
    bits.s[20], bits.s[SCC] = ONES, 1
    bits.s[VCC] = bits.s[VCC + 1] = ONES
    bits.lds[:] = bits.scratch[:] = 0xFF
    m.exec = (1 << 64) - 1
    store = "\nglobal_store_dword v[0:1], v10, off"
    broken = bits.copy()
    (found,) = step(m, broken, code + store)
    assert found.kind == STORE
    assert "nothing has written" in found.message
    assert bench.run(repair + "\n" + code + store) == []


def test_branches(bench: Bench) -> None:
    bench.bits.s[SCC] = 1
    (found,) = bench.run("s_cbranch_scc1 0\ns_nop 0")
    assert (found.kind, found.where) == (BRANCH, "scc")
    bench.bits.s[VCC] = 0x10
    bench.m.vcc = 0
    (found,) = bench.run("s_cbranch_vccz 0\ns_nop 0")
    assert (found.kind, found.where) == (BRANCH, "vcc")


def test_a_clean_bit_decides_a_branch(bench: Bench) -> None:
    bench.bits.s[VCC] = 0x10
    bench.m.vcc = 0x100
    assert bench.run("s_cbranch_vccz 0\ns_cbranch_vccnz 0\ns_nop 0") == []
    bench.bits.s[EXEC] = 0x10
    bench.m.exec = 0x111
    assert bench.run("s_cbranch_execz 0\ns_nop 0") == []


@pytest.mark.parametrize(
    "code",
    [
        "global_store_dword v[0:1], v4, off",
        "ds_write_b32 v2, v4",
        "global_atomic_add v[0:1], v4, off",
    ],
)
def test_which_lanes_store(bench: Bench, code: str) -> None:
    bench.bits.s[EXEC] = 0x10
    (found,) = bench.run(code)
    assert (found.kind, found.where) == (BRANCH, "exec")
    assert bench.run(code) == []


def test_comparison_under_exec(bench: Bench) -> None:
    """Only active lanes of a compare can be uninitialised; the others are written as 0."""
    bench.bits.v[9] = ONES
    bench.m.exec = 0xFF00
    assert bench.run("v_cmp_eq_u32 vcc, v9, v6") == []
    assert (bench.bits.s[VCC], bench.bits.s[VCC + 1]) == (0xFF00, 0)
    assert bench.run("s_and_b64 vcc, vcc, 0\ns_cbranch_vccz 0\ns_nop 0") == []


def test_masked_write_leaves_other_lanes(bench: Bench) -> None:
    bench.bits.v[9] = ONES
    bench.m.exec = 0x0F
    bench.run("v_mov_b32 v9, 3")
    assert (bench.bits.v[9, :4] == 0).all()
    assert (bench.bits.v[9, 4:] == ONES).all()


PRECISE = [
    # code, bits of v9 (v9 and v10 with b), bits of the result expected in v11
    ("v_and_b32 v11, 0xff, v9", ONES, 0xFF),
    ("v_or_b32 v11, 0xffff0000, v9", ONES, 0xFFFF),
    ("v_lshlrev_b32 v11, 16, v9", 0x0000FFFF, 0xFFFF0000),
    ("v_lshrrev_b32 v11, 16, v9", 0x0000FFFF, 0),
    ("v_ashrrev_i32 v11, 16, v9", 0x80000000, 0xFFFF8000),
    ("v_bfe_u32 v11, v9, 8, 8", 0xFFFF00FF, 0),
    ("v_bfe_i32 v11, v9, 8, 8", 0x00008000, 0xFFFFFF80),
    ("s_mov_b32 s20, 0x07060100\nv_perm_b32 v11, v9, v6, s20", 0x0000FFFF, 0),
    ("s_mov_b32 s20, 0x07060100\nv_perm_b32 v11, v6, v9, s20", 0x0000FFFF, 0x0000FFFF),
    ("s_mov_b32 s20, 0x0c0c0d0d\nv_perm_b32 v11, v9, v9, s20", ONES, 0),
    ("v_alignbit_b32 v11, v6, v9, 16", 0x0000FFFF, 0),
    ("v_alignbyte_b32 v11, v9, v6, 1", 0x000000FF, 0xFF000000),
    ("v_pack_b32_f16 v11, v9, v6", 0xFFFF0000, 0),
    ("v_pack_b32_f16 v11, v6, v9", 0x0000FFFF, 0xFFFF0000),
    ("v_cvt_pkrtz_f16_f32 v11, v6, v9", 0x1, 0xFFFF0000),
    ("v_cvt_f32_ubyte1 v11, v9", 0xFFFF00FF, 0),
    ("v_cvt_f32_f16 v11, v9", 0xFFFF0000, 0),
    ("v_pk_add_f16 v11, v9, v6", 0xFFFF0000, 0xFFFF0000),
    ("v_pk_mul_lo_u16 v11, v9, v6 op_sel:[1,0] op_sel_hi:[1,1]", 0xFFFF0000, ONES),
    ("v_add_u32 v11, v9, v6", 0xFFFF0000, 0xFFFF0000),
    ("v_mul_lo_u32 v11, v9, v6", 0x00010000, 0xFFFF0000),
    ("v_mul_u32_u24 v11, v9, v6", 0xFF000000, 0),
    ("v_add_f32 v11, v9, v6", 0x1, ONES),
    ("v_fma_f32 v11, v6, v6, v9", 0x80000000, ONES),
    ("v_mov_b32_sdwa v11, v9 dst_sel:DWORD src0_sel:WORD_1", 0xFFFF, 0),
    ("v_fma_mix_f32 v11, v6, v6, v9 op_sel_hi:[0,0,1]", 0xFFFF0000, 0),
    ("v_lshl_or_b32 v11, v9, 16, v6", 0xFFFF0000, 0),
    ("v_and_or_b32 v11, v9, 15, v6", 0xFFFFFFF0, 0),
    ("s_mov_b32 s20, 0xffff\nv_bfi_b32 v11, s20, v6, v9", 0x0000FFFF, 0),
    ("v_cndmask_b32 v11, v9, v6, vcc", ONES, 0),
    ("v_cvt_pk_u8_f32 v11, v6, 1, v9", 0x0000FF00, 0),
    ("v_cvt_pk_fp8_f32 v9, v6, v7 op_sel:[0,0,1]\nv_mov_b32 v11, v9", 0xFFFF0000, 0),
]


@pytest.mark.parametrize(("code", "uninitialised", "expected"), PRECISE, ids=str)
def test_precise(bench: Bench, code: str, uninitialised: int, expected: int) -> None:
    bench.bits.v[9] = uninitialised
    bench.bits.v[11] = ONES
    bench.m.v[6] = 0
    bench.m.vcc = (1 << 64) - 1
    assert bench.run(code) == []
    assert {hex(x) for x in bench.bits.v[11]} == {hex(expected)}


def test_low_half_of_wide_sums(bench: Bench) -> None:
    """Compilers leave the high half of an addend undefined when they want the low result only."""
    bench.bits.v[7] = ONES
    bench.run("v_mad_u64_u32 v[10:11], s[20:21], v4, v5, v[6:7]")
    assert not bench.bits.v[10].any()
    assert (bench.bits.v[11] == ONES).all()
    bench.run("v_lshl_add_u64 v[10:11], v[6:7], 3, v[0:1]")
    assert not bench.bits.v[10].any()


def test_data_moves_between_lanes(bench: Bench) -> None:
    bench.bits.v[9, 3] = 0xF0
    bench.run("v_mov_b32_dpp v11, v9 row_shr:1 row_mask:0xf bank_mask:0xf")
    assert np.flatnonzero(bench.bits.v[11]).tolist() == [4]
    bench.m.v[8] = 4 * (63 - np.arange(64))
    bench.run("ds_bpermute_b32 v12, v8, v9\nv_readlane_b32 s20, v9, 3\nv_readlane_b32 s21, v9, 4")
    assert np.flatnonzero(bench.bits.v[12]).tolist() == [60]
    assert (bench.bits.s[20], bench.bits.s[21]) == (0xF0, 0)
    bench.run("ds_swizzle_b32 v13, v9 offset:swizzle(SWAP,1)")
    assert np.flatnonzero(bench.bits.v[13]).tolist() == [2]
    bench.run("v_writelane_b32 v9, s12, 3")
    assert not bench.bits.v[9].any()


def test_lds_and_scratch_carry_bytes(bench: Bench) -> None:
    bench.bits.v[9] = 0x00FF00FF
    assert bench.run("ds_write_b32 v2, v9\nds_read_u16 v11, v2\nds_read_i8 v12, v2 offset:2") == []
    assert (bench.bits.v[11] == 0xFF).all()
    assert (bench.bits.v[12] == ONES).all()
    code = "scratch_store_dword v3, v9, off\nscratch_load_ubyte v13, v3, off offset:1"
    assert bench.run(code) == []
    assert not bench.bits.v[13].any()


def test_load_to_lds_initialises(bench: Bench) -> None:
    bench.bits.lds[:] = 0xFF
    bench.m.s[M0] = 0x100
    assert bench.run("buffer_load_dword v2, s[8:11], 0 offen lds") == []
    assert not bench.bits.lds[0x100:0x200].any()
    assert bench.bits.lds[:0x100].all()


def test_dropped_lanes_of_a_buffer_load_are_zero(bench: Bench) -> None:
    bench.m.s[10] = 64
    bench.bits.v[11] = ONES
    assert bench.run("buffer_load_dword v11, v2, s[8:11], 0 offen") == []
    assert not bench.bits.v[11].any()


def test_dropped_lanes_of_a_buffer_store_reach_nothing(bench: Bench) -> None:
    bench.m.s[10] = 64
    bench.bits.v[11, 4:] = ONES
    assert bench.run("buffer_store_dword v11, v2, s[8:11], 0 offen") == []


def test_matrix_rows_and_columns(bench: Bench) -> None:
    """A lane of A is a row of D, a lane of B a column."""
    code = "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0"
    bench.bits.v[20:24] = ONES
    bench.run(code)
    assert not bench.bits.v[20:24].any()
    bench.bits.v[10, 5] = 0xFFFF  # row 5: lanes 16..31, second register
    bench.run(code)
    assert np.argwhere(bench.bits.v[20:24]).tolist() == [[1, lane] for lane in range(16, 32)]
    bench.bits.v[10] = 0
    bench.bits.v[13, 37] = 0xFFFF0000  # column 5
    bench.run(code)
    assert sorted({int(x) for _, x in np.argwhere(bench.bits.v[20:24])}) == [5, 21, 37, 53]


def test_gpr_index_mode(bench: Bench) -> None:
    bench.bits.v[9] = ONES
    bench.bits.v[12] = ONES
    bench.run("s_set_gpr_idx_on s12, gpr_idx(SRC0)\nv_mov_b32 v30, v6\ns_set_gpr_idx_off")
    assert not bench.bits.v[30].any()
    bench.m.s[13] = 3
    bench.run("s_set_gpr_idx_on s13, gpr_idx(SRC0)\nv_mov_b32 v30, v6\ns_set_gpr_idx_off")
    assert (bench.bits.v[30] == ONES).all()
    bench.run("s_set_gpr_idx_on s13, gpr_idx(DST)\nv_mov_b32 v9, v6\ns_set_gpr_idx_off")
    assert not bench.bits.v[12].any()
