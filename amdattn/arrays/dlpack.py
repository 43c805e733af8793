"""The DLPack protocol (legacy and versioned capsules), through ctypes. Knows no array library.

https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from amdattn.dtypes import DType, as_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPU = 1
ROCM = 10

VERSION = (1, 0)
FLAG_READ_ONLY = 1
_FLAG_IS_COPIED = 2

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


# -- producer --------------------------------------------------------------------------------------


class RawMemory:
    """Any memory, of the host or of a device, in the form that numpy.asarray takes.

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

    numpy makes the capsule, and the element type and device are then corrected in it. Consumers run
    its destructor and deleter while exceptions are in flight and without holding the GIL; numpy's
    are C code that is ready for both, ctypes callbacks could not be. numpy only passes the address
    on and never touches device memory.
    """
    import numpy as np

    capsule = np.asarray(memory).__dlpack__(max_version=max_version)
    handle = id(capsule)
    if is_capsule(handle, VERSIONED):
        versioned = _ManagedVersioned.from_address(capsule_pointer(handle, VERSIONED))
        versioned.flags |= _FLAG_IS_COPIED if copied else 0
        tensor = versioned.tensor
    else:
        tensor = _Managed.from_address(capsule_pointer(handle, LEGACY)).tensor
    tensor.code, tensor.bits = dtype.dlpack
    tensor.device_type, tensor.device_id = device
    return capsule


class HostTensor:
    """A DLPack producer for a numpy array of any element type, bfloat16 included."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
        copied: bool = False,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != (CPU, 0):
            raise BufferError(f"dl_device={dl_device} is not the CPU")
        array = self._array.copy() if copy else self._array
        dtype = as_dtype(array.dtype)
        strides = tuple(step // dtype.itemsize for step in array.strides)
        read_only = not array.flags.writeable
        memory = RawMemory(array.ctypes.data, array.shape, strides, dtype, array, read_only)
        return export_tensor(memory, dtype, (CPU, 0), max_version, copied or bool(copy))
