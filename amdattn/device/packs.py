"""Code objects of a folder: packs of several, or single files, which take precedence.

Objects of one kind are near copies of each other: compressed together, they take a third of the
space. A folder of packs has an index, packs.json, with the names of each pack's objects and their
bytes, in order; a pack is these objects one after the other, compressed by LZMA.
`build_scripts.packed_objects` makes both.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

from amdattn.user_files import read_bytes, read_json

INDEX, SUFFIX = "packs.json", ".xz"
MOST_BYTES = 16 * 2**20  # of all objects of a pack
# Limits of the memory for unpacking, and of what packing may add.
_UNPACKING_BYTES, _PACKED_MORE = 64 * 2**20, 2**15
# Kernels that are loaded in succession mostly come from one pack, or from two.
_PACKS_KEPT = 2


class _Place(NamedTuple):
    """The place of an object in an unpacked pack."""

    pack: Path
    pack_bytes: int
    start: int
    nbytes: int


def read(path: Path, most: int) -> bytes:
    """The code object of this name, with at most `most` bytes.

    Raises OSError or ValueError, which name the damaged file.
    """
    if os.path.exists(path):
        return read_bytes(path, most)
    index = path.with_name(INDEX)
    if not os.path.exists(index):
        raise FileNotFoundError(f"there is neither {path.name} nor {INDEX}")
    place = _places(index).get(path.name)
    if place is None:
        raise FileNotFoundError(f"there is no {path.name}, and {INDEX} has none")
    if place.nbytes > most:
        raise ValueError(f"{INDEX}: {path.name} has {place.nbytes} bytes, more than {most}")
    return _unpacked(place.pack, place.pack_bytes)[place.start : place.start + place.nbytes]


def names(folder: Path) -> set[str]:
    """Names of the objects in the packs of a folder; empty if the folder has no index."""
    index = folder / INDEX
    return set(_places(index)) if os.path.exists(index) else set()


def forget() -> None:
    """Forget what was read: packs have been written anew."""
    _places.cache_clear()
    _unpacked.cache_clear()


@functools.lru_cache(maxsize=4)
def _places(index: Path) -> dict[str, _Place]:
    """The place of every object that an index names."""
    document = read_json(index)
    if not isinstance(document, dict):
        raise ValueError(f"{index}: is no object of packs")
    found = {}
    for pack, sizes in document.items():
        if pack != os.path.basename(pack) or not pack.endswith(SUFFIX):
            raise ValueError(f"{index}: {pack!r} is not the name of a pack in its folder")
        if not isinstance(sizes, dict) or not all(
            type(nbytes) is int and 0 < nbytes <= MOST_BYTES for nbytes in sizes.values()
        ):
            raise ValueError(f"{index}: {pack} is not an object of names and bytes")
        start, pack_bytes = 0, sum(sizes.values())
        if pack_bytes > MOST_BYTES:
            raise ValueError(f"{index}: {pack} has more than {MOST_BYTES} bytes")
        for name, nbytes in sizes.items():
            found[name] = _Place(index.with_name(pack), pack_bytes, start, nbytes)
            start += nbytes
    return found


@functools.lru_cache(maxsize=_PACKS_KEPT)
def _unpacked(pack: Path, nbytes: int) -> bytes:
    """All objects of a pack, which must have exactly `nbytes` bytes."""
    try:
        import lzma  # some Pythons are built without it, and single files do not need it

        unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_UNPACKING_BYTES)
        content = unpacking.decompress(read_bytes(pack, nbytes + _PACKED_MORE), nbytes + 1)
    except ImportError:
        raise OSError(f"{pack.name} needs the module lzma, which this Python lacks") from None
    except (lzma.LZMAError, EOFError) as error:
        raise OSError(f"{pack.name}: {error}") from None
    if len(content) > nbytes:
        raise ValueError(f"{pack.name}: unpacks to more than {nbytes} bytes")
    if not unpacking.eof:
        raise OSError(f"{pack.name}: Compressed data ended before the end-of-stream marker")
    if len(content) < nbytes:
        raise ValueError(f"{pack.name}: unpacks to {len(content)} bytes, not {nbytes}")
    return content
