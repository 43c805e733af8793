"""The loader and device memory of the virtual device behind ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import subprocess
import tempfile
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

SOURCES = (
    "memory",
    "msgpack",
    "elf",
    "offload_bundle",
    "code_object_metadata",
    "code_object",
    "loader_test_api",
)
SOURCE_DIR = Path(__file__).resolve().parents[2] / "virtual_device"


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


PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "code_load": (c_void_p, [c_char_p, c_uint64, c_char_p]),
    "code_json": (c_char_p, [c_void_p]),
    "code_describe": (c_char_p, [c_void_p, c_uint64]),
    "code_read": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "code_release": (c_uint64, [c_void_p]),
    "image_bytes": (c_uint64, [c_char_p]),
    "memory_new": (c_void_p, [c_uint64, c_uint64]),
    "memory_delete": (None, [c_void_p]),
    "memory_allocate": (
        c_int,
        [c_void_p, c_uint64, c_uint32, c_uint32, c_int, POINTER(Allocation)],
    ),
    "memory_free": (c_int, [c_void_p, c_uint64]),
    "memory_register": (c_int, [c_void_p, c_uint64, c_uint64, c_uint32]),
    "memory_unregister": (c_int, [c_void_p, c_uint64]),
    "memory_find": (c_int, [c_void_p, c_uint64, POINTER(Allocation)]),
    "memory_nearest": (c_int, [c_void_p, c_uint64, POINTER(Allocation)]),
    "memory_was_freed": (c_int, [c_void_p, c_uint64]),
    "memory_capacity": (c_uint64, [c_void_p]),
    "memory_used": (c_uint64, [c_void_p]),
    "memory_epoch": (c_uint64, [c_void_p]),
}


def build() -> Path:
    """Compile the sources of the loader alone, once per content."""
    files = [SOURCE_DIR / "core" / f"{name}.cc" for name in SOURCES]
    digest = hashlib.sha256()
    for path in sorted((SOURCE_DIR / "core").glob("*.h")) + files:
        digest.update(path.read_bytes())
    library = Path(tempfile.gettempdir()) / f"amdattn_loader_{digest.hexdigest()[:16]}.so"
    if not library.exists():
        temporary = library.with_suffix(f".{os.getpid()}")
        options = os.environ.get("AMDATTN_TEST_CXXFLAGS", "-O1").split()
        subprocess.run(
            [os.environ.get("CXX", "g++"), "-std=c++20", *options, "-fPIC", "-shared", "-pthread"]
            + [f"-I{SOURCE_DIR}", *map(str, files), "-o", str(temporary)],
            check=True,
        )
        temporary.rename(library)
    return library


@functools.cache
def open_library() -> ctypes.CDLL:
    """Return the library named by AMDATTN_VDEV_LIBRARY, else one built from the sources."""
    library = ctypes.CDLL(os.environ.get("AMDATTN_VDEV_LIBRARY") or str(build()))
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, f"vdev_test_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Loaded:
    """A code object in device memory, or the error that loading it gave."""

    def __init__(self, image: bytes, arch: str = "gfx942") -> None:
        self._library = open_library()
        self._handle = self._library.vdev_test_code_load(image, len(image), arch.encode())
        text = self._library.vdev_test_code_json(self._handle)
        self.info: dict[str, Any] = json.loads(text)

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._library.vdev_test_code_release(self._handle) == 0, "device memory leaked"

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
        assert self._library.vdev_test_code_read(self._handle, address, buffer, size)
        return buffer.raw

    def describe(self, address: int) -> str:
        return str(self._library.vdev_test_code_describe(self._handle, address).decode())
