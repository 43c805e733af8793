"""Calls that AMD's HIP runtime answers otherwise than the virtual device's own, and why.

Each is a program for a process of its own: what it says with `say` is compared with both columns.
`python -m tests.device.test_amd_differences` writes the table of docs/real-gpu.md from them.
"""

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

MEMORY = (
    Difference(
        "`hipFree` of an address within an allocation",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: it frees the whole of it",
        "tell(lib.hipFree(P(device().value + 16)))",
    ),
    Difference(
        "`hipFree` of pinned host memory",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: the wrong call",
        "tell(lib.hipFree(h(hip.hipHostMalloc(4096, 0))))",
    ),
    Difference(
        "`hipHostFree` of device memory",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: the wrong call",
        "tell(lib.hipHostFree(device()))",
    ),
    Difference(
        "`hipMemcpy` from device to host, between two addresses of the device",
        "no error",
        "hipErrorInvalidMemcpyDirection",
        "stricter on purpose: the direction is wrong",
        "tell(lib.hipMemcpy(device(), device(), S(64), 2))",
    ),
    Difference(
        "`hipHostRegister` of memory that is registered",
        "no error",
        "hipErrorHostMemoryAlreadyRegistered",
        "stricter on purpose: one `hipHostUnregister` undoes both",
        "lib.hipHostRegister(at, S(4096), 0); tell(lib.hipHostRegister(at, S(4096), 0))",
    ),
    Difference(
        "`hipHostRegister` of memory that can only be read",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: kernels may write what is registered",
        "libc = ctypes.CDLL(None); libc.mmap.restype = P\n"
        "page = libc.mmap(None, S(4096), 1, 0x22, -1, ctypes.c_long(0))\n"
        "tell(lib.hipHostRegister(P(page), S(4096), 0))",
    ),
    Difference(
        "`hipFreeAsync` of what `hipFreeAsync` has freed",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: it is freed twice",
        "p = h(hip.hipMallocAsync(4096, stream)); lib.hipFreeAsync(p, h(stream))\n"
        "tell(lib.hipFreeAsync(p, h(stream)))",
    ),
    Difference(
        "`hipMallocFromPoolAsync` of a pool that was destroyed",
        ENDS,
        "hipErrorInvalidValue",
        STALE,
        "pool = hip.hipMemPoolCreate(pool_props()); hip.hipMemPoolDestroy(pool)\n"
        "tell(hip.hip.hipMallocFromPoolAsync(100, pool, stream)[0])",
    ),
    Difference(
        "`hipMemPoolSetAccess` to reading alone",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: no access can be reading alone on one device",
        "pool = hip.hipMemPoolCreate(pool_props()); access = hip.hip.hipMemAccessDesc()\n"
        "access.location.type = hip.hip.hipMemLocationType.hipMemLocationTypeDevice\n"
        "access.flags = hip.hip.hipMemAccessFlags.hipMemAccessFlagsProtRead\n"
        "tell(hip.hip.hipMemPoolSetAccess(pool, access, 1)[0])",
    ),
    Difference(
        "`hipMemPoolCreate` of memory that other processes may open",
        "no error",
        "hipErrorNotSupported",
        UNSUPPORTED,
        "props = pool_props()\n"
        "types = hip.hip.hipMemAllocationHandleType\n"
        "props.handleTypes = types.hipMemHandleTypePosixFileDescriptor\n"
        "tell(hip.hip.hipMemPoolCreate(props)[0])",
    ),
    Difference(
        "`hipMemAddressReserve`, `hipMemCreate`, `hipMemMap`",
        "no error",
        "hipErrorNotSupported",
        UNSUPPORTED,
        "tell(lib.hipMemAddressReserve(by(P()), S(1 << 21), S(0), None, ctypes.c_ulonglong(0)))",
    ),
    Difference(
        "`hipIpcGetMemHandle`",
        "hipErrorInvalidValue",
        "hipErrorNotSupported",
        "neither has it; the HSA face names `hsa_amd_ipc_memory_create` on stderr",
        "tell(lib.hipIpcGetMemHandle(ctypes.create_string_buffer(64), device()))",
    ),
    Difference(
        "`hipMemcpyToSymbol` of a device variable's address",
        "hipErrorInvalidSymbol",
        "no error",
        "kinder: there are no registered host variables without a compiler's program",
        "module = hip.hipModuleLoadData(code_object())\n"
        "table, _ = hip.hipModuleGetGlobal(module, b'table')\n"
        "tell(lib.hipMemcpyToSymbol(h(table), at, S(16), S(8), 1))",
    ),
)

