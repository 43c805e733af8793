"""Streams of a device: waits, events, captures. Handles are ints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdattn import scalars
from amdattn.device.runtime.calls import STREAM_CONSTANTS, HipCalls
from amdattn.errors import HipError

_EVENT_DISABLE_TIMING = 2
_NOT_READY = "hipErrorNotReady"
_STREAM_NON_BLOCKING = 1
_RECOVERIES = 3
MAX_STREAM = 2**64


class StreamCalls(HipCalls):
    """The part of a runtime that orders work.

    Attributes
    ----------
    after_failures : list of callable
        Functions that repair what unfinished launches leave behind, called with this runtime and
        the stream that was waited for (None for all).
    """

    def __init__(self, *bound: Any) -> None:
        super().__init__(*bound)
        self._failures_recovered = 0
        self.after_failures: list[Callable[[Any, int | None], None]] = []

    def synchronize(self, stream: int) -> None:
        """Wait for a stream; raises HipError if anything on it failed."""
        with self.current(stream):
            status = self.hip.hipStreamSynchronize(stream)
        try:
            self.check("hipStreamSynchronize", status)
        except HipError:
            self._recover(stream)
            raise

    def synchronize_all(self) -> None:
        """Wait for every stream; raises HipError if anything failed."""
        with self.current():
            status = self.hip.hipDeviceSynchronize()
        try:
            self.check("hipDeviceSynchronize", status)
        finally:
            if self.failures != self._failures_recovered:
                self._failures_recovered = self.failures
                self._recover(None)

    def _recover(self, stream: int | None) -> None:
        """Repair what a failed launch has left, before anything is launched again.

        Raises
        ------
        HipError
            Another launch failed in the meantime; every failure is reported to a waiting caller.
        """
        later = None
        for _ in range(_RECOVERIES if self.after_failures else 0):
            for recover in self.after_failures:
                recover(self, stream)
            with self.current():
                status = self.hip.hipStreamSynchronize(stream or 0)
            try:
                self.check("hipStreamSynchronize", status)
                break
            except HipError as error:
                later = error
        if later is not None:
            raise later

    def wait_for(self, stream: int, producer: int) -> None:
        """Make later work on `stream` wait for the work now on stream `producer`."""
        if stream == producer:
            return
        if stream and self.is_capturing(stream) and not (producer and self.is_capturing(producer)):
            self._finish_before_capture(stream, producer)
            return
        event = self.record_event(producer)
        try:
            with self.current(stream):
                self.check("hipStreamWaitEvent", self.hip.hipStreamWaitEvent(stream, event, 0))
        finally:
            self.destroy_event(event)

    def _finish_before_capture(self, stream: int, producer: int) -> None:
        """Finish the work on a stream that a graph, captured from another stream, cannot wait for.

        The default stream must not be used while a stream that waits for it is captured. That is
        not needed either: replays on such a stream come after the default stream's work.
        """
        flags = self.check("hipStreamGetFlags", self.hip.hipStreamGetFlags(stream))
        if producer or flags & _STREAM_NON_BLOCKING:
            with self._unaffected():
                self.synchronize(producer)

    def any_capturing(self) -> bool:
        """True while a graph is being captured from any stream that this package was given."""
        none = self.hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone
        for stream in tuple(_streams):
            if self.is_gone(stream):
                _streams.discard(stream)
                continue
            try:  # destructors call this anywhere, so no error is created, which would take locks
                failed, status = self.hip.hipStreamIsCapturing(stream)
            except ValueError:  # the call failed: see is_capturing
                failed, status = True, none
            if failed:  # the stream was destroyed just now
                self.hip.hipGetLastError()
                _streams.discard(stream)
            elif status != none:
                return True
        return False

    def record_event(self, stream: int) -> Any:
        """Record a new event after the work now on `stream`; the caller destroys it."""
        hip = self.hip
        with self.current(stream):
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
        """True if the work before a recorded event has completed; False also after a fault.

        The next call that waits reports the fault again; this one reports nothing.
        """
        with self._unaffected():
            status = self.hip.hipEventQuery(event)[0]
        if status:
            self.hip.hipGetLastError()  # "not ready" must not become the error of a later call
            self.failures += status.name != _NOT_READY
        return not status

    def destroy_event(self, event: Any) -> None:
        """Destroy an event of `record_event`."""
        self.check("hipEventDestroy", self.hip.hipEventDestroy(event))

    def is_gone(self, stream: int) -> bool:
        """True if the owner of a stream has destroyed it."""
        if stream in STREAM_CONSTANTS:
            return False
        # In AMD's runtime, the query of the device looks the stream up; other calls read freed
        # memory.
        gone = bool(self.hip.hipStreamGetDevice(stream)[0])
        if gone:
            self.hip.hipGetLastError()  # it must not become the error of a later call
        return gone

    def is_capturing(self, stream: int) -> bool:
        """True while a graph is being captured from `stream`."""
        try:
            result = self.hip.hipStreamIsCapturing(stream)
        except ValueError:  # a failed call leaves the enumerator unwritten
            raise self._error(
                "hipStreamIsCapturing", self.hip.hipError_t.hipErrorInvalidHandle
            ) from None
        status = self.check("hipStreamIsCapturing", result)
        return bool(status != self.hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone)


_streams: set[int] = set()  # streams that callers have named; some may be destroyed


def stream_handle(stream: object) -> int:
    """A hipStream_t as an int: None is the default stream; ints and hip-python streams pass."""
    if stream is None:
        return 0
    if type(stream) is not int:
        stream = _stream_number(stream)
    if not 0 <= stream < MAX_STREAM:
        raise ValueError(f"stream={stream:#x} must be in 0..2**64-1")
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
