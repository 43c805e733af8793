"""Virtual memory of the application's own: ranges, memory without an address, and mappings."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import hsa_runtime as abi
from tests.support.hip_runtime import code_object
from tests.support.hsa_runtime import Hsa, Queue, dispatch

PAGE, SIZE = 4096, 1 << 16
INVALID_ALLOCATION, OUT_OF_RESOURCES, IN_USE = 0x1003, 0x1008, 0x100A
INVALID_AGENT, NOT_SUPPORTED = 0x1004, 47
NOTHING, READ, READ_WRITE = 0, 1, 3
POINTER_RESERVED, POINTER_MAPPED = 5, 6


class AccessDesc(ctypes.Structure):
    _fields_ = (("permissions", abi.U32), ("agent", abi.U64))


class PointerInfo(ctypes.Structure):
    _fields_ = (
        ("size", abi.U32), ("type", abi.U32), ("base", abi.U64), ("host", abi.U64),
        ("bytes", abi.U64), ("user", abi.U64), ("owner", abi.U64), ("flags", abi.U32),
        ("registered", ctypes.c_bool),
    )  # fmt: skip


class Vmem:
    """The calls, with a range of two mappings."""

    def __init__(self, hsa: Hsa) -> None:
        self.hsa, self.lib, self.gpu = hsa, hsa.lib, hsa.gpu
        self.cpu = hsa.visited("hsa_iterate_agents")[0]
        self.pool = hsa.pool(self.gpu, 4)
        self.base = self.reserve(2 * SIZE)

    def call(self, name: str, *arguments: Any) -> int:
        function = getattr(self.lib, f"hsa_amd_vmem_{name}")
        function.restype = abi.U32
        numbers = (abi.U64(a) if isinstance(a, int) else a for a in arguments)
        return int(function(*numbers))

    def made(self, name: str, *arguments: Any) -> int:
        out = abi.U64()
        assert self.call(name, *arguments, ctypes.byref(out)) == abi.SUCCESS
        return out.value

    def reserve(self, size: int, alignment: int = 0) -> int:
        out = abi.U64()
        status = self.call("address_reserve_align", ctypes.byref(out), size, 0, alignment, 0)
        assert status == abi.SUCCESS
        return out.value

    def create(self, size: int = SIZE) -> int:
        return self.made("handle_create", self.pool, size, abi.U32(1), 0)

    def map(self, address: int, handle: int, size: int = SIZE) -> int:
        return self.call("map", address, size, 0, handle, 0)

    def give(self, address: int, size: int, permission: int = READ_WRITE, agent: int = 0) -> int:
        one = AccessDesc(permission, agent or self.gpu)
        return self.call("set_access", address, size, ctypes.byref(one), 1)

    def access(self, address: int, agent: int = 0) -> tuple[int, int]:
        out = abi.U32(99)
        status = self.call("get_access", address, ctypes.byref(out), agent or self.gpu)
        return status, out.value

    def mapped(self, address: int) -> int:
        """A handle that is mapped there, with access."""
        handle = self.create()
        assert self.map(address, handle) == abi.SUCCESS
        assert self.give(address, SIZE) == abi.SUCCESS
        return handle

    def copy(self, to: int, source: int, size: int) -> int:
        """The signal's value behind an asynchronous copy: 0, or negative."""
        done = self.hsa.signal()
        call = self.lib.hsa_amd_memory_async_copy
        assert call(to, self.gpu, source, self.gpu, size, 0, None, done) == abi.SUCCESS
        less_than_one = 2
        value = self.lib.hsa_signal_wait_scacquire(done, less_than_one, 1, 20 * 10**9, 0)
        return int(value)

    def write(self, address: int, data: np.ndarray) -> int:
        return self.copy(address, data.ctypes.data, data.nbytes)

    def read(self, address: int, size: int) -> np.ndarray:
        data = np.zeros(size, np.uint8)
        assert self.copy(data.ctypes.data, address, size) == 0
        return data

    def free_bytes(self) -> int:
        out = abi.U64()
        assert self.lib.hsa_agent_get_info(self.gpu, 0xA015, ctypes.byref(out)) == abi.SUCCESS
        return out.value


