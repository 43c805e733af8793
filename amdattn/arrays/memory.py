"""Device memory of arrays, and the cache of memory that dropped arrays leave.

`hipFree` waits for the device, so memory is returned to the driver only on demand. Until then the
next array of a similar size gets it, by the rule of torch's allocator: at once on the stream that
the memory was allocated for, where launches run in order, and elsewhere only after every other
stream that has used it is past that use.

No memory is freed while a graph is being captured, whichever thread drops an array.

On the virtual device the cache is off while it executes launches. Every array is then an allocation
of its own, as short as the array, so that the device sees accesses beyond it, after it was freed
and before it was written, and checked mode's findings name the right array.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from amdattn.device import runtime
from amdattn.errors import AmdattnError, HipError

NO_CACHE_VARIABLE = "AMDATTN_NO_MEMORY_CACHING"  # debugging tools see every allocation then
UNKNOWN_STREAM = -1  # the stream of a DLPack consumer that orders its own work
_SMALLEST_BYTES = 512
_STEPS_BITS = 3  # of 8 sizes per power of two: at most an eighth is unused
_OUT_OF_MEMORY = "hipErrorOutOfMemory"


class Block:
    """Device memory of one size.

    Attributes
    ----------
    nbytes : int
        Bytes of the allocation, at least as many as were asked for.
    home : int
        The stream that it was allocated for, on which it may be reused at once.
    is_used_again : bool
        Work of an earlier user may be pending on the home stream.
    streams : set of int
        Every stream that has used it since.
    """

    __slots__ = ("address", "home", "is_used_again", "nbytes", "streams")

    def __init__(self, address: int, nbytes: int, home: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.home = home
        self.is_used_again = False
        self.streams = {home}


class Pool:
    """Allocates blocks on one device, reusing those that were given back. Thread-safe.

    Attributes
    ----------
    reuses : bool
        False: blocks are exactly as long as asked for, and are freed when they are given back.
    """

    def __init__(self, device: runtime.Runtime, reuses: bool) -> None:
        self.reuses = reuses
        self._device = device
        self._lock = threading.Lock()
        # Destructors run at any time, even inside `take` in the same thread, so giving back takes
        # no lock and makes no HIP call.
        self._returned: deque[Block] = deque()
        self._idle: defaultdict[tuple[int, int], list[Block]] = defaultdict(list)
        # Blocks used on other streams than their home, with an event for each stream.
        self._awaited: list[tuple[Block, list[Any]]] = []

    def take(self, nbytes: int, stream: int) -> Block:
        """A block for use on `stream`, with undefined contents.

        Raises
        ------
        HipError
            The device lacks the memory even after the cached blocks are freed.
        """
        if not self.reuses:
            self._free_returned()
            return Block(self._device.malloc(nbytes), nbytes, stream)
        nbytes = size_class(nbytes)
        with self._lock:
            if self._returned:
                self._sort_returned()
            if self._awaited:
                self._poll()
            idle = self._idle.get((nbytes, stream))
            if idle:
                return idle.pop()
        try:
            return Block(self._device.malloc(nbytes), nbytes, stream)
        except HipError as error:
            if error.name != _OUT_OF_MEMORY:
                raise
        self.empty()
        return Block(self._device.malloc(nbytes), nbytes, stream)

    def give(self, block: Block) -> None:
        """Take back a block that no array uses any more."""
        block.is_used_again = True
        self._returned.append(block)
        if not self.reuses:
            self._free_returned()

    def empty(self) -> None:
        """Free every block that is not in use. Waits for the device."""
        with self._lock:
            blocks = [block for block, _ in self._awaited]
            for _, events in self._awaited:
                self._destroy(events)
            for idle in self._idle.values():
                blocks += idle
            self._awaited.clear()
            self._idle.clear()
            while self._returned:
                blocks.append(self._returned.popleft())
        failures = []
        for block in blocks:
            try:
                self._device.free(block.address)
            except HipError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    @property
    def cached_bytes(self) -> int:
        """Bytes of all blocks that are not in use."""
        with self._lock:
            waiting = [*self._returned, *(block for block, _ in self._awaited)]
            return sum(b.nbytes for idle in [waiting, *self._idle.values()] for b in idle)

    def _free_returned(self) -> None:
        """Free blocks that were given back, unless a graph is being captured.

        hipFree waits for the device, which is not allowed in a capture, and captured launches may
        use this memory.
        """
        try:
            while self._returned and not self._device.any_capturing():
                self._free(self._returned.popleft())
        except IndexError:  # another thread took the last block
            pass
        except AmdattnError:  # a child process has no device
            self._returned.clear()

    def _free(self, block: Block) -> None:
        # After a fault every HIP call fails, and a destructor cannot report it.
        with contextlib.suppress(AmdattnError):
            self._device.free(block.address)

    # -- with the lock held ----------------------------------------------------------------------

    def _sort_returned(self) -> None:
        for _ in range(len(self._returned)):
            block = self._returned.popleft()
            streams = block.streams
            if len(streams) == 1:
                self._idle[block.nbytes, block.home].append(block)
            elif UNKNOWN_STREAM in streams:
                if self._device.any_capturing():
                    self._returned.append(block)
                else:
                    self._free(block)
            else:
                self._await(block)

    def _await(self, block: Block) -> None:
        """Record events on the streams other than its home that may still use a block."""
        others = block.streams - {block.home}
        events: list[Any] = []
        try:
            if any(map(self._is_capturing, others)):  # an event would become part of their graph
                self._returned.append(block)
                return
            for stream in others:
                events.append(self._device.record_event(stream))
        except HipError:  # a stream was destroyed
            self._destroy(events)
            self._free(block)
            return
        self._awaited.append((block, events))

    def _poll(self) -> None:
        waiting, self._awaited = self._awaited, []
        for block, events in waiting:
            if all(map(self._device.event_done, events)):
                self._destroy(events)
                block.streams = {block.home}
                self._idle[block.nbytes, block.home].append(block)
            else:
                self._awaited.append((block, events))

    def _is_capturing(self, stream: int) -> bool:
        return bool(stream) and self._device.is_capturing(stream)

    def _destroy(self, events: list[Any]) -> None:
        for event in events:
            self._device.destroy_event(event)


def size_class(nbytes: int) -> int:
    """The size of an array's block: the next of 8 sizes per power of two, at least 512 bytes."""
    if nbytes <= _SMALLEST_BYTES:
        return _SMALLEST_BYTES
    step = 1 << (nbytes.bit_length() - 1 - _STEPS_BITS)
    return -(-nbytes // step) * step


# -- the pools of the devices in use ---------------------------------------------------------------

_pools: dict[int, Pool] = {}  # by the number of the device
_making = threading.Lock()


def pool(device: runtime.Runtime | None = None) -> Pool:
    """The pool of a device, or of the current one, for the life of the process."""
    device = device or runtime.get()
    found = _pools.get(device.ordinal)
    if found is None:
        with _making:
            found = _pools.get(device.ordinal)
            if found is None:
                off = os.environ.get(NO_CACHE_VARIABLE, "") not in ("", "0")
                found = Pool(device, device.choice.kind != "virtual" and not off)
                _pools[device.ordinal] = found
    return found


def empty_cache() -> None:
    """Return the memory of dropped arrays on every device to the driver, for other libraries.

    It waits for the devices. The memory of existing arrays is untouched. An allocation that fails
    does this itself, on its device, and tries again.
    """
    for found in tuple(_pools.values()) or (pool(),):
        found.empty()


@contextlib.contextmanager
def caching(on: bool) -> Iterator[None]:
    """Switch the cache of the current device on or off inside the block."""
    mine = pool()
    before = mine.reuses
    mine.reuses = on
    try:
        yield
    finally:
        mine.reuses = before
        if not before:
            mine.empty()
