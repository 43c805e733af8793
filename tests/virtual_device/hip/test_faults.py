"""Faults of asynchronous work: reported once, by the first call that waits for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.hip_runtime import HipError

BAD_ADDRESS = 0x123456000


@pytest.fixture(autouse=True)
def impatient(hip: Any) -> Any:
    assert hip.set_option("max_instructions", 50_000)
    yield
    hip.hip.hipDeviceSynchronize()
    assert hip.set_option("max_instructions", 1 << 30)


def works(hip: Any) -> bool:
    pointer = hip.hipHostMalloc(4096, 0)
    _, fill = hip.kernel("fill")
    hip.launch(fill, pointer, 321)
    hip.hipDeviceSynchronize()
    value = ctypes.c_uint32.from_address(int(pointer)).value
    hip.hipHostFree(pointer)
    return value == 321


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("fill", "IllegalAddress", "0x123456000"),
        ("illegal", "LaunchFailure", "illegal instruction"),
        ("forever", "LaunchTimeOut", "s_branch"),
    ],
)
def test_reported_once(hip: Any, code: str, error: str, words: str) -> None:
    _, function = hip.kernel(code)
    hip.launch(function, BAD_ADDRESS)
    with pytest.raises(HipError, match=error):
        hip.hipDeviceSynchronize()
    assert words in hip.report
    assert "kernel k" in hip.report
    hip.hipDeviceSynchronize()
    assert works(hip)


def until_ready(query: Callable[[Any], Any], handle: Any) -> None:
    while True:
        try:
            return query(handle)  # type: ignore[no-any-return]
        except HipError as error:
            if error.code != "hipErrorNotReady":
                raise


@pytest.mark.parametrize("how", ["stream", "event", "copy", "null stream", "query", "event query"])
def test_reported_by_whatever_waits(hip: Any, how: str) -> None:
    stream, event = hip.hipStreamCreate(), hip.hipEventCreate()
    pointer = hip.hipMalloc(256)
    host = ctypes.create_string_buffer(256)
    kind = hip.hip.hipMemcpyKind.hipMemcpyDeviceToHost
    waits = {
        "stream": lambda: hip.hipStreamSynchronize(stream),
        "event": lambda: hip.hipEventSynchronize(event),
        "copy": lambda: hip.hipMemcpy(ctypes.addressof(host), pointer, 256, kind),
        "null stream": lambda: hip.hipStreamSynchronize(None),
        "query": lambda: until_ready(hip.hipStreamQuery, stream),
        "event query": lambda: until_ready(hip.hipEventQuery, event),
    }
    _, function = hip.kernel("fill")
    hip.launch(function, BAD_ADDRESS, stream=stream)
    hip.hipEventRecord(event, stream)
    with pytest.raises(HipError, match="IllegalAddress"):
        waits[how]()
    hip.hipDeviceSynchronize()
    hip.hipStreamDestroy(stream)
    assert works(hip)


def test_other_streams_are_not_blamed(hip: Any) -> None:
    bad, good = (hip.hipStreamCreateWithFlags(1) for _ in range(2))
    _, fill = hip.kernel("fill")
    _, nothing = hip.kernel("nothing")
    hip.launch(fill, BAD_ADDRESS, stream=bad)
    hip.launch(nothing, stream=good)
    hip.hipStreamSynchronize(good)
    with pytest.raises(HipError, match="IllegalAddress"):
        hip.hipStreamSynchronize(bad)
    for stream in (bad, good):
        hip.hipStreamDestroy(stream)


def test_work_that_depends_on_the_fault_is_dropped(hip: Any) -> None:
    """Later kernels of the stream, and of streams that wait for it, do not run."""
    first, second = (hip.hipStreamCreateWithFlags(1) for _ in range(2))
    event = hip.hipEventCreate()
    word = hip.hipHostMalloc(4096, 0)
    ctypes.memset(int(word), 0, 4096)
    _, fill = hip.kernel("fill")
    hip.launch(fill, BAD_ADDRESS, stream=first)
    hip.launch(fill, word, 1, stream=first)
    hip.hipEventRecord(event, first)
    hip.hipStreamWaitEvent(second, event, 0)
    hip.launch(fill, word, 2, stream=second)
    with pytest.raises(HipError, match="IllegalAddress"):
        hip.hipStreamSynchronize(second)
    hip.hipStreamSynchronize(first)  # one fault, one report
    assert ctypes.c_uint32.from_address(int(word)).value == 0
    hip.launch(fill, word, 3, stream=second)
    hip.hipStreamSynchronize(second)
    assert ctypes.c_uint32.from_address(int(word)).value == 3
    for stream in (first, second):
        hip.hipStreamDestroy(stream)


def test_frees_do_not_swallow_faults(hip: Any) -> None:
    """Destructors free memory and ignore results."""
    stream = hip.hipStreamCreate()
    pointer = hip.hipMalloc(64)
    _, function = hip.kernel("illegal")
    hip.launch(function, stream=stream)
    hip.hipFree(pointer)
    hip.hipFreeAsync(hip.hipMallocAsync(64, stream), stream)
    hip.hipStreamDestroy(stream)
    with pytest.raises(HipError, match="LaunchFailure"):
        hip.hipDeviceSynchronize()
    hip.hipDeviceSynchronize()


def test_use_after_free_by_a_copy(hip: Any) -> None:
    """Memory that an earlier operation of the stream frees is gone when a later one runs."""
    stream = hip.hipStreamCreate()
    source, target = hip.hipMalloc(4096), hip.hipMalloc(4096)
    _, spin = hip.kernel("spin")
    hip.launch(spin, value=5000, stream=stream)
    hip.hipFreeAsync(target, stream)
    # The second of the call, if the free came first.
    with pytest.raises(HipError, match=r"IllegalAddress|InvalidValue"):
        hip.hipMemcpyDtoDAsync(target, source, 4096, stream)
        hip.hipStreamSynchronize(stream)
    assert "has been freed" in hip.report
    hip.hipStreamDestroy(stream)


def test_callbacks_learn_of_the_fault(hip: Any) -> None:
    callback_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    seen: list[int] = []
    callback = callback_type(lambda stream, status, data: seen.append(status))
    _, function = hip.kernel("illegal")
    hip.launch(function)
    hip.lib.hipStreamAddCallback(None, callback, None, 0)
    assert hip.lib.hipStreamSynchronize(None) == hip.errors.hipErrorLaunchFailure
    assert seen == [hip.errors.hipErrorLaunchFailure]
