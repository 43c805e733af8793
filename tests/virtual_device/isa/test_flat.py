"""FLAT, GLOBAL and SCRATCH instructions against NumPy and Python models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.isa.machine import (
    DEFAULT_MODE,
    EXEC_MASKS,
    FLUSH_F32_MODE,
    LANES,
    M0,
    FaultKind,
    Machine,
    MachineFault,
)
from tests.support.isa.memory_oracle import (
    LOADS,
    MASK32,
    MASK64,
    STORES,
    stored_bytes,
    vector,
)

BYTES = 8192
SHARED_WINDOW, PRIVATE_WINDOW = 1 << 48, 2 << 48


def scratch_bytes(m: Machine, lane: int) -> bytes:
    """The private segment of a lane, in the lane's own order."""
    return m.scratch[:, lane].tobytes()


class Place:
    """One way of addressing: fills address registers and says what each lane reaches.

    v[2:3] and s[4:5] hold addresses; `offset` is the instruction's.
    """

    name = ""
    operands = ""

    def __init__(self, m: Machine, size: int, offset: int) -> None:
        self.m = m
        self.offset = offset
        self.positions = [int(x) for x in m.rng.integers(0, BYTES - size + 1, LANES)]
        self.positions[:2] = [0, BYTES - size]
        self.place()

    def place(self) -> None:
        raise NotImplementedError

    def read(self, lane: int, size: int) -> bytes:
        at = self.positions[lane]
        return self.m.memory[at : at + size].tobytes()

    def contents(self) -> list[bytearray]:
        """One array that all lanes share."""
        return [bytearray(self.m.memory.tobytes())]


class Global(Place):
    name, operands = "global", "{v}, {data}off"
    address, result = "v[2:3]", "off"

    def place(self) -> None:
        base = self.m.address - self.offset
        self.m.set_v64(2, np.array([base + p for p in self.positions], np.uint64))
        self.m.v[2:4][:, ~self.m.lanes] = 0xDEADBEEF  # inactive lanes may hold anything


class GlobalScalar(Global):
    address, result = "v2", "s[4:5]"

    def place(self) -> None:
        # The vector offset is unsigned: reach the memory from 2 GiB and more below.
        below = 0x90000000
        self.m.set_pair(4, (self.m.address - below - self.offset) & MASK64)
        self.m.v[2] = [(below + p) & MASK32 for p in self.positions]
        self.m.v[2][~self.m.lanes] = 0xDEADBEEF


class Flat(Global):
    name = "flat"
    result = ""


class Scratch(Place):
    name = "scratch"
    address, result = "v2", "off"

    def place(self) -> None:
        self.m.v[2] = [(p - self.offset) & MASK32 for p in self.positions]

    def __init__(self, m: Machine, size: int, offset: int) -> None:
        self.m, self.offset = m, offset
        total = m.scratch.size * 4 // LANES
        low = max(0, offset)
        self.positions = [int(x) for x in m.rng.integers(low, total - size + 1, LANES)]
        self.positions[:2] = [low, total - size]
        self.place()

    def read(self, lane: int, size: int) -> bytes:
        at = self.positions[lane]
        return scratch_bytes(self.m, lane)[at : at + size]

    def contents(self) -> list[bytearray]:
        return [bytearray(scratch_bytes(self.m, lane)) for lane in range(LANES)]


class ScratchScalar(Scratch):
    """saddr only: every lane the same offset of its own segment."""

    address, result = "off", "s4"

    def place(self) -> None:
        self.positions = [self.positions[5]] * LANES
        self.m.s[4] = self.positions[0] - self.offset


class ScratchBoth(Scratch):
    address, result = "v2", "s4"

    def place(self) -> None:
        self.m.s[4] = 24
        self.positions = [max(p, 24 + max(0, self.offset)) for p in self.positions]
        self.m.v[2] = [p - 24 - self.offset for p in self.positions]


class ScratchImmediate(Scratch):
    address, result = "off", "off"

    def place(self) -> None:
        assert self.offset >= 0
        self.positions = [self.offset] * LANES


