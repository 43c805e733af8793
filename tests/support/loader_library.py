"""The loader and device memory of the virtual device behind ctypes."""

from __future__ import annotations

import ctypes
import json
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any

from tests.support.vdev_library import Prototype, open_library


class Allocation(ctypes.Structure):
    _fields_ = [
        ("base", c_uint64),
        ("size", c_uint64),
        ("bias", ctypes.c_int64),
        ("kind", c_uint32),
        ("flags", c_uint32),
        ("id", c_uint64),
    ]

    @property
    def end(self) -> int:
        return int(self.base + self.size)

    def host(self, offset: int = 0) -> int:
        return int(self.base + self.bias + offset)


PROTOTYPES: dict[str, Prototype] = {
    "code_load": (c_void_p, [c_char_p, c_uint64, c_char_p]),
    "code_json": (c_char_p, [c_void_p]),
    "code_describe": (c_char_p, [c_void_p, c_uint64]),
    "code_read": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "code_release": (c_uint64, [c_void_p]),
    "image_bytes": (c_uint64, [c_void_p]),
    "memory_new": (c_void_p, [c_uint64, c_uint64]),
    "memory_delete": (None, [c_void_p]),
    "memory_allocate": (
        c_int,
        [c_void_p, c_uint64, c_uint32, c_uint32, c_int, POINTER(Allocation)],
    ),
    "memory_free": (c_int, [c_void_p, c_uint64]),
    "memory_register": (c_int, [c_void_p, c_uint64, c_uint64, c_uint32]),
    "memory_unregister": (c_int, [c_void_p, c_uint64]),
    "memory_borrow": (c_int, [c_void_p, c_uint64, c_uint64]),
    "memory_give_back": (c_int, [c_void_p, c_uint64, c_uint64]),
    "memory_find": (c_int, [c_void_p, c_uint64, POINTER(Allocation)]),
    "memory_nearest": (c_int, [c_void_p, c_uint64, POINTER(Allocation)]),
    "memory_was_freed": (c_int, [c_void_p, c_uint64]),
    "memory_capacity": (c_uint64, [c_void_p]),
    "memory_used": (c_uint64, [c_void_p]),
    "memory_epoch": (c_uint64, [c_void_p]),
}


LIBRARY = open_library(**{f"vdev_test_{name}": types for name, types in PROTOTYPES.items()})


class Loaded:
    """A code object in device memory, or the error that loading it gave."""

    def __init__(self, image: bytes, arch: str = "gfx942") -> None:
        self._handle = LIBRARY.vdev_test_code_load(image, len(image), arch.encode())
        text = LIBRARY.vdev_test_code_json(self._handle)
        self.info: dict[str, Any] = json.loads(text)

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        assert LIBRARY.vdev_test_code_release(self._handle) == 0, "device memory leaked"

    @property
    def error(self) -> str | None:
        return self.info.get("error")

    @property
    def base(self) -> int:
        return int(self.info["segments_address"])

    def kernel(self, name: str) -> dict[str, Any]:
        return next(k for k in self.info["kernels"] if k["name"] == name)

    def read(self, address: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        assert LIBRARY.vdev_test_code_read(self._handle, address, buffer, size)
        return buffer.raw

    def describe(self, address: int) -> str:
        return str(LIBRARY.vdev_test_code_describe(self._handle, address).decode())
