"""Attention on empty arrays: results are empty, or consist of rows that see no key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amdattn.arrays.allocation import Memory
from amdattn.arrays.buffers import DeviceArray, host_empty, upload
from amdattn.arrays.interchange import to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import FLOAT32
from amdattn.op.operands import check_output, check_placement, check_shape
from amdattn.op.outputs import output_view
from amdattn.ops.attention.problem import axis_order

if TYPE_CHECKING:
    from numpy.typing import NDArray


def results(
    kind: Any,
    inputs: Mapping[str, View],
    given: tuple[Any, Any],
    with_lse: bool,
    layout: str,
    stream: int,
    head_dim_v: int | None = None,
) -> tuple[Any, Any]:
    """`out` and `lse` of any number of queries that see no key.

    Parameters
    ----------
    kind
        New results are arrays of its library.
    given
        `out` and `lse` of the caller, or None.
    with_lse
        Whether lse is requested.
    head_dim_v
        Columns of `out`; None: the last axis of v.
    """
    q = inputs["q"]
    columns = inputs["v"].shape[-1] if head_dim_v is None else head_dim_v
    for name in ("k", "v") if head_dim_v is None else ():
        check_shape(inputs[name], name, inputs[name].shape, q.dtype.name, layout)
    axes = dict(zip(axis_order(layout), q.shape, strict=False))
    if "sinks" in inputs:
        check_shape(inputs["sinks"], "sinks", (axes["head"],), "float32", layout)
    views = {
        name: output_view(x, name, stream)
        for name, x in zip(("out", "lse"), given, strict=True)
        if x is not None
    }
    check_placement({**inputs, **views})
    values = {"out": host_empty((*q.shape[:-1], columns), q.dtype)}
    values["out"][...] = 0
    if with_lse:
        lse_shape = tuple(axes[axis] for axis in ("batch", "head", "seq") if axis in axes)
        values["lse"] = host_empty(lse_shape, FLOAT32)
        values["lse"][...] = -float("inf")
        if "sinks" in inputs:
            values["lse"][...] = _on_host(inputs["sinks"])[:, None]
    found: list[Any] = []
    for name, array in zip(("out", "lse"), given, strict=True):
        if name not in values:
            found.append(None)
            continue
        view = views.get(name)
        if view is None:
            made: Any = values[name]
            if q.on_device:
                made = upload(made, runtime.get(q.ordinal))
            found.append(to_library_of(kind, made))
            continue
        dtype = "float32" if name == "lse" else q.dtype.name
        check_shape(view, name, values[name].shape, dtype, layout)
        if values[name].size:
            check_output(name, view, inputs)
            write(view, values[name], stream)
        found.append(array)
    return found[0], found[1]


def _on_host(view: View) -> NDArray[Any]:
    if view.array is not None:
        return view.array
    memory = Memory(runtime.get(view.ordinal), view.owner)
    return DeviceArray(view.address, view.shape, view.strides, view.dtype, memory).numpy()


def write(view: View, values: NDArray[Any], stream: int) -> None:
    """Write values to the elements of a view, row by row, without touching gaps."""
    import numpy as np

    if view.array is not None:
        view.array[...] = values
        return
    device = runtime.get(view.ordinal)
    if stream and device.is_capturing(stream):
        raise ValueError(
            "a graph is being captured from the stream, but without keys there is nothing to launch"
        )
    row_bytes = values.shape[-1] * values.itemsize
    for row in np.ndindex(values.shape[:-1]):
        skipped = sum(i * step for i, step in zip(row, view.strides, strict=False))
        device.upload(
            view.address + skipped * values.itemsize, values[row].ctypes.data, row_bytes, stream
        )
    device.synchronize(stream)
