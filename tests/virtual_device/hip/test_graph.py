"""Stream capture and graphs."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.hip_runtime import HipError

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
Handle = ctypes.c_void_p


class Bench:
    """Pinned memory that kernels work on, the kernels, and a capturing stream."""

    def __init__(self, hip: Any) -> None:
        self.hip, self.lib = hip, hip.lib
        self.stream = hip.hipStreamCreate()
        self.memory = hip.hipHostMalloc(4096, 0)
        raw = (ctypes.c_uint32 * 1024).from_address(int(self.memory))
        self.words = np.ctypeslib.as_array(raw)
        self.words[:] = 0
        self.fill = hip.kernel("fill")[1]
        self.add = hip.kernel("add")[1]
        self.mode = hip.hip.hipStreamCaptureMode

    def begin(self, mode: int = GLOBAL) -> None:
        self.hip.hipStreamBeginCapture(self.stream, self.mode(mode))

    def end(self) -> Any:
        return self.hip.hipStreamEndCapture(self.stream)

    def run(self, graph: Any, times: int = 1) -> None:
        exec_ = self.hip.hipGraphInstantiateWithFlags(graph, 0)
        for _ in range(times):
            self.hip.hipGraphLaunch(exec_, self.stream)
        self.hip.hipStreamSynchronize(self.stream)
        self.hip.hipGraphExecDestroy(exec_)

    def status(self) -> str:
        return str(self.hip.hipStreamIsCapturing(self.stream).name)

    def nodes(self, graph: Any) -> list[int]:
        count = ctypes.c_size_t()
        assert self.lib.hipGraphGetNodes(Handle(int(graph)), None, ctypes.byref(count)) == 0
        array = (Handle * count.value)()
        assert self.lib.hipGraphGetNodes(Handle(int(graph)), array, ctypes.byref(count)) == 0
        return [int(node) for node in array]


class KernelNodeParams(ctypes.Structure):
    _fields_ = [
        ("group", ctypes.c_uint32 * 3), ("extra", Handle), ("func", Handle),
        ("grid", ctypes.c_uint32 * 3), ("params", Handle), ("lds", ctypes.c_uint),
    ]  # fmt: skip


class MemsetParams(ctypes.Structure):
    _fields_ = [
        ("dst", Handle), ("element", ctypes.c_uint), ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint), ("width", ctypes.c_size_t),
    ]  # fmt: skip


class HostParams(ctypes.Structure):
    _fields_ = [("fn", Handle), ("data", Handle)]


def kernel_params(function: Any, out: int, value: int) -> tuple[KernelNodeParams, Any]:
    keep = [ctypes.c_uint64(out), ctypes.c_uint32(value)]
    array = (Handle * 2)(*(ctypes.addressof(k) for k in keep))
    three = ctypes.c_uint32 * 3
    params = KernelNodeParams(
        three(64, 1, 1), None, int(function), three(1, 1, 1), ctypes.addressof(array), 0
    )
    return params, (keep, array)


@pytest.fixture
def bench(hip: Any) -> Any:
    bench = Bench(hip)
    yield bench
    hip.hip.hipStreamDestroy(bench.stream)
    hip.hipHostFree(bench.memory)


def test_capture_and_replay(hip: Any, bench: Bench) -> None:
    bench.begin()
    assert bench.status() == "hipStreamCaptureStatusActive"
    hip.hipMemsetAsync(bench.memory, 0, 512, bench.stream)
    hip.launch(bench.fill, bench.memory, 5, stream=bench.stream)
    hip.launch(bench.add, bench.memory, 2, stream=bench.stream)
    hip.hipMemcpyDtoDAsync(int(bench.memory) + 256, bench.memory, 256, bench.stream)
    graph = bench.end()
    assert bench.status() == "hipStreamCaptureStatusNone"
    assert (bench.words == 0).all()  # nothing ran
    types = [hip.hipGraphNodeGetType(node).name for node in bench.nodes(graph)]
    assert types == [f"hipGraphNodeType{t}" for t in ("Memset", "Kernel", "Kernel", "Memcpy")]
    bench.run(graph, times=3)
    assert (bench.words[:128] == 7).all()
    hip.hipGraphDestroy(graph)
    with pytest.raises(HipError, match="IllegalState"):
        hip.hipGraphDestroy(graph)


def test_fork_and_join(hip: Any, bench: Bench) -> None:
    other = hip.hipStreamCreateWithFlags(1)
    fork, join = hip.hipEventCreate(), hip.hipEventCreate()
    second = int(bench.memory) + 512
    bench.begin()
    hip.launch(bench.fill, bench.memory, 1, stream=bench.stream)
    hip.hipEventRecord(fork, bench.stream)
    hip.hipStreamWaitEvent(other, fork, 0)
    hip.launch(bench.fill, second, 10, stream=other)
    hip.launch(bench.add, bench.memory, 1, stream=bench.stream)
    hip.hipEventRecord(join, other)
    hip.hipStreamWaitEvent(bench.stream, join, 0)
    hip.launch(bench.add, second, 3, stream=bench.stream)
    with pytest.raises(HipError, match="StreamCaptureUnmatched"):
        hip.hipStreamEndCapture(other)
    graph = bench.end()
    first, *_, last = bench.nodes(graph)
    count = ctypes.c_size_t()
    for query, node in (("Dependencies", last), ("DependentNodes", first)):
        ask = getattr(hip.lib, f"hipGraphNodeGet{query}")
        assert ask(Handle(node), None, ctypes.byref(count)) == 0
        assert count.value == 2
    bench.run(graph)
    assert (bench.words[:64] == 2).all()
    assert (bench.words[128:192] == 13).all()
    hip.hipEventRecord(fork, None)
    hip.hipEventSynchronize(fork)
    hip.hipStreamDestroy(other)


def test_unjoined_fork(hip: Any, bench: Bench) -> None:
    other = hip.hipStreamCreateWithFlags(1)
    fork = hip.hipEventCreate()
    bench.begin()
    hip.hipEventRecord(fork, bench.stream)
    hip.hipStreamWaitEvent(other, fork, 0)
    hip.launch(bench.fill, bench.memory, 10, stream=other)
    with pytest.raises(HipError, match="StreamCaptureUnjoined"):
        bench.end()
    hip.hipStreamDestroy(other)


def test_what_a_capture_forbids(hip: Any, bench: Bench) -> None:
    pointer = hip.hipMalloc(64)
    pinned, registered = hip.hipHostMalloc(64, 0), np.zeros(4096, np.uint8)
    host = ctypes.c_void_p(registered.ctypes.data)
    forbidden = [
        # What waits for the device, and what changes which memory there is.
        *(
            (call, "StreamCaptureUnsupported")
            for call in (
                lambda: hip.hipFree(pointer),
                lambda: hip.hipHostFree(pinned),
                lambda: hip.hipHostMalloc(64, 0),
                lambda: hip.hipHostRegister(host, 4096, 0),
                lambda: hip.hipHostUnregister(host),
            )
        ),
        (lambda: hip.hipStreamSynchronize(bench.stream), "StreamCaptureUnsupported"),
        (lambda: hip.hipStreamQuery(bench.stream), "StreamCaptureUnsupported"),
        (hip.hipDeviceSynchronize, "StreamCaptureUnsupported"),
        (lambda: hip.hipMalloc(64), "StreamCaptureUnsupported"),
    ]
    for call, error in forbidden:
        bench.begin()
        with pytest.raises(HipError, match=error):
            call()
        assert bench.status() == "hipStreamCaptureStatusInvalidated"
        with pytest.raises(HipError, match="StreamCaptureInvalidated"):
            hip.launch(bench.fill, bench.memory, 1, stream=bench.stream)
        with pytest.raises(HipError, match="StreamCaptureInvalidated"):
            bench.end()
    with pytest.raises(HipError, match=r"IllegalState|StreamCaptureWrongThread"):  # as AMD's
        bench.end()
    with pytest.raises(HipError, match="StreamCaptureUnsupported"):
        hip.hipStreamBeginCapture(None, bench.mode(GLOBAL))
    hip.hipHostFree(pinned)  # refused above, and still there
    hip.hipFreeAsync(pointer, None)


def test_modes(hip: Any, bench: Bench) -> None:
    """Another thread may allocate unless the mode is global; this one only if it is relaxed."""

    def allocate_elsewhere() -> str:
        result: list[str] = []
        thread = threading.Thread(target=lambda: result.append(hip.hip.hipMalloc(64)[0].name))
        thread.start()
        thread.join()
        return result[0]

    for mode, expected in (
        (GLOBAL, "hipErrorStreamCaptureUnsupported"),
        (THREAD_LOCAL, "hipSuccess"),
    ):
        bench.begin(mode)
        assert allocate_elsewhere() == expected
        hip.hip.hipStreamEndCapture(bench.stream)
    bench.begin(RELAXED)
    hip.hipFree(hip.hipMalloc(64))
    bench.end()
    bench.begin()
    wanted = ctypes.c_int(RELAXED)
    assert hip.lib.hipThreadExchangeStreamCaptureMode(ctypes.byref(wanted)) == 0
    assert wanted.value == GLOBAL
    hip.hipFree(hip.hipMalloc(64))
    assert hip.lib.hipThreadExchangeStreamCaptureMode(ctypes.byref(wanted)) == 0
    codes: list[Any] = []
    thread = threading.Thread(
        target=lambda: codes.append(hip.hip.hipStreamEndCapture(bench.stream)[0].name)
    )
    thread.start()
    thread.join()
    assert codes == ["hipErrorStreamCaptureWrongThread"]
    hip.hipGraphDestroy(bench.end())


def test_capture_info(hip: Any, bench: Bench) -> None:
    bench.begin()
    hip.launch(bench.fill, bench.memory, 1, stream=bench.stream)
    status, number, graph, dependencies, count = (
        ctypes.c_int(), ctypes.c_ulonglong(), Handle(), Handle(), ctypes.c_size_t()
    )  # fmt: skip
    outputs = map(ctypes.byref, (status, number, graph, dependencies, count))
    assert hip.lib.hipStreamGetCaptureInfo_v2(Handle(int(bench.stream)), *outputs) == 0
    assert (status.value, count.value) == (1, 1)
    node = Handle.from_address(dependencies.value or 0).value
    captured = bench.end()
    assert graph.value == int(captured)
    assert [node] == bench.nodes(captured)
    assert number.value > 0


def test_destroying_a_capturing_stream_ends_the_capture(hip: Any) -> None:
    stream = hip.hipStreamCreate()
    hip.hipStreamBeginCapture(stream, hip.hip.hipStreamCaptureMode(GLOBAL))
    hip.hipStreamDestroy(stream)
    hip.hipDeviceSynchronize()


def test_built_graph(hip: Any, bench: Bench) -> None:
    """Every kind of node, added out of order and tied together by dependencies."""
    lib = hip.lib
    graph, child = (Handle(int(hip.hipGraphCreate(0))) for _ in range(2))
    base = int(bench.memory)
    called: list[int] = []
    callback = ctypes.CFUNCTYPE(None, Handle)(lambda data: called.append(int(data or 0)))

    def add(kind: str, to: Any, after: list[Any], *arguments: Any) -> Any:
        node = Handle()
        array = (Handle * len(after))(*(n.value for n in after))
        call = getattr(lib, f"hipGraphAdd{kind}Node")
        size = ctypes.c_size_t(len(after))
        assert call(ctypes.byref(node), to, array if after else None, size, *arguments) == 0
        return node

    fill, keep1 = kernel_params(bench.fill, base, 50)
    plus, keep2 = kernel_params(bench.add, base, 1)
    memset = MemsetParams(base, 4, 1, 0, 7, 128)
    host = HostParams(ctypes.cast(callback, Handle).value, 1234)
    event = Handle(int(hip.hipEventCreate()))
    plus_node = add("Kernel", graph, [], ctypes.byref(plus))
    fill_node = add("Kernel", graph, [], ctypes.byref(fill))
    add("Kernel", child, [], ctypes.byref(plus))
    add("Kernel", child, [], ctypes.byref(plus))
    child_node = add("ChildGraph", graph, [plus_node], child)
    lib.hipGraphDestroy(child)  # the node has its own copy
    memset_node = add("Memset", graph, [], ctypes.byref(memset))
    empty = add("Empty", graph, [memset_node])
    copy = add("Memcpy", graph, [child_node], copy_params(hip, base + 256, base, 256))
    add("Host", graph, [copy], ctypes.byref(host))
    add("EventRecord", graph, [copy], event)
    edges = [(empty, fill_node), (fill_node, plus_node)]
    from_ = (Handle * 2)(*(a.value for a, _ in edges))
    to = (Handle * 2)(*(b.value for _, b in edges))
    assert lib.hipGraphAddDependencies(graph, from_, to, ctypes.c_size_t(2)) == 0
    assert lib.hipGraphAddDependencies(graph, from_, to, ctypes.c_size_t(2)) == 1  # exist already
    count = ctypes.c_size_t()
    assert lib.hipGraphGetEdges(graph, None, None, ctypes.byref(count)) == 0
    assert count.value == 7
    lib.hipEventSynchronize(event)
    exec_ = Handle()
    assert lib.hipGraphInstantiate(ctypes.byref(exec_), graph, None, None, ctypes.c_size_t(0)) == 0
    assert lib.hipGraphLaunch(exec_, Handle(int(bench.stream))) == 0
    assert lib.hipEventSynchronize(event) == 0
    assert (bench.words[:64] == 53).all()
    assert (bench.words[64:128] == 53).all()
    assert lib.hipStreamSynchronize(Handle(int(bench.stream))) == 0  # the event waits for a copy
    assert called == [1234]
    back = (Handle * 2)(*(b.value for _, b in edges))
    assert lib.hipGraphAddDependencies(graph, back, from_, ctypes.c_size_t(1)) == 0
    other = Handle()
    assert lib.hipGraphInstantiate(ctypes.byref(other), graph, None, None, ctypes.c_size_t(0)) == 1
    assert lib.hipGraphRemoveDependencies(graph, back, from_, ctypes.c_size_t(1)) == 0
    assert lib.hipGraphDestroyNode(fill_node) == 0
    assert lib.hipGraphNodeGetType(fill_node, ctypes.byref(ctypes.c_int())) == 1
    assert lib.hipGraphExecDestroy(exec_) == 0
    assert lib.hipGraphDestroy(graph) == 0
    del keep1, keep2


def copy_params(hip: Any, dst: int, src: int, size: int) -> Any:
    p = hip.hip.hipMemcpy3DParms()
    for side, pointer in ((p.dstPtr, dst), (p.srcPtr, src)):
        side.ptr, side.pitch, side.xsize, side.ysize = pointer, size, size, 1
    p.extent.width, p.extent.height, p.extent.depth = size, 1, 1
    p.kind = hip.hip.hipMemcpyKind.hipMemcpyDefault
    Keep.objects.append(p)
    return Handle(int(p))


class Keep:
    objects: list[Any] = []  # noqa: RUF012


def test_parameters_of_nodes(hip: Any, bench: Bench) -> None:
    first, kept = kernel_params(bench.fill, int(bench.memory), 5)
    bench.begin()
    shape = (1, 1, 1, 64, 1, 1, 0)
    hip.hipModuleLaunchKernel(bench.fill, *shape, bench.stream, first.params, None)
    graph = bench.end()
    (node,) = (Handle(n) for n in bench.nodes(graph))
    exec_ = Handle(int(hip.hipGraphInstantiateWithFlags(graph, 0)))
    stream = Handle(int(bench.stream))

    def result() -> int:
        bench.words[:] = 0
        assert hip.lib.hipGraphLaunch(exec_, stream) == 0
        hip.hipStreamSynchronize(bench.stream)
        return int(bench.words[63])

    got = KernelNodeParams()
    assert hip.lib.hipGraphKernelNodeGetParams(node, ctypes.byref(got)) == 0
    assert (list(got.group), list(got.grid), got.func) == ([64, 1, 1], [1, 1, 1], int(bench.fill))
    values = (Handle * 2).from_address(got.params)
    assert ctypes.c_uint32.from_address(values[1]).value == 5
    new, keep = kernel_params(bench.fill, int(bench.memory), 6)
    assert hip.lib.hipGraphExecKernelNodeSetParams(exec_, node, ctypes.byref(new)) == 0
    assert result() == 6
    assert hip.lib.hipGraphNodeSetEnabled(exec_, node, 0) == 0
    assert result() == 0
    assert hip.lib.hipGraphNodeSetEnabled(exec_, node, 1) == 0
    newer, keep2 = kernel_params(bench.fill, int(bench.memory), 8)
    assert hip.lib.hipGraphKernelNodeSetParams(node, ctypes.byref(newer)) == 0
    assert result() == 6  # the executable graph is a copy
    error, why = Handle(), ctypes.c_int(-1)
    update = hip.lib.hipGraphExecUpdate
    outputs = (ctypes.byref(error), ctypes.byref(why))
    assert update(exec_, Handle(int(graph)), *outputs) == 0
    assert (why.value, result()) == (0, 8)
    other = hip.hipGraphCreate(0)
    assert update(exec_, Handle(int(other)), *outputs) == hip.errors.hipErrorGraphExecUpdateFailure
    assert why.value == 2
    memset = MemsetParams(int(bench.memory), 4, 1, 0, 7, 16)
    made = Handle()
    arguments = (Handle(int(other)), None, ctypes.c_size_t(0), ctypes.byref(memset))
    assert hip.lib.hipGraphAddMemsetNode(ctypes.byref(made), *arguments) == 0
    assert update(exec_, Handle(int(other)), *outputs) == hip.errors.hipErrorGraphExecUpdateFailure
    assert (why.value, error.value) == (3, made.value)
    hip.hipGraphExecDestroy(exec_.value)
    del kept, keep, keep2


def test_clone(hip: Any, bench: Bench) -> None:
    bench.begin()
    hip.launch(bench.fill, bench.memory, 5, stream=bench.stream)
    hip.launch(bench.add, bench.memory, 4, stream=bench.stream)
    graph = bench.end()
    clone = hip.hipGraphClone(graph)
    original, copy = bench.nodes(graph), bench.nodes(clone)
    assert not set(original) & set(copy)
    assert int(hip.hipGraphNodeFindInClone(original[1], clone)) == copy[1]
    hip.hipGraphDestroy(graph)
    bench.run(clone)
    assert (bench.words[:64] == 9).all()


def test_fault_in_a_graph(hip: Any, bench: Bench) -> None:
    bench.begin()
    hip.launch(bench.fill, 0x123456000, 5, stream=bench.stream)
    hip.launch(bench.fill, bench.memory, 5, stream=bench.stream)
    graph = bench.end()
    with pytest.raises(HipError, match="IllegalAddress"):
        bench.run(graph)
    assert (bench.words == 0).all()


def test_dot(hip: Any, bench: Bench, tmp_path: Path) -> None:
    bench.begin()
    hip.hipMemsetAsync(bench.memory, 0, 64, bench.stream)
    hip.launch(bench.fill, bench.memory, 5, stream=bench.stream)
    graph = bench.end()
    path = tmp_path / "graph.dot"
    hip.hipGraphDebugDotPrint(graph, str(path).encode(), 1)
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count("->") == 1
    assert hip.is_amd or "workgroup 64x1x1" in text
