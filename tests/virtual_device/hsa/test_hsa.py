"""The HSA runtime's ABI: what AMD's HIP runtime stands on, called as the specification says."""

from __future__ import annotations

import ctypes
import mmap
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from amdattn.arch.props import KNOWN_DEVICES
from tests.support import hsa_runtime as abi
from tests.support.hip_runtime import ARGS, code_object
from tests.support.hsa_runtime import Hsa, Queue, barrier, dispatch

LANES = 64
FINE, KERNARG, COARSE = 2, 3, 4


@pytest.fixture
def hsa() -> Iterator[Hsa]:
    found = Hsa()
    assert found.lib.hsa_init() == abi.SUCCESS
    yield found
    assert found.lib.hsa_shut_down() == abi.SUCCESS


@pytest.fixture
def queue(hsa: Hsa) -> Iterator[Queue]:
    found = Queue(hsa)
    yield found
    found.destroy()


class Fill:
    """A kernel that writes a value to each lane's word, with its arguments and its result."""

    def __init__(self, hsa: Hsa, code: str = "fill", **metadata: Any) -> None:
        self.hsa = hsa
        cpu, gpu = hsa.visited("hsa_iterate_agents")[:2]
        self.executable, self.kernel = hsa.kernel(code_object(code, **metadata))
        pools = (hsa.pool(gpu, COARSE), hsa.pool(cpu, KERNARG))
        self.out, self.kernarg = (
            hsa.made("hsa_amd_memory_pool_allocate", pool, 4096, 0) for pool in pools
        )

    def packet(self, value: int, signal: int = 0, **fields: Any) -> bytes:
        ctypes.memmove(self.kernarg, struct.pack("<QII", self.out, value, 0xA5A5A5A5), 16)
        return dispatch(self.kernel, self.kernarg, signal, **fields)

    def result(self, words: int = LANES) -> np.ndarray:
        host, done = np.zeros(words, np.uint32), self.hsa.signal()
        status = self.hsa.lib.hsa_amd_memory_async_copy(
            host.ctypes.data, self.hsa.gpu, self.out, self.hsa.gpu, host.nbytes, 0, None, done
        )
        assert status == abi.SUCCESS and self.hsa.wait(done) == 0
        return host

    def free(self) -> None:
        assert self.hsa.lib.hsa_executable_destroy(self.executable) == abi.SUCCESS
        for address in (self.out, self.kernarg):
            assert self.hsa.lib.hsa_amd_memory_pool_free(address) == abi.SUCCESS


@pytest.fixture
def fill(hsa: Hsa) -> Iterator[Fill]:
    found = Fill(hsa)
    yield found
    found.free()


def test_nothing_works_before_it_is_initialised() -> None:
    hsa = Hsa()
    assert hsa.lib.hsa_shut_down() == abi.NOT_INITIALIZED
    assert hsa.lib.hsa_system_get_info(0, ctypes.byref(abi.U64())) == abi.NOT_INITIALIZED


def test_agents(hsa: Hsa) -> None:
    """One CPU and one GPU, which is the process's device."""
    cpu, gpu = hsa.visited("hsa_iterate_agents")
    is_cpu, is_gpu = (hsa.number(agent, 17) for agent in (cpu, gpu))
    assert (is_cpu, is_gpu) == (0, 1)
    (props,) = (
        one for one in KNOWN_DEVICES.values() if hsa.text(gpu, 0xA009) == f"AMD Instinct {one.chip}"
    )
    assert hsa.text(gpu, 0) == props.arch
    assert hsa.number(gpu, 0xA002) == props.num_cus
    assert hsa.number(gpu, 0xA111) == props.num_xcds
    assert hsa.number(gpu, 6) == 64
    assert hsa.lib.hsa_agent_get_info(0x99, 0, ctypes.byref(abi.U64())) != abi.SUCCESS
    assert hsa.lib.hsa_agent_get_info(gpu, 0xFFFF, ctypes.byref(abi.U64())) != abi.SUCCESS


