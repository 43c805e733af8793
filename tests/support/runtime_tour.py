"""What programs do with a HIP runtime beside launches, through the package.

Prints the digest of each result as JSON: those of two runtimes have to be alike. Results are also
held against each other here.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

import amdattn
from amdattn.device import runtime
from amdattn.device.runtime.launch_form import LaunchForm, probe

SHAPE = 1, 70, 2, 64


class Tour:
    """A device in use, and what was found."""

    def __init__(self) -> None:
        self.device = runtime.get()
        self.hip: Any = self.device.hip
        self.digests: dict[str, str] = {}
        rng = np.random.default_rng(0)
        self.host = [rng.standard_normal(SHAPE).astype(np.float16) for _ in range(3)]

    def call(self, name: str, *arguments: Any) -> Any:
        """A call of HIP; what it returns beside its status."""
        return self.device.check(name, getattr(self.hip, name)(*arguments))

    def saw(self, name: str, result: Any, like: str | None = None) -> None:
        """Keep the digest of a result, which may have to be that of an earlier one."""
        found = result.numpy() if isinstance(result, amdattn.DeviceArray) else np.asarray(result)
        self.digests[name] = hashlib.sha256(found.tobytes()).hexdigest()
        if like is not None and self.digests[name] != self.digests[like]:
            raise AssertionError(f"{name} differs from {like}")

    def in_memory_of(self, address: int) -> list[np.ndarray]:
        """The operands, one behind the other in host memory at an address."""
        size = self.host[0].nbytes
        places = [(ctypes.c_ubyte * size).from_address(address + i * size) for i in range(3)]
        copies = [np.frombuffer(place, np.float16).reshape(SHAPE) for place in places]
        for copy, source in zip(copies, self.host, strict=True):
            copy[...] = source
        return copies


def host_memory(tour: Tour) -> None:
    """Plain, pinned and registered memory of the host."""
    tour.saw("plain", amdattn.flash_attn_func(*tour.host))
    size = 3 * tour.host[0].nbytes
    pinned = tour.call("hipHostMalloc", size, 0)
    tour.saw("pinned", amdattn.flash_attn_func(*tour.in_memory_of(int(pinned))), "plain")
    tour.call("hipHostFree", pinned)
    own = np.zeros(size, np.uint8)
    tour.call("hipHostRegister", own.ctypes.data, size, 0)
    tour.saw("registered", amdattn.flash_attn_func(*tour.in_memory_of(own.ctypes.data)), "plain")
    tour.call("hipHostUnregister", own.ctypes.data)


def streams_and_graphs(tour: Tour) -> None:
    """A stream that is not the package's, a capture on it, and replays with other operands."""
    q, k, v = map(amdattn.asarray, tour.host)
    out = amdattn.empty(SHAPE, np.float16)
    stream = tour.call("hipStreamCreateWithFlags", 1)
    amdattn.flash_attn_func(q, k, v, out=out, stream=int(stream))
    tour.device.synchronize(int(stream))
    tour.saw("a foreign stream", out, "plain")
    mode = tour.hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    tour.call("hipStreamBeginCapture", stream, mode)
    amdattn.flash_attn_func(q, k, v, out=out, stream=int(stream))
    graph = tour.call("hipStreamEndCapture", stream)
    executable = tour.call("hipGraphInstantiateWithFlags", graph, 0)
    for name, source in (("other operands", tour.host[1]), ("the first ones", tour.host[0])):
        to_device = tour.hip.hipMemcpyKind.hipMemcpyHostToDevice
        tour.call("hipMemcpy", q.address, source.ctypes.data, source.nbytes, to_device)
        tour.call("hipGraphLaunch", executable, stream)
        tour.device.synchronize(int(stream))
        tour.saw(f"a replay, {name}", out, "plain" if source is tour.host[0] else None)
    tour.call("hipGraphExecDestroy", executable)
    tour.call("hipGraphDestroy", graph)
    tour.call("hipStreamDestroy", stream)


class Exported:
    """Somebody else's array, as DLPack shows it."""

    def __init__(self, array: amdattn.DeviceArray) -> None:
        self._array = array
        self.streams: list[object] = []

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        self.streams.append(stream)
        return self._array.__dlpack__(stream=stream, **options)


def dlpack(tour: Tour) -> None:
    """Arrays of others, in and out."""
    theirs = [Exported(amdattn.asarray(each)) for each in tour.host]
    tour.saw("DLPack", amdattn.asarray(amdattn.flash_attn_func(*theirs)), "plain")


def forms_of_arguments(tour: Tour) -> None:
    """Arguments as one block, and one by one."""
    for form in LaunchForm:
        tour.digests[form.value] = probe(tour.device, form).value


def all_lds(tour: Tour, path: str) -> None:
    """The last dwords of as much LDS as a CU has, by the kernel of lds_sizes.hip."""
    size = tour.device.props.lds_bytes
    function, _ = tour.device.load(Path(path).read_bytes(), "last_dwords")
    arguments = tour.device.new_kernarg_buffer(16, (0, 8))
    out = amdattn.empty((64,), np.uint32)
    arguments.block[:12] = struct.pack("<QI", out.address, size)
    tour.device.launch(function, (1, 1, 1), (64, 1, 1), arguments, 0, size)
    tour.device.synchronize_all()
    words = out.numpy()
    if not (words[0] - words == 4 * np.arange(64)).all():
        raise AssertionError(f"{size} bytes of LDS hold {words}")
    tour.saw(f"{size} bytes of LDS", words)


def main() -> None:
    """Script: the device and its runtime are the environment's; the argument is a code object."""
    tour = Tour()
    for part in (host_memory, streams_and_graphs, dlpack, forms_of_arguments):
        part(tour)
    all_lds(tour, sys.argv[1])
    print(json.dumps(tour.digests))


if __name__ == "__main__":
    main()
