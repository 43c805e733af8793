"""Device memory of the virtual device: address ranges, guards, reuse, host memory, threads."""

from __future__ import annotations

import ctypes
import mmap
import random
import resource
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.loader_library import LIBRARY, Allocation

DEVICE, HOST, MANAGED = 0, 1, 2
GIB = 1 << 30
GUARD = 64 * 1024


class Memory:
    def __init__(self, capacity: int = 192 * GIB, range_bytes: int = 1 << 40) -> None:
        self._handle = LIBRARY.vdev_test_memory_new(capacity, range_bytes)

    def close(self) -> None:
        LIBRARY.vdev_test_memory_delete(self._handle)

    def allocate(
        self, size: int, kind: int = DEVICE, flags: int = 0, zero: bool = False
    ) -> Allocation | None:
        out = Allocation()
        done = LIBRARY.vdev_test_memory_allocate(
            self._handle, size, kind, flags, zero, ctypes.byref(out)
        )
        return out if done else None

    def must(self, size: int, kind: int = DEVICE, zero: bool = False) -> Allocation:
        allocation = self.allocate(size, kind, zero=zero)
        assert allocation is not None
        return allocation

    def _lookup(self, name: str, address: int) -> Allocation | None:
        out = Allocation()
        function = getattr(LIBRARY, f"vdev_test_memory_{name}")
        return out if function(self._handle, address, ctypes.byref(out)) else None

    def find(self, address: int) -> Allocation | None:
        return self._lookup("find", address)

    def nearest(self, address: int) -> Allocation | None:
        return self._lookup("nearest", address)

    def free(self, address: int) -> bool:
        return bool(LIBRARY.vdev_test_memory_free(self._handle, address))

    def was_freed(self, address: int) -> bool:
        return bool(LIBRARY.vdev_test_memory_was_freed(self._handle, address))

    def register(self, address: int, size: int) -> bool:
        return bool(LIBRARY.vdev_test_memory_register(self._handle, address, size, 5))

    def unregister(self, address: int) -> bool:
        return bool(LIBRARY.vdev_test_memory_unregister(self._handle, address))

    def borrow(self, address: int, size: int) -> bool:
        return bool(LIBRARY.vdev_test_memory_borrow(self._handle, address, size))

    def give_back(self, address: int, size: int) -> bool:
        return bool(LIBRARY.vdev_test_memory_give_back(self._handle, address, size))

    @property
    def used(self) -> int:
        return int(LIBRARY.vdev_test_memory_used(self._handle))

    @property
    def capacity(self) -> int:
        return int(LIBRARY.vdev_test_memory_capacity(self._handle))

    @property
    def epoch(self) -> int:
        return int(LIBRARY.vdev_test_memory_epoch(self._handle))


@pytest.fixture
def memory() -> Iterator[Memory]:
    m = Memory()
    yield m
    m.close()


def view(allocation: Allocation, dtype: type = np.uint8) -> np.ndarray:
    count = allocation.size // np.dtype(dtype).itemsize
    raw = (ctypes.c_uint8 * allocation.size).from_address(allocation.host())
    return np.frombuffer(raw, dtype, count)


