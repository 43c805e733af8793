"""Finds a symbol of a code object in its file: the part of ELF that this needs."""

from __future__ import annotations

import struct
from typing import NamedTuple

_CLASS64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32x2Q4x6H")  # program and section headers: places, then sizes and counts
_SECTION = struct.Struct("<4xI16x2QI12xQ")  # type, place, bytes, link, bytes of an entry
_SYMBOL = struct.Struct("<I4x2Q")  # name, address, bytes
_SEGMENT = struct.Struct("<I4x2Q8xQ16x")  # type, place, address, bytes in the file
_DYNSYM, _LOAD = 11, 1


class Place(NamedTuple):
    """Bytes of a file."""

    offset: int
    size: int


def place_of(image: bytes, symbol: str) -> Place:
    """The place of the bytes of a symbol of the dynamic table.

    Raises
    ------
    ValueError
        The image is not a 64-bit ELF file, or has no such symbol with bytes in it.
    """
    if image[:6] != _CLASS64_LITTLE:
        raise ValueError(f"is no ELF file of 64 bits (it begins with {image[:6]!r})")
    try:
        segments_at, sections_at, *_, of_segment, segments, of_section, sections, _ = (
            _HEADER.unpack_from(image)
        )
        for i in range(sections):
            kind, at, nbytes, link, of_entry = _SECTION.unpack_from(
                image, sections_at + i * of_section
            )
            if kind != _DYNSYM or not of_entry:
                continue
            _, names, *_ = _SECTION.unpack_from(image, sections_at + link * of_section)
            wanted = symbol.encode() + b"\0"
            for entry in range(at, at + nbytes, of_entry):
                name, address, size = _SYMBOL.unpack_from(image, entry)
                if image.startswith(wanted, names + name):
                    return Place(
                        _offset(image, address, size, segments_at, of_segment, segments), size
                    )
    except struct.error as error:
        raise ValueError(f"ends too early: {error}") from None
    raise ValueError(f"has no symbol {symbol}")


def _offset(
    image: bytes, address: int, size: int, segments_at: int, of_segment: int, segments: int
) -> int:
    """The offset in the file of a number of bytes at an address."""
    for i in range(segments):
        kind, at, first, nbytes = _SEGMENT.unpack_from(image, segments_at + i * of_segment)
        if kind == _LOAD and first <= address and address + size <= first + nbytes:
            found: int = at + address - first
            if found + size <= len(image):
                return found
    raise ValueError(f"has no bytes at address {address:#x}")
