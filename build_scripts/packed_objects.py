"""Code objects of hsaco/ in packs, which take a third of what objects take one by one.

`amdattn.device.packs` reads them, and says what they are. What is inside is what the manifest has
the sha256 of.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path

from amdattn.device import packs

# Of the objects of a pack. The first load of any of its kernels unpacks them all, which takes up to
# 12 ms of a core.
PACK_BYTES = 3 * 2**18

# Instructions are words of 4 bytes; no pack of several objects is longer than the dictionary.
_WORDS = {"lc": 0, "lp": 2, "pb": 2, "dict_size": 1 << 20}
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, **_WORDS}]

Images = dict[str, bytes]  # objects by the names of their files


def read_folder(folder: Path) -> Images:
    """Every object of a folder: those in its packs, and those that are files."""
    names = packs.names(folder) | {path.name for path in folder.glob("*.hsaco")}
    return {name: packs.read(folder / name, packs.MOST_BYTES) for name in sorted(names)}


def write_folder(folder: Path, families: Mapping[str, Images]) -> None:
    """Put objects in packs that are named after their families; others of the folder go away.

    A pack that holds these objects already is left alone: another version of the compressor may
    write other bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = {}
    for family, images in sorted(families.items()):
        for number, pack in enumerate(_cut(images)):
            path = folder / f"{family}_{number}{packs.SUFFIX}"
            index[path.name] = {name: len(image) for name, image in pack.items()}
            content = b"".join(pack.values())
            if not _holds(path, content):
                path.write_bytes(lzma.compress(content, filters=_FILTERS))
    (folder / packs.INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    packs.forget()
    for path in folder.iterdir():
        if path.name not in {packs.INDEX, *index}:
            path.unlink()


def _cut(images: Images) -> Iterator[Images]:
    """Packs of objects by name: those that begin alike are near copies of each other."""
    pack: Images = {}
    for name, image in sorted(images.items()):
        if pack and sum(map(len, pack.values())) + len(image) > PACK_BYTES:
            yield pack
            pack = {}
        pack[name] = image
    yield pack


def _holds(pack: Path, content: bytes) -> bool:
    try:
        return lzma.decompress(pack.read_bytes()) == content
    except (OSError, lzma.LZMAError):
        return False
