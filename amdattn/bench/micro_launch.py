"""Launches of the shipped micro kernels, and memory for them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import struct
from typing import Any

import numpy as np

from amdattn import paths
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Functions, Launch
from amdattn.bench.micro_rows import (
    LANES,
    LOAD_BYTES,
    UNROLLED,
    WAVES,
    Clk,
    Latency,
    Region,
    Stream,
)
from amdattn.bench.run import is_virtual
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile
from amdattn.errors import CorruptKernel, ManifestError, UnsupportedDeviceError
from amdattn.virtual import profiled

SCHEMA = 1
PASS_BYTES = LOAD_BYTES * UNROLLED  # per workgroup
_MEMORY = 16 << 20  # bytes that the kernels of clk and latencies may read
_VALUES = 8192  # bytes of them that are operands
_ARGUMENTS = struct.Struct("<IIQQIIII")


@functools.cache
def image(arch: str) -> bytes:
    """The code object of the micro kernels for an architecture.

    Raises
    ------
    UnsupportedDeviceError
        None is shipped for `arch`.
    ManifestError, CorruptKernel
        The code object or its manifest is missing, or differs from what was shipped.
    """
    folder = paths.hsaco_dir() / "micro"
    if arch not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise UnsupportedDeviceError(f"the micro kernels are for {known}, the device is {arch}")
    try:
        manifest = json.loads((folder / f"{arch}.json").read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA:
            raise ValueError(f"schema {manifest['schema']!r} is not {SCHEMA}")
        found = (folder / manifest["file"]).read_bytes()
        recorded = manifest["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ManifestError(f"{folder} does not hold the micro kernels: {error!r}") from None
    if hashlib.sha256(found).hexdigest() != recorded:
        raise CorruptKernel(f"the micro kernels in {folder} do not have their recorded sha256")
    return bytes(found)


class Micro:
    """The micro kernels on the bound device, with memory for them, for a `with` block.

    Raises
    ------
    UnsupportedDeviceError
        There are no micro kernels for the architecture of the device.
    """

    def __init__(self) -> None:
        self._device = runtime.get()
        self._arch = self._device.props.arch
        self._image = image(self._arch)
        self._functions = Functions()
        self._stack = contextlib.ExitStack()
        self._allocated: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Micro:
        data = np.random.default_rng(0).standard_normal(_VALUES // 4, np.float32)
        self._memory = self.memory("values", _MEMORY)
        self._device.upload(self._memory, data.ctypes.data, data.nbytes)
        self._results = self.memory("results", 1 << 20)
        self._device.synchronize(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def memory(self, name: str, nbytes: int) -> int:
        """Address of device memory until the end of the block, by name; reused if large enough."""
        address, size = self._allocated.get(name, (0, 0))
        if size < nbytes:
            address = self._device.malloc(nbytes)
            self._stack.callback(self._device.free, address)
            self._allocated[name] = address, nbytes
        return address

    @property
    def workgroups(self) -> int:
        """One workgroup for every CU of the device, which may be the modelled one."""
        return clocks(self._arch).num_cus if is_virtual() else self._device.props.num_cus

    def launch(
        self,
        symbol: str,
        workgroups: int = 1,
        waves: int = 1,
        *,
        passes: int = 1,
        memory: int = 0,
        results: int = 0,
        stride: int = 0,
        array: int = 0,
        apart: int = 0,
        mask: int = 0,
    ) -> Launch:
        """A launch of the kernel `symbol`; the keyword arguments are those of the kernel."""
        packed = _ARGUMENTS.pack(
            *(passes, waves, memory or self._memory, results or self._results),
            *(stride, array, apart, mask),
        )
        return Launch(self._image, symbol, (workgroups, 1, 1), (LANES * waves, 1, 1), packed)

    def function(self, launch: Launch) -> Any:
        """The loaded kernel of a launch."""
        return self._functions.of(launch.image, launch.symbol)

    @staticmethod
    def arguments(launch: Launch) -> list[Any]:
        """The kernel arguments of a launch, each as a ctypes value."""
        types = {"I": ctypes.c_uint32, "Q": ctypes.c_uint64}
        return [
            types[code](value)
            for code, value in zip(
                _ARGUMENTS.format[1:], _ARGUMENTS.unpack(launch.kernarg), strict=True
            )
        ]

    def enqueue(self, launch: Launch) -> None:
        """Launch on the default stream."""
        launch.enqueue(self._functions)

    def profile(self, launch: Launch, *, warm: bool = False, **options: Any) -> LaunchProfile:
        """Profile a launch or, if `warm`, the second of two; see `amdattn.virtual.profile`."""

        def run() -> None:
            for _ in range(1 + warm):
                self.enqueue(launch)

        return profiled(run, **options)[-1]

    def results(self, launch: Launch, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Launch, wait, and read the first `count` dwords that it wrote."""
        self.enqueue(launch)
        found = np.zeros(count, np.uint32)
        self._device.download(found.ctypes.data, self._results, found.nbytes)
        self._device.synchronize(0)
        return found

    def times(self, launch: Launch) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """(waves, 4): engine clock and 100 MHz clock of each wave at its start, then at its end."""
        waves = launch.num_workgroups * launch.num_waves
        return self.results(launch, 8 * waves).view(np.uint64).reshape(waves, 4)

    def flush(self) -> None:
        """Flush the caches of a GPU."""
        self._device.flush_caches()

    # -- launches of a row -------------------------------------------------------------------------

    def of_clk(self, row: Clk, copies: int, passes: int) -> Launch:
        """Launch one workgroup, with `copies` of the text in its loop."""
        return self.launch(row.symbol(copies), 1, row.waves, passes=passes)

    def of_stream(self, row: Stream) -> Launch:
        """Launch all workgroups over all arrays."""
        nbytes = self.array_bytes(row)
        memory = self.memory("arrays", row.arrays * nbytes)
        return self.launch(
            row.symbol,
            self.workgroups,
            WAVES,
            passes=row.passes,
            memory=memory,
            stride=LOAD_BYTES * self.workgroups,
            array=nbytes,
        )

    def array_bytes(self, row: Stream) -> int:
        """Bytes of one array."""
        return PASS_BYTES * self.workgroups * row.passes

    def of_region(self, row: Region, passes: int) -> Launch:
        """Launch all workgroups over one region."""
        memory = self.memory("arrays", row.nbytes)
        return self.launch(
            row.symbol,
            self.workgroups,
            WAVES,
            passes=passes,
            memory=memory,
            apart=row.apart,
            mask=row.nbytes - 1,
        )

    def of_latency(self, row: Latency) -> Launch:
        """Launch one wave."""
        return self.launch(row.symbol, passes=row.evicted >> 15)
