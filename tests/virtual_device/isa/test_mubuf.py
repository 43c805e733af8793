"""MUBUF and MTBUF instructions against an independent model of buffer resources and formats."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa.assembler import assemble
from tests.support.isa.buffer_oracle import BYTES, Buffer, Form, setup
from tests.support.isa.disassembler import Disassembler
from tests.support.isa.machine import EXEC_MASKS, LANES, M0, FaultKind, Machine, MachineFault
from tests.support.isa.memory_oracle import (
    BF16,
    F16,
    F32,
    F64,
    LOADS,
    MASK32,
    STORES,
    integer_updates,
    packed,
    packed_add,
    stored_bytes,
    vector,
)
from tests.support.vdev_library import DEFAULT_CPU

RAW = [
    Form(False, True, 0, "0"),
    Form(False, True, 100, "s20"),
    Form(False, True, 4095, "s20"),
    Form(False, True, 8, "64"),
    Form(False, False, 36, "s20"),
    Form(True, True, 4, "s20"),  # without a stride the index does nothing
]


@pytest.mark.parametrize("form", RAW, ids=str)
@pytest.mark.parametrize("name", LOADS)
def test_raw_load(form: Form, name: str) -> None:
    """Dwords beyond num_records are 0, each by itself; short data entirely."""
    shape = LOADS[name]
    for exec_mask in EXEC_MASKS[:1] + EXEC_MASKS[4:6]:
        buffer = Buffer(base=-BYTES // 4, num_records=1023)
        m = setup(1, buffer, form, exec_mask)
        if form.offset == 4095:
            buffer.num_records = 5117
            m.s[10] = 5117
            buffer.base -= 4095
            m.s[8:10] = buffer.words()[:2]
        limit = buffer.num_records - form.offset - form.scalar(m)
        m.v[2:4] = m.rng.integers(max(0, limit - 40), limit + 10, (2, LANES))
        m.v[2:4, 5] = [0xFFFFFFFF, 0xFFFFFFF0]
        before = m.v.copy()
        m.run(f"buffer_load_{name} {vector(2, shape.dwords)}, {form.operands()} {form.modifiers()}")
        expected = before.copy()
        memory = m.memory.tobytes()
        for lane in m.active:
            offset = form.offset_of(before, lane)
            at = buffer.address(0, offset, form.scalar(m), lane, False) - m.address
            data = b""
            step = min(4, shape.size)
            for i in range(0, shape.size, step):
                good = buffer.in_range(0, offset, form.scalar(m), i + step, False)
                data += memory[at + i : at + i + step] if good else bytes(step)
            expected[2 : 2 + shape.dwords, lane] = shape.registers(data)
        np.testing.assert_array_equal(m.v, expected)


@pytest.mark.parametrize("form", RAW[:4], ids=str)
@pytest.mark.parametrize("name", STORES)
def test_raw_store(form: Form, name: str) -> None:
    size, shift = STORES[name]
    dwords = max(1, size // 4)
    for exec_mask in EXEC_MASKS[:1] + EXEC_MASKS[4:6]:
        buffer = Buffer(base=-BYTES // 4, num_records=1023)
        m = setup(2, buffer, form, exec_mask)
        if form.offset == 4095:
            buffer.num_records = 5117
            m.s[10] = 5117
            buffer.base -= 4095
            m.s[8:10] = buffer.words()[:2]
        limit = buffer.num_records - form.offset - form.scalar(m)
        m.v[2] = m.rng.integers(max(0, limit - 200), limit + 10, LANES)
        m.v[2][5] = 0xFFFFFFF0
        before, memory = m.v.copy(), m.memory.copy()
        m.run(f"buffer_store_{name} {vector(8, dwords, 'a')}, {form.operands()} {form.modifiers()}")

        # Whole lanes come first, cut ones after them; only overlaps show the order.
        offsets = [form.offset_of(before, lane) for lane in range(LANES)]
        scalar = form.scalar(m)
        whole = [buffer.in_range(0, x, scalar, size, False) for x in offsets]
        lanes = m.active
        for lane in [x for x in lanes if whole[x]] + [x for x in lanes if not whole[x]]:
            at = buffer.address(0, offsets[lane], form.scalar(m), lane, False) - m.address
            data = stored_bytes(list(before[264 : 264 + dwords, lane]), size, shift)
            step = min(4, size)
            for i in range(0, size, step):
                if buffer.in_range(0, offsets[lane], form.scalar(m), i + step, False):
                    memory[at + i : at + i + step] = np.frombuffer(data[i : i + step], np.uint8)
        np.testing.assert_array_equal(m.memory, memory)
        np.testing.assert_array_equal(m.v, before)


@pytest.mark.parametrize("swizzle", [False, True])
@pytest.mark.parametrize("offen", [False, True])
@pytest.mark.parametrize("stride", [4, 20, 36])
def test_structured(swizzle: bool, offen: bool, stride: int) -> None:
    """With IDXEN and a stride the index alone is checked."""
    for exec_mask in EXEC_MASKS[:1] + EXEC_MASKS[4:6]:
        form = Form(True, offen, 4 if swizzle else 8, "s20")
        buffer = Buffer(0, 40, stride=stride, swizzle=swizzle, index_stride_log2=4)
        m = setup(3, buffer, form, exec_mask)
        m.v[2] = m.rng.integers(0, 44, LANES)
        m.v[2][7] = 0x80000000
        m.v[3] = m.rng.integers(0, 4, LANES) * 4
        before = m.v.copy()
        words = "" if swizzle else "x2"
        dwords = 1 if swizzle else 2
        m.run(
            f"buffer_load_dword{words} {vector(10, dwords)}, {form.operands()} {form.modifiers()}"
        )
        for lane in m.active:
            index, offset = form.index(before, lane), form.offset_of(before, lane)
            at = buffer.address(index, offset, 96, lane, False) - m.address
            good = buffer.in_range(index, offset, 96, 4 * dwords, True)
            data = m.memory[at : at + 4 * dwords].tobytes() if good else bytes(4 * dwords)
            shape = LOADS["dword" + words]
            assert list(m.v[10 : 10 + dwords, lane]) == shape.registers(data)
        memory = m.memory.copy()
        m.v[2] = m.rng.permutation(LANES)
        m.run(f"buffer_store_short v12, {form.operands()} {form.modifiers()}")
        for lane in m.active:
            index, offset = form.index(m.v, lane), form.offset_of(m.v, lane)
            if buffer.in_range(index, offset, 96, 2, True):
                at = buffer.address(index, offset, 96, lane, False) - m.address
                memory[at : at + 2] = np.frombuffer(m.v[12, lane].tobytes()[:2], np.uint8)
        np.testing.assert_array_equal(m.memory, memory)


@pytest.mark.parametrize("swizzle", [False, True])
def test_add_tid(swizzle: bool) -> None:
    """The scratch layout: lane number as index, no range check, four more bits of stride."""
    form = Form(False, True, 4, "s20")
    buffer = Buffer(0, 0, stride=16, swizzle=swizzle, add_tid=True, dfmt=0, index_stride_log2=6)
    m = setup(4, buffer, form)
    m.v[2] = m.rng.integers(0, 3, LANES) * 4
    before = m.v.copy()
    m.run(f"buffer_load_dword v5, {form.operands()} {form.modifiers()}")
    for lane in range(LANES):
        at = buffer.address(0, form.offset_of(before, lane), 96, lane, False) - m.address
        assert m.v[5, lane] == m.memory[at : at + 4].view(np.uint32)[0]
    if swizzle:
        return  # 64 records of a dword lie together: the stride is not used
    buffer.dfmt = 1
    m.s[11] = buffer.words()[3]
    m.exec = 1
    m.run(f"buffer_load_dword v5, {form.operands()} {form.modifiers()}")
    m.exec = 2
    with pytest.raises(MachineFault) as error:  # 16 KiB further
        m.run(f"buffer_load_dword v5, {form.operands()} {form.modifiers()}")
    assert error.value.address == buffer.address(0, form.offset_of(before, 1), 96, 1, False)


def test_swizzled_access_wider_than_an_element_is_refused() -> None:
    form = Form(True, False, 0, "0")
    m = setup(5, Buffer(0, 64, stride=16, swizzle=True), form)
    m.v[2] = 0
    with pytest.raises(MachineFault, match="swizzled") as error:
        m.run(f"buffer_load_dwordx2 v[4:5], {form.operands()} idxen")
    assert error.value.kind == FaultKind.ILLEGAL_INSTRUCTION


def test_without_an_index_swizzled_is_linear() -> None:
    """As HipKittens relies on: its raw accesses have the stride of a row and the bit."""
    form = Form(False, True, 4, "s20")
    buffer = Buffer(0, 4096, stride=2048, swizzle=True)
    m = setup(7, buffer, form)
    m.v[2] = m.rng.permutation(LANES) * 12
    before = m.v.copy()
    m.run(f"buffer_load_dwordx4 v[4:7], {form.operands()} {form.modifiers()}")
    buffer.swizzle = False
    for lane in range(LANES):
        at = buffer.address(0, form.offset_of(before, lane), 96, lane, False) - m.address
        np.testing.assert_array_equal(m.v[4:8, lane], m.memory[at : at + 16].view(np.uint32))


def test_unbound_resource_reads_zero() -> None:
    form = Form(False, True, 0, "0")
    m = setup(6, Buffer(0, 1024, dfmt=0), form)
    m.v[2] = np.arange(LANES) * 4
    memory = m.memory.copy()
    m.run("buffer_store_dword v3, v2, s[8:11], 0 offen")
    m.run("buffer_load_dwordx2 v[4:5], v2, s[8:11], 0 offen")
    assert not m.v[4:6].any()
    np.testing.assert_array_equal(m.memory, memory)


def test_in_range_but_outside_memory_faults() -> None:
    form = Form(False, True, 0, "0")
    m = setup(7, Buffer(0, 0xFFFFFFFF), form)
    m.v[2] = 0
    m.v[2][11] = BYTES
    with pytest.raises(MachineFault) as error:
        m.run("buffer_load_dword v4, v2, s[8:11], 0 offen")
    assert (error.value.kind, error.value.lane) == (FaultKind.ILLEGAL_ADDRESS, 11)


def test_image_resource_is_refused() -> None:
    m = setup(8, Buffer(0, 64), Form(False, False, 0, "0"))
    m.s[11] |= 2 << 30
    with pytest.raises(MachineFault, match="type"):
        m.run("buffer_load_dword v4, off, s[8:11], 0")


# ---- To LDS


@pytest.mark.parametrize("name", ["ubyte", "sbyte", "ushort", "sshort", "dword"])
def test_load_to_lds(name: str) -> None:
    shape = LOADS[name]
    for exec_mask in EXEC_MASKS:
        form = Form(False, True, 12, "s20")
        buffer = Buffer(0, 1000)
        m = setup(9, buffer, form, exec_mask, lds_bytes=512)
        m.v[2] = m.rng.integers(0, 1000, LANES)
        m.s[M0] = 0xFFFC0000 | 128
        before, lds = m.v.copy(), m.lds.copy().view(np.uint32)
        m.run(f"buffer_load_{name} {form.operands()} {form.modifiers()} lds")
        for lane in m.active:
            offset = form.offset_of(before, lane)
            at = buffer.address(0, offset, 96, lane, False) - m.address
            good = buffer.in_range(0, offset, 96, shape.size, False)
            data = m.memory[at : at + shape.size].tobytes() if good else bytes(shape.size)
            (lds[(128 + 12) // 4 + lane],) = shape.registers(data)
        np.testing.assert_array_equal(m.lds.view(np.uint32), lds)
        np.testing.assert_array_equal(m.v, before)


@pytest.mark.parametrize("name", ["dwordx3", "dwordx4"])
def test_wide_load_to_lds(name: str) -> None:
    """Of gfx950: lanes are 16 bytes apart; what is out of range writes zeros, dword by dword."""
    shape = LOADS[name]
    for exec_mask in EXEC_MASKS:
        form = Form(False, True, 12, "s20")
        buffer = Buffer(0, 1000)
        m = setup(9, buffer, form, exec_mask, lds_bytes=2048, cpu="gfx950")
        m.v[2] = m.rng.integers(0, 1000, LANES)
        m.v[2][:2] = [1000 - 96 - 12 - 8, 1000 - 96 - 12 - 4]  # two dwords and one are inside
        m.s[M0] = 0xFFFC0000 | 128
        before, lds = m.v.copy(), m.lds.copy().view(np.uint32)
        m.run(f"buffer_load_{name} {form.operands()} {form.modifiers()} lds")
        for lane in m.active:
            offset = form.offset_of(before, lane)
            at = buffer.address(0, offset, 96, lane, False) - m.address
            place = (128 + 12) // 4 + 4 * lane
            for dword in range(shape.dwords):
                good = buffer.in_range(0, offset, 96, 4 * dword + 4, False)
                data = m.memory[at + 4 * dword :][:4].tobytes() if good else bytes(4)
                lds[place + dword] = int.from_bytes(data, "little")
        np.testing.assert_array_equal(m.lds.view(np.uint32), lds)
        np.testing.assert_array_equal(m.v, before)


def test_wide_load_to_lds_of_swizzled_and_structured_buffers() -> None:
    form = Form(True, False, 0, "0")
    buffer = Buffer(0, 50, stride=16)
    m = setup(10, buffer, form, lds_bytes=1024, cpu="gfx950")
    m.v[2] = m.rng.integers(0, 60, LANES)
    m.s[M0] = 0
    text = f"buffer_load_dwordx4 {form.operands()} {form.modifiers()} lds"
    m.run(text)
    records = m.memory.view(np.uint32)[BYTES // 8 :][: 50 * 4].reshape(50, 4)
    expected = [records[i] if i < 50 else [0] * 4 for i in m.v[2]]
    np.testing.assert_array_equal(m.lds.view(np.uint32).reshape(LANES, 4), expected)
    m = setup(10, Buffer(0, 50, stride=16, swizzle=True), form, lds_bytes=1024, cpu="gfx950")
    m.v[2] = 0
    m.s[M0] = 0
    with pytest.raises(MachineFault, match="crosses its elements"):
        m.run(text)


@pytest.mark.parametrize("name", ["dwordx3", "dwordx4"])
def test_gfx942_loads_a_dword_at_most_to_lds(name: str, disassembler: Disassembler) -> None:
    text = f"buffer_load_{name} v2, s[8:11], 0 offen lds"
    words = np.frombuffer(assemble([text], "gfx950")[0], np.uint32)[None]
    (decoded,) = disassembler.decode(words)
    assert "not a load that can go to LDS" in decoded.text


def test_structured_load_to_lds() -> None:
    buffer = Buffer(0, 50, stride=12)
    form = Form(True, False, 4, "0")
    m = setup(10, buffer, form, lds_bytes=512)
    m.v[2] = m.rng.integers(0, 60, LANES)
    m.s[M0] = 0
    m.run(f"buffer_load_dword {form.operands()} {form.modifiers()} lds")
    lds, memory = m.lds.view(np.uint32), m.memory.view(np.uint32)
    expected = [memory[BYTES // 8 + 3 * int(i) + 1] if i < 50 else 0 for i in m.v[2]]
    np.testing.assert_array_equal(lds[1 : 1 + LANES], expected)


# ---- Atomics

ATOMICS = ["swap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec"]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("operation", [*ATOMICS, "cmpswap"])
def test_integer_atomics(operation: str, bits: int) -> None:
    size, dwords = bits // 8, bits // 32
    mask = (1 << bits) - 1
    buffer = Buffer(0, 300)
    form = Form(False, True, 16, "s20")
    for returns in (False, True):
        m = setup(11, buffer, form, 0xFFFFFFFF0FFFFFFF)
        m.memory[:] = m.rng.integers(0, 2, BYTES)
        m.v[2] = m.rng.integers(0, 30, LANES) * 8
        count = 2 if operation == "cmpswap" else 1
        m.v[4:8] &= 0x01010101
        before, memory = m.v.copy(), m.memory.copy()
        name = operation + ("_x2" if bits == 64 else "")
        data = vector(4, dwords * count)
        m.run(
            f"buffer_atomic_{name} {data}, {form.operands()} {form.modifiers()}"
            + (" sc0" if returns else "")
        )
        expected = before.copy()
        for lane in m.active:
            offset = form.offset_of(before, lane)
            sources = [
                sum(int(before[4 + i * dwords + d, lane]) << 32 * d for d in range(dwords))
                for i in range(count)
            ]
            old = 0
            if buffer.in_range(0, offset, 96, size, False):
                at = buffer.address(0, offset, 96, lane, False) - m.address
                old = int.from_bytes(memory[at : at + size].tobytes(), "little")
                if operation == "cmpswap":
                    new = sources[0] if old == sources[1] else old
                else:
                    new = integer_updates(bits)[operation](old, sources[0]) & mask
                memory[at : at + size] = np.frombuffer(new.to_bytes(size, "little"), np.uint8)
            if returns:
                expected[4 : 4 + dwords, lane] = [old >> 32 * d & MASK32 for d in range(dwords)]
        np.testing.assert_array_equal(m.memory, memory)
        np.testing.assert_array_equal(m.v, expected)
        buffer.base -= m.address + BYTES // 2


@pytest.mark.parametrize(
    "operation", ["add_f32", "add_f64", "min_f64", "max_f64", "pk_add_f16", "pk_add_bf16"]
)
def test_float_atomics(operation: str) -> None:
    kind = F64 if operation.endswith("f64") else F32
    size, dwords = kind.bits // 8, kind.bits // 32
    buffer = Buffer(0, 1024)
    form = Form(False, True, 0, "0")
    cpu = "gfx950" if operation == "pk_add_bf16" else DEFAULT_CPU
    m = setup(12, buffer, form, cpu=cpu)
    half = {"pk_add_f16": F16, "pk_add_bf16": BF16}.get(operation)
    values = packed(half, m.rng, 256) if half else kind.samples(m.rng, 1024 // size)
    m.memory[BYTES // 2 : BYTES // 2 + 1024] = np.array(values, f"u{size}").view(np.uint8)
    data = packed(half, m.rng, LANES) if half else kind.samples(m.rng, LANES)
    for d in range(dwords):
        m.v[4 + d] = [x >> 32 * d & MASK32 for x in data]
    m.v[2] = m.rng.integers(0, 1024 // size, LANES) * size
    expected = list(values)
    for lane in range(LANES):
        i = int(m.v[2, lane]) // size
        if half:
            expected[i] = packed_add(half, expected[i], data[lane])
        elif operation.startswith("add"):
            expected[i] = kind.add(expected[i], data[lane])
        else:
            expected[i] = kind.select(expected[i], data[lane], operation.startswith("max"))
    m.run(f"buffer_atomic_{operation} {vector(4, dwords)}, v2, s[8:11], 0 offen")
    memory = m.memory[BYTES // 2 : BYTES // 2 + 1024].view(f"u{size}")
    np.testing.assert_array_equal(memory, np.array(expected, f"u{size}"))


def test_cache_control_does_nothing() -> None:
    m = Machine(13)
    before = m.v.copy()
    m.run("buffer_wbl2 sc0 sc1\nbuffer_inv sc0 sc1")
    np.testing.assert_array_equal(m.v, before)
