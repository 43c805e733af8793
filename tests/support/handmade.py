"""DLPack capsules made by hand, with any value in any field."""

import ctypes
import struct

import numpy as np

from amdattn.arrays import dlpack

READ_ONLY = 1  # of a versioned capsule's flags
BFLOAT16 = 4  # DLDataTypeCode

_FREED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
TENSOR = struct.Struct("<QiiiBBHQQQ")
FIELDS = ("data", "kind", "ordinal", "ndim", "code", "bits", "lanes", "shape", "strides")
FIELDS += ("byte_offset",)
HEAD = struct.Struct("<IIQQQ")
HEAD_FIELDS = ("major", "minor", "context", "deleter", "flags")


class Handmade:
    """A producer of one capsule of a host array; `changes` replace fields of it.

    `shape` and `strides` are sequences, or an address; `freed` counts calls of the deleter.
    """

    def __init__(self, array, said=(dlpack.CPU, 0), versioned=True, name=None, **changes):
        self.freed = 0
        self._deleter = _FREED(self._free)
        self._array = array
        self._said = said
        self._versioned = versioned
        self._name = name or (dlpack.VERSIONED if versioned else dlpack.LEGACY)
        steps = [step // array.itemsize for step in array.strides]
        fields = {"data": array.ctypes.data, "kind": dlpack.CPU, "ordinal": 0, "code": 2}
        fields |= {"bits": 8 * array.itemsize, "lanes": 1, "ndim": array.ndim, "byte_offset": 0}
        fields |= {"shape": array.shape, "strides": steps, "major": 1, "minor": 0, "context": 0}
        fields |= {"deleter": ctypes.cast(self._deleter, ctypes.c_void_p).value, "flags": 0}
        fields |= changes
        self._kept = []
        for of in ("shape", "strides"):
            if not isinstance(fields[of], int):
                block = (ctypes.c_int64 * max(1, len(fields[of])))(*fields[of])
                self._kept.append(block)
                fields[of] = ctypes.addressof(block)
        tensor = TENSOR.pack(*(fields[name] for name in FIELDS))
        if versioned:
            packed = HEAD.pack(*(fields[name] for name in HEAD_FIELDS)) + tensor
        else:
            packed = tensor + struct.pack("<QQ", fields["context"], fields["deleter"])
        self._block = ctypes.create_string_buffer(packed, len(packed))

    def _free(self, _):
        self.freed += 1

    def __dlpack_device__(self):
        return self._said

    def __dlpack__(self, *, stream=None, max_version=None):
        return _new(ctypes.addressof(self._block), self._name, None)


def tensor_at(
    address, shape, device, *, strides=None, code=BFLOAT16, bits=16, byte_offset=0, flags=None
):
    """A producer of memory that is somebody's; without `flags` its capsule is a legacy one."""
    fields = {"data": address, "kind": device[0], "ordinal": device[1], "ndim": len(shape)}
    fields |= {"shape": shape, "strides": 0 if strides is None else strides}
    fields |= {"code": code, "bits": bits, "byte_offset": byte_offset}
    return Handmade(np.empty(1), device, flags is not None, deleter=0, flags=flags or 0, **fields)
