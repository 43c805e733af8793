"""A kernel's machine code, taken from its code object: instructions, branches, entry.

Mutation and its independent analysis work on this. Instruction boundaries and texts come from the
virtual device's decoder, which is tested against LLVM's; nothing else of it is used here.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from dataclasses import dataclass, field

from amdattn.virtual_library import library_path

_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SYMTAB, _DYNSYM = 2, 11
_KD_ENTRY_OFFSET, _KD_PRELOAD = 16, 58  # fields of the kernel descriptor
# A device that preloads kernarg starts behind a prologue of this size, which loads it for others.
_PRELOAD_PROLOGUE_BYTES = 256
_EF_XNACK_MASK, _EF_XNACK_OFF = 0x300, 0x200

_NO_FALL_THROUGH = frozenset({"s_branch", "s_endpgm", "s_endpgm_saved", "s_setpc_b64"})
_INDIRECT = frozenset({"s_setpc_b64", "s_swappc_b64", "s_cbranch_g_fork", "s_cbranch_join"})
_COMMA = re.compile(r",\s*(?![^\[]*\])")


class CodeError(ValueError):
    """A code object that mutation cannot read."""


@dataclass(frozen=True, slots=True)
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
        return self.mnemonic in _NO_FALL_THROUGH or self.mnemonic.startswith("s_cbranch")

    @property
    def target(self) -> int | None:
        """Where a direct branch goes."""
        if self.mnemonic == "s_branch" or self.mnemonic.startswith("s_cbranch_"):
            offset = self.word & 0xFFFF
            return self.end + 4 * (offset - 0x10000 if offset & 0x8000 else offset)
        return None


class KernelCode:
    """The instructions of one kernel.

    Attributes
    ----------
    image : bytes
        The code object.
    start, end, entry : int
        ELF addresses; `entry` is where a device that preloads kernarg begins.
    instructions : tuple of Instruction
        In order of address.
    successors : dict
        Addresses that may follow an instruction, by its address.
    xnack : bool
        The code may run with page fault replay.
    """

    def __init__(self, image: bytes, symbol: str) -> None:
        self.image = image
        self.symbol = symbol
        elf = _Elf(image)
        self.start, size, self._file_offset = elf.symbol(symbol)
        self.end = self.start + size
        descriptor, _, kd_offset = elf.symbol(symbol + ".kd")
        (relative,) = struct.unpack_from("<q", image, kd_offset + _KD_ENTRY_OFFSET)
        (preload,) = struct.unpack_from("<H", image, kd_offset + _KD_PRELOAD)
        self.entry = descriptor + relative + (_PRELOAD_PROLOGUE_BYTES if preload & 0x7F else 0)
        self.xnack = elf.flags & _EF_XNACK_MASK != _EF_XNACK_OFF
        self.instructions = tuple(disassemble(self.bytes_at(self.start, size), self.start))
        self.index = {inst.pc: i for i, inst in enumerate(self.instructions)}
        self.successors = {inst.pc: self._successors(inst) for inst in self.instructions}
        self.predecessors: dict[int, list[int]] = {inst.pc: [] for inst in self.instructions}
        for pc, following in self.successors.items():
            for other in following:
                self.predecessors[other].append(pc)
        self.targets = {inst.target for inst in self.instructions if inst.target is not None}
        self.indirect = any(inst.mnemonic in _INDIRECT for inst in self.instructions)
        self.reachable = self._reachable()

    def at(self, pc: int) -> Instruction:
        """The instruction at an address."""
        return self.instructions[self.index[pc]]

    def bytes_at(self, pc: int, size: int) -> bytes:
        """Bytes of the image at an address of the kernel."""
        at = self._file_offset + pc - self.start
        return self.image[at : at + size]

    def patched(self, pc: int, encoding: bytes) -> bytes:
        """The image with other bytes at an address of the kernel."""
        at = self._file_offset + pc - self.start
        if not self.start <= pc <= self.end - len(encoding):
            raise CodeError(f"{pc:#x} is outside {self.symbol}")
        return self.image[:at] + encoding + self.image[at + len(encoding) :]

    def blocks(self) -> dict[int, list[Instruction]]:
        """Reachable basic blocks by the address of their first instruction."""
        found: dict[int, list[Instruction]] = {}
        block: list[Instruction] | None = None
        for inst in self.instructions:
            if block is None or inst.pc in self.targets or inst.pc == self.entry:
                block = found[inst.pc] = []
            block.append(inst)
            if inst.is_branch:
                block = None
        return {pc: block for pc, block in found.items() if pc in self.reachable}

    def block_of(self, pc: int) -> int:
        """Address of the first instruction of the basic block that holds `pc`."""
        i = self.index[pc]
        while (
            i > 0
            and self.instructions[i].pc not in self.targets
            and self.instructions[i].pc != self.entry
            and not self.instructions[i - 1].is_branch
        ):
            i -= 1
        return self.instructions[i].pc

    def _successors(self, inst: Instruction) -> tuple[int, ...]:
        following = []
        if inst.mnemonic not in _NO_FALL_THROUGH and inst.end in self.index:
            following.append(inst.end)
        if inst.target is not None and inst.target in self.index:
            following.append(inst.target)
        return tuple(following)

    def _reachable(self) -> frozenset[int]:
        seen: set[int] = set()
        todo = [self.entry]
        while todo:
            pc = todo.pop()
            if pc not in seen:
                seen.add(pc)
                todo += self.successors.get(pc, ())
        return frozenset(seen)


def disassemble(code: bytes, pc: int) -> list[Instruction]:
    """Instructions of `code`, which lies at `pc`; CodeError at bytes that are none."""
    words = (ctypes.c_uint32 * (len(code) // 4)).from_buffer_copy(code)
    function = _disassembler()
    needed = function(words, len(words), None, 0)
    buffer = ctypes.create_string_buffer(needed)
    function(words, len(words), buffer, needed)
    found, at = [], 0
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


@functools.cache
def _disassembler() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(str(library_path())).vdev_test_disassemble
    pointer = ctypes.POINTER(ctypes.c_uint32)
    function.argtypes = [pointer, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    return function


class _Elf:
    """As much of an ELF64 file as symbols need."""

    def __init__(self, image: bytes) -> None:
        if image[:4] != b"\x7fELF" or image[4] != 2:
            raise CodeError("not an ELF64 code object")
        self._image = image
        (self.flags,) = struct.unpack_from("<I", image, 48)
        (table,) = struct.unpack_from("<Q", image, 40)
        size, count = struct.unpack_from("<HH", image, 58)
        self._sections = [_SECTION.unpack_from(image, table + i * size) for i in range(count)]

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
