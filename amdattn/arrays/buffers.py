"""The package's own arrays, and the functions that create them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arrays import dlpack, dlpack_export, indexing
from amdattn.arrays.allocation import Allocation, Memory
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.device.runtime import Runtime
from amdattn.dtypes import DType, as_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DEVICE_KIND = "rocm"
HOST_ALIGN_BYTES = 64  # JAX imports host memory without a copy only at this alignment


class DeviceArray:
    """A strided array in memory of a device.

    Made by `empty`, `asarray` and `from_dlpack`. Slicing and `transpose` give views on the same
    memory. Other libraries exchange it through DLPack without a copy. `__dlpack__` has all keywords
    of version 1.3: `max_version` (versioned capsules, or legacy ones, in which read-only memory is
    not exported), `stream` (None, 0, -1 or a hipStream_t), `dl_device` (the array's own device, or
    the CPU, by a complete copy) and `copy`.

    Attributes
    ----------
    shape : tuple of int
        It cannot be assigned, nor can `strides` and `address`: launches rely on all three.
    strides : tuple of int
        In elements.
    address : int
        Device address of the first element.
    stream : int or None
        The hipStream_t of the last operation of this package that wrote to the array's memory;
        every later use is ordered after it. The stream must not be destroyed before that; set None
        to promise that nothing is pending. Code that uses `address` on another stream than the
        default one calls `record_stream`.
    """

    __slots__ = ("_address", "_dtype", "_memory", "_shape", "_strides", "_view")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: DType,
        memory: Memory,
    ) -> None:
        self._address = address
        self._shape = shape
        self._strides = strides
        self._dtype = dtype
        self._memory = memory
        self._view: View | None = None

    @property
    def address(self) -> int:
        """Device address of the first element."""
        return self._address

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index of an axis to the next."""
        return self._strides

    @property
    def stream(self) -> int | None:
        """Stream of the last write to the memory; see the class."""
        return self._memory.stream

    @stream.setter
    def stream(self, stream: int | None) -> None:
        if stream is not None:
            if type(stream) is not int or not 0 <= stream < runtime.MAX_STREAM:
                stream = runtime.stream_handle(stream)
            self._memory.streams.add(stream)
        self._memory.stream = stream

    @property
    def memory(self) -> Memory:
        """The memory that the array is a view of."""
        return self._memory

    def record_stream(self, stream: object) -> None:
        """Declare that work launched on `stream` so far uses the memory.

        After the last array on it is dropped, the memory is not given to another array before that
        work has completed. Operations of this package and DLPack exports call this themselves.

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
    def device(self) -> str:
        """The device of the memory, such as "rocm:0", with HIP's number of it."""
        return f"{_DEVICE_KIND}:{self._memory.device.ordinal}"

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
        """Bytes of all elements, without gaps between them."""
        return self.size * self._dtype.itemsize

    def __repr__(self) -> str:
        return (
            f"DeviceArray(shape={self.shape}, strides={self.strides}, dtype={self._dtype.name}, "
            f"address={self.address:#x})"
        )

    def __bool__(self) -> bool:
        """The truth of the only element; waits for the array's stream."""
        if self.size != 1:
            raise ValueError(f"the truth of a DeviceArray of shape {self.shape} is ambiguous")
        return bool(self.item())

    def __iter__(self) -> Iterator[DeviceArray]:
        """Views along the first axis."""
        return iter([self[i] for i in range(len(self))])

    def __contains__(self, value: object) -> bool:
        raise TypeError("elements are in device memory: ask .numpy() what it contains")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional DeviceArray")
        return self.shape[0]

    def view(self) -> View:
        """The array's memory as a View."""
        if self._view is None:
            self._view = View(
                self._address,
                self._shape,
                self._strides,
                self._dtype,
                self._memory.read_only,
                self._memory,
                ordinal=self._memory.device.ordinal,
            )
        return self._view

    def view_on(self, stream: int) -> View:
        """The view, ordered for use on `stream` after the last write to the memory."""
        used = self._memory
        written_on = used.stream
        if written_on is not None and written_on != stream:
            written_on = used.pending()
            if written_on is not None:
                used.device.wait_for(stream, written_on)
        used.streams.add(stream)
        return self._view or self.view()

    def copy_on(self, stream: int) -> DeviceArray:
        """A copy with the same shape and strides, made on `stream`, a hipStream_t or 0."""
        device = self._memory.device
        low, high = self.view_on(stream).extent()
        copy = Allocation(high - low, stream, device)
        copy.stream = stream
        if low < high:
            device.copy_on_device(copy.address, low, high - low, stream)
            # The next write to the array, on its stream, must wait until the copy has read it.
            if not (stream and device.is_capturing(stream)):
                device.wait_for(self.stream or 0, stream)
        address = copy.address + self.address - low
        return DeviceArray(address, self.shape, self.strides, self._dtype, copy)

    def transpose(self, *axes: int) -> DeviceArray:
        """A view with the axes in another order; in reverse order without arguments."""
        order = axes or tuple(reversed(range(self.ndim)))
        order = tuple(scalars.integer("axes", axis) for axis in order)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes={axes} must be a permutation of 0..{self.ndim - 1}")
        return self._derived(
            self.address,
            tuple(self.shape[axis] for axis in order),
            tuple(self.strides[axis] for axis in order),
        )

    def __getitem__(self, key: object) -> DeviceArray:
        """A view by integers, slices and ``...``; nothing is copied."""
        skipped, shape, strides = indexing.index(key, self.shape, self.strides)
        return self._derived(self.address + skipped * self._dtype.itemsize, shape, strides)

    def reshape(self, *shape: Any) -> DeviceArray:
        """A view of another shape with the elements in the same order; one length may be -1.

        Raises
        ------
        ValueError
            The array has another number of elements, or gaps that no view can step over.
        """
        lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        wanted = tuple(scalars.integer("shape", length) for length in lengths)
        return self._derived(self.address, *indexing.reshape(self.shape, self.strides, wanted))

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
        device = self._memory.device
        stream = self._memory.pending() or 0
        device.download(raw.ctypes.data, low, high - low, stream)
        device.synchronize(stream)
        item = self._dtype.itemsize
        strided = np.ndarray(
            self.shape,
            self.dtype,
            raw,
            offset=self.address - low,
            strides=tuple(step * item for step in self.strides),
        )
        return strided if strided.flags.c_contiguous else strided.copy(order="C")

    def item(self) -> Any:
        """The only element as a Python number. Waits for the array's stream."""
        if self.size != 1:
            raise ValueError(
                f"item() of a DeviceArray of shape {self.shape}: it must have 1 element"
            )
        return self.numpy().item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Copy to the host for numpy; ``copy=False`` raises a ValueError."""
        if copy is False:
            raise ValueError("device memory reaches the host only by a copy (copy=False)")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value: loading copies the elements to the current device."""
        return _of_bytes, (self.numpy().tobytes(), self.shape, self._dtype.name)

    # -- DLPack producer -------------------------------------------------------------------------

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.ROCM, self._memory.device.ordinal)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the array, ordered on the consumer's `stream`; see the DLPack specification.

        Raises
        ------
        BufferError
            `dl_device` and `copy` cannot be satisfied, or a legacy capsule is asked of read-only
            memory.
        ValueError
            A keyword has a value that the specification does not define.
        """
        return dlpack_export.export(self, stream, max_version, dl_device, copy)


# -- making arrays ---------------------------------------------------------------------------------


def empty(
    shape: int | Sequence[int], dtype: object = "bfloat16", device: object = None
) -> DeviceArray:
    """A compact device array with undefined contents.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : str or numpy dtype
        E.g. "bfloat16" or "float32".
    device : int or str, optional
        HIP's number of the device, or a name like "rocm:1"; the default is this thread's current
        device.
    """
    lengths = indexing.lengths_of(shape)
    return allocate(lengths, compact_strides(lengths), as_dtype(dtype), device=device_named(device))


def device_named(device: object) -> Runtime:
    """The device that an argument `device` names: None, a number, or a name such as "rocm:0"."""
    if device is None:
        return runtime.get()
    found = scalars.read("device", device)
    if isinstance(found, str):
        kind, _, number = found.partition(":")
        if kind != _DEVICE_KIND or not (number or "0").isdecimal():
            raise ValueError(f'device={device!r} must be a number or a name like "rocm:0"')
        return runtime.get(int(number or "0"))
    return runtime.get(scalars.integer("device", found))


def allocate(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    stream: int = 0,
    device: Runtime | None = None,
) -> DeviceArray:
    """`empty` for use on `stream`, with a shape and compact strides that were checked."""
    nbytes = math.prod(shape) * dtype.itemsize
    allocation = Allocation(nbytes, stream, device or runtime.get())
    return DeviceArray(allocation.address, shape, strides, dtype, allocation)


def upload(host: NDArray[Any], device: Runtime | None = None) -> DeviceArray:
    """Copy a C-contiguous numpy array to a compact device array. Waits for the copy."""
    device = device or runtime.get()
    strides = compact_strides(host.shape)
    result = allocate(host.shape, strides, as_dtype(host.dtype), device=device)
    if host.size:
        device.upload(result.address, host.ctypes.data, host.nbytes)
        device.synchronize(0)  # the copy may still read the host array
        result.stream = None
    return result


def _of_bytes(elements: bytes, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    import numpy as np

    return upload(np.frombuffer(elements, as_dtype(dtype).numpy()).reshape(shape))


def host_empty(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """An uninitialised numpy array aligned so that others can import it without a copy."""
    import numpy as np

    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + HOST_ALIGN_BYTES, np.uint8)
    skip = -raw.ctypes.data % HOST_ALIGN_BYTES
    return raw[skip : skip + nbytes].view(dtype.numpy()).reshape(shape)