DEVICE = (
    Difference(
        "`hipGetDeviceProperties`: `unifiedAddressing`",
        "0",
        "1",
        "of no consequence: the attribute is 1 in both",
        "say(hip.properties().unifiedAddressing)",
    ),
    Difference(
        "`hipGetDeviceProperties`: `isLargeBar`, `managedMemory`, `concurrentManagedAccess`",
        "0 0 0",
        "1 1 1",
        HOST_SIDE,
        "p = hip.properties()\nsay(p.isLargeBar, p.managedMemory, p.concurrentManagedAccess)",
    ),
    Difference(
        "`hipDeviceGetAttribute`: `FineGrainSupport`",
        "0",
        "1",
        HOST_SIDE,
        "a = hip.hip.hipDeviceAttribute_t.hipDeviceAttributeFineGrainSupport\n"
        "say(hip.hipDeviceGetAttribute(a, 0))",
    ),
    Difference(
        "`hipDeviceGetAttribute`: `CooperativeMultiDeviceLaunch`, `CanUseStreamWaitValue`, "
        "`VirtualMemoryManagementSupported`",
        "1 1 1",
        "0 0 0",
        UNSUPPORTED,
        "a = hip.hip.hipDeviceAttribute_t\n"
        "say(*(hip.hipDeviceGetAttribute(getattr(a, 'hipDeviceAttribute' + n), 0) for n in\n"
        "    ('CooperativeMultiDeviceLaunch', 'CanUseStreamWaitValue',\n"
        "     'VirtualMemoryManagementSupported')))",
    ),
    Difference(
        "`hipDeviceGetAttribute`: `HdpMemFlushCntl`",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: there is no such register, and AMD's gives a null pointer",
        "a = hip.hip.hipDeviceAttribute_t.hipDeviceAttributeHdpMemFlushCntl\n"
        "tell(hip.hip.hipDeviceGetAttribute(a, 0)[0])",
    ),
    Difference(
        "`hipCtxSetCurrent` of no context",
        "no error",
        "hipErrorInvalidContext",
        STALE + "; the next call ends the process",
        "tell(lib.hipCtxSetCurrent(P(0x1000)))",
    ),
    Difference(
        "`hipGetErrorString` of all errors: different texts",
        "74",
        "75 or more",
        "of no consequence: AMD's has one text for 200 and 300",
        "texts = {lib.hipGetErrorString(int(c)) for c in hip.errors.__members__.values()}\n"
        "say(len(texts) if len(texts) < 75 else '75 or more')",
    ),
    Difference(
        "`hipGetProcAddress` of a function that is not HIP's",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: AMD's finds those of the libraries that it needs, too",
        "address, status = P(), ctypes.c_int()\n"
        "more = by(address), 70000000, ctypes.c_uint64(0), by(status)\n"
        "tell(lib.hipGetProcAddress(b'malloc', *more))",
    ),
    Difference(
        "a call in the child of a `fork`",
        "hipErrorOutOfMemory",
        "hipErrorNotInitialized",
        "on a GPU the child of a process that used it is undefined",
        "hip.hipDeviceSynchronize()\nchild = os.fork()\n"
        "if child == 0:\n    tell(hip.hip.hipMalloc(64)[0]); os._exit(0)\n"
        "os.waitpid(child, 0)",
    ),
)

