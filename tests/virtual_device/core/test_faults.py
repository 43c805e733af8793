"""Every fault names its place, and the process and the device survive it."""

from __future__ import annotations

import re
from ctypes import c_int, c_int64, c_uint32, c_uint64
from typing import Any

import numpy as np
import pytest

PLACE = re.compile(
    r"kernel \w+, pc 0x[0-9a-f]+ .*instruction \w+.*workgroup \(\d+, 0, 0\), wave \d+", re.S
)


@pytest.mark.parametrize("offset", [-4, 256, 1 << 20, -(1 << 33)])
def test_a_store_outside_is_reported(gpu: Any, offset: int) -> None:
    words = np.zeros(64, np.uint32)
    address = gpu.upload(words)
    # So far away there may be memory of an earlier test: its allocations are not all freed.
    while gpu.runtime.owns(address + offset):
        offset += 1 << 12
    gpu.launch(gpu.function("store_at"), 1, 64, c_uint64(address), c_int64(offset))
    assert gpu.finish() == 700, gpu.report  # hipErrorIllegalAddress
    report = gpu.report
    assert PLACE.search(report), report
    assert "global_store_dword" in report
    assert f"0x{(address + offset) & (2**64 - 1):x}" in report
    assert "lane 0" in report
    assert gpu.finish() == 0  # told once
    gpu.launch(gpu.function("store_at"), 1, 64, c_uint64(address), c_int64(4))
    assert gpu.finish() == 0
    assert gpu.download(address, words)[1] == 0x5EED


def test_a_load_after_free_is_reported(gpu: Any) -> None:
    words = np.zeros(64, np.uint32)
    address, out = gpu.upload(words), gpu.upload(words)
    gpu.call("hipFree", address)
    gpu.launch(gpu.function("load_at"), 1, 64, c_uint64(address), c_int64(0), c_uint64(out))
    assert gpu.finish() == 700
    assert "freed" in gpu.report


def test_a_buffer_load_outside_its_range_reads_zero(gpu: Any) -> None:
    words = np.arange(1, 65, dtype=np.uint32)
    out = gpu.upload(words)
    args = (c_uint64(gpu.upload(words)), c_int(100), c_int(8), c_uint64(out))
    gpu.launch(gpu.function("buffer_range"), 1, 64, *args)
    assert gpu.finish() == 0, gpu.report
    lanes = np.arange(64)
    expected = np.where(lanes * 4 + 8 + 4 <= 100, (lanes + 2) % 64 + 1, 0)
    assert (gpu.download(out, words) == expected).all()


def test_lds_is_not_zero_by_luck(gpu: Any) -> None:
    words = np.zeros(64, np.uint32)
    out = gpu.upload(words)
    gpu.launch(gpu.function("lds_uninitialised"), 1, 64, c_int(0), c_uint64(out))
    assert gpu.finish() == 0
    assert (gpu.download(out, words) != 0).all()


def test_a_loop_that_never_repeats_runs_into_the_limit(gpu: Any) -> None:
    gpu.option("max_instructions", 3_000_000)
    function = gpu.function("counting_loop")
    gpu.launch(function, 1, 64, c_uint64(gpu.upload(np.zeros(1, np.uint32))), c_uint32(1))
    assert gpu.finish() != 0
    assert "instructions while no memory changed" in gpu.report
    assert gpu.finish() == 0
