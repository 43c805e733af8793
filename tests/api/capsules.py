"""DLPack capsules made by hand, from the structures of dlpack.h: what numpy never exports."""

from __future__ import annotations

import ctypes

_NEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
READ_ONLY = 1
BFLOAT16, FLOAT = 4, 2  # DLDataTypeCode


class DLTensor(ctypes.Structure):
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


class DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class HandMade:
    """A producer of tensors whose every field is given.

    Parameters
    ----------
    flags : int, optional
        Of a versioned capsule; without them it is a legacy one.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        device: tuple[int, int],
        *,
        strides: tuple[int, ...] | None = None,
        code: int = BFLOAT16,
        bits: int = 16,
        byte_offset: int = 0,
        flags: int | None = None,
    ) -> None:
        self._device = device
        self._axes = [(ctypes.c_int64 * len(x))(*x) for x in (shape, strides) if x is not None]
        tensor = DLTensor(address, *device, len(shape), code, bits, 1)
        tensor.shape = ctypes.cast(self._axes[0], type(tensor.shape))
        if strides is not None:
            tensor.strides = ctypes.cast(self._axes[1], type(tensor.strides))
        tensor.byte_offset = byte_offset
        self._managed: ctypes.Structure
        if flags is None:
            self._name, self._managed = b"dltensor", DLManagedTensor(tensor)
        else:
            self._name = b"dltensor_versioned"
            self._managed = DLManagedTensorVersioned(1, 0, None, None, flags, tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: int | None = None, max_version: object = None) -> object:
        return _NEW(ctypes.addressof(self._managed), self._name, None)
