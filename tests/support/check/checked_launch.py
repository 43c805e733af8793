"""Launches of the kernels of tests/virtual_device/check/coherence in checked mode."""

from __future__ import annotations

import ctypes
import functools
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from elftools.elf.elffile import ELFFile

from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.gpu import Gpu
from tests.support.paths import TESTS
from tests.support.vdev_library import open_library

SOURCES = TESTS / "virtual_device" / "check" / "coherence"
DEFAULTS = {
    "check": 0,
    "threads": 0,
    "seed": 0,
    "quantum": 8,
    "resident_workgroups": 0,
    "late_stores": 1,
}
KINDS = ("global_race", "stale_read", "same_value_race", "unchecked")
Words = npt.NDArray[np.uint32]


@functools.cache
def code_object(source: str) -> bytes:
    return compile_hip(SOURCES / f"{source}.hip", LLVM22).code_object


@functools.cache
def places(source: str) -> dict[str, int]:
    """ELF virtual addresses of the marked instructions, e.g. "use.kernel"."""
    table: Any = ELFFile(io.BytesIO(code_object(source))).get_section_by_name(".dynsym")
    return {symbol.name: int(symbol["st_value"]) for symbol in table.iter_symbols()}


class Checked:
    """Launches kernels of one source in checked mode."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.library = open_library(amdattn_vdev_take_findings=(ctypes.c_char_p, []))

    def run(
        self,
        source: str,
        kernel: str,
        *arguments: Words | int,
        workgroups: int = 2,
        lanes: int = 64,
        **options: int,
    ) -> tuple[list[dict[str, Any]], list[Words]]:
        """Races and stale reads of one launch, and its arrays afterwards."""
        device = self.gpu
        module = device.call("hipModuleLoadData", code_object(source))
        function = device.call("hipModuleGetFunction", module, kernel.encode())
        # One worker runs workgroups in order, so that the direction of a race is always the same.
        for key, value in {**DEFAULTS, "check": 1, "threads": 1, **options}.items():
            device.option(key, value)
        arrays = [a for a in arguments if not isinstance(a, int)]
        addresses = [device.upload(a) for a in arrays]
        left = iter(addresses)
        values = [
            ctypes.c_uint32(a) if isinstance(a, int) else ctypes.c_uint64(next(left))
            for a in arguments
        ]
        device.launch(function, workgroups, lanes, *values)
        assert device.finish() == 0, device.report
        results = [device.download(at, like) for at, like in zip(addresses, arrays, strict=True)]
        found = json.loads(self.library.amdattn_vdev_take_findings())
        for address in addresses:
            device.call("hipFree", address)
        device.call("hipModuleUnload", module)
        (launch,) = found["launches"]
        return [f for f in launch["findings"] if f["kind"] in KINDS], results


@pytest.fixture
def checked(gpu: Gpu) -> Iterator[Checked]:
    yield Checked(gpu)
    for key, value in DEFAULTS.items():
        gpu.option(key, value)
