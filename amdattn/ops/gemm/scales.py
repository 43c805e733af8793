"""Scales of 8-bit operands, as callers give them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.plan import Operand
from amdattn.ops.gemm.problem import BLOCKS, MAX_REACH, MAX_TILE, MX, block_shapes, mx_shapes

MX_ALIGN_BYTES = 4  # for rows of scales of 32 elements along k
_UINT8, _E8M0 = as_dtype("uint8"), "float8_e8m0fnu"
MAX_STEP = 2**21  # from a row of scales of blocks to the next: offsets of 128 rows have 31 bits


def scale_views(
    scale_a: Any,
    scale_b: Any,
    rows_of: tuple[tuple[int, ...], tuple[int, ...]],
    k: int,
    stream: int,
) -> dict[str, tuple[View, str]]:
    """Scales of a and b, of which one may be None, and what each of them belongs to.

    If k is one block, the shape of scales of rows and of blocks is the same for a; b's then decide.

    rows_of : rows of a and of b, with axes in front as these have

    Raises
    ------
    ValueError
        As `scale_view`; or one has scales of blocks and the other does not.
    """
    given = {name: x for name, x in (("scale_a", scale_a), ("scale_b", scale_b)) if x is not None}
    views = {name: as_view(x, name, stream) for name, x in given.items()}
    wanted = dict(zip(("scale_a", "scale_b"), block_shapes(*rows_of, k), strict=True))
    rows = dict(zip(("scale_a", "scale_b"), rows_of, strict=True))
    fits = {name for name, view in views.items() if view.shape == wanted[name]}
    only = {name for name in fits if not _is_of_rows(wanted[name], rows[name])}
    if not only:
        return {
            name: _of_rows(view, name, rows[name], wanted[name]) for name, view in views.items()
        }
    for name in ("scale_a", "scale_b"):
        if name not in fits:
            (other,) = only
            shape = views[name].shape if name in views else None
            raise ValueError(
                f"{name} has shape {shape}; with {other} of {wanted[other]}, an element for each "
                f"block, it must be {wanted[name]}"
                if shape is not None
                else f"{name}=None must be {wanted[name]}, with {other} of {wanted[other]}, an "
                "element for each block"
            )
    for name, view in views.items():
        _check_dtype(view, name)
        if view.on_device and view.shape[-1] > 1 and view.strides[-1] != 1:
            raise ValueError(
                f"{name} has shape {view.shape} and strides {view.strides} (elements); on the "
                "device scales of a row of blocks must follow each other, with a stride of 1"
            )
    return {name: (view, BLOCKS) for name, view in views.items()}


def _is_of_rows(shape: tuple[int, ...], rows: tuple[int, ...]) -> bool:
    """Whether scales of this shape belong to rows, or one to the whole operand."""
    if all(length == 1 for length in shape) or shape in (rows, (*rows, 1)):
        return True
    return len(rows) == 1 and shape == (1, *rows)


def scales_misfit(operand: Operand) -> str:
    """The reason why no kernel takes the strides of scales of blocks, or ""."""
    step = operand.strides["row"]
    if 0 <= step <= MAX_STEP:
        return ""
    return f"row stride {step}, which must be in 0..{MAX_STEP}"


def mx_scales_misfit(operand: Operand, factors: int) -> str:
    """The reason why no kernel takes the address or strides of MX scales, or ""."""
    for what, value in (
        ("address", operand.address),
        *((f"{name} stride", step) for name, step in operand.strides.items()),
    ):
        if value % MX_ALIGN_BYTES:
            return f"{what} {value:#x}, which must be a multiple of {MX_ALIGN_BYTES} bytes"
    most = MAX_STEP
    if factors:
        most = min(most, (MAX_REACH - 1) // (factors + MAX_TILE))
    if 0 <= operand.strides["row"] <= most:
        return ""
    return f"row stride {operand.strides['row']}, which must be in 0..{most}"


def is_mx_scale(x: Any) -> bool:
    """Whether an array has the type of MX scales: uint8, or that of ml_dtypes."""
    name = getattr(getattr(x, "dtype", None), "name", None) or str(getattr(x, "dtype", ""))
    return name.removeprefix("torch.") in ("uint8", _E8M0)


def mx_scale_views(
    scale_a: Any,
    scale_b: Any,
    rows_of: tuple[tuple[int, ...], tuple[int, ...]],
    k: int,
    stream: int,
) -> dict[str, tuple[View, str]]:
    """MX scales of a and of b, both of which must have them.

    rows_of : rows of a and of b, with axes in front as these have

    Raises
    ------
    ValueError
        One is missing, or has another type or shape.
    """
    found = {}
    for name, array, shape in zip(
        ("scale_a", "scale_b"), (scale_a, scale_b), mx_shapes(*rows_of, k), strict=True
    ):
        if array is None:
            raise ValueError(
                f"{name}=None must be uint8 of {shape}, an element for each 32 along k of a row"
            )
        view = AsMxScales()(array, name, None, stream)
        if view.shape != shape:
            raise ValueError(
                f"{name} has shape {view.shape}; it must be {shape}, an element for each 32 along "
                "k of a row"
            )
        found[name] = view, MX
    return found


@dataclass(frozen=True, slots=True)
class AsMxScales:
    """Reads MX scales: uint8, or ml_dtypes' float8_e8m0fnu."""

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """View the scales as uint8.

        Raises
        ------
        ValueError
            The type is another one, or elements of a row in device memory do not follow each other.
        """
        if getattr(getattr(array, "dtype", None), "name", "") == _E8M0:
            array = array.view("uint8")
        view = as_view(array, label, stream)
        if view.dtype is not _UINT8:
            raise ValueError(
                f"{label} has dtype {view.dtype.name}; it must be uint8 or {_E8M0}: of elements "
                "with scales of 32 of k, the exponent of 2 and 127"
            )
        if view.on_device and view.shape[-1] > 1 and view.strides[-1] != 1:
            raise ValueError(
                f"{label} has shape {view.shape} and strides {view.strides} (elements); on the "
                "device scales of a row must follow each other, with a stride of 1"
            )
        return view


