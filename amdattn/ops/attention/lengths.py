"""Sums of sequence lengths, in the forms that callers have them in; kernels read int32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arrays.buffers import View, allocate, upload
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.beside import refuse_capture
from amdattn.scalars import INT32_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_INT32 = as_dtype("int32")


def lengths_view(
    sums: Any, name: str, total: int, longest: int, ordinal: int | None, stream: int
) -> View:
    """See ``cu_seqlens`` as int32 without gaps, on the device of q, if it is on one.

    Parameters
    ----------
    sums : list or tuple of int, or array of int32 or int64; on the host of any integers
        Those on the host are checked, and copied to the device if need be.
    total, longest : int
        Rows that there are, and the greatest length that the caller promises.
    """
    if isinstance(sums, (list, tuple, range)):
        import numpy as np

        numbers = [scalars.integer(name, value) for value in sums]
        if any(abs(value) > INT32_MAX for value in numbers):
            raise ValueError(f"{name}={numbers} must be in 0..{INT32_MAX}")
        view = as_view(np.array(numbers, np.int32), name, stream)
    else:
        view = as_view(sums, name, stream)
    is_integer = view.dtype.name.startswith(("int", "uint"))
    if len(view.shape) != 1 or view.shape[0] < 1 or not is_integer:
        raise ValueError(
            f"{name} has shape {view.shape} and dtype {view.dtype.name}; it must be int32 or int64 "
            "of shape (num_sequences + 1,)"
        )
    if view.array is None:
        return _compact(view, name, stream)
    check_sums(view.array, name, total, longest)
    host = view.array.astype("int32", order="C", copy=False)
    if ordinal is not None:
        refuse_capture(name, "an int32 array without gaps", stream)
        return upload(host, runtime.get(ordinal)).view_on(stream)
    return as_view(host, name, stream)


def check_sums(sums: NDArray[Any], name: str, total: int, longest: int) -> None:
    """From 0, rising, within the rows that there are, no length above the promised one."""
    wide: NDArray[np.object_] = sums.astype(object)  # also sums of uint64 and of huge int64 differ
    lengths = wide[1:] - wide[:-1]
    if wide[0] != 0 or (lengths < 0).any() or wide[-1] > total:
        raise ValueError(
            f"{name}={sums.tolist()} must begin with 0, never fall and end with at most {total}, "
            "the rows there are"
        )
    if lengths.max(initial=0) > longest:
        raise ValueError(
            f"{name} has a sequence of {lengths.max()} rows; the greatest length was given as "
            f"{longest}"
        )


def _compact(view: View, name: str, stream: int) -> View:
    """Of device memory; of int64, in which a sum is its lower half, too."""
    if view.dtype.name not in ("int32", "int64"):
        raise ValueError(f"{name} has dtype {view.dtype.name}; on the device int32 or int64")
    (count,), (step,) = view.shape, view.strides
    if view.dtype == _INT32 and (step == 1 or count == 1):
        return view
    if step <= 0 and count > 1:
        raise ValueError(f"{name} has stride {step}; on the device it must be positive")
    refuse_capture(name, "an int32 array without gaps", stream)
    device = runtime.get(view.ordinal)
    made = allocate((count,), (1,), _INT32, stream, device)
    device.copy_rows(
        *(made.address, _INT32.itemsize, view.address, max(step, 1) * view.dtype.itemsize),
        *(_INT32.itemsize, count, stream),
    )
    made.stream = stream
    return made.view_on(stream)
