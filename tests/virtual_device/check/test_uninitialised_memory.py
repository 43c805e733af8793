"""Which bytes of device memory count as written, by host calls and by kernels."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from ctypes import c_char_p, c_int, c_uint64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.gpu import Gpu
from tests.support.vdev_library import open_library

WORDS = 64
BYTES = 4 * WORDS


@functools.cache
def code_object() -> bytes:
    source = Path(__file__).resolve().parent / "uninitialised" / "memory.hip"
    return compile_hip(source, LLVM22).code_object


class Checked(Gpu):
    """A device in checked mode."""

    def __init__(self) -> None:
        super().__init__()
        self.library = open_library(amdattn_vdev_take_findings=(c_char_p, []))

    def malloc(self, size: int = BYTES) -> int:
        return int(self.call("hipMalloc", size))

    def read(self, address: int, size: int = BYTES) -> None:
        self.download(address, np.empty(size, np.uint8))

    def write(self, address: int, size: int) -> None:
        data = np.zeros(size, np.uint8)
        self.call("hipMemcpy", address, data.ctypes.data, size, self.hip.hipMemcpyKind(1))

    def kernel(self, name: str, first: int, second: int, n: int = 0) -> None:
        image = code_object()
        module = self.call("hipModuleLoadData", image)
        self.modules.append((module, image))
        function = self.call("hipModuleGetFunction", module, name.encode())
        self.launch(function, 1, 64, c_uint64(first), c_uint64(second), c_int(n))
        assert self.finish() == 0

    def found(self) -> list[dict[str, Any]]:
        """Findings since the last call, without advice."""
        given = json.loads(self.library.amdattn_vdev_take_findings())
        found = list(given["host_findings"])
        for launch in given["launches"]:
            found += launch["findings"]
        return [f for f in found if f["severity"] != "advice"]


@pytest.fixture
def gpu() -> Iterator[Checked]:
    device = Checked()
    device.option("check", 1)
    yield device
    device.option("check", 0)


def unwritten(gpu: Checked) -> str:
    """The message of the one finding, about a copy to the host."""
    (found,) = gpu.found()
    assert found["kind"] == "unwritten_output"
    assert found["pc"] is None
    return str(found["message"])


def test_fresh_memory(gpu: Checked) -> None:
    address = gpu.malloc()
    gpu.read(address)
    (found,) = gpu.found()
    assert (found["kind"], found["where"]) == ("unwritten_output", f"{address:#x}")
    assert found["message"].startswith("256 of 256 bytes copied to the host were never written")
    assert "offset 0 of an allocation of 256 bytes" in found["message"]


def test_memory_from_before_counts_as_written() -> None:
    gpu = Checked()
    address = gpu.malloc()
    gpu.option("check", 1)
    try:
        gpu.read(address)
        assert gpu.found() == []
    finally:
        gpu.option("check", 0)


@pytest.mark.parametrize("size", [1, 100, 4095, 4096, 10_000])
def test_copies_from_the_host(gpu: Checked, size: int) -> None:
    address = gpu.malloc(size + 3)
    gpu.write(address, size)
    gpu.read(address, size)
    assert gpu.found() == []
    gpu.read(address, size + 3)
    message = unwritten(gpu)
    assert message.startswith("3 of ")
    assert f"offset {size} " in message


def test_freed_memory_is_fresh_again(gpu: Checked) -> None:
    address = gpu.malloc()
    gpu.write(address, BYTES)
    gpu.call("hipFree", address)
    gpu.read(gpu.malloc())
    assert unwritten(gpu).startswith("256 of 256")


def test_fills(gpu: Checked) -> None:
    address = gpu.malloc(10_000)
    gpu.call("hipMemset", address + 8, 0, 9_000)
    gpu.read(address + 8, 9_000)
    assert gpu.found() == []
    gpu.read(address, 10_000)
    assert unwritten(gpu).startswith("1000 of 10000")


def test_copies_on_the_device_carry_it_along(gpu: Checked) -> None:
    source, target = gpu.malloc(9_000), gpu.malloc(9_000)
    gpu.write(source + 100, 5_000)
    gpu.write(target, 9_000)
    gpu.call("hipMemcpy", target, source, 9_000, gpu.hip.hipMemcpyKind(3))
    gpu.read(target + 100, 5_000)
    assert gpu.found() == []
    gpu.read(target, 9_000)
    message = unwritten(gpu)
    assert message.startswith("4000 of 9000")
    assert "offset 0 " in message


def test_rows(gpu: Checked) -> None:
    """Two-dimensional copies touch rows, not what lies between them."""
    address = gpu.malloc(64 * 8)
    data = np.zeros((8, 32), np.uint8)
    to_device, to_host = gpu.hip.hipMemcpyKind(1), gpu.hip.hipMemcpyKind(2)
    gpu.call("hipMemcpy2D", address, 64, data.ctypes.data, 32, 32, 8, to_device)
    gpu.call("hipMemcpy2D", data.ctypes.data, 32, address, 64, 32, 8, to_host)
    assert gpu.found() == []
    wide = np.zeros((8, 64), np.uint8)
    gpu.call("hipMemcpy2D", wide.ctypes.data, 64, address, 64, 64, 8, to_host)
    assert unwritten(gpu).startswith("256 of 512")


def test_kernel_output(gpu: Checked) -> None:
    source, out = gpu.upload(np.arange(WORDS, dtype=np.int32)), gpu.malloc()
    gpu.kernel("copy_some", source, out, WORDS - 1)
    gpu.read(out, BYTES - 4)
    assert gpu.found() == []
    gpu.read(out)
    message = unwritten(gpu)
    assert message.startswith("4 of 256")
    assert "offset 252 " in message
    gpu.kernel("copy_some", source, out, WORDS)
    gpu.read(out)
    assert gpu.found() == []


def test_kernel_reads_what_nobody_wrote(gpu: Checked) -> None:
    source, out = gpu.malloc(), gpu.malloc()
    gpu.write(source, BYTES - 8)
    gpu.kernel("copy_some", source, out, WORDS - 2)
    assert gpu.found() == []
    gpu.kernel("copy_some", source, out, WORDS)
    (found,) = gpu.found()
    assert (found["kind"], found["lane"]) == ("uninitialised_store", WORDS - 2)
    assert "load" in found["producer_text"]


def test_what_is_not_chosen_does_not_matter(gpu: Checked) -> None:
    source, out = gpu.malloc(), gpu.malloc()
    gpu.write(source, BYTES // 2)
    gpu.kernel("masked_sum", source, out, WORDS // 2)
    gpu.read(out)
    assert gpu.found() == []
    gpu.kernel("masked_sum", source, out, WORDS // 2 + 1)
    (found,) = gpu.found()
    assert (found["kind"], found["lane"]) == ("uninitialised_store", WORDS // 2)


def test_atomic_on_fresh_memory(gpu: Checked) -> None:
    """A semaphore that nobody set to zero."""
    semaphore = gpu.malloc()
    gpu.kernel("count", semaphore, semaphore)
    (found,) = gpu.found()
    assert (found["kind"], found["where"]) == ("uninitialised_store", f"{semaphore:#x}")
    gpu.call("hipMemset", semaphore, 0, BYTES)
    gpu.kernel("count", semaphore, semaphore)
    assert gpu.found() == []


def test_exchange_on_fresh_memory(gpu: Checked) -> None:
    """It may write there; what it returns is what nobody wrote."""
    cells, out = gpu.malloc(), gpu.malloc()
    gpu.kernel("exchange", cells, out)
    (found,) = gpu.found()
    assert found["kind"] == "uninitialised_store"
    assert found["text"].startswith("global_store")
    gpu.read(cells)
    gpu.kernel("exchange", cells, out)
    assert gpu.found() == []


@pytest.mark.parametrize("written", [(), (0,), (1,), (0, 1)])
def test_a_load_over_the_edge_of_a_page(gpu: Checked, written: tuple[int, ...]) -> None:
    """Half of it on a page that is written as a whole, half on one that is not, or the reverse."""
    page = 4096
    pages = gpu.malloc(2 * page)
    for index in written:
        gpu.write(pages + index * page, page)
    out = gpu.malloc(16)
    gpu.kernel("copy_wide", pages + page - 8, out)
    gpu.read(out, 16)
    if len(written) == 2:
        assert gpu.found() == []
        return
    finding, *_ = gpu.found()
    assert finding["kind"] == "uninitialised_store", finding
