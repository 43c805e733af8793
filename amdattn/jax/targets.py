"""The handler of XLA's FFI: registered for every operation, bound to the HIP runtime."""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass
from typing import Any

import jax

from amdattn import native_libraries, paths
from amdattn.device import binding, manifest, runtime
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.device.runtime import Runtime
from amdattn.device.runtime.launch_form import LaunchForm
from amdattn.errors import AmdattnError, BindingError
from amdattn.jax.encoding import key_of
from amdattn.ops import registry

LIBRARY = "libamdattn_xla.so"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform of JAX that has a handler.

    Attributes
    ----------
    name : str
        The name in JAX's lowering.
    registered : str
        The name in XLA's registry; the plugin reads "ROCM" and no other spelling.
    number : int
        The number in native/handler.c.
    symbol : str
        The handler's function.
    """

    name: str
    registered: str
    number: int
    symbol: str


PLATFORMS = (
    Platform("cpu", "cpu", 0, "amdattn_xla_cpu"),
    Platform("rocm", "ROCM", 1, "amdattn_xla_rocm"),
)

# Members of `struct Hip` of native/handler.c; the last ones are the virtual device's own.
_FUNCTIONS = (
    *("hipModuleLaunchKernel", "hipMemsetAsync", "hipStreamSynchronize", "hipGetDevice"),
    *("hipSetDevice", "hipGetErrorString"),
)
_VIRTUAL_FUNCTIONS = (
    *("amdattn_vdev_borrow", "amdattn_vdev_give_back", "amdattn_vdev_last_report"),
)
_RESOLVER = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint8)),
    *(ctypes.POINTER(ctypes.c_char), ctypes.c_size_t),
)


def target_name(operation: str) -> str:
    """The name of an operation's FFI target."""
    return f"amdattn.{operation}"


@functools.cache
def library() -> ctypes.CDLL:
    """Load the handler's library and register it for every operation, once per process.

    Raises
    ------
    BindingError
        The library is missing or cannot be loaded.
    """
    path = paths.native_library_dir() / LIBRARY
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        found = native_libraries.find()
        what = "install amdattn again"
        if found.note and not found.is_installed:
            what = f"{found.note}. {native_libraries.remedy(found)}"
        raise BindingError(f"{path} cannot be loaded ({error}); {what}") from None
    loaded.amdattn_xla_set_resolver(_resolver)
    for platform in PLATFORMS:
        for name in registry.names():
            jax.ffi.register_ffi_target(
                target_name(name), _handler(loaded, platform), platform=platform.registered
            )
    return loaded


def handler(platform: Platform) -> dict[str, Any]:
    """The handler of a platform, as JAX registers it."""
    return _handler(library(), platform)


def _handler(loaded: ctypes.CDLL, platform: Platform) -> dict[str, Any]:
    function = ctypes.cast(loaded[platform.symbol], ctypes.c_void_p).value
    capsule = jax.ffi.pycapsule(function)
    return {"instantiate": capsule, "execute": capsule}


def device_of(platform: str) -> Runtime:
    """The device that programs of a platform are lowered for and run on.

    Raises
    ------
    BindingError
        The bound HIP runtime is not that of the platform.
    """
    device = runtime.get()
    if platform == "cpu" and device.choice.kind != "virtual":
        raise BindingError(
            f"JAX runs on the CPU, but amdattn is bound to a GPU ({device.props.name}): install "
            "JAX's ROCm plugin (docs/jax.md), or choose the virtual device before the first "
            f"operation (AMDATTN_DEVICE=virtual:{device.props.arch})"
        )
    if platform == "rocm" and device.choice.kind != "gpu":
        raise BindingError(
            f"JAX runs on a GPU, but amdattn is bound to the virtual device "
            f"({device.choice.why}): unset AMDATTN_DEVICE, and have JAX find its devices first "
            "(jax.devices())"
        )
    if platform == "rocm" and (others := binding.other_runtimes(device.choice.library)):
        raise BindingError(others)
    return device


# -- called by the handler -------------------------------------------------------------------------


def _resolve(number: int, ordinal: int, key: Any, why: Any, why_bytes: int) -> int:
    """Load a kernel on a device, or on all; see `Resolver` of native/handler.c."""
    try:
        platform = next(platform for platform in PLATFORMS if platform.number == number)
        kernel = _kernel_of(bytes(key[:16]))
        device_of(platform.name)
        _bind(platform)
        for each in _ordinals(platform) if ordinal < 0 else [ordinal]:
            _add(platform, kernel, each)
    except BaseException as error:  # no exception may pass through C
        known = isinstance(error, (AmdattnError, ValueError))
        text = str(error) if known else f"{type(error).__name__}: {error}"
        data = text.encode()[: why_bytes - 1]
        ctypes.memmove(why, data + b"\0", len(data) + 1)
        return 0
    return 1


_resolver = _RESOLVER(_resolve)  # lives as long as the library may call it


def _kernel_of(key: bytes) -> KernelSpec:
    for kernel in manifest.kernels():
        if key_of(kernel) == key:
            return kernel
    raise ValueError(
        "this program was lowered with another version of amdattn: the install has no such kernel. "
        "Lower it again"
    )


def _ordinals(platform: Platform) -> list[int]:
    """Ordinals of the devices on which programs of this process may run; the virtual one is 0."""
    if platform.name == "cpu":
        return [0]
    return [device.local_hardware_id for device in jax.local_devices(backend=platform.name)]


def _add(platform: Platform, kernel: KernelSpec, ordinal: int) -> None:
    device = runtime.get(ordinal)
    function = device.function(kernel)
    one_by_one = device.launch_form is LaunchForm.PARAMS
    offsets = device.argument_offsets(kernel) if one_by_one else ()
    key = (ctypes.c_uint64 * 2).from_buffer_copy(key_of(kernel))
    added = library().amdattn_xla_add_kernel(
        platform.number,
        ordinal,
        key,
        ctypes.c_void_p(int(function)),
        packer(kernel).size,
        len(offsets),
        (ctypes.c_int32 * max(1, len(offsets)))(*offsets),
    )
    if not added:
        raise ValueError(f"kernel {kernel.name} cannot be added: the handler's table is full")


_bound: set[int] = set()
_lock = threading.Lock()


def _bind(platform: Platform) -> None:
    """Give the handler the functions of the HIP runtime that this package is bound to."""
    if platform.number in _bound:
        return
    with _lock:
        if platform.number in _bound:
            return
        hip = ctypes.CDLL(runtime.get().choice.library)
        names = (*_FUNCTIONS, *_VIRTUAL_FUNCTIONS)
        addresses = [
            ctypes.cast(hip[name], ctypes.c_void_p).value if hasattr(hip, name) else None
            for name in names
        ]
        missing = [name for name, at in zip(names, addresses, strict=True) if at is None]
        if set(missing) & set(_FUNCTIONS):
            raise BindingError(f"{runtime.get().choice.library} has no {missing[0]}")
        library().amdattn_xla_bind(platform.number, (ctypes.c_void_p * len(names))(*addresses))
        _bound.add(platform.number)
