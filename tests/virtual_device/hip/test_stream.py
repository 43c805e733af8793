"""Streams, events, host functions and the order between them."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.support.hip_runtime import Gate, HipError

LONG = 400_000  # times around the loop of `spin`: a fraction of a second
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def busy(hip: Any, stream: Any) -> bool:
    return bool(hip.hip.hipStreamQuery(stream)[0] == hip.errors.hipErrorNotReady)


def read(hip: Any, pointer: Any) -> int:
    """First word of a device buffer, without waiting for anything (host memory)."""
    return ctypes.c_uint32.from_address(int(pointer)).value


@pytest.fixture
def word(hip: Any) -> Any:
    """Pinned host memory that kernels can write and the host can watch."""
    pointer = hip.hipHostMalloc(4096, 0)
    ctypes.memset(int(pointer), 0, 4096)
    yield pointer
    hip.hipHostFree(pointer)


def test_launch_returns_before_the_kernel_ends(hip: Any, word: Any) -> None:
    stream = hip.hipStreamCreate()
    _, fill = hip.kernel("fill")
    gate = Gate(hip, stream)
    hip.launch(fill, word, 5, stream=stream)
    assert busy(hip, stream)
    assert read(hip, word) == 0
    gate.open()
    hip.hipStreamSynchronize(stream)
    assert read(hip, word) == 5
    assert not busy(hip, stream)
    gate.close()
    hip.hipStreamDestroy(stream)


@pytest.mark.parametrize("handle", [None, 0, 1])
def test_null_stream_waits_for_blocking_streams(hip: Any, word: Any, handle: Any) -> None:
    stream = hip.hipStreamCreate()
    _, add = hip.kernel("add")
    _, fill = hip.kernel("fill")
    gate = Gate(hip, stream)
    hip.launch(fill, word, 10, stream=stream)
    hip.launch(add, word, 1, stream=handle)  # after the fill
    hip.launch(fill, int(word) + 512, 2, stream=stream)  # after the add
    assert busy(hip, None)
    gate.open()
    hip.hipStreamSynchronize(stream)
    assert (read(hip, word), read(hip, int(word) + 512)) == (11, 2)
    gate.close()
    hip.hipStreamDestroy(stream)


def test_non_blocking_stream_is_independent(hip: Any, word: Any) -> None:
    stream = hip.hipStreamCreateWithFlags(1)
    assert hip.hipStreamGetFlags(stream) == 1
    _, fill = hip.kernel("fill")
    gate = Gate(hip)
    hip.launch(fill, word, 9, stream=stream)
    hip.hipStreamSynchronize(stream)
    assert read(hip, word) == 9
    assert busy(hip, None)
    gate.close()
    hip.hipDeviceSynchronize()
    hip.hipStreamDestroy(stream)


def test_per_thread_stream(hip: Any, word: Any) -> None:
    _, spin = hip.kernel("spin")
    _, fill = hip.kernel("fill")
    ids = {hip.hipStreamGetId(2), hip.hipStreamGetId(None)}

    def work() -> None:
        ids.add(hip.hipStreamGetId(2))
        hip.launch(spin, value=LONG, stream=2)
        hip.launch(fill, word, 4, stream=2)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()  # the work goes on when its thread has ended
    hip.hipDeviceSynchronize()
    assert read(hip, word) == 4
    assert len(ids) == 3


def test_events_order_streams(hip: Any, word: Any) -> None:
    first, second = (hip.hipStreamCreateWithFlags(1) for _ in range(2))
    _, fill = hip.kernel("fill")
    _, add = hip.kernel("add")
    event = hip.hipEventCreate()
    gate = Gate(hip, first)
    hip.launch(fill, word, 20, stream=first)
    hip.hipEventRecord(event, first)
    hip.hipStreamWaitEvent(second, event, 0)
    hip.launch(add, word, 2, stream=second)
    assert hip.hip.hipEventQuery(event)[0] == hip.errors.hipErrorNotReady
    gate.open()
    hip.hipStreamSynchronize(second)
    assert read(hip, word) == 22
    hip.hipEventSynchronize(event)
    gate.close()
    for stream in (first, second):
        hip.hipStreamDestroy(stream)


def test_elapsed_time(hip: Any) -> None:
    start, stop = hip.hipEventCreate(), hip.hipEventCreate()
    with pytest.raises(HipError, match="InvalidHandle"):
        hip.hipEventElapsedTime(start, stop)  # never recorded
    began = time.perf_counter()
    hip.hipEventRecord(start, None)
    gate = Gate(hip)
    hip.hipEventRecord(stop, None)
    with pytest.raises(HipError, match="NotReady"):
        hip.hipEventElapsedTime(start, stop)
    hip.hipEventSynchronize(start)  # a busy CPU may not have come to it yet
    time.sleep(0.002)
    gate.open()
    hip.hipEventSynchronize(stop)
    ms = hip.hipEventElapsedTime(start, stop)
    assert 1 < ms <= (time.perf_counter() - began) * 1e3
    gate.close()
    untimed = hip.hipEventCreateWithFlags(2)
    hip.hipEventRecord(untimed, None)
    with pytest.raises(HipError, match="InvalidHandle"):
        hip.hipEventElapsedTime(start, untimed)


def test_unrecorded_event_is_complete(hip: Any) -> None:
    event = hip.hipEventCreate()
    hip.hipEventQuery(event)
    hip.hipEventSynchronize(event)
    hip.hipStreamWaitEvent(None, event, 0)


# Host functions written in Python: wait for them through ctypes, since hip-python before 10 holds
# the interpreter lock during its calls.
def test_host_functions_run_in_order(hip: Any) -> None:
    stream = hip.hipStreamCreate()
    seen: list[Any] = []
    one = HOST_FUNCTION(seen.append)
    two = CALLBACK(lambda s, status, data: seen.append((status, data, s == int(stream))))
    gate = Gate(hip, stream)
    hip.lib.hipLaunchHostFunc(ctypes.c_void_p(int(stream)), one, ctypes.c_void_p(11))
    hip.lib.hipStreamAddCallback(ctypes.c_void_p(int(stream)), two, ctypes.c_void_p(12), 0)
    assert seen == []
    gate.open()
    hip.lib.hipStreamSynchronize(ctypes.c_void_p(int(stream)))
    assert seen == [11, (0, 12, True)]
    gate.close()
    hip.hipStreamDestroy(stream)


@pytest.mark.timeout(60)  # a wait that is not refused has no end
@pytest.mark.parametrize("how", ["device", "stream", "null stream", "event", "copy"])
def test_host_function_cannot_wait(hip: Any, how: str) -> None:
    """It would wait for itself."""
    lib, event, stream = hip.lib, hip.hipEventCreate(), hip.hipStreamCreate()
    behind, own = ctypes.c_void_p(int(event)), ctypes.c_void_p(int(stream))
    device = ctypes.c_void_p(int(hip.hipMalloc(64)))
    host = (ctypes.c_uint8 * 64)()
    wait = {
        "device": lib.hipDeviceSynchronize,
        "stream": lambda: lib.hipStreamSynchronize(own),
        "null stream": lambda: lib.hipStreamSynchronize(None),
        "event": lambda: lib.hipEventSynchronize(behind),
        "copy": lambda: lib.hipMemcpy(host, device, 64, 2),
    }[how]
    codes: list[int] = []
    recorded = threading.Event()

    def call(_: object) -> None:
        recorded.wait(10)
        codes.append(wait())

    function = HOST_FUNCTION(call)
    lib.hipLaunchHostFunc(own, function, None)
    lib.hipEventRecord(behind, own)
    recorded.set()
    lib.hipStreamSynchronize(own)
    assert codes == [hip.errors.hipErrorIllegalState]
    hip.hipStreamDestroy(stream)
    hip.hipEventDestroy(event)
    hip.hipFree(device.value)


def test_destroy_waits_for_work(hip: Any, word: Any) -> None:
    stream = hip.hipStreamCreate()
    _, spin = hip.kernel("spin")
    _, fill = hip.kernel("fill")
    hip.launch(spin, value=LONG, stream=stream)
    hip.launch(fill, word, 8, stream=stream)
    hip.hipStreamDestroy(stream)
    assert read(hip, word) == 8


def test_dead_and_foreign_handles(hip: Any) -> None:
    stream, event = hip.hipStreamCreate(), hip.hipEventCreate()
    hip.hipStreamDestroy(stream)
    hip.hipEventDestroy(event)
    calls = [
        lambda: hip.hipStreamSynchronize(stream),
        lambda: hip.hipStreamDestroy(stream),
        lambda: hip.hipStreamSynchronize(0xDEAD0000),
        lambda: hip.hipStreamSynchronize(event),
        lambda: hip.hipStreamDestroy(None),
        lambda: hip.hipEventSynchronize(event),
        lambda: hip.hipEventRecord(None, None),
        lambda: hip.hipEventRecord(hip.hipEventCreate(), 0x1000),
        lambda: hip.hipGraphExecDestroy(8),
    ]
    for call in calls:
        with pytest.raises(HipError, match="InvalidHandle"):
            call()


def test_dead_and_foreign_handles_of_other_kinds(hip: Any) -> None:
    event = hip.hipEventCreate()
    hip.hipEventDestroy(event)
    with pytest.raises(HipError, match="ContextIsDestroyed"):
        hip.hipEventDestroy(event)
    with pytest.raises(HipError, match="InvalidHandle"):
        hip.hipEventRecord(None, None)
    with pytest.raises(HipError, match="NotFound"):
        hip.hipModuleUnload(0x1234)
    with pytest.raises(HipError, match="IllegalState"):
        hip.hipGraphDestroy(hip.hipStreamCreate())


def test_priorities(hip: Any) -> None:
    least, greatest = hip.hipDeviceGetStreamPriorityRange()
    assert least > greatest
    for asked, given in ((greatest - 5, greatest), (0, 0), (least + 5, least)):
        stream = hip.hipStreamCreateWithPriority(0, asked)
        assert hip.hipStreamGetPriority(stream) == given
        hip.hipStreamDestroy(stream)
    with pytest.raises(HipError, match="InvalidValue"):
        hip.hipStreamCreateWithFlags(2)


def test_many_threads(hip: Any) -> None:
    """Threads with streams of their own do not disturb each other."""
    _, add = hip.kernel("add")
    failures: list[Any] = []

    def work(value: int) -> None:
        try:
            stream = hip.hipStreamCreate()
            pointer = hip.hipMallocAsync(256, stream)
            hip.hipMemsetAsync(pointer, 0, 256, stream)
            for _ in range(20):
                hip.launch(add, pointer, value, stream=stream)
            result = np.zeros(64, np.uint32)
            kind = hip.hip.hipMemcpyKind.hipMemcpyDeviceToHost
            hip.hipMemcpyAsync(result.ctypes.data, pointer, 256, kind, stream)
            if not (result == 20 * value).all():
                failures.append((value, result))
            hip.hipFreeAsync(pointer, stream)
            hip.hipStreamDestroy(stream)
        except Exception as error:
            failures.append((value, error))

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
