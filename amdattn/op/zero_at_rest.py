"""Device memory that is 0 whenever no launch uses it: counters of arrivals, and sums.

A launch leaves it 0, unless it is aborted, times out or faults. Once this package has seen the
error, the memory is reset before the next run that uses it, or at once if a graph has it.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from dataclasses import dataclass

import numpy as np

from amdattn.arrays.allocation import Memory
from amdattn.arrays.buffers import DeviceArray, upload
from amdattn.device.runtime import Runtime
from amdattn.errors import HipError

_LEAST_BYTES = 4096


class _Streams:
    """Regions that are zero at rest, for launches without a workspace, by name.

    Every stream has its own regions. They are replaced after a failure: launches that the host has
    aborted may still be running.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int, str], DeviceArray] = {}
        self._left: list[DeviceArray] = []  # outgrown, or dirty: launches under way may use them
        self._failures: dict[int, int] = {}  # numbers of failures that each device had seen

    def of(self, device: Runtime, stream: int, name: str, nbytes: int) -> int:
        """The address of at least `nbytes` bytes that are 0 for launches on `stream`."""
        with self._lock:
            if self._failures.get(device.ordinal, 0) != device.failures:
                self._failures[device.ordinal] = device.failures
                for key in [key for key in self._held if key[0] == device.ordinal]:
                    self._left.append(self._held.pop(key))
            key = device.ordinal, stream, name
            memory = self._held.get(key)
            if memory is None or memory.nbytes < nbytes:
                if memory is not None:
                    self._left.append(memory)
                # The copy is done when this returns.
                size = max(_LEAST_BYTES, 1 << (nbytes - 1).bit_length())
                memory = self._held[key] = upload(np.zeros(size, np.uint8), device)
                memory.record_stream(stream)
            return memory.address


@dataclass(slots=True)
class _Use:
    """The last use of a workspace.

    Attributes
    ----------
    nbytes : int
        Bytes of the part that was ever used.
    zero_bytes : int
        The number of bytes at its beginning that are 0 at rest; partial results follow.
    stream : int
    failures : int
        The number of the device's failures after which it was last reset.
    captured, captured_on : int
        `zero_bytes` of the plan that a graph has captured with it, or 0; and the stream.
    """

    nbytes: int
    zero_bytes: int
    stream: int
    failures: int
    captured: int = 0
    captured_on: int = 0


class _Workspaces:
    """Callers' workspaces: kept with their memory if it is this package's, or by address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: weakref.WeakSet[Memory] = weakref.WeakSet()
        self._foreign: dict[int, _Use] = {}

    def prepare(
        self,
        device: Runtime,
        memory: Memory | None,
        address: int,
        nbytes: int,
        zero_bytes: int,
        stream: int,
    ) -> None:
        """Make the first `zero_bytes` of `nbytes` bytes 0 for a launch on `stream`.

        Raises
        ------
        ValueError
            A graph has the workspace, for a plan with another number of counters.
        """
        uses = self._foreign if memory is None else memory.uses
        use = uses.get(address) if uses else None
        if (
            use is None
            or (use.zero_bytes, use.stream, use.failures) != (zero_bytes, stream, device.failures)
            or use.nbytes < nbytes
            or (stream and not use.captured and device.is_capturing(stream))
        ):
            with self._lock:
                self._prepare_anew(device, memory, address, nbytes, zero_bytes, stream)

    def _prepare_anew(
        self,
        device: Runtime,
        memory: Memory | None,
        address: int,
        nbytes: int,
        zero_bytes: int,
        stream: int,
    ) -> None:
        if self.recover not in device.after_failures:
            device.after_failures.append(self.recover)
        uses = self._foreign
        if memory is not None:
            uses = memory.uses = memory.uses or {}
            self._own.add(memory)
        use = uses.get(address)
        if use is None:  # the caller promises that it is 0
            use = uses[address] = _Use(nbytes, nbytes, stream, device.failures)
        if memory is not None and use.captured not in (0, zero_bytes):
            raise ValueError(
                f"workspace at {address:#x} is part of a graph, for a plan with {use.captured} "
                f"bytes of counters; this plan has {zero_bytes}: give it a workspace of its own "
                "(plan.new_workspace())"
            )
        capturing = bool(stream) and device.is_capturing(stream)
        failed = use.failures != device.failures  # memory behind the counters may no longer be 0
        if failed or zero_bytes > use.zero_bytes:
            device.clear(address, zero_bytes, stream)  # if captured, in every replay
            if not capturing:
                use.failures = device.failures
        use.nbytes = max(use.nbytes, nbytes)
        others = 0 if failed else use.zero_bytes
        use.zero_bytes = zero_bytes if zero_bytes < nbytes else max(others, nbytes)
        use.stream = stream
        if capturing:
            use.captured, use.captured_on = zero_bytes, stream

    def overwrite(self, device: Runtime, memory: Memory | None, address: int, nbytes: int) -> None:
        """Record that a launch without counters writes to the workspace.

        Raises
        ------
        ValueError
            A graph has a part of the workspace, for a plan with counters.
        """
        uses = self._foreign if memory is None else memory.uses
        if memory is not None and not uses:
            uses = memory.uses = {}
        elif not uses:
            return
        known = uses.get(address)
        if known is not None and len(uses) == 1 and not (known.zero_bytes or known.captured):
            return
        with self._lock:
            for start, use in uses.items():
                if start < address + nbytes and address < start + use.nbytes:
                    if use.captured:
                        raise ValueError(
                            f"workspace at {address:#x} is part of a graph, for a plan with "
                            f"{use.captured} bytes of counters, which this plan would overwrite: "
                            "give it a workspace of its own (plan.new_workspace())"
                        )
                    use.zero_bytes = 0
            if memory is not None and known is None:
                uses[address] = _Use(nbytes, 0, 0, device.failures)

    def recover(self, device: Runtime, stream: int | None) -> None:
        """Reset workspaces used on a stream after a wait for it; None: on all streams.

        Only those that a graph holds, since no run precedes its replays to do it; and only memory
        of this package, which exists as long as its array: foreign memory may have another use.
        """
        with self._lock:
            for memory in [memory for memory in self._own if memory.device is device]:
                for address, use in (memory.uses or {}).items():
                    stale = use.captured and use.failures != device.failures
                    if not stale or stream not in (None, use.captured_on):
                        continue
                    # If the failure took the device with it, this fails, but so does every launch.
                    with contextlib.suppress(HipError):
                        device.clear(address, use.captured, stream or 0)
                        use.failures = device.failures


_streams = _Streams()
_workspaces = _Workspaces()


of_stream = _streams.of
prepare = _workspaces.prepare
overwrite = _workspaces.overwrite


def new_workspace(nbytes: int, device: Runtime, stream: int) -> DeviceArray:
    """Allocate memory that is 0, for use on `stream`."""
    made = upload(np.zeros(max(nbytes, 1), np.uint8), device)
    made.record_stream(stream)
    return made
