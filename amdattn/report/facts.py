"""Facts of host and device for a report, without anything that identifies their owner."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amdattn

if TYPE_CHECKING:
    from amdattn.device.runtime import Runtime

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_PCI = Path("/sys/bus/pci/devices")
_DRIVER = Path("/sys/module/amdgpu/version")
# Properties of a KFD node that distinguish products and partitions; no serial numbers.
_NODE_FACTS = (
    *("device_id", "gfx_target_version", "num_xcc", "simd_count", "simd_per_cu"),
    *("max_engine_clk_fcompute", "lds_size_in_kb", "local_mem_size"),
)
# Files of the driver, for the PCI device.
_PARTITION_FILES = ("current_compute_partition", "current_memory_partition")
_PACKAGES = ("hip-python", "rocm-bindings-hip", "rocm-bindings-core", "numpy", "ml_dtypes")
# Variables that change what a runtime does. Others may hold private data.
_VARIABLES = (
    *("AMDATTN_DEVICE", "AMDATTN_RUNTIME", "AMDATTN_KERNEL_DIR", "AMDATTN_VDEV_LIBRARY"),
    *("ROCM_PATH", "HIP_PATH"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    *("HSA_OVERRIDE_GFX_VERSION", "HSA_XNACK", "HSA_ENABLE_SDMA", "HIP_LAUNCH_BLOCKING"),
    "AMDATTN_KERNARG_PRELOAD",
    *("AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY", "AMD_LOG_LEVEL", "GPU_MAX_HW_QUEUES"),
)
_PUBLIC = ("/opt/rocm", "/sys/", "/proc/", "/dev/")
_PATH = re.compile(r"(?<![\w.<>])/(?:[^\s/:;,'\"()<>]+/)+[^\s/:;,'\"()<>]*")


def without_paths(text: str) -> str:
    """The text without paths of this machine; only their last parts stay.

    Paths of ROCm's default folder and of the kernel's file systems are the same everywhere.
    """
    places = {
        str(Path(amdattn.__file__).resolve().parent.parent): "<amdattn>",
        str(Path(sys.prefix).resolve()): "<python>",
        sys.prefix: "<python>",
        **_place(os.getcwd, "<folder>"),
        **_place(Path.home, "<home>"),
        **_place(tempfile.gettempdir, "<tmp>"),
    }
    for place in sorted(places, key=len, reverse=True):
        if len(place) > 1:
            text = re.sub(re.escape(place) + r"(?=/|\b|$)", places[place], text)
    text = re.sub(r"(<\w+>)(?:/[^\s/:;,'\"()<>]+)*/([^\s/:;,'\"()<>]+)", r"\1/\2", text)

    def shortened(match: re.Match[str]) -> str:
        path = match.group()
        return path if path.startswith(_PUBLIC) else f"<path>/{path.rsplit('/', 1)[1]}"

    return _PATH.sub(shortened, text)


def _place(ask: Callable[[], object], name: str) -> dict[str, str]:
    """A folder of this machine, rather than one that exists everywhere."""
    try:
        return {str(ask()): name}
    except (OSError, RuntimeError):
        return {}


def host() -> dict[str, str]:
    """Facts of the operating system, Python and packages; touches no device."""
    facts = {
        "amdattn": amdattn.__version__,
        "kernels": _kernels_digest(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": _os_name(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "processor": _processor(),
        "amdgpu driver": _read(_DRIVER) or "part of the kernel, or none",
        "ROCm": _rocm(),
    }
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts[name] = importlib.metadata.version(name)
    for name in _VARIABLES:
        if name in os.environ:
            facts[f"${name}"] = without_paths(os.environ[name])
    return facts


def device(bound: Runtime) -> dict[str, str]:
    """Facts of the bound device."""
    props, hip = bound.props, bound.hip
    facts = {
        "name": bound.title,
        "kind": bound.choice.kind,
        "bound because": without_paths(bound.choice.why),
        "library": without_paths(bound.choice.library),
        "target": props.target,
        "CUs": str(props.num_cus),
        "XCDs": str(props.num_xcds),
        "LDS of a workgroup": f"{props.lds_bytes} bytes",
        "memory": f"{props.memory_bytes / 2**30:.1f} GiB",
        "hip-python": bound.hip_python_version(),
        "devices": _answer(hip.hipGetDeviceCount),
        "HIP runtime": _answer(hip.hipRuntimeGetVersion),
        "HIP driver": _answer(hip.hipDriverGetVersion),
    }
    if bound.choice.rejected:
        facts["passed over"] = without_paths("; ".join(bound.choice.rejected))
    for name, attribute, unit in (
        ("stated clock", "hipDeviceAttributeClockRate", "kHz"),
        ("stated memory clock", "hipDeviceAttributeMemoryClockRate", "kHz"),
        ("L2", "hipDeviceAttributeL2CacheSize", "bytes"),
    ):
        key = getattr(hip.hipDeviceAttribute_t, attribute, None)
        if key is not None:
            facts[name] = f"{_answer(hip.hipDeviceGetAttribute, key, bound.ordinal)} {unit}"
    hip.hipGetLastError()  # an unknown attribute must not become the error of a later call
    if bound.choice.kind == "gpu":
        facts |= _of_driver(bound)
    return facts


def _answer(call: Callable[..., tuple[Any, ...]], *given: object) -> str:
    """The result of a hip-python call, or the fact that the library lacks it."""
    try:
        status, *found = call(*given)
    except RuntimeError as error:
        return f"unknown ({without_paths(str(error))})"
    return f"unknown ({status.name})" if status else str(found[0])


def _of_driver(bound: Runtime) -> dict[str, str]:
    # Generations of hip-python return texts differently; the library itself does not.
    text = ctypes.create_string_buffer(64)
    call = getattr(ctypes.CDLL(bound.choice.library), "hipDeviceGetPCIBusId", None)
    if call is None or call(text, 64, bound.ordinal):
        bound.hip.hipGetLastError()
        return {"driver's view": "hipDeviceGetPCIBusId failed"}
    return driver_facts(text.value.decode())


def driver_facts(bus_id: str, kfd: Path = _KFD, pci: Path = _PCI) -> dict[str, str]:
    """Chip id, XCCs and partition of a PCI device, from the kernel driver.

    Parameters
    ----------
    bus_id : str
        "domain:bus:device.function", hexadecimal.
    """
    match = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)\.([0-9a-f])", bus_id.lower())
    if match is None:
        return {"driver's view": "its bus id is not that of a PCI device"}
    domain, bus, unit, function = (int(part, 16) for part in match.groups())
    location = bus << 8 | unit << 3 | function
    facts = {}
    for node in sorted(kfd.glob("*/properties")):
        found = _properties(_read(node))
        if found.get("location_id") == str(location) and found.get("domain") == str(domain):
            facts = {f"KFD {name}": found[name] for name in _NODE_FACTS if name in found}
    for name in _PARTITION_FILES:
        if value := _read(pci / bus_id.lower() / name):
            facts[name.replace("_", " ")] = value
    if chip := _read(pci / bus_id.lower() / "device"):
        facts["chip id"] = chip
    return facts or {"driver's view": "nothing about this device"}


def _properties(text: str) -> Mapping[str, str]:
    pairs = (line.split(maxsplit=1) for line in text.splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _rocm() -> str:
    root = os.environ.get("ROCM_PATH") or os.environ.get("ROCM_HOME") or "/opt/rocm"
    return _read(Path(root) / ".info" / "version") or "no ROCm folder found"


def _os_name() -> str:
    names = re.findall(r'^PRETTY_NAME="?([^"\n]*)', _read(Path("/etc/os-release")), re.MULTILINE)
    return names[0] if names else "unknown"


def _processor() -> str:
    names = re.findall(r"^model name\s*:\s*(.*)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} threads"


def _kernels_digest() -> str:
    import hashlib

    from amdattn import paths

    file = paths.hsaco_dir() / "manifest.json"
    return f"manifest sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
