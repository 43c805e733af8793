"""The virtual device's library: its file, and its exports besides the HIP ABI."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from amdattn import native_libraries, paths
from amdattn.arch import readings
from amdattn.device import x86_level
from amdattn.errors import BindingError

VARIABLE = "AMDATTN_VDEV_LIBRARY"
MARKER = "amdattn_vdev_abi"  # only the virtual device's library exports it
ABI = 3
# Options with their initial values.
OPTIONS = {
    "threads": 0,
    "quantum": 8,
    "seed": 0,
    "max_instructions": 2**30,
    "max_total_instructions": 0,
    "resident_workgroups": 0,
    "null": 0,
    "check": 0,
    "max_errors": 0,
    "late_loads": 1,
    "late_stores": 1,
    "timing": 0,
    "clock_mhz": 0,
    "simulated_workgroups": 0,
    "simulated_xcd": 0,
    "trace_events": 0,
    "warm_code": 1,
    "complete": 0,
    **readings.NEUTRAL,
}

_CDEF = """
uint32_t amdattn_vdev_abi(void);
int amdattn_vdev_play(const char* name);
const char* amdattn_vdev_last_report(void);
int amdattn_vdev_set_option(const char* key, const char* value);
uint64_t amdattn_vdev_counter(const char* name);
int amdattn_vdev_declare(const char* kind, uint64_t address, uint64_t bytes, const char* name);
const char* amdattn_vdev_take_findings(void);
const uint8_t* amdattn_vdev_code_object(uint64_t id, uint64_t* bytes);
const char* amdattn_vdev_listing(uint64_t id, const char* kernel);
const char* amdattn_vdev_take_profiles(void);
"""


def library_path() -> Path:
    """The newest library of this install that this CPU runs; AMDATTN_VDEV_LIBRARY names another.

    Raises
    ------
    BindingError
        The named file does not exist, or no library of this install fits this CPU.
    """
    override = os.environ.get(VARIABLE)
    if not override:
        return _fitting_library().resolve()
    if not os.path.isfile(override):
        raise BindingError(f"no library to load: {VARIABLE}={override} does not exist")
    return Path(override).resolve()


def play(library: str, device: str) -> bool:
    """Choose the process's device before its first HIP call: "MI308X", "MI300X:CPX".

    Returns False if it was chosen already, or the library has no such device.
    """
    try:
        played = ctypes.CDLL(library).amdattn_vdev_play
    except (OSError, AttributeError) as error:
        raise BindingError(f"{library} cannot play {device}: {error}") from None
    return bool(played(device.encode()))


def load_hsa(library: str) -> None:
    """Make a library of the virtual device the HSA runtime for libraries loaded from now on.

    AMD's HIP runtime asks the dynamic linker for libhsa-runtime64.so.1, and the linker first looks
    for that name among loaded libraries.
    """
    stub = Path(library).parent / native_libraries.HSA_NAME
    try:
        ctypes.CDLL(library)
        ctypes.CDLL(str(stub))
    except OSError as error:
        raise BindingError(f"{stub} cannot be the HSA runtime: {error}") from None
    other = _other_hsa(stub)
    if other:
        raise BindingError(
            f"this process has loaded another {native_libraries.HSA_NAME} before ({other}), which "
            "AMD's HIP runtime would be given instead of the virtual device's: bind amdattn first"
        )


def _other_hsa(stub: Path) -> str:
    """The file of another HSA runtime that has taken the name already."""
    found = ctypes.CDLL(native_libraries.HSA_NAME, os.RTLD_NOLOAD | os.RTLD_NOW)
    if hasattr(found, MARKER):
        return ""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        paths = [line.split(maxsplit=5)[-1].rstrip() for line in file]
    files = [path for path in paths if os.path.basename(path).startswith("libhsa-runtime64")]
    others = [path for path in files if os.path.realpath(path) != os.path.realpath(stub)]
    return others[0] if others else "from a file of another name"


def shipped_library(level: str) -> Path:
    """The place of the library for an x86-64 level; it may not have been built."""
    return paths.native_library_dir() / x86_level.library_name(level)


def note() -> str:
    """Why the library is not one of this package's folder; "" if it is."""
    if os.environ.get(VARIABLE):
        return ""
    found = native_libraries.find()
    return found.note if found.is_installed else ""


