"""Reads files that users write; whatever they contain, errors are ValueError or OSError."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = 64 * 2**20
# The errors that reading a malformed array, or archive of arrays, may raise.
_MALFORMED = (
    *(ValueError, EOFError, MemoryError, OverflowError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
)


def read_bytes(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes.

    Raises
    ------
    ValueError
        It is a folder, a pipe or a device, or too large; the message names it.
    OSError
        It does not exist or cannot be read.
    """
    # Opened first, so that the checked file is the one that is read; without waiting for a writer
    # of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{path}: is not a regular file")
        if facts.st_size > most:
            raise ValueError(f"{path}: has {facts.st_size} bytes, more than {most}")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)  # it may grow, and files in /proc have no size
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ValueError(f"{path}: has more than {most} bytes")
    return content


def read_text(path: Path) -> str:
    """Read the text of a regular file of at most MAX_BYTES bytes, in UTF-8.

    Raises
    ------
    ValueError
        It is a folder, a pipe or a device, too large, or not text; the message names it.
    OSError
        It does not exist or cannot be read.
    """
    try:
        text = read_bytes(path, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path) -> Any:
    """Read a .json file; raises the errors of read_text, and ValueError if it is malformed."""
    return parse(path, read_text(path), json.loads)


def read_toml(path: Path) -> Any:
    """Read a .toml file; raises the errors of read_text, and ValueError if it is malformed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return parse(path, read_text(path), tomllib.loads)


def parse(path: Path, text: str, parser: Any) -> Any:
    """Parse the text of a file; raises a ValueError that names the file if it is malformed."""
    try:
        return parser(text)
    except RecursionError:
        raise ValueError(f"{path}: nests too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_array(path: Path) -> NDArray[Any]:
    """Read the array in a .npy file.

    Raises
    ------
    ValueError
        It is not a regular file, or has no array of numbers.
    OSError
        It does not exist or cannot be read.
    """
    import numpy as np

    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: is not a regular file")
    try:
        with open(path, "rb") as file:
            # Not np.load, which also accepts archives and pickles.
            return np.lib.format.read_array(file, allow_pickle=False)
    except _MALFORMED as error:
        raise ValueError(f"{path}: is not a .npy file of numbers ({error})") from None


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays in a .npz file, by name.

    Raises
    ------
    ValueError
        It is not a .npz file, or an array has objects.
    OSError
        It does not exist or cannot be read.
    """
    import numpy as np

    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: is not a regular file")
    try:
        with zipfile.ZipFile(path) as archive:
            found = {}
            for member in archive.namelist():
                with archive.open(member) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                found[member.removesuffix(".npy")] = array
            return found
    except _MALFORMED as error:
        raise ValueError(f"{path}: is not a .npz file of numbers ({error})") from None
