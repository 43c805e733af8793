"""Checked mode keeps what it found of many launches in memory that does not grow with them."""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BAD_ADDRESS = 0x123456000
MAX_LAUNCHES = 1 << 14


@pytest.fixture(autouse=True)
def checked(hip: Any) -> Iterator[None]:
    hip.device.amdattn_vdev_take_findings.restype = ctypes.c_char_p
    assert hip.set_option("check", 1)
    yield
    hip.hip.hipDeviceSynchronize()
    assert hip.set_option("check", 0)
    hip.device.amdattn_vdev_take_findings()


def taken(hip: Any) -> tuple[dict[str, Any], int]:
    text = hip.device.amdattn_vdev_take_findings()
    return json.loads(text), len(text)


def fault(hip: Any, function: Any, times: int) -> None:
    for i in range(times):
        hip.launch(function, BAD_ADDRESS + 4096 * i)
    assert hip.lib.hipDeviceSynchronize() == hip.errors.hipErrorIllegalAddress


def test_launches_that_fault_alike_are_one(hip: Any) -> None:
    _, function = hip.kernel("fill")
    fault(hip, function, 2)
    _, size = taken(hip)
    fault(hip, function, 500)
    found, many = taken(hip)
    assert many < size + 16
    (launch,) = found["launches"]
    (finding,) = (f for f in launch["findings"] if f["kind"] == "illegal_address")
    assert launch["times"] == 500 and finding["count"] >= 500
    assert finding["where"] == hex(BAD_ADDRESS)  # of the first one
    assert not found["dropped_launches"] and not found["dropped_findings"]
    assert taken(hip)[0]["launches"] == []


def test_shapes_share_the_findings_of_their_kernel(hip: Any) -> None:
    _, function = hip.kernel("fill")
    for lanes in (64, 128, 64):
        hip.launch(function, BAD_ADDRESS, lanes=lanes)
    assert hip.lib.hipDeviceSynchronize() == hip.errors.hipErrorIllegalAddress
    found, _ = taken(hip)
    assert [(launch["workgroup_size"][0], launch["times"]) for launch in found["launches"]] == [
        (64, 2),
        (128, 1),
    ]
    assert [bool(launch["findings"]) for launch in found["launches"]] == [True, False]


def test_copies_of_unwritten_bytes_are_one(hip: Any) -> None:
    host = ctypes.create_string_buffer(64)
    for _ in range(20):
        hip.hipMemcpyDtoH(ctypes.addressof(host), int(hip.hipMalloc(64)), 64)
    found, _ = taken(hip)
    (finding,) = found["host_findings"]
    assert finding["count"] >= 20


def test_launches_that_fault_take_no_more_memory(hip: Any) -> None:
    """Neither findings, nor reports, nor what shadows memory that is freed again."""
    _, function = hip.kernel("fill")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    def some() -> int:
        for _ in range(300):
            pointer = hip.hipMalloc(16384)
            hip.hipMemsetD8(pointer, 0, 16384)
            hip.launch(function, BAD_ADDRESS)
            hip.lib.hipDeviceSynchronize()
            hip.hipFree(pointer)
        return resident()

    some()
    before = some()
    assert max(some(), some()) - before < 4 << 20  # of 600 launches


@pytest.mark.slow
def test_what_exceeds_the_limits_is_counted(hip: Any) -> None:
    _, function = hip.kernel("nothing")
    extra = 10
    for i in range(MAX_LAUNCHES + extra):
        groups, lanes = 1 + i // 256, 1 + i % 256
        hip.hipModuleLaunchKernel(
            function, groups, 1, 1, lanes, 1, 1, 0, None, None, ctypes.addressof(_CONFIG)
        )
    hip.hipDeviceSynchronize()
    found, _ = taken(hip)
    assert len(found["launches"]) == MAX_LAUNCHES and found["dropped_launches"] == extra


_BUFFER, _SIZE = ctypes.create_string_buffer(16), ctypes.c_size_t(16)
_CONFIG = (ctypes.c_void_p * 5)(1, ctypes.addressof(_BUFFER), 2, ctypes.addressof(_SIZE), 3)
