"""The virtual device's library: which file it is, and what it exports besides the HIP ABI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from amdattn import paths
from amdattn.errors import BindingError

ARCHS = ("gfx942",)
MARKER = "amdattn_vdev_abi"  # exported by the virtual device's library and by no other
ABI = 1
OPTIONS = ("threads", "quantum", "seed", "max_instructions")

_LEVEL_3_FLAGS = {"avx2", "fma", "bmi2", "f16c"}
_CDEF = """
uint32_t amdattn_vdev_abi(void);
const char* amdattn_vdev_last_report(void);
int amdattn_vdev_set_option(const char* key, const char* value);
uint64_t amdattn_vdev_counter(const char* name);
"""


def library_path() -> Path:
    """The library for this CPU; AMDATTN_VDEV_LIBRARY names another.

    Raises
    ------
    BindingError
        The file does not exist.
    """
    override = os.environ.get("AMDATTN_VDEV_LIBRARY")
    path = Path(override) if override else shipped_library(cpu_level())
    if not path.is_file():
        raise BindingError(
            f"the virtual device's library {path} does not exist; reinstall amdattn, or name the "
            "file in AMDATTN_VDEV_LIBRARY"
        )
    return path.resolve()


def shipped_library(level: str) -> Path:
    """File that the package ships for an x86-64 level, "v2" or "v3"."""
    return paths.virtual_library_dir() / f"libamdattn_vdev_x86_64_{level}.so"


def cpu_level() -> str:
    """The newest x86-64 level, "v2" or "v3", whose library this CPU can run."""
    return "v3" if _cpu_flags() >= _LEVEL_3_FLAGS else "v2"


def _cpu_flags() -> set[str]:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()


def _decode(text: Any) -> str:
    return bytes(text).decode("utf-8", "replace")


class Exports:
    """The exports of one loaded virtual device library."""

    def __init__(self, path: str) -> None:
        import cffi

        self._ffi = cffi.FFI()
        self._ffi.cdef(_CDEF)
        # The file is already mapped by hip-python; dlopen of the same file gives the same copy.
        self._lib = cast(Any, self._ffi.dlopen(path))
        abi = self._lib.amdattn_vdev_abi()
        if abi != ABI:
            raise BindingError(f"{path} has virtual device ABI {abi}; this amdattn needs {ABI}")

    def last_report(self) -> str:
        """Text of the last fault, or ""."""
        text = self._lib.amdattn_vdev_last_report()
        return "" if text == self._ffi.NULL else _decode(self._ffi.string(text))

    def set_option(self, key: str, value: object) -> None:
        """Set an option; raises ValueError for an unknown key or a refused value."""
        if key not in OPTIONS:
            raise ValueError(f"option {key!r} must be one of {OPTIONS}")
        if self._lib.amdattn_vdev_set_option(key.encode(), str(value).encode()) != 1:
            raise ValueError(f"the virtual device refused option {key}={value!r}")

    def counter(self, name: str) -> int:
        """A counter since the process began, e.g. "instructions" or "launches"."""
        return int(self._lib.amdattn_vdev_counter(name.encode()))
