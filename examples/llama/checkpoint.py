"""Tensors of a folder in safetensors: one file, or several with an index, mapped and not read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .config import load_json
from .errors import ModelError

_DTYPES: dict[str, Any] = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MOST_HEADER = 100_000_000  # bytes; the format's own limit


@dataclass(frozen=True)
class Place:
    """Where a tensor lies."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    first: int  # byte of the file
    nbytes: int


class Checkpoint:
    """Every tensor of a folder by its name. Only headers are read here.

    Raises
    ------
    ModelError
        A file is missing or broken, or an index and its files disagree.
    """

    def __init__(self, folder: Path) -> None:
        self._maps: dict[Path, NDArray[np.uint8]] = {}
        if (folder / _INDEX).is_file():
            self.places = _indexed(folder)
        elif (folder / _FILE).is_file():
            self.places = _header(folder / _FILE)
        else:
            raise ModelError(f"{folder} has neither {_FILE} nor {_INDEX}")

    def tensor(self, name: str) -> NDArray[Any]:
        """A read-only view of the mapped file."""
        place = self.places[name]
        if place.file not in self._maps:
            self._maps[place.file] = np.memmap(place.file, np.uint8, "r")
        raw = self._maps[place.file][place.first : place.first + place.nbytes]
        found: NDArray[Any] = raw.view(_DTYPES[place.dtype]).reshape(place.shape)
        return found


def _indexed(folder: Path) -> dict[str, Place]:
    files = load_json(folder / _INDEX).get("weight_map")
    if not isinstance(files, dict):
        raise ModelError(f"{folder / _INDEX} has no weight_map")
    found: dict[str, Place] = {}
    for file in sorted(set(files.values())):
        if Path(file).name != file or not (folder / file).is_file():
            raise ModelError(f"{_INDEX} names {file}, which is not in {folder}")
        for name, place in _header(folder / file).items():
            if files.get(name) != file:
                raise ModelError(f"tensor {name} of {file} is not there in {_INDEX}")
            found[name] = place
    for name, file in files.items():
        if name not in found:
            raise ModelError(f"tensor {name} is missing: {_INDEX} has it in {file}")
    return found


def _header(file: Path) -> dict[str, Place]:
    """Eight bytes of a length, so many of JSON, then the tensors."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > min(size - 8, _MOST_HEADER):
            raise ModelError(f"{file} is no safetensors file, or is cut short")
        try:
            entries = json.loads(opened.read(length))
            return {
                name: _place(file, name, entry, 8 + length, size)
                for name, entry in entries.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"{file} has a broken header: {error}") from None


def _place(file: Path, name: str, entry: dict[str, Any], begin: int, size: int) -> Place:
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    first, last = (begin + offset for offset in entry["data_offsets"])
    if dtype not in _DTYPES:
        raise ModelError(f"tensor {name} has dtype {dtype}; it must be one of {', '.join(_DTYPES)}")
    nbytes = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if not begin <= first <= last <= size or last - first != nbytes:
        raise ModelError(f"tensor {name} does not fit its bytes in {file}, which may be cut short")
    return Place(file, dtype, shape, first, nbytes)
