"""The HIP runtime, through hip-python.

The library is bound at the first call of `get`. Whether a GPU or the virtual device answers is
decided once, by which library hip-python opens; nothing outside this package depends on it. Every
device has a `Runtime` of its own, with the modules that are loaded on it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import threading
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import CHIPS
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

_FLUSH_BYTES = 2 * max(chip.mall_bytes for chip in CHIPS)

_lock = threading.RLock()
_requested: str | None = None
_requested_runtime: str | None = None
_devices: dict[int, Runtime] = {}  # devices in use, by number
_only: Runtime | None = None  # the only device of the process


def use_device(request: str, runtime: str | None = None) -> None:
    """Choose the device to bind, before the first operation that needs one.

    Parameters
    ----------
    request : str
        "auto", "gpu" or "virtual:" followed by an architecture ("virtual:gfx942", its first
        product), a product ("virtual:MI308X") or a partition of one ("virtual:MI300X:CPX"). It
        takes precedence over the environment variable AMDATTN_DEVICE. "auto" binds a GPU if there
        is one, and otherwise the virtual device as an MI300X.
    runtime : str, optional
        The HIP runtime that presents the virtual device: "amdattn", its own (the default); "amd",
        AMD's libamdhip64.so.7 where the dynamic linker finds it; "amd:FOLDER", AMD's in a folder.
        It takes precedence over the environment variable AMDATTN_RUNTIME.

    Raises
    ------
    ValueError
        The request or the runtime is not one of these.
    BindingError
        Another device is bound already (a process can bind only one), or the process is a fork of
        one that had bound a device.
    """
    global _requested, _requested_runtime
    binding.check_request(request)
    if runtime is not None:
        runtime = binding.check_runtime(runtime)
    if _is_fork:
        raise BindingError(_FORK)
    with _lock:
        bound = next(iter(_devices.values()), None)
        if bound is not None and request != "auto":
            kind = request.partition(":")[0]
            if kind != bound.choice.kind or not binding.is_what_was_asked(request, bound.props):
                part = f" in {bound.props.partition}" * (":" in bound.props.label)
                raise BindingError(
                    f"use_device({request!r}): {bound.props.name}{part} is bound already "
                    f"({bound.choice.library}); choose before the first operation"
                )
        if bound is not None and runtime not in (None, bound.choice.runtime):
            raise BindingError(
                f"use_device({request!r}, {runtime!r}): {bound.choice.library} is bound already; "
                "choose before the first operation"
            )
        _requested = request
        _requested_runtime = runtime or _requested_runtime


def get(ordinal: int | None = None) -> Runtime:
    """The runtime of a device, by HIP's number; binds the library on first use.

    Parameters
    ----------
    ordinal : int, optional
        None: this thread's current device.

    Raises
    ------
    ValueError
        The process sees no such device.
    """
    device = _only if ordinal is None else _devices.get(ordinal)
    return _bound_to(ordinal) if device is None else device


def _bound_to(ordinal: int | None) -> Runtime:
    """The runtime of a device that was not used yet, or of the current one among several."""
    global _only
    if _is_fork:
        raise BindingError(_FORK)
    with _lock:
        first = next(iter(_devices.values()), None)
        if first is None:
            first = _bind()
            _devices[first.ordinal] = first
            if first.num_devices == 1:
                _only = first
        if ordinal is None:
            ordinal = first.current_ordinal()
        device = _devices.get(ordinal)
        if device is None:
            device = _devices[ordinal] = Runtime(import_hip_python(), first.choice, ordinal)
        return device


def _after_fork() -> None:
    """Forget the devices in a child process: HIP's threads and the queues stay with the parent."""
    global _only, _is_fork
    if _devices:
        for device in _devices.values():
            device.hip = _Forked()
        _devices.clear()
        _only, _is_fork = None, True


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
    """Facts of this thread's current device; binds it on first use."""
    return get().props


def synchronize() -> None:
    """Wait for all work on every device in use; raises HipError if any of it failed."""
    for device in tuple(_devices.values()) or (get(),):
        device.synchronize_all()


def _bind() -> Runtime:
    request = _requested or os.environ.get(binding.ENVIRONMENT_VARIABLE) or "auto"
    if request not in binding.REQUESTS:
        raise BindingError(
            f"{binding.ENVIRONMENT_VARIABLE}={request!r} must be one of "
            f"{', '.join(binding.REQUESTS)}"
        )
    hip_python = import_hip_python()
    runtime_request = _requested_runtime or os.environ.get(binding.RUNTIME_VARIABLE) or "amdattn"
    try:
        binding.check_runtime(runtime_request)
    except ValueError as error:
        raise BindingError(f"{binding.RUNTIME_VARIABLE}: {error}") from None
    choice = binding.choose(request, hip_python.default_library(), runtime_request)
    if choice.plays:
        virtual_library.play(choice.device_library, choice.plays)
    if choice.device:
        virtual_library.load_hsa(choice.device)
    restore = hip_python.pin(choice.library)
    try:
        runtime = Runtime(hip_python, choice)
    finally:
        restore()
    if choice.kind == "virtual" and runtime.props.arch not in ARCHITECTURES:
        raise BindingError(
            f"{choice.library} presents {runtime.props.arch}, not {', '.join(ARCHITECTURES)}"
        )
    if choice.plays and not binding.is_what_was_asked(request, runtime.props):
        raise BindingError(
            f"{choice.library} presents {runtime.props.label}, not {choice.plays}: a process has "
            "one device, which is decided at its first call of HIP"
        )
    return runtime


class Runtime(MemoryCalls, StreamCalls, KernelLoader):
    """A device: memory, streams, modules, launches. Addresses and handles are ints."""

    def __init__(
        self, hip_python: HipPython, choice: binding.Choice, ordinal: int | None = None
    ) -> None:
        super().__init__(hip_python, choice, ordinal)
        self._flush_address: int | None = None

    def version(self) -> int:
        """The number of hipRuntimeGetVersion."""
        return int(self.check("hipRuntimeGetVersion", self.hip.hipRuntimeGetVersion()))

    @property
    def title(self) -> str:
        """The name of the device for people; it says if the device is virtual."""
        return f"{self.props.name}{' (virtual)' * (self.choice.kind == 'virtual')}"

    @property
    def measured_on(self) -> str:
        """The label of a time taken on this device."""
        on = "this CPU" if self.choice.kind == "virtual" else self.props.name
        return f"measured on {on}"

    def hip_python_version(self) -> str:
        """Version of the installed hip-python."""
        for distribution in ("hip-python", "rocm-bindings-hip"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(distribution)
        return "unknown"

    def flush_caches(self, stream: int = 0) -> None:
        """Write memory larger than every cache. The virtual device has no cache to flush."""
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
        self.submit((function, *grid, *workgroup, dynamic_lds_bytes), kernargs, stream)

    def submit(self, configuration: tuple[Any, ...], kernargs: KernargBuffer, stream: int) -> None:
        """Launch with the arguments that hipModuleLaunchKernel takes before the stream."""
        status = self.hip.hipModuleLaunchKernel(
            *configuration, stream, kernargs.params, kernargs.extra
        )
        if status[0]:
            raise self._error("hipModuleLaunchKernel", status[0])