PLACES: list[tuple[type[Place], int]] = [
    (Global, 0),
    (Global, -4096),
    (Global, 4095),
    (GlobalScalar, 0),
    (GlobalScalar, -333),
    (Flat, 0),
    (Flat, 4095),
    (Scratch, 0),
    (Scratch, 20),
    (Scratch, -64),
    (ScratchScalar, 4),
    (ScratchBoth, 8),
    (ScratchImmediate, 77),
]


def machine(seed: int, exec_mask: int = EXEC_MASKS[0], mode: int = DEFAULT_MODE) -> Machine:
    m = Machine(seed, memory_bytes=BYTES, scratch_lane_bytes=256, mode=mode)
    m.exec = exec_mask
    return m


def text(place: Place, mnemonic: str, destination: str, data: str) -> str:
    operands = [destination, place.address, data, place.result]  # type: ignore[attr-defined]
    joined = ", ".join(x for x in operands if x)
    offset = f" offset:{place.offset}" if place.offset else ""
    return f"{place.name}_{mnemonic} {joined}{offset}"


@pytest.mark.parametrize("kind,offset", PLACES)
@pytest.mark.parametrize("name", LOADS)
def test_load(kind: type[Place], offset: int, name: str) -> None:
    form = LOADS[name]
    for exec_mask in EXEC_MASKS:
        m = machine(1, exec_mask)
        place = kind(m, form.size, offset)
        before = m.v.copy()
        # The destination overlaps the address.
        run = m.run(text(place, f"load_{name}", vector(2, form.dwords), ""))
        expected = before.copy()
        for lane in m.active:
            expected[2 : 2 + form.dwords, lane] = form.registers(place.read(lane, form.size))
        np.testing.assert_array_equal(m.v, expected)
        assert run.progress == 0


