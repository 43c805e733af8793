"""hip-python, of either generation. The only module of the package that imports it.

Up to 7.x it is one package, `hip`; since 10.x `rocm.bindings`, which also answers as `hip`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amdattn.device.kernarg import LaunchTypes
from amdattn.errors import BindingError


@dataclass(frozen=True, slots=True)
class HipPython:
    """The differences between the generations of hip-python.

    `pin(path)` makes the first HIP call of the process open `path` and returns a function that
    undoes whatever can be undone after that call.
    """

    hip: Any
    launch_types: LaunchTypes
    returns_structs: bool  # out-structs are returned (10.x), not passed first (up to 7.x)
    default_library: Callable[[], str]
    pin: Callable[[str], Callable[[], None]]


def import_hip_python() -> HipPython:
    """Import whichever generation is installed; raises BindingError if none is."""
    try:
        return _import_rocm_bindings()
    except ImportError:
        pass
    try:
        return _import_hip()
    except ImportError:
        raise BindingError(
            "hip-python is not installed (neither rocm.bindings nor hip can be imported): "
            "pip install hip-python"
        ) from None


def _import_rocm_bindings() -> HipPython:
    from rocm.bindings import hip
    from rocm.bindings._hip_helpers import HipModuleLaunchKernel_extra
    from rocm.bindings.util import paths
    from rocm.bindings.util.types import ListOfPointer

    original = paths.get_library_path

    def default_library() -> str:
        try:
            return os.fsdecode(original("amdhip64"))
        except Exception:  # an incomplete rocm_sdk package raises from inside the search
            return "libamdhip64.so"

    def pin(path: str) -> Callable[[], None]:
        def pinned(shortname: str, bundled_location: Any = None) -> bytes:
            if shortname == "amdhip64":
                return os.fsencode(path)
            return bytes(original(shortname, bundled_location))

        def restore() -> None:
            paths.get_library_path = original

        paths.get_library_path = pinned
        return restore

    types = LaunchTypes(ListOfPointer, HipModuleLaunchKernel_extra)
    return HipPython(hip, types, True, default_library, pin)


def _import_hip() -> HipPython:
    from hip import chip, hip
    from hip._hip_helpers import HipModuleLaunchKernel_extra
    from hip._util.types import ListOfPointer

    def pin(path: str) -> Callable[[], None]:
        chip.DLL = os.fsencode(path)
        return lambda: None  # the C code keeps a pointer into this bytes object

    types = LaunchTypes(ListOfPointer, HipModuleLaunchKernel_extra)
    return HipPython(hip, types, False, lambda: os.fsdecode(chip.DLL), pin)
