"""Finds the compiled libraries: beside the package, or in an install of the same sources.

Python that runs from the root of a checkout imports the package from there, whether it was built
there or not. This module uses the standard library only, because the build imports it too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DISTRIBUTION = "amdattn"
FOLDER = "_lib"  # in the package
SONAME = "libamdattn_vdev.so"  # of the virtual device's library, for every x86 level
HSA_NAME = "libhsa-runtime64.so.1"  # beside the libraries: a stub that has nothing but the name
DIGEST = "sources.sha256"  # beside the libraries: the digest of their sources
_PACKAGE = Path(__file__).resolve().parent
# The compiled sources in a checkout, and the scripts that compile them.
_SOURCES = ("virtual_device", "amdattn/jax/native")
_SUFFIXES = {".c", ".cc", ".h", ".map"}
_BUILD = ("build_scripts/virtual_device.py", "build_scripts/jax_handler.py")


class Found(NamedTuple):
    """The folder where libraries should be, which may lack them.

    Attributes
    ----------
    folder : Path
    is_installed : bool
        Whether it belongs to the installed distribution instead of this package.
    note : str
        The reason for this folder, or for missing libraries; "" if there is nothing to say.
    """

    folder: Path
    is_installed: bool = False
    note: str = ""


def find(package: Path = _PACKAGE) -> Found:
    """Find the libraries of a package.

    A checkout without libraries uses those of an installed distribution if they were built from
    exactly its sources; libraries of other sources may compute something else.
    """
    own, root = package / FOLDER, package.parent
    if any(own.glob("*.so")) or not (root / _SOURCES[0]).is_dir():
        return Found(own)
    here = f"amdattn is imported from the checkout {root}, in which no library was built"
    others = [folder for folder in _installed() if folder.resolve() != own.resolve()]
    digest = digest_of(root) if others else ""
    for folder in others:
        if _read(folder / DIGEST) == digest:
            where = (
                f"that of the installed amdattn in {folder.parent}, of the same sources, is used"
            )
            return Found(folder, True, f"{here}: {where}")
    note = "".join(
        f"; that of the installed amdattn in {folder.parent} was built from other sources"
        for folder in others
    )
    return Found(own, note=here + note)


def remedy(found: Found) -> str:
    """The advice for a checkout that has no libraries."""
    root = found.folder.parent.parent
    return (
        f"`{sys.executable} -m pip install -e {root}` builds one there; from another folder than "
        "the checkout's root Python imports the installed amdattn, if there is one"
    )


def digest_of(root: Path) -> str:
    """SHA-256 of all sources of the libraries of a checkout."""
    import hashlib

    files = [root / name for name in _BUILD]
    for folder in _SOURCES:
        files += [path for path in (root / folder).rglob("*") if path.suffix in _SUFFIXES]
    whole = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        whole.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def record(root: Path, folder: Path) -> None:
    """Write the digest of the sources beside the libraries in a folder."""
    (folder / DIGEST).write_text(digest_of(root) + "\n", encoding="ascii")


def _installed() -> Iterator[Path]:
    """Folders of libraries of every distribution that Python finds."""
    import importlib.metadata  # takes longer to import than all else here

    for distribution in importlib.metadata.distributions(name=DISTRIBUTION):
        folder = Path(str(distribution.locate_file(f"amdattn/{FOLDER}")))
        if any(folder.glob("*.so")):
            yield folder


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
