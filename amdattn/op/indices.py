"""Indices that callers give: a private copy on the host, or int32 on a device.

The indices that are checked are then those that are used, even if others write to a caller's array.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps
from amdattn.arrays.buffers import allocate, upload
from amdattn.arrays.dlpack import HOST_KINDS, compact_strides
from amdattn.arrays.foreign import device_of, speaks_dlpack
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import manifest, runtime
from amdattn.dtypes import as_dtype
from amdattn.op.colocation import refuse_capture
from amdattn.op.launch import PreparedLaunches, run
from amdattn.op.plan import Address, Launch, Operand, Stride
from amdattn.scalars import INT32_MAX, INT32_MIN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The values of KernelSpec.op and of KernelSpec.grid: x = ceil(count / lanes).
NARROW, NARROW_GRID = "narrow_indices", "lanes_of_count"
_INT32 = as_dtype("int32")


def private(array: Any, label: str, nested: bool = True) -> Any:
    """Copy a caller's indices to where nobody else writes; leave those on a device as they are.

    An array that this returned before is not copied again.

    nested : bool
        Whether a list may hold rows; otherwise they raise a TypeError.
    """
    import numpy as np

    own = _own_type()
    if isinstance(array, own):
        return array
    if isinstance(array, (list, tuple, range)):
        return _listed(array, label, nested).view(own)
    if isinstance(array, np.ndarray):
        return array.copy().view(own)
    if speaks_dlpack(array) and device_of(array, label)[0] in HOST_KINDS:
        host = as_view(array, label, 0).array
        assert host is not None
        return host.copy().view(own)
    return array


@functools.cache
def _own_type() -> type[NDArray[Any]]:
    """The type of arrays that `private` made, which no caller has."""
    import numpy as np

    class Own(np.ndarray):
        pass

    return Own


def as_int32(host: NDArray[Any]) -> NDArray[np.int32]:
    """Indices on the host as int32, clamped to the range of 32 bits."""
    import numpy as np

    if host.dtype == np.int32:
        return np.ascontiguousarray(host)
    return np.ascontiguousarray(host.clip(INT32_MIN, INT32_MAX).astype(np.int32))


def placed(host: NDArray[Any], label: str, ordinal: int | None, stream: int) -> View:
    """Indices on the host as int32, copied to the device `ordinal` if it is not None."""
    narrow = as_int32(host)
    if ordinal is None:
        return as_view(narrow, label, stream)
    refuse_capture(label, "an int32 array", stream)
    return upload(narrow, runtime.get(ordinal)).view_on(stream)


def on_device(view: View, label: str, stream: int, least: int, most: int) -> View:
    """Indices in device memory as int32; those of 64 bits are clamped to `least` and `most`."""
    if view.dtype.name not in ("int32", "int64"):
        raise ValueError(f"{label} has dtype {view.dtype.name}; on the device int32 or int64")
    if view.dtype == _INT32 and (view.strides[-1] == 1 or view.shape[-1] == 1):
        return view
    if view.strides != compact_strides(view.shape) and len(view.shape) > 1:
        raise ValueError(
            f"{label} has strides {view.strides} (elements); on the device the last one must be "
            "1, and int64 without gaps"
        )
    step, count = view.strides[-1], math.prod(view.shape)
    if step <= 0 and count > 1:
        raise ValueError(f"{label} has stride {step}; on the device it must be positive")
    refuse_capture(label, "an int32 array", stream)
    device = runtime.get(view.ordinal)
    made = allocate(view.shape, compact_strides(view.shape), _INT32, stream, device)
    if view.dtype == _INT32:
        pitch = max(step, 1) * _INT32.itemsize
        device.copy_rows(
            made.address, _INT32.itemsize, view.address, pitch, _INT32.itemsize, count, stream
        )
    elif count:
        operands = {
            "from": Operand(view.address, {"index": max(step, 1)}),
            "to": Operand(made.address, {}),
        }
        launch = _narrowing(device.props, count, least, most)
        run(launch.on(device), operands, device, stream)
    made.stream = stream
    return made.view_on(stream)


@functools.lru_cache(maxsize=256)
def _narrowing(props: DeviceProps, count: int, least: int, most: int) -> PreparedLaunches:
    kernel = manifest.candidates(manifest.kernels(), NARROW, props)[0]
    kernel.check_grid(NARROW_GRID)
    args = (
        *(("from", Address("from")), ("to", Address("to")), ("step", Stride("from", "index"))),
        *(("count", count), ("least", least), ("most", most)),
    )
    grid = -(-count // kernel.workgroup[0]), 1, 1
    return PreparedLaunches((Launch(kernel, grid, args, frozenset({"to"})),))


def _listed(values: Any, label: str, nested: bool) -> NDArray[Any]:
    import numpy as np

    def read(value: Any) -> Any:
        if nested and isinstance(value, (list, tuple, range)):
            return [read(one) for one in value]
        number = scalars.integer(label, value)
        if abs(number) > INT32_MAX:
            raise ValueError(f"{label} holds {number}; it must be in 0..{INT32_MAX}")
        return number

    try:
        return np.array([read(one) for one in values], np.int32)
    except ValueError as error:
        raise ValueError(f"{label} is no array of ints: {error}") from None
