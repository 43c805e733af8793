"""Device arrays that are declared to a check: their names, pieces and elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View

Arrays = Sequence[Any] | Mapping[str, Any]

MAX_RUNS = 4096  # contiguous pieces that one declared array may consist of


def named(kind: str, arrays: Arrays) -> Iterable[tuple[str, Any]]:
    """The name and array of each; arrays of a sequence are named after `kind`."""
    if isinstance(arrays, Mapping):
        return arrays.items()
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(
            f"{kind} must be a list, tuple or mapping of arrays, not {type(arrays).__name__}"
        )
    return ((f"{kind}[{i}]", array) for i, array in enumerate(arrays))


def device_view(name: str, array: Any) -> View:
    """The memory of an array; raises TypeError or ValueError unless it is device memory."""
    view = as_view(array, name, 0)
    if not view.on_device:
        raise ValueError(f"{name} is in host memory; only device memory can be watched")
    return view


def element_at(address: int, name: str, view: View) -> str:
    """The element of an array at an address, as text; "" if there is none."""
    low, high = view.extent()
    if not low <= address < high:
        return ""
    position, inside = divmod(address - low, view.dtype.itemsize)
    axes = list(zip(view.strides, view.shape, range(len(view.shape)), strict=True))
    if inside or any(step < 0 for step, *_ in axes):
        return f"{name} + {address - low} bytes"
    index = [0] * len(axes)
    for step, length, axis in sorted(axes, reverse=True):
        if step and length > 1:
            index[axis], position = divmod(position, step)
    within = all(i < length for i, length in zip(index, view.shape, strict=True))
    return f"{name}{index}" if within and not position else ""


def runs(name: str, view: View) -> Iterator[tuple[int, int]]:
    """Address and length of each contiguous piece of a device array."""
    item = view.dtype.itemsize
    # Axes by step, innermost first; those that go on where the ones inside end are one run.
    axes = sorted(
        (abs(step) * item, length)
        for step, length in zip(view.strides, view.shape, strict=True)
        if length > 1 and step
    )
    run = item
    while axes and axes[0][0] <= run:
        step, length = axes.pop(0)
        run = max(run, (length - 1) * step + run)
    num_runs = 1
    for _, length in axes:
        num_runs *= length
    if num_runs > MAX_RUNS:
        raise ValueError(
            f"{name} has strides {view.strides} (elements): {num_runs} separate pieces, of which "
            f"{MAX_RUNS} can be watched"
        )
    starts = [view.extent()[0]] if 0 not in view.shape else []
    for step, length in axes:
        starts = [start + i * step for start in starts for i in range(length)]
    return ((start, run) for start in starts)
