"""Calls of the HIP runtime through hip-python: errors, the current device, captures."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from amdattn.device import binding, virtual_library
from amdattn.device.runtime.hip_python import HipPython
from amdattn.device.runtime.query import query_device
from amdattn.errors import BindingError, HipError

# hipStream_t values that are no handles: the default stream, the legacy and the per-thread one.
STREAM_CONSTANTS = (0, 1, 2)
# Errors of launches that ended half-way. Any call may report them.
_FAULTS = frozenset(
    (
        *("hipErrorIllegalAddress", "hipErrorLaunchTimeOut", "hipErrorLaunchFailure"),
        *("hipErrorAssert", "hipErrorECCNotCorrectable", "hipErrorIllegalState", "hipErrorUnknown"),
        *("hipErrorDeinitialized", "hipErrorInvalidContext"),
    )
)
_WAITS = ("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize")
_CAPTURE_MODE_RELAXED = 2
_SOON_SECONDS = 0.02
_ALREADY = contextlib.nullcontext()


class HipCalls:
    """One HIP library and one of its devices.

    Parameters
    ----------
    ordinal : int, optional
        None: this thread's current device.

    Attributes
    ----------
    choice : binding.Choice
        The bound library, and why it was chosen.
    ordinal : int
        HIP's number of the device.
    num_devices : int
        The number of devices that the process sees.
    props : DeviceProps
    sources : tuple of (str, str)
        The sources of those facts that not every runtime reports.
    launch_types : LaunchTypes
    failures : int
        The number of errors of unfinished launches that any call has reported.
    """

    def __init__(self, hip_python: HipPython, choice: binding.Choice, ordinal: int | None) -> None:
        self.hip = hip_python.hip
        self.choice = choice
        self.launch_types = hip_python.launch_types
        self.failures = 0
        self._hip_python = hip_python
        self._exports: virtual_library.Exports | None = None
        self._reported = ("", 0)
        self._lost_interrupt = False
        self._check_binding()
        count: int = self.check("hipGetDeviceCount", self.hip.hipGetDeviceCount())
        self.num_devices = count
        self.ordinal = self.current_ordinal() if ordinal is None else ordinal
        if not 0 <= self.ordinal < count:
            raise ValueError(f"device {ordinal} must be in 0..{count - 1}, those the process sees")
        prop = self._struct("hipGetDeviceProperties", "hipDeviceProp_t", self.ordinal)
        queried = query_device(self.hip, prop, self.ordinal, choice.kind == "gpu")
        self.props, self.sources = queried.props, queried.sources
        # hip-python cannot pass a mode. A library without the function has no captures.
        self._exchange_mode: Any = getattr(
            ctypes.CDLL(choice.library), "hipThreadExchangeStreamCaptureMode", None
        )

    def check(self, call: str, result: tuple[Any, ...]) -> Any:
        """Return the results of a hip-python call without its status; raise HipError on failure."""
        if result[0]:
            raise self._error(call, result[0])
        return result[1] if len(result) == 2 else result[1:]

    def interrupt_again(self) -> None:
        """Raise Ctrl-C once more, since an exception in a destructor is lost.

        It comes soon, or in place of the next error, which is that of the launch that it ended.
        """
        self._lost_interrupt = True
        again = threading.Timer(_SOON_SECONDS, self._interrupt)
        again.daemon = True
        again.start()

    def _interrupt(self) -> None:
        if self._lost_interrupt:
            self._lost_interrupt = False
            os.kill(os.getpid(), signal.SIGINT)

    def _error(self, call: str, status: Any) -> HipError:
        explanation = str(self.hip.hipGetErrorString(status)[1])
        self.hip.hipGetLastError()  # a later call must not report this one's error again
        if call in _WAITS or status.name in _FAULTS:
            self.failures += 1
        if self._lost_interrupt and threading.current_thread() is threading.main_thread():
            self._lost_interrupt = False
            raise KeyboardInterrupt
        report = self._report_of(int(status)) if self.choice.kind == "virtual" else ""
        note = binding.other_runtimes(self.choice.library) if self.choice.kind == "gpu" else ""
        return HipError(call, int(status), status.name, explanation, report, note)

    def _report_of(self, code: int) -> str:
        """The report of this error; the library's last one may be of an earlier error."""
        report = self.virtual_exports().last_report()
        known_report, known_code = self._reported
        if report == known_report and code != known_code:
            return ""
        self._reported = (report, code)
        return report

    def _check_binding(self) -> None:
        # hip-python opens its library only once. An error caused through hip-python must therefore
        # show in the library chosen here; if it does not, another one was bound before.
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
            self._exports = virtual_library.Exports(self.choice.device_library)
        return self._exports

    def _struct(self, call: str, struct: str, *args: Any) -> Any:
        function = getattr(self.hip, call)
        if self._hip_python.returns_structs:
            return self.check(call, function(*args))
        out = getattr(self.hip, struct)()
        self.check(call, function(out, *args))
        return out

    def current_ordinal(self) -> int:
        """This thread's current device."""
        ordinal: int = self.check("hipGetDevice", self.hip.hipGetDevice())
        return ordinal

    def current(self, stream: int = 0) -> contextlib.AbstractContextManager[object]:
        """A block in which this is the current device, which calls on the default stream need.

        Raises
        ------
        ValueError
            `stream` belongs to another device.
        """
        return _ALREADY if self.num_devices == 1 else self._made_current(stream)

    @contextlib.contextmanager
    def _made_current(self, stream: int) -> Iterator[None]:
        if stream not in STREAM_CONSTANTS:
            self._check_stream(stream)
        before = self.current_ordinal()
        if before != self.ordinal:
            self.check("hipSetDevice", self.hip.hipSetDevice(self.ordinal))
        try:
            yield
        finally:
            if before != self.ordinal:
                self.hip.hipSetDevice(before)

    def _check_stream(self, stream: int) -> None:
        status, ordinal = self.hip.hipStreamGetDevice(stream)
        if status:
            raise self._error("hipStreamGetDevice", status)
        if int(ordinal) != self.ordinal:
            raise ValueError(
                f"stream={stream:#x} is of device {int(ordinal)}, not of device {self.ordinal} "
                f"({self.props.name})"
            )

    @contextlib.contextmanager
    def _unaffected(self) -> Iterator[None]:
        """A block whose calls are allowed during captures of graphs, and do not break them.

        Without it, hipMalloc, hipFree and others end captures of this thread, and most other
        captures.
        """
        mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
        if self._exchange_mode is not None:
            self._exchange_mode(ctypes.byref(mode))
        try:
            yield
        finally:
            if self._exchange_mode is not None:
                self._exchange_mode(ctypes.byref(mode))
