"""The instructions of code objects, as the virtual device decodes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.support.isa.aliases import canonical
from tests.support.isa.assembler import assemble
from tests.support.isa.disassembler import Decoded, Disassembler

SHF_EXECINSTR = 4


class Section(NamedTuple):
    """A section of code."""

    in_file: int
    words: NDArray[np.uint32]


def code_sections(image: bytes) -> Iterator[Section]:
    """Executable sections of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    (count,) = struct.unpack_from("<H", image, 0x3C)
    for i in range(count):
        _, _, flags, _, offset, size = struct.unpack_from("<IIQQQQ", image, table + 64 * i)
        if flags & SHF_EXECINSTR:
            yield Section(offset, np.frombuffer(image, "<u4", size // 4, offset))


def instructions(disassembler: Disassembler, image: bytes) -> Iterator[tuple[int, Decoded, int]]:
    """Each with its offset in its section of code, and in the file."""
    for section in code_sections(image):
        at = 0
        for decoded in disassembler.disassemble(section.words):
            yield 4 * at, decoded, section.in_file + 4 * at
            at += decoded.size or 1


def misdecoded(disassembler: Disassembler, files: Sequence[Path]) -> list[str]:
    """What is not decoded, or decodes to a text that LLVM's assembler encodes otherwise."""
    seen: dict[str, bytes] = {}
    wrong = []
    for file in files:
        image = file.read_bytes()
        for at, decoded, in_file in instructions(disassembler, image):
            encoding = image[in_file : in_file + 4 * max(decoded.size, 1)]
            if not decoded.size:
                wrong.append(f"{file}+{at:#x}: {encoding.hex()}")
            seen[decoded.text] = encoding
    texts = [text for text in seen if text]
    for text, llvm in zip(texts, assemble(texts, disassembler.cpu), strict=True):
        if canonical(seen[text], text) != llvm:
            wrong.append(f"{text}: {seen[text].hex(' ', 4)}, by LLVM {llvm.hex(' ', 4)}")
    return wrong
