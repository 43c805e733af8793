"""The consumer's side of DLPack. It checks every field that a producer hands out.

A tensor is taken over only if all of it makes sense; otherwise the capsule remains the producer's,
which frees it.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from amdattn.arrays.dlpack import (
    CPU,
    FLAG_IS_COPIED,
    FLAG_READ_ONLY,
    HOST_KINDS,
    LEGACY,
    USED_LEGACY,
    USED_VERSIONED,
    VERSION,
    VERSIONED,
    capsule_pointer,
    compact_strides,
    is_capsule,
    rename_capsule,
)
from amdattn.device import host_memory
from amdattn.dtypes import DType, from_dlpack_code

_TENSOR = "QiiiBBHQQQ"
_MANAGED = struct.Struct(f"<{_TENSOR}8xQ")
_MANAGED_VERSIONED = struct.Struct(f"<II8xQQ{_TENSOR}")
_MAX_NDIM = 64  # as in numpy
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Owner:
    """Keeps an imported tensor alive; returns it to its producer when collected."""

    __slots__ = ("_address", "_deleter")

    def __init__(self, address: int, deleter: int) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        if self._deleter:
            _DELETER(self._deleter)(self._address)


class Imported(NamedTuple):
    """A tensor of another library. Strides count elements; `owner` keeps it alive.

    `extent` has the addresses of its first byte and past its last. `is_copied` says that its
    producer made it for this consumer alone, which a legacy capsule cannot express.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    extent: tuple[int, int]
    read_only: bool
    owner: object
    is_copied: bool


def import_tensor(
    producer: Any,
    stream: int | None,
    device: tuple[int, int] = (CPU, 0),
    copy: bool | None = None,
    dl_device: tuple[int, int] | None = None,
) -> Imported:
    """Take a tensor from an object with ``__dlpack__``.

    Parameters
    ----------
    stream : int or None
        The hipStream_t on which the tensor will be used, other than HIP's constants 1 and 2; None
        for host memory.
    device : (int, int)
        The DLPack device that the tensor names. All memory that the host reads counts as one.
    copy : bool or None
        The `copy` that the producer is asked for. Producers from before DLPack 1.0 cannot be asked:
        see `is_copied`.
    dl_device : (int, int) or None
        Another device, to which the producer is asked to copy the tensor.

    Raises
    ------
    BufferError
        The tensor is not a DLPack tensor, is malformed, or is on another device.
    ValueError
        Its element type is unknown.
    """
    capsule = _request(producer, stream, dl_device, copy)
    handle = id(capsule)
    if is_capsule(handle, VERSIONED):
        name, used, layout = VERSIONED, USED_VERSIONED, _MANAGED_VERSIONED
    elif is_capsule(handle, LEGACY):
        name, used, layout = LEGACY, USED_LEGACY, _MANAGED
    else:
        raise BufferError(f"__dlpack__ of {type(producer).__name__} gave no unused DLPack capsule")
    address = capsule_pointer(handle, name)
    try:
        fields = layout.unpack(host_memory.read(address, layout.size))
    except ValueError as error:
        raise _malformed(f"the capsule's tensor cannot be read: {error}") from None
    flags = 0
    if name is VERSIONED:
        (major, minor, deleter, flags), tensor = fields[:4], fields[4:]
        if major != VERSION[0]:
            raise BufferError(f"DLPack {major}.{minor} is not understood, only {VERSION[0]}.x is")
    else:
        tensor, deleter = fields[:-1], fields[-1]
    described = _described(tensor, dl_device or device, dl_device is not None)
    if deleter and deleter not in _deleters:
        if not host_memory.is_code(deleter):
            raise _malformed(f"deleter={deleter:#x} is no function")
        _deleters.add(deleter)
    rename_capsule(handle, used)
    is_copied = bool(flags & FLAG_IS_COPIED)
    return Imported(*described, bool(flags & FLAG_READ_ONLY), _Owner(address, deleter), is_copied)


_deleters: set[int] = set()  # deleters that were found to be functions: each library has its own


def _request(
    producer: Any, stream: int | None, dl_device: tuple[int, int] | None, copy: bool | None
) -> Any:
    """Ask the producer for its capsule, with the newest keywords that it knows."""
    keywords: dict[str, Any] = {"max_version": VERSION}
    if stream is not None:
        keywords["stream"] = stream
    if dl_device is not None:
        keywords["dl_device"] = dl_device
    if copy is not None:
        keywords["copy"] = copy
    while True:
        try:
            return producer.__dlpack__(**keywords)
        except TypeError as error:
            if not _is_refused(error, keywords) or not _lose_the_newest(keywords):
                raise


