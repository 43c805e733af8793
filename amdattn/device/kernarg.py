"""Kernel argument blocks, laid out by the C headers in asm_src/args (the only definition).

cffi reads the struct; `struct` packs it, which is faster than assigning cffi fields one by one. The
manifest records the layout the code object was built with, and both must agree.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amdattn import paths
from amdattn.device.manifest import KernargSpec, KernelSpec
from amdattn.errors import ManifestError

# HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END: keys of the `extra` launch array.
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3

_FORMAT = {
    "uint64_t": "Q",
    "int64_t": "q",
    "uint32_t": "I",
    "int32_t": "i",
    "uint16_t": "H",
    "int16_t": "h",
    "uint8_t": "B",
    "int8_t": "b",
    "float": "f",
    "double": "d",
}


class Packer:
    """Packs one kernarg struct.

    Attributes
    ----------
    names : tuple of str
        Field names in memory order, in which `pack_into` takes values.
    size : int
        Bytes of the block.
    """

    def __init__(self, spec: KernargSpec) -> None:
        layout = _read_struct(spec.header, spec.struct)
        recorded = tuple(sorted(spec.fields, key=lambda field: field[1]))
        if layout.fields != recorded or layout.size != spec.size:
            differing = sorted(set(layout.fields) ^ set(recorded))
            raise ManifestError(
                f"struct {spec.struct} of {spec.header} is laid out differently than the manifest "
                f"records ({layout.size} and {spec.size} bytes): {differing}"
            )
        self.names = tuple(name for name, *_ in layout.fields)
        self.size = layout.size
        self._struct = struct.Struct(_struct_format(layout))
        self.pack_into = self._struct.pack_into

    def unpack(self, block: bytes) -> dict[str, int | float]:
        """The fields of a packed block, by name."""
        return dict(zip(self.names, self._struct.unpack(block), strict=True))


def packer(kernel: KernelSpec) -> Packer:
    """The (cached) packer of a kernel's argument struct."""
    return _packer(kernel.kernarg)


@functools.cache
def _packer(spec: KernargSpec) -> Packer:
    return Packer(spec)


@functools.cache
def _read_struct(header: str, name: str) -> KernargSpec:
    import cffi

    file = paths.args_dir() / header
    ffi = cffi.FFI()
    try:
        ffi.cdef(file.read_text(encoding="utf-8"))
        ctype = ffi.typeof(name)
    except (OSError, cffi.CDefError, cffi.FFIError) as error:
        raise ManifestError(f"cannot read struct {name} from {file}: {error}") from None
    fields = []
    for field_name, field in ctype.fields:
        c_type = field.type.cname
        if c_type not in _FORMAT:
            raise ManifestError(
                f"{name}.{field_name} has type {c_type}; kernel arguments are {', '.join(_FORMAT)}"
            )
        fields.append((field_name, field.offset, ffi.sizeof(c_type), c_type))
    return KernargSpec(name, header, ffi.sizeof(name), tuple(fields))


def _struct_format(layout: KernargSpec) -> str:
    """A little-endian format with explicit pads; "<" alone inserts none."""
    parts = ["<"]
    end = 0
    for _, offset, size, c_type in layout.fields:
        parts.append("x" * (offset - end) + _FORMAT[c_type])
        end = offset + size
    parts.append("x" * (layout.size - end))
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class LaunchTypes:
    """hip-python's types of the last two arguments of a launch; each wraps an address, or None."""

    params: Callable[[int | None], Any]
    extra: Callable[[int | None], Any]


class KernargBuffer:
    """A reusable kernarg block with its prebuilt launch parameter array; one per thread.

    The runtime copies the block before the launch returns, so it may be packed again at once.

    Parameters
    ----------
    size : int
        Bytes of the block.
    types : LaunchTypes
    offsets : tuple of int, optional
        Where each argument begins, to pass them one by one (kernelParams). None: pass one block
        (`extra`), which is faster.

    Attributes
    ----------
    block : bytearray
    params, extra
        The last two arguments of hipModuleLaunchKernel.
    """

    def __init__(
        self, size: int, types: LaunchTypes, offsets: tuple[int, ...] | None = None
    ) -> None:
        self.block = bytearray(size)
        self._pinned = (ctypes.c_ubyte * size).from_buffer(self.block)
        self._size = ctypes.c_size_t(size)
        begin = ctypes.addressof(self._pinned)
        if offsets is None:
            entries = [_BUFFER_POINTER, begin, _BUFFER_SIZE, ctypes.addressof(self._size), _END]
        else:
            entries = [begin + offset for offset in offsets]
        self._config = (ctypes.c_void_p * max(len(entries), 1))(*entries)
        config = ctypes.addressof(self._config)
        self.params = types.params(None if offsets is None else config)
        self.extra = types.extra(config if offsets is None else None)