STREAMS = (
    Difference(
        "a stream that was destroyed, or is none",
        f"no error, or {ENDS}",
        "hipErrorInvalidHandle",
        STALE,
        "lib.hipStreamDestroy(h(stream)); tell(lib.hipStreamSynchronize(h(stream)))",
    ),
    Difference(
        "`hipEventSynchronize` of an event that was destroyed",
        ENDS,
        "hipErrorInvalidHandle",
        STALE,
        "event = hip.hipEventCreate(); lib.hipEventDestroy(h(event))\n"
        "tell(lib.hipEventSynchronize(h(event)))",
    ),
    Difference(
        "`hipGraphExecDestroy` of what is none",
        ENDS,
        "hipErrorInvalidHandle",
        STALE,
        "tell(lib.hipGraphExecDestroy(P(8)))",
    ),
    Difference(
        "a host function that waits for its own stream",
        HANGS,
        "hipErrorIllegalState",
        "stricter on purpose: it would wait for itself",
        "codes = []\n"
        "function = ctypes.CFUNCTYPE(None, P)(\n"
        "    lambda _: codes.append(lib.hipStreamSynchronize(h(stream))))\n"
        "lib.hipLaunchHostFunc(h(stream), function, None)\n"
        "for _ in range(300):\n    time.sleep(0.01)\n    if codes: break\n"
        f"tell(*codes) if codes else say({HANGS!r})\n"
        "os._exit(0)",
    ),
    Difference(
        "`hipDeviceSynchronize` behind work of a per-thread stream whose thread has ended",
        "does not wait",
        "waits",
        "stricter would be wrong: AMD's takes the stream of a thread that ends off the device's "
        "list, so nobody else can wait for it",
        "out = word(); _, spin = hip.kernel('spin'); _, fill = hip.kernel('fill')\n"
        "def work():\n"
        "    hip.launch(spin, value=2_000_000, stream=2); hip.launch(fill, out, 4, stream=2)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join(); time.sleep(0.05)\n"
        "hip.hipDeviceSynchronize(); say('waits' if read(out) == 4 else 'does not wait')\n"
        "os._exit(0)",
    ),
)

MODULES = (
    Difference(
        "a launch of a function whose module was unloaded",
        f"hipErrorInvalidDevice, or {ENDS}",
        "hipErrorInvalidHandle",
        STALE,
        "module, function = hip.kernel(); hip.hipModuleUnload(module)\n"
        "code = launch(function)\n"
        "tell(code)",
    ),
    Difference(
        "more dynamic LDS than the kernel's own leaves",
        "no error, hipErrorUnknown",
        "hipErrorLaunchOutOfResources, no error",
        LATER,
        "_, function = hip.kernel(group_segment_fixed_size=512)\n"
        "tell(launch(function, lds=65536), lib.hipDeviceSynchronize())",
    ),
    Difference(
        "a launch with an argument of `kernelParams` that cannot be read",
        ENDS,
        "hipErrorInvalidValue",
        POINTER,
        "_, function = hip.kernel()\ntell(launch(function, params=(P * 2)(host.ctypes.data, 64)))",
    ),
    Difference(
        "a grid of 2^32 + 128 lanes along an axis",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: AMD's launches 128",
        "_, function = hip.kernel()\n"
        "code = launch(function, (2**25 + 1, 1, 1, 128, 1, 1)); tell(code); os._exit(0)",
    ),
    Difference(
        "bytes of `extra` behind the arguments that the metadata has",
        "reach the kernel as zeros",
        "reach the kernel as poison",
        "stricter on purpose: nothing may rely on them",
        "from tests.support.hip_runtime import ARGS\n"
        "out = word(); _, fill = hip.kernel('fill', args=ARGS[:1]); hip.launch(fill, out, 99)\n"
        "hip.hipDeviceSynchronize()\n"
        "say('reach the kernel as', {0: 'zeros', 99: 'they are'}.get(read(out), 'poison'))",
    ),
    Difference(
        "`hipModuleLoad` of a folder, of `/dev/null`",
        "hipErrorInvalidValue, hipErrorInvalidImage",
        "hipErrorFileNotFound, hipErrorFileNotFound",
        "of no consequence: none is a file",
        "tell(*(lib.hipModuleLoad(by(P()), path) for path in (b'/tmp', b'/dev/null')))",
    ),
    Difference(
        "`hipLibraryLoadData` of an image that is overwritten before its first kernel is asked for",
        "hipErrorNoBinaryForGpu, or hipErrorInvalidImage",
        "no error",
        "kinder: AMD's keeps the pointer and loads when it has to",
        "library, kernel = P(), P(); image = ctypes.create_string_buffer(code_object('fill'))\n"
        "lib.hipLibraryLoadData(by(library), image, None, None, 0, None, None, 0)\n"
        "ctypes.memset(image, 0, len(image))\n"
        "tell(lib.hipLibraryGetKernel(by(kernel), library, b'k'))",
    ),
    Difference(
        "`hipLibraryUnload` of a library that was unloaded",
        ENDS,
        "hipErrorInvalidHandle",
        STALE,
        "library, image = P(), code_object('fill')\n"
        "lib.hipLibraryLoadData(by(library), image, None, None, 0, None, None, 0)\n"
        "lib.hipLibraryUnload(library); tell(lib.hipLibraryUnload(library))",
    ),
    Difference(
        "`hipFuncGetAttributes` and `hipLaunchCooperativeKernel` of a module's function",
        "hipErrorInvalidSymbol, hipErrorInvalidSymbol",
        "no error, no error",
        "kinder: they take a function's host symbol, and a module's has none",
        "from tests.virtual_device.hip.test_module import Dim3\n"
        "_, function = hip.kernel(); params = (P * 2)(*[host.ctypes.data] * 2)\n"
        "space = ctypes.create_string_buffer(256)\n"
        "shape = Dim3(1, 1, 1), Dim3(64, 1, 1)\n"
        "tell(lib.hipFuncGetAttributes(space, h(function)),\n"
        "     lib.hipLaunchCooperativeKernel(h(function), *shape, params, 0, None))",
    ),
    Difference(
        "`hipOccupancyAvailableDynamicSMemPerBlock` of a module's function",
        "hipErrorInvalidDeviceFunction",
        "no error",
        "kinder: it takes a function's host symbol, and a module's has none",
        "_, function = hip.kernel()\n"
        "tell(lib.hipOccupancyAvailableDynamicSMemPerBlock(by(S()), h(function), 2, 256))",
    ),
    Difference(
        "`hipLaunchKernel` of what is no kernel",
        ENDS,
        "hipErrorInvalidDeviceFunction",
        STALE,
        "from tests.virtual_device.hip.test_module import Dim3\n"
        "params = (P * 2)(*[host.ctypes.data] * 2)\n"
        "tell(lib.hipLaunchKernel(P(0x4000), Dim3(1, 1, 1), Dim3(64, 1, 1), params, S(0), None))",
    ),
)

