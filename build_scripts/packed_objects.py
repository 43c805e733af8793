"""Code objects as a wheel has them: in packs, which take half of what objects take one by one.

`amdattn.device.packs` reads them, and says what they are. What is inside is still what the manifest
has the sha256 of. A Python that was built without LZMA can neither compress nor read them: its
wheels have objects as they are.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from amdattn.device.packs import INDEX, SUFFIX

# Of the objects of a pack. The first load of any of its kernels unpacks them all, which takes up to
# 12 ms of a core. With 2**20 it takes up to 14 ms, and packs have 0.14 MB less of 2.54 in all; with
# 2**19 up to 8 ms, and 0.19 MB more.
PACK_BYTES = 3 * 2**18


def packed(content: bytes) -> bytes:
    """Objects, one after the other, compressed: the same bytes every time."""
    import lzma

    # Instructions are words of 4 bytes; no pack of several objects is longer than the dictionary.
    words = {"lc": 0, "lp": 2, "pb": 2, "dict_size": 1 << 20}
    return lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, **words}])


def is_packed(file: Path) -> bool:
    """Whether a wheel has this file of hsaco/ in a pack: kernels, not the micro-benchmarks."""
    return file.suffix == ".hsaco" and file.parent.name != "micro"


def copy_packed(source: Path, target: Path) -> None:
    """Copy hsaco/ to where a wheel has it; what an earlier build left there is gone."""
    shutil.rmtree(target, ignore_errors=True)
    can_pack = importlib.util.find_spec("_lzma") is not None
    objects: dict[Path, list[Path]] = {}  # of each folder of the target
    for file in sorted(source.rglob("*")):
        if file.is_dir():
            continue
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if can_pack and is_packed(file):
            objects.setdefault(copy.parent, []).append(file)
        else:
            shutil.copy2(file, copy)
    for folder, files in objects.items():
        _write_packs(files, folder)


def _write_packs(files: Sequence[Path], folder: Path) -> None:
    """Pack objects in this order, by name: those that begin alike are of one kind."""
    packs: list[dict[str, bytes]] = []
    filled = PACK_BYTES
    for file in files:
        image = file.read_bytes()
        filled += len(image)
        if filled > PACK_BYTES:
            packs.append({})
            filled = len(image)
        packs[-1][file.name] = image
    index = {}
    for number, images in enumerate(packs):
        pack = f"pack_{number:02}{SUFFIX}"
        (folder / pack).write_bytes(packed(b"".join(images.values())))
        index[pack] = {name: len(image) for name, image in images.items()}
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
