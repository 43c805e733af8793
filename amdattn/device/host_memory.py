"""Host memory at addresses from other libraries, checked by asking the kernel first.

A wrong pointer is then an error of the call, and does not end the process.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import re

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_MAX_ADDRESS = 2**63 - 1
_MS_ASYNC = 1
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (r?)-?[w-](x?)", re.MULTILINE)

_libc = ctypes.CDLL(None)
_libc.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_memory: int | None = None  # /proc/self/mem, as a file descriptor


def read(address: int, nbytes: int) -> bytes:
    """The bytes at an address.

    Raises
    ------
    ValueError
        The bytes cannot be read.
    """
    global _memory
    if 0 < address < _MAX_ADDRESS:
        if _memory is None:
            _memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(_memory, nbytes, address)
        except OSError:
            found = b""
        if len(found) == nbytes:
            return found
    raise ValueError(f"{nbytes} bytes at {address:#x} cannot be read")


class _Mapped:
    """Ranges of addresses that may be read or executed, as last queried."""

    def __init__(self, kind: int) -> None:
        self._kind = kind  # group of _LINE
        self._begins: list[int] = []
        self._ends: list[int] = []

    def has(self, low: int, high: int) -> bool:
        """Whether all of a range is mapped with these rights."""
        if self._holds(low, high) and _is_mapped(low, high):
            return True
        self._ask()
        return self._holds(low, high)

    def _holds(self, low: int, high: int) -> bool:
        nth = bisect.bisect_right(self._begins, low) - 1
        return nth >= 0 and high <= self._ends[nth]

    def _ask(self) -> None:
        begins: list[int] = []
        ends: list[int] = []
        with open("/proc/self/maps", "rb") as maps:
            for line in _LINE.finditer(maps.read()):
                if not line[self._kind]:
                    continue
                begin = int(line[1], 16)
                if ends and ends[-1] == begin:
                    ends[-1] = int(line[2], 16)
                else:
                    begins.append(begin)
                    ends.append(int(line[2], 16))
        self._begins, self._ends = begins, ends


_readable, _executable = _Mapped(3), _Mapped(4)


def is_readable(low: int, high: int) -> bool:
    """Whether every byte from `low` to before `high` can be read."""
    return low == high or (0 < low < high <= _MAX_ADDRESS and _readable.has(low, high))


def is_code(address: int) -> bool:
    """Whether there may be a function at an address."""
    return 0 < address < _MAX_ADDRESS and _executable.has(address, address + 1)


def _is_mapped(low: int, high: int) -> bool:
    """Whether the pages of a range are still mapped, with any rights; writes nothing."""
    begin = low - low % _PAGE_BYTES
    return bool(_libc.msync(begin, high - begin, _MS_ASYNC) == 0)


def _forget() -> None:
    """Forget the file in a child process, where it is the parent's memory."""
    global _memory
    if _memory is not None:
        os.close(_memory)
        _memory = None


os.register_at_fork(after_in_child=_forget)
