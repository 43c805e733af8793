"""Scales of 8-bit operands, as callers give them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from amdattn.arrays.buffers import View
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import as_view
from amdattn.dtypes import FLOAT32


def scale_view(array: Any, name: str, rows: tuple[int, ...], stream: int) -> tuple[View, str]:
    """A float32 for all of an operand, or one for each of its rows; and which of them it is.

    Parameters
    ----------
    rows : tuple of int
        Of the operand, behind its batches or groups if it has any.

    Returns
    -------
    View
        Of shape (1,) or `rows`.
    {"tensor", "row"}

    Raises
    ------
    ValueError
        Another type or shape, or elements of device memory that do not follow each other.
    """
    view = as_view(array, name, stream)
    if view.dtype is not FLOAT32:
        raise ValueError(f"{name} has dtype {view.dtype.name}; it must be float32")
    shape = view.shape
    if all(length == 1 for length in shape):
        count, kind = 1, "tensor"
    elif shape in (rows, (*rows, 1)) or (len(rows) == 1 and shape == (1, *rows)):
        count, kind = math.prod(rows), "row"
    else:
        raise ValueError(
            f"{name} has shape {shape}; it must have one element, or be {rows} or {(*rows, 1)}, "
            "an element for each row"
        )
    steps = zip(view.strides, compact_strides(shape), shape, strict=True)
    if view.on_device and any(step != next_to for step, next_to, length in steps if length > 1):
        raise ValueError(
            f"{name} has shape {shape} and strides {view.strides} (elements); on the device "
            "scales must follow each other, with a stride of 1"
        )
    whole = rows if kind == "row" else (count,)
    array = None if view.array is None else view.array.reshape(whole)
    strides = compact_strides(whole)
    if array is not None:
        strides = tuple(step // FLOAT32.itemsize for step in array.strides)
    flat = View(
        view.address if array is None else array.ctypes.data,
        whole,
        strides,
        view.dtype,
        view.read_only,
        view.owner,
        array,
        view.ordinal,
    )
    return flat, kind


@dataclass(frozen=True, slots=True)
class AsScales:
    """Reads what `scale_view` does, of an operand of so many rows, for plans."""

    rows: tuple[int, ...]

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """See them as (1,) or `rows`."""
        return scale_view(array, label, self.rows, stream)[0]
