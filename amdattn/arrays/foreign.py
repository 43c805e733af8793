"""Arrays of other libraries, viewed through the protocols that they support.

DLPack comes first, then ``__cuda_array_interface__``, which arrays of hip-python and CuPy have,
then whatever numpy can read.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from amdattn import scalars
from amdattn.arrays import dlpack
from amdattn.arrays.dlpack import RawMemory, compact_strides
from amdattn.arrays.dlpack_import import import_tensor
from amdattn.arrays.views import View
from amdattn.device import host_memory, runtime
from amdattn.dtypes import DType, as_dtype
from amdattn.errors import AmdattnError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2  # of __cuda_array_interface__


def foreign_view(x: Any, name: str, stream: int, is_output: bool = False) -> View | None:
    """View the memory of an array that is neither numpy's nor this package's.

    Returns None if it supports no protocol. For errors see `amdattn.arrays.interchange.as_view`.
    """
    if speaks_dlpack(x):
        view, is_copied = dlpack_view(x, name, stream)
        if is_output and is_copied:
            raise ValueError(f"{name} cannot be written: its library hands out a copy of it")
        return view
    x = _with_values(x, name)
    if _is_tracer(x):
        raise _refusal(x, name, None)
    if (interface := getattr(x, "__cuda_array_interface__", None)) is not None:
        return _interface_view(x, name, interface, stream)
    return None


# -- DLPack ----------------------------------------------------------------------------------------


def dlpack_view(
    x: Any,
    name: str,
    stream: int,
    copy: bool | None = None,
    dl_device: tuple[int, int] | None = None,
) -> tuple[View, bool]:
    """View the memory of a DLPack array, and say whether its producer copied it.

    `copy` and `dl_device` are those of `import_tensor`. For errors see
    `amdattn.arrays.interchange.as_view`.
    """
    x = _with_values(x, name)
    kind, ordinal = device_of(x, name)
    try:
        source = None
        if kind in dlpack.HOST_KINDS:
            source = import_tensor(x, None, (kind, ordinal), copy)
        elif kind == dlpack.ROCM:
            device = runtime.get(dl_device[1] if dl_device else ordinal)
            # HIP's constants for default streams are not valid streams for a producer.
            named = 0 if stream in (_LEGACY_STREAM, _PER_THREAD_STREAM) else stream
            source = import_tensor(x, named, (kind, ordinal), copy, dl_device)
            device.wait_for(stream, named)
    except AmdattnError:
        raise
    except Exception as error:
        raise _refusal(x, name, error) from error
    if source is None:
        raise TypeError(
            f"{name} is on a DLPack device of type {kind}; amdattn takes the host "
            f"{dlpack.HOST_KINDS} and ROCm devices ({dlpack.ROCM})"
        )
    address, shape, strides, dtype, extent, read_only, owner, is_copied = source
    if kind in dlpack.HOST_KINDS:
        import numpy as np

        if 0 in shape:
            array = np.empty(shape, dtype.numpy())
        else:
            memory = RawMemory(address, shape, strides, dtype, owner, read_only)
            array = np.asarray(memory).view(dtype.numpy())
        return View(address, shape, strides, dtype, read_only, x, array), is_copied
    view = View(address, shape, strides, dtype, read_only, owner, ordinal=device.ordinal)
    return _device_view(name, view, extent), is_copied


def speaks_dlpack(x: Any) -> bool:
    """Whether an array has both methods of DLPack."""
    return hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")


def device_of(x: Any, name: str) -> tuple[int, int]:
    """The DLPack device that an array names.

    Raises
    ------
    AttributeError
        The array does not support DLPack.
    """
    if not speaks_dlpack(x):
        if _is_tracer(x):
            raise _refusal(x, name, None)
        kind = f"{type(x).__module__}.{type(x).__qualname__}"
        raise AttributeError(
            f"{name} must have __dlpack__ and __dlpack_device__, which {kind} has not"
        )
    try:
        answer = x.__dlpack_device__()
    except Exception as error:
        raise _refusal(x, name, error) from error
    try:
        return dlpack.device_pair("__dlpack_device__", answer)
    except ValueError as error:
        raise _refusal(x, name, BufferError(f"__dlpack_device__ gave {answer!r}")) from error


def _device_view(name: str, view: View, extent: tuple[int, int]) -> View:
    """Check that a view is memory of its device with aligned elements, and return it."""
    low, high = extent
    if low == high:
        return view
    device = runtime.get(view.ordinal)
    if view.address % view.dtype.itemsize:
        raise ValueError(
            f"{name} is at {view.address:#x}, which is not a multiple of the "
            f"{view.dtype.itemsize} bytes of an element"
        )
    is_known = extent in _seen_ranges
    if not device.owns(low) or not (is_known or device.owns(high - 1)):
        raise ValueError(
            f"{name} at {low:#x}..{high:#x} is not memory of device {view.ordinal} "
            f"({device.props.name} through {device.choice.library}); two HIP runtimes in one "
            "process do not share memory"
        )
    if not is_known:
        if len(_seen_ranges) >= _MAX_SEEN:
            _seen_ranges.clear()
        _seen_ranges.add(extent)
    return view


# Ranges whose end was found to be the device's too. Asking is slow, so for arrays that recur only
# the beginning is asked for.
_seen_ranges: set[tuple[int, int]] = set()
_MAX_SEEN = 256


# -- why a library refuses -------------------------------------------------------------------------


def _with_values(x: Any, name: str) -> Any:
    """Check that the memory of a torch tensor holds its values, and that it records no gradient."""
    if getattr(x, "requires_grad", False) is True:
        x = _without_gradient(x, name)
    if getattr(x, "is_neg", bool)() is True:  # torch exports it without the sign
        raise ValueError(
            f"{name} is a view of the negatives of its elements, as torch.conj(...).imag is; pass "
            f"{name}.resolve_neg()"
        )
    return x


def _without_gradient(x: Any, name: str) -> Any:
    """A torch tensor that requires a gradient, if none is being recorded."""
    torch = sys.modules.get(type(x).__module__.partition(".")[0])
    is_recorded = getattr(torch, "is_grad_enabled", None)
    if is_recorded is None or not hasattr(x, "detach"):
        return x
    if is_recorded():
        raise ValueError(
            f"{name} requires a gradient, and amdattn has none: call it under torch.no_grad(), or "
            f"pass {name}.detach()"
        )
    return x.detach()


def _is_tracer(x: Any) -> bool:
    return any(base.__name__ == "Tracer" for base in type(x).__mro__)


def _refusal(x: Any, name: str, error: Exception | None) -> Exception:
    """The error for an array that its library does not export, with what the caller can do."""
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    if _is_tracer(x):
        return TypeError(
            f"{name} must be an array with values, but is a JAX tracer ({kind}): inside of "
            "jax.jit, jax.grad and jax.vmap use the functions of amdattn.jax, of the same names"
        )
    if getattr(x, "is_deleted", bool)() is True:
        return ValueError(
            f"{name} is a JAX array that was deleted: it was donated to a jitted function, or "
            "delete() was called; pass an array that still exists, or do not donate it"
        )
    devices = getattr(getattr(x, "sharding", None), "device_set", ())
    if len(devices) > 1:
        return ValueError(
            f"{name} is a JAX array in shards on {len(devices)} devices, and one is taken here: "
            "use the functions of amdattn.jax, of the same names, inside of jax.jit or "
            f"jax.shard_map, or bring the array together: jax.device_put({name}, jax.devices()[0])"
        )
    text = f"{name} ({kind}) cannot be taken: {error}"
    if isinstance(error, BufferError):
        return BufferError(text)
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


# -- __cuda_array_interface__ ----------------------------------------------------------------------


def _interface_view(x: Any, name: str, interface: Any, stream: int) -> View:
    """See https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html, version 3."""
    try:
        shape = tuple(scalars.integer("shape", length) for length in interface["shape"])
        steps = interface.get("strides")
        typestr, (address, read_only) = interface["typestr"], interface["data"]
        address = scalars.integer("data", address)
        dtype = _interface_type(typestr)
        if any(length < 0 for length in shape):
            raise ValueError(f"shape={shape}")
        if steps is None:
            strides = compact_strides(shape)
        else:
            if len(steps) != len(shape):
                raise ValueError(f"strides={steps} for shape={shape}")
            found = [divmod(scalars.integer("strides", step), dtype.itemsize) for step in steps]
            if any(rest for _, rest in found):
                raise ValueError(f"strides={steps} are no multiples of {dtype.itemsize} bytes")
            strides = tuple(step for step, _ in found)
        if interface.get("mask") is not None:
            raise ValueError("it has a mask")
        producer = _interface_stream(interface.get("stream"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{name}.__cuda_array_interface__ cannot be taken: {error}; {interface!r}"
        ) from error
    facts = address, shape, strides, dtype, bool(read_only), x
    low, high = View(*facts).extent()
    if 0 not in shape and not 0 < low < high < 2**63:
        raise ValueError(f"{name}.__cuda_array_interface__ leaves the address space: {interface!r}")
    device = runtime.get()
    if low != high and (ordinal := device.ordinal_of(address)) is not None:
        device = runtime.get(ordinal)
    view = _device_view(name, View(*facts, ordinal=device.ordinal), (low, high))
    if producer is not None:
        device.wait_for(stream, producer)
    return view


def _interface_type(typestr: Any) -> DType:
    kinds = {"f": "float", "i": "int", "u": "uint"}
    order, kind, digits = typestr[:1], typestr[1:2], typestr[2:]
    if kind in ("V", "v") and digits == "2":
        raise ValueError(
            f"typestr={typestr!r} says nothing about the numbers; if they are bfloat16, pass an "
            "array that speaks DLPack"
        )
    if order not in ("<", "|", "=") or kind not in kinds or not digits.isdecimal():
        raise ValueError(f"typestr={typestr!r} is not known")
    return as_dtype(f"{kinds[kind]}{8 * int(digits)}", "typestr")


def _interface_stream(stream: Any) -> int | None:
    """The stream on which the array becomes ready; None: it is ready."""
    if stream is None:
        return None
    number = runtime.stream_handle(stream)
    if number == 0:
        raise ValueError("stream=0 is ambiguous")
    return 0 if number == _LEGACY_STREAM else number


# -- numpy's protocols -----------------------------------------------------------------------------


def as_numpy(x: Any, name: str) -> NDArray[Any] | None:
    """The numpy array of an object with ``__array__`` or a buffer; None if it has neither."""
    if not (hasattr(x, "__array__") or hasattr(x, "__array_interface__") or _is_buffer(x)):
        return None
    import numpy as np

    try:
        array: np.ndarray[Any, Any] = np.asanyarray(x)
    except Exception as error:
        raise _refusal(x, name, error) from error
    # numpy trusts strides and addresses.
    if hasattr(x, "__array_interface__") and not isinstance(x, np.generic) and array.size:
        spans = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
        low = array.ctypes.data + sum(min(span, 0) for span in spans)
        high = array.ctypes.data + sum(max(span, 0) for span in spans) + array.itemsize
        if not host_memory.is_readable(low, high):
            raise ValueError(
                f"{name}.__array_interface__ cannot be taken: bytes {low:#x} to {high:#x} cannot "
                "be read"
            )
    return array


def _is_buffer(x: Any) -> bool:
    return isinstance(x, memoryview)
