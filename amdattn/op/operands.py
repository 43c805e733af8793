"""Checks of the operands of a call. Everything raises before anything is launched."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.overlap import repeats_elements, share_memory
from amdattn.arrays.views import View
from amdattn.op.plan import Operand


def check_workspace(view: View, nbytes: int) -> None:
    """Check memory for partial results: large enough, without gaps, aligned."""
    if not view.on_device:
        raise TypeError("workspace must be in device memory; host arrays need none")
    if view.read_only:
        raise ValueError("workspace is read-only")
    held = view.dtype.itemsize * math.prod(view.shape)
    if view.strides != compact_strides(view.shape) or held < nbytes or view.address % 16:
        raise ValueError(
            f"workspace has {held} bytes at {view.address:#x}, strides {view.strides}; this "
            f"plan needs {nbytes} bytes without gaps at a multiple of 16 bytes"
        )


def check_shape(view: View, name: str, shape: tuple[int, ...], dtype: str, layout: str) -> None:
    """Check the shape and element type of an operand, and the last stride in device memory.

    Host memory with other strides is made compact when it is copied.
    """
    if view.shape != shape:
        of = f" ({layout})" * bool(layout)
        raise ValueError(f"{name} has shape {view.shape}; this call needs {shape}{of}")
    if view.dtype.name != dtype:
        raise ValueError(f"{name} has dtype {view.dtype.name}; this call needs {dtype}")
    if view.on_device and view.strides[-1] != 1 and view.shape[-1] > 1:
        raise ValueError(
            f"{name} has strides {view.strides} (elements); the last one must be 1, only the "
            "others are free; on the host all are"
        )


def check_placement(views: Mapping[str, View]) -> None:
    """Check that all operands are on the host, or all on the same device."""
    if len({view.ordinal for view in views.values()}) > 1:
        several = len({view.ordinal for view in views.values() if view.on_device}) > 1
        where = ", ".join(
            f"{name} on {f'device {view.ordinal}' if several and view.on_device else 'the device'}"
            if view.on_device
            else f"{name} on the host"
            for name, view in views.items()
        )
        raise TypeError(f"all operands must be in the same place, not {where}")


def same_elements(one: View, other: View) -> bool:
    """Whether two views have the same elements in the same places."""
    if (one.address, one.shape, one.ordinal) != (other.address, other.shape, other.ordinal):
        return False
    steps = zip(one.strides, other.strides, one.shape, strict=True)
    return all(a == b for a, b, length in steps if length > 1) and 0 not in one.shape


def check_output(name: str, out: View, inputs: Mapping[str, View]) -> None:
    """Check that an output is writable, holds each element once, and shares none with an input."""
    if out.read_only:
        raise ValueError(f"{name} is read-only")
    if repeated := repeats_elements(out):
        raise ValueError(
            f"{name} has overlapping elements (shape {out.shape}, strides {out.strides})"
        )
    if repeated is None:
        raise ValueError(
            f"{name} has shape {out.shape} and strides {out.strides}; it takes too long to tell "
            "whether its elements overlap"
        )
    for other, view in inputs.items():
        if shared := share_memory(out, view):
            raise ValueError(f"{name} overlaps {other} in memory")
        if shared is None:
            raise ValueError(
                f"{name} (strides {out.strides}) and {other} (strides {view.strides}) are so "
                "interleaved in memory that it takes too long to tell whether they overlap"
            )


def axis_strides(view: View, axes: tuple[str, ...]) -> dict[str, int]:
    """Strides by the names of all axes except the last.

    An axis of length 1 gets the stride of the last axis. Any value is right there, and with this
    one, alignment rules and bounds see no odd numbers.
    """
    dim = view.shape[-1]
    return {
        axis: step if length > 1 else dim
        for axis, step, length in zip(axes, view.strides, view.shape, strict=False)
    }


def operand_of(view: View, axes: tuple[str, ...]) -> Operand:
    """The values that a launch needs of a view whose axes, except the last, have these names."""
    return Operand(view.address, axis_strides(view, axes))


def row_step(view: View) -> int | None:
    """The distance of rows over all axes except the last; None if it is not constant."""
    step = reach = None
    for length, stride in zip(view.shape[-2::-1], view.strides[-2::-1], strict=True):
        if length == 1:
            continue
        if step is None:
            step, reach = stride, stride
        elif stride != reach:
            return None
        reach = stride * length
    return view.shape[-1] if step is None else step


def refuse_number(given: Any, name: str, place: str) -> None:
    """Refuse a number in the place that eps has in other libraries; here eps is at `place`.

    Raises
    ------
    TypeError
        A number was given for the argument `name`.
    """
    if isinstance(given, numbers.Real):
        raise TypeError(
            f"{name}={given!r} must be an array; eps is the {place} argument: pass eps={given!r}"
        )
