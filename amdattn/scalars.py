"""Numbers, flags and words of callers: Python's own, numpy's, and those in arrays without axes.

Plans are looked up by these values. An array would be looked up by its identity, although its value
may change, so it is read first and becomes a Python number.
"""

from __future__ import annotations

import ctypes
import math
import numbers
import operator
from typing import Any

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
FLOAT32_MAX, FLOAT32_MIN = 3.4028234663852886e38, 2.0**-126  # the latter: of normal numbers
LOG2_E = math.log2(math.e)
_DIGITS = 4000  # that Python prints


def rest_of_float32(x: float) -> float:
    """The distance of a number from its float32, relative to that."""
    rounded = ctypes.c_float(x).value
    return (x - rounded) / rounded if abs(rounded) >= FLOAT32_MIN else 0.0


def integer(name: str, value: object) -> int:
    """The int that `value` is or holds; raises TypeError for a bool, a float and others."""
    if type(value) is int:
        return _of_64_bits(name, value)
    found = read(name, value)
    if type(found) is int:
        return _of_64_bits(name, found)
    if not isinstance(found, bool) and not hasattr(found, "shape"):
        try:
            return _of_64_bits(name, operator.index(found))  # type: ignore[arg-type]
        except TypeError:
            pass
    raise _wrong(name, value, "an int")


def _of_64_bits(name: str, value: int) -> int:
    """An int of 64 bits. Nothing takes longer ones, and Python prints none of 4300 digits."""
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{name} is an integer of {value.bit_length()} bits, which 64 do not hold")
    return value


def number(name: str, value: object) -> float:
    """The finite float that `value` is or holds; raises TypeError for a bool, a str and others."""
    if type(value) is float and math.isfinite(value):
        return value
    found = read(name, value)
    if isinstance(found, bool) or not isinstance(found, numbers.Real):
        raise _wrong(name, value, "a number")
    try:
        finite = float(found)
    except OverflowError:
        shown = f"={found}" if abs(found) < 10**_DIGITS else ""
        raise ValueError(f"{name}{shown} must be finite, not beyond every float64") from None
    if not math.isfinite(finite):
        raise ValueError(f"{name}={found} must be finite")
    return finite


def optional_number(name: str, value: object) -> float | None:
    """`number`, or None for None."""
    return None if value is None else number(name, value)


def boolean(name: str, value: object) -> bool:
    """The bool that `value` is or holds; raises TypeError for all else, even 0 and 1."""
    found = read(name, value)
    if type(found) is not bool:
        raise _wrong(name, value, "a bool")
    return found


def window(name: str, value: object) -> tuple[int, int]:
    """The pair of ints of a tuple, a list or an array of two; None becomes -1, no limit."""
    if type(value) is tuple and [*map(type, value)] == [int, int]:
        return value
    shape = getattr(value, "shape", None)
    sides = value.tolist() if shape is not None and hasattr(value, "tolist") else value
    if not isinstance(sides, (tuple, list)) or len(sides) != 2:
        raise _wrong(name, value, "a pair (left, right)")
    left, right = (-1 if side is None else integer(name, side) for side in sides)
    return left, right


def word(name: str, value: object) -> str:
    """The str that `value` is."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise _wrong(name, value, "a str")
    return str(value)


def read(name: str, value: Any) -> object:
    """The value of an array without axes or of a numpy number; anything else as it is.

    Raises
    ------
    TypeError
        Its value cannot be read, as in a tracer of `jax.jit`.
    """
    if getattr(value, "shape", None) != () or not hasattr(value, "item"):
        return value
    try:
        return value.item()
    except Exception as error:
        raise TypeError(
            f"{name} is a {_type_name(value)} whose value cannot be read here; pass a Python "
            f"number ({str(error).partition(chr(10))[0]})"
        ) from error


def _wrong(name: str, value: Any, wanted: str) -> TypeError:
    """The error of an argument; for an array it gives the shape instead of the contents."""
    shape = getattr(value, "shape", None)
    shown = f"={value!r}" if shape is None or shape == () else f" has shape {tuple(shape)} and"
    return TypeError(f"{name}{shown} must be {wanted}, not {_type_name(value)}")


def _type_name(value: object) -> str:
    return type(value).__name__