def _check_dtype(view: View, name: str) -> None:
    if view.dtype is not FLOAT32:
        raise ValueError(f"{name} has dtype {view.dtype.name}; it must be float32")


def scale_view(array: Any, name: str, rows: tuple[int, ...], stream: int) -> tuple[View, str]:
    """View scales as one float32 for an operand or one for each row, and say which.

    Parameters
    ----------
    rows : tuple of int
        Rows of the operand, after its batches or groups if it has any.

    Returns
    -------
    View
        Of shape (1,) or `rows`.
    {"tensor", "row"}

    Raises
    ------
    ValueError
        The type or shape is another one, or elements in device memory do not follow each other.
    """
    return _of_rows(as_view(array, name, stream), name, rows, ())


def _of_rows(
    view: View, name: str, rows: tuple[int, ...], block_shape: tuple[int, ...]
) -> tuple[View, str]:
    """`scale_view` for a view; `block_shape`: the shape of scales of blocks, if allowed."""
    _check_dtype(view, name)
    shape = view.shape
    if all(length == 1 for length in shape):
        count, kind = 1, "tensor"
    elif _is_of_rows(shape, rows):
        count, kind = math.prod(rows), "row"
    else:
        raise ValueError(
            f"{name} has shape {shape}; it must have one element, or be {rows} or {(*rows, 1)}, "
            "an element for each row"
            + f", or {block_shape}, one for each block"
            * bool(block_shape)
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
    """Reads scales as `scale_view` does, for plans; it knows the operand's rows."""

    rows: tuple[int, ...]

    def __call__(self, array: Any, label: str, ordinal: int | None, stream: int) -> View:
        """View the scales as (1,) or `rows`."""
        return scale_view(array, label, self.rows, stream)[0]
