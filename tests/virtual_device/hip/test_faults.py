"""Faults of asynchronous work: every thread that waits for it is told once; the rest runs."""

from __future__ import annotations

import ctypes
import threading
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
    if "query" in how or how == "copy":  # until the thread synchronizes
        with pytest.raises(HipError, match="IllegalAddress"):
            waits[how]()
        with pytest.raises(HipError, match="IllegalAddress"):
            hip.hipStreamSynchronize(stream)
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


def test_work_behind_a_fault_runs(hip: Any) -> None:
    """On its stream, and on those that wait for it; whoever waits for either is told."""
    first, second = (hip.hipStreamCreateWithFlags(1) for _ in range(2))
    event = hip.hipEventCreate()
    words = [Word(hip) for _ in range(2)]
    _, fill = hip.kernel("fill")
    hip.launch(fill, BAD_ADDRESS, stream=first)
    hip.launch(fill, words[0].address, 1, stream=first)
    hip.hipEventRecord(event, first)
    hip.hipStreamWaitEvent(second, event, 0)
    hip.launch(fill, words[1].address, 2, stream=second)
    with pytest.raises(HipError, match="IllegalAddress"):
        hip.hipStreamSynchronize(second)
    hip.hipStreamSynchronize(first)  # one fault, one report
    assert [word.value for word in words] == [1, 2]
    for stream in (first, second):
        hip.hipStreamDestroy(stream)


class Word:
    """A word of host memory that kernels can write."""

    def __init__(self, hip: Any) -> None:
        self.address = hip.hipHostMalloc(4096, 0)
        self._word = ctypes.c_uint32.from_address(int(self.address))
        self._word.value = 0

    @property
    def value(self) -> int:
        return self._word.value


# What another thread may call, and whether it waits for the null stream.
def calls(hip: Any) -> dict[str, Callable[[], int]]:
    pointer, host = int(hip.hipMalloc(256)), ctypes.create_string_buffer(256)
    event = hip.hipEventCreate()
    lib, at, size = hip.lib, ctypes.c_void_p(pointer), ctypes.c_size_t(256)

    def own_stream() -> int:
        stream = hip.hipStreamCreate()
        hip.hipMemsetAsync(pointer, 0, 256, stream)
        return int(hip.hip.hipStreamSynchronize(stream)[0])

    def recorded() -> int:
        hip.hipEventRecord(event, None)
        return int(hip.hip.hipEventSynchronize(event)[0])

    return {
        "device": lib.hipDeviceSynchronize,
        "stream": lambda: lib.hipStreamSynchronize(None),
        "event": recorded,
        "blocking stream": own_stream,
        "to the host": lambda: lib.hipMemcpy(host, at, size, 2),
        "from the host": lambda: lib.hipMemcpyAsync(at, host, size, 1, None),
        "on the device": lambda: lib.hipMemcpy(at, at, size, 3),
        "fill": lambda: lib.hipMemset(at, 0, size),
        "stream, of the thread": lambda: (
            lib.hipStreamSynchronize_spt(None) or lib.hipStreamSynchronize(None)
        ),
    }


def in_a_thread(call: Callable[[], int]) -> int:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(call()))
    thread.start()
    thread.join()
    return codes[0]


def test_every_thread_is_told_whatever_it_waits_with(hip: Any) -> None:
    _, fill = hip.kernel("fill")
    word = Word(hip)
    made = calls(hip)
    hip.launch(fill, BAD_ADDRESS)
    hip.launch(fill, word.address, 7)
    for name, call in made.items():
        assert in_a_thread(call) == hip.errors.hipErrorIllegalAddress, name
    for name, call in made.items():  # those that come later, too
        assert in_a_thread(call) == hip.errors.hipErrorIllegalAddress, name
    assert word.value == 7
    with pytest.raises(HipError, match="IllegalAddress"):  # and who has queued it
        hip.hipDeviceSynchronize()
    for call in made.values():
        assert call() == 0


def test_a_thread_is_told_once(hip: Any) -> None:
    _, fill = hip.kernel("fill")
    hip.launch(fill, BAD_ADDRESS)

    def twice() -> int:
        first, second = hip.lib.hipStreamSynchronize(None), hip.lib.hipStreamSynchronize(None)
        assert (first, second, hip.lib.hipDeviceSynchronize()) == (first, 0, 0)
        return int(first)

    assert in_a_thread(twice) == hip.errors.hipErrorIllegalAddress
    assert hip.lib.hipDeviceSynchronize() == hip.errors.hipErrorIllegalAddress