GRAPHS = (
    Difference(
        "in a capture: `hipMallocAsync`",
        "no error; no error at its end",
        "hipErrorStreamCaptureUnsupported; hipErrorStreamCaptureInvalidated at its end",
        UNSUPPORTED,
        "captured(lambda: lib.hipMallocAsync(by(P()), S(64), h(stream)))",
    ),
    Difference(
        "while a blocking stream is captured: work on the null stream",
        "no error; no error at its end",
        "hipErrorStreamCaptureImplicit; hipErrorStreamCaptureInvalidated at its end",
        CAPTURE,
        "event = hip.hipEventCreate(); captured(lambda: lib.hipEventRecord(h(event), None))",
    ),
    Difference(
        "in a capture: `hipStreamSynchronize` of the null stream",
        "no error; no error at its end",
        "hipErrorStreamCaptureImplicit; hipErrorStreamCaptureInvalidated at its end",
        CAPTURE,
        "captured(lambda: lib.hipStreamSynchronize(None))",
    ),
    Difference(
        "in a capture: `hipDeviceReset`",
        "no error; hipErrorContextIsDestroyed at its end",
        "hipErrorStreamCaptureUnsupported; hipErrorStreamCaptureInvalidated at its end",
        CAPTURE,
        "captured(lib.hipDeviceReset); os._exit(0)",
    ),
    Difference(
        "in a capture: `hipStreamWaitEvent` of an event that was recorded outside it",
        "no error; no error at its end",
        "hipErrorStreamCaptureIsolation; hipErrorStreamCaptureInvalidated at its end",
        CAPTURE,
        "event = hip.hipEventCreate(); hip.hipEventRecord(event, None)\n"
        "captured(lambda: lib.hipStreamWaitEvent(h(stream), h(event), 0))",
    ),
    Difference(
        "in a capture: `hipStreamWaitEvent` of an event of another capture",
        "no error; no error at its end",
        "hipErrorStreamCaptureMerge; hipErrorStreamCaptureInvalidated at its end",
        CAPTURE,
        "event, other = hip.hipEventCreate(), hip.hipStreamCreate()\n"
        "hip.hipStreamBeginCapture(other, mode); hip.hipEventRecord(event, other)\n"
        "captured(lambda: lib.hipStreamWaitEvent(h(stream), h(event), 0)); os._exit(0)",
    ),
    Difference(
        "`hipEventSynchronize` of an event that a capture recorded",
        "no error",
        "hipErrorCapturedEvent",
        CAPTURE,
        "event = hip.hipEventCreate(); hip.hipStreamBeginCapture(stream, mode)\n"
        "hip.hipEventRecord(event, stream); hip.hipStreamEndCapture(stream)\n"
        "tell(lib.hipEventSynchronize(h(event)))",
    ),
    Difference(
        "a stream whose work a capture's end did not find joined",
        "hipErrorStreamCaptureUnsupported",
        "no error",
        "kinder: AMD's leaves it capturing until it is destroyed",
        "other, event = hip.hipStreamCreateWithFlags(1), hip.hipEventCreate()\n"
        "out = word(); hip.hipStreamBeginCapture(stream, mode); hip.hipEventRecord(event, stream)\n"
        "hip.hipStreamWaitEvent(other, event, 0); hip.hipMemsetAsync(out, 0, 64, other)\n"
        "hip.hip.hipStreamEndCapture(stream); tell(lib.hipStreamSynchronize(h(other)))",
    ),
    Difference(
        "`hipGraphKernelNodeGetParams` of a launch that was captured with `extra`",
        "kernelParams is null",
        "kernelParams is there",
        "kinder: both forms become one there",
        "from tests.virtual_device.hip.test_graph import KernelNodeParams\n"
        "_, fill = hip.kernel('fill'); out = word(); hip.hipStreamBeginCapture(stream, mode)\n"
        "hip.launch(fill, out, 5, stream=stream); graph = h(hip.hipStreamEndCapture(stream))\n"
        "count, nodes, params = S(1), (P * 1)(), KernelNodeParams()\n"
        "lib.hipGraphGetNodes(graph, nodes, by(count))\n"
        "lib.hipGraphKernelNodeGetParams(P(nodes[0]), by(params))\n"
        "say('kernelParams is', 'there' if params.params else 'null')",
    ),
    Difference(
        "`hipGraphMemsetNodeSetParams` of a kernel's node",
        "no error",
        "hipErrorInvalidValue",
        "stricter on purpose: it is another kind of node",
        "from tests.virtual_device.hip.test_graph import MemsetParams\n"
        "_, fill = hip.kernel('fill'); out = word(); hip.hipStreamBeginCapture(stream, mode)\n"
        "hip.launch(fill, out, 5, stream=stream); graph = h(hip.hipStreamEndCapture(stream))\n"
        "count, nodes = S(1), (P * 1)(); lib.hipGraphGetNodes(graph, nodes, by(count))\n"
        "tell(lib.hipGraphMemsetNodeSetParams(P(nodes[0]), by(MemsetParams(out, 4, 1, 0, 7, 16))))",
    ),
)