@pytest.fixture
def vmem() -> Iterator[Vmem]:
    hsa = Hsa()
    assert hsa.lib.hsa_init() == abi.SUCCESS
    assert hsa.lib.hsa_system_get_info(0x205, ctypes.byref(out := ctypes.c_bool())) == abi.SUCCESS
    assert out.value
    made = Vmem(hsa)
    yield made
    for address in (made.base, made.base + SIZE):
        made.call("unmap", address, SIZE)
    assert made.call("address_free", made.base, 2 * SIZE) == abi.SUCCESS
    assert hsa.lib.hsa_shut_down() == abi.SUCCESS


def run_fill(vmem: Vmem, address: int) -> list[int]:
    """Errors of a queue whose kernel writes 64 words there; its value is 5."""
    kernarg = vmem.hsa.made("hsa_amd_memory_pool_allocate", vmem.hsa.pool(vmem.cpu, 3), PAGE, 0)
    ctypes.memmove(kernarg, struct.pack("<QI", address, 5), 12)
    _, kernel = vmem.hsa.kernel(code_object("fill"))
    queue, done = Queue(vmem.hsa), vmem.hsa.signal()
    queue.submit(dispatch(kernel, kernarg, done))
    while vmem.hsa.wait(done, 0.01) != 0 and not queue.errors:
        pass
    queue.destroy()
    return queue.errors


def test_what_is_mapped_is_memory(vmem: Vmem) -> None:
    """Neighbours are one piece of memory, for kernels and copies; contents stay with the handle."""
    first, second = vmem.mapped(vmem.base), vmem.mapped(vmem.base + SIZE)
    data = np.random.default_rng().integers(0, 256, 2 * SIZE, dtype=np.uint8)
    assert vmem.write(vmem.base, data) == 0
    assert (vmem.read(vmem.base, 2 * SIZE) == data).all()
    across = vmem.base + SIZE - 128
    assert run_fill(vmem, across) == []
    assert (vmem.read(across, 256).view(np.uint32) == 5).all()
    for address in (vmem.base, vmem.base + SIZE):
        assert vmem.call("unmap", address, SIZE) == abi.SUCCESS
    assert vmem.map(vmem.base, second) == vmem.map(vmem.base + SIZE, first) == abi.SUCCESS
    assert vmem.give(vmem.base, 2 * SIZE) == abi.SUCCESS
    assert (vmem.read(vmem.base + 128, SIZE - 128) == data[SIZE + 128 :]).all()
    for handle in (first, second):
        assert vmem.call("handle_release", handle) == abi.SUCCESS


