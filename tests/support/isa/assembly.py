"""Assembly of many texts at once, and the rows of the instruction table."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import ziglang

from tests.support.isa.machine import _text_section
from tests.support.vdev_library import DEFAULT_CPU, choose_machine, open_library

# Numbers of the formats in enum Format.
SOP2, SOPK, SOP1, SOPC, SOPP, SMEM, VOP2, VOP1, VOPC, VOP3, VOP3P = range(11)


@functools.cache
def row_names(fmt: int, cpu: str = DEFAULT_CPU) -> frozenset[str]:
    """Names of the rows of a format in the library's instruction table."""
    library = open_library(
        vdev_test_rows=(ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]),
    )
    choose_machine(library, cpu)
    text = ctypes.create_string_buffer(library.vdev_test_rows(None, 0))
    library.vdev_test_rows(text, len(text))
    rows = [line.split() for line in text.value.decode().splitlines()]
    return frozenset(name for number, _opcode, name in rows if int(number) == fmt)


def split_marked(words: Sequence[int], marker: int, count: int) -> list[tuple[int, ...]]:
    """The stretches of `words` that each end with (marker, index)."""
    pieces: list[tuple[int, ...]] = []
    start = at = 0
    while len(pieces) < count:
        at = words.index(marker, at)
        if words[at + 1] == len(pieces):
            pieces.append(tuple(words[start:at]))
            start = at = at + 2
        else:
            at += 1
    return pieces


_MARKER = 0xFEEDFACE


@functools.cache
def _assemble_all(texts: tuple[str, ...], cpu: str) -> tuple[tuple[int, ...] | None, ...]:
    zig = Path(str(ziglang.__file__)).parent / "zig"
    accepted = list(range(len(texts)))
    while True:
        lines: list[str] = []
        owner: list[int] = []
        for n, i in enumerate(accepted):
            text = f"{texts[i]}\n.long {_MARKER}, {n}".split("\n")
            lines += text
            owner += [i] * len(text)
        with tempfile.TemporaryDirectory() as folder:
            source, output = Path(folder) / "code.s", Path(folder) / "code.o"
            source.write_text("\n".join(lines) + "\n")
            command = [str(zig), "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa"]
            command += ["-target-cpu", cpu, "-filetype", "obj", "-o", str(output), str(source)]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode == 0:
                code = _text_section(output.read_bytes())
                break
        bad = {owner[int(n) - 1] for n in re.findall(r"code\.s:(\d+):\d+: error", done.stderr)}
        if not bad:
            raise RuntimeError(done.stderr)
        accepted = [i for i in accepted if i not in bad]
    pieces = split_marked(struct.unpack(f"<{len(code) // 4}I", code), _MARKER, len(accepted))
    result: list[tuple[int, ...] | None] = [None] * len(texts)
    for i, words in zip(accepted, pieces, strict=True):
        result[i] = words
    return tuple(result)


def assemble_each(
    texts: Iterable[str], cpu: str = DEFAULT_CPU
) -> dict[str, tuple[int, ...] | None]:
    """Dwords of every text, None for those that the assembler refuses; few processes."""
    unique = tuple(dict.fromkeys(texts))
    return dict(zip(unique, _assemble_all(unique, cpu), strict=True))
