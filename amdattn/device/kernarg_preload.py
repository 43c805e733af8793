"""Kernel arguments that are in SGPRs when a wave starts, and how to switch that off.

A kernel's descriptor says how many dwords of arguments are preloaded. Such a kernel begins with 256
bytes of code that load the same SGPRs, where firmware without preload starts it; other firmware
starts it behind them. If the length is 0, every firmware starts at the beginning, and the kernel
computes the same, one load later.
"""

from __future__ import annotations

import os
import struct

from amdattn.device import elf
from amdattn.errors import BindingError

VARIABLE = "AMDATTN_KERNARG_PRELOAD"
# In a descriptor of 64 bytes: 7 bits of length in dwords, then 9 bits of where they begin.
_DESCRIPTOR_BYTES = 64
_PRELOAD = struct.Struct("<H")
_PRELOAD_AT, _LENGTH_MASK = 58, 0x7F


def wanted() -> bool:
    """Whether kernels that are built for it get their arguments preloaded."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise BindingError(f"{VARIABLE}={value!r} must be 1, the default, or 0")
    return value != "0"


def length(image: bytes, symbol: str) -> int:
    """Dwords of arguments that a kernel has preloaded; raises the ValueError of `elf`."""
    return int(_PRELOAD.unpack_from(image, _place(image, symbol))[0]) & _LENGTH_MASK


def without(image: bytes, symbol: str) -> bytes:
    """The code object with that length set to 0; raises the ValueError of `elf`."""
    place = _place(image, symbol)
    (found,) = _PRELOAD.unpack_from(image, place)
    changed = bytearray(image)
    _PRELOAD.pack_into(changed, place, found & ~_LENGTH_MASK)
    return bytes(changed)


def _place(image: bytes, symbol: str) -> int:
    descriptor = elf.place_of(image, f"{symbol}.kd")
    if descriptor.size != _DESCRIPTOR_BYTES:
        raise ValueError(f"{symbol}.kd has {descriptor.size} bytes, not {_DESCRIPTOR_BYTES}")
    return descriptor.offset + _PRELOAD_AT
