"""Files that users write: whatever they hold, reading one gives its content or a ValueError."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = 64 * 2**20


def read_text(path: Path) -> str:
    """The text of a regular file of at most MAX_BYTES bytes, in UTF-8.

    Raises
    ------
    ValueError
        It is a folder, a pipe or a device, too large, or no text; the message names it.
    OSError
        It does not exist or may not be read.
    """
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{path}: is no regular file")
    if facts.st_size > MAX_BYTES:
        raise ValueError(f"{path}: has {facts.st_size} bytes, more than {MAX_BYTES}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from None


def read_json(path: Path) -> Any:
    """What a .json file holds; raises as read_text does, and ValueError if it is malformed."""
    return _parse(path, read_text(path), json.loads)


def read_toml(path: Path) -> Any:
    """What a .toml file holds; raises as read_text does, and ValueError if it is malformed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return _parse(path, read_text(path), tomllib.loads)


def _parse(path: Path, text: str, parse: Any) -> Any:
    try:
        return parse(text)
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
    except (ValueError, EOFError, MemoryError, OverflowError, SyntaxError) as error:
        raise ValueError(f"{path}: is no .npy file of numbers ({error})") from None
