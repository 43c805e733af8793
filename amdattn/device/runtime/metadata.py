"""What a kernel's code object says of itself, against what will be packed and launched.

A launch with a stale argument list succeeds: the runtime copies what the metadata lists, zeros for
what is not in the buffer, and nothing of what is not listed.
"""

from __future__ import annotations

import math
from typing import Any

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device.code_object import KernelInfo
from amdattn.device.manifest import KernelSpec
from amdattn.device.runtime.query import optional
from amdattn.errors import ManifestError, UnsupportedDeviceError


def check_metadata(kernel: KernelSpec, info: KernelInfo | None, props: DeviceProps) -> None:
    """Compare a manifest's row with the metadata of its code object, for a device.

    Raises
    ------
    UnsupportedDeviceError
        The kernel is for another architecture.
    ManifestError
        Naming the fact, both values and the kernel.
    """
    if kernel.arch != props.arch:
        raise UnsupportedDeviceError(
            f"kernel {kernel.name} is for {kernel.arch}, but {props.name} ({props.arch}) is bound"
        )
    if info is None:
        raise ManifestError(f"{kernel.path} has no kernel {kernel.symbol}")
    for fact, recorded, said in (
        ("kernarg bytes", kernel.kernarg.size, info.kernarg_bytes),
        ("bytes of LDS", kernel.lds_bytes, info.resources["lds_bytes"]),
        ("bytes of scratch", kernel.scratch_bytes, info.resources["scratch_bytes"]),
        ("lanes of a wave", LANES_PER_WAVE, info.wave_lanes),
    ):
        if recorded != said:
            raise ManifestError(
                f"kernel {kernel.name}: {recorded} {fact} are recorded, its code object says {said}"
            )
    check_limits(kernel, info.max_lanes, info.resources["lds_bytes"])
    if info.workgroup not in (None, kernel.workgroup):
        raise ManifestError(
            f"kernel {kernel.name}: workgroup {kernel.workgroup} is recorded, its code object "
            f"requires {info.workgroup}"
        )
    if kernel.lds_bytes > props.lds_bytes:
        raise ManifestError(
            f"kernel {kernel.name} needs {kernel.lds_bytes} bytes of LDS; {props.name} has "
            f"{props.lds_bytes}"
        )
    covered = {
        byte for a in info.arguments for byte in range(a.offset, a.offset + a.size)
    }  # of some hundred bytes
    for name, offset, size, _ in kernel.kernarg.fields:
        if not covered.issuperset(range(offset, offset + size)):
            raise ManifestError(
                f"kernel {kernel.name}: its code object lists no argument at {offset} of {size} "
                f"bytes, where {name} is recorded"
            )


def check_limits(kernel: KernelSpec, max_lanes: int, lds_bytes: int) -> None:
    """Whether a workgroup as recorded can be launched with what a kernel says of itself."""
    lanes = math.prod(kernel.workgroup)
    if lanes > max_lanes:
        raise ManifestError(
            f"kernel {kernel.name}: workgroup {kernel.workgroup} has {lanes} lanes; the loaded "
            f"kernel takes at most {max_lanes}"
        )
    if lds_bytes != kernel.lds_bytes:
        raise ManifestError(
            f"kernel {kernel.name}: {kernel.lds_bytes} bytes of LDS are recorded, the loaded "
            f"kernel has {lds_bytes}"
        )


def check_loaded(hip: Any, kernel: KernelSpec, function: Any) -> None:
    """The same by what the runtime says of the kernel that it has loaded, if it says anything."""
    values = []
    for name in ("MAX_THREADS_PER_BLOCK", "SHARED_SIZE_BYTES"):
        attribute = getattr(hip.hipFunction_attribute, f"HIP_FUNC_ATTRIBUTE_{name}")
        value = optional(hip, "hipFuncGetAttribute", attribute, function)
        if value is None:
            return
        values.append(int(value))
    check_limits(kernel, *values)
