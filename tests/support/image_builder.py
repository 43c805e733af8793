"""Builds AMDGPU ELF images field by field, to test the loader without a compiler."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

PAGE = 0x1000
DESCRIPTOR_AT, TEXT_AT, DATA_AT = 0x1000, 0x2000, 0x3000
DATA_BYTES = 256
LDS_BYTES = 1024
UNDEFINED, ABSOLUTE = 0, 0xFFF1
OBJECT, FUNC = 1, 2
GLOBAL, WEAK = 1, 2


def descriptor(entry: int = TEXT_AT - DESCRIPTOR_AT, **fields: int) -> bytes:
    """Return a kernel descriptor; `entry` is relative to it, the other fields are raw words.

    Its sizes are those of kernel_metadata() unless they are given.
    """
    words = {"lds": LDS_BYTES, "scratch": 0, "kernarg": 0, "rsrc3": 0, "rsrc1": 0, "rsrc2": 0}
    words |= {"properties": 0, "preload": 0} | fields
    return struct.pack(
        "<III4xq20xIIIHH4x",
        *(words[k] for k in ("lds", "scratch", "kernarg")),
        entry,
        *(words[k] for k in ("rsrc3", "rsrc1", "rsrc2", "properties", "preload")),
    )


def kernel_metadata(**changes: Any) -> dict[str, Any]:
    return {
        ".name": "k",
        ".symbol": "k.kd",
        ".args": [{".name": "p", ".offset": 0, ".size": 8, ".value_kind": "global_buffer"}],
        ".kernarg_segment_size": 8,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": LDS_BYTES,
        ".private_segment_fixed_size": 0,
        ".wavefront_size": 64,
        ".max_flat_workgroup_size": 256,
        ".sgpr_count": 10,
        ".vgpr_count": 8,
    } | {f".{k}": v for k, v in changes.items()}


@dataclass
class Image:
    """An image with one kernel `k`: pages of headers, its descriptor, its code, and data.

    File offsets equal virtual addresses up to the data, which zeros follow up to `data_memory`
    bytes. Notes, symbols and relocations lie behind it, outside the loaded segments.
    """

    note: bytes = b""
    descriptor: bytes = field(default_factory=descriptor)
    text: bytes = b"\x00\x00\x81\xbf" * 256
    data: bytes = bytes(range(DATA_BYTES))
    data_memory: int = 3 * PAGE
    symbols: list[tuple[str, int, int, int, int, int]] = field(default_factory=list)
    relocations: list[tuple[int, int, int, int]] = field(default_factory=list)
    relocation_flags: int = 2  # SHF_ALLOC: for the loader, not left over by the linker
    machine: int = 224
    os_abi: int = 64
    abi_version: int = 3
    elf_type: int = 3
    flags: int = 0x54C
    text_align: int = PAGE
    string_table: str = ".strtab"  # the name of a section that every unstripped image has

    def symbol(
        self,
        name: str,
        value: int,
        size: int = 0,
        kind: int = OBJECT,
        binding: int = GLOBAL,
        section: int = 1,
    ) -> int:
        """Add a symbol and return its index in the table."""
        self.symbols.append((name, value, size, kind, binding, section))
        return len(self.symbols) + 2  # after the null symbol, the kernel and its descriptor

    def build(self) -> bytes:
        symbols = [("", 0, 0, 0, 0, 0), ("k", TEXT_AT, len(self.text), FUNC, GLOBAL, 1)]
        symbols += [("k.kd", DESCRIPTOR_AT, 64, OBJECT, GLOBAL, 1), *self.symbols]
        strings, table = b"\0", b""
        for name, value, size, kind, binding, section in symbols:
            at = len(strings) if name else 0
            table += struct.pack("<IBBHQQ", at, binding << 4 | kind, 0, section, value, size)
            strings += name.encode("latin-1") + b"\0" if name else b""
        rela = b"".join(
            struct.pack("<QQq", offset, index << 32 | kind, addend)
            for offset, kind, index, addend in self.relocations
        )
        note = struct.pack("<III", 7, len(self.note), 32) + b"AMDGPU\0\0" + self.note
        note += b"\0" * (-len(note) % 4)

        data_at = TEXT_AT + len(self.text) + -len(self.text) % PAGE
        body = bytearray(data_at + len(self.data))
        body[DESCRIPTOR_AT : DESCRIPTOR_AT + 64] = self.descriptor
        body[TEXT_AT : TEXT_AT + len(self.text)] = self.text
        body[data_at:] = self.data

        def append(content: bytes) -> int:
            body.extend(b"\0" * (-len(body) % 8))
            body.extend(content)
            return len(body) - len(content)

        names = f"\0{self.string_table}\0".encode()
        parts = (note, table, strings, rela, names)
        note_at, table_at, strings_at, rela_at, names_at = map(append, parts)
        read_write, read_execute, read = 6, 5, 4
        segments = [
            (1, read, 0, 0, TEXT_AT, TEXT_AT, PAGE),
            (1, read_execute, TEXT_AT, TEXT_AT, len(self.text), len(self.text), self.text_align),
            (1, read_write, data_at, data_at, len(self.data), self.data_memory, PAGE),
            (4, read, note_at, 0, len(note), len(note), 4),
        ]
        sections = [
            (0, 0, 0, 0, 0, 0, 0),
            (0, 11, 2, table_at, len(table), 2, 24),
            (0, 3, 2, strings_at, len(strings), 0, 0),
            (0, 4, self.relocation_flags, rela_at, len(rela), 1, 24),
            (1, 3, 0, names_at, len(names), 0, 0),
        ]
        sections_at = append(
            b"".join(
                struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, at, size, link, 0, 8, entry)
                for name, kind, flags, at, size, link, entry in sections
            )
        )
        body[:64] = struct.pack(
            "<4sBBBBB7xHHIQQQIHHHHHH",
            b"\x7fELF",
            *(2, 1, 1, self.os_abi, self.abi_version),
            *(self.elf_type, self.machine, 1, 0, 64, sections_at, self.flags, 64),
            *(56, len(segments), 64, len(sections), len(sections) - 1),
        )
        for i, (kind, rights, offset, address, file, memory, align) in enumerate(segments):
            header = struct.pack("<IIQQQQQQ", kind, rights, offset, address, 0, file, memory, align)
            body[64 + 56 * i : 120 + 56 * i] = header
        return bytes(body)


def bundle(entries: list[tuple[str, bytes]]) -> bytes:
    """Return an uncompressed offload bundle of (target, image)."""
    head = 32 + sum(24 + len(name) for name, _ in entries)
    table, images = b"", b""
    for name, image in entries:
        images += b"\0" * (-(head + len(images)) % PAGE)
        table += struct.pack("<QQQ", head + len(images), len(image), len(name)) + name.encode()
        images += image
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + images
