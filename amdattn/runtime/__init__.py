"""The HIP runtime, through hip-python.

The device is bound at the first call of `get`. Whether a GPU or the virtual device answers is
decided once, by which library hip-python opens; nothing outside this package depends on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from amdattn import binding, scalars, virtual_library
from amdattn.device import DeviceProps
from amdattn.errors import BindingError, HipError
from amdattn.kernarg import KernargBuffer
from amdattn.runtime.hip_python import HipPython, import_hip_python
from amdattn.runtime.kernels import KernelLoader
from amdattn.runtime.query import query_device

_EVENT_DISABLE_TIMING = 2
# hipStream_t values that are no handles: the default stream, the legacy and the per-thread one.
_STREAM_CONSTANTS = (0, 1, 2)
_NOT_READY = "hipErrorNotReady"
# Errors of launches that ended half-way. Any call may report them.
_FAULTS = frozenset(
    (
        *("hipErrorIllegalAddress", "hipErrorLaunchTimeOut", "hipErrorLaunchFailure"),
        *("hipErrorAssert", "hipErrorECCNotCorrectable", "hipErrorIllegalState", "hipErrorUnknown"),
        *("hipErrorDeinitialized", "hipErrorInvalidContext"),
    )
)
_WAITS = ("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize")
_STREAM_NON_BLOCKING = 1
_CAPTURE_MODE_RELAXED = 2
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


class Runtime(KernelLoader):
    """The bound device: memory, modules, launches. Addresses and stream handles are ints.

    Attributes
    ----------
    choice : binding.Choice
        Which library is bound and why.
    ordinal : int
        The device that was current when the runtime was bound.
    props : DeviceProps
    sources : tuple of (str, str)
        Where those of its facts come from that not every runtime tells.
    launch_types : LaunchTypes
    failures : int
        How many errors were seen of launches that ended half-way, by whichever call reported them.
    after_failures : list of callable
        What sets right what such launches leave behind: called with this runtime, and the stream
        that was waited for, None for all.
    """

    def __init__(self, hip_python: HipPython, choice: binding.Choice) -> None:
        self.hip = hip_python.hip
        self.choice = choice
        self.launch_types = hip_python.launch_types
        self.failures = 0
        self._failures_recovered = 0
        self.after_failures: list[Callable[[Runtime, int | None], None]] = []
        self._hip_python = hip_python
        self._exports: virtual_library.Exports | None = None
        self._flush_address: int | None = None
        self._reported = ("", 0)
        self._check_binding()
        self.ordinal: int = self.check("hipGetDevice", self.hip.hipGetDevice())
        count: int = self.check("hipGetDeviceCount", self.hip.hipGetDeviceCount())
        self._one_device = count == 1
        prop = self._struct("hipGetDeviceProperties", "hipDeviceProp_t", self.ordinal)
        queried = query_device(self.hip, prop, self.ordinal, choice.kind == "gpu")
        self.props, self.sources = queried.props, queried.sources
        # hip-python cannot pass a mode. A library without the function has no captures.
        self._exchange_mode: Any = getattr(
            ctypes.CDLL(choice.library), "hipThreadExchangeStreamCaptureMode", None
        )
        self._copy_kinds = self.hip.hipMemcpyKind
        super().__init__()

    # -- errors ----------------------------------------------------------------------------------

    def check(self, call: str, result: tuple[Any, ...]) -> Any:
        """Return what a hip-python call returned besides its status; raise HipError on failure."""
        if result[0]:
            raise self._error(call, result[0])
        return result[1] if len(result) == 2 else result[1:]

    def _error(self, call: str, status: Any) -> HipError:
        explanation = str(self.hip.hipGetErrorString(status)[1])
        self.hip.hipGetLastError()  # a later call must not report this one's error again
        if call in _WAITS or status.name in _FAULTS:
            self.failures += 1
        report = self._report_of(int(status)) if self.choice.kind == "virtual" else ""
        note = binding.other_runtimes(self.choice.library) if self.choice.kind == "gpu" else ""
        return HipError(call, int(status), status.name, explanation, report, note)

    def _report_of(self, code: int) -> str:
        """Text for this error. The library keeps its last one, which may be of an earlier error."""
        report = self.virtual_exports().last_report()
        known_report, known_code = self._reported
        if report == known_report and code != known_code:
            return ""
        self._reported = (report, code)
        return report

    def _check_binding(self) -> None:
        # hip-python opens its library once and for good. An error made through hip-python must
        # therefore be seen in the library chosen here, or another one was bound before.
        try:
            status = self.hip.hipInit(0)  # first: without it some runtimes refuse everything
            self.hip.hipGetLastError()
            self.hip.hipSetDevice(-1)
        except RuntimeError as error:
            raise BindingError(f"hip-python cannot open {self.choice.library}: {error}") from None
        library = ctypes.CDLL(self.choice.library)
        seen = library.hipGetLastError() != 0
        self.hip.hipGetLastError()
        if not seen:
            raise BindingError(
                f"hip-python is bound to another HIP library in this process, so "
                f"{self.choice.library} ({self.choice.why}) cannot be used; bind amdattn before "
                "any other HIP call, or choose the same kind of device"
            )
        self.check("hipInit", status)

    def virtual_exports(self) -> virtual_library.Exports:
        """The virtual device's own exports; raises BindingError when a GPU is bound."""
        if self.choice.kind != "virtual":
            raise BindingError(f"a GPU is bound ({self.props.name}), not the virtual device")
        if self._exports is None:
            self._exports = virtual_library.Exports(self.choice.library)
        return self._exports

    # -- device ----------------------------------------------------------------------------------

    def _struct(self, call: str, struct: str, *args: Any) -> Any:
        function = getattr(self.hip, call)
        if self._hip_python.returns_structs:
            return self.check(call, function(*args))
        out = getattr(self.hip, struct)()
        self.check(call, function(out, *args))
        return out

    def enter(self, stream: int = 0) -> None:
        """Make the bound device current in this thread (a new thread starts on device 0).

        Raises
        ------
        ValueError
            `stream` is of another device.
        """
        if not self._one_device:
            self.check("hipSetDevice", self.hip.hipSetDevice(self.ordinal))
            if stream not in _STREAM_CONSTANTS:
                self._check_stream(stream)

    def _check_stream(self, stream: int) -> None:
        status, ordinal = self.hip.hipStreamGetDevice(stream)
        if status:
            raise self._error("hipStreamGetDevice", status)
        if int(ordinal) != self.ordinal:
            raise ValueError(
                f"stream={stream:#x} is of device {int(ordinal)}; amdattn is bound to device "
                f"{self.ordinal} ({self.props.name})"
            )

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

    # -- memory ----------------------------------------------------------------------------------

    def malloc(self, nbytes: int) -> int:
        """Allocate device memory; the address is 256-byte aligned."""
        self.enter()
        with self._unaffected():
            return int(self.check("hipMalloc", self.hip.hipMalloc(max(nbytes, 1))))

    def free(self, address: int) -> None:
        """Free what `malloc` gave."""
        with self._unaffected():
            self.check("hipFree", self.hip.hipFree(address))

    def upload(self, address: int, host: int, nbytes: int, stream: int = 0) -> None:
        """Copy host memory to the device, ordered on `stream`."""
        self._copy(address, host, nbytes, self._copy_kinds.hipMemcpyHostToDevice, stream)

    def download(self, host: int, address: int, nbytes: int, stream: int = 0) -> None:
        """Copy device memory to the host, ordered on `stream`; synchronize before reading it."""
        self._copy(host, address, nbytes, self._copy_kinds.hipMemcpyDeviceToHost, stream)

    def copy_on_device(self, to: int, source: int, nbytes: int, stream: int = 0) -> None:
        """Copy between two places of device memory, ordered on `stream`."""
        self._copy(to, source, nbytes, self._copy_kinds.hipMemcpyDeviceToDevice, stream)

    def _copy(self, to: int, source: int, nbytes: int, kind: Any, stream: int) -> None:
        self.enter(stream)
        self.check("hipMemcpyAsync", self.hip.hipMemcpyAsync(to, source, nbytes, kind, stream))

    def clear(self, address: int, nbytes: int, stream: int = 0) -> None:
        """Set device memory to 0, ordered on `stream`."""
        self.enter(stream)
        self.check("hipMemsetAsync", self.hip.hipMemsetAsync(address, 0, nbytes, stream))

    def copy_rows(
        self,
        to: int,
        to_pitch: int,
        source: int,
        pitch: int,
        width: int,
        rows: int,
        stream: int = 0,
    ) -> None:
        """Copy `rows` of `width` bytes, so many bytes apart, on the device."""
        self.enter(stream)
        kind = self._copy_kinds.hipMemcpyDeviceToDevice
        self.check(
            "hipMemcpy2DAsync",
            self.hip.hipMemcpy2DAsync(to, to_pitch, source, pitch, width, rows, kind, stream),
        )

    def owns(self, address: int) -> bool:
        """True if `address` is device memory of this runtime on the bound device."""
        try:
            found = self._struct("hipPointerGetAttributes", "hipPointerAttribute_t", address)
        except HipError:
            return False
        return bool(found.device == self.ordinal and found.devicePointer is not None)

    # -- streams ---------------------------------------------------------------------------------

    def synchronize(self, stream: int) -> None:
        """Wait for a stream; raises HipError if anything on it failed."""
        self.enter(stream)
        status = self.hip.hipStreamSynchronize(stream)
        try:
            self.check("hipStreamSynchronize", status)
        except HipError:
            self._recover(stream)
            raise

    def synchronize_all(self) -> None:
        """Wait for every stream; raises HipError if anything failed."""
        self.enter()
        status = self.hip.hipDeviceSynchronize()
        try:
            self.check("hipDeviceSynchronize", status)
        finally:
            if self.failures != self._failures_recovered:
                self._failures_recovered = self.failures
                self._recover(None)

    def _recover(self, stream: int | None) -> None:
        for recover in self.after_failures:
            recover(self, stream)
        if self.after_failures:  # done before anybody launches again; the failure is known already
            self.hip.hipStreamSynchronize(stream or 0)
            self.hip.hipGetLastError()

    def wait_for(self, stream: int, producer: int) -> None:
        """Make later work on `stream` wait for the work now on stream `producer`."""
        if stream == producer:
            return
        if stream and self.is_capturing(stream) and not (producer and self.is_capturing(producer)):
            self._finish_before_capture(stream, producer)
            return
        event = self.record_event(producer)
        try:
            self.enter(stream)
            self.check("hipStreamWaitEvent", self.hip.hipStreamWaitEvent(stream, event, 0))
        finally:
            self.destroy_event(event)

    def _finish_before_capture(self, stream: int, producer: int) -> None:
        """Have the work on a stream done that a graph, captured from another, cannot wait for.

        The default stream may not be touched while a stream that waits for it is captured, and need
        not be: replays on a stream that waits for the default stream come after its work.
        """
        flags = self.check("hipStreamGetFlags", self.hip.hipStreamGetFlags(stream))
        if producer or flags & _STREAM_NON_BLOCKING:
            with self._unaffected():
                self.synchronize(producer)

    @contextlib.contextmanager
    def _unaffected(self) -> Iterator[None]:
        """A block whose calls no capture of a graph forbids, and which spoil none.

        Else hipMalloc, hipFree and others end the captures of this thread, and most of others.
        """
        mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
        if self._exchange_mode is not None:
            self._exchange_mode(ctypes.byref(mode))
        try:
            yield
        finally:
            if self._exchange_mode is not None:
                self._exchange_mode(ctypes.byref(mode))

    def any_capturing(self) -> bool:
        """True while a graph is being captured from any stream that this package was given."""
        none = self.hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone
        for stream in tuple(_streams):
            try:  # destructors ask, inside of anything: no error is made, which takes locks
                failed, status = self.hip.hipStreamIsCapturing(stream)
            except ValueError:  # of a call that failed: see is_capturing
                failed, status = True, none
            if failed:  # the stream was destroyed
                self.hip.hipGetLastError()
                _streams.discard(stream)
            elif status != none:
                return True
        return False

    def record_event(self, stream: int) -> Any:
        """A new event behind the work now on `stream`; the caller destroys it."""
        self.enter(stream)
        hip = self.hip
        event = self.check(
            "hipEventCreateWithFlags", hip.hipEventCreateWithFlags(_EVENT_DISABLE_TIMING)
        )
        try:
            self.check("hipEventRecord", hip.hipEventRecord(event, stream))
        except HipError:
            self.destroy_event(event)
            raise
        return event

    def event_done(self, event: Any) -> bool:
        """True if the work before a recorded event has completed; False also after a fault."""
        with self._unaffected():
            status = self.hip.hipEventQuery(event)[0]
        if status:
            self.hip.hipGetLastError()  # "not ready" is no error of a later call
            self.failures += status.name != _NOT_READY
        return not status

    def destroy_event(self, event: Any) -> None:
        """Destroy what `record_event` gave."""
        self.check("hipEventDestroy", self.hip.hipEventDestroy(event))

    def is_capturing(self, stream: int) -> bool:
        """True while a graph is being captured from `stream`."""
        try:
            result = self.hip.hipStreamIsCapturing(stream)
        except ValueError:  # of a call that failed hip-python reads an enumerator that nobody wrote
            raise self._error(
                "hipStreamIsCapturing", self.hip.hipError_t.hipErrorInvalidHandle
            ) from None
        status = self.check("hipStreamIsCapturing", result)
        return bool(status != self.hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone)

    def flush_caches(self, stream: int = 0) -> None:
        """Write through memory larger than every cache. The virtual device has none to flush."""
        if self.choice.kind == "virtual":
            return
        if self._flush_address is None:
            self._flush_address = self.malloc(_FLUSH_BYTES)
        self.clear(self._flush_address, _FLUSH_BYTES, stream)

    # -- modules and launches --------------------------------------------------------------------

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


_streams: set[int] = set()  # that callers have named; some may be gone


def stream_handle(stream: object) -> int:
    """A hipStream_t as an int: None is the default stream; ints and hip-python streams pass."""
    if stream is None:
        return 0
    if type(stream) is not int:
        stream = _stream_number(stream)
    if stream < 0:
        raise ValueError(f"stream={stream} must not be negative")
    _streams.add(stream)
    return stream


def _stream_number(stream: object) -> int:
    found = scalars.read("stream", stream)
    try:
        if isinstance(found, (bool, float, str, bytes)) or hasattr(found, "shape"):
            raise TypeError
        return int(found)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        raise TypeError(
            f"stream={stream!r} must be None, a hipStream_t as int, or a hip-python stream, not "
            f"{type(stream).__name__}"
        ) from None
