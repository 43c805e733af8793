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


def test_results_beside_faults_are_right_or_errors(calls: Calls) -> None:
    counts = {"right": 0, "error": 0, "wrong": 0}
    ended = threading.Event()

    def use() -> None:
        for _ in range(400):
            try:
                out = amdattn.asarray(np.zeros(SHAPE, np.float16))
                found = calls.attend(out=out).numpy()
            except amdattn.HipError:
                counts["error"] += 1
            else:
                counts["right" if np.array_equal(found, calls.right) else "wrong"] += 1
        ended.set()

    thread = threading.Thread(target=use)
    thread.start()
    unnoticed = 0
    while not ended.wait(0.002):
        unnoticed += not is_error(lambda: calls.fault().numpy())
    thread.join()
    assert not counts["wrong"] and not unnoticed, (counts, unnoticed)
    assert counts["right"] and counts["error"], counts


def test_what_was_queued_behind_a_fault_is_there(calls: Calls) -> None:
    out = amdattn.asarray(np.zeros(SHAPE, np.float16))
    lost = calls.fault()
    calls.attend(out=out)
    assert elsewhere(lambda: is_error(amdattn.synchronize))
    assert is_error(out.numpy)  # this thread is told with the first that it reads
    assert np.array_equal(out.numpy(), calls.right)
    assert elsewhere(lambda: is_error(lost.numpy))  # whoever is handed the result
    amdattn.virtual.forget_faults()
    assert not elsewhere(lambda: is_error(out.numpy))


def test_a_thread_that_never_waits_hands_on_no_old_memory(calls: Calls) -> None:
    handed = [calls.fault() if i == 3 else calls.attend() for i in range(6)]

    def read() -> tuple[list[bool], list[bool]]:
        errors, right = [], []
        for i, array in enumerate(handed):
            errors.append(is_error(array.numpy))
            right.append(i == 3 or np.array_equal(array.numpy(), calls.right))
        return errors, right

    errors, right = elsewhere(read)
    assert any(errors[:4]) and all(right)


@pytest.mark.parametrize("how", ["own stream", "host arrays"])
def test_other_paths_beside_a_fault(calls: Calls, how: str, hip_stream: Any) -> None:
    host = calls.x.numpy()
    lost = calls.fault()
    if how == "own stream":
        found = calls.attend(stream=hip_stream)
        assert elsewhere(lambda: is_error(amdattn.synchronize))
        assert is_error(found.numpy)
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
