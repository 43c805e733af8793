"""The DLPack protocol (legacy and versioned capsules), through ctypes, for any array library.

https://dmlc.github.io/dlpack/latest/python_spec.html

The C exchange API that types may also have (`__dlpack_c_exchange_api__`, DLPack 1.3) is for C
extensions that cannot afford a Python call. This package has no native code to implement it, and
consumers that look for it fall back to `__dlpack__`.
"""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any

from amdattn.dtypes import DType, as_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPU = 1
ROCM = 10
# Memory that the host reads: plain, and pinned, which torch calls CUDA's on any GPU.
HOST_KINDS = (CPU, 3, 11)

VERSION = (1, 3)
FLAG_READ_ONLY = 1
FLAG_IS_COPIED = 2

LEGACY, USED_LEGACY = b"dltensor", b"used_dltensor"
VERSIONED, USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
rename_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def device_pair(name: str, value: Any) -> tuple[int, int]:
    """The (type, number) of a device that an argument names; the type may be an Enum member.

    Raises
    ------
    ValueError
        It is not such a pair.
    """
    try:
        kind, ordinal = value
        return operator.index(getattr(kind, "value", kind)), operator.index(ordinal)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r} must be a pair (type, number) of ints") from None


# -- producer --------------------------------------------------------------------------------------


class RawMemory:
    """Memory of the host or of a device, in the form that numpy.asarray takes.

    numpy sees unsigned integers of the element's size: it has no name for bfloat16.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: DType,
        owner: object,
        read_only: bool = False,
    ) -> None:
        self._owner = owner
        self.is_empty = 0 in shape
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": tuple(step * dtype.itemsize for step in strides),
            "typestr": f"<u{dtype.itemsize}",
            "data": (address, read_only),
        }


def export_tensor(
    memory: RawMemory,
    dtype: DType,
    device: tuple[int, int],
    max_version: tuple[int, int] | None,
    copied: bool = False,
) -> Any:
    """Make a capsule: versioned if the consumer takes version 1 or later, else legacy.

    numpy makes the capsule, in which the fields that numpy cannot express are then corrected:
    element type, device, version and flags. Consumers run its destructor and deleter while
    exceptions are in flight and without holding the GIL. numpy's are C code that can handle both;
    ctypes callbacks could not. numpy only passes the address on and never touches device memory.

    Raises
    ------
    BufferError
        The memory is read-only, which a legacy capsule cannot express.
    """
    import numpy as np

    version = _version(max_version)
    capsule = np.asarray(memory).__dlpack__(max_version=version)
    handle = id(capsule)
    if version is None:
        tensor = _Managed.from_address(capsule_pointer(handle, LEGACY)).tensor
    else:
        versioned = _ManagedVersioned.from_address(capsule_pointer(handle, VERSIONED))
        versioned.major, versioned.minor = version
        versioned.flags |= FLAG_IS_COPIED if copied else 0
        tensor = versioned.tensor
    tensor.code, tensor.bits = dtype.dlpack
    tensor.device_type, tensor.device_id = device
    if memory.is_empty:
        tensor.data = None
    return capsule


def _version(max_version: Any) -> tuple[int, int] | None:
    """The version for a consumer that takes `max_version`; None: a legacy capsule, before 1.0."""
    if max_version is None:
        return None
    try:
        major, minor = map(operator.index, max_version)
    except (TypeError, ValueError):
        raise ValueError(
            f"max_version={max_version!r} must be None or a pair (major, minor) of ints"
        ) from None
    return min(VERSION, (major, minor)) if major >= VERSION[0] else None


def check_copy(copy: object) -> None:
    """Refuse a `copy` that is neither None nor a bool.

    It raises a ValueError, as for every wrong value of a keyword of `__dlpack__`: consumers take a
    TypeError to mean that the producer does not know the keyword, and ask again without it.
    """
    if copy is not None and not isinstance(copy, bool):
        raise ValueError(f"copy={copy!r} must be None, True or False")


class HostTensor:
    """A DLPack producer for a numpy array of any element type, bfloat16 included.

    `copied` says that the array is a copy that nothing else uses.
    """

    def __init__(self, array: NDArray[Any], copied: bool = False) -> None:
        self._array = array
        self._copied = copied

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the array; the parameters are those of the DLPack specification."""
        check_copy(copy)
        if stream is not None:
            raise ValueError(f"stream={stream!r} must be None: host memory has no streams")
        if dl_device is not None and device_pair("dl_device", dl_device) != (CPU, 0):
            raise BufferError(f"dl_device={dl_device} is not the CPU, (1, 0)")
        array = self._array.copy() if copy else self._array
        dtype = as_dtype(array.dtype)
        if any(step % dtype.itemsize for step in array.strides):
            raise BufferError(
                f"byte strides {array.strides} are no multiples of {dtype.itemsize} bytes"
            )
        strides = tuple(step // dtype.itemsize for step in array.strides)
        read_only = not array.flags.writeable
        memory = RawMemory(array.ctypes.data, array.shape, strides, dtype, array, read_only)
        return export_tensor(memory, dtype, (CPU, 0), max_version, self._copied or bool(copy))
