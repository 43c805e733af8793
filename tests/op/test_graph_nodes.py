"""What is in graphs that users capture: kernels with arguments of their own, and no memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.interchange import asarray
from amdattn.device import runtime


@pytest.fixture
def capture(hip_stream: Any) -> Iterator[Callable[[Callable[[int], None]], Any]]:
    """A graph of what a function launches on the stream it is given."""
    hip, call = runtime.get().hip, runtime.get().check
    graphs = []

    def make(launch: Callable[[int], None]) -> Any:
        amdattn.synchronize()
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        call("hipStreamBeginCapture", hip.hipStreamBeginCapture(hip_stream, mode))
        launch(int(hip_stream))
        graphs.append(call("hipStreamEndCapture", hip.hipStreamEndCapture(hip_stream)))
        return graphs[-1]

    yield make
    for graph in graphs:
        call("hipGraphDestroy", hip.hipGraphDestroy(graph))


def types(graph: Any) -> list[str]:
    """Of the nodes."""
    hip, call = runtime.get().hip, runtime.get().check
    count = call("hipGraphGetNodes", hip.hipGraphGetNodes(graph))[-1]
    # Not through hip-python, which gives the nodes no types.
    library = ctypes.CDLL(runtime.get().choice.library)
    nodes = (ctypes.c_void_p * count)()
    room = ctypes.c_size_t(count)
    assert library.hipGraphGetNodes(ctypes.c_void_p(int(graph)), nodes, ctypes.byref(room)) == 0
    found = []
    for node in nodes:
        kind = ctypes.c_int(-1)
        assert library.hipGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        found.append(hip.hipGraphNodeType(kind.value).name)
    return found


def replay(graph: Any, stream: Any) -> None:
    hip, call = runtime.get().hip, runtime.get().check
    executable = call("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    call("hipGraphLaunch", hip.hipGraphLaunch(executable, stream))
    runtime.get().synchronize(int(stream))
    call("hipGraphExecDestroy", hip.hipGraphExecDestroy(executable))


def test_graphs_hold_kernels_only(capture: Any, normal: Any) -> None:
    """Memory that a graph allocated would go with it."""
    q, k, v = (asarray(normal(1, n, 2, 128)) for n in (40, 300, 300))
    attention = amdattn.plan_attention(1, 40, 300, 2, 2, 128, device="MI300X", num_splits=2)
    scratch = amdattn.empty((attention.workspace.total_bytes,), "uint8")
    product = amdattn.plan_gemm(8, 48, 512, device="MI300X", split_k=2)
    a, b = asarray(normal(8, 512)), asarray(normal(48, 512))
    workspace = product.new_workspace()
    out, c = amdattn.empty(q.shape), amdattn.empty((8, 48))

    def launch(stream: Any) -> None:
        attention.run(q, k, v, out, workspace=scratch, stream=stream)
        product.run(a, b, c, workspace=workspace, stream=stream)

    launch(None)
    for array in (out, c, scratch, workspace):
        array.stream = None
    assert types(capture(launch)) == ["hipGraphNodeTypeKernel"] * 3


def test_a_graph_of_300_launches_keeps_its_arguments(
    capture: Any, hip_stream: Any, normal: Any
) -> None:
    """Whatever becomes of the buffers that they were packed in."""
    count, rows = 300, 16
    a, b = asarray(normal(1, 64)), asarray(normal(rows * count, 64))
    out = asarray(np.zeros((count, rows), ml_dtypes.bfloat16))
    plans = [amdattn.plan_gemm(1, rows, 64, device="MI300X")]
    plans[0].run(a, b[:rows], out[:1])
    out.stream = None

    def launch(stream: int) -> None:
        for i in range(count):
            plans[0].run(a, b[rows * i : rows * (i + 1)], out[i : i + 1], stream=stream)

    graph = capture(launch)
    expected = (a.numpy().astype("f4") @ b.numpy().astype("f4").T).reshape(count, rows)
    plans.clear()
    gc.collect()
    other = amdattn.plan_gemm(1, rows, 64, device="MI300X", alpha=3.0)
    other.run(a, b[:rows], amdattn.empty((1, rows)))  # in the same buffer of this thread
    replay(graph, hip_stream)
    np.testing.assert_allclose(out.numpy().astype("f4"), expected, rtol=0.01, atol=0.01)
