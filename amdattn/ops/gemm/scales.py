"""Scales of 8-bit operands, as callers give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdattn.arrays.buffers import View
from amdattn.arrays.interchange import as_view
from amdattn.dtypes import FLOAT32


def scale_view(array: Any, name: str, rows: int, stream: int) -> tuple[View, str]:
    """A float32 for all of an operand, or one for each of its rows; and which of them it is.

    Returns
    -------
    View
        Of shape (1,) or (rows,).
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
    elif shape in ((rows,), (rows, 1), (1, rows)):
        count, kind = rows, "row"
    else:
        raise ValueError(
            f"{name} has shape {shape}; it must have one element, or be ({rows},) or ({rows}, 1), "
            "an element for each row"
        )
    steps = [step for step, length in zip(view.strides, shape, strict=True) if length > 1]
    if view.on_device and steps not in ([], [1]):
        raise ValueError(
            f"{name} has shape {shape} and strides {view.strides} (elements); on the device "
            "scales must follow each other, with a stride of 1"
        )
    array = None if view.array is None else view.array.reshape(count)
    strides = (1,) if array is None else (array.strides[0] // FLOAT32.itemsize,)
    flat = View(
        view.address if array is None else array.ctypes.data,
        (count,),
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

    rows: int

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """See them as (1,) or (rows,)."""
        return scale_view(array, label, self.rows, stream)[0]
