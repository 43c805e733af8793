"""Machine code of a code object: symbols, instructions.

Mutation and its independent analysis work on this. Instruction boundaries and texts come from the
virtual device's decoder, which is tested against LLVM's; nothing else of it is used here.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from dataclasses import dataclass, field

from amdattn.arch.products import of_arch
from amdattn.compiler import DEFAULT_ARCH
from amdattn.device.virtual_library import library_path

_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SYMTAB, _DYNSYM = 2, 11
_FLAGS = 48  # e_flags of Elf64_Ehdr; the low byte names the processor
_ARCHS = {0x4C: "gfx942", 0x4F: "gfx950"}
NO_FALL_THROUGH = frozenset({"s_branch", "s_endpgm", "s_endpgm_saved", "s_setpc_b64"})
_COMMA = re.compile(r",\s*(?![^\[]*\])")


class CodeError(ValueError):
    """A code object that mutation cannot read."""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction; `pc` is its ELF virtual address, `text` the assembler's spelling.

    `operands` are the texts between commas, of which the last has lost what follows its first
    word; that is in `modifiers`.
    """

    pc: int
    encoding: bytes
    text: str
    mnemonic: str = field(init=False)
    operands: tuple[str, ...] = field(init=False)
    modifiers: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        mnemonic, _, rest = self.text.partition(" ")
        parts = _COMMA.split(rest.strip()) if rest.strip() else []
        modifiers: tuple[str, ...] = ()
        if parts and mnemonic != "s_waitcnt":
            words = parts[-1].split()
            parts[-1], modifiers = words[0], tuple(words[1:])
        object.__setattr__(self, "mnemonic", mnemonic)
        object.__setattr__(self, "operands", tuple(parts))
        object.__setattr__(self, "modifiers", modifiers)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.encoding)

    @property
    def end(self) -> int:
        """Address of what follows."""
        return self.pc + self.size

    @property
    def word(self) -> int:
        """The first dword."""
        return int.from_bytes(self.encoding[:4], "little")

    @property
    def is_branch(self) -> bool:
        """True of what may go elsewhere than to the next instruction, or ends the wave."""
        return self.mnemonic in NO_FALL_THROUGH or self.mnemonic.startswith("s_cbranch")

    @property
    def target(self) -> int | None:
        """Where a direct branch goes."""
        if self.mnemonic == "s_branch" or self.mnemonic.startswith("s_cbranch_"):
            offset = self.word & 0xFFFF
            return self.end + 4 * (offset - 0x10000 if offset & 0x8000 else offset)
        return None


def disassemble(code: bytes, pc: int, arch: str = DEFAULT_ARCH) -> list[Instruction]:
    """Instructions of `code`, which lies at `pc`; CodeError at bytes that are none."""
    words = (ctypes.c_uint32 * (len(code) // 4)).from_buffer_copy(code)
    function = _disassembler(arch)
    needed = function(words, len(words), None, 0)
    buffer = ctypes.create_string_buffer(needed)
    function(words, len(words), buffer, needed)
    found: list[Instruction] = []
    at = 0
    for line in buffer.value.decode().splitlines():
        size, _, text = line.partition(" ")
        nbytes = 4 * int(size)
        if not nbytes:
            # Padding behind the last instruction may be anything.
            word = code[at : at + 4].hex()
            if found and found[-1].mnemonic == "s_endpgm" and not any(code[at:]):
                break
            raise CodeError(f"{pc + at:#x}: {word} is no instruction ({text})")
        found.append(Instruction(pc + at, code[at : at + nbytes], text))
        at += nbytes
    return found


def _disassembler(arch: str) -> ctypes._NamedFuncPointer:
    library = _library()
    if not library.vdev_test_choose_machine(of_arch(arch).name.encode()):
        raise CodeError(f"arch={arch!r}: the virtual device has none")
    return library.vdev_test_disassemble


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
    function = library.vdev_test_disassemble
    pointer = ctypes.POINTER(ctypes.c_uint32)
    function.argtypes = [pointer, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    return library


class Elf:
    """As much of an ELF64 file as symbols need."""

    def __init__(self, image: bytes) -> None:
        if image[:4] != b"\x7fELF" or image[4] != 2:
            raise CodeError("not an ELF64 code object")
        self._image = image
        (table,) = struct.unpack_from("<Q", image, 40)
        size, count = struct.unpack_from("<HH", image, 58)
        self._sections = [_SECTION.unpack_from(image, table + i * size) for i in range(count)]

    @property
    def arch(self) -> str:
        """The processor that the code is for."""
        (flags,) = struct.unpack_from("<I", self._image, _FLAGS)
        arch = _ARCHS.get(flags & 0xFF)
        if arch is None:
            raise CodeError(f"the code object is for processor {flags & 0xFF:#x}")
        return arch

    def symbol(self, name: str) -> tuple[int, int, int]:
        """(address, size, offset in the file) of a symbol."""
        for _, kind, _, _, offset, size, link, *_ in self._sections:
            if kind not in (_SYMTAB, _DYNSYM):
                continue
            strings = self._sections[link][4]
            for at in range(offset, offset + size, _SYMBOL.size):
                name_at, _, _, section, value, nbytes = _SYMBOL.unpack_from(self._image, at)
                end = self._image.index(b"\0", strings + name_at)
                if self._image[strings + name_at : end].decode() == name and section:
                    header = self._sections[section]
                    return value, nbytes, header[4] + value - header[3]
        raise CodeError(f"the code object has no symbol {name}")
