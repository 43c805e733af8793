"""Device memory that arrays are views of: this package's own, or another library's."""

from __future__ import annotations

import sys
from typing import Any

from amdattn.arrays import memory
from amdattn.device.runtime import Runtime


class Memory:
    """Device memory that arrays are views of.

    Attributes
    ----------
    device : Runtime
        The device that has the memory.
    stream : int or None
        The hipStream_t of the last operation of this package that wrote to it; None if nothing
        can be pending.
    streams : set of int
        Every stream on which it may be in use.
    uses : dict or None
        The state that `zero_at_rest` keeps of workspaces in it, by address.
    read_only : bool
        Whether its owner forbids writing it.
    """

    __slots__ = ("__weakref__", "_device", "_read_only", "owner", "stream", "streams", "uses")

    def __init__(self, device: Runtime, owner: object = None, read_only: bool = False) -> None:
        self._device = device
        self.owner = owner
        self._read_only = read_only
        self.stream: int | None = None
        self.streams: set[int] = set()
        self.uses: dict[int, Any] | None = None

    @property
    def device(self) -> Runtime:
        """The device that has the memory."""
        return self._device

    @property
    def read_only(self) -> bool:
        """Whether the owner forbids writing the memory."""
        return self._read_only

    def pending(self) -> int | None:
        """Return `stream`; if its owner has destroyed it, wait for all work and return None.

        Raises
        ------
        ValueError
            The stream was destroyed while a graph is being captured, when nothing can be waited
            for.
        """
        stream = self.stream
        if stream is None or not self.device.is_gone(stream):
            return stream
        if self.device.any_capturing():
            raise ValueError(
                f"an array was last written on stream {stream:#x}, which has been destroyed, and a "
                "graph is being captured: call amdattn.synchronize() and set array.stream = None "
                "before the capture begins"
            )
        self.device.synchronize_all()  # destroying a stream does not wait for its work
        self.stream = None
        return None


class Allocation(Memory):
    """Memory of this package, given back when the last array on it is collected."""

    __slots__ = ("_block", "_pool")

    def __init__(self, nbytes: int, stream: int, device: Runtime) -> None:
        self._device = device
        self._pool = memory.pool(device)
        block = self._block = self._pool.take(nbytes, stream)
        self.owner = self.uses = None
        self._read_only = False
        self.stream = stream if block.is_used_again else None
        self.streams = block.streams

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._block.address

    def __del__(self) -> None:
        if hasattr(self, "_block") and not sys.is_finalizing():
            try:
                self._pool.give(self._block)
            except KeyboardInterrupt:  # hipFree waits for the device
                self._device.interrupt_again()
