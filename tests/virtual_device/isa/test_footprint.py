"""The memory that an instruction is said to touch, against what its execution touches.

For every row that loads, stores or updates memory, at random addresses, offsets and EXEC: bytes
that are not written keep their value, bytes that are not read may hold anything, and the registers
of a datum hold the bytes at its address.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.isa.disassembler import Disassembler, Row
from tests.support.isa.machine import EXEC_MASKS, M0, Inspection, Machine, MachineFault, Part
from tests.support.vdev_library import DEFAULT_CPU

U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
SPACE = 8192  # bytes of each kind of memory
TRIALS, MOST_TRIALS = 3, 20  # forms of a row: that touch memory, and the most that are tried
ADDRESS, DATA, DATA1, DST = 2, 16, 20, 8  # VGPRs
BASE, SOFFSET = 4, 12  # SGPRs: resource or base address, offset
FLAT_SEGMENT = {"FLAT": 0, "SCRATCH": 1, "GLOBAL": 2}
OFF = 0x7F
LDS_FORMS = {
    "gfx942": {"load_dword"},
    "gfx950": {"load_dword", "load_dwordx3", "load_dwordx4"},
}
DWORD_FORMAT = 4 << 15 | 0xFAC  # word 3 of a resource: 32 bits, X Y Z W


def encode(row: Row, rng: np.random.Generator, cpu: str = DEFAULT_CPU) -> U32:
    """A random form of the row on the registers above."""
    bit = lambda: int(rng.integers(2))  # noqa: E731
    if row.format == "DS":
        # Fields that a row does not have must be zero: try with and without.
        unit = 16 if row.name.endswith("tr_b6") else 8  # its addresses are so aligned
        offset = int(rng.integers(16)) * unit | int(rng.integers(16)) << 8
        addressless = any(part in row.name for part in ("addtid", "append", "consume"))
        fields = (
            ADDRESS * (not addressless)
            | DATA * bit() << 8
            | DATA1 * bit() << 16
            | DST * bit() << 24
        )
        return words(0xD8000000 | row.opcode << 17 | offset, fields)
    if row.format in FLAT_SEGMENT:
        offset = int(rng.integers(128)) * 8
        low = 0xDC000000 | row.opcode << 18 | FLAT_SEGMENT[row.format] << 14 | offset
        atomic = "atomic" in row.name
        saddr = OFF if bit() else (SOFFSET, BASE)[row.format == "GLOBAL"]
        if row.format == "FLAT":  # the field says nothing there
            saddr = 0
        if row.format == "SCRATCH":  # whether there is a VGPR offset
            low |= bit() << 13
        return words(
            low | (atomic and bit()) << 16,
            ADDRESS | DATA * bit() << 8 | saddr << 16 | DST * bit() << 24,
        )
    low = int(rng.integers(64)) * 8 | bit() << 12 | bit() << 13
    high = ADDRESS | DATA << 8 | BASE // 4 << 16 | (SOFFSET if bit() else 128) << 24
    if row.format == "MUBUF":
        lds = row.name[7:] in LDS_FORMS[cpu] and bit()
        return words(0xE0000000 | row.opcode << 18 | low | bit() << 14 | lds << 16, high)
    if row.format == "MTBUF":
        return words(0xE8000000 | row.opcode << 15 | 4 << 19 | 4 << 23 | low, high)
    assert row.format == "SMEM"
    code = 0xC0000000 | row.opcode << 18 | 1 << 17 | bit() << 14 | bit() << 16
    return words(code | 24 << 6 | BASE // 2, int(rng.integers(64)) * 4 | SOFFSET << 25)


def words(low: int, high: int) -> U32:
    return np.array([low, high], np.uint32)


def prepared(row: Row, code: U32, seed: int, cpu: str = DEFAULT_CPU) -> Machine:
    """Addresses that the row can use; everything else at random."""
    m = Machine(
        seed, lds_bytes=4 * SPACE, memory_bytes=SPACE, scratch_lane_bytes=SPACE // 4, cpu=cpu
    )
    m.exec = EXEC_MASKS[seed % len(EXEC_MASKS)] & ((1 << 64) - 1)
    offsets = m.rng.permutation(64).astype(np.uint32) * 32
    m.s[SOFFSET] = int(m.rng.integers(32)) * 8
    m.s[M0] = int(m.rng.integers(16)) * 4
    m.s[BASE], m.s[BASE + 1] = m.address & 0xFFFFFFFF, m.address >> 32
    m.s[BASE + 2], m.s[BASE + 3] = int(m.rng.integers(256, SPACE)), DWORD_FORMAT
    scalar = row.format != "FLAT" and int(code[1]) >> 16 & 0x7F != OFF
    if row.format in ("FLAT", "GLOBAL") and not scalar:
        m.set_v64(ADDRESS, m.address + offsets.astype(np.uint64))
    elif row.format == "SCRATCH":
        m.v[ADDRESS] = offsets % 512
    elif row.format in ("MUBUF", "MTBUF"):
        m.v[ADDRESS] = offsets
        m.v[ADDRESS + 1] = np.roll(offsets, 1)
    else:
        m.v[ADDRESS] = offsets
    return m


def memories(m: Machine) -> dict[str, U8]:
    return {"global": m.memory, "lds": m.lds, "scratch": m.scratch.view(np.uint8).reshape(-1)}


def position(m: Machine, part: Part, lane: int, byte: int) -> int:
    """Index into `memories` of a byte of a lane's datum."""
    at = part.addresses[lane] + byte
    if part.space == "global":
        return at - m.address
    return at if part.space == "lds" else (at // 4 * 64 + lane) * 4 + at % 4


def touched(m: Machine, seen: Inspection, *accesses: str) -> dict[str, npt.NDArray[np.bool_]]:
    masks = {space: np.zeros(a.size, bool) for space, a in memories(m).items()}
    for part in seen.memory:
        if part.access in accesses:
            for lane in part.addresses:
                for byte in range(part.size):
                    masks[part.space][position(m, part, lane, byte)] = True
    return masks


def register_bytes(m: Machine, row: Row, part: Part, lane: int) -> U8:
    """Bytes of a datum in its registers."""
    if row.format == "SMEM":
        return m.s[part.data : part.data + 16].view(np.uint8)[: part.size]
    registers = np.ascontiguousarray(m.v[part.data : part.data + 4, lane])
    return registers.view(np.uint8)[part.shift // 8 :][: part.size]


def clone(m: Machine, seed: int, keep: dict[str, npt.NDArray[np.bool_]]) -> Machine:
    """The same registers, and the same addresses, with other bits in memory that is not kept."""
    other = copy.copy(m)
    for name in ("v", "s", "lds", "scratch"):
        setattr(other, name, getattr(m, name).copy())
    rng = np.random.default_rng(seed)
    for space, array in memories(other).items():
        noise = rng.integers(0, 256, array.size, np.uint8)
        array[:] = np.where(keep[space], array, noise)
    return other


def memory_rows(disassembler: Disassembler) -> Iterator[Row]:
    formats = ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "SMEM")
    yield from (row for row in disassembler.rows() if row.format in formats)


def check_rows(disassembler: Disassembler, rows: Sequence[Row], seed: int) -> None:
    """Random forms of each row, some of which get through."""
    rng = np.random.default_rng(seed)
    checked = set()
    for row in rows:
        codes = np.stack([encode(row, rng, disassembler.cpu) for _ in range(100)])
        valid = [c for c, d in zip(codes, disassembler.decode(codes), strict=True) if d.size == 2]
        passed = 0
        for trial, code in enumerate(valid[:MOST_TRIALS]):
            m = prepared(row, code, int(rng.integers(1 << 20)) * 7 + trial, disassembler.cpu)
            passed += check(row, code, int(rng.integers(1 << 20)), m)
            if passed == TRIALS:
                break
        if passed:
            checked.add(row.name)
    missing = {row.name for row in rows} - checked
    assert not {name for name in missing if not name.startswith(NO_MEMORY)}


@pytest.mark.parametrize("chunk", range(4))
def test_footprints_hold(chunk: int, vdev_lib: object) -> None:
    disassembler = Disassembler(vdev_lib)  # type: ignore[arg-type]
    rows = [row for n, row in enumerate(memory_rows(disassembler)) if n % 4 == chunk]
    check_rows(disassembler, rows, chunk)


def test_footprints_of_gfx950_hold(vdev_lib: object) -> None:
    """Of what it has beyond gfx942."""
    ours, theirs = (Disassembler(vdev_lib, cpu) for cpu in ("gfx950", DEFAULT_CPU))  # type: ignore[arg-type]
    known = {row.name for row in memory_rows(theirs)}
    wide = {"buffer_load_dwordx3", "buffer_load_dwordx4"}  # known, without their lds forms
    rows = [row for row in memory_rows(ours) if row.name in wide or row.name not in known]
    assert len(rows) == 9
    check_rows(ours, rows, 11)


# Lane exchanges, cache control, clocks, and what traps.
NO_MEMORY = (
    "ds_nop", "ds_gws", "ds_swizzle", "ds_permute", "ds_bpermute", "buffer_wbl2", "buffer_inv",
    "s_dcache", "s_memtime", "s_memrealtime", "s_atc", "s_scratch",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["load", "store"])
def test_buffers_that_end_inside_a_datum(kind: str, vdev_lib: object) -> None:
    """Dwords of a lane's datum in front of the end are touched, those behind it not."""
    disassembler = Disassembler(vdev_lib)  # type: ignore[arg-type]
    wide = {f"buffer_{kind}_dwordx{n}": n for n in (2, 3, 4)}
    rows = [row for row in disassembler.rows() if row.name in wide]
    assert len(rows) == 3
    for row in rows:
        for inside in range(1, wide[row.name]):  # dwords of lane 5
            offen, at = 1 << 12, 40
            low = 0xE0000000 | row.opcode << 18 | offen | at
            code = words(low, ADDRESS | DATA << 8 | BASE // 4 << 16 | 128 << 24)
            m = prepared(row, code, seed=inside)
            m.exec = (1 << 64) - 1
            end = int(m.v[ADDRESS, 5]) + at + 4 * inside
            m.s[BASE + 2] = end
            (whole, *partial) = m.inspect(code).memory
            assert 5 not in whole.addresses
            found = [part.addresses[5] for part in partial if 5 in part.addresses]
            start = m.address + int(m.v[ADDRESS, 5]) + at
            assert found == [start + 4 * dword for dword in range(inside)]
            assert check(row, code, inside, m)


def check(row: Row, code: U32, seed: int, machine: Machine | None = None) -> bool:
    m = machine or prepared(row, code, seed)
    seen = m.inspect(code)
    start = {space: array.copy() for space, array in memories(m).items()}
    registers = m.v.copy(), m.s.copy()
    try:
        m.run(code)
    except MachineFault:
        restore(m, start, registers)
        return False
    if not seen.memory:
        return False
    name = f"{row.name} {[hex(w) for w in code]} seed {seed}"
    written = touched(m, seen, "write", "atomic")
    after = {space: array.copy() for space, array in memories(m).items()}
    for space, array in after.items():
        stray = np.flatnonzero((array != start[space]) & ~written[space])
        assert not stray.size, f"{name}: writes {space} {stray[:8]}, not said"
    check_data(m, row, seen, start, after, registers, name)

    # Other bits where it neither reads nor updates: the same result.
    result = m.v.copy(), m.s.copy()
    restore(m, start, registers)
    read = touched(m, seen, "read", "atomic")
    keep = {space: read[space] for space in read}
    other = clone(m, seed + 1, keep)
    other.run(code)
    # D16 loads and partial EXEC keep old register bits, which are equal in both.
    np.testing.assert_array_equal(other.v, result[0], err_msg=name)
    np.testing.assert_array_equal(other.s, result[1], err_msg=name)
    for space, array in memories(other).items():
        where = written[space]
        np.testing.assert_array_equal(array[where], after[space][where], err_msg=name)
    return bool(any(part.addresses for part in seen.memory))


def restore(m: Machine, start: dict[str, U8], registers: tuple[U32, U32]) -> None:
    for space, array in memories(m).items():
        array[:] = start[space]
    m.v[:], m.s[:] = registers


def check_data(
    m: Machine,
    row: Row,
    seen: Inspection,
    start: dict[str, U8],
    after: dict[str, U8],
    registers: tuple[U32, U32],
    name: str,
) -> None:
    for part in seen.memory:
        if part.data < 0 or not part.plain or part.access == "atomic":
            continue
        for lane in part.addresses:
            at = [position(m, part, lane, byte) for byte in range(part.size)]
            if part.access == "read":
                got = register_bytes(m, row, part, lane)
                np.testing.assert_array_equal(got, start[part.space][at], err_msg=name)
            elif len(set(part.addresses.values())) == len(part.addresses):
                source = copy.copy(m)
                source.v, source.s = registers
                stored = register_bytes(source, row, part, lane)
                later = other_writers(seen, part)
                if not later:
                    np.testing.assert_array_equal(after[part.space][at], stored, err_msg=name)


def other_writers(seen: Inspection, part: Part) -> bool:
    """Whether another part of the same instruction may write the same bytes."""
    return sum(p.access == "write" and p.space == part.space for p in seen.memory) > 1
