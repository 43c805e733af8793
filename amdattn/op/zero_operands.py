"""Zeros that stand for an axis without elements, where a sum is over none."""

from __future__ import annotations

from amdattn.arrays.buffers import View, host_empty, upload
from amdattn.arrays.dlpack import compact_strides
from amdattn.device import runtime

_FEW = 16


def one_zero_row(view: View) -> View:
    """Memory of the same kind with one row of zeros, for keys or values of which there are none."""
    return _zeros(view, (1, *view.shape[1:]))


def few_zero_columns(view: View) -> View:
    """The same of a matrix without columns: as many of zeros as every kernel takes."""
    return _zeros(view, (*view.shape[:-1], _FEW))


def few_zero_rows(view: View) -> View:
    """The same of one without rows."""
    return _zeros(view, (*view.shape[:-2], _FEW, view.shape[-1]))


def _zeros(view: View, shape: tuple[int, ...]) -> View:
    zeros = host_empty(shape, view.dtype)
    zeros[...] = 0
    if view.on_device:
        return upload(zeros, runtime.get(view.ordinal)).view()
    return View(
        zeros.ctypes.data, zeros.shape, compact_strides(zeros.shape), view.dtype, True, zeros, zeros
    )
