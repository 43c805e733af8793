"""Random instruction words: a row's opcode in its place, every other field drawn at random.

Drawn so that a fair share is valid: even registers, codes of constants, modifiers mostly absent.
Whether a word is an instruction is for the decoder to say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.isa.disassembler import Row

U32 = npt.NDArray[np.uint32]
U64 = Any  # array of uint64; NumPy's stubs lose the type in its arithmetic

# Where the opcodes of the short formats begin within VOP3.
VOP3_BASE = {"VOPC": 0, "VOP2": 0x100, "VOP1": 0x140, "VOP3": 0}
FORMS: dict[str, tuple[str, ...]] = {
    "VOP1": ("e32", "e64", "dpp", "sdwa"),
    "VOP2": ("e32", "e64", "dpp", "sdwa"),
    "VOPC": ("e32", "e64", "sdwa"),
}
SDWA_CODE, DPP_CODE = 249, 250
FLAT_SEGMENT = {"FLAT": 0, "SCRATCH": 1, "GLOBAL": 2}


class WordGenerator:
    """Draws `count` three-dword windows at a time."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def forms(self, row: Row) -> tuple[str, ...]:
        """Forms that the row's format has; "" where there is one only."""
        return FORMS.get(row.format, ("",))

    def windows(self, row: Row, form: str, count: int) -> U32:
        """Return (count, 3) dwords: instruction, further words and literal."""
        self._count = count
        if form == "e64" or row.format in ("VOP3", "VOP3P"):
            code = self._vop3(row)
        elif row.format in FORMS:
            code = self._short_vector(row, form)
        else:
            code = getattr(self, "_" + row.format.lower())(row)
        out = np.empty((count, 3), np.uint32)
        out[:, 0] = code & 0xFFFFFFFF
        out[:, 1] = code >> np.uint64(32)
        out[:, 2] = self._literal()
        if row.format in ("SOP1", "SOP2", "SOPC", "SOPK") or form == "e32":
            out[:, 1] = self._literal()
        return out

    # Draws of one field each, as uint64 arrays.

    def _bits(self, width: int) -> U64:
        return self._rng.integers(0, 1 << width, self._count, dtype=np.uint64)

    def _one_of(self, *choices: int | U64) -> U64:
        stacked = np.stack(
            [np.broadcast_to(np.asarray(c, np.uint64), self._count) for c in choices]
        )
        return stacked[self._rng.integers(0, len(choices), self._count), np.arange(self._count)]

    def _seldom(self, value: U64) -> U64:
        return self._one_of(0, 0, 0, value)

    def _literal(self) -> U64:
        small = self._bits(7) - np.uint64(32) & np.uint64(0xFFFFFFFF)
        return self._one_of(self._bits(32), self._bits(15), small, 0x3F800000, 0x3C00)

    def _even(self, width: int) -> U64:
        return self._one_of(self._bits(width - 1) * 2, self._bits(width - 2) * 4, self._bits(width))

    def _sgpr(self) -> U64:
        return self._one_of(self._bits(5) * 4 % 100, self._bits(7), 106, 126, 124)

    def _scalar(self) -> U64:
        inline = 128 + self._bits(6)
        return self._one_of(self._sgpr(), self._sgpr(), inline, 193 + self._bits(4),
                            240 + self._bits(3), 248, 235 + self._bits(2), 253)  # fmt: skip

    def _any(self) -> U64:
        vgpr = 256 + self._even(8)
        return self._one_of(vgpr, vgpr, vgpr, self._scalar())

    # Formats.

    def _sop2(self, row: Row) -> U64:
        sources = self._one_of(self._scalar(), self._scalar(), 255)
        return (
            (0x80000000 | row.opcode << 23) + (self._sgpr() << 16) + (self._scalar() << 8) + sources
        )

    def _sop1(self, row: Row) -> U64:
        source = self._one_of(self._scalar(), 0, 255)
        return (0xBE800000 | row.opcode << 8) + (self._one_of(self._sgpr(), 0) << 16) + source

    def _sopc(self, row: Row) -> U64:
        second = self._one_of(self._scalar(), self._bits(4))
        first = self._one_of(self._scalar(), 255)
        return (0xBF000000 | row.opcode << 16) + (second << 8) + first

    def _sopk(self, row: Row) -> U64:
        register = self._one_of(self._sgpr(), 0)
        return (0xB0000000 | row.opcode << 23) + (register << 16) + self._bits(16)

    def _sopp(self, row: Row) -> U64:
        return (0xBF800000 | row.opcode << 16) + self._one_of(self._bits(16), self._bits(4), 0)

    def _smem(self, row: Row) -> U64:
        low = self._one_of(self._bits(6), self._bits(4) * 2, 0)
        low += self._one_of(self._sgpr(), self._bits(4) * 4, 0) << 6
        low += self._seldom(self._bits(1)) << 16
        soffset = (self._bits(7) << 57) + (1 << 14)
        immediate = (self._bits(21) << 32) + (1 << 17)
        register = self._bits(7) << 32
        offset = self._one_of(0, 1 << 17, immediate, immediate + soffset, register, soffset)
        return (0xC0000000 | row.opcode << 18) + low + offset

    def _short_vector(self, row: Row, form: str) -> U64:
        if row.format == "VOP1":
            head = 0x7E000000 + (self._one_of(self._even(8), 0) << 17) + (row.opcode << 9)
        elif row.format == "VOP2":
            head = (row.opcode << 25) + (self._even(8) << 17) + (self._even(8) << 9)
        else:
            head = 0x7C000000 + (row.opcode << 17) + (self._even(8) << 9)
        if form == "e32":
            return head + self._one_of(self._any(), self._any(), 255, 0)
        return head + (self._dpp() if form == "dpp" else self._sdwa(row))

    def _dpp(self) -> U64:
        control = self._one_of(self._bits(8), 0x100 + self._bits(4), 0x110 + self._bits(4),
                               0x120 + self._bits(4), 0x150 + self._bits(4), 0x130, 0x134, 0x138,
                               0x13C, 0x140 + self._bits(2))  # fmt: skip
        word = self._even(8) + (control << 8) + (self._bits(1) << 19)
        word += (self._seldom(self._bits(4)) << 20) + (self._one_of(self._bits(8), 0xFF) << 24)
        return DPP_CODE + (word << 32)

    def _sdwa(self, row: Row) -> U64:
        def source() -> U64:
            return self._bits(3) + (self._seldom(self._bits(3)) << 3)

        word = self._one_of(self._bits(8), self._bits(7)) + (source() << 16)
        word += self._seldom(self._bits(1)) << 23
        if row.format == "VOPC":
            word += self._one_of(0, 0x8000 + (self._bits(6) * 2 % 106 << 8))
        else:
            word += (self._one_of(self._bits(3), 6) << 8) + (self._seldom(self._bits(2)) << 11)
            word += self._seldom(self._bits(3)) << 13
        if row.format != "VOP1":
            word += (source() << 24) + (self._seldom(self._bits(1)) << 31)
        return SDWA_CODE + (word << 32)

    def _vop3(self, row: Row) -> U64:
        if row.format == "VOP3P":
            head = np.uint64(0xD3800000 | row.opcode << 16)
            low = self._even(8) + (self._one_of(0x40, 0x40, self._bits(8)) << 8)
        else:
            head = np.uint64(0xD0000000 | row.opcode + VOP3_BASE[row.format] << 16)
            low = self._one_of(self._even(8), self._bits(6) * 2, 0)
            low += self._one_of(0, 0, self._bits(6) * 2, self._bits(3), self._bits(8)) << 8
        third = self._one_of(self._any(), 0, self._sgpr(), 256 + self._even(8), 128 + self._bits(4))
        second = self._one_of(self._any(), 256 + self._even(8), 0)
        first = self._any()
        if row.name in ("v_readlane_b32", "v_writelane_b32"):
            first, second, third = (
                self._one_of(first, self._sgpr()),
                self._scalar(),
                self._one_of(0),
            )
        modifiers = self._one_of(0, 3, 3, self._bits(5)) << 59
        operands = low + (first << 32) + (second << 41) + (third << 50) + modifiers
        return head + (operands * (self._bits(4) != 0))  # without any operand now and then

    def _ds(self, row: Row) -> U64:
        code: U64 = (0xD8000000 | row.opcode << 17) + self._one_of(self._bits(16), self._bits(8), 0)
        code += (self._bits(1) << 25) + (self._seldom(self._bits(1)) << 16)
        if row.name.startswith("ds_gws"):
            code |= np.uint64(1 << 16)
        for at in (32, 40, 48, 56):
            code += self._one_of(self._even(8), 0) << at
        return code

    def _flat(self, row: Row) -> U64:
        head = 0xDC000000 + (row.opcode << 18) + (FLAT_SEGMENT[row.format] << 14)
        code = head + self._one_of(self._bits(12), self._bits(13), 0) + (self._bits(2) << 16)
        code += self._bits(1) << 25
        if row.format == "SCRATCH":
            code += self._bits(1) << 13
        code += (self._one_of(self._even(8), 0) << 32) + (self._one_of(self._even(8), 0) << 40)
        saddr = self._one_of(0) if row.format == "FLAT" else self._one_of(0x7F, self._sgpr())
        code += (saddr << 48) + (self._bits(1) << 55)
        return code + (self._one_of(self._even(8), 0) << 56)

    _global = _scratch = _flat

    def _buffer(self, code: U64) -> U64:
        code += self._one_of(self._bits(12), 0) + (self._one_of(self._bits(2), 0) << 12)
        code += (self._bits(1) << 14) + (self._one_of(self._even(8), 0) << 32)
        code += (self._one_of(self._even(8), 0) << 40) + (self._one_of(self._bits(5), 0) % 25 << 48)
        return code + (self._bits(1) << 55) + (self._one_of(self._scalar(), 0) << 56)

    def _mubuf(self, row: Row) -> U64:
        code = self._buffer(np.full(self._count, 0xE0000000 | row.opcode << 18, np.uint64))
        return (
            code
            + (self._bits(1) << 15)
            + (self._bits(1) << 17)
            + (self._seldom(self._bits(1)) << 16)
        )

    def _mtbuf(self, row: Row) -> U64:
        code = self._buffer(np.full(self._count, 0xE8000000 | row.opcode << 15, np.uint64))
        return code + (self._bits(7) << 19) + (self._bits(2) << 53)
