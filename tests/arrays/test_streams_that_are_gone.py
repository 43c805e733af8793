"""Arrays whose last stream was destroyed go on: its work is waited for, and it is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hip import hip

import amdattn
from amdattn.arrays.buffers import DeviceArray

X = np.random.default_rng(3).standard_normal((1, 32, 2, 64)).astype(np.float16)


def stream() -> Any:
    status, made = hip.hipStreamCreate()
    assert not status
    return made


@pytest.fixture
def right() -> Any:
    return amdattn.flash_attn_func(X, X, X)


@pytest.fixture
def left_behind() -> DeviceArray:
    """What attention has written on a stream that was destroyed at once."""
    x, own = amdattn.asarray(X), stream()
    made = amdattn.flash_attn_func(x, x, x, stream=own)
    assert not hip.hipStreamDestroy(own)[0]
    return made


def on_another_stream(array: DeviceArray) -> Any:
    own = stream()
    try:
        found = amdattn.flash_attn_func(array, array, array, stream=own)
        return found.numpy()
    finally:
        assert not hip.hipStreamDestroy(own)[0]


USES: dict[str, Callable[[DeviceArray], Any]] = {
    "numpy": lambda array: array.numpy(),
    "a view": lambda array: array[:, 3:].numpy(),
    "the default stream": lambda array: amdattn.flash_attn_func(array, array, array).numpy(),
    "another stream": on_another_stream,
    "a copy": lambda array: amdattn.from_dlpack(array, copy=True).numpy(),
    "DLPack on a stream": lambda array: amdattn.from_dlpack(array).numpy(),
    "DLPack to the host": lambda array: np.from_dlpack(array, device="cpu"),
    "written again": lambda array: amdattn.flash_attn_func(
        *[amdattn.asarray(X)] * 3, out=array
    ).numpy(),
}


@pytest.mark.parametrize("use", USES)
def test_every_use(left_behind: DeviceArray, right: Any, use: str) -> None:
    expected = USES[use](amdattn.asarray(right))
    assert np.array_equal(USES[use](left_behind), expected)
    assert np.array_equal(USES[use](left_behind), expected)


def test_in_a_capture_the_remedy_is_named(left_behind: DeviceArray) -> None:
    own = stream()
    x = amdattn.asarray(X)
    out = amdattn.flash_attn_func(x, x, x, stream=own)
    amdattn.synchronize()
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    assert not hip.hipStreamBeginCapture(own, mode)[0]
    try:
        with pytest.raises(ValueError, match=r"destroyed.*amdattn\.synchronize\(\)"):
            amdattn.flash_attn_func(left_behind, x, x, out=out, stream=own)
    finally:
        status, graph = hip.hipStreamEndCapture(own)
    assert not status and not hip.hipGraphDestroy(graph)[0]
    left_behind.stream = None
    assert not hip.hipStreamDestroy(own)[0]


def test_a_destroyed_stream_is_no_place_to_launch(left_behind: DeviceArray) -> None:
    own = stream()
    handle = int(own)
    assert not hip.hipStreamDestroy(own)[0]
    with pytest.raises(amdattn.HipError, match=r"hipErrorInvalidHandle|hipErrorContextIsDestroyed"):
        amdattn.flash_attn_func(left_behind, left_behind, left_behind, stream=handle)
