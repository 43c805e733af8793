"""Device arrays as DLPack capsules, ordered on the stream of their consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amdattn import scalars
from amdattn.arrays import dlpack, memory
from amdattn.arrays.allocation import Memory
from amdattn.arrays.dlpack import HostTensor, RawMemory
from amdattn.arrays.views import View
from amdattn.device import runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Producer(Protocol):
    """An array on a device whose memory can be exported."""

    @property
    def memory(self) -> Memory:
        """The memory that the array is a view of."""

    def view(self) -> View:
        """The address, shape and strides of the array."""

    def numpy(self) -> NDArray[Any]:
        """A copy of the array on the host."""

    def copy_on(self, stream: int) -> Producer:
        """A copy of the array on the device, made on `stream`."""


def export(
    array: Producer,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The capsule of `array.__dlpack__`; the parameters are those of the DLPack specification.

    Raises
    ------
    BufferError
        It would need a copy that `copy` forbids, a device other than the array's own and the CPU,
        or a legacy capsule of read-only memory.
    ValueError
        A parameter has a value that the specification does not define.
    """
    dlpack.check_copy(copy)
    here = (dlpack.ROCM, array.memory.device.ordinal)
    there = here if dl_device is None else dlpack.device_pair("dl_device", dl_device)
    if there == (dlpack.CPU, 0):
        if stream is not None:
            raise ValueError(f"stream={stream!r} must be None for dl_device={dl_device}, the CPU")
        if copy is False:
            raise BufferError("device memory reaches the host only by a copy (copy=False)")
        return HostTensor(array.numpy(), copied=True).__dlpack__(max_version=max_version)
    if there != here:
        raise BufferError(f"dl_device={dl_device} is neither {here} nor the CPU, (1, 0)")
    consumer = _consumer_stream(stream)
    if copy:
        array = array.copy_on(
            (array.memory.pending() or 0) if consumer == memory.UNKNOWN_STREAM else consumer
        )
    source = array.memory
    if consumer != memory.UNKNOWN_STREAM and (pending := source.pending()) is not None:
        source.device.wait_for(consumer, pending)
    source.streams.add(consumer)
    view = array.view()
    exported = RawMemory(
        view.address, view.shape, view.strides, view.dtype, source, source.read_only
    )
    return dlpack.export_tensor(exported, view.dtype, here, max_version, bool(copy))


def _consumer_stream(stream: Any) -> int:
    """The array API standard's rule for ROCm: None is the default stream, and -1 names none."""
    if stream is None:
        return 0
    try:
        stream = scalars.integer("stream", stream)
    except TypeError as error:  # see check_copy
        raise ValueError(str(error)) from None
    if stream == memory.UNKNOWN_STREAM:
        return memory.UNKNOWN_STREAM
    if stream in (1, 2) or stream < 0:
        raise ValueError(f"stream={stream} is not allowed on ROCm (have None, -1, 0 and > 2)")
    return runtime.stream_handle(stream)
