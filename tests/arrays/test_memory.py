"""The cache of device memory: what may be used again, where, and when."""

import threading

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays import memory
from amdattn.arrays.memory import UNKNOWN_STREAM, Block, Pool, size_class
from amdattn.device import runtime
from amdattn.errors import HipError

SHAPE = (1, 20, 2, 128)


class FakeDevice:
    """Hands out addresses and notes every call; events complete when the test says so."""

    def __init__(self, most=10**12):
        self.most, self.used, self.next = most, 0, 0x1000
        self.sizes, self.done, self.events, self.capturing = {}, set(), [], set()
        self.mallocs = self.frees = 0

    def malloc(self, nbytes):
        self.mallocs += 1
        if self.used + nbytes > self.most:
            raise HipError("hipMalloc", 2, "hipErrorOutOfMemory", "out of memory")
        self.used += nbytes
        address, self.next = self.next, self.next + (1 << 32)
        self.sizes[address] = nbytes
        return address

    def free(self, address):
        self.frees += 1
        self.used -= self.sizes.pop(address)

    def record_event(self, stream):
        if stream == 404:
            raise HipError("hipEventRecord", 400, "hipErrorInvalidHandle", "no such stream")
        self.events.append(stream)
        return stream

    def event_done(self, event):
        return event in self.done

    def destroy_event(self, event):
        self.events.remove(event)

    def is_capturing(self, stream):
        return stream in self.capturing

    def any_capturing(self):
        return bool(self.capturing)


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def pool(device):
    return Pool(device, reuses=True)


def test_size_classes():
    sizes = [size_class(n) for n in range(20000)]
    assert all(size >= n for n, size in enumerate(sizes)) and sizes == sorted(sizes)
    assert all(size <= max(n * 9 / 8 + 1, 512) for n, size in enumerate(sizes))
    assert [size_class(size) for size in sizes] == sizes
    assert len(set(sizes)) < 60 and size_class(0) == 512


def test_same_stream_at_once(pool, device):
    first = pool.take(1000, 7)
    assert not first.is_used_again
    pool.give(first)
    again = pool.take(990, 7)
    assert again is first and again.is_used_again and device.mallocs == 1 and not device.events


def test_another_stream_or_size_gets_other_memory(pool, device):
    pool.give(pool.take(1000, 7))
    blocks = [pool.take(1000, 0), pool.take(2000, 7)]
    assert len({block.address for block in blocks}) == 2 and device.mallocs == 3


def test_waits_for_every_stream_that_used_it(pool, device):
    block = pool.take(1000, 7)
    block.streams |= {8, 9}
    pool.give(block)
    assert pool.take(1000, 7) is not block and sorted(device.events) == [8, 9]
    device.done = {8}
    assert pool.take(1000, 7) is not block
    device.done = {8, 9}
    assert pool.take(1000, 7) is block and not device.events and block.streams == {7}


def test_an_unknown_stream_is_never_trusted(pool, device):
    block = pool.take(1000, 0)
    block.streams.add(UNKNOWN_STREAM)
    pool.give(block)
    assert pool.take(1000, 0) is not block and device.frees == 1


def test_a_stream_that_is_gone(pool, device):
    block = pool.take(1000, 0)
    block.streams.add(404)
    pool.give(block)
    assert pool.take(1000, 0) is not block and device.frees == 1  # which waits for the device


def test_a_capture_records_no_event_of_the_pool(pool, device):
    block = pool.take(1000, 0)
    block.streams.add(8)
    device.capturing.add(8)
    pool.give(block)
    assert pool.take(1000, 0) is not block and not device.events
    device.capturing.clear()
    device.done.add(8)
    assert pool.take(1000, 0) is block


def test_out_of_memory_empties_the_cache_and_tries_again():
    device = FakeDevice(most=4096)
    pool = Pool(device, reuses=True)
    pool.give(pool.take(2048, 0))
    waiting = pool.take(1024, 0)
    waiting.streams.add(5)
    pool.give(waiting)
    block = pool.take(4096, 0)
    assert block.nbytes == 4096 and device.used == 4096 and pool.cached_bytes == 0
    assert not device.events
    with pytest.raises(HipError, match="hipErrorOutOfMemory"):
        pool.take(512, 0)


def test_empty(pool, device):
    blocks = [pool.take(1000, stream) for stream in (0, 1, 2)]
    blocks[1].streams.add(2)
    for block in blocks:
        pool.give(block)
    pool.give(pool.take(5000, 0))
    kept = pool.take(3000, 0)
    assert pool.cached_bytes == 3 * size_class(1000) + size_class(5000)
    pool.empty()
    assert pool.cached_bytes == 0 and device.used == kept.nbytes and not device.events


def test_off(device):
    pool = Pool(device, reuses=False)
    block = pool.take(1001, 0)
    assert block.nbytes == 1001 and device.used == 1001  # to the byte: beyond it is a fault
    pool.give(block)
    assert device.used == 0


def test_giving_back_inside_the_lock(pool):
    """A destructor may run while its own thread allocates: it must not wait for the lock."""
    block = pool.take(1000, 0)
    with pool._lock:
        pool.give(block)
    assert pool.take(1000, 0) is block


