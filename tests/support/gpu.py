"""Compiles the kernels of tests/tile and launches them through hip-python."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.paths import TESTS
from tests.support.vdev_library import open_library


@functools.cache
def compiled(name: str, *defines: str) -> bytes:
    """Code object of tests/tile/<name>.hip."""
    return compile_hip(TESTS / "tile" / f"{name}.hip", LLVM22, defines=defines).code_object


class Gpu:
    """The virtual device as a script would drive it: arrays in, launch, arrays out."""

    def __init__(self) -> None:
        import importlib

        bind = importlib.import_module("amdattn.device.runtime").get
        self.runtime = bind()
        from amdattn.device.runtime.hip_python import import_hip_python

        self.hip: Any = import_hip_python().hip
        self.lib = open_library(amdattn_vdev_last_report=(ctypes.c_char_p, []))
        self.modules: list[Any] = []

    def call(self, name: str, *args: Any) -> Any:
        error, *results = getattr(self.hip, name)(*args)
        assert int(error) == 0, f"{name}: {error!r} {self.report}"
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def report(self) -> str:
        """Text of the last fault."""
        return str(self.lib.amdattn_vdev_last_report().decode())

    def option(self, key: str, value: object) -> None:
        assert self.lib.amdattn_vdev_set_option(key.encode(), str(value).encode()) == 1

    def upload(self, array: npt.NDArray[Any]) -> int:
        """Device address of a copy."""
        array = np.ascontiguousarray(array)
        address = int(self.call("hipMalloc", array.nbytes))
        self.call("hipMemcpy", address, array.ctypes.data, array.nbytes, self.hip.hipMemcpyKind(1))
        return address

    def download(self, address: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.empty_like(like)
        self.call("hipMemcpy", out.ctypes.data, address, out.nbytes, self.hip.hipMemcpyKind(2))
        return out

    def function(self, name: str, *defines: str, symbol: str | None = None) -> Any:
        """Kernel of tests/tile/<name>.hip: the file's name, unless `symbol` is another."""
        image = compiled(name, *defines)
        module = self.call("hipModuleLoadData", image)
        self.modules.append((module, image))
        return self.call("hipModuleGetFunction", module, (symbol or name).encode())

    def launch(
        self, function: Any, workgroups: int, lanes: int, *args: Any, stream: Any = None
    ) -> None:
        """Queue a launch; every argument is a ctypes value."""
        self.call(
            "hipModuleLaunchKernel", function, workgroups, 1, 1, lanes, 1, 1, 0, stream, None, args
        )

    def finish(self) -> int:
        """Synchronise; the error code, 0 for none."""
        return int(self.hip.hipDeviceSynchronize()[0])


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    device = Gpu()
    yield device
    for key, value in (("seed", 0), ("quantum", 8), ("threads", 0), ("max_instructions", 1 << 30)):
        device.option(key, value)
