"""Forward progress, residency, interleaving and repeatability of workgroups and waves."""

from __future__ import annotations

import threading
import time
from ctypes import c_int, c_uint64
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("num_workgroups", [1, 2, 37, 304, 1000])
def test_workgroups_that_wait_for_one_another_all_progress(
    gpu: Any, num_workgroups: int, threads: int
) -> None:
    # 304 CUs hold far more one-wave workgroups than 1000, so that all are resident together.
    gpu.option("threads", threads)
    zeros = np.zeros(num_workgroups, np.int32)
    values, counter, out = gpu.upload(zeros), gpu.upload(zeros[:1]), gpu.upload(zeros)
    function = gpu.function("handshake")
    args = (c_uint64(values), c_uint64(counter), c_uint64(out), c_int(num_workgroups))
    gpu.launch(function, num_workgroups, 64, *args)
    assert gpu.finish() == 0, gpu.report
    expected = 1000 + (np.arange(num_workgroups) + 1) % num_workgroups
    assert (gpu.download(out, zeros) == expected).all()


def test_workgroups_beyond_residency_deadlock_and_are_reported(gpu: Any) -> None:
    # 304 CUs x 32 waves of one-wave workgroups (fewer registers than would limit them).
    num_workgroups = 304 * 32 + 1
    zeros = np.zeros(num_workgroups, np.int32)
    values, counter, out = gpu.upload(zeros), gpu.upload(zeros[:1]), gpu.upload(zeros)
    function = gpu.function("handshake")
    args = (c_uint64(values), c_uint64(counter), c_uint64(out), c_int(num_workgroups))
    gpu.launch(function, num_workgroups, 64, *args)
    assert gpu.finish() != 0
    assert "deadlock" in gpu.report
    assert "handshake" in gpu.report


def test_a_host_write_releases_a_waiting_kernel(gpu: Any) -> None:
    flag = gpu.call("hipHostMalloc", 4, 0)
    word = np.ctypeslib.as_array((c_int * 1).from_address(int(flag)))
    word[0] = 0
    gpu.launch(gpu.function("infinite_loop"), 1, 64, c_uint64(int(flag)))
    time.sleep(0.2)
    word[0] = 1
    assert gpu.finish() == 0, gpu.report
    gpu.call("hipHostFree", flag)


def test_an_endless_wait_ends_as_an_error_and_the_device_lives_on(gpu: Any) -> None:
    flag = gpu.upload(np.zeros(1, np.int32))
    gpu.launch(gpu.function("infinite_loop"), 1, 64, c_uint64(flag))
    assert gpu.finish() != 0
    assert "deadlock" in gpu.report
    check_vector_add(gpu)


def check_vector_add(gpu: Any, n: int = 1000) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((2, n)).astype(np.float32)
    out = np.full(n + 64, np.nan, np.float32)
    address = gpu.upload(out)
    args = (c_uint64(gpu.upload(a)), c_uint64(gpu.upload(b)), c_uint64(address), c_int(n))
    gpu.launch(gpu.function("vector_add"), -(-n // 256), 256, *args)
    assert gpu.finish() == 0, gpu.report
    result = gpu.download(address, out)
    assert (result[:n] == a + b).all()
    assert np.isnan(result[n:]).all()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 255, 256, 257, 4097])
def test_tails(gpu: Any, n: int) -> None:
    check_vector_add(gpu, n)


@pytest.mark.parametrize("quantum", [1, 3, 8, 16])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_every_schedule_reduces_alike(gpu: Any, quantum: int, seed: int) -> None:
    gpu.option("quantum", quantum)
    gpu.option("seed", seed)
    data = np.random.default_rng(7).integers(-1000, 1000, (16, 256)).astype(np.int32)
    zeros = np.zeros(16, np.int32)
    out = gpu.upload(zeros)
    gpu.launch(gpu.function("lds_reduce"), 16, 256, c_uint64(gpu.upload(data)), c_uint64(out))
    assert gpu.finish() == 0, gpu.report
    assert (gpu.download(out, zeros) == data.sum(1)).all()


def test_a_missing_barrier_shows_under_some_schedule(gpu: Any) -> None:
    data = np.random.default_rng(8).integers(1, 1000, (16, 256)).astype(np.int32)
    zeros = np.zeros(16, np.int32)
    out = gpu.upload(zeros)
    function, source = gpu.function("lds_reduce", "MISSING_BARRIER"), gpu.upload(data)
    wrong = 0
    for seed in range(1, 9):
        gpu.option("seed", seed)
        gpu.launch(function, 16, 256, c_uint64(source), c_uint64(out))
        assert gpu.finish() == 0, gpu.report
        wrong += int((gpu.download(out, zeros) != data.sum(1)).sum())
    assert wrong > 0


def test_streams_and_threads_run_at_once(gpu: Any) -> None:
    function = gpu.function("lds_reduce")
    rng = np.random.default_rng(9)
    jobs = []
    for _ in range(8):
        data = rng.integers(-1000, 1000, (40, 256)).astype(np.int32)
        zeros = np.zeros(40, np.int32)
        jobs.append((data, zeros, gpu.upload(data), gpu.upload(zeros), gpu.call("hipStreamCreate")))

    def work(mine: list[Any]) -> None:
        for _ in range(5):
            for _, _, source, out, stream in mine:
                gpu.launch(function, 40, 256, c_uint64(source), c_uint64(out), stream=stream)

    threads = [threading.Thread(target=work, args=(jobs[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gpu.finish() == 0, gpu.report
    for data, zeros, _, out, stream in jobs:
        assert (gpu.download(out, zeros) == data.sum(1)).all()
        gpu.call("hipStreamDestroy", stream)
