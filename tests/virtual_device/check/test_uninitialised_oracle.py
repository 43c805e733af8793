"""Propagation of uninitialised bits against execution: what differs must be marked.

Every row of the instruction table that moves or computes data runs with random operands,
modifiers and uninitialised bits, again and again with other contents of those bits. A bit of the
registers, of LDS or of scratch that is not the same in all runs has to be marked. For rows with a
bit-exact rule the other direction holds as well: a marked bit is one that can differ.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.check.taint_machine import SCC, Bits, oracle, random_bits
from tests.support.isa.disassembler import Disassembler, Row
from tests.support.isa.machine import ALL_LANES, DEFAULT_MODE, EXEC, LANES, M0, VCC, Machine
from tests.support.isa.random_words import WordGenerator
from tests.support.vdev_library import DEFAULT_CPU, open_library

U32 = npt.NDArray[np.uint32]

ALU = {"SOP2", "SOPK", "SOP1", "SOPC", "VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"}
EXCHANGES = ("ds_swizzle_b32", "ds_permute_b32", "ds_bpermute_b32")
# Control flow, MODE, and what faults for most contents of M0.
NOT_HERE = (
    *("s_getpc", "s_setpc", "s_swappc", "s_call", "s_cbranch", "s_rfe", "s_setreg", "s_getreg"),
    *("s_set_gpr", "s_setvskip", "s_movrel", "v_screen", "v_cvt_pkaccum"),
)
# Marked bits that never differ show that a rule says more than it has to.
EXACT = (
    *("v_mov_b32", "v_mov_b64", "v_not_b32", "v_bfrev_b32", "v_xor_b32", "v_xnor_b32"),
    *("v_and_b32", "v_or_b32", "v_or3_b32", "v_and_or_b32", "v_bfi_b32", "v_swap_b32"),
    *("v_cndmask_b32", "v_perm_b32", "v_pack_b32_f16", "v_accvgpr_read_b32", "v_readlane_b32"),
    *("v_writelane_b32", "v_accvgpr_write_b32", "v_pk_mov_b32", "v_readfirstlane_b32"),
    *("s_mov_b32", "s_mov_b64", "s_not_b32", "s_and_b32", "s_and_b64", "s_or_b64", "s_xor_b64"),
    *("s_andn2_b64", "s_orn2_b32", "s_nand_b64", "s_nor_b32", "s_brev_b64", "s_cselect_b32"),
    *("s_orn1_saveexec_b64", "s_andn1_saveexec_b64"),
    *("s_pack_ll_b32_b16", "s_pack_lh_b32_b16", "s_pack_hh_b32_b16", "s_sext_i32_i8"),
    *("ds_swizzle_b32",),
)
EXACT_ON_GFX950 = (
    *("v_bitop3_b16", "v_bitop3_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32"),
    "v_cvt_f32_bf16",
)
LDS_BYTES, SCRATCH_BYTES = 4096, 64


@functools.cache
def disassembler(cpu: str) -> Disassembler:
    return Disassembler(open_library(), cpu)


@functools.cache
def rows(cpu: str = DEFAULT_CPU) -> tuple[Row, ...]:
    return tuple(disassembler(cpu).rows())


def encodings(row: Row, seed: int, count: int, cpu: str = DEFAULT_CPU) -> Iterator[tuple[U32, str]]:
    """Up to `count` valid encodings of each form, with their text."""
    generator = WordGenerator(seed)
    for form in generator.forms(row):
        windows = generator.windows(row, form, 12 * count)
        valid = 0
        for window, decoded in zip(windows, disassembler(cpu).decode(windows), strict=True):
            if decoded.size and valid < count:
                valid += 1
                yield window[: decoded.size], decoded.text


@functools.cache
def machine(cpu: str) -> Machine:
    return Machine(seed=3, lds_bytes=LDS_BYTES, scratch_lane_bytes=SCRATCH_BYTES, cpu=cpu)


def fresh(
    rng: np.random.Generator, unsure_exec: bool, cpu: str = DEFAULT_CPU
) -> tuple[Machine, Bits]:
    """Random registers, memories and masks, some of their bits uninitialised."""
    m = machine(cpu)
    m.v[:] = m.random_u32(m.v.shape)
    if rng.random() < 0.3:
        m.v[:] &= np.uint32(0x1F001F)  # shift amounts and the like
    m.s[:] = m.random_u32(128)
    m.s[102:] = 0
    m.lds[:] = m.random_u8(m.lds.size)
    m.scratch[:] = m.random_u32(m.scratch.shape)
    m.exec = ALL_LANES if rng.random() < 0.4 else m.random_words(64, 1)[0]
    m.vcc, m.s[M0] = m.random_words(64, 1)[0], m.random_words(32, 1)[0]
    m.scc, m.mode = int(rng.integers(0, 2)), DEFAULT_MODE
    bits = Bits(LDS_BYTES, SCRATCH_BYTES)
    bits.v[:] = random_bits(rng, bits.v.shape)
    if rng.random() < 0.4:  # some operands without, so that values of the others show
        bits.v[:] *= rng.integers(0, 2, (512, 1), np.uint32)
    bits.s[:] = random_bits(rng, 129)
    bits.s[SCC] = rng.integers(0, 2)
    if not unsure_exec or rng.random() < 0.7:
        bits.s[EXEC : EXEC + 2] = 0
    return m, bits


def check_alu(selected: list[Row], seed: int, count: int, runs: int, cpu: str = DEFAULT_CPU) -> int:
    """Run the oracle over rows; returns how many cases it was."""
    rng = np.random.default_rng(seed)
    cases = 0
    for row in selected:
        for words, text in encodings(row, seed, count, cpu):
            m, bits = fresh(rng, unsure_exec=True, cpu=cpu)
            outcome = oracle(m, bits, words, runs, cases)
            if outcome is None:  # a reserved control code
                continue
            cases += 1
            assert not outcome.missed, f"{row.name}: {text}: {outcome.missed}"
    return cases


def alu_rows(cpu: str = DEFAULT_CPU) -> list[Row]:
    return [
        row
        for row in rows(cpu)
        if (row.format in ALU or row.name in EXCHANGES) and not row.name.startswith(NOT_HERE)
    ]


def test_alu_rows() -> None:
    """A fifth of the rows, and all that read what they write; others in test_every_alu_row."""
    selected = alu_rows()
    assert len(selected) > 600
    assert check_alu(selected[::5], seed=1, count=1, runs=3) > 200
    assert check_alu([row for row in selected if row.format == "SOPK"], 1, count=3, runs=3) > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_every_alu_row(seed: int) -> None:
    assert check_alu(alu_rows(), seed, count=6, runs=6) > 6000


def test_alu_rows_that_are_new_on_gfx950() -> None:
    new = [row for row in alu_rows("gfx950") if row not in rows()]
    assert check_alu(new, seed=4, count=3, runs=3, cpu="gfx950") > 120


@pytest.mark.slow
def test_every_alu_row_of_gfx950() -> None:
    assert check_alu(alu_rows("gfx950"), seed=5, count=6, runs=6, cpu="gfx950") > 6000


@pytest.mark.parametrize("name", [*EXACT, *EXACT_ON_GFX950])
def test_exact_rules(name: str) -> None:
    cpu = "gfx950" if name in EXACT_ON_GFX950 else DEFAULT_CPU
    (row,) = [row for row in rows(cpu) if row.name == name]
    rng = np.random.default_rng(9)
    marked = 0
    to_vector = name[0] != "s" and "read" not in name and "write" not in name
    for words, text in encodings(row, 4, 2 if to_vector else 24, cpu):
        m, bits = fresh(rng, unsure_exec="saveexec" in name, cpu=cpu)
        # What steers is known: a shift by an unknown amount is anybody's guess.
        bits.s[VCC : VCC + 2] = bits.s[SCC] = bits.s[M0] = 0
        if name in ("v_perm_b32", "v_readlane_b32", "v_writelane_b32", "v_cndmask_b32"):
            bits.s[:] = 0
        if name == "v_perm_b32":
            m.v[:] &= np.uint32(0x0F0F0F0F)
            bits.v[(int(words[1]) >> 18 & 0x1FF) & 0xFF] = 0
        outcome = oracle(m, bits, words, 20 if to_vector else 14, 5)
        if outcome is None or "|" in text:  # a sign that is cleared
            continue
        assert not outcome.missed, f"{text}: {outcome.missed}"
        # SCC says whether the result is zero, which is not a matter of one bit.
        assert outcome.idle <= 1, f"{text}: {outcome.idle} of {outcome.marked} bits never differ"
        marked += outcome.marked
    assert marked > 0


def distinct_addresses(rng: np.random.Generator, limit: int) -> U32:
    """A multiple of 16 per lane, below `limit`, no two alike."""
    return (rng.permutation(limit // 16)[:LANES] * 16).astype(np.uint32)


def lds_rows() -> list[Row]:
    return [
        row
        for row in rows()
        if row.format == "DS"
        and row.name not in EXCHANGES
        and not row.name.startswith(("ds_gws", "ds_nop", "ds_condxchg"))
    ]


def check_lds(selected: list[Row], seed: int, count: int, runs: int) -> int:
    rng = np.random.default_rng(seed)
    cases = 0
    for row in selected:
        for encoded, text in encodings(row, seed, count):
            words = encoded.copy()
            words[0] &= ~np.uint32(0xFFFF)  # offsets: 0, and 1 where there are two
            if "read2" in row.name or "write2" in row.name or "wrxchg2" in row.name:
                words[0] |= np.uint32(0x0100)
            m, bits = fresh(rng, unsure_exec=False)
            address = int(words[1]) & 0xFF
            m.v[address] = distinct_addresses(rng, 2048)
            m.s[M0] = 64
            bits.v[address] = bits.s[M0] = 0
            bits.lds[:] = random_bits(rng, LDS_BYTES // 4).view(np.uint8)
            outcome = oracle(m, bits, words, runs, cases)
            if outcome is None:
                continue
            assert not outcome.findings
            assert not outcome.missed, f"{row.name}: {text}: {outcome.missed}"
            cases += 1
    return cases


def test_lds_rows() -> None:
    assert check_lds(lds_rows()[::4], seed=5, count=1, runs=3) > 20


@pytest.mark.slow
def test_every_lds_row() -> None:
    assert check_lds(lds_rows(), seed=6, count=5, runs=6) > 400


def test_scratch_rows() -> None:
    rng = np.random.default_rng(8)
    cases = 0
    for row in rows():
        if row.format != "SCRATCH" or "lds" in row.name:
            continue
        for encoded, text in encodings(row, 7, 2):
            words = encoded.copy()
            words[0] &= ~np.uint32(0x1FFF)  # no offset
            words[0] |= np.uint32(1 << 13)  # sve: an address register
            words[1] |= np.uint32(0x7F << 16)  # no scalar address
            m, bits = fresh(rng, unsure_exec=False)
            address = int(words[1]) & 0xFF
            m.v[address] = rng.integers(0, SCRATCH_BYTES - 16, LANES, np.uint32)
            bits.v[address] = 0
            bits.scratch[:] = (
                random_bits(rng, bits.scratch.size // 4).view(np.uint8).reshape(bits.scratch.shape)
            )
            outcome = oracle(m, bits, words, 4, cases)
            if outcome is None:
                continue
            cases += 1
            assert not outcome.missed, f"{row.name}: {text}: {outcome.missed}"
    assert cases > 20
