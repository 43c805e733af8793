"""DS instructions against NumPy and Python models."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.machine import (
    EXEC_MASKS,
    LANES,
    M0,
    FaultKind,
    Machine,
    MachineFault,
)
from tests.support.isa.memory_oracle import (
    LOADS,
    MASK32,
    STORES,
    check_registers,
    stored_bytes,
    vector,
)

LDS_BYTES = 4096

READS = {
    "u8": "ubyte",
    "i8": "sbyte",
    "u16": "ushort",
    "i16": "sshort",
    "b32": "dword",
    "b64": "dwordx2",
    "b96": "dwordx3",
    "b128": "dwordx4",
    "u8_d16": "ubyte_d16",
    "u8_d16_hi": "ubyte_d16_hi",
    "i8_d16": "sbyte_d16",
    "i8_d16_hi": "sbyte_d16_hi",
    "u16_d16": "short_d16",
    "u16_d16_hi": "short_d16_hi",
}
WRITES = {
    "b8": "byte",
    "b8_d16_hi": "byte_d16_hi",
    "b16": "short",
    "b16_d16_hi": "short_d16_hi",
    "b32": "dword",
    "b64": "dwordx2",
    "b96": "dwordx3",
    "b128": "dwordx4",
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("exec_mask", EXEC_MASKS)
def test_read(name: str, exec_mask: int) -> None:
    form = LOADS[READS[name]]
    m = Machine(seed=1, lds_bytes=LDS_BYTES)
    offset = 40
    m.v[1] = m.rng.integers(0, LDS_BYTES - form.size - offset + 1, LANES)
    m.v[1][:2] = [0, LDS_BYTES - form.size - offset]
    m.exec = exec_mask
    before, lds = m.v.copy(), m.lds.copy()
    # The destination overlaps the address.
    m.run(f"ds_read_{name} {vector(0 if form.dwords > 1 else 1, form.dwords)}, v1 offset:{offset}")
    expected = {}
    for lane in m.active:
        at = int(before[1, lane]) + offset
        for d, value in enumerate(form.registers(lds[at : at + form.size].tobytes())):
            expected[(d if form.dwords > 1 else 1, lane)] = value
    check_registers(m, before, expected)
    np.testing.assert_array_equal(m.lds, lds)


@pytest.mark.parametrize("name", ["b32", "b64", "b96", "b128", "u16"])
def test_read_agpr_aligned(name: str) -> None:
    form = LOADS[READS[name]]
    m = Machine(seed=2, lds_bytes=LDS_BYTES)
    m.v[9] = m.rng.permutation(LANES) * 16
    before = m.v.copy()
    m.run(f"ds_read_{name} {vector(4, form.dwords, 'a')}, v9")
    rows = m.lds[: LANES * 16].reshape(LANES, 16)[before[9] // 16][:, : form.size]
    for d in range(form.dwords):
        data = rows[:, 4 * d : 4 * d + min(4, form.size)].astype(np.uint32)
        value = sum(data[:, i] << np.uint32(8 * i) for i in range(data.shape[1]))
        np.testing.assert_array_equal(m.a[4 + d], value)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("exec_mask", EXEC_MASKS)
def test_write(name: str, exec_mask: int) -> None:
    size, shift = STORES[WRITES[name]]
    m = Machine(seed=3, lds_bytes=512)  # lanes overlap: the highest wins
    m.v[1] = m.rng.integers(0, 512 - size - 8 + 1, LANES)
    m.v[1][-2:] = [0, 512 - size - 8]
    m.exec = exec_mask
    before, lds = m.v.copy(), m.lds.copy()
    dwords = max(1, size // 4)
    m.run(f"ds_write_{name} v1, {vector(2, dwords)} offset:8")
    for lane in m.active:
        at = int(before[1, lane]) + 8
        data = stored_bytes([before[2 + d, lane] for d in range(dwords)], size, shift)
        lds[at : at + size] = np.frombuffer(data, np.uint8)
    np.testing.assert_array_equal(m.lds, lds)
    np.testing.assert_array_equal(m.v, before)


@pytest.mark.parametrize("stride", [1, 64])
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("exec_mask", EXEC_MASKS[:1] + EXEC_MASKS[4:6])
def test_read2_write2_exchange2(stride: int, size: int, exec_mask: int) -> None:
    suffix = f"{'st64' if stride == 64 else ''}"
    kind, dwords = f"b{8 * size}", size // 4
    m = Machine(seed=4, lds_bytes=65536)
    offset0, offset1 = (200, 3) if stride == 1 else (7, 20)
    m.exec = exec_mask

    def data_at(memory: np.ndarray, at: int) -> list[int]:
        return [int(x) for x in np.frombuffer(memory[at : at + size].tobytes(), np.uint32)]

    m.v[1] = m.rng.integers(0, 2000, LANES)  # any byte
    before = m.v.copy()
    destination = vector(10, 2 * dwords)
    m.run(f"ds_read2{suffix}_{kind} {destination}, v1 offset0:{offset0} offset1:{offset1}")
    expected = {}
    for lane in m.active:
        for part, offset in enumerate((offset0, offset1)):
            at = int(before[1, lane]) + offset * size * stride
            for d, value in enumerate(data_at(m.lds, at)):
                expected[(10 + part * dwords + d, lane)] = value
    check_registers(m, before, expected)

    for instruction in ("write2", "wrxchg2"):
        m.v[1] = m.rng.permutation(LANES) * 8
        before, lds = m.v.copy(), m.lds.copy()
        operands = f"v1, {vector(4, dwords)}, {vector(6, dwords)}"
        returns = instruction == "wrxchg2"
        # The returned pair overlaps the second datum.
        operands = f"{vector(6, 2 * dwords)}, {operands}" if returns else operands
        m.run(
            f"ds_{instruction}{suffix}{'_rtn' if returns else ''}_{kind} {operands} "
            f"offset0:{offset0} offset1:{offset1}"
        )
        expected = {}
        for lane in m.active:
            places = [int(before[1, lane]) + x * size * stride for x in (offset0, offset1)]
            for part, at in enumerate(places):
                for d, value in enumerate(data_at(lds, at)):
                    if returns:
                        expected[(6 + part * dwords + d, lane)] = value
            for at, source in zip(places, (4, 6), strict=True):
                data = before[source : source + dwords, lane].tobytes()
                lds[at : at + size] = np.frombuffer(data, np.uint8)
        np.testing.assert_array_equal(m.lds, lds)
        check_registers(m, before, expected)


def test_write2_equal_offsets_writes_the_first_datum() -> None:
    m = Machine(seed=5, lds_bytes=1024)
    m.v[1] = np.arange(LANES) * 4
    m.run("ds_write2_b32 v1, v2, v3 offset0:5 offset1:5")
    np.testing.assert_array_equal(m.lds[20 : 20 + 256].view(np.uint32), m.v[2])


# ---- Lanes


def swizzled(m: Machine, offset: int) -> list[int]:
    m.run(f"ds_swizzle_b32 v3, v2 offset:{offset}")
    return [int(x) for x in m.v[3]]


@pytest.mark.parametrize(
    "offset,expected",
    [
        # The manual's tables, on inputs 1..0x20.
        (
            0xE000,
            "1 11 9 19 5 15 d 1d 3 13 b 1b 7 17 f 1f 2 12 a 1a 6 16 e 1e 4 14 c 1c 8 18 10 20",
        ),
        (
            0xE010,
            "1 9 5 d 3 b 7 f 2 a 6 e 4 c 8 10 11 19 15 1d 13 1b 17 1f 12 1a 16 1e 14 1c 18 20",
        ),
        (0xE01F, " ".join(f"{i + 1:x}" for i in range(32))),
        (
            0xC020,
            "2 3 4 5 6 7 8 9 a b c d e f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 20 1",
        ),
        (
            0xC420,
            "20 1 2 3 4 5 6 7 8 9 a b c d e f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f",
        ),
        (
            0xC021,
            "1 4 3 6 5 8 7 a 9 c b e d 10 f 12 11 14 13 16 15 18 17 1a 19 1c 1b 1e 1d 20 1f 2",
        ),
        (
            0xC421,
            "1f 2 1 4 3 6 5 8 7 a 9 c b e d 10 f 12 11 14 13 16 15 18 17 1a 19 1c 1b 1e 1d 20",
        ),
    ],
)
def test_swizzle_published_tables(offset: int, expected: str) -> None:
    m = Machine()
    m.v[2] = np.arange(LANES) + 1
    table = [int(x, 16) for x in expected.split()]
    assert swizzled(m, offset) == table + [x + 32 for x in table]


def test_swizzle_masks_and_quads() -> None:
    rng = np.random.default_rng(11)
    for offset in [*rng.integers(0, 0x8000, 20), *rng.integers(0x8000, 0x8100, 20)]:
        m = Machine(seed=int(offset))
        m.exec = 0xFFFFFFFF0F0FFF33
        before = m.v.copy()
        m.run(f"ds_swizzle_b32 v3, v2 offset:{offset}")
        for lane in range(LANES):
            if offset >= 0x8000:
                source = lane & ~3 | int(offset) >> 2 * (lane & 3) & 3
            else:
                x, o, a = int(offset) >> 10 & 31, int(offset) >> 5 & 31, int(offset) & 31
                source = lane & 32 | ((lane & 31 & a) | o) ^ x
            value = before[2, source] if m.lanes[source] else 0
            assert m.v[3, lane] == (value if m.lanes[lane] else before[3, lane])


def test_swizzle_swap_as_compilers_write_it() -> None:
    m = Machine(seed=12)
    before = m.v[2].copy()
    m.run("ds_swizzle_b32 v2, v2 offset:swizzle(SWAP,16)")
    np.testing.assert_array_equal(m.v[2], before[np.arange(LANES) ^ 16])


@pytest.mark.parametrize("exec_mask", EXEC_MASKS)
def test_permutes(exec_mask: int) -> None:
    m = Machine(seed=13)
    m.v[1] = m.rng.integers(0, 400, LANES)  # collides, wraps around, is not a multiple of 4
    m.v[1][5] = 0xFFFFFFFC
    m.exec = exec_mask
    before = m.v.copy()
    m.run("ds_permute_b32 v2, v1, v2 offset:8\nds_bpermute_b32 v3, v1, v3 offset:8")
    lane_of = (before[1].astype(np.uint64) + 8 & MASK32) // 4 % 64
    pushed, pulled = np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32)
    for lane in m.active:
        pushed[lane_of[lane]] = before[2, lane]
    for lane in range(LANES):
        pulled[lane] = before[3, lane_of[lane]] if m.lanes[lane_of[lane]] else 0
    np.testing.assert_array_equal(m.v[2], np.where(m.lanes, pushed, before[2]))
    np.testing.assert_array_equal(m.v[3], np.where(m.lanes, pulled, before[3]))


# ---- The odd ones


def test_addtid() -> None:
    m = Machine(seed=14, lds_bytes=1024)
    m.exec = 0xFF00FF00FF00FF0F
    m.s[M0] = 0x10000 + 64  # the lower half counts
    before, lds = m.v.copy(), m.lds.copy()
    m.run("ds_read_addtid_b32 v3 offset:16\nds_write_addtid_b32 v4 offset:400")
    words = lds.view(np.uint32)
    np.testing.assert_array_equal(m.v[3], np.where(m.lanes, words[20:84], before[3]))
    words[116:180] = np.where(m.lanes, before[4], words[116:180])
    np.testing.assert_array_equal(m.lds, lds)


def test_append_and_consume() -> None:
    m = Machine(seed=15, lds_bytes=256)
    m.exec = 0x00000F0000000007
    m.s[M0] = 32
    words = m.lds.view(np.uint32)
    old, before = int(words[12]), m.v.copy()
    m.run("ds_append v3 offset:16\nds_append v4 offset:16\nds_consume v5 offset:16")
    for register, value in ((3, old), (4, old + 7), (5, old + 14)):
        expected = np.where(m.lanes, np.uint32(value & MASK32), before[register])
        np.testing.assert_array_equal(m.v[register], expected)
    assert words[12] == (old + 7) & MASK32


def test_condxchg32() -> None:
    m = Machine(seed=16, lds_bytes=1024)
    m.v[1] = m.rng.permutation(LANES) * 8 + m.rng.integers(0, 8, LANES)
    before, lds = m.v.copy(), m.lds.copy().view(np.uint32)
    m.run("ds_condxchg32_rtn_b64 v[6:7], v1, v[2:3] offset:8")
    for lane in range(LANES):
        at = (int(before[1, lane]) + 8) // 8 * 2
        for d in range(2):
            assert m.v[6 + d, lane] == lds[at + d]
            if before[2 + d, lane] >> 31:
                lds[at + d] = before[2 + d, lane] & 0x7FFFFFFF
    np.testing.assert_array_equal(m.lds.view(np.uint32), lds)


def test_address_sum_wraps_around() -> None:
    m = Machine(seed=17, lds_bytes=256)
    m.v[1] = 0xFFFFFFF0
    m.run("ds_read_b32 v2, v1 offset:20")
    assert (m.v[2] == m.lds.view(np.uint32)[1]).all()


def test_nop_and_exec_zero_touch_nothing() -> None:
    m = Machine(seed=18)  # no LDS at all
    m.exec = 0
    before = m.v.copy()
    m.run("ds_nop\nds_read_b128 v[4:7], v1\nds_write_b64 v1, v[2:3]\nds_append v3")
    m.run("ds_add_u32 v1, v2")
    np.testing.assert_array_equal(m.v, before)


# ---- Faults


@pytest.mark.parametrize(
    "code,size",
    [
        ("ds_read_b32 v2, v1", 4),
        ("ds_read_u8 v2, v1", 1),
        ("ds_read_b128 v[2:5], v1", 16),
        ("ds_read2_b32 v[2:3], v1 offset1:0", 4),
        ("ds_write_b96 v1, v[2:4]", 12),
        ("ds_add_f32 v1, v2", 4),
        ("ds_max_rtn_u64 v[2:3], v1, v[4:5]", 8),
        ("ds_wrxchg2_rtn_b32 v[2:3], v1, v4, v5 offset1:0", 4),
    ],
)
@pytest.mark.parametrize("partial", [False, True])
def test_beyond_the_allocation(code: str, size: int, partial: bool) -> None:
    m = Machine(seed=19, lds_bytes=1024)
    m.v[1] = 64
    if partial:
        m.exec = m.exec & ~4
        m.v[1][2] = 0xFFFF0000  # inactive: harmless
    m.v[1][9] = 1024 - size
    m.run(code)
    m.v[1] = 64
    m.v[1][9] = 1024 - size + max(1, size & 8, size & 4)
    with pytest.raises(MachineFault) as error:
        m.run(code)
    assert error.value.kind == FaultKind.LDS_BOUNDS
    assert error.value.lane == 9
    assert error.value.address == m.v[1, 9]


def test_global_wave_sync_is_refused() -> None:
    m = Machine()
    with pytest.raises(MachineFault, match="ds_gws_barrier") as error:
        m.run("ds_gws_barrier v2 offset:0 gds")
    assert error.value.kind == FaultKind.ILLEGAL_INSTRUCTION