def _lose_the_newest(keywords: dict[str, Any]) -> bool:
    """Drop the keywords that the specification added last; False if none can be dropped."""
    for added in (("dl_device", "copy"), ("max_version",)):
        if any([keywords.pop(name, None) is not None for name in added]):
            return True
    return False


def _is_refused(error: TypeError, keywords: Iterable[str]) -> bool:
    """Whether a call failed because of its keywords, and not inside the callee.

    Then no Python frame lies below the caller's, unless the producer passes the keywords on to an
    older function, whose error names one. Errors that C code raises itself look the same; they are
    raised again at the last attempt.
    """
    below = error.__traceback__.tb_next if error.__traceback__ else None
    text = str(error)
    return below is None or ("keyword" in text and any(f"'{name}'" in text for name in keywords))


def _described(
    tensor: tuple[int, ...], device: tuple[int, int], is_asked: bool
) -> tuple[int, tuple[int, ...], tuple[int, ...], DType, tuple[int, int]]:
    """The address, shape, strides, element type and extent of a well-formed tensor."""
    data, kind, ordinal, ndim, code, bits, lanes, lengths, steps, byte_offset = tensor
    on_host = kind in HOST_KINDS and device[0] in HOST_KINDS
    if not on_host and (kind, ordinal) != device:
        why = (
            f"dl_device={device} was asked for" if is_asked else f"__dlpack_device__ said {device}"
        )
        raise BufferError(f"the DLPack tensor is on device {(kind, ordinal)}, where {why}")
    if not 0 <= ndim <= _MAX_NDIM:
        raise _malformed(f"ndim={ndim} is not in 0..{_MAX_NDIM}")
    nbytes = 8 * ndim
    if steps == lengths + nbytes and ndim:  # most tensors have both in one piece
        both = _read("shape", lengths, 2 * nbytes)
        shape, strides = both[:nbytes], both[nbytes:]
    else:
        shape = _read("shape", lengths, nbytes)
        strides = _read("strides", steps, nbytes) if steps else b""
    found = _laid_out(data, byte_offset, (code, bits, lanes), shape, strides)
    if on_host and not host_memory.is_readable(*found[-1]):
        raise _malformed("there is no memory of {:#x}..{:#x}".format(*found[-1]))
    return found


def _read(what: str, address: int, nbytes: int) -> bytes:
    if nbytes == 0:
        return b""
    if not address:
        raise _malformed(f"{what} is NULL, but there are axes")
    try:
        return host_memory.read(address, nbytes)
    except ValueError as error:
        raise _malformed(f"{what}: {error}") from None


@functools.lru_cache(maxsize=1024)
def _laid_out(
    data: int, byte_offset: int, element: tuple[int, int, int], lengths: bytes, steps: bytes
) -> tuple[int, tuple[int, ...], tuple[int, ...], DType, tuple[int, int]]:
    """The layout of a tensor from the bytes of `shape` and `strides`; b"": compact strides."""
    dtype = from_dlpack_code(*element)
    shape = struct.unpack(f"<{len(lengths) // 8}q", lengths)
    if shape and min(shape) < 0:
        raise _malformed(f"shape={shape} is negative")
    strides = struct.unpack(f"<{len(steps) // 8}q", steps) if steps else compact_strides(shape)
    size = math.prod(shape)
    if size == 0:
        return 0, shape, compact_strides(shape), dtype, (0, 0)
    if not data:
        raise _malformed(f"data is NULL, but there are {size} elements")
    # The stride along an axis of length 1 may be anything.
    strides = tuple(
        [step if n > 1 or abs(step) < 2**59 else 1 for n, step in zip(shape, strides, strict=True)]
    )
    reaches = [(n - 1) * step * dtype.itemsize for n, step in zip(shape, strides, strict=True)]
    address = data + byte_offset
    low = address + sum(reach for reach in reaches if reach < 0)
    high = address + sum(reach for reach in reaches if reach > 0) + dtype.itemsize
    if byte_offset >= 2**63 or low <= 0 or high >= 2**63:
        raise _malformed(
            f"data={data:#x}, byte_offset={byte_offset}, shape={shape}, strides={strides} leave "
            "the address space"
        )
    return address, shape, strides, dtype, (low, high)


def _malformed(why: str) -> BufferError:
    return BufferError(f"malformed DLPack tensor: {why}")
