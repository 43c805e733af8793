"""Arguments of a kernel, described by a small text or JSON, and their place in the kernarg block.

Write one argument on each line (or between semicolons), in the kernel's order; # begins a comment:

    x    in     float32[16, 256]  normal seed=3
    w    in     bfloat16[256]     file=w.npy
    out  out    float32[16]
    lock zero   uint32[4]
    n    int32  4096

A buffer is NAME ROLE DTYPE[SHAPE] and, for roles in and inout, its contents; a scalar is NAME DTYPE
VALUE. JSON has a list of objects with the same facts under the keys name, role, dtype, shape, fill,
seed, low, high and file, or name, dtype and value. A struct that is passed by value is described by
its fields, one after the other.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amdattn.device.code_object import KernelInfo
from amdattn.dtypes import DType, as_dtype
from amdattn.user_files import read_array, read_json, read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

# in: no kernel may write to it. out: every element must be written. inout: read and written.
# zero: zero before, and must be zero after, such as a semaphore.
ROLES = ("in", "out", "inout", "zero")
FILLS = ("normal", "integers", "zeros", "file")
MAX_BUFFER_BYTES = 2**32

_SCALARS = {
    **{"int8": "b", "int16": "h", "int32": "i", "int64": "q"},
    **{"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"},
    **{"float16": "e", "float32": "f", "float64": "d"},
}


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory whose address a kernel gets."""

    name: str
    role: str
    dtype: DType
    shape: tuple[int, ...]
    fill: str = "zeros"
    seed: int = 0
    low: int = 0
    high: int = 100
    file: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def contents(self, seed: int) -> NDArray[Any]:
        """The initial contents of an in or inout buffer; `seed` varies random contents."""
        import numpy as np

        rng = np.random.default_rng((self.seed, seed))
        if self.fill == "file":
            array = read_array(Path(self.file))
            if self.dtype.name == "bfloat16" and array.dtype.kind == "V":
                array = array.view(self.dtype.numpy())
            if array.shape != self.shape or array.dtype != self.dtype.numpy():
                raise ValueError(
                    f"argument {self.name}: {self.file} holds {array.dtype}{list(array.shape)}, "
                    f"not {self.dtype.name}{list(self.shape)}"
                )
            return np.ascontiguousarray(array)
        if self.fill == "normal":
            return rng.standard_normal(self.shape).astype(self.dtype.numpy())
        if self.fill == "integers":
            drawn = np.uint64 if self.high > 2**63 else np.int64
            made = rng.integers(self.low, self.high, self.shape, drawn)
            return made.astype(self.dtype.numpy())
        return np.zeros(self.shape, self.dtype.numpy())


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number passed by value."""

    name: str
    dtype: str
    value: int | float

    def packed(self) -> bytes:
        """Its bytes in the kernarg block."""
        return struct.pack("<" + _SCALARS[self.dtype], self.value)


Argument = Buffer | Scalar


def read_arguments(given: str) -> tuple[Argument, ...]:
    """Read a description: the text itself, or @FILE with the text or, if named .json, JSON.

    Raises
    ------
    ValueError
        It is malformed; the message names the argument.
    """
    if not given.startswith("@"):
        return _arguments(_parse_text(given), "--args")
    file = Path(given[1:])
    if file.suffix.lower() != ".json":
        return _arguments(_parse_text(read_text(file), f"{file}: "), str(file))
    rows = read_json(file)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{file}: must hold a list of objects, one for each argument")
    return _arguments(rows, str(file))


# -- the text form ---------------------------------------------------------------------------------

_BUFFER = re.compile(r"(\S+)\s+(\S+)\s+(\w+)\s*\[([^\]]*)\]\s*(.*)")


def _parse_text(text: str, origin: str = "") -> list[dict[str, Any]]:
    lines = (line.partition("#")[0] for line in text.splitlines())
    items = (item.strip() for line in lines for item in line.split(";"))
    try:
        return [_parse_item(item) for item in items if item]
    except ValueError as error:
        raise ValueError(f"{origin}{error}") from None


def _parse_item(item: str) -> dict[str, Any]:
    buffer = _BUFFER.fullmatch(item)
    if buffer is None:
        words = item.split()
        if len(words) != 3:
            raise ValueError(
                f"argument {item!r} is neither NAME ROLE DTYPE[SHAPE] ... nor NAME DTYPE VALUE"
            )
        return {"name": words[0], "dtype": words[1], "value": _number(words[0], words[2])}
    name, role, dtype, shape, rest = buffer.groups()
    lengths = [part.strip() for part in shape.split(",") if part.strip()]
    row: dict[str, Any] = {"name": name, "role": role, "dtype": dtype}
    row["shape"] = [_number(name, length) for length in lengths]
    for word in rest.split():
        key, equals, value = word.partition("=")
        if not equals:
            key, value = "fill", word
        if key in row:
            raise ValueError(f"argument {name}: {key} is given twice")
        row[key] = _number(name, value) if key in ("seed", "low", "high") else value
    return row


def _number(name: str, text: str) -> int | float:
    for parse in (lambda: int(text, 0), lambda: float(text)):
        try:
            return parse()
        except ValueError:
            pass
    raise ValueError(f"argument {name}: {text!r} is not a number")


# -- validation, of both forms ---------------------------------------------------------------------

_BUFFER_KEYS = ("name", "role", "dtype", "shape", "fill", "seed", "low", "high", "file")
_SCALAR_KEYS = ("name", "dtype", "value")


def _arguments(rows: Sequence[Mapping[str, Any]], origin: str) -> tuple[Argument, ...]:
    found: list[Argument] = []
    for number, row in enumerate(rows, 1):
        name = row.get("name")
        try:
            if not isinstance(name, str) or not name:
                raise ValueError(f"name={name!r} must be a text")
            if any(name == other.name for other in found):
                raise ValueError("there is another one of this name")
            found.append(_scalar(row) if "value" in row else _buffer(row))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{origin}: argument {number} ({name}): {error}") from None
    return tuple(found)


def _require_keys(row: Mapping[str, Any], needed: Sequence[str], known: Sequence[str]) -> None:
    missing = [key for key in needed if key not in row]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    unknown = sorted(set(row) - set(known))
    if unknown:
        raise ValueError(f"has {', '.join(unknown)}; there is {', '.join(known)}")


def _one_of(key: str, value: object, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ValueError(f"{key}={value!r} must be one of {', '.join(allowed)}")
    return str(value)


def _scalar(row: Mapping[str, Any]) -> Scalar:
    _require_keys(row, _SCALAR_KEYS, _SCALAR_KEYS)
    dtype = _one_of("dtype", as_dtype(row["dtype"]).name, tuple(_SCALARS))
    value = row["value"]
    wanted = float if dtype.startswith("float") else int
    if isinstance(value, bool) or not isinstance(value, (int, wanted)):
        raise ValueError(f"value={value!r} is no {dtype}")
    scalar = Scalar(row["name"], dtype, value)
    try:
        scalar.packed()
    except (struct.error, OverflowError):
        raise ValueError(f"value={value!r} does not fit {dtype}") from None
    return scalar


def _buffer(row: Mapping[str, Any]) -> Buffer:
    _require_keys(row, ("name", "role", "dtype", "shape"), _BUFFER_KEYS)
    role = _one_of("role", row["role"], ROLES)
    dtype = as_dtype(row["dtype"])
    shape = row["shape"]
    if not isinstance(shape, list) or not all(_is_count(n, 1) for n in shape):
        raise ValueError(f"shape={shape!r} must be a list of lengths >= 1")
    nbytes = dtype.itemsize
    for length in shape:
        nbytes *= length
    if nbytes > MAX_BUFFER_BYTES:
        raise ValueError(f"shape={shape} takes {nbytes} bytes, more than {MAX_BUFFER_BYTES}")
    contents = {key: row[key] for key in ("fill", "seed", "low", "high", "file") if key in row}
    if role in ("out", "zero"):
        if contents:
            raise ValueError(f"has {', '.join(contents)}, but role {role!r} has no contents")
        return Buffer(row["name"], role, dtype, tuple(shape))
    default = "normal" if dtype.name.startswith(("float", "bfloat")) else "integers"
    if "file" in contents:
        default = "file"
    contents["fill"] = _one_of("fill", contents.get("fill", default), FILLS)
    needs = {"file": ("file",), "integers": ("seed", "low", "high"), "normal": ("seed",)}
    fitting = needs.get(contents["fill"], ())
    unfit = sorted(set(contents) - {"fill", *fitting})
    if unfit or (contents["fill"] == "file" and "file" not in contents):
        have = ", ".join(unfit) or "no file"
        raise ValueError(f"has {have}, but fill {contents['fill']!r} takes {', '.join(fitting)}")
    if "file" in contents and not isinstance(contents["file"], str):
        raise ValueError(f"file={contents['file']!r} must be the name of a .npy file")
    if not _is_count(contents.get("seed", 0), 0):
        raise ValueError(f"seed={contents['seed']!r} must be an integer >= 0")
    buffer = Buffer(row["name"], role, dtype, tuple(shape), **contents)
    bounds = f"low={buffer.low} and high={buffer.high}"
    if not _are_integers(buffer.low, buffer.high) or buffer.low >= buffer.high:
        raise ValueError(f"{bounds} must be integers, low < high")
    least, most = _range(dtype)
    if buffer.fill == "integers" and (buffer.low < least or buffer.high > most + 1):
        raise ValueError(f"{bounds} must be of {least}..{most + 1} for {dtype.name}")
    return buffer


_LARGEST_FLOAT16 = 65504


def _range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer that an element may be filled with."""
    bits = 8 * dtype.itemsize
    if dtype.name.startswith("uint"):
        return 0, 2**bits - 1
    if dtype.name.startswith("int"):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    most = _LARGEST_FLOAT16 if dtype.name == "float16" else 2**63 - 1
    return -most, most


