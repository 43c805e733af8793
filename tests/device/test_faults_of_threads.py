"""Two threads on one device, one of whose calls fault: nobody reads old memory without an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import amdattn

SHAPE = (1, 64, 2, 64)


class Calls:
    """A call that is right, and one whose lengths on the device lie far beyond the keys."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = amdattn.asarray(rng.standard_normal(SHAPE).astype(np.float16))
        self.packed = self.x.reshape(*SHAPE[1:])
        self.ends = amdattn.asarray(np.array([0, 10**6], np.int32))
        self.right = amdattn.flash_attn_func(self.x, self.x, self.x).numpy()

    def attend(self, **options: Any) -> Any:
        return amdattn.flash_attn_func(self.x, self.x, self.x, **options)

    def fault(self, **options: Any) -> Any:
        packed, ends = self.packed, self.ends
        return amdattn.flash_attn_varlen_func(packed, packed, packed, ends, ends, 64, 64, **options)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def is_error(call: Callable[[], object]) -> bool:
    try:
        call()
    except amdattn.HipError as error:
        assert "attn_fwd" in str(error)
        return True
    return False


def elsewhere(call: Callable[[], object]) -> Any:
    """What a call gives in another thread."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(call()))
    thread.start()
    thread.join()
    return given[0]


@pytest.mark.parametrize("arrays", ["device", "host"])
def test_results_beside_faults_are_right_or_errors(calls: Calls, arrays: str) -> None:
    counts = {"right": 0, "error": 0, "wrong": 0}
    ended = threading.Event()
    host = calls.x.numpy()

    def attend() -> Any:
        if arrays == "host":
            return amdattn.flash_attn_func(host, host, host)
        return calls.attend(out=amdattn.asarray(np.zeros(SHAPE, np.float16))).numpy()

    def use() -> None:
        for _ in range(400):
            try:
                found = attend()
            except amdattn.HipError:
                counts["error"] += 1
                is_error(amdattn.synchronize)
            else:
                counts["right" if np.array_equal(found, calls.right) else "wrong"] += 1
        ended.set()

    thread = threading.Thread(target=use)
    thread.start()
    unnoticed = 0
    while not ended.wait(0.002):
        unnoticed += not is_error(lambda: calls.fault().numpy())
        is_error(amdattn.synchronize)
    thread.join()
    assert not counts["wrong"] and not unnoticed, (counts, unnoticed)
    assert counts["right"] and counts["error"], counts


def test_what_was_queued_behind_a_fault_is_there(calls: Calls) -> None:
    out = amdattn.asarray(np.zeros(SHAPE, np.float16))
    lost = calls.fault()
    calls.attend(out=out)
    assert elsewhere(lambda: is_error(amdattn.synchronize))
    assert is_error(out.numpy) and is_error(out.numpy)
    assert is_error(amdattn.synchronize)
    assert np.array_equal(out.numpy(), calls.right)
    assert elsewhere(lambda: is_error(lost.numpy))  # whoever is handed the result
    amdattn.virtual.forget_faults()
    assert not elsewhere(lambda: is_error(out.numpy))


@pytest.mark.parametrize("reader", [elsewhere, lambda call: call()], ids=["another", "the same"])
def test_of_many_results_none_is_old_memory(calls: Calls, reader: Any) -> None:
    """Also those behind, and what was computed from them: no read succeeds unawares."""
    handed = [calls.fault() if i == 3 else calls.attend() for i in range(6)]
    x = handed[3].reshape(*SHAPE)
    handed.append(amdattn.flash_attn_func(x, x, x))
    uploads = [lambda: amdattn.asarray(np.zeros(4, np.float16)), lambda: None]

    def read() -> list[bool]:
        errors = []
        for i, array in enumerate(handed):
            is_error(uploads[i % 2])
            errors.append(is_error(array.numpy))
        return errors

    first = reader(read)
    assert all(first[3:]), first
    # Having synchronized, a reader knows, and has what is right.
    assert is_error(amdattn.synchronize) and not is_error(amdattn.synchronize)
    for i, array in enumerate(handed[:6]):
        assert i == 3 or np.array_equal(array.numpy(), calls.right)


@pytest.mark.parametrize("how", ["own stream", "host arrays"])
def test_other_paths_beside_a_fault(calls: Calls, how: str, hip_stream: Any) -> None:
    host = calls.x.numpy()
    lost = calls.fault()
    if how == "own stream":
        found = calls.attend(stream=hip_stream)
        assert elsewhere(lambda: is_error(amdattn.synchronize))
        assert is_error(found.numpy) and is_error(amdattn.synchronize)
        assert np.array_equal(found.numpy(), calls.right)
    else:
        assert is_error(lambda: amdattn.flash_attn_func(host, host, host))
        assert np.array_equal(amdattn.flash_attn_func(host, host, host), calls.right)
    assert elsewhere(lambda: is_error(lost.numpy))


def test_a_fault_of_a_stream_that_is_gone(calls: Calls) -> None:
    from hip import hip

    status, stream = hip.hipStreamCreate()
    assert not status
    lost = calls.fault(stream=stream)
    assert not hip.hipStreamDestroy(stream)[0]
    assert elsewhere(lambda: is_error(lost.numpy)) and is_error(lost.numpy)
