"""MUBUF and MTBUF instructions against an independent model of buffer resources and formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from machine import DEFAULT_MODE, EXEC_MASKS, LANES, M0, FaultKind, Machine, MachineFault
from memory_oracle import (
    F16,
    F32,
    F64,
    LOADS,
    MASK32,
    STORES,
    integer_updates,
    packed,
    packed_add,
    signed,
    stored_bytes,
)

BYTES = 4096
IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9


def vector(first: int, dwords: int, bank: str = "v") -> str:
    return f"{bank}{first}" if dwords == 1 else f"{bank}[{first}:{first + dwords - 1}]"


@dataclass
class Buffer:
    """A resource as fields."""

    base: int
    num_records: int
    stride: int = 0
    swizzle: bool = False
    select: int = IDENTITY
    nfmt: int = 4
    dfmt: int = 4
    index_stride_log2: int = 3
    add_tid: bool = False

    def words(self) -> list[int]:
        return [
            self.base & MASK32,
            self.base >> 32 | (self.stride & 0x3FFF) << 16 | self.swizzle << 31,
            self.num_records,
            self.select
            | self.nfmt << 12
            | self.dfmt << 15
            | (self.index_stride_log2 - 3) << 21
            | self.add_tid << 23,
        ]

    def address(self, index: int, offset: int, soffset: int, lane: int, typed: bool) -> int:
        stride = self.stride
        if self.add_tid:
            index += lane
            if not typed:
                stride |= self.dfmt << 14
        if not self.swizzle:
            return self.base + soffset + index * stride + offset
        group = 1 << self.index_stride_log2
        return (
            self.base
            + soffset
            + (index // group * stride + offset // 4 * 4) * group
            + index % group * 4
            + offset % 4
        )

    def in_range(self, index: int, offset: int, soffset: int, size: int, idxen: bool) -> bool:
        if self.add_tid and not idxen:
            return True
        if idxen and self.stride:
            return index < self.num_records
        return offset + soffset + size <= self.num_records


@dataclass
class Form:
    """Address operands of one instruction."""

    idxen: bool
    offen: bool
    offset: int
    soffset: str  # "0", "s20" or an inline constant

    def operands(self) -> str:
        count = self.idxen + self.offen
        address = "off" if count == 0 else vector(2, count)
        return f"{address}, s[8:11], {self.soffset}"

    def modifiers(self) -> str:
        words = ["idxen"] * self.idxen + ["offen"] * self.offen
        return " ".join(words + ([f"offset:{self.offset}"] if self.offset else []))

    def scalar(self, m: Machine) -> int:
        return int(m.s[20]) if self.soffset == "s20" else int(self.soffset)

    def index(self, registers: np.ndarray, lane: int) -> int:
        return int(registers[2, lane]) if self.idxen else 0

    def offset_of(self, registers: np.ndarray, lane: int) -> int:
        return self.offset + (int(registers[2 + self.idxen, lane]) if self.offen else 0)


def setup(
    seed: int, buffer: Buffer, form: Form, exec_mask: int = EXEC_MASKS[0], lds_bytes: int = 0
) -> Machine:
    """`buffer.base` is relative to the middle of the memory."""
    m = Machine(seed, memory_bytes=BYTES, lds_bytes=lds_bytes)
    buffer.base += m.address + BYTES // 2
    m.s[8:12] = buffer.words()
    m.s[20] = 96
    m.exec = exec_mask
    return m


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
        for lane in np.flatnonzero(m.lanes):
            offset = form.offset_of(before, lane)
            at = buffer.address(0, offset, form.scalar(m), lane, False) - m.address
            data = b""
            step = min(4, shape.bytes)
            for i in range(0, shape.bytes, step):
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

        def write(lane: int, first: bool) -> None:
            """Whole lanes come first, cut ones after them; only overlaps show the order."""
            offset = form.offset_of(before, lane)
            whole = buffer.in_range(0, offset, form.scalar(m), size, False)
            if whole != first:
                return
            at = buffer.address(0, offset, form.scalar(m), lane, False) - m.address
            data = stored_bytes(list(before[264 : 264 + dwords, lane]), size, shift)
            step = min(4, size)
            for i in range(0, size, step):
                if buffer.in_range(0, offset, form.scalar(m), i + step, False):
                    memory[at + i : at + i + step] = np.frombuffer(data[i : i + step], np.uint8)

        for first in (True, False):
            for lane in np.flatnonzero(m.lanes):
                write(int(lane), first)
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
        for lane in np.flatnonzero(m.lanes):
            index, offset = form.index(before, lane), form.offset_of(before, lane)
            at = buffer.address(index, offset, 96, lane, False) - m.address
            good = buffer.in_range(index, offset, 96, 4 * dwords, True)
            data = m.memory[at : at + 4 * dwords].tobytes() if good else bytes(4 * dwords)
            shape = LOADS["dword" + words]
            assert list(m.v[10 : 10 + dwords, lane]) == shape.registers(data)
        memory = m.memory.copy()
        m.v[2] = m.rng.permutation(LANES)
        m.run(f"buffer_store_short v12, {form.operands()} {form.modifiers()}")
        for lane in np.flatnonzero(m.lanes):
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


def test_unbound_resource_reads_zero() -> None:
    form = Form(False, True, 0, "0")
    m = setup(6, Buffer(0, 1024, dfmt=0), form)
    m.v[2] = np.arange(LANES) * 4
    memory = m.memory.copy()
    m.run(
        "buffer_store_dword v3, v2, s[8:11], 0 offen\nbuffer_load_dwordx2 v[4:5], v2, s[8:11], 0 offen"
    )
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
        for lane in np.flatnonzero(m.lanes):
            offset = form.offset_of(before, lane)
            at = buffer.address(0, offset, 96, lane, False) - m.address
            good = buffer.in_range(0, offset, 96, shape.bytes, False)
            data = m.memory[at : at + shape.bytes].tobytes() if good else bytes(shape.bytes)
            (lds[(128 + 12) // 4 + lane],) = shape.registers(data)
        np.testing.assert_array_equal(m.lds.view(np.uint32), lds)
        np.testing.assert_array_equal(m.v, before)


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
        for lane in np.flatnonzero(m.lanes):
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


@pytest.mark.parametrize("operation", ["add_f32", "add_f64", "min_f64", "max_f64", "pk_add_f16"])
def test_float_atomics(operation: str) -> None:
    kind = F64 if operation.endswith("f64") else F32
    size, dwords = kind.bits // 8, kind.bits // 32
    buffer = Buffer(0, 1024)
    form = Form(False, True, 0, "0")
    m = setup(12, buffer, form)
    half = operation == "pk_add_f16"
    values = packed(F16, m.rng, 256) if half else kind.samples(m.rng, 1024 // size)
    m.memory[BYTES // 2 : BYTES // 2 + 1024] = np.array(values, f"u{size}").view(np.uint8)
    data = packed(F16, m.rng, LANES) if half else kind.samples(m.rng, LANES)
    for d in range(dwords):
        m.v[4 + d] = [x >> 32 * d & MASK32 for x in data]
    m.v[2] = m.rng.integers(0, 1024 // size, LANES) * size
    expected = list(values)
    for lane in range(LANES):
        i = int(m.v[2, lane]) // size
        if half:
            expected[i] = packed_add(F16, expected[i], data[lane])
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


# ---- Formats

# Widths of the components, X first, by DFMT.
DATA_FORMATS = {
    1: [8],
    2: [16],
    3: [8, 8],
    4: [32],
    5: [16, 16],
    6: [11, 11, 10],
    7: [10, 11, 11],
    8: [2, 10, 10, 10],
    9: [10, 10, 10, 2],
    10: [8, 8, 8, 8],
    11: [32, 32],
    12: [16, 16, 16, 16],
    13: [32, 32, 32],
    14: [32, 32, 32, 32],
}
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7


def float_bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def short_float(raw: int, bits: int) -> float:
    """An unsigned float of 10 or 11 bits, or a binary16."""
    if bits == 16:
        return float(np.array([raw], np.uint16).view(np.float16)[0])
    mantissa_bits = bits - 5
    exponent, mantissa = raw >> mantissa_bits, raw & (1 << mantissa_bits) - 1
    if exponent == 31:
        return float("nan") if mantissa else float("inf")
    if exponent == 0:
        return mantissa * 2.0 ** (-14 - mantissa_bits)
    return (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - 15)


def decoded(raw: int, bits: int, nfmt: int) -> int:
    if bits == 32 or nfmt == UINT:
        return raw
    if nfmt == UNORM:
        return float_bits(raw / (2**bits - 1))
    if nfmt == SNORM:
        return float_bits(max(-1.0, signed(raw, bits) / (2 ** (bits - 1) - 1)))
    if nfmt == USCALED:
        return float_bits(raw)
    if nfmt == SSCALED:
        return float_bits(signed(raw, bits))
    if nfmt == SINT:
        return signed(raw, bits) & MASK32
    return float_bits(short_float(raw, bits))


def valid_formats() -> list[tuple[int, int]]:
    return [
        (dfmt, nfmt)
        for dfmt, widths in DATA_FORMATS.items()
        for nfmt in (UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT)
        if nfmt != FLOAT or not {2, 8} & set(widths)
    ]


def split(data: bytes, widths: list[int]) -> list[int]:
    word = int.from_bytes(data, "little")
    fields = []
    for width in widths:
        fields.append(word & (1 << width) - 1)
        word >>= width
    return fields


def is_nan32(x: int) -> bool:
    return x & 0x7FFFFFFF > 0x7F800000


@pytest.mark.parametrize("dfmt,nfmt", valid_formats())
def test_typed_load(dfmt: int, nfmt: int) -> None:
    """tbuffer_load_format_xyzw, and buffer_load_format_xyz with permuted selects."""
    widths = DATA_FORMATS[dfmt]
    size = sum(widths) // 8
    select = [7, 1, 4, 0]  # W, one, X, zero
    code = sum(x << 3 * i for i, x in enumerate(select))
    buffer = Buffer(0, 1000, nfmt=nfmt, dfmt=dfmt, select=code)
    form = Form(False, True, 0, "0")
    m = setup(14, buffer, form)
    m.v[2] = m.rng.integers(0, 1010 - size, LANES)
    before = m.v.copy()
    m.run(
        f"tbuffer_load_format_xyzw v[4:7], v2, s[8:11], 0 format:{dfmt | nfmt << 4} offen\n"
        "buffer_load_format_xyz v[8:10], v2, s[8:11], 0 offen"
    )
    for lane in range(LANES):
        offset = int(before[2, lane])
        at = BYTES // 2 + offset
        good = offset + size <= 1000
        fields = split(m.memory[at : at + size].tobytes(), widths) if good else [0] * len(widths)
        values = [decoded(f, w, nfmt) if good else 0 for f, w in zip(fields, widths, strict=True)]
        values += [0] * (4 - len(values))
        one = 1 if nfmt in (UINT, SINT) else 0x3F800000
        chosen = [one if s == 1 else values[s - 4] if s >= 4 else 0 for s in select]
        got = [int(x) for x in m.v[4:11, lane]]
        for actual, wanted in zip(got, values + chosen[:3], strict=True):
            assert actual == wanted or (is_nan32(actual) and is_nan32(wanted)), (lane, got, values)


@pytest.mark.parametrize("dfmt,nfmt", valid_formats())
def test_typed_store_and_load_agree(dfmt: int, nfmt: int) -> None:
    """Storing what was loaded restores memory; storing others is the nearest representable."""
    widths = DATA_FORMATS[dfmt]
    size = sum(widths) // 8
    buffer = Buffer(0, 1024, nfmt=nfmt, dfmt=dfmt)
    form = Form(False, True, 0, "0")
    m = setup(15, buffer, form)
    m.v[2] = m.rng.permutation(LANES) * 16
    half = m.memory[BYTES // 2 :]
    memory = half.copy()
    m.run(
        f"tbuffer_load_format_xyzw v[4:7], v2, s[8:11], 0 format:{dfmt | nfmt << 4} offen\n"
        f"tbuffer_store_format_xyzw v[4:7], v2, s[8:11], 8 format:{dfmt | nfmt << 4} offen"
        if size <= 8
        else "buffer_load_format_xyzw v[4:7], v2, s[8:11], 0 offen\n"
        "buffer_store_format_xyzw v[4:7], v2, s[8:11], 0 offen"
    )
    shift = 8 if size <= 8 else 0
    for lane in range(LANES):
        at = int(m.v[2, lane])
        old = split(memory[at : at + size].tobytes(), widths)
        new = split(half[at + shift : at + shift + size].tobytes(), widths)
        for a, b, width in zip(old, new, widths, strict=True):
            if nfmt == SNORM and width < 32 and a == 1 << (width - 1):
                a += 1  # -1.0 has two codes; the higher one is stored
            x, y = decoded(a, width, nfmt), decoded(b, width, nfmt)
            assert a == b or (nfmt == FLOAT and is_nan32(x) and is_nan32(y)), (lane, a, b)
    # Clamping and rounding of numbers outside the format.
    if nfmt in (UINT, SINT):
        return
    m.v[4:8] = m.rng.normal(0, 2.0, (4, LANES)).astype(np.float32).view(np.uint32)
    if nfmt in (USCALED, SSCALED):
        m.v[4:8] = (m.v[4:8].view(np.float32) * 300).view(np.uint32)
    numbers = m.v[4:8].view(np.float32).astype(np.float64)
    m.run("buffer_store_format_xyzw v[4:7], v2, s[8:11], 0 offen")
    for lane in range(LANES):
        at = int(m.v[2, lane])
        for c, (field, width) in enumerate(
            zip(split(half[at : at + size].tobytes(), widths), widths, strict=True)
        ):
            x = numbers[c, lane]
            top, top_signed = 2**width - 1, 2 ** (width - 1) - 1
            if width == 32:
                wanted = int(m.v[4 + c, lane])
            elif nfmt == UNORM:
                wanted = int(np.rint(min(max(x, 0), 1) * top))
            elif nfmt == SNORM:
                wanted = int(np.rint(min(max(x, -1), 1) * top_signed)) & top
            elif nfmt == USCALED:
                wanted = int(np.rint(min(max(x, 0), top)))
            elif nfmt == SSCALED:
                wanted = int(np.rint(min(max(x, -top_signed - 1), top_signed))) & top
            elif width == 16:
                wanted = int(np.float16(x).view(np.uint16))
            else:  # the largest code that is not greater
                codes = [i for i in range(31 << (width - 5)) if short_float(i, width) <= x]
                wanted = codes[-1] if codes else 0
            assert field == wanted, (lane, c, x)


def test_integer_stores_clamp() -> None:
    for nfmt, low, high in ((UINT, 0, 255), (SINT, -128, 127)):
        buffer = Buffer(0, 1024, nfmt=nfmt, dfmt=10)
        m = setup(16, buffer, Form(False, True, 0, "0"))
        m.v[2] = np.arange(LANES) * 4
        m.v[4:8] = m.rng.integers(-400, 400, (4, LANES)).astype(np.int32).view(np.uint32)
        m.run("buffer_store_format_xyzw v[4:7], v2, s[8:11], 0 offen")
        stored = m.memory[BYTES // 2 : BYTES // 2 + 256].reshape(LANES, 4)
        values = m.v[4:8].T.astype(np.int64)
        if nfmt == SINT:
            values = values.astype(np.uint32).view(np.int32)
        expected = np.clip(values, low, high).astype(np.int64) & 255
        np.testing.assert_array_equal(stored, expected)


@pytest.mark.parametrize("components", [1, 2, 3, 4])
@pytest.mark.parametrize("nfmt", [UNORM, SINT, FLOAT])
def test_d16_formats(components: int, nfmt: int) -> None:
    names = "xyzw"[:components]
    buffer = Buffer(0, 1024, nfmt=nfmt, dfmt=12)
    m = setup(17, buffer, Form(False, True, 0, "0"))
    m.v[2] = np.arange(LANES) * 8
    dwords = (components + 1) // 2
    m.run(f"buffer_load_format_d16_{names} {vector(4, dwords)}, v2, s[8:11], 0 offen")
    raw = m.memory[BYTES // 2 : BYTES // 2 + 512].view(np.uint16).reshape(LANES, 4)
    if nfmt == UNORM:
        halves = (raw / 65535.0).astype(np.float32).astype(np.float16).view(np.uint16)
    else:
        halves = raw
    got = np.ascontiguousarray(m.v[4 : 4 + dwords].T).view(np.uint16)
    if nfmt == FLOAT:
        nan = (halves & 0x7FFF) > 0x7C00
        assert ((got[:, :components] & 0x7FFF) > 0x7C00)[nan[:, :components]].all()
        halves = np.where(nan, 0, halves)
        got = np.where((got & 0x7FFF) > 0x7C00, 0, got)
    np.testing.assert_array_equal(got[:, :components], halves[:, :components])
    assert not got[:, components:].any()  # the unused half is 0
    if nfmt == SINT:
        memory = m.memory.copy()
        m.v[2] += 512
        m.run(f"buffer_store_format_d16_{names} {vector(4, dwords)}, v2, s[8:11], 0 offen")
        stored = memory[BYTES // 2 + 512 : BYTES // 2 + 1024].view(np.uint16).reshape(LANES, 4)
        stored[:, :components], stored[:, components:] = halves[:, :components], 0
        np.testing.assert_array_equal(m.memory, memory)


def test_d16_hi_forms() -> None:
    buffer = Buffer(0, 1024, nfmt=SINT, dfmt=1)
    m = setup(18, buffer, Form(False, True, 0, "0"))
    m.v[2] = np.arange(LANES)
    raw = m.memory[BYTES // 2 : BYTES // 2 + LANES].view(np.int8).copy()
    m.run(
        "buffer_load_format_d16_hi_x v4, v2, s[8:11], 0 offen\n"
        "buffer_store_format_d16_hi_x v4, v2, s[8:11], 0 offen offset:64"
    )
    np.testing.assert_array_equal(m.v[4], raw.astype(np.int32).view(np.uint32) << 16)
    stored = m.memory[BYTES // 2 + 64 : BYTES // 2 + 64 + LANES].view(np.int8)
    np.testing.assert_array_equal(stored, raw)


def test_format_load_to_lds() -> None:
    buffer = Buffer(0, 64, nfmt=UNORM, dfmt=1)
    m = setup(19, buffer, Form(False, True, 0, "0"), lds_bytes=256)
    m.v[2] = np.arange(LANES)
    m.s[M0] = 0
    m.run("buffer_load_format_x v2, s[8:11], 0 offen lds")
    raw = m.memory[BYTES // 2 : BYTES // 2 + LANES]
    np.testing.assert_array_equal(m.lds.view(np.float32), (raw / 255.0).astype(np.float32))


@pytest.mark.parametrize("dfmt,nfmt", [(15, UINT), (4, 6), (1, FLOAT), (9, FLOAT)])
def test_invalid_formats_are_refused(dfmt: int, nfmt: int) -> None:
    m = setup(20, Buffer(0, 64, nfmt=nfmt, dfmt=dfmt), Form(False, False, 0, "0"))
    with pytest.raises(MachineFault, match="typed buffer access"):
        m.run("buffer_load_format_x v4, off, s[8:11], 0")


def test_mode_does_not_matter() -> None:
    """Conversions keep denormals and round to nearest whatever MODE says."""
    results = []
    for mode in (DEFAULT_MODE, 0x00F):
        m = setup(21, Buffer(0, 1024, nfmt=FLOAT, dfmt=2), Form(False, True, 0, "0"))
        m.mode = mode
        m.v[2] = np.arange(LANES) * 2
        m.v[4] = (m.rng.normal(0, 1e-5, LANES)).astype(np.float32).view(np.uint32)
        m.run(
            "buffer_store_format_x v4, v2, s[8:11], 0 offen\nbuffer_load_format_x v5, v2, s[8:11], 0 offen"
        )
        results.append(m.v[5].copy())
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] << 1).all()
