"""Address ranges that the application reserves, and memory that it maps there."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.support.hip_process import run

SIZE = 2 << 20
PRELUDE = f"""
SIZE = {SIZE}
P, S, by = ctypes.c_void_p, ctypes.c_size_t, ctypes.byref
props = hip.hip.hipMemAllocationProp()
props.type = hip.hip.hipMemAllocationType.hipMemAllocationTypePinned
props.location.type = hip.hip.hipMemLocationType.hipMemLocationTypeDevice
access = hip.hip.hipMemAccessDesc()
access.location.type = props.location.type
access.flags = hip.hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
base = int(hip.hipMemAddressReserve(4 * SIZE, 0, None, 0))
def mapped(address):
    handle = hip.hipMemCreate(SIZE, props, 0)
    hip.hipMemMap(address, SIZE, 0, handle, 0)
    hip.hipMemSetAccess(address, SIZE, access, 1)
    return handle
_, fill = hip.kernel("fill")
"""


def works(hip: Any, body: str) -> None:
    done = run(hip, PRELUDE + body + "\nprint('over')\n")
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


def test_mapped_memory(hip: Any) -> None:
    """Kernels, copies and fills see neighbours as one; a handle keeps what is in it."""
    works(
        hip,
        """
handles = [mapped(base + i * SIZE) for i in range(3)]
hip.launch(fill, base + SIZE - 128, 7)
hip.hipDeviceSynchronize()
out = (ctypes.c_uint32 * 64)()
hip.hipMemcpyDtoH(ctypes.addressof(out), base + SIZE - 128, 256)
assert set(out) == {7}
hip.hipMemUnmap(base, SIZE)
hip.hipMemUnmap(base + SIZE, SIZE)
hip.hipMemMap(base, SIZE, 0, handles[1], 0)
hip.hipMemSetAccess(base, SIZE, access, 1)
hip.hipMemcpyDtoH(ctypes.addressof(out), base, 128)
assert set(out[:32]) == {7}
for address in (base, base + 2 * SIZE):
    hip.hipMemUnmap(address, SIZE)
for handle in handles:
    hip.hipMemRelease(handle)
hip.hipMemAddressFree(base, 4 * SIZE)
""",
    )


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", "nothing is mapped there in a reserved range"),
        ("mapped(base); hip.hipMemUnmap(base, SIZE)", "what was mapped there has been unmapped"),
    ],
)
def test_access_to_nothing(hip: Any, before: str, said: str) -> None:
    body = f"\n{before}\nhip.launch(fill, base, 7)\nhip.hipDeviceSynchronize()\n"
    done = run(hip, PRELUDE + body)
    assert done.returncode != 0 and said in done.stderr


def test_pools_reuse_what_was_freed(hip: Any) -> None:
    """A thousand allocations of a stream take no more memory than a few."""
    stream = hip.hipStreamCreate()
    free, _ = hip.hipMemGetInfo()
    for i in range(1000):
        pointer = hip.hipMallocAsync(SIZE + i % 7 * 4096, stream)
        hip.hipMemsetAsync(pointer, i & 0xFF, SIZE, stream)
        hip.hipFreeAsync(pointer, stream)
    last = hip.hipMallocAsync(SIZE, stream)
    hip.hipMemsetAsync(last, 0x5A, SIZE, stream)
    host = np.zeros(SIZE, np.uint8)
    kind = hip.hip.hipMemcpyKind.hipMemcpyDeviceToHost
    hip.hipMemcpyAsync(host.ctypes.data, last, SIZE, kind, stream)
    hip.hipStreamSynchronize(stream)
    assert (host == 0x5A).all()
    assert free - hip.hipMemGetInfo()[0] < 64 * SIZE
    hip.hipFreeAsync(last, stream)
    hip.hipStreamDestroy(stream)


def test_many_small_ones(hip: Any) -> None:
    """Of many sizes at once, each with its own bytes."""
    stream = hip.hipStreamCreate()
    kept = [(hip.hipMallocAsync(256 << i % 10, stream), i) for i in range(200)]
    for pointer, i in kept:
        hip.hipMemsetD32Async(pointer, i, 64, stream)
    word = ctypes.c_uint32()
    for pointer, i in kept:
        hip.hipMemcpyDtoHAsync(ctypes.addressof(word), pointer, 4, stream)
        hip.hipStreamSynchronize(stream)
        assert word.value == i
        hip.hipFreeAsync(pointer, stream)
    hip.hipStreamDestroy(stream)