def protection(address: int) -> str:
    """Return the access rights of the mapping that holds `address`, e.g. "---p"."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, rights = line.split()[:2]
            first, end = (int(x, 16) for x in span.split("-"))
            if first <= address < end:
                return rights
    return ""


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


def test_allocations_are_aligned_and_guarded(memory: Memory) -> None:
    rng = random.Random(1)
    live = [memory.must(rng.choice([1, 255, 4096, 4097, 70000, 1 << 20])) for _ in range(200)]
    live.sort(key=lambda a: a.base)
    assert all(a.base % 4096 == 0 for a in live)
    for a, b in zip(live, live[1:], strict=False):
        assert b.base - a.end >= GUARD
    assert len({a.id for a in live}) == len(live)


def test_device_addresses_are_not_host_addresses(memory: Memory) -> None:
    a = memory.must(1 << 16)
    assert a.bias != 0
    assert protection(a.base).startswith("---")
    assert protection(a.host()).startswith("rw")


@pytest.mark.parametrize("kind", [HOST, MANAGED])
def test_host_memory_is_dereferenceable_while_it_lives(memory: Memory, kind: int) -> None:
    a = memory.must(10000, kind)
    assert a.bias == 0 and a.kind == kind
    view(a)[:] = 7
    assert protection(a.base).startswith("rw")
    assert protection(a.base - 1).startswith("---")
    assert protection(a.base + 3 * 4096).startswith("---")
    assert memory.free(a.base)
    assert protection(a.base).startswith("---")
    assert memory.used == 0


def test_bounds_are_exact(memory: Memory) -> None:
    a = memory.must(1001)
    for inside in (a.base, a.base + 500, a.base + 1000):
        found = memory.find(inside)
        assert found is not None and found.id == a.id
    for outside in (a.base - 1, a.base + 1001, a.base + 4096, 0, a.host()):
        assert memory.find(outside) is None


def test_fresh_memory_is_poisoned(memory: Memory) -> None:
    for size in (1, 2, 3, 4096, 65536, 200001):
        for kind in (DEVICE, HOST, MANAGED):
            bytes_ = view(memory.must(size, kind))[:65536]
            expected = np.resize(np.array([0xA5, 0x7F], np.uint8), bytes_.size)
            assert np.array_equal(bytes_, expected)
    a = memory.must(4096)
    assert np.isnan(view(a, np.float16)).all() and np.isnan(view(a, np.float32)).all()


def test_zero_fill_after_reuse_of_addresses() -> None:
    memory = Memory(capacity=64 << 20, range_bytes=64 << 20)
    for _ in range(8):
        a = memory.must(30 << 20, zero=True)
        assert not view(a).any()
        view(a)[:] = 0xFF
        assert memory.free(a.base)
        view(a)[::4096] = 1  # as a kernel that is still running would
    memory.close()


def test_free_takes_bases_only_and_once(memory: Memory) -> None:
    a = memory.must(8192)
    assert not memory.free(a.base + 4096)
    assert not memory.free(0)
    assert memory.free(a.base)
    assert not memory.free(a.base)
    assert memory.find(a.base) is None
    assert memory.was_freed(a.base + 8191) and not memory.was_freed(a.base + 8192)


def test_freed_addresses_are_not_handed_out_again_soon(memory: Memory) -> None:
    seen: set[int] = set()
    for _ in range(2000):
        a = memory.must(1 << 20)
        assert a.base not in seen
        seen.add(a.base)
        assert memory.free(a.base)
    assert memory.was_freed(min(seen))


def test_beside_an_allocation_is_no_freed_memory_of_earlier() -> None:
    # Once the range has been walked, allocations lie among those freed earlier.
    memory = Memory(capacity=64 << 20, range_bytes=64 << 20)
    for _ in range(1000):
        a = memory.must(1 << 20)
        assert memory.free(a.base)
    a = memory.must(4096)
    assert memory.must(1 << 20).base > a.base
    for address in (a.base - 1, a.end, a.end + GUARD - 1, a.base - GUARD):
        assert memory.find(address) is None and not memory.was_freed(address), hex(address - a.base)
    assert memory.free(a.base)
    assert memory.was_freed(a.base) and memory.was_freed(a.base + 4095)
    memory.close()


@pytest.mark.parametrize("offset", [-4096, 0, 4096])
def test_registered_beside_registered_of_earlier(memory: Memory, offset: int) -> None:
    pages = mmap.mmap(-1, 12 << 10)
    base = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + 4096
    assert memory.register(base + offset, 4096) and memory.unregister(base + offset)
    assert memory.was_freed(base + offset)
    assert memory.register(base, 4096)
    assert not memory.was_freed(base + 4096) and not memory.was_freed(base - 1)
    assert memory.unregister(base)
    assert memory.was_freed(base)


def test_addresses_are_reused_when_the_range_runs_short() -> None:
    memory = Memory(capacity=64 << 20, range_bytes=64 << 20)
    rng = random.Random(7)
    live: list[Allocation] = []
    for _ in range(3000):
        if live and (len(live) > 20 or rng.random() < 0.4):
            assert memory.free(live.pop(rng.randrange(len(live))).base)
        else:
            live.append(memory.must(rng.randrange(1, 1 << 20)))
        ordered = sorted(live, key=lambda a: a.base)
        for a, b in zip(ordered, ordered[1:], strict=False):
            assert b.base - a.end >= GUARD
    for a in live:
        assert memory.find(a.base + a.size - 1)
    assert memory.used == sum(-(-a.size // 4096) * 4096 for a in live)
    memory.close()


def test_capacity_is_a_limit_for_device_memory_only() -> None:
    memory = Memory(capacity=10 * GIB)
    a = memory.must(6 * GIB)
    assert memory.allocate(5 * GIB) is None
    assert memory.allocate(20 * GIB, HOST) is not None
    assert memory.used == 6 * GIB
    assert memory.free(a.base)
    assert memory.used == 0
    assert memory.allocate(10 * GIB) is not None
    assert memory.allocate(1) is None
    memory.close()


@pytest.mark.parametrize("size", [0, 1 << 41, (1 << 63) + 1, (1 << 64) - 1])
def test_impossible_sizes_are_refused(memory: Memory, size: int) -> None:
    assert memory.allocate(size) is None
    assert memory.allocate(size, HOST) is None


def test_large_allocations_are_sparse(memory: Memory) -> None:
    before = resident_bytes()
    a = memory.must(150 * GIB)
    for offset in range(0, 150 * GIB, GIB):
        ctypes.c_uint32.from_address(a.host(offset)).value = offset >> 20
    for offset in range(0, 150 * GIB, GIB):
        assert ctypes.c_uint32.from_address(a.host(offset)).value == offset >> 20
    assert resident_bytes() - before < 64 << 20


def test_pages_go_back_on_free(memory: Memory) -> None:
    a = memory.must(256 << 20)
    before = resident_bytes()
    view(a)[:] = 3
    assert resident_bytes() - before > 200 << 20
    assert memory.free(a.base)
    assert resident_bytes() - before < 32 << 20


def test_registered_host_memory(memory: Memory) -> None:
    array = np.zeros(10000, np.uint8)
    address = array.ctypes.data
    epoch = memory.epoch
    assert memory.register(address, array.size)
    assert memory.epoch > epoch
    found = memory.find(address + 9999)
    assert found is not None and found.bias == 0 and found.kind == HOST and found.flags == 5
    assert memory.find(address + 10000) is None
    assert not memory.register(address + 5000, 100)
    assert not memory.register(address - 100, 101)
    assert not memory.register(address - 1, 20000)
    assert memory.register(address - 1, 1) and memory.register(address + array.size, 1)
    assert not memory.free(address)
    assert not memory.unregister(address + 1)
    assert memory.unregister(address) and not memory.unregister(address)
    assert memory.used == 0


def test_what_cannot_be_registered(memory: Memory) -> None:
    device, host = memory.must(4096), memory.must(4096, HOST)
    assert not memory.register(0, 100)
    assert not memory.register(device.base, 4096)
    assert not memory.register(device.host(), 4096)
    assert not memory.register(host.base, 4096)
    assert not memory.register(host.base + 8192, 4096)
    assert not memory.register(0x10000, 0)
    assert not memory.register((1 << 64) - 10, 20)
    assert not memory.unregister(host.base)


def test_nearest(memory: Memory) -> None:
    assert memory.nearest(12345) is None
    a, b = memory.must(4096), memory.must(4096)
    assert a.base < b.base
    for address, expected in (
        (0, a),
        (a.base + 17, a),
        (a.end + 100, a),
        (b.base - 100, b),
        (b.end + GIB, b),
    ):
        found = memory.nearest(address)
        assert found is not None and found.id == expected.id


def test_epoch_grows_with_every_change(memory: Memory) -> None:
    epochs = [memory.epoch]
    a = memory.must(10)
    epochs.append(memory.epoch)
    memory.free(a.base)
    epochs.append(memory.epoch)
    memory.free(a.base)
    memory.find(a.base)
    assert epochs == sorted(set(epochs)) and memory.epoch == epochs[-1]


def test_a_small_address_space_cuts_the_capacity() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 16 * GIB, hard))
    try:
        memory = Memory()
        assert GIB <= memory.capacity <= 8 * GIB
        assert memory.allocate(16 * GIB) is None
        view(memory.must(1 << 20))[:] = 1
        memory.close()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_concurrent_use(memory: Memory) -> None:
    anchor = memory.must(4096)
    failures: list[str] = []

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        mine: list[Allocation] = []
        for _ in range(1500):
            if mine and rng.random() < 0.5:
                a = mine.pop(rng.randrange(len(mine)))
                if view(a)[0] != seed or not memory.free(a.base):
                    failures.append("an allocation was lost or shared")
            else:
                a = memory.must(rng.randrange(1, 1 << 17))
                view(a)[0] = seed
                mine.append(a)
            found = memory.find(anchor.base + 5)
            if found is None or found.id != anchor.id:
                failures.append("the anchor was not found")
        for a in mine:
            memory.free(a.base)

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in (11, 22, 33)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert memory.used == 4096


def test_borrowed_memory(memory: Memory) -> None:
    """Visible at its own address while anybody has it, by bytes; ranges may overlap."""
    host = np.zeros(4096, np.uint8)
    base = host.ctypes.data
    assert memory.find(base) is None
    before = memory.epoch
    assert memory.borrow(base, 100) and memory.borrow(base, 100) and memory.borrow(base + 50, 1000)
    assert memory.epoch > before
    first, inside = memory.find(base + 49), memory.find(base + 60)
    assert first is not None and (first.base, first.size, first.kind) == (base, 100, HOST)
    # Of two that hold an address, the one that reaches farther.
    assert inside is not None and (inside.base, inside.size) == (base + 50, 1000)
    assert memory.find(base + 1050) is None and memory.find(base - 1) is None
    before = memory.epoch
    assert memory.give_back(base, 100)
    assert memory.epoch > before and memory.find(base) is not None  # the other one has it
    assert memory.give_back(base, 100) and memory.find(base) is None
    assert not memory.give_back(base, 100)
    assert not memory.give_back(base + 50, 999)
    assert memory.give_back(base + 50, 1000)
    assert memory.find(base + 60) is None and memory.used == 0


def test_what_cannot_be_borrowed(memory: Memory) -> None:
    own = memory.must(4096)
    host = np.zeros(8192, np.uint8)
    base = host.ctypes.data
    assert memory.register(base + 4096, 4096)
    for address, size in (
        *((0, 16), (base, 0), (2**64 - 8, 16), (own.base, 16), (own.base + (1 << 30), 16)),
        *((base, 4097), (base + 4096, 1)),
    ):
        assert not memory.borrow(address, size), (hex(address), size)
    assert memory.borrow(base, 4096)


def test_borrowing_on_many_threads(memory: Memory) -> None:
    host = np.zeros(1 << 16, np.uint8)
    base = host.ctypes.data
    failures: list[str] = []

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(2000):
            at, size = base + rng.randrange(1 << 15), 1 + rng.randrange(1 << 15)
            if not memory.borrow(at, size):
                failures.append("not borrowed")
            for place in (at, at + size - 1):
                found = memory.find(place)
                if found is None or not found.base <= place < found.base + found.size:
                    failures.append("not found")
            if not memory.give_back(at, size):
                failures.append("not given back")

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and memory.find(base) is None