def test_pools(hsa: Hsa) -> None:
    cpu, gpu = hsa.visited("hsa_iterate_agents")
    for agent, flags in ((cpu, FINE), (cpu, KERNARG), (gpu, COARSE)):
        address = hsa.made("hsa_amd_memory_pool_allocate", hsa.pool(agent, flags), 100, 0)
        if agent == cpu:  # the host sees it, and finds zeros
            assert ctypes.string_at(address, 100) == bytes(100)
        assert hsa.lib.hsa_amd_memory_pool_free(address) == abi.SUCCESS
        assert hsa.lib.hsa_amd_memory_pool_free(address) != abi.SUCCESS
    out = abi.U64()
    allocate = hsa.lib.hsa_amd_memory_pool_allocate
    assert allocate(hsa.pool(gpu, COARSE), 0, 0, ctypes.byref(out)) == abi.INVALID_ARGUMENT
    assert allocate(0x99, 64, 0, ctypes.byref(out)) == abi.INVALID_MEMORY_POOL


def test_a_dispatch(hsa: Hsa, queue: Queue, fill: Fill) -> None:
    done = hsa.signal()
    queue.submit(fill.packet(77, done))
    assert hsa.wait(done) == 0
    assert (fill.result() == 77).all()
    assert queue.errors == []
    start, end = struct.unpack("<QQ", ctypes.string_at(done + 32, 16))
    assert 0 < start < end


