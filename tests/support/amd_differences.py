"""Calls that AMD's HIP runtime answers otherwise than the virtual device's own, and why.

Each is a program for a process of its own: what it says with `say` is compared with both columns.
`python -m tests.device.test_amd_differences` writes the table of docs/real-gpu.md from them.
"""

from __future__ import annotations

from tests.support.amd_difference import ENDS, HANGS, HOST_SIDE, STALE, UNSUPPORTED, Difference
from tests.support.amd_differences_of_launches import FAULTS, GRAPHS, MODULES

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
        "no error, or hipErrorInvalidValue",
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
        "`hipStreamGetFlags` of a stream that was destroyed",
        "no error",
        "hipErrorInvalidHandle",
        STALE + "; `hipStreamGetDevice` knows in both",
        "lib.hipStreamDestroy(h(stream))\n"
        "tell(lib.hipStreamGetFlags(h(stream), by(ctypes.c_uint())))",
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
        "out = word(); _, hold = hip.kernel('hold')  # until the word is not 0\n"
        "thread = threading.Thread(target=lambda: hip.launch(hold, out, stream=2))\n"
        "thread.start(); thread.join(); time.sleep(0.2)\n"
        "done = threading.Event()\n"
        "wait = lambda: (lib.hipDeviceSynchronize(), done.set())\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
        "say('does not wait' if done.wait(0.4) else 'waits'); os._exit(0)",
    ),
)

DIFFERENCES = (*MEMORY, *DEVICE, *STREAMS, *MODULES, *GRAPHS, *FAULTS)