def _are_integers(*values: object) -> bool:
    return all(isinstance(x, int) and not isinstance(x, bool) for x in values)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


# -- placement -------------------------------------------------------------------------------------


def place(arguments: Sequence[Argument], kernel: KernelInfo) -> list[tuple[int, Argument]]:
    """Offset of each argument in the kernarg block, each at its natural alignment.

    Raises
    ------
    ValueError
        The arguments differ from those in the kernel's metadata.
    """
    placed: list[tuple[int, Argument]] = []
    end = 0
    for argument in arguments:
        size = 8 if isinstance(argument, Buffer) else len(argument.packed())
        offset = -(-end // size) * size
        end = offset + size
        placed.append((offset, argument))
    for wanted in kernel.arguments:
        inside = [
            (offset, argument)
            for offset, argument in placed
            if wanted.offset <= offset < wanted.offset + wanted.size
        ]
        if not inside or inside[0][0] != wanted.offset:
            raise ValueError(_mismatch(kernel, f"{wanted.name} at byte {wanted.offset} is missing"))
        if wanted.is_buffer and not isinstance(inside[0][1], Buffer):
            wrong = f"{wanted.name} is a buffer, but {inside[0][1].name} a scalar"
            raise ValueError(_mismatch(kernel, wrong))
    if end > kernel.explicit_bytes:
        raise ValueError(_mismatch(kernel, f"{placed[-1][1].name} is one too many"))
    for offset, argument in placed:
        size = 8 if isinstance(argument, Buffer) else len(argument.packed())
        if not any(
            wanted.offset <= offset and offset + size <= wanted.offset + wanted.size
            for wanted in kernel.arguments
        ):
            raise ValueError(_mismatch(kernel, f"{argument.name} lies across two of them"))
    return placed


def _mismatch(kernel: KernelInfo, wrong: str) -> str:
    takes = ", ".join(
        f"{argument.name}: {'buffer' if argument.is_buffer else f'{argument.size} bytes'}"
        for argument in kernel.arguments
    )
    return f"arguments of {kernel.name}: {wrong}; it takes ({takes or 'nothing'})"