@pytest.mark.parametrize("state", ["reserved", "mapped without access", "unmapped", "taken away"])
def test_access_to_nothing_is_a_fault(
    vmem: Vmem, state: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if state == "mapped without access":
        assert vmem.map(vmem.base, vmem.create()) == abi.SUCCESS
    elif state != "reserved":
        vmem.mapped(vmem.base)
        assert run_fill(vmem, vmem.base) == []
        if state == "unmapped":
            assert vmem.call("unmap", vmem.base, SIZE) == abi.SUCCESS
        else:
            assert vmem.give(vmem.base, SIZE, NOTHING) == abi.SUCCESS
    assert run_fill(vmem, vmem.base) == [abi.MEMORY_FAULT]
    told = capfd.readouterr().err
    had = state in ("unmapped", "taken away")
    assert f"write of 4 bytes at {vmem.base:#x}" in told
    expected = "what was mapped there has been unmapped" if had else "nothing is mapped there"
    assert expected in told
    assert vmem.write(vmem.base, np.zeros(64, np.uint8)) == -1
    assert "nothing is mapped there in a reserved range" in capfd.readouterr().err


def test_a_range_knows_nothing_of_what_lay_there_before(
    vmem: Vmem, capfd: pytest.CaptureFixture[str]
) -> None:
    free, step = lambda at, size: vmem.call("address_free", at, size), 1 << 36
    range_of_first = vmem.reserve(step)  # so that a range as long finds room there again
    first = range_of_first + step // 2
    vmem.mapped(first)
    assert vmem.call("unmap", first, SIZE) == free(range_of_first, step) == abi.SUCCESS
    while first not in range(again := vmem.reserve(step), again + step):
        assert free(again, step) == abi.SUCCESS  # until the address space has been walked
    assert run_fill(vmem, first) == [abi.MEMORY_FAULT]
    assert "nothing is mapped there in a reserved range" in capfd.readouterr().err
    assert free(again, step) == abi.SUCCESS


def test_past_the_last_mapping_is_a_fault(vmem: Vmem) -> None:
    vmem.mapped(vmem.base)
    assert run_fill(vmem, vmem.base + SIZE - 256) == []
    assert run_fill(vmem, vmem.base + SIZE - 252) == [abi.MEMORY_FAULT]
    assert vmem.write(vmem.base + SIZE - 63, np.zeros(64, np.uint8)) == -1


def test_access(vmem: Vmem) -> None:
    """None before it is given; reading alone and the host cannot have it, and are named."""
    assert vmem.access(vmem.base)[0] == INVALID_ALLOCATION
    assert vmem.map(vmem.base, vmem.create()) == abi.SUCCESS
    assert vmem.access(vmem.base)[0] == INVALID_ALLOCATION
    assert vmem.give(vmem.base, SIZE) == abi.SUCCESS
    assert vmem.access(vmem.base + SIZE - 1) == (abi.SUCCESS, READ_WRITE)
    assert vmem.give(vmem.base, SIZE, READ) != abi.SUCCESS
    assert vmem.give(vmem.base, SIZE, READ_WRITE, vmem.cpu) != abi.SUCCESS
    assert vmem.give(vmem.base, SIZE, READ_WRITE, 0x99) == INVALID_AGENT
    assert vmem.give(vmem.base, SIZE // 2) == abi.INVALID_ARGUMENT
    assert vmem.give(vmem.base, 2 * SIZE) == abi.INVALID_ARGUMENT
    assert vmem.give(vmem.base, SIZE, NOTHING) == abi.SUCCESS
    assert vmem.access(vmem.base) == (abi.SUCCESS, NOTHING)


def test_what_is_refused(vmem: Vmem) -> None:
    handle, inner = vmem.create(), vmem.base + PAGE
    out = abi.U64()
    reserve, create = "address_reserve", "handle_create"
    assert vmem.call(reserve, ctypes.byref(out), PAGE + 1, 0, 0) == abi.INVALID_ARGUMENT
    assert vmem.call(reserve, ctypes.byref(out), 1 << 50, 0, 0) == OUT_OF_RESOURCES
    arguments = (abi.U32(1), 0, ctypes.byref(out))
    assert vmem.call(create, vmem.pool, PAGE - 1, *arguments) == abi.INVALID_ARGUMENT
    assert vmem.call(create, vmem.pool, 1 << 45, *arguments) == OUT_OF_RESOURCES
    host = vmem.hsa.pool(vmem.cpu, 2)
    assert vmem.call(create, host, PAGE, *arguments) == INVALID_ALLOCATION
    assert vmem.map(0x10000, handle) == abi.INVALID_ARGUMENT  # was not reserved
    assert vmem.map(vmem.base + 2 * SIZE - PAGE, handle) == abi.INVALID_ARGUMENT
    assert vmem.map(vmem.base, handle, SIZE // 2) == abi.INVALID_ARGUMENT
    assert vmem.map(vmem.base, 0x99) == abi.INVALID_ARGUMENT
    assert vmem.map(vmem.base, handle) == abi.SUCCESS
    assert vmem.map(inner, handle) == abi.INVALID_ARGUMENT  # something is there
    assert vmem.call("unmap", inner, SIZE) == INVALID_ALLOCATION
    assert vmem.call("unmap", vmem.base, PAGE) == abi.INVALID_ARGUMENT
    assert vmem.call("address_free", vmem.base, 2 * SIZE) == IN_USE
    assert vmem.call("address_free", vmem.base, SIZE) == abi.INVALID_ARGUMENT
    assert vmem.call("address_free", inner, SIZE) == INVALID_ALLOCATION
    assert vmem.lib.hsa_amd_memory_pool_free(vmem.base) != abi.SUCCESS
    assert vmem.call("handle_release", handle) == abi.SUCCESS
    assert vmem.call("handle_release", handle) == INVALID_ALLOCATION


@pytest.mark.usefixtures("nothing_else_is_freed")
def test_memory_is_counted_until_nothing_holds_it(vmem: Vmem) -> None:
    before = vmem.free_bytes()
    handle = vmem.mapped(vmem.base)
    assert vmem.free_bytes() == before - SIZE
    out = abi.U64()
    assert vmem.call("retain_alloc_handle", ctypes.byref(out), vmem.base + 5) == abi.SUCCESS
    assert out.value == handle
    for _ in range(2):
        assert vmem.call("handle_release", handle) == abi.SUCCESS
    assert vmem.free_bytes() == before - SIZE  # it is mapped
    assert vmem.call("unmap", vmem.base, SIZE) == abi.SUCCESS
    assert vmem.free_bytes() == before


def test_ranges_are_aligned_and_fenced(vmem: Vmem) -> None:
    bases = [vmem.reserve(1 << 21, 1 << 21) for _ in range(8)]
    assert all(base % (1 << 21) == 0 for base in bases)
    ends = sorted((base, base + (1 << 21)) for base in [*bases])
    assert all(a[1] < b[0] for a, b in zip(ends, ends[1:], strict=False))
    for base in bases:
        assert vmem.call("address_free", base, 1 << 21) == abi.SUCCESS


def test_pointers(vmem: Vmem) -> None:
    def told(address: int) -> PointerInfo:
        info = PointerInfo(size=ctypes.sizeof(PointerInfo))
        ask = vmem.lib.hsa_amd_pointer_info
        ask.argtypes = [abi.POINTER] * 5
        assert ask(address, ctypes.addressof(info), None, None, None) == abi.SUCCESS
        return info

    vmem.mapped(vmem.base + SIZE)
    info = told(vmem.base + 5)
    assert (info.type, info.base, info.bytes) == (POINTER_RESERVED, vmem.base, 2 * SIZE)
    info = told(vmem.base + SIZE + 5)
    assert (info.type, info.base, info.bytes) == (POINTER_MAPPED, vmem.base + SIZE, SIZE)
    assert info.owner == vmem.gpu and info.host == 0


def test_other_processes_have_it_by_a_descriptor(vmem: Vmem) -> None:
    """Here the same handle; in another process the same bytes."""
    handle = vmem.mapped(vmem.base)
    assert vmem.write(vmem.base, np.arange(256, dtype=np.uint8)) == 0
    file = ctypes.c_int()
    assert vmem.call("export_shareable_handle", ctypes.byref(file), handle, 0) == abi.SUCCESS
    again = abi.U64()
    take = vmem.lib.hsa_amd_vmem_import_shareable_handle
    take.argtypes, take.restype = [ctypes.c_int, abi.POINTER], abi.U32
    assert take(file.value, ctypes.byref(again)) == abi.SUCCESS and again.value == handle
    assert os.pread(file.value, 256, 0) == bytes(range(256))
    os.close(file.value)
    reader, writer = os.pipe()
    assert take(reader, ctypes.byref(again)) == INVALID_ALLOCATION
    os.close(reader)
    os.close(writer)
