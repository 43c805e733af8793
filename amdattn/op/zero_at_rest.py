"""Device memory that is 0 whenever no launch uses it: counters of arrivals, and sums.

A launch leaves it so. One that was aborted, timed out or faulted does not: once this package saw
its error, the memory is set right before the next run that uses it; at once, if a graph has it.
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
    """Regions that are zero at rest, of launches without a workspace, by name.

    Every stream has its own. After a failure there are new ones: what was aborted on the host's
    side may still be running.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int, str], DeviceArray] = {}
        self._left: list[DeviceArray] = []  # outgrown, or dirty: launches under way may use them
        self._failures: dict[int, int] = {}  # that each device had seen

    def of(self, device: Runtime, stream: int, name: str, nbytes: int) -> int:
        """Address of at least `nbytes` that are 0 for launches on `stream`."""
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
    """How a workspace was used last.

    Attributes
    ----------
    nbytes : int
        Of its part that was ever used.
    zero_bytes : int
        So many bytes at its begin are 0 at rest; behind them are partial results.
    stream : int
    failures : int
        Those of the device that it was set right after.
    captured, captured_on : int
        `zero_bytes` of the plan that a graph has captured with it, 0 if none has; and the stream.
    """

    nbytes: int
    zero_bytes: int
    stream: int
    failures: int
    captured: int = 0
    captured_on: int = 0


class _Workspaces:
    """Callers' workspaces: those in memory of this package with it, foreign ones by address."""

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
        """Have the first `zero_bytes` of `nbytes` be 0 for a launch on `stream`.

        Raises
        ------
        ValueError
            A graph has the workspace, for a plan that has its partial results elsewhere.
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
        if use is None:  # the caller says that it is 0
            use = uses[address] = _Use(nbytes, nbytes, stream, device.failures)
        if memory is not None and use.captured not in (0, zero_bytes):
            raise ValueError(
                f"workspace at {address:#x} is part of a graph, for a plan with {use.captured} "
                f"bytes of counters; this plan has {zero_bytes}: give it a workspace of its own "
                "(plan.new_workspace())"
            )
        capturing = bool(stream) and device.is_capturing(stream)
        failed = use.failures != device.failures  # what was 0 behind the counters may not be
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
        """Know that a launch without counters writes there.

        Raises
        ------
        ValueError
            A graph has a part of it, for a plan with counters.
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
        """Set right what was used on a stream that was waited for; None: on any, all were.

        Only what a graph holds: its replays come without a run that could do it. And only memory of
        this package, which is there as long as its array: foreign memory may be of another use.
        """
        with self._lock:
            for memory in [memory for memory in self._own if memory.device is device]:
                for address, use in (memory.uses or {}).items():
                    stale = use.captured and use.failures != device.failures
                    if not stale or stream not in (None, use.captured_on):
                        continue
                    # Not if the failure took the device along; then no launch succeeds either.
                    with contextlib.suppress(HipError):
                        device.clear(address, use.captured, stream or 0)
                        use.failures = device.failures


_streams = _Streams()
_workspaces = _Workspaces()


of_stream = _streams.of
prepare = _workspaces.prepare
overwrite = _workspaces.overwrite


def new_workspace(nbytes: int, device: Runtime, stream: int) -> DeviceArray:
    """Memory that is 0, for use on `stream`."""
    made = upload(np.zeros(max(nbytes, 1), np.uint8), device)
    made.record_stream(stream)
    return made
