"""Operations on host arrays: device copies that last for one call and keep their layout."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from amdattn.arrays.buffers import DeviceArray, allocate, host_empty, upload
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.device.runtime import Runtime
from amdattn.dtypes import as_dtype
from amdattn.errors import HipError
from amdattn.op.workspace import Region, WorkspaceLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Memory between the elements of strided operands is copied with them, up to this multiple of the
# elements' bytes; sparser operands are made compact on the host instead.
MAX_SPREAD = 2
WORKSPACE = "workspace"


@dataclasses.dataclass(slots=True)
class _Chunk:
    """A range of host memory that goes to the device in one copy, and the views inside it."""

    low: int
    high: int
    members: dict[str, View]


def run_on_host(
    inputs: Mapping[str, View],
    outputs: Mapping[str, View],
    aligned: Callable[[str, View], bool],
    run: Callable[[Mapping[str, View]], Mapping[str, DeviceArray]],
    device: Runtime,
    stream: int,
) -> dict[str, NDArray[Any]]:
    """Copy in, run, copy out.

    Parameters
    ----------
    inputs, outputs : dict of str to View
        Views on the host; results are also written to those of `outputs`.
    aligned : callable
        See `stage`.
    run : callable
        Launches on device views of the inputs. Returns every result, and "workspace", which is kept
        as long as launches may use it.

    Returns
    -------
    dict of str to numpy.ndarray
        The results.

    Raises
    ------
    ValueError
        A graph is being captured.
    HipError
        A launch faulted.
    """
    if stream and device.is_capturing(stream):
        raise ValueError(
            f"{next(iter(inputs))} is on the host, but a graph is being captured from the stream: "
            "replays read and write device memory, so pass device arrays"
        )
    try:
        results = _run_staged(inputs, aligned, run, device, stream)
    except (HipError, KeyboardInterrupt):
        # The call has failed, so its results are dropped and its thread may go on.
        for used in {0, stream}:
            with contextlib.suppress(HipError):
                device.synchronize(used)
        raise
    for name, view in outputs.items():
        assert view.array is not None
        view.array[...] = results[name]
    return results


def _run_staged(
    inputs: Mapping[str, View],
    aligned: Callable[[str, View], bool],
    run: Callable[[Mapping[str, View]], Mapping[str, DeviceArray]],
    device: Runtime,
    stream: int,
) -> dict[str, NDArray[Any]]:
    staged, memory = stage(inputs, aligned, device, stream)
    made = run(staged)
    results: dict[str, NDArray[Any]] = {}
    for name, array in made.items():
        if name != WORKSPACE:
            host = results[name] = host_empty(array.shape, array.view().dtype)
            device.download(host.ctypes.data, array.address, host.nbytes, stream)
    device.synchronize(stream)
    del memory, made, staged  # the kernels have finished, so their operands may be freed
    return results


def stage(
    views: Mapping[str, View],
    aligned: Callable[[str, View], bool],
    device: Runtime,
    stream: int,
) -> tuple[dict[str, View], DeviceArray]:
    """Copy host views to one device allocation; views that share memory are copied once.

    Parameters
    ----------
    aligned : callable
        Whether the kernel can take the device view of an operand with its strides. Others are made
        compact, as are those whose last stride is not 1.

    Returns
    -------
    staged : dict of str to View
        The same views, in device memory.
    memory : DeviceArray
        The memory of these views.
    """
    chunks = []
    for chunk in _merge(views):
        own_bytes = sum(
            view.array.nbytes for view in chunk.members.values() if view.array is not None
        )
        # Chunks start on a region boundary, so only their inner offsets decide the alignment.
        placed = (
            (name, _moved(view, view.address - chunk.low, device))
            for name, view in chunk.members.items()
        )
        if chunk.high - chunk.low <= MAX_SPREAD * own_bytes and all(
            _has_rows(view) and aligned(name, view) for name, view in placed
        ):
            chunks.append(chunk)
        else:
            chunks.extend(_compact(name, view) for name, view in chunk.members.items())
    layout = WorkspaceLayout.of(
        Region(str(i), chunk.high - chunk.low) for i, chunk in enumerate(chunks)
    )
    memory = allocate((layout.total_bytes,), (1,), as_dtype("uint8"), device=device)
    memory.record_stream(stream)
    staged = {}
    for chunk, region in zip(chunks, layout.regions, strict=True):
        base = memory.address + region.offset
        device.upload(base, chunk.low, region.nbytes, stream)
        for name, view in chunk.members.items():
            staged[name] = _moved(view, base + view.address - chunk.low, device)
    # The copies read host memory of the caller and of `_compact`, which must stay unchanged.
    device.synchronize(stream)
    return staged, memory


def uploaded(view: View, device: Runtime, stream: int) -> DeviceArray:
    """Copy a host view to a device array without gaps, for work on a stream."""
    assert view.array is not None
    made = upload(view.array.copy(order="C"), device)
    made.stream = stream
    return made


def _has_rows(view: View) -> bool:
    """Whether elements of a row lie next to each other."""
    return view.strides[-1] == 1 or view.shape[-1] == 1


def _merge(views: Mapping[str, View]) -> Iterable[_Chunk]:
    chunks: list[_Chunk] = []
    for name, view in sorted(views.items(), key=lambda item: item[1].extent()):
        low, high = view.extent()
        if chunks and low < chunks[-1].high:
            chunks[-1].high = max(chunks[-1].high, high)
            chunks[-1].members[name] = view
        else:
            chunks.append(_Chunk(low, high, {name: view}))
    return chunks


def _compact(name: str, view: View) -> _Chunk:
    assert view.array is not None
    array = view.array.copy(order="C")
    compact = View(
        array.ctypes.data, view.shape, compact_strides(view.shape), view.dtype, True, array, array
    )
    return _Chunk(*compact.extent(), {name: compact})


def _moved(view: View, address: int, device: Runtime) -> View:
    return View(
        *(address, view.shape, view.strides, view.dtype, view.read_only, None),
        ordinal=device.ordinal,
    )
