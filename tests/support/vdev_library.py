"""The virtual device's shared library behind ctypes, as shipped: no test compiles it.

`choose_machine` says what exports such as vdev_test_run decode and run for.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from amdattn.arch.products import of_arch
from amdattn.device.virtual_library import library_path

DEFAULT_CPU = "gfx942"
CPUS = (DEFAULT_CPU, "gfx950")

Prototype = tuple[Any, list[Any]]


def open_library(path: Path | None = None, /, **prototypes: Prototype) -> ctypes.CDLL:
    """Open the library under test, or another build of it.

    Parameters
    ----------
    path : Path, optional
        A build for some x86-64 level; the library that AMDATTN_VDEV_LIBRARY names by default.
    **prototypes
        (result type, argument types) of exports. They hold for the returned object alone.
    """
    library = ctypes.CDLL(str(path or library_path()))
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def choose_machine(library: ctypes.CDLL, cpu: str) -> None:
    """From now on, tests' exports are for the first product of an architecture."""
    product = of_arch(cpu).name
    if not library.vdev_test_choose_machine(product.encode()):
        raise ValueError(f"cpu={cpu!r}: the library has no {product}")
