"""Code objects as a wheel has them: compressed, which takes 1.7 MB off it.

`amdattn.device.manifest` reads both. What is inside is still what the manifest has the sha256 of. A
Python that was built without LZMA can neither compress nor read them: its wheels have them as they
are.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from amdattn.paths import PACKED_SUFFIX


def packed(image: bytes) -> bytes:
    """A code object, compressed."""
    import lzma

    # Instructions are words of 4 bytes; no object is longer than the dictionary.
    words = {"lc": 0, "lp": 2, "pb": 2, "dict_size": 1 << 18}
    return lzma.compress(image, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, **words}])


def is_packed(file: Path) -> bool:
    """Whether a wheel has this file of hsaco/ compressed: kernels, not the micro-benchmarks."""
    return file.suffix == ".hsaco" and file.parent.name != "micro"


def copy_packed(source: Path, target: Path) -> None:
    """Copy hsaco/ to where a wheel has it; what an earlier build left there is gone."""
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(source.rglob("*")):
        if file.is_dir():
            continue
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if is_packed(file) and importlib.util.find_spec("_lzma"):
            name = copy.name + PACKED_SUFFIX
            copy.with_name(name).write_bytes(packed(file.read_bytes()))
        else:
            shutil.copy2(file, copy)
