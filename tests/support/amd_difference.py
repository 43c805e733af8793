"""What a row about the two HIP runtimes consists of, and what its program begins with."""

from __future__ import annotations

from dataclasses import dataclass

ENDS = "the process ends"
HANGS = "waits for ever"

STALE = (
    "stricter on purpose: handles are numbers that are given once; AMD's are addresses, and read"
)
LATER = "stricter on purpose: the launch cannot run, and the call can still say so"
POINTER = "stricter on purpose: pointers are looked at before they are used"
CAPTURE = "stricter on purpose, as CUDA has it: the capture would lack what the call does"
HOST_SIDE = "of the HSA face: the host does not see the GPU's memory, nor the GPU pageable memory"
UNSUPPORTED = "the virtual device's own runtime does not have it"


@dataclass(frozen=True, slots=True)
class Difference:
    """A call, both answers, and why they differ."""

    call: str
    amd: str
    ours: str
    why: str
    program: str


PRELUDE = """
import threading
import numpy as np
from tests.support.hip_runtime import code_object, Gate
lib, P, S, by = hip.lib, ctypes.c_void_p, ctypes.c_size_t, ctypes.byref
def say(*words):
    print("said:", *words, flush=True)
def name(code):
    return "no error" if int(code) == 0 else lib.hipGetErrorName(int(code)).decode()
def tell(*codes):
    say(", ".join(name(code) for code in codes))
def h(handle):
    return P(int(handle))
stream = hip.hipStreamCreate()
host = np.zeros(1 << 16, np.uint8)
at = P(host.ctypes.data)
mode = hip.hip.hipStreamCaptureMode(0)
def device(size=4096):
    return P(int(hip.hipMalloc(size)))
def captured(call):
    hip.hipStreamBeginCapture(stream, mode)
    code = call()
    say(f"{name(code)}; {name(hip.hip.hipStreamEndCapture(stream)[0])} at its end")
def word():
    pointer = int(hip.hipHostMalloc(4096, 0))
    ctypes.memset(pointer, 0, 4096)
    return pointer
def read(pointer):
    return ctypes.c_uint32.from_address(pointer).value
def launch(function, shape=(1, 1, 1, 64, 1, 1), lds=0, params=None):
    buffer, size = ctypes.create_string_buffer(16), S(16)
    extra = (P * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
    return lib.hipModuleLaunchKernel(
        h(function), *shape, lds, None, params, None if params else extra
    )
def pool_props(**changes):
    props = hip.hip.hipMemPoolProps()
    props.allocType = hip.hip.hipMemAllocationType.hipMemAllocationTypePinned
    props.location.type = hip.hip.hipMemLocationType.hipMemLocationTypeDevice
    return props
"""
