"""Checks a kernel's metadata against what will be packed and launched.

A launch with a stale argument list succeeds: the runtime copies the arguments that the metadata
lists, with zeros for those that the buffer lacks, and ignores all others.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from amdattn.arch.props import LANES_PER_WAVE, DeviceProps
from amdattn.device import elf
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
        A fact differs; the message names it, both values and the kernel.
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
        ("VGPRs", kernel.vgpr, info.resources["vgpr"]),
        ("AGPRs", kernel.agpr, info.resources["agpr"]),
        ("SGPRs", kernel.sgpr, info.resources["sgpr"]),
        ("lanes of a wave", LANES_PER_WAVE, info.wave_lanes),
    ):
        if recorded != said:
            raise ManifestError(
                f"kernel {kernel.name}: {recorded} {fact} are recorded, its code object says {said}"
            )
    if lanes := too_many_lanes(kernel, info.max_lanes):
        raise ManifestError(lanes)
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


def check_tile(kernel: KernelSpec, image: bytes) -> None:
    """Compare the tile of a manifest's row with the one in its code object's symbol.

    Grids and the sizes of scratch memory follow from it. Raises ManifestError.
    """
    try:
        place = elf.place_of(image, f"{kernel.symbol}{_TILE_SUFFIX}")
        stated = struct.unpack_from(f"<{place.size // 4}i", image, place.offset)
    except (ValueError, struct.error) as error:
        raise ManifestError(f"{kernel.path} {error}") from None
    recorded = tuple(kernel.tile.values())
    if recorded != stated[: len(recorded)]:
        raise ManifestError(
            f"kernel {kernel.name}: tile {dict(kernel.tile)} is recorded, its code object states "
            f"{stated}"
        )


_TILE_SUFFIX = "_tiles"  # the symbol with its sizes, from asm_src/kernels


def too_many_lanes(kernel: KernelSpec, max_lanes: int) -> str:
    """The error if a recorded workgroup has more lanes than a kernel takes, or ""."""
    lanes = math.prod(kernel.workgroup)
    if lanes <= max_lanes:
        return ""
    return (
        f"kernel {kernel.name}: workgroup {kernel.workgroup} has {lanes} lanes; the loaded kernel "
        f"takes at most {max_lanes}"
    )


def differing_limits(hip: Any, kernel: KernelSpec, function: Any) -> str:
    """Limits of a loaded kernel in which the runtime and its code object differ, or "".

    This is not an error: a runtime may round what it allocates, or mean something else.
    """
    values = []
    for name in ("MAX_THREADS_PER_BLOCK", "SHARED_SIZE_BYTES"):
        attribute = getattr(hip.hipFunction_attribute, f"HIP_FUNC_ATTRIBUTE_{name}")
        value = optional(hip, "hipFuncGetAttribute", attribute, function)
        if value is None:
            return ""
        values.append(int(value))
    max_lanes, lds_bytes = values
    if lanes := too_many_lanes(kernel, max_lanes):
        return lanes
    if lds_bytes == kernel.lds_bytes:
        return ""
    return (
        f"kernel {kernel.name}: {kernel.lds_bytes} bytes of LDS are recorded, the loaded kernel "
        f"has {lds_bytes}"
    )