def test_threads(pool, device):
    owned, failures = set(), []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(2000):
            if held and rng.random() < 0.5:
                block = held.pop(rng.integers(len(held)))
                owned.discard(block.address)
                pool.give(block)
            else:
                block = pool.take(int(rng.integers(1, 4096)), int(rng.integers(2)))
                if block.address in owned:
                    failures.append(block.address)
                owned.add(block.address)
                held.append(block)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and device.mallocs < 1000


# -- arrays on the device --------------------------------------------------------------------------


@pytest.fixture
def caching():
    with memory.caching(True):
        yield memory.pool()
    assert memory.pool().cached_bytes == 0


def random(seed):
    values = np.random.default_rng(seed).standard_normal(SHAPE, np.float32)
    return values.astype(ml_dtypes.bfloat16)


def test_the_virtual_device_has_it_off():
    assert not memory.pool().reuses
    before = amdattn.virtual.counter("bytes_allocated")
    array = amdattn.empty((3, 1000), "uint8")
    assert amdattn.virtual.counter("bytes_allocated") > before
    del array
    assert amdattn.virtual.counter("bytes_allocated") == before


def test_results_use_the_memory_of_dropped_ones(caching):
    arrays = [amdattn.asarray(random(i)) for i in range(3)]
    wanted = amdattn.flash_attn_func(*map(random, range(3)))
    addresses = set()
    for _ in range(4):
        result = amdattn.flash_attn_func(*arrays)
        addresses.add(result.address)
        assert result.numpy().tobytes() == wanted.tobytes()
        del result
    assert len(addresses) == 1
    kept = [amdattn.flash_attn_func(*arrays) for _ in range(3)]
    assert len({array.address for array in kept}) == 3
    assert all(array.numpy().tobytes() == wanted.tobytes() for array in kept)


def test_lse_too(caching):
    arrays = [amdattn.asarray(random(i)) for i in range(3)]
    first = [x.numpy().tobytes() for x in amdattn.flash_attn_func(*arrays, return_lse=True)]
    for _ in range(3):
        again = amdattn.flash_attn_func(*arrays, return_lse=True)
        assert [x.numpy().tobytes() for x in again] == first


def test_memory_used_again_is_ordered_after_its_last_use(caching, monkeypatch):
    first = amdattn.empty(SHAPE)
    address = first.address
    assert first.stream is None
    del first
    array = amdattn.empty(SHAPE)
    assert array.address == address and array.stream == 0
    waits = []
    monkeypatch.setattr(runtime.get(), "wait_for", lambda *pair: waits.append(pair))
    array.view_on(5)
    assert waits == [(5, 0)]
    array.stream = None
    array._memory.streams.discard(5)  # which is no stream


def test_reads_on_another_stream(caching):
    device = runtime.get()
    made = device.check("hipStreamCreate", device.hip.hipStreamCreate())
    stream = runtime.stream_handle(made)
    q, k, v = (amdattn.asarray(random(i)) for i in range(3))
    result = amdattn.flash_attn_func(q, k, v, stream=stream)
    assert q._memory.streams == {0, stream} and result._memory.streams == {stream}
    q.record_stream(made)
    amdattn.synchronize()
    address = q.address
    del q
    other = amdattn.empty(SHAPE)  # records the event, which may have completed at once
    amdattn.synchronize()
    assert address in (other.address, amdattn.empty(SHAPE).address)
    del result
    device.check("hipStreamDestroy", device.hip.hipStreamDestroy(made))


def test_dlpack_exports_keep_the_memory(caching):
    array = amdattn.asarray(random(1))
    address = array.address
    capsule = array.__dlpack__(stream=0, max_version=(1, 0))
    del array
    assert amdattn.empty(SHAPE).address != address
    del capsule
    others = [amdattn.empty(SHAPE) for _ in range(2)]
    assert address in {other.address for other in others}


def test_dlpack_without_a_stream_returns_to_the_driver(caching):
    array = amdattn.empty(SHAPE)
    capsule = array.__dlpack__(stream=-1, max_version=(1, 0))
    assert UNKNOWN_STREAM in array._memory.streams
    del capsule, array
    before = amdattn.virtual.counter("bytes_allocated")
    other = amdattn.empty((1,), "uint8")
    assert amdattn.virtual.counter("bytes_allocated") < before and other.nbytes == 1


def test_empty_cache(caching):
    array = amdattn.asarray(random(2))
    amdattn.flash_attn_func(array, array, array)
    assert caching.cached_bytes > 0
    amdattn.empty_cache()
    assert caching.cached_bytes == 0
    assert array.numpy().tobytes() == random(2).tobytes()


def test_variable(monkeypatch):
    """What debugging tools set on a GPU."""

    def made():
        monkeypatch.setattr(memory, "_pools", {})
        return memory.pool().reuses

    monkeypatch.setattr(runtime.get(), "choice", type("Choice", (), {"kind": "gpu"}))
    assert made()
    monkeypatch.setenv(memory.NO_CACHE_VARIABLE, "1")
    assert not made()
    monkeypatch.setenv(memory.NO_CACHE_VARIABLE, "0")
    assert made()


def test_block_has_its_home_among_its_streams():
    assert Block(1, 2, 3).streams == {3}
