"""Conversion of callers' arrays (NumPy, DLPack of any library). Never imports torch or jax."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from amdattn import scalars
from amdattn.arrays import dlpack
from amdattn.arrays.allocation import Memory
from amdattn.arrays.buffers import DeviceArray, device_named, upload
from amdattn.arrays.dlpack import HostTensor
from amdattn.arrays.foreign import as_numpy, device_of, dlpack_view, foreign_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import DType, as_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def asarray(x: Any, dtype: object = None, device: object = None) -> DeviceArray:
    """Bring an array to the device.

    A DeviceArray or a DLPack array in device memory is not copied. A numpy array or a DLPack array
    in host memory is copied to a compact array.

    Parameters
    ----------
    dtype : optional
        Convert host data to this type first; device data must have it already.
    device : optional
        The device for host data, as in `empty`; device data must be there already.

    Returns
    -------
    DeviceArray
    """
    source = as_view(x, "x", 0)
    if source.on_device:
        if dtype is not None and as_dtype(dtype) != source.dtype:
            raise ValueError(f"x is in device memory as {source.dtype.name}, not {dtype}")
        if device is not None and device_named(device).ordinal != source.ordinal:
            raise ValueError(f"x is on device {source.ordinal}, not on device={device!r}")
        return x if isinstance(x, DeviceArray) else _on_view(source)
    assert source.array is not None
    target = source.dtype if dtype is None else as_dtype(dtype)
    host = source.array.astype(target.numpy(), order="C", copy=False)
    return upload(host, device_named(device))


def from_dlpack(x: Any, /, *, device: object = None, copy: bool | None = None) -> DeviceArray:
    """View a DLPack array in device memory, without a copy if possible.

    The elements are ready for use on the default stream. Read-only memory stays read-only.

    Parameters
    ----------
    x : array
        With ``__dlpack__`` and ``__dlpack_device__``.
    device : optional
        The device of the result, as in `empty`; the default is that of `x`. Arrays in host memory
        are copied there, arrays on another GPU only if their library copies them.
    copy : bool, optional
        True: always copy. False: never. None: only to another device.

    Raises
    ------
    AttributeError
        x does not have both methods.
    BufferError
        x is in host memory and no `device` is given; a copy is needed that `copy` forbids; its
        library does not export it, or exports something malformed; or it is in memory of another
        kind of device.
    ValueError
        In memory of another HIP runtime, of an unknown element type, or in need of a gradient.
    """
    if copy is not None:
        copy = scalars.boolean("copy", copy)
    _check_is_rocm(device)
    target = None if device is None else device_named(device)
    kind, ordinal = device_of(x, "x")
    if kind in dlpack.HOST_KINDS:
        if target is None:
            raise BufferError(
                "x is in host memory; amdattn.asarray(x) or from_dlpack(x, device=...) copies it"
            )
        if copy is False:
            raise BufferError(f"x is in host memory: device={device!r} takes a copy (copy=False)")
        return asarray(x, device=target.ordinal)
    if kind != dlpack.ROCM:
        raise BufferError(
            f"x is on a DLPack device of type {kind}; amdattn has memory of ROCm devices "
            f"({dlpack.ROCM}) only, and copies from the host {dlpack.HOST_KINDS}"
        )
    elsewhere = None
    if target is not None and ordinal != target.ordinal:
        if copy is False:
            raise BufferError(
                f"x is on device {(kind, ordinal)}: device={device!r} takes a copy (copy=False)"
            )
        elsewhere = dlpack.ROCM, target.ordinal
    if isinstance(x, DeviceArray) and elsewhere is None:
        return x.copy_on(x.memory.pending() or 0) if copy else _on_view(x.view_on(0))
    view, is_copied = dlpack_view(x, "x", 0, copy, elsewhere)
    if is_copied and copy is False:
        raise BufferError("x was copied by its library, which copy=False forbids")
    found = _on_view(view)
    return found.copy_on(0) if copy and not (is_copied or elsewhere) else found


def _check_is_rocm(device: object) -> None:
    """Refuse the host as the device of a DeviceArray, as the array API standard demands."""
    if isinstance(device, str) and device.partition(":")[0] == "cpu":
        raise BufferError(
            f"device={device!r}: a DeviceArray is never in host memory; "
            'numpy.from_dlpack(x, device="cpu") makes an array that is'
        )


def _on_view(source: View) -> DeviceArray:
    memory = source.owner
    if not isinstance(memory, Memory):
        memory = Memory(runtime.get(source.ordinal), source.owner, source.read_only)
        memory.stream = 0  # its producer made it ready only on the default stream
    return DeviceArray(source.address, source.shape, source.strides, source.dtype, memory)


class Part(NamedTuple):
    """A part of a caller's array: `as_view` views it, and `like` returns the kind of the whole."""

    view: View
    whole: Any


