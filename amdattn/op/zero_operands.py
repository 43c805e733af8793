"""Zeros that replace an axis without elements, over which a sum is 0."""

from __future__ import annotations

from amdattn.arrays.buffers import host_empty, upload
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.device import runtime

_FEW = 16


def one_zero_row(view: View) -> View:
    """An array of the same kind with one row of zeros, for missing keys or values."""
    return _zeros(view, (1, *view.shape[1:]))


def few_zero_columns(view: View) -> View:
    """Replace a matrix without columns by one with as many zero columns as every kernel takes."""
    return _zeros(view, (*view.shape[:-1], _FEW))


def few_zero_rows(view: View) -> View:
    """Replace a matrix without rows by one with zero rows."""
    return _zeros(view, (*view.shape[:-2], _FEW, view.shape[-1]))


def _zeros(view: View, shape: tuple[int, ...]) -> View:
    zeros = host_empty(shape, view.dtype)
    zeros[...] = 0
    if view.on_device:
        return upload(zeros, runtime.get(view.ordinal)).view()
    return View(
        zeros.ctypes.data, zeros.shape, compact_strides(zeros.shape), view.dtype, True, zeros, zeros
    )
