"""Thousands of calls on four threads, with arrays made and dropped: same bits, no growth."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.dlpack import HostTensor
from amdattn.device import runtime

THREADS = 4
_PAGE_BYTES = 4096
_LEAKED_BYTES = 4 * 2**20  # at most: a call's arrays are 6 KiB, of which 10,000 calls make 60 MiB


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE_BYTES


def from_numpy(array: Any) -> Any:
    return array.copy()


def from_device(array: Any) -> Any:
    return amdattn.asarray(array)


class Foreign(HostTensor):
    """What only DLPack is seen of, of no library that could take results."""


def from_protocol(array: Any) -> Any:
    return Foreign(array.copy())


def through_dlpack(array: Any) -> Any:
    """Device memory by way of a capsule, of either kind, or a copy."""
    x = amdattn.asarray(array)
    return amdattn.from_dlpack(x if array.ndim % 2 else amdattn.from_dlpack(x, copy=True))


def from_jax(array: Any) -> Any:
    return pytest.importorskip("jax.numpy").asarray(array)


def from_torch(array: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)


CORE: tuple[Callable[[Any], Any], ...] = (from_numpy, from_device, from_protocol, through_dlpack)
LIBRARIES = (*CORE, from_jax, from_torch)


class Calls:
    """One call of each function, on inputs of its own in every thread and round."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)

        def drawn(*shape: int) -> Any:
            return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)

        self._inputs = {
            amdattn.rms_norm: (drawn(2, 64), drawn(64)),
            amdattn.gemm_nt: (drawn(1, 64), drawn(16, 64)),
            amdattn.flash_attn_func: (drawn(1, 1, 1, 64), drawn(1, 3, 1, 64), drawn(1, 3, 1, 64)),
        }
        self._expected = {
            function: self._bits(function(*inputs)) for function, inputs in self._inputs.items()
        }

    def one(self, number: int, made_by: Callable[[Any], Any]) -> bool:
        """Whether call `number` gives the bits of the first one."""
        # Attention takes 5 times as long as the others here.
        function = (*self._inputs,)[2 if number % 10 == 9 else number % 2]
        results = function(*map(made_by, self._inputs[function]))
        return self._bits(results) == self._expected[function]

    def _bits(self, results: Any) -> bytes:
        made = results if isinstance(results, tuple) else (results,)
        return b"".join(
            x.tobytes() if isinstance(x, np.ndarray) else amdattn.asarray(x).numpy().tobytes()
            for x in made
        )


def run(producers: tuple[Callable[[Any], Any], ...], count: int) -> list[str]:
    """What went wrong in `count` calls on four threads, the producers in turns."""
    calls, faults = Calls(), []
    begin = threading.Barrier(THREADS)

    def work(first: int) -> None:
        begin.wait()
        for number in range(first, count, THREADS):
            made_by = producers[number // THREADS % len(producers)]
            try:
                if not calls.one(number // THREADS, made_by):
                    faults.append(f"call {number} of {made_by.__name__} has other bits")
            except Exception as error:  # a thread's own would be lost
                faults.append(f"call {number} of {made_by.__name__}: {error!r}")

    threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return faults


def check(producers: tuple[Callable[[Any], Any], ...], count: int) -> None:
    assert run(producers, max(200, count // 5)) == []  # plans, caches, allocators' arenas
    before = resident_bytes()
    assert run(producers, count) == []
    grown = resident_bytes() - before
    assert grown < _LEAKED_BYTES, f"{grown / 2**20:.1f} MiB in {count} calls"
    runtime.get().synchronize_all()


def test_a_thousand_calls() -> None:
    check(CORE, 600)


@pytest.mark.slow
def test_ten_thousand_calls() -> None:
    check(CORE, 10_000)


@pytest.mark.slow
@pytest.mark.parametrize("producer", LIBRARIES)
def test_ten_thousand_calls_of_a_producer(producer: Callable[[Any], Any]) -> None:
    producer(np.ones((2, 2), ml_dtypes.bfloat16))  # skips if the library is not there
    check((producer,), 10_000)


@pytest.mark.oracles
def test_calls_of_all_libraries_in_one_process() -> None:
    for producer in LIBRARIES:
        producer(np.ones((2, 2), ml_dtypes.bfloat16))
    check(LIBRARIES, 600)


@pytest.mark.oracles
@pytest.mark.slow
def test_ten_thousand_calls_of_all_libraries_in_one_process() -> None:
    for producer in LIBRARIES:
        producer(np.ones((2, 2), ml_dtypes.bfloat16))
    check(LIBRARIES, 10_000)
