"""The package's own arrays: DeviceArray, and what interchange is made of (View, HostTensor)."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex

from amdattn import dlpack, memory, runtime
from amdattn.dlpack import RawMemory, compact_strides
from amdattn.dtypes import DType, as_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HOST_ALIGN_BYTES = 64  # JAX imports host memory without a copy only at this alignment


@dataclass(eq=False, slots=True)  # not frozen, which would triple the cost of making one
class View:
    """A strided view of somebody's memory, never changed once made. Strides count elements.

    `array` is the same memory as a numpy array for host memory, None for device memory. `facts` is
    all that checks depend on, hashable, and holding on to no memory.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    read_only: bool
    owner: object
    array: NDArray[Any] | None = None
    facts: tuple[object, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.facts = (
            self.address,
            self.shape,
            self.strides,
            self.dtype.name,
            self.read_only,
            self.on_device,
        )

    @property
    def on_device(self) -> bool:
        """True for device memory."""
        return self.array is None

    def extent(self) -> tuple[int, int]:
        """Addresses of the first byte and one past the last byte of the view."""
        if 0 in self.shape:
            return self.address, self.address
        first = last = 0
        for length, step in zip(self.shape, self.strides, strict=True):
            if step < 0:
                first += (length - 1) * step
            else:
                last += (length - 1) * step
        itemsize = self.dtype.itemsize
        return self.address + first * itemsize, self.address + (last + 1) * itemsize


class Memory:
    """Device memory that arrays are views of.

    Attributes
    ----------
    stream : int or None
        The hipStream_t of the last operation of this package that wrote to it; None if nothing
        can be pending.
    streams : set of int
        Every stream on which it may be in use.
    read_only : bool
        Its owner forbids that it is written.
    """

    __slots__ = ("__weakref__", "owner", "read_only", "stream", "streams")

    def __init__(self, owner: object = None) -> None:
        self.owner = owner
        self.read_only = False
        self.stream: int | None = None
        self.streams: set[int] = set()


class _Allocation(Memory):
    """Memory of this package, given back when the last array on it is collected."""

    __slots__ = ("_block", "_pool", "address")

    def __init__(self, nbytes: int, stream: int) -> None:
        self._pool = memory.pool()
        block = self._block = self._pool.take(nbytes, stream)
        self.owner = None
        self.read_only = False
        self.address = block.address
        self.stream = stream if block.is_used_again else None
        self.streams = block.streams

    def __del__(self) -> None:
        if hasattr(self, "_block") and not sys.is_finalizing():
            self._pool.give(self._block)


class DeviceArray:
    """A strided array in memory of the bound device.

    Made by `empty`, `asarray` and `from_dlpack`. Slicing and `transpose` give views on the same
    memory. Exchanges with other libraries through DLPack without a copy.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        In elements.
    address : int
        Device address of the first element.
    stream : int or None
        The hipStream_t of the last operation of this package that wrote to the array's memory;
        every later use is ordered after it. It must not be destroyed before; set None to promise
        that nothing is pending. Whoever uses `address` on another stream than the default one says
        so with `record_stream`.
    """

    __slots__ = ("_dtype", "_memory", "_view", "address", "shape", "strides")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: DType,
        memory: Memory,
    ) -> None:
        self.address = address
        self.shape = shape
        self.strides = strides
        self._dtype = dtype
        self._memory = memory
        self._view: View | None = None

    @property
    def stream(self) -> int | None:
        """Stream of the last write to the memory; see the class."""
        return self._memory.stream

    @stream.setter
    def stream(self, stream: int | None) -> None:
        self._memory.stream = stream
        if stream is not None:
            self._memory.streams.add(stream)

    def record_stream(self, stream: object) -> None:
        """Say that work on `stream`, launched so far, uses the memory.

        When the last array on it is dropped, the memory is not handed to another array before that
        work has completed. Operations of this package and DLPack exports do this by themselves.

        Parameters
        ----------
        stream : hipStream_t
            An int or a hip-python stream; None is the default stream.
        """
        self._memory.streams.add(runtime.stream_handle(stream))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type as a numpy dtype (ml_dtypes' for bfloat16)."""
        return self._dtype.numpy()

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps."""
        return self.size * self._dtype.itemsize

    def __repr__(self) -> str:
        return (
            f"DeviceArray(shape={self.shape}, strides={self.strides}, dtype={self._dtype.name}, "
            f"address={self.address:#x})"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional DeviceArray")
        return self.shape[0]

    def view(self) -> View:
        """The array's memory as a View."""
        if self._view is None:
            self._view = View(
                self.address,
                self.shape,
                self.strides,
                self._dtype,
                self._memory.read_only,
                self._memory,
            )
        return self._view

    def view_on(self, stream: int) -> View:
        """The same, ready for use on `stream`: after the last write to the memory."""
        used = self._memory
        written_on = used.stream
        if written_on is not None and written_on != stream:
            runtime.get().wait_for(stream, written_on)
        used.streams.add(stream)
        return self._view or self.view()

    def transpose(self, *axes: int) -> DeviceArray:
        """A view with the axes in another order; without arguments in reverse."""
        order = axes or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes={axes} must be a permutation of 0..{self.ndim - 1}")
        return self._derived(
            self.address,
            tuple(self.shape[axis] for axis in order),
            tuple(self.strides[axis] for axis in order),
        )

    def __getitem__(self, key: object) -> DeviceArray:
        """A view by integers, slices and ``...``; nothing is copied."""
        address = self.address
        shape: list[int] = []
        strides: list[int] = []
        for item, length, stride in zip(
            _full_key(key, self.ndim), self.shape, self.strides, strict=True
        ):
            if isinstance(item, slice):
                start, stop, step = item.indices(length)
                count = len(range(start, stop, step))
                shape.append(count)
                strides.append(stride * step)
                index = start if count else 0
            else:
                index = operator.index(item)
                if not -length <= index < length:
                    raise IndexError(f"index {index} is out of range for an axis of {length}")
                index %= length
            address += index * stride * self._dtype.itemsize
        return self._derived(address, tuple(shape), tuple(strides))

    def _derived(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> DeviceArray:
        return DeviceArray(address, shape, strides, self._dtype, self._memory)

    def numpy(self) -> NDArray[Any]:
        """Copy to the host: a new C-contiguous numpy array. Waits for the array's stream."""
        import numpy as np

        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        low, high = self.view().extent()
        raw = host_empty((high - low,), as_dtype("uint8"))
        device = runtime.get()
        device.download(raw.ctypes.data, low, high - low, self.stream or 0)
        device.synchronize(self.stream or 0)
        item = self._dtype.itemsize
        strided = np.ndarray(
            self.shape,
            self.dtype,
            raw,
            offset=self.address - low,
            strides=tuple(step * item for step in self.strides),
        )
        return strided if strided.flags.c_contiguous else strided.copy(order="C")

    # -- DLPack producer -------------------------------------------------------------------------

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.ROCM, runtime.get().ordinal)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the array, ordered on the consumer's `stream`; see the DLPack specification."""
        here = self.__dlpack_device__()
        if dl_device is None or tuple(dl_device) == here:
            source = self._copy_on_device() if copy else self
            consumer = _consumer_stream(stream)
            if consumer != memory.UNKNOWN_STREAM and source.stream is not None:
                runtime.get().wait_for(consumer, source.stream)
            source._memory.streams.add(consumer)
            exported = RawMemory(
                source.address,
                source.shape,
                source.strides,
                source._dtype,
                source._memory,
                source._memory.read_only,
            )
            return dlpack.export_tensor(exported, source._dtype, here, max_version, bool(copy))
        if tuple(dl_device) == (dlpack.CPU, 0):
            if copy is False:
                raise BufferError("device memory reaches the host only by a copy (copy=False)")
            return HostTensor(self.numpy()).__dlpack__(max_version=max_version, copied=True)
        raise BufferError(f"dl_device={dl_device} is neither {here} nor the CPU")

    def _copy_on_device(self) -> DeviceArray:
        low, high = self.view().extent()
        stream = self.stream or 0
        self._memory.streams.add(stream)
        allocation = _Allocation(high - low, stream)
        allocation.stream = stream
        runtime.get().copy_on_device(allocation.address, low, high - low, stream)
        address = allocation.address + self.address - low
        return DeviceArray(address, self.shape, self.strides, self._dtype, allocation)


def _full_key(key: object, ndim: int) -> list[Any]:
    items = list(key) if isinstance(key, tuple) else [key]
    # By identity: comparing would ask arrays, which have no single truth value.
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can hold only one ellipsis")
    if not ellipses:
        ellipses = [len(items)]
        items.append(Ellipsis)
    at = ellipses[0]
    missing = ndim - (len(items) - 1)
    if missing < 0:
        raise IndexError(f"{len(items) - 1} indices for {ndim} dimensions")
    items[at : at + 1] = [slice(None)] * missing
    for item in items:
        if not isinstance(item, (slice, SupportsIndex)):
            raise TypeError(f"DeviceArray index {item!r} must be an int, a slice or ...")
    return items


def _consumer_stream(stream: int | None) -> int:
    """Rules of the array API standard for ROCm: None is the default stream, -1 is not said."""
    if stream is None:
        return 0
    if stream == memory.UNKNOWN_STREAM:
        return stream
    if stream in (1, 2) or stream < 0:
        raise ValueError(f"stream={stream} is not allowed on ROCm (have None, -1, 0 and > 2)")
    return stream


class HostTensor:
    """A DLPack producer for a numpy array of any element type, bfloat16 included."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
        copied: bool = False,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != (dlpack.CPU, 0):
            raise BufferError(f"dl_device={dl_device} is not the CPU")
        array = self._array.copy() if copy else self._array
        dtype = as_dtype(array.dtype)
        strides = tuple(step // dtype.itemsize for step in array.strides)
        read_only = not array.flags.writeable
        memory = RawMemory(array.ctypes.data, array.shape, strides, dtype, array, read_only)
        return dlpack.export_tensor(
            memory, dtype, (dlpack.CPU, 0), max_version, copied or bool(copy)
        )


# -- making arrays ---------------------------------------------------------------------------------


def empty(shape: int | Sequence[int], dtype: object = "bfloat16") -> DeviceArray:
    """A compact device array with undefined contents.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : str or numpy dtype
        E.g. "bfloat16" or "float32".
    """
    lengths = (shape,) if isinstance(shape, int) else tuple(operator.index(n) for n in shape)
    if any(n < 0 for n in lengths):
        raise ValueError(f"shape={lengths} must not be negative")
    return allocate(lengths, compact_strides(lengths), as_dtype(dtype))


def allocate(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, stream: int = 0
) -> DeviceArray:
    """The same, for use on `stream`, of a shape and its compact strides, known to be right."""
    allocation = _Allocation(math.prod(shape) * dtype.itemsize, stream)
    return DeviceArray(allocation.address, shape, strides, dtype, allocation)


def host_empty(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """An uninitialised numpy array aligned so that others can import it without a copy."""
    import numpy as np

    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + HOST_ALIGN_BYTES, np.uint8)
    skip = -raw.ctypes.data % HOST_ALIGN_BYTES
    return raw[skip : skip + nbytes].view(dtype.numpy()).reshape(shape)
