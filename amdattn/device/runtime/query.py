"""Facts of a device, from the HIP runtime or the kernel driver."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amdattn.arch import products as chips
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.props import DeviceProps
from amdattn.device.runtime import kfd

_ATTRIBUTES = {"chip": "hipDeviceAttributePciChipId", "XCDs": "hipDeviceAttributeNumberOfXccs"}


@dataclass(frozen=True, slots=True)
class Queried:
    """A device, and the sources of those facts that not every runtime reports."""

    props: DeviceProps
    sources: tuple[tuple[str, str], ...]


class _Attributes:
    """Device attributes that the bindings or the library may not have."""

    def __init__(self, hip: Any, ordinal: int) -> None:
        self._hip = hip
        self._ordinal = ordinal

    def get(self, name: str) -> int:
        """The value, or 0."""
        attribute = getattr(self._hip.hipDeviceAttribute_t, name, None)
        if attribute is None:  # hip-python 6.4 has neither of the two
            return 0
        return int(optional(self._hip, "hipDeviceGetAttribute", attribute, self._ordinal) or 0)

    def bus_id(self) -> str:
        """The PCI address, or ""."""
        return text_of(optional(self._hip, "hipDeviceGetPCIBusId", 32, self._ordinal) or "")


def optional(hip: Any, call: str, *args: Any) -> Any:
    """The result of a hip-python call that not every library supports, or None.

    hip-python raises a RuntimeError if the library lacks the function, and a ValueError for an
    error code that the bindings have no name for. The bindings may lack the function, too.
    """
    try:
        status, value = getattr(hip, call)(*args)
    except (RuntimeError, ValueError, AttributeError):
        status, value = True, None
    if status:
        with contextlib.suppress(ValueError):
            hip.hipGetLastError()  # a later call must not report this one's error again
        return None
    return value


def query_device(hip: Any, prop: Any, ordinal: int, has_driver: bool) -> Queried:
    """The facts of a device.

    Parameters
    ----------
    hip : module
        Of hip-python.
    prop
        The device's hipDeviceProp_t.
    ordinal : int
    has_driver : bool
        Whether the kernel driver knows the device, which is then a GPU.
    """
    attributes = _Attributes(hip, ordinal)
    target, name = text_of(prop.gcnArchName), text_of(prop.name)
    num_cus = int(prop.multiProcessorCount)
    node = kfd.at(attributes.bus_id(), num_cus) if has_driver else None
    arch = target.partition(":")[0]
    chip, chip_source = _chip(attributes, node, name, arch)
    num_xcds, xcds_source = _num_xcds(attributes, node, chip, num_cus, arch)
    lds_bytes, lds_source = _lds_bytes(int(prop.sharedMemPerBlock), name, arch)
    props = DeviceProps(
        arch=arch,
        name=name,
        num_cus=num_cus,
        num_xcds=num_xcds,
        lds_bytes=lds_bytes,
        memory_bytes=int(prop.totalGlobalMem),
        target=target,
        chip=chip.name if chip else "",
    )
    sources = [("chip", chip_source), ("XCDs", xcds_source)]
    return Queried(props, (*sources, *([("LDS", lds_source)] if lds_source else [])))


def _lds_bytes(of_runtime: int, name: str, arch: str) -> tuple[int, str]:
    """LDS of a CU, and its source if that is not the runtime.

    Some runtimes report a limit that launches may exceed, so plans use the architecture's. If the
    runtime is right, launches fail and say so.
    """
    known = ARCHITECTURES.get(arch)
    if known is None or known.lds_bytes == of_runtime:
        return of_runtime, ""
    source = f"{known.lds_bytes} bytes, of {arch}; the HIP runtime says {of_runtime}"
    if of_runtime < known.lds_bytes:
        warnings.warn(
            f"{name} is taken to have {source} (sharedMemPerBlock): kernels that need more are "
            "launched all the same, and a launch fails if it cannot be",
            RuntimeWarning,
            stacklevel=2,
        )
    return known.lds_bytes, source


def _chip(
    attributes: _Attributes, node: kfd.Node | None, name: str, arch: str
) -> tuple[chips.Chip | None, str]:
    """The product, by the first valid id, or else by name.

    The number of the attribute has changed between ROCm releases, so a library may answer with
    another fact. Only known ids count.
    """
    ids = (
        (attributes.get(_ATTRIBUTES["chip"]), "the HIP runtime"),
        (node.chip_id if node else 0, "the kernel driver"),
    )
    for chip_id, source in ids:
        chip = chips.by_id(chip_id)
        if chip is not None and chip.arch == arch:
            return chip, f"{chip.name}, by id {chip_id:#06x} of {source}"
    chip = chips.by_name(name)
    if chip is not None and chip.arch == arch:
        return chip, f"{chip.name}, by its name"
    told = ", ".join(f"{chip_id:#06x} of {source}" for chip_id, source in ids if chip_id)
    planned = chips.first_of(arch).name
    return None, f"unknown (ids: {told or 'none'}); planned as XCDs of an {planned}"


def _num_xcds(
    attributes: _Attributes,
    node: kfd.Node | None,
    chip: chips.Chip | None,
    num_cus: int,
    arch: str,
) -> tuple[int, str]:
    """The XCDs of the device, from the first source that gives a plausible number."""
    most = chip.num_xcds if chip else num_cus
    answers: tuple[tuple[Callable[[], int], str], ...] = (
        (lambda: attributes.get(_ATTRIBUTES["XCDs"]), "the HIP runtime"),
        (lambda: node.num_xcds if node else 0, "the kernel driver"),
    )
    for ask, source in answers:
        num = ask()
        if 1 <= num <= min(most, num_cus) and num_cus <= num * _most_cus_of_xcd():
            return num, f"{num}, by {source}"
    of_xcd = (chip or chips.first_of(arch)).cus_of_xcd
    num = min(-(-num_cus // of_xcd), most)
    return num, f"{num}, from {num_cus} CUs of {of_xcd} each: no runtime or driver says"


def _most_cus_of_xcd() -> int:
    """The most CUs of an XCD of any architecture: a runtime may know one that the tables lack."""
    return max(arch.physical_cus_of_xcd for arch in ARCHITECTURES.values())


def text_of(value: Any) -> str:
    """hip-python gives char arrays as bytes (7.x) or as a C string object (10.x)."""
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.split(b"\0", 1)[0].decode()
