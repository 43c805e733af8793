"""The virtual device's decoder and printer behind ctypes (isa/encoding_test_api.cc)."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.vdev_library import DEFAULT_CPU, choose_machine

U32 = npt.NDArray[np.uint32]

# `enum class Format` of isa/inst.h.
FORMATS = [
    "SOP2",
    "SOPK",
    "SOP1",
    "SOPC",
    "SOPP",
    "SMEM",
    "VOP2",
    "VOP1",
    "VOPC",
    "VOP3",
    "VOP3P",
    "DS",
    "FLAT",
    "SCRATCH",
    "GLOBAL",
    "MUBUF",
    "MTBUF",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction of the table; `opcode` counts within `format`, one of FORMATS."""

    format: str
    opcode: int
    name: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`size` dwords and the assembler's text; or size 0 and the reason."""

    size: int
    text: str


class Disassembler:
    """Functions of the library, typed, for the code of one architecture."""

    def __init__(self, library: ctypes.CDLL, cpu: str = DEFAULT_CPU) -> None:
        self.cpu = cpu
        self._choose = functools.partial(choose_machine, library, cpu)
        words = POINTER(c_uint32)
        self._decode = library.vdev_test_decode
        self._decode.argtypes = [words, c_size_t, c_size_t, c_char_p, c_size_t]
        self._disassemble = library.vdev_test_disassemble
        self._disassemble.argtypes = [words, c_size_t, c_char_p, c_size_t]
        self._rows = library.vdev_test_rows
        self._rows.argtypes = [c_char_p, c_size_t]
        for function in (self._decode, self._disassemble, self._rows):
            function.restype = c_size_t
        self._constant = library.vdev_test_constant
        self._constant.argtypes = [words, c_size_t, c_int, POINTER(c_uint64)]
        self._constant.restype = c_bool

    def decode(self, words: U32) -> list[Decoded]:
        """Decode the instruction at the start of each row of `words` (count, dwords)."""
        self._choose()
        words = np.ascontiguousarray(words, dtype=np.uint32)
        count, stride = words.shape
        return _lines(_text(self._decode, _pointer(words), stride, count))

    def disassemble(self, words: U32) -> list[Decoded]:
        """Decode `words` (n,) one instruction after the other; a bad dword is an item of size 0."""
        self._choose()
        words = np.ascontiguousarray(words, dtype=np.uint32)
        return _lines(_text(self._disassemble, _pointer(words), words.size))

    def rows(self) -> list[Row]:
        """Every row of the instruction table."""
        self._choose()
        fields = (line.split(" ") for line in _text(self._rows).splitlines())
        return [Row(FORMATS[int(f)], int(opcode), name) for f, opcode, name in fields]

    def constant(self, encoding: bytes, source: int) -> int | None:
        """64-bit value of a source that is a constant, else None."""
        self._choose()
        words = np.frombuffer(encoding, dtype=np.uint32)
        value = c_uint64()
        found = self._constant(_pointer(words), words.size, source, byref(value))
        return value.value if found else None


def _pointer(words: U32) -> Any:
    return words.ctypes.data_as(POINTER(c_uint32))


def _text(function: Any, *arguments: Any) -> str:
    needed = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(needed)
    function(*arguments, buffer, needed)
    return buffer.value.decode()


def _lines(text: str) -> list[Decoded]:
    parts = (line.split(" ", 1) for line in text.splitlines())
    return [Decoded(int(size), rest) for size, rest in parts]