def _fitting_library() -> Path:
    try:
        runnable = x86_level.runnable_levels()
    except OSError as error:
        raise BindingError(f"which x86-64 levels this CPU runs is unknown: {error}") from None
    folder = paths.native_library_dir()
    libraries = {level: folder / x86_level.library_name(level) for level in x86_level.LEVELS}
    built = [level for level, library in libraries.items() if library.is_file()]
    for level in reversed(runnable):
        if level in built:
            return libraries[level]
    found = native_libraries.find()
    if found.note and not built:
        raise BindingError(
            f"{found.note}. {native_libraries.remedy(found)}, or name a library in {VARIABLE}"
        )
    raise BindingError(
        f"no library of the virtual device fits this CPU: it runs x86-64 levels "
        f"{_listed(runnable)}, and {folder} has {_listed(built)}. An install "
        "from source builds the one of the CPU that it is made on: install again on this machine "
        "with `pip install --force-reinstall --no-cache-dir`, set AMDATTN_LEVELS=all where the "
        f"wheel is built, or name a library in {VARIABLE}"
    )


def _listed(levels: Sequence[str]) -> str:
    return ", ".join(levels) or "none"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A line of a kernel's listing: ELF virtual address, dwords in hexadecimal, assembly text."""

    pc: int
    encoding: str
    text: str


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
        self._options: dict[str, object] = dict(OPTIONS)
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
            raise ValueError(f"option {key!r} must be one of {tuple(OPTIONS)}")
        if self._lib.amdattn_vdev_set_option(key.encode(), str(value).encode()) != 1:
            raise ValueError(f"the virtual device refused option {key}={value!r}")
        self._options[key] = value

    def set_options(self, **values: object) -> dict[str, object]:
        """Set several options in order; returns their former values in reverse order."""
        before: dict[str, object] = {}
        try:
            for key, value in values.items():
                before = {key: self._options.get(key), **before}
                self.set_option(key, value)
        except ValueError:
            for key in list(before)[1:]:
                self.set_option(key, before[key])
            raise
        return before

    def counter(self, name: str) -> int:
        """A counter since the process began, e.g. "instructions" or "launches"."""
        return int(self._lib.amdattn_vdev_counter(name.encode()))

    # -- checked mode ----------------------------------------------------------------------------

    def declare(self, kind: str, address: int, nbytes: int, name: str) -> None:
        """Declare device memory "read_only" or "zero_at_end" for the rest of a check."""
        if self._lib.amdattn_vdev_declare(kind.encode(), address, nbytes, name.encode()) != 1:
            raise ValueError(f"{name} cannot be declared {kind}: no check is running")

    def take_findings(self) -> Any:
        """The findings since the last call, as JSON (docs/checked-mode.md)."""
        return json.loads(_decode(self._ffi.string(self._lib.amdattn_vdev_take_findings())))

    def take_profiles(self) -> Any:
        """The performance model's figures of every launch since the last call, as JSON."""
        return json.loads(_decode(self._ffi.string(self._lib.amdattn_vdev_take_profiles())))

    def code_object(self, number: int) -> bytes:
        """The ELF image of a code object, by its number in the findings of this check."""
        size = self._ffi.new("uint64_t*")
        image = self._lib.amdattn_vdev_code_object(number, size)
        if image == self._ffi.NULL:
            raise ValueError(f"code object {number} is not of a launch of this check")
        return bytes(self._ffi.buffer(image, size[0]))

    def listing(self, number: int, kernel: str) -> list[Instruction]:
        """The instructions of a kernel of such a code object, in order."""
        text = self._lib.amdattn_vdev_listing(number, kernel.encode())
        if text == self._ffi.NULL:
            raise ValueError(f"code object {number} of this check has no kernel {kernel!r}")
        lines = _decode(self._ffi.string(text)).splitlines()
        fields = (line.split("\t") for line in lines)
        return [Instruction(int(pc), dwords, shown) for pc, dwords, shown in fields]