def test_the_report_is_of_the_fault_that_is_told(hip: Any) -> None:
    """Not of what failed last, and it says who queued the launch."""
    _, fill = hip.kernel("fill")
    hip.launch(fill, BAD_ADDRESS)
    reports: list[str] = []

    def wait() -> int:
        code = hip.lib.hipDeviceSynchronize()
        in_a_thread(lambda: hip.lib.hipMemset(ctypes.c_void_p(16), 0, ctypes.c_size_t(16)))
        reports.append(hip.report)
        return int(code)

    assert in_a_thread(wait) == hip.errors.hipErrorIllegalAddress
    assert "kernel k" in reports[0] and "0x123456000" in reports[0]
    assert "queued by another thread" in reports[0]
    assert hip.lib.hipDeviceSynchronize() == hip.errors.hipErrorIllegalAddress
    assert "0x123456000" in hip.report and "another thread" not in hip.report


def test_a_reset_ends_it_but_not_for_who_has_queued(hip: Any) -> None:
    _, fill = hip.kernel("fill")
    queued, reset = threading.Event(), threading.Event()

    def queue() -> int:
        hip.launch(fill, BAD_ADDRESS)
        queued.set()
        reset.wait()
        return int(hip.lib.hipDeviceSynchronize())

    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(queue()))
    thread.start()
    queued.wait()
    hip.hipDeviceReset()
    hip.hipDeviceSynchronize()
    assert in_a_thread(hip.lib.hipDeviceSynchronize) == 0
    reset.set()
    thread.join()
    assert codes == [hip.errors.hipErrorIllegalAddress]


def test_own_streams_learn_of_open_faults_only(hip: Any) -> None:
    """By the order of the null stream alone; who waits by an event learns of every one."""
    _, fill = hip.kernel("fill")
    own = hip.hipStreamCreate()
    event = hip.hipEventCreate()

    def use(wait: bool) -> int:
        if wait:
            hip.hipStreamWaitEvent(own, event, 0)
        hip.launch(fill, Word(hip).address, 1, stream=own)
        return int(hip.lib.hipStreamSynchronize(ctypes.c_void_p(int(own))))

    hip.launch(fill, BAD_ADDRESS)
    hip.hipEventRecord(event, None)
    assert hip.lib.hipStreamSynchronize(None) == hip.errors.hipErrorIllegalAddress
    assert in_a_thread(lambda: use(False)) == 0
    assert in_a_thread(lambda: use(True)) == hip.errors.hipErrorIllegalAddress
    hip.hipStreamDestroy(own)


def test_of_many_faults_the_last_are_kept_and_the_others_counted(hip: Any) -> None:
    _, fill = hip.kernel("fill")
    stream = hip.hipStreamCreateWithFlags(1)
    for i in range(100):
        hip.launch(fill, BAD_ADDRESS + 4096 * i, stream=stream)
    with pytest.raises(HipError, match="IllegalAddress"):
        hip.hipStreamSynchronize(stream)
    assert "and 96 more that faulted" in hip.report and hip.report.count("kernel k") == 4
    hip.hipStreamSynchronize(stream)
    hip.hipStreamDestroy(stream)
    hip.hipDeviceSynchronize()


def test_a_graph_ends_at_the_node_that_faults(hip: Any) -> None:
    _, fill = hip.kernel("fill")
    stream = hip.hipStreamCreateWithFlags(1)
    words = [Word(hip) for _ in range(2)]
    hip.hipStreamBeginCapture(stream, hip.hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed)
    hip.launch(fill, BAD_ADDRESS, stream=stream)
    hip.launch(fill, words[0].address, 1, stream=stream)
    graph = hip.hipStreamEndCapture(stream)
    executable = hip.hipGraphInstantiateWithFlags(graph, 0)
    hip.hipGraphLaunch(executable, stream)
    hip.launch(fill, words[1].address, 2, stream=stream)
    for wait in (in_a_thread, lambda call: call()):
        code = wait(lambda: hip.lib.hipStreamSynchronize(ctypes.c_void_p(int(stream))))
        assert code == hip.errors.hipErrorIllegalAddress
    assert [word.value for word in words] == [0, 2]


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
