"""An independent model of buffer resources, shared by the tests of MUBUF and MTBUF."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.isa.machine import ALL_LANES, U32, Machine
from tests.support.isa.memory_oracle import MASK32, vector
from tests.support.vdev_library import DEFAULT_CPU

BYTES = 4096
IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9


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

    def index(self, registers: U32, lane: int) -> int:
        return int(registers[2, lane]) if self.idxen else 0

    def offset_of(self, registers: U32, lane: int) -> int:
        return self.offset + (int(registers[2 + self.idxen, lane]) if self.offen else 0)


def setup(
    seed: int,
    buffer: Buffer,
    form: Form,
    exec_mask: int = ALL_LANES,
    lds_bytes: int = 0,
    cpu: str = DEFAULT_CPU,
) -> Machine:
    """`buffer.base` is relative to the middle of the memory."""
    m = Machine(seed, memory_bytes=BYTES, lds_bytes=lds_bytes, cpu=cpu)
    buffer.base += m.address + BYTES // 2
    m.s[8:12] = buffer.words()
    m.s[20] = 96
    m.exec = exec_mask
    return m