@pytest.mark.parametrize(
    ("lanes", "grid"),
    [((64,), (65,)), ((64,), (10,)), ((8, 4), (11, 4)), ((8, 4), (20, 3)), ((4, 4, 4), (9, 4, 3))],
    ids=str,
)
def test_partial_workgroups(
    hsa: Hsa, queue: Queue, lanes: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    """The last workgroup along an axis has the lanes that are left, packed into its waves."""
    fill, done = Fill(hsa, "ids"), hsa.signal()
    hsa.lib.hsa_memory_copy(ctypes.c_void_p(fill.out), np.full(1024, 7, np.uint32).ctypes, 4096)
    queue.submit(fill.packet(0, done, lanes=lanes, grid=grid))
    assert hsa.wait(done) == 0 and queue.errors == []
    size = [*lanes, 1, 1][:3]
    expected = np.full((4, LANES), 7, np.uint32)
    for workgroup, first in enumerate(range(0, grid[0], size[0])):
        x, y, z = min(size[0], grid[0] - first), *[*grid, 1, 1][1:3]
        ids = [i | j << 10 | k << 20 for k in range(z) for j in range(y) for i in range(x)]
        expected[workgroup, : len(ids)] = ids
    found = fill.result(expected.size)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    fill.free()


def test_more_packets_than_the_ring_has(hsa: Hsa, queue: Queue, fill: Fill) -> None:
    for value in range(3 * abi.PACKETS):
        done = hsa.signal()
        queue.submit(fill.packet(value, done))
        assert hsa.wait(done) == 0
        assert hsa.lib.hsa_signal_destroy(done) == abi.SUCCESS
    assert (fill.result() == 3 * abi.PACKETS - 1).all()
    assert hsa.lib.hsa_queue_load_read_index_relaxed(queue.handle) == 3 * abi.PACKETS


def test_whoever_writes_a_packet_fills_in_its_hidden_arguments(hsa: Hsa, queue: Queue) -> None:
    """The packet's memory is complete; the device changes none of it."""
    hidden = {**ARGS[1], ".value_kind": "hidden_block_count_x"}
    fill = Fill(hsa, args=[ARGS[0], hidden])
    done = hsa.signal()
    queue.submit(fill.packet(0xABCD, done))
    assert hsa.wait(done) == 0
    assert (fill.result() == 0xABCD).all()
    assert ctypes.string_at(fill.kernarg + 12, 4) == b"\xa5\xa5\xa5\xa5"
    fill.free()


@pytest.mark.parametrize(("kind", "needed"), [(abi.BARRIER_AND, 2), (abi.BARRIER_OR, 1)])
def test_barriers(hsa: Hsa, queue: Queue, fill: Fill, kind: int, needed: int) -> None:
    signals, opened, done = [hsa.signal(), hsa.signal()], hsa.signal(), hsa.signal()
    queue.submit(barrier(kind, signals, opened))
    queue.submit(fill.packet(5, done))
    for signal in signals[:needed]:
        assert hsa.wait(done, 0.05) == 1
        hsa.lib.hsa_signal_store_relaxed(signal, 0)
    assert hsa.wait(opened) == 0 and hsa.wait(done) == 0


def test_a_barrier_on_a_value(hsa: Hsa, queue: Queue) -> None:
    signal, done, format_of_vendor = hsa.signal(0x100), hsa.signal(), 2
    packet = struct.pack(
        "<HBBIQqqIIQQQ",
        *(abi.VENDOR, format_of_vendor, 0, 0, signal, 7, 0xFF, abi.EQUAL, 0, 0, 0, done),
    )
    queue.submit(packet)
    assert hsa.wait(done, 0.05) == 1
    hsa.lib.hsa_signal_store_relaxed(signal, 0x207)
    assert hsa.wait(done) == 0


def test_handlers_of_signals(hsa: Hsa) -> None:
    """Called when the condition holds, again as long as they ask for it."""
    signal, seen, called = hsa.signal(3), [], threading.Event()

    def handle(value: int, _argument: int | None) -> bool:
        seen.append(value)
        hsa.lib.hsa_signal_store_relaxed(signal, value - 1)
        if len(seen) == 3:
            called.set()
        return len(seen) < 3

    callback = abi.ON_SIGNAL(handle)
    status = hsa.lib.hsa_amd_signal_async_handler(signal, abi.LESS, 3, callback, None)
    assert status == abi.SUCCESS and not called.wait(0.05)
    hsa.lib.hsa_signal_store_relaxed(signal, 2)
    assert called.wait(20)
    assert seen == [2, 1, 0]


def test_a_copy_waits_for_its_signals(hsa: Hsa, fill: Fill) -> None:
    host, before, done = np.arange(LANES, dtype=np.uint32), hsa.signal(), hsa.signal()
    after = (abi.U64 * 1)(before)
    hsa.lib.hsa_amd_memory_async_copy(
        fill.out, hsa.gpu, host.ctypes.data, hsa.gpu, host.nbytes, 1, after, done
    )
    assert hsa.wait(done, 0.05) == 1
    hsa.lib.hsa_signal_store_relaxed(before, 0)
    assert hsa.wait(done) == 0
    assert (fill.result() == host).all()


def test_many_threads(hsa: Hsa, fill: Fill) -> None:
    """Queues, signals and copies of four threads at once."""
    failures: list[str] = []

    def work(number: int) -> None:
        own, queue = Fill(hsa), Queue(hsa)
        for i in range(50):
            done = hsa.signal()
            queue.submit(own.packet(100 * number + i, done))
            if hsa.wait(done) != 0 or not (own.result() == 100 * number + i).all():
                failures.append(f"thread {number}, launch {i}")
            hsa.lib.hsa_signal_destroy(done)
        queue.destroy()
        own.free()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def told(queue: Queue) -> int:
    """The status that the queue's error handler got."""
    for _ in range(2000):
        if queue.errors:
            return queue.errors[0]
        threading.Event().wait(0.01)
    raise AssertionError("the error handler was not called")


def test_a_fault_is_told(
    hsa: Hsa, queue: Queue, fill: Fill, capfd: pytest.CaptureFixture[str]
) -> None:
    """The report on stderr, then the queue's handler; nothing of the queue runs any more."""
    ctypes.memmove(fill.kernarg, struct.pack("<QI", 0x1000, 1), 12)
    done = hsa.signal()
    queue.submit(dispatch(fill.kernel, fill.kernarg, done))
    queue.submit(barrier(abi.BARRIER_AND, [], done))
    assert told(queue) == abi.MEMORY_FAULT
    assert "illegal address" in capfd.readouterr().err
    assert hsa.wait(done, 0.05) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel_object": 0x1000}, "no kernel has its descriptor at 0x1000"),
        ({"grid": 0}, "a grid or a workgroup without lanes"),
        ({"kernarg": 0x2000}, "its 16 bytes of arguments at 0x2000 are not the device's"),
    ],
)
def test_packets_that_are_refused(
    hsa: Hsa,
    queue: Queue,
    fill: Fill,
    change: dict[str, int],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fields = {"kernel_object": fill.kernel, "kernarg": fill.kernarg} | change
    queue.submit(dispatch(**fields))
    assert told(queue) == abi.INVALID_PACKET_FORMAT
    assert message in capfd.readouterr().err


def test_locks_may_overlap(hsa: Hsa) -> None:
    """Each has to be undone; host memory that was freed cannot be locked."""
    host, out = np.zeros(4096, np.uint32), abi.U64()
    lock, unlock = hsa.lib.hsa_amd_memory_lock_to_pool, hsa.lib.hsa_amd_memory_unlock
    lock.argtypes = [abi.POINTER, ctypes.c_size_t, abi.POINTER, ctypes.c_int, abi.U64, abi.U32]
    lock.argtypes += [abi.POINTER]
    unlock.argtypes = [abi.POINTER]
    ranges = ((0, 4096), (0, 4096), (2048, 8192))
    for first, size in ranges:
        at = host.ctypes.data + first
        assert lock(at, size, None, 0, 0, 0, ctypes.byref(out)) == abi.SUCCESS
        assert out.value == at
    for first, _ in ranges:
        assert unlock(host.ctypes.data + first) == abi.SUCCESS
    assert unlock(host.ctypes.data) != abi.SUCCESS
    assert lock(0x1000, 64, None, 0, 0, 0, ctypes.byref(out)) == abi.INVALID_ARGUMENT


def test_memory_that_is_unmapped_while_it_is_locked(
    hsa: Hsa, queue: Queue, fill: Fill, capfd: pytest.CaptureFixture[str]
) -> None:
    """A kernel is told, as a GPU would; nothing crashes."""
    memory = mmap.mmap(-1, 8192)
    view = np.frombuffer(memory, np.uint8)
    address, out = view.ctypes.data, abi.U64()
    lock, unlock = hsa.lib.hsa_amd_memory_lock_to_pool, hsa.lib.hsa_amd_memory_unlock
    assert lock(abi.POINTER(address), 8192, None, 0, abi.U64(), 0, ctypes.byref(out)) == abi.SUCCESS
    del view
    memory.close()
    done = hsa.signal()
    hsa.lib.hsa_amd_memory_async_copy(fill.out, hsa.gpu, address, hsa.gpu, 64, 0, None, done)
    assert hsa.lib.hsa_signal_wait_scacquire(done, abi.LESS, 0, int(20e9), 0) == -1
    ctypes.memmove(fill.kernarg, struct.pack("<QI", address, 1), 12)
    queue.submit(dispatch(fill.kernel, fill.kernarg))
    assert told(queue) == abi.MEMORY_FAULT
    assert "is no longer mapped" in capfd.readouterr().err
    assert unlock(abi.POINTER(address)) == abi.SUCCESS


def test_a_queue_that_is_destroyed_ends_what_it_runs(hsa: Hsa) -> None:
    queue, fill, done = Queue(hsa), Fill(hsa, "forever"), hsa.signal()
    queue.submit(fill.packet(0, done))
    assert hsa.wait(done, 0.05) == 1
    queue.destroy()
    assert queue.errors == []
    fill.free()


def test_a_workgroup_that_is_too_large(
    hsa: Hsa, queue: Queue, fill: Fill, capfd: pytest.CaptureFixture[str]
) -> None:
    queue.submit(dispatch(fill.kernel, fill.kernarg, lanes=2048))
    assert told(queue) == abi.INVALID_PACKET_FORMAT
    assert "a workgroup of 2048 lanes, of which a CU takes 1024" in capfd.readouterr().err


def test_what_is_not_supported_says_so_once(hsa: Hsa, capfd: pytest.CaptureFixture[str]) -> None:
    said = 0
    for _ in range(2):
        assert hsa.lib.hsa_amd_svm_prefetch_async() != abi.SUCCESS
        said += capfd.readouterr().err.count("hsa_amd_svm_prefetch_async is not supported")
    assert said == 1
