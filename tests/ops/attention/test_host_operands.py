"""Operands on the host: small ones beside others on the device, and results that have gaps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray
from amdattn.device import runtime

BF16 = ml_dtypes.bfloat16


def some(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32).astype(BF16)


def bits(x: amdattn.DeviceArray) -> Any:
    return x.numpy().view(np.uint16)


def test_sinks_on_the_host_beside_others_on_the_device() -> None:
    q, k = asarray(some(1, 20, 4, 64)), asarray(some(1, 30, 2, 64))
    sinks = np.float32([3, -1, 0, 9, 2, 2, 2, 2])
    for given in (sinks[:4], sinks[::2]):
        out = amdattn.flash_attn_func(q, k, k, sinks=given)
        must = amdattn.flash_attn_func(q, k, k, sinks=asarray(given.copy()))
        np.testing.assert_array_equal(bits(out), bits(must))
    sums = np.int32([0, 20]), np.int32([0, 30])
    of_rows = amdattn.flash_attn_varlen_func(q[0], k[0], k[0], *sums, 20, 30, sinks=sinks[:4])
    must = amdattn.flash_attn_varlen_func(q[0], k[0], k[0], *sums, 20, 30, sinks=asarray(sinks[:4]))
    np.testing.assert_array_equal(bits(of_rows), bits(must))
    plan = amdattn.plan_attention(1, 20, 30, 4, 2, 64, sinks=True, device=amdattn.device_props())
    np.testing.assert_array_equal(bits(plan.run(q, k, k, sinks=sinks[::2])), bits(out))


def test_not_the_other_way_round(launches: list[Any]) -> None:
    q, k = some(1, 20, 4, 64), some(1, 30, 2, 64)
    with pytest.raises(TypeError, match="sinks on the device"):
        amdattn.flash_attn_func(q, k, k, sinks=asarray(np.zeros(4, np.float32)))
    assert launches == []


def test_what_is_copied_is_refused_while_a_graph_is_captured(hip_stream: Any) -> None:
    """Its replays would not read it."""
    q, k = asarray(some(1, 20, 4, 64)), asarray(some(1, 30, 2, 64))
    sinks, out = np.zeros(4, np.float32), amdattn.empty(q.shape)
    amdattn.flash_attn_func(q, k, k, sinks=sinks, out=out)  # loads the kernel: a capture must not
    amdattn.synchronize()
    out.stream = None
    device = runtime.get()
    hip, call = device.hip, device.check
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    call("hipStreamBeginCapture", hip.hipStreamBeginCapture(hip_stream, mode))
    try:
        with pytest.raises(ValueError, match=r"captured.*sinks must be a float32 array in device"):
            amdattn.flash_attn_func(q, k, k, sinks=sinks, out=out, stream=hip_stream)
    finally:
        graph = call("hipStreamEndCapture", hip.hipStreamEndCapture(hip_stream))
        call("hipGraphDestroy", hip.hipGraphDestroy(graph))


def test_rows_of_no_sequence_stay_as_they_are() -> None:
    q, k = some(30, 2, 64), some(40, 2, 64)
    out, lse = np.full(q.shape, 7, BF16), np.full((2, 30), 7, np.float32)
    # Also of results with gaps.
    apart = np.full((30, 3, 64), 7, BF16)
    for given in (out, apart[:, :2]):
        amdattn.flash_attn_varlen_func(q, k, k, [0, 0, 20], [0, 3, 40], 20, 37, out=given, lse=lse)
        assert np.all(given[20:] == 7) and np.all(lse[:, 20:] == 7)
        must = amdattn.flash_attn_varlen_func(q, k, k, [0, 0, 20], [0, 3, 40], 20, 37)
        np.testing.assert_array_equal(given[:20], must[:20])
    assert np.all(apart[:, 2] == 7)
