"""Where the compiled libraries are: beside the package, or in an install of the same sources.

Python that runs from the root of a checkout imports the package there, whether it was built there
or not. Uses the standard library only: the build asks it as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DISTRIBUTION = "amdattn"
FOLDER = "_lib"  # of the package
SONAME = "libamdattn_vdev.so"  # of the virtual device's library of every level
HSA_NAME = "libhsa-runtime64.so.1"  # beside the libraries: has the name alone
DIGEST = "sources.sha256"  # beside the libraries: of what they were built from
_PACKAGE = Path(__file__).resolve().parent
# In a checkout: what is compiled, and how.
_SOURCES = ("virtual_device", "amdattn/jax/native")
_SUFFIXES = {".c", ".cc", ".h", ".map"}
_BUILD = ("build_scripts/virtual_device.py", "build_scripts/jax_handler.py")


class Found(NamedTuple):
    """A folder of libraries, which it may lack, and why it is that one.

    Attributes
    ----------
    folder : Path
    is_installed : bool
        They are those of the installed distribution, not those beside the package.
    note : str
        Why, or what is in the way; "" if there is nothing to say.
    """

    folder: Path
    is_installed: bool = False
    note: str = ""


def find(package: Path = _PACKAGE) -> Found:
    """The libraries of a package's folder.

    Those of an installed distribution serve a checkout that has none, if they were built from just
    its sources: those of others may compute something else.
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
    """What to do about a checkout that finds none."""
    root = found.folder.parent.parent
    return (
        f"`{sys.executable} -m pip install -e {root}` builds one there; from another folder than "
        "the checkout's root Python imports the installed amdattn, if there is one"
    )


def digest_of(root: Path) -> str:
    """SHA-256 of all that the libraries of a checkout are built from."""
    import hashlib

    files = [root / name for name in _BUILD]
    for folder in _SOURCES:
        files += [path for path in (root / folder).rglob("*") if path.suffix in _SUFFIXES]
    whole = hashlib.sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        whole.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def record(root: Path, folder: Path) -> None:
    """Write what the libraries in a folder were built from beside them."""
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
