"""SOP1, SOP2, SOPK and SOPC: every row against Python integers. Control flow is in test_control."""

from __future__ import annotations

import random

import pytest

from tests.support.isa.assembly import SOP1, SOP2, SOPC, SOPK, assemble_each, row_names
from tests.support.isa.int_oracle import clamp_s, signed
from tests.support.isa.machine import EXEC, M0, FaultKind, Machine, MachineFault
from tests.support.isa.table_sop import (
    BITSET_OPS,
    CMOV_OPS,
    CONTROL_SOP1,
    CONTROL_SOPC,
    CONTROL_SOPK,
    M32,
    M64,
    MOVREL_OPS,
    NONZERO,
    REFUSED_OPS,
    SAVEEXEC_OPS,
    SOP1_OPS,
    SOP2_OPS,
    SOPC_OPS,
    SOPK_COMPARES,
    SOPK_OTHER,
    WREXEC_OPS,
    Scalar,
    s32,
)
from tests.support.isa.vectors import int_specials


def test_every_row_has_a_vector() -> None:
    assert row_names(SOP1) == {
        *SOP1_OPS, *BITSET_OPS, *SAVEEXEC_OPS, *WREXEC_OPS, *CMOV_OPS, *MOVREL_OPS, *REFUSED_OPS,
        *CONTROL_SOP1,
    }  # fmt: skip
    assert row_names(SOP2) == {*SOP2_OPS}
    assert row_names(SOPC) == {*SOPC_OPS, *CONTROL_SOPC}
    assert row_names(SOPK) == {*SOPK_COMPARES, *SOPK_OTHER, *CONTROL_SOPK}


def sreg(index: int, width: int) -> str:
    return f"s{index}" if width == 32 else f"s[{index}:{index + 1}]"


def put(m: Machine, index: int, width: int, value: int) -> None:
    if width == 32:
        m.s[index] = value & M32
    else:
        m.set_pair(index, value)


def take(m: Machine, index: int, width: int) -> int:
    return int(m.s[index]) if width == 32 else m.pair(index)


def values(widths: tuple[int, ...], name: str, count: int) -> list[tuple[int, ...]]:
    rng = random.Random(name)

    def one(width: int) -> int:
        pick = rng.random()
        if pick < 0.3:
            return rng.getrandbits(width)
        if pick < 0.4:  # a bit field: offset and width
            return rng.randrange(64) | rng.randrange(70) << 16
        return rng.choice(int_specials(width))

    sets = [tuple(one(w) for w in widths) for _ in range(count)]
    if len(set(widths)) == 1 and len(widths) == 2:
        sets += [(x, x) for x in int_specials(widths[0])]
    return sets


ALL_OPS = {**SOP1_OPS, **SOP2_OPS, **SOPC_OPS}


def scalar_text(name: str, op: Scalar) -> str:
    regs = [sreg(8 + 2 * i, w) for i, w in enumerate(op.srcs)]
    return f"{name} " + ", ".join(([sreg(20, op.dst)] if op.dst else []) + regs)


@pytest.fixture(scope="module")
def code() -> dict[str, tuple[int, ...] | None]:
    return assemble_each(scalar_text(name, op) for name, op in ALL_OPS.items())


@pytest.mark.parametrize("name", ALL_OPS)
def test_scalar_alu(name: str, code: dict[str, tuple[int, ...] | None]) -> None:
    op = ALL_OPS[name]
    words = code[scalar_text(name, op)]
    assert words is not None
    m = Machine(seed=1)
    for n, operands in enumerate(values(op.srcs, name, 60)):
        for i, (width, value) in enumerate(zip(op.srcs, operands, strict=True)):
            put(m, 8 + 2 * i, width, value)
        m.scc = old_scc = n & 1
        want = m.s.copy()
        args = (*operands, old_scc) if op.takes_scc else operands
        r = op.fn(*args)
        bits, scc = r if isinstance(r, tuple) else (r, old_scc)
        assert isinstance(bits, int)
        bits &= (1 << op.dst) - 1
        if op.scc == NONZERO:
            scc = bits != 0
        m.run(words)
        got = take(m, 20, op.dst) if op.dst else 0
        where = f"{name} of {[hex(x) for x in operands]}, SCC {old_scc}"
        assert (hex(got), m.scc) == (hex(bits), int(scc)), where
        m.s[20:22] = want[20:22]
        assert (m.s == want).all(), where


@pytest.mark.parametrize("name", BITSET_OPS)
def test_bitset_changes_one_bit(name: str) -> None:
    width, fn = BITSET_OPS[name]
    m = Machine(seed=2)
    for x in (0, 5, 31, 32, 63, 0xFFFFFFC7):
        m.s[8] = x
        old = take(m, 20, width)
        m.run(f"{name} {sreg(20, width)}, s8")
        assert take(m, 20, width) == fn(old, x) & ((1 << width) - 1)


@pytest.mark.parametrize("name", [*SAVEEXEC_OPS, *WREXEC_OPS])
def test_saveexec_and_wrexec(name: str) -> None:
    combine = (SAVEEXEC_OPS | WREXEC_OPS)[name]
    m = Machine(seed=3)
    masks = [0, M64, 0xF0F0_0000_FFFF_1234, 1 << 63]
    for source in masks:
        for old in masks:
            m.set_pair(8, source)
            m.exec = old
            m.run(f"{name} s[20:21], s[8:9]")
            new = combine(source, old) & M64
            assert m.exec == new and m.scc == (new != 0)
            assert m.pair(20) == (old if name in SAVEEXEC_OPS else new)
    m.exec = 0xFF
    m.set_pair(8, 0xF0)
    m.run(f"{name} s[8:9], s[8:9]")  # the source is read before it is overwritten
    assert m.exec == combine(0xF0, 0xFF) & M64


