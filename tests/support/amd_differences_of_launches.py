"""Modules, graphs and faults, which AMD's HIP runtime answers otherwise than our own."""

from __future__ import annotations

from tests.support.amd_difference import (
    CAPTURE,
    ENDS,
    LATER,
    POINTER,
    STALE,
    UNSUPPORTED,
    Difference,
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
        "hipErrorUnknown, when it is waited for",
        "hipErrorLaunchOutOfResources, at once",
        LATER,
        "_, function = hip.kernel(group_segment_fixed_size=512)\n"
        "code = launch(function, lds=65536); later = lib.hipDeviceSynchronize()\n"
        "say(name(later or code) + (', when it is waited for' if later else ', at once'))",
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
        "no error; 1 workgroup",
        "hipErrorInvalidValue; 0 workgroups",
        "stricter on purpose: AMD's launches what is left of it modulo 2^32",
        "_, add = hip.kernel('add'); out = word()\n"
        "values = ctypes.c_uint64(out), ctypes.c_uint32(1)\n"
        "params = (P * 2)(*map(ctypes.addressof, values))\n"
        "tell(launch(add, (2**25 + 1, 1, 1, 128, 1, 1), params=params))\n"
        "hip.hipDeviceSynchronize(); say(read(out), 'workgroup' + 's' * (read(out) != 1))",
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