def as_view(x: Any, name: str, stream: int, is_output: bool = False) -> View:
    """View the memory of a caller's array, ready for use on `stream`.

    Parameters
    ----------
    x : DeviceArray, numpy.ndarray, or an array of another library
        With ``__dlpack__``, ``__cuda_array_interface__`` or ``__array__``. DLPack arrays must be on
        the CPU or on a device of the bound HIP runtime. A View is returned as it is.
    name : str
        The name that errors use.
    is_output : bool
        Whether it is written: only memory of the array itself is then accepted.

    Raises
    ------
    TypeError
        x is not an array, or is in memory of another kind of device.
    ValueError
        In memory of another HIP runtime, of an unknown element type, or in need of a gradient.
    BufferError
        Its library does not export it, or exports something malformed.
    """
    if isinstance(x, DeviceArray):
        return x.view_on(stream)
    if type(x) is View:
        return x
    if type(x) is Part:
        return x.view
    np = sys.modules.get("numpy")
    if np is not None and isinstance(x, np.ndarray):
        return _numpy_view(x, name, is_output)
    view = foreign_view(x, name, stream, is_output)
    if view is not None:
        return view
    array = None if is_output else as_numpy(x, name)
    if array is not None:
        return _numpy_view(array, name, False)
    protocols = "" if is_output else " or __array__"
    raise TypeError(
        f"{name} must be a numpy.ndarray, an amdattn.DeviceArray or an array with __dlpack__, "
        f"__cuda_array_interface__{protocols}, not {type(x).__module__}.{type(x).__qualname__}"
    )


def _numpy_view(x: NDArray[Any], name: str, is_output: bool) -> View:
    if type(x).__module__ != "numpy" and hasattr(x, "mask"):
        raise TypeError(f"{name} is a masked array, whose mask would be lost; pass {name}.filled()")
    dtype = _element_types.get(x.dtype) or _element_type(x.dtype, name)
    itemsize = dtype.itemsize
    if any([step % itemsize for step in x.strides]):
        if is_output:
            raise ValueError(
                f"{name} has byte strides {x.strides}, not multiples of its element size"
            )
        x = x.copy(order="C")
    strides = tuple([step // itemsize for step in x.strides])
    return View(x.ctypes.data, x.shape, strides, dtype, not x.flags.writeable, x, x)


_element_types: dict[np.dtype[Any], DType] = {}  # asking a numpy dtype for its name is slow


def _element_type(dtype: np.dtype[Any], name: str) -> DType:
    if dtype.kind == "V" and dtype.name == "void16":
        raise TypeError(
            f"{name} has dtype {dtype}, which says nothing about the numbers; if they are "
            f"bfloat16, pass {name}.view(ml_dtypes.bfloat16)"
        )
    if not dtype.isnative:
        raise TypeError(f"{name} has dtype {dtype.str}, which is not in native byte order")
    return _element_types.setdefault(dtype, as_dtype(dtype, f"{name}.dtype"))


def to_library_of(x: Any, result: NDArray[Any] | DeviceArray) -> Any:
    """Return `result` as the kind of array that `x` is, on the device of `x`.

    numpy arrays and DeviceArrays are returned as they are. For other arrays, the library of `x`
    imports the result through DLPack; if it has no importer, the DeviceArray or numpy array is
    returned.
    """
    np = sys.modules.get("numpy")
    if isinstance(x, DeviceArray) or (np is not None and isinstance(x, np.ndarray)):
        return result
    if type(x) is Part:
        return to_library_of(x.whole, result)
    namespace = getattr(x, "__array_namespace__", None)
    home = namespace() if namespace else sys.modules.get(type(x).__module__.partition(".")[0])
    # JAX may move arrays that are not committed to a device, and commits what it imports.
    if not isinstance(result, DeviceArray) and getattr(x, "committed", None) is False:
        taken = getattr(home, "asarray", None)
        return taken(result) if taken else result
    importer = getattr(home, "from_dlpack", None)
    if importer is None:
        return result
    made = importer(result if isinstance(result, DeviceArray) else HostTensor(result))
    # JAX may treat the CPU as several devices.
    if hasattr(made, "to_device") and (where := getattr(x, "device", None)) != made.device:
        made = made.to_device(where)
    return made
