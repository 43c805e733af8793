"""Two devices in one process: arrays and calls on each, errors that name both, copies of peers.

Prints "done". With "--no-access", a kernel of one then reads the other's memory, to which it was
given no access: that ends the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import amdattn
from amdattn.device import manifest, runtime
from amdattn.device.kernarg import packer

SHAPE = 1, 64, 2, 64


def refusal(function: Callable[[], object]) -> str:
    """The text of the TypeError or ValueError that a call ends in."""
    try:
        function()
    except (TypeError, ValueError) as error:
        return str(error)
    raise AssertionError("it was not refused")


def main() -> None:
    """Script: the devices and their runtime are the environment's."""
    device = runtime.get()
    hip: Any = device.hip
    assert device.num_devices == 2

    def call(name: str, *arguments: Any) -> Any:
        return device.check(name, getattr(hip, name)(*arguments))

    rng = np.random.default_rng(0)
    host = [rng.standard_normal(SHAPE).astype(np.float16) for _ in range(3)]
    expected = amdattn.flash_attn_func(*host)
    there = {i: [amdattn.asarray(x, device=f"rocm:{i}") for x in host] for i in (0, 1)}
    for ordinal, operands in there.items():
        out = amdattn.flash_attn_func(*operands)
        assert out.device == f"rocm:{ordinal}", out.device
        np.testing.assert_array_equal(out.numpy(), expected)
    (q, _, v), (_, k1, _) = there[0], there[1]
    if "--no-access" in sys.argv:
        print("reads", flush=True)
        copied(runtime.get(1), q)
    assert "q on device 0, k on device 1, v on device 0" in refusal(
        lambda: amdattn.flash_attn_func(q, k1, v)
    )
    stream = int(call("hipStreamCreateWithFlags", 1))
    assert f"stream={stream:#x} is of device 0, not of device 1" in refusal(
        lambda: amdattn.flash_attn_func(*there[1], stream=stream)
    )
    copy = amdattn.empty(SHAPE, np.float16, device="rocm:1")
    call("hipMemcpyPeer", copy.address, 1, v.address, 0, host[2].nbytes)
    np.testing.assert_array_equal(copy.numpy(), host[2])
    call("hipMemcpy", copy.address, q.address, q.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToDevice)
    np.testing.assert_array_equal(copy.numpy(), host[0])
    call("hipSetDevice", 1)
    np.testing.assert_array_equal(amdattn.flash_attn_func(*host), expected)
    assert amdattn.empty((4,)).device == "rocm:1"

    row = q.numpy().reshape(-1)[:8]  # 16 bytes, what one lane of the kernel copies
    call("hipDeviceEnablePeerAccess", 0, 0)
    np.testing.assert_array_equal(copied(runtime.get(1), q), row)
    amdattn.synchronize()
    print("done")


def copied(device: runtime.Runtime, source: amdattn.DeviceArray) -> np.ndarray:
    """The first elements of an array that may be another device's, copied by a kernel."""
    kernel = manifest.candidates(manifest.kernels(), "gather_rows", device.props)[0]
    packed, out = packer(kernel), amdattn.empty((8,), np.float16, device=device.ordinal)
    given = {"from": source.address, "to": out.address, "seqlen": 1, "columns": 8}
    kernargs = device.new_kernarg_buffer(packed.size, device.argument_offsets(kernel))
    packed.pack_into(kernargs.block, 0, *(given.get(name, 0) for name in packed.names))
    with device.current():
        device.launch(device.function(kernel), (1, 1, 1), kernel.workgroup, kernargs, 0)
        device.synchronize(0)
    return np.asarray(out.numpy())


if __name__ == "__main__":
    main()
