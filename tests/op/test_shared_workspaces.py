"""One workspace of several plans, after failures, in graphs, and under plans without counters."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from amdattn.op import zero_at_rest

BF16 = ml_dtypes.bfloat16


def whole(seed: int, *shape: int) -> Any:
    """Numbers of which every order of addition has one sum."""
    return amdattn.asarray(np.random.default_rng(seed).integers(-3, 4, shape).astype(BF16))


def product(m: int, n: int, **options: Any) -> tuple[Any, Any, Any]:
    device = amdattn.device_props()
    plan = amdattn.plan_gemm(m, n, 2048, device=device, split_k=4, **options)
    return plan, whole(1, m, 2048), whole(2, n, 2048)


def dirty(workspace: Any, begin: int, nbytes: int) -> None:
    """What an aborted launch leaves, whose error this package has seen."""
    device = runtime.get()
    ones = np.ones(nbytes // 4, np.float32)
    device.upload(workspace.address + begin, ones.ctypes.data, ones.nbytes)
    device.synchronize(0)
    device.failures += 1


def values(array: Any) -> Any:
    return array.numpy().astype(np.float32)


def test_after_a_failure_no_more_is_clean_than_was_cleared() -> None:
    large, a, b = product(64, 512, deterministic=False)
    small, *others = product(4, 32, deterministic=False)
    workspace = large.new_workspace()
    expected = values(large.run(a, b, workspace=workspace))
    partials = large.workspace["partials"]
    dirty(workspace, partials.offset, partials.nbytes)
    small.run(*others, workspace=workspace)
    np.testing.assert_array_equal(values(large.run(a, b, workspace=workspace)), expected)


def test_a_plan_without_counters_leaves_none_behind() -> None:
    plan, a, b = product(4, 32)
    attention = amdattn.plan_attention(
        1, 64, 512, 1, 1, 128, device=amdattn.device_props(), num_splits=4
    )
    q, k = whole(3, 1, 64, 1, 128), whole(4, 1, 512, 1, 128)
    nbytes = max(plan.workspace.total_bytes, attention.workspace.total_bytes)
    for first in (True, False):
        workspace = amdattn.asarray(np.zeros(nbytes, np.uint8))
        if first:
            expected = values(plan.run(a, b, workspace=workspace))
        for _ in range(3):  # checked; packed; submitted as it was packed
            out = amdattn.empty((1, 64, 1, 128))
            attention.run(q, k, k, out, workspace=workspace)
            attention.run(q, k, k, out, workspace=workspace)
            np.testing.assert_array_equal(values(plan.run(a, b, workspace=workspace)), expected)


def capture(plan: Any, a: Any, b: Any, out: Any, workspace: Any, stream: int) -> int:
    device = runtime.get()
    hip = device.hip
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    device.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
    plan.run(a, b, out, workspace=workspace, stream=stream)
    graph = device.check("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
    made = device.check("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    device.check("hipGraphDestroy", hip.hipGraphDestroy(graph))
    return int(made)


@pytest.mark.parametrize("eager", [False, True])
def test_a_graph_recovers_whatever_stream_was_used_since(hip_stream: Any, eager: bool) -> None:
    device, stream = runtime.get(), runtime.stream_handle(hip_stream)
    plan, a, b = product(4, 32, deterministic=False)
    out, workspace = amdattn.empty((4, 32)), plan.new_workspace(stream)
    plan.run(a, b, out, workspace=workspace)
    expected = values(out)
    made = capture(plan, a, b, out, workspace, stream)
    if eager:
        plan.run(a, b, out, workspace=workspace)
        device.synchronize(0)
    partials = plan.workspace["partials"]
    dirty(workspace, partials.offset, partials.nbytes)
    zero_at_rest._workspaces.recover(device, stream)
    device.synchronize(stream)
    device.check("hipGraphLaunch", device.hip.hipGraphLaunch(made, stream))
    device.synchronize(stream)
    np.testing.assert_array_equal(values(out), expected)
    attention = amdattn.plan_attention(
        1, 40, 512, 1, 1, 128, device=amdattn.device_props(), num_splits=4
    )
    q, k = whole(3, 1, 40, 1, 128), whole(4, 1, 512, 1, 128)
    with pytest.raises(ValueError, match=r"is part of a graph, .* this plan would overwrite"):
        attention.run(q, k, k, workspace=larger(workspace, attention))
    device.check("hipGraphExecDestroy", device.hip.hipGraphExecDestroy(made))


def larger(workspace: Any, plan: Any) -> Any:
    """Memory of the same address, of as many bytes as a plan asks for: what the check goes by."""
    from amdattn.arrays.buffers import DeviceArray
    from amdattn.dtypes import as_dtype

    nbytes = plan.workspace.total_bytes
    return DeviceArray(workspace.address, (nbytes,), (1,), as_dtype("uint8"), workspace.memory)


def test_clearing_is_known_to_write(hip_stream: Any) -> None:
    plan, *_ = product(4, 32)
    stream = runtime.stream_handle(hip_stream)
    workspace = plan.new_workspace()
    plan.clear_workspace(workspace, hip_stream)
    assert workspace.stream == stream
    amdattn.synchronize()
    frozen = np.zeros(plan.workspace.total_bytes, np.uint8)
    with pytest.raises(TypeError, match="workspace must be in device memory"):
        plan.clear_workspace(frozen)
