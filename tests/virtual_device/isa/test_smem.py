"""SMEM: every row: loads, stores, atomics, buffers with their range, caches and clocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.isa.assembly import SMEM, assemble_each, row_names
from tests.support.isa.int_oracle import signed
from tests.support.isa.machine import M0, FaultKind, Machine, MachineFault

LOADS = {"dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}
STORES = {"dword": 1, "dwordx2": 2, "dwordx4": 4}
ATOMICS: dict[str, Callable[[int, int, int, int], int]] = {
    # (old, data, second data, bits) -> new
    "swap": lambda old, x, _y, _n: x,
    "cmpswap": lambda old, x, y, _n: x if old == y else old,
    "add": lambda old, x, _y, _n: old + x,
    "sub": lambda old, x, _y, _n: old - x,
    "smin": lambda old, x, _y, n: min(signed(old, n), signed(x, n)),
    "umin": lambda old, x, _y, _n: min(old, x),
    "smax": lambda old, x, _y, n: max(signed(old, n), signed(x, n)),
    "umax": lambda old, x, _y, _n: max(old, x),
    "and": lambda old, x, _y, _n: old & x,
    "or": lambda old, x, _y, _n: old | x,
    "xor": lambda old, x, _y, _n: old ^ x,
    "inc": lambda old, x, _y, _n: 0 if old >= x else old + 1,
    "dec": lambda old, x, _y, _n: x if old == 0 or old > x else old - 1,
}
SCRATCH = {
    *(f"s_scratch_load_{n}" for n in ("dword", "dwordx2", "dwordx4")),
    *(f"s_scratch_store_{n}" for n in STORES),
}
CACHE = ("s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol")
CLOCKS = ("s_memtime", "s_memrealtime")
PROBES = (
    "s_atc_probe 8, s[4:5], 0x10",
    "s_atc_probe_buffer 8, s[4:7], 0x10",
    "s_dcache_discard s[0:1], s0",
    "s_dcache_discard_x2 s[0:1], s0",
)


def test_every_row_has_a_vector() -> None:
    tested = {
        *(f"s_{b}load_{n}" for n in LOADS for b in ("", "buffer_")),
        *(f"s_{b}store_{n}" for n in STORES for b in ("", "buffer_")),
        *(f"s_{b}atomic_{n}{x}" for n in ATOMICS for b in ("", "buffer_") for x in ("", "_x2")),
        *SCRATCH,
        *CACHE,
        *CLOCKS,
        *(p.split()[0] for p in PROBES),
    }
    assert row_names(SMEM) == tested


def sregs(index: int, dwords: int) -> str:
    return f"s{index}" if dwords == 1 else f"s[{index}:{index + dwords - 1}]"


def machine(seed: int = 1, records: int = 0, stride: int = 0) -> Machine:
    """s[4:5] points to the memory; s[8:11] describes a buffer of `records` over it."""
    m = Machine(seed=seed, memory_bytes=4096)
    m.set_pair(4, m.address)
    m.set_pair(8, m.address | stride << 48)
    m.s[10], m.s[11] = records, 0x27000
    return m


def words_of(m: Machine) -> np.ndarray:
    return m.memory.view(np.uint32)


@pytest.mark.parametrize("name", LOADS)
def test_load(name: str) -> None:
    n = LOADS[name]
    m = machine()
    m.s[6], m.s[M0] = 0x100, 0x20
    memory = words_of(m)
    dst = sregs(32, n)
    for offset, at in (("0x0", 0), ("0x40", 16), ("s6", 64), ("m0", 8), ("s6 offset:0x10", 68)):
        s = m.s.copy()
        m.run(f"s_load_{name} {dst}, s[4:5], {offset}")
        s[32 : 32 + n] = memory[at : at + n]
        assert (m.s == s).all(), offset


def test_load_drops_the_low_address_bits() -> None:
    m = machine()
    m.set_pair(4, m.address + 3)
    m.s[6] = 6
    m.run("s_load_dword s32, s[4:5], 0x7\ns_load_dword s33, s[4:5], s6")
    assert m.s[32] == words_of(m)[1] and m.s[33] == words_of(m)[1]


def test_negative_offset() -> None:
    m = machine()
    m.set_pair(4, m.address + 64)
    m.run("s_load_dwordx2 s[32:33], s[4:5], -0x10")
    assert m.s[32:34].tolist() == words_of(m)[12:14].tolist()


def test_load_may_overwrite_its_base() -> None:
    m = machine()
    want = words_of(m)[2:6].copy()
    m.run("s_load_dwordx4 s[4:7], s[4:5], 0x8")
    assert (m.s[4:8] == want).all()


def test_load_outside_every_allocation_faults() -> None:
    m = machine()
    m.set_pair(4, 0x1000)
    with pytest.raises(MachineFault) as fault:
        m.run("s_load_dword s0, s[4:5], 0x0")
    assert fault.value.kind == FaultKind.ILLEGAL_ADDRESS and fault.value.address == 0x1000


@pytest.mark.parametrize("name", LOADS)
def test_buffer_load_reads_zero_beyond_the_range(name: str) -> None:
    """Dword by dword: those that lie wholly inside num_records are read."""
    n = LOADS[name]
    for records, stride in ((64, 0), (70, 0), (16, 4), (0, 0)):
        m = machine(records=records, stride=stride)
        size = records * (stride or 1)
        for offset in (0, 32, 52, 60, 64, 2000):
            m.s[6] = offset
            m.run(f"s_buffer_load_{name} {sregs(32, n)}, s[8:11], s6")
            want = [
                int(words_of(m)[offset // 4 + i]) if offset + 4 * i + 4 <= size else 0
                for i in range(n)
            ]
            assert m.s[32 : 32 + n].tolist() == want, (records, stride, offset)


def test_buffer_load_immediate_counts_into_the_range() -> None:
    m = machine(records=64)
    m.s[6] = 48
    m.run("s_buffer_load_dwordx2 s[32:33], s[8:11], s6 offset:0xc")
    assert m.s[32:34].tolist() == [int(words_of(m)[15]), 0]


@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_store(name: str, buffer: bool) -> None:
    n = STORES[name]
    m = machine(records=256)
    memory = m.memory.copy().view(np.uint32)
    base = "s[8:11]" if buffer else "s[4:5]"
    run = m.run(f"s_{'buffer_' if buffer else ''}store_{name} {sregs(32, n)}, {base}, 0x20")
    memory[8 : 8 + n] = m.s[32 : 32 + n]
    assert (words_of(m) == memory).all() and run.progress > 0


def test_buffer_store_beyond_the_range_is_dropped() -> None:
    m = machine(records=24)
    memory = m.memory.copy().view(np.uint32)
    m.run("s_buffer_store_dwordx4 s[32:35], s[8:11], 0x10\ns_buffer_store_dword s32, s[8:11], 0x40")
    memory[4:6] = m.s[32:34]
    assert (words_of(m) == memory).all()


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomic(name: str, bits: int, returns: bool) -> None:
    wide = "_x2" if bits == 64 else ""
    dwords = (bits // 32) * (2 if name == "cmpswap" else 1)
    mask = (1 << bits) - 1
    interesting = [0, 1, 5, mask, mask >> 1, (mask >> 1) + 1, 0x0123456789ABCDEF & mask]
    glc = " glc" if returns else ""
    for buffer, base in (("", "s[4:5]"), ("buffer_", "s[8:11]")):
        m = machine(records=256)
        text = f"s_{buffer}atomic_{name}{wide} {sregs(32, dwords)}, {base}, 0x18{glc}"
        words = assemble_each([text])[text]
        assert words is not None
        cell = m.memory[24 : 24 + bits // 8].view(np.uint32 if bits == 32 else np.uint64)
        for old in interesting:
            for x in interesting:
                second = old if x & 1 else ~old & mask
                cell[0] = old
                for d in range(bits // 32):
                    m.s[32 + d] = x >> 32 * d & 0xFFFFFFFF
                    if name == "cmpswap":
                        m.s[32 + bits // 32 + d] = second >> 32 * d & 0xFFFFFFFF
                s, memory = m.s.copy(), m.memory.copy()
                m.run(words)
                new = ATOMICS[name](old, x, second, bits) & mask
                assert int(cell[0]) == new, (hex(old), hex(x))
                if returns:
                    for d in range(bits // 32):
                        s[32 + d] = old >> 32 * d & 0xFFFFFFFF
                assert (m.s == s).all()
                memory[24 : 24 + bits // 8] = m.memory[24 : 24 + bits // 8]
                assert (m.memory == memory).all()


def test_atomic_beyond_the_buffer_is_dropped() -> None:
    m = machine(records=28)
    memory = m.memory.copy()
    m.run("s_buffer_atomic_add s32, s[8:11], 0x1c\ns_buffer_atomic_add_x2 s[32:33], s[8:11], 0x18")
    assert (m.memory == memory).all()


def test_misaligned_atomic_faults() -> None:
    m = machine()
    with pytest.raises(MachineFault) as fault:
        m.run("s_atomic_add_x2 s[32:33], s[4:5], 0x4")
    assert fault.value.kind == FaultKind.MISALIGNED


@pytest.mark.parametrize("text", [*CACHE, *PROBES])
def test_without_visible_effect(text: str) -> None:
    m = machine()
    s, v, memory = m.s.copy(), m.v.copy(), m.memory.copy()
    m.run(text)
    assert (m.s == s).all() and (m.v == v).all() and (m.memory == memory).all()


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_advance(name: str) -> None:
    m = machine()
    m.run(f"{name} s[32:33]\n" + "s_nop 0\n" * 200 + f"{name} s[34:35]")
    assert m.pair(34) > m.pair(32)


@pytest.mark.parametrize("name", sorted(SCRATCH))
def test_scalar_scratch_is_refused(name: str) -> None:
    n = {"dword": 1, "dwordx2": 2, "dwordx4": 4}[name.rsplit("_", 1)[1]]
    with pytest.raises(MachineFault) as fault:
        machine().run(f"{name} {sregs(32, n)}, s[4:5], 0x10")
    assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION
