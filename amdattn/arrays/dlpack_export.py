"""Device arrays as DLPack capsules, ordered on the stream of their consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arrays import dlpack, memory
from amdattn.arrays.allocation import Allocation, Memory
from amdattn.arrays.dlpack import HostTensor, RawMemory
from amdattn.device import runtime

if TYPE_CHECKING:
    from amdattn.arrays.buffers import DeviceArray


def export(
    array: DeviceArray,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """What `array.__dlpack__` gives; parameters as the DLPack specification has them."""
    here = array.__dlpack_device__()
    if dl_device is None or tuple(dl_device) == here:
        source, address = _copied(array) if copy else (array.memory, array.address)
        consumer = _consumer_stream(stream)
        if consumer != memory.UNKNOWN_STREAM and source.stream is not None:
            source.device.wait_for(consumer, source.stream)
        source.streams.add(consumer)
        dtype = array.view().dtype
        exported = RawMemory(address, array.shape, array.strides, dtype, source, source.read_only)
        return dlpack.export_tensor(exported, dtype, here, max_version, bool(copy))
    if tuple(dl_device) == (dlpack.CPU, 0):
        if copy is False:
            raise BufferError("device memory reaches the host only by a copy (copy=False)")
        return HostTensor(array.numpy()).__dlpack__(max_version=max_version, copied=True)
    raise BufferError(f"dl_device={dl_device} is neither {here} nor the CPU")


def _copied(array: DeviceArray) -> tuple[Memory, int]:
    """Memory of the same layout with a copy of the elements, and where the first one is."""
    low, high = array.view().extent()
    stream = array.stream or 0
    array.memory.streams.add(stream)
    device = array.memory.device
    copy = Allocation(high - low, stream, device)
    copy.stream = stream
    device.copy_on_device(copy.address, low, high - low, stream)
    return copy, copy.address + array.address - low


def _consumer_stream(stream: int | None) -> int:
    """Rules of the array API standard for ROCm: None is the default stream, -1 is not said."""
    if stream is None:
        return 0
    stream = scalars.integer("stream", stream)
    if stream == memory.UNKNOWN_STREAM:
        return stream
    if stream in (1, 2) or stream < 0:
        raise ValueError(f"stream={stream} is not allowed on ROCm (have None, -1, 0 and > 2)")
    return runtime.stream_handle(stream)