@pytest.mark.parametrize("kind,offset", PLACES)
@pytest.mark.parametrize("name", STORES)
def test_store(kind: type[Place], offset: int, name: str) -> None:
    size, shift = STORES[name]
    dwords = max(1, size // 4)
    for exec_mask in EXEC_MASKS:
        m = machine(2, exec_mask)
        place = kind(m, size, offset)
        contents, before = place.contents(), m.v.copy()
        code = text(place, f"store_{name}", "", vector(8, dwords, "a"))
        run = m.run(code)
        for lane in m.active:
            at = place.positions[lane]
            target = contents[lane if len(contents) > 1 else 0]
            target[at : at + size] = stored_bytes(
                list(before[264 : 264 + dwords, lane]), size, shift
            )
        assert place.contents() == contents
        np.testing.assert_array_equal(m.v, before)
        in_memory = len(contents) == 1
        assert run.progress == (1 if in_memory and exec_mask else 0)


@pytest.mark.parametrize("name", STORES)
def test_store_of_what_is_there_is_no_progress(name: str) -> None:
    size, _ = STORES[name]
    dwords = max(1, size // 4)
    m = machine(3)
    m.set_v64(2, m.address + np.arange(LANES, dtype=np.uint64) * np.uint64(16))
    code = f"global_store_{name} v[2:3], {vector(4, dwords)}, off"
    assert m.run(code).progress == 1
    assert m.run(code).progress == 0
    m.v[4, 17] ^= 0x00010001
    assert m.run(code).progress == 1


@pytest.mark.parametrize("name", ["dword", "dwordx2", "dwordx3", "dwordx4", "ushort"])
def test_load_agpr_aligned(name: str) -> None:
    form = LOADS[name]
    m = machine(4)
    index = m.rng.permutation(LANES).astype(np.uint64)
    m.set_v64(2, m.address + index * np.uint64(16))
    m.run(f"global_load_{name} {vector(6, form.dwords, 'a')}, v[2:3], off sc0 nt sc1")
    for lane in range(LANES):
        at = int(index[lane]) * 16
        data = m.memory[at : at + form.size].tobytes()
        assert list(m.a[6 : 6 + form.dwords, lane]) == form.registers(data)


def test_flat_windows() -> None:
    """Lanes of one FLAT instruction reach LDS, scratch and device memory."""
    m = Machine(5, lds_bytes=1024, memory_bytes=BYTES, scratch_lane_bytes=128)
    kinds = m.rng.integers(0, 3, LANES)
    positions = m.rng.integers(0, 96, LANES)
    bases = [SHARED_WINDOW, PRIVATE_WINDOW, m.address]
    m.set_v64(
        2, np.array([bases[k] + int(p) for k, p in zip(kinds, positions, strict=True)], np.uint64)
    )
    m.exec = 0xFFFFFFF0FFFFFFFF
    spaces: list[Callable[[int], bytes]] = [
        lambda lane: m.lds.tobytes(),
        lambda lane: scratch_bytes(m, lane),
        lambda lane: m.memory.tobytes(),
    ]
    m.run("flat_load_dwordx2 v[6:7], v[2:3] offset:16")
    for lane in m.active:
        at = int(positions[lane]) + 16
        data = spaces[kinds[lane]](lane)[at : at + 8]
        assert list(m.v[6:8, lane]) == LOADS["dwordx2"].registers(data), lane

    expected = [bytearray(space(0)) for space in spaces]
    private = [bytearray(scratch_bytes(m, lane)) for lane in range(LANES)]
    m.run("flat_store_short v[2:3], v8 offset:8")
    for lane in m.active:
        at = int(positions[lane]) + 8
        target = private[lane] if kinds[lane] == 1 else expected[kinds[lane]]
        target[at : at + 2] = int(m.v[8, lane]).to_bytes(4, "little")[:2]
    assert bytes(expected[0]) == m.lds.tobytes()
    assert bytes(expected[2]) == m.memory.tobytes()
    assert [bytes(x) for x in private] == [scratch_bytes(m, lane) for lane in range(LANES)]


def test_flat_atomic_in_lds_honours_mode_and_in_memory_does_not() -> None:
    m = Machine(6, lds_bytes=256, memory_bytes=256, mode=FLUSH_F32_MODE)
    m.lds[:] = 0
    m.memory[:] = 0
    m.lds[0] = m.memory[0] = 3  # a denormal
    m.exec = 3
    m.set_v64(2, np.array([SHARED_WINDOW, m.address] + [0] * 62, np.uint64))
    m.v[4] = 1
    m.run("flat_atomic_add_f32 v5, v[2:3], v4 sc0")
    assert list(m.v[5, :2]) == [3, 3]
    assert m.lds.view(np.uint32)[0] == 0
    assert m.memory.view(np.uint32)[0] == 4


# ---- Loads to LDS


@pytest.mark.parametrize("name", ["ubyte", "sbyte", "ushort", "sshort", "dword"])
@pytest.mark.parametrize("kind,offset", [(Global, 12), (GlobalScalar, -4), (Scratch, 8)])
def test_load_to_lds(name: str, kind: type[Place], offset: int) -> None:
    form = LOADS[name]
    for exec_mask in EXEC_MASKS:
        m = Machine(12, lds_bytes=1024, memory_bytes=BYTES, scratch_lane_bytes=256)
        m.exec = exec_mask
        place = kind(m, form.size, offset)
        m.s[M0] = 0xFFFC0000 | 64 | 3  # bits above 17 and the two lowest do not count
        before, lds = m.v.copy(), m.lds.copy().view(np.uint32)
        m.run(text(place, f"load_lds_{name}", "", ""))
        for lane in m.active:
            (lds[(64 + offset) // 4 + lane],) = form.registers(place.read(lane, form.size))
        np.testing.assert_array_equal(m.lds.view(np.uint32), lds)
        np.testing.assert_array_equal(m.v, before)


@pytest.mark.parametrize("name", ["dwordx3", "dwordx4"])
@pytest.mark.parametrize("kind,offset", [(Global, 12), (GlobalScalar, -4)])
def test_wide_load_to_lds(name: str, kind: type[Place], offset: int) -> None:
    """Of gfx950: lanes are 16 bytes apart; of three dwords the fourth stays (ISA manual, 9.1.9)."""
    form = LOADS[name]
    for exec_mask in EXEC_MASKS:
        m = Machine(14, lds_bytes=2048, memory_bytes=BYTES, cpu="gfx950")
        m.exec = exec_mask
        place = kind(m, form.size, offset)
        m.s[M0] = 0xFFFC0000 | 64 | 3
        before, lds = m.v.copy(), m.lds.copy().view(np.uint32)
        m.run(text(place, f"load_lds_{name}", "", ""))
        for lane in m.active:
            at = (64 + offset) // 4 + 4 * lane
            lds[at : at + form.dwords] = form.registers(place.read(lane, form.size))
        np.testing.assert_array_equal(m.lds.view(np.uint32), lds)
        np.testing.assert_array_equal(m.v, before)


@pytest.mark.parametrize("name,last", [("dwordx3", 12), ("dwordx4", 16)])
def test_wide_load_to_lds_beyond_the_allocation(name: str, last: int) -> None:
    for missing in (0, 4):
        m = Machine(15, lds_bytes=63 * 16 + last - missing, memory_bytes=BYTES, cpu="gfx950")
        m.set_v64(2, m.address)
        m.s[M0] = 0
        if not missing:
            m.run(f"global_load_lds_{name} v[2:3], off")
            continue
        with pytest.raises(MachineFault) as error:
            m.run(f"global_load_lds_{name} v[2:3], off")
        assert (error.value.kind, error.value.lane) == (FaultKind.LDS_BOUNDS, 63)


def test_load_to_lds_beyond_the_allocation() -> None:
    m = Machine(13, lds_bytes=256, memory_bytes=BYTES)
    m.set_v64(2, m.address)
    m.s[M0] = 4
    with pytest.raises(MachineFault) as error:
        m.run("global_load_lds_dword v[2:3], off")
    assert error.value.kind == FaultKind.LDS_BOUNDS
    assert error.value.lane == 63


# ---- Faults

NEAR_END = [
    ("global_load_dword v4, v[2:3], off", 4),
    ("global_load_dwordx4 v[4:7], v[2:3], off", 16),
    ("global_store_byte v[2:3], v4, off", 1),
    ("global_store_dwordx3 v[2:3], v[4:6], off", 12),
    ("flat_load_dwordx2 v[4:5], v[2:3]", 8),
    ("global_atomic_add v[2:3], v4, off", 4),
    ("flat_atomic_add_f64 v[2:3], v[4:5]", 8),
]


@pytest.mark.parametrize("code,size", NEAR_END)
@pytest.mark.parametrize("partial", [False, True])
def test_outside_memory(code: str, size: int, partial: bool) -> None:
    for wrong in ("end", "start", "aperture"):
        m = Machine(14, memory_bytes=1024)
        addresses = np.full(LANES, m.address + 64, np.uint64)
        if partial:
            m.exec = m.exec & ~2
            addresses[1] = 0x123
        addresses[40] = m.address + 1024 - size
        m.set_v64(2, addresses)
        m.run(code)
        step = size if "atomic" in code else 1
        addresses[40] = {
            "end": m.address + 1024 - size + step,
            "start": m.address - step,
            "aperture": SHARED_WINDOW + 4096,
        }[wrong]
        m.set_v64(2, addresses)
        with pytest.raises(MachineFault) as error:
            m.run(code)
        lds = wrong == "aperture" and code.startswith("flat_")
        assert error.value.kind == (FaultKind.LDS_BOUNDS if lds else FaultKind.ILLEGAL_ADDRESS)
        assert error.value.lane == 40


@pytest.mark.parametrize(
    "code", ["scratch_load_dword v4, v2, off", "scratch_store_dwordx2 v2, v[4:5], off"]
)
def test_beyond_the_private_segment(code: str) -> None:
    m = Machine(16, scratch_lane_bytes=64)
    m.v[2] = 0
    for bad in (64, 61, 0xFFFFFFFC):
        m.v[2][3] = bad
        with pytest.raises(MachineFault) as error:
            m.run(code)
        assert error.value.kind == FaultKind.SCRATCH_BOUNDS
        assert error.value.lane == 3


def test_flat_atomic_on_the_private_segment() -> None:
    m = Machine(17, memory_bytes=64, scratch_lane_bytes=64)
    m.set_v64(2, PRIVATE_WINDOW)
    with pytest.raises(MachineFault, match="private segment"):
        m.run("flat_atomic_add v[2:3], v4")


def test_flat_offset_does_not_wrap_inside_the_lds_window() -> None:
    m = Machine(18, lds_bytes=64)
    m.set_v64(2, SHARED_WINDOW + 0xFFFFFFF0)
    with pytest.raises(MachineFault) as error:
        m.run("flat_load_dword v4, v[2:3] offset:32")
    assert error.value.kind == FaultKind.LDS_BOUNDS
