"""The few calls of HIP that this example makes by itself: copies, a stream and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn

from .errors import ModelError


def _hip() -> Any:
    """hip-python, on the library that amdattn has bound."""
    amdattn.device_props()
    from hip import hip

    return hip


def call(name: str, *args: Any) -> Any:
    """A function of hip-python; its results without the error code, which must be 0."""
    error, *results = getattr(_hip(), name)(*args)
    if int(error):
        raise RuntimeError(f"{name}: {error.name}")
    return results[0] if results else None


def upload(array: amdattn.DeviceArray, host: NDArray[Any]) -> None:
    """Copy to an array without gaps; done when this returns."""
    if host.shape != array.shape or host.dtype != array.dtype:
        raise ValueError(f"{host.dtype}{host.shape} is not like {array.dtype}{array.shape}")
    host = np.ascontiguousarray(host)
    kind = _hip().hipMemcpyKind.hipMemcpyHostToDevice
    call("hipMemcpy", array.address, host.ctypes.data, host.nbytes, kind)


def require(nbytes: int, what: str) -> None:
    """Say so before anything is allocated if the device has less memory free than `what` needs.

    Raises
    ------
    ModelError
        It has.
    """
    error, free, _ = _hip().hipMemGetInfo()
    if not int(error) and nbytes > free:
        raise ModelError(f"{what} needs {nbytes / 2**30:.2f} GiB; {free / 2**30:.2f} GiB are free")


class Stream:
    """A stream of this example's own, and graphs of what was launched on it."""

    def __init__(self) -> None:
        self.handle = call("hipStreamCreate")
        self._graphs: list[Any] = []

    def wait(self) -> None:
        """Until all of it is done."""
        call("hipStreamSynchronize", self.handle)

    def captured(self, launch: Callable[[Any], None]) -> Any:
        """What `launch` does on the stream, as a graph that can be replayed."""
        mode = _hip().hipStreamCaptureMode.hipStreamCaptureModeGlobal
        call("hipStreamBeginCapture", self.handle, mode)
        try:
            launch(self.handle)
        finally:
            graph = call("hipStreamEndCapture", self.handle)
        replayed = call("hipGraphInstantiateWithFlags", graph, 0)
        call("hipGraphDestroy", graph)
        self._graphs.append(replayed)
        return replayed

    def replay(self, graph: Any) -> None:
        """All launches of a graph at once."""
        call("hipGraphLaunch", graph, self.handle)

    def close(self) -> None:
        """Wait, then free the graphs and the stream."""
        self.wait()
        for graph in self._graphs:
            call("hipGraphExecDestroy", graph)
        self._graphs.clear()
        call("hipStreamDestroy", self.handle)