@pytest.mark.parametrize("name", CMOV_OPS)
def test_cmov_moves_if_scc(name: str) -> None:
    width = CMOV_OPS[name]
    for scc in (0, 1):
        m = Machine(seed=4)
        m.scc = scc
        old, source = take(m, 20, width), take(m, 8, width)
        m.run(f"{name} {sreg(20, width)}, {sreg(8, width)}")
        assert take(m, 20, width) == (source if scc else old) and m.scc == scc


def test_movrel_is_indexed_by_m0() -> None:
    m = Machine(seed=5)
    m.s[M0] = 6
    s = m.s.copy()
    m.run(
        "s_movrels_b32 s40, s10\ns_movreld_b32 s42, s11\n"
        "s_movrels_b64 s[50:51], s[10:11]\ns_movreld_b64 s[52:53], s[12:13]"
    )
    s[40], s[48] = s[16], s[11]
    s[50:52], s[58:60] = s[16:18], s[12:14]
    assert (m.s == s).all()


@pytest.mark.parametrize("name", ["s_movrels_b32 s0, s100", "s_movreld_b64 s[100:101], s[0:1]"])
def test_movrel_beyond_the_file_is_refused(name: str) -> None:
    m = Machine(seed=6)
    m.s[M0] = 4
    with pytest.raises(MachineFault) as fault:
        m.run(name)
    assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION


@pytest.mark.parametrize(
    "text", ["s_rfe_b64 s[2:3]", "s_cbranch_join s4", "s_cbranch_i_fork s[2:3], 5"]
)
def test_refused(text: str) -> None:
    with pytest.raises(MachineFault) as fault:
        Machine().run(text)
    assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION


@pytest.mark.parametrize("name", SOPK_COMPARES)
def test_compare_with_immediate(name: str) -> None:
    fn, sign = SOPK_COMPARES[name]
    immediates = (0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234)
    texts = [f"{name} s8, {k:#x}" for k in immediates]
    code = assemble_each(texts)
    m = Machine(seed=7)
    for text, k in zip(texts, immediates, strict=True):
        words = code[text]
        if words is None:  # the assembler wants negative numbers written as such
            words = assemble_each([f"{name} s8, {signed(k, 16)}"])[f"{name} s8, {signed(k, 16)}"]
        assert words is not None
        right = signed(k, 16) if sign == "i" else k
        for x in (0, 1, k, signed(k, 16) & M32, k + 1, 0x80000000, M32, 0x7FFFFFFF):
            m.s[8] = x
            m.run(words)
            assert m.scc == fn(s32(x) if sign == "i" else x, right), (name, hex(x), hex(k))


def test_arithmetic_with_immediate() -> None:
    m = Machine(seed=8)
    for x in (0, 1, 0x7FFFFFFF, 0x80000000, M32, 0x12345678):
        for k in (0, 1, -1, 0x7FFF, -0x8000):
            m.s[8:12] = x
            for old in (0, 1):
                m.scc = old
                m.run(f"s_movk_i32 s20, {k}\ns_cmovk_i32 s8, {k}\ns_mulk_i32 s9, {k}")
                assert m.s[20] == k & M32 and m.s[9] == x * k & M32 and m.scc == old
                assert m.s[8] == (k & M32 if old else x)
                m.s[8:12] = x
            m.run(f"s_addk_i32 s10, {k}")
            total = s32(x) + k
            assert m.s[10] == total & M32 and m.scc == (clamp_s(total, 32) != total)


def test_scalar_operands_of_every_kind() -> None:
    """Inline constants (f32 bits for 32-bit, f64 for 64-bit sources), literals, EXEC, VCC, SCC."""
    m = Machine(seed=9)
    m.exec, m.vcc, m.scc = 0, 0x1_0000_0002, 1
    m.run(
        "s_mov_b32 s0, scc\ns_mov_b32 s1, src_execz\ns_mov_b32 s2, src_vccz\ns_mov_b32 s3, 1.0\n"
        "s_mov_b64 s[4:5], -4.0\ns_mov_b64 s[6:7], -16\ns_mov_b64 s[8:9], 0x89abcdef\n"
        "s_mov_b32 s10, 0.15915494\ns_add_u32 s11, vcc_lo, vcc_hi\ns_mov_b64 exec, vcc\n"
        "s_mov_b32 s12, exec_hi\ns_mov_b32 m0, 64\ns_mov_b32 s13, m0"
    )
    assert m.s[:4].tolist() == [1, 1, 0, 0x3F800000]
    assert m.pair(4) == 0xC010000000000000 and m.pair(6) == M64 - 15
    assert m.pair(8) == 0x89ABCDEF  # a literal of a b64 operand is zero-extended
    assert m.s[10:14].tolist() == [0x3E22F983, 3, 1, 64]
    assert m.exec == m.pair(EXEC) == 0x1_0000_0002


def test_apertures_are_readable() -> None:
    m = Machine(seed=10)
    m.run("s_mov_b64 s[0:1], src_shared_base\ns_mov_b64 s[2:3], src_private_base")
    assert m.pair(0) != m.pair(2) and m.s[0] == m.s[2] == 0
    m.run("s_mov_b64 s[4:5], src_shared_limit\ns_mov_b64 s[6:7], src_private_limit")
    for base, limit in ((0, 4), (2, 6)):  # each of 4 GiB
        assert m.pair(limit) - m.pair(base) == 2**32 - 1