FAULTS = (
    Difference(
        "an illegal address: what waits, and every call after it",
        "hipErrorIllegalAddress, hipErrorIllegalAddress, hipErrorIllegalAddress",
        "hipErrorIllegalAddress, no error, no error",
        "kinder: whoever waits is told once, and the device goes on",
        "_, fill = hip.kernel('fill'); hip.launch(fill, 0x123456000)\n"
        "tell(*(lib.hipDeviceSynchronize() for _ in range(2)), lib.hipMalloc(by(P()), S(64)))\n"
        "os._exit(0)",
    ),
    Difference(
        "an illegal instruction: what waits, and every call after it",
        "hipErrorLaunchFailure, hipErrorLaunchFailure",
        "hipErrorLaunchFailure, no error",
        "kinder: whoever waits is told once, and the device goes on",
        "_, bad = hip.kernel('illegal'); hip.launch(bad)\n"
        "tell(*(lib.hipDeviceSynchronize() for _ in range(2))); os._exit(0)",
    ),
    Difference(
        "a kernel that is stopped at the limit of instructions",
        "hipErrorLaunchFailure, hipErrorLaunchFailure",
        "hipErrorLaunchTimeOut, no error",
        "AMD's has no limit: HSA's exception is what it can be told",
        "hip.set_option('max_instructions', 50_000); _, loop = hip.kernel('forever')\n"
        "hip.launch(loop)\ntell(*(lib.hipDeviceSynchronize() for _ in range(2))); os._exit(0)",
    ),
)

DIFFERENCES = (*MEMORY, *DEVICE, *STREAMS, *MODULES, *GRAPHS, *FAULTS)
