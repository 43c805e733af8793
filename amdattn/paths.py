"""Finds the package's data files: inside an installed wheel, or beside a source checkout."""

from __future__ import annotations

import os
from pathlib import Path

from amdattn import native_libraries
from amdattn.errors import ManifestError

KERNEL_DIR_VARIABLE = "AMDATTN_KERNEL_DIR"
_PACKAGE = Path(__file__).resolve().parent


def _first_dir(*candidates: Path) -> Path:
    for path in candidates:
        if path.is_dir():
            return path
    tried = ", ".join(map(str, candidates))
    raise ManifestError(f"amdattn's data files are not installed: none of {tried} is a folder")


def hsaco_dir() -> Path:
    """Folder of manifest.json and the code objects; AMDATTN_KERNEL_DIR overrides it."""
    override = os.environ.get(KERNEL_DIR_VARIABLE)
    if override:
        if not os.path.isdir(override):
            raise ManifestError(f"{KERNEL_DIR_VARIABLE}={override!r} is no folder")
        return Path(override)
    return _first_dir(_PACKAGE / "hsaco", _PACKAGE.parent / "hsaco")


def args_dir() -> Path:
    """Folder of the C headers that declare the kernel argument structs."""
    return _first_dir(_PACKAGE / "_args", _PACKAGE.parent / "asm_src" / "args")


def native_library_dir() -> Path:
    """Folder of the compiled libraries; it may not exist in a source checkout."""
    return native_libraries.find().folder
