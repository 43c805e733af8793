"""Files that users write: whatever they hold, reading one gives its content or a ValueError."""

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
# What reading an array that is none may raise, or an archive of arrays.
_MALFORMED = (
    *(ValueError, EOFError, MemoryError, OverflowError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
)


def read_bytes(path: Path, most: int) -> bytes:
    """What a regular file of at most `most` bytes holds.

    Raises
    ------
    ValueError
        It is a folder, a pipe or a device, or too large; the message names it.
    OSError
        It does not exist or may not be read.
    """
    # Opened first, so that what is looked at is what is read; without waiting for a pipe's writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{path}: is no regular file")
        if facts.st_size > most:
            raise ValueError(f"{path}: has {facts.st_size} bytes, more than {most}")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)  # it may grow, or be one of /proc, which have no size
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ValueError(f"{path}: has more than {most} bytes")
    return content


def read_text(path: Path) -> str:
    """The text of a regular file of at most MAX_BYTES bytes, in UTF-8.

    Raises
    ------
    ValueError
        It is a folder, a pipe or a device, too large, or no text; the message names it.
    OSError
        It does not exist or may not be read.
    """
    try:
        text = read_bytes(path, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path) -> Any:
    """What a .json file holds; raises as read_text does, and ValueError if it is malformed."""
    return parse(path, read_text(path), json.loads)


def read_toml(path: Path) -> Any:
    """What a .toml file holds; raises as read_text does, and ValueError if it is malformed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return parse(path, read_text(path), tomllib.loads)


def parse(path: Path, text: str, parser: Any) -> Any:
    """What a parser makes of a file's text; ValueError, which names the file, if it cannot."""
    try:
        return parser(text)
    except RecursionError:
        raise ValueError(f"{path}: nests too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_array(path: Path) -> NDArray[Any]:
    """The array in a .npy file.

    Raises
    ------
    ValueError
        It holds no array, or objects.
    OSError
        It does not exist or may not be read.
    """
    import numpy as np

    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: is no regular file")
    try:
        with open(path, "rb") as file:
            # Not np.load, which guesses: it takes archives and pickles as well.
            return np.lib.format.read_array(file, allow_pickle=False)
    except _MALFORMED as error:
        raise ValueError(f"{path}: is no .npy file of numbers ({error})") from None


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in a .npz file, by name.

    Raises
    ------
    ValueError
        It is no such file, or one of them has objects.
    OSError
        It does not exist or may not be read.
    """
    import numpy as np

    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: is no regular file")
    try:
        with zipfile.ZipFile(path) as archive:
            found = {}
            for member in archive.namelist():
                with archive.open(member) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                found[member.removesuffix(".npy")] = array
            return found
    except _MALFORMED as error:
        raise ValueError(f"{path}: is no .npz file of numbers ({error})") from None
