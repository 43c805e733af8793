"""The HIP runtime, through hip-python.

The device is bound at the first call of `get`. Whether a GPU or the virtual device answers is
decided once, by which library hip-python opens; nothing outside this package depends on it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import threading
from typing import Any

from amdattn.arch.props import DeviceProps
from amdattn.device import binding, virtual_library
from amdattn.device.kernarg import KernargBuffer
from amdattn.device.runtime.hip_python import HipPython, import_hip_python
from amdattn.device.runtime.kernels import KernelLoader
from amdattn.device.runtime.memory_calls import MemoryCalls
from amdattn.device.runtime.stream_calls import (
    MAX_STREAM as MAX_STREAM,
    StreamCalls,
    stream_handle as stream_handle,
)
from amdattn.errors import BindingError

_FLUSH_BYTES = 512 * 2**20  # MI300X and MI355X have 256 MiB of last level cache

_lock = threading.RLock()
_requested: str | None = None
_bound: Runtime | None = None


def use_device(request: str) -> None:
    """Say which device to bind, before the first operation that needs one.

    Parameters
    ----------
    request : {"auto", "gpu", "virtual:gfx942"}
        Takes precedence over the environment variable AMDATTN_DEVICE. "auto" binds a GPU if there
        is one, else the virtual device.

    Raises
    ------
    BindingError
        Another kind of device is bound already; a process can bind only one.
    """
    global _requested
    binding.check_request(request)
    with _lock:
        if _bound is not None and request != "auto":
            kind = request.partition(":")[0]
            if kind != _bound.choice.kind:
                raise BindingError(
                    f"use_device({request!r}): {_bound.props.name} is bound already "
                    f"({_bound.choice.library}); choose before the first operation"
                )
        _requested = request


def get() -> Runtime:
    """The bound runtime; binds it on first use."""
    global _bound
    if _bound is None:
        if _is_fork:
            raise BindingError(_FORK)
        with _lock:
            if _bound is None:
                _bound = _bind()
    return _bound


def _after_fork() -> None:
    """In a child process: HIP's threads and the GPU's queues stayed with the parent."""
    global _bound, _is_fork
    if _bound is not None:
        _bound.hip = _Forked()
        _bound, _is_fork = None, True


class _Forked:
    """The HIP runtime in a child process: objects of the parent may still ask for it."""

    def __getattr__(self, name: str) -> Any:
        raise BindingError(_FORK)


_is_fork = False
_FORK = (
    "this process is a fork of one that had bound a device, and a HIP runtime does not work in a "
    'fork: start processes with multiprocessing.get_context("spawn"), or fork before the first '
    "operation"
)
os.register_at_fork(after_in_child=_after_fork)


def device_props() -> DeviceProps:
    """Facts of the bound device; binds it on first use."""
    return get().props


def synchronize() -> None:
    """Wait for everything launched on the bound device; raises HipError if any of it failed."""
    get().synchronize_all()


def _bind() -> Runtime:
    request = _requested or os.environ.get(binding.ENVIRONMENT_VARIABLE) or "auto"
    if request not in binding.REQUESTS:
        raise BindingError(
            f"{binding.ENVIRONMENT_VARIABLE}={request!r} must be one of "
            f"{', '.join(binding.REQUESTS)}"
        )
    hip_python = import_hip_python()
    choice = binding.choose(request, hip_python.default_library())
    restore = hip_python.pin(choice.library)
    try:
        runtime = Runtime(hip_python, choice)
    finally:
        restore()
    if choice.kind == "virtual" and runtime.props.arch not in virtual_library.ARCHS:
        raise BindingError(
            f"{choice.library} presents {runtime.props.arch}, not {virtual_library.ARCHS}"
        )
    return runtime


class Runtime(MemoryCalls, StreamCalls, KernelLoader):
    """The bound device: memory, streams, modules, launches. Addresses and handles are ints."""

    def __init__(self, hip_python: HipPython, choice: binding.Choice) -> None:
        super().__init__(hip_python, choice)
        self._flush_address: int | None = None

    def version(self) -> int:
        """HipRuntimeGetVersion."""
        return int(self.check("hipRuntimeGetVersion", self.hip.hipRuntimeGetVersion()))

    @property
    def title(self) -> str:
        """Name of the device for people; says so if it is virtual."""
        return f"{self.props.name}{' (virtual)' * (self.choice.kind == 'virtual')}"

    @property
    def measured_on(self) -> str:
        """How to label a time taken on this device."""
        on = "this CPU" if self.choice.kind == "virtual" else self.props.name
        return f"measured on {on}"

    def hip_python_version(self) -> str:
        """Version of the installed hip-python."""
        for distribution in ("hip-python", "rocm-bindings-hip"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(distribution)
        return "unknown"

    def flush_caches(self, stream: int = 0) -> None:
        """Write through memory larger than every cache. The virtual device has none to flush."""
        if self.choice.kind == "virtual":
            return
        if self._flush_address is None:
            self._flush_address = self.malloc(_FLUSH_BYTES)
        self.clear(self._flush_address, _FLUSH_BYTES, stream)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        workgroup: tuple[int, int, int],
        kernargs: KernargBuffer,
        stream: int,
        dynamic_lds_bytes: int = 0,
    ) -> None:
        """Launch `function` over `grid` workgroups with the packed block in `kernargs`."""
        params, extra = kernargs.params, kernargs.extra
        status = self.hip.hipModuleLaunchKernel(
            function, *grid, *workgroup, dynamic_lds_bytes, stream, params, extra
        )
        if status[0]:
            raise self._error("hipModuleLaunchKernel", status[0])
