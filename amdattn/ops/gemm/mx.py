"""The OCP's MX formats: elements with a scale for each 32 along k, packed and unpacked.

A scale is a uint8: the exponent of 2 plus 127, or 255 for NaN. Elements of less than 8 bits are
packed: the bits of a row follow each other, the lowest bits of a byte first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amdattn.arrays.buffers import DeviceArray
from amdattn.arrays.interchange import as_view, asarray, to_library_of
from amdattn.dtypes import PACKED, as_dtype
from amdattn.ops.gemm.problem import MX_BLOCK, MX_DTYPES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BIAS, _NO_NUMBER, _MOST = 127, 255, 254
_NAMES = tuple(dtype.name for dtype in PACKED)


def quantize_mx(x: Any, dtype: Any = "float8_e4m3fn") -> tuple[Any, Any]:
    """Convert x to 8, 6 or 4 bits with a scale for each 32 elements of a row, for products.

    The host computes it. Arrays on the device are copied there and back.

    Parameters
    ----------
    x : array, bfloat16, float16 or float32, (..., k)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``. k is a multiple of 32.
    dtype
        float8_e4m3fn, float8_e5m2, float6_e2m3fn, float6_e3m2fn or float4_e2m1fn.

    Returns
    -------
    y : array, (..., k) with an 8-bit type; otherwise uint8, packed, (..., k * bits / 8)
    scale : array, uint8, (..., k / 32)
        An array of the kind of x. By the OCP's MX specification, a scale is the greatest power of 2
        that is at most the largest magnitude of its 32 elements, divided by the greatest power of 2
        of the type. Elements are rounded to the nearest, ties to even, and clamped to the greatest
        number. If one of the 32 is NaN or infinite, the scale is 255 and all are NaN.

    Raises
    ------
    ValueError
        Another type, or k is no multiple of 32.
    """
    import numpy as np

    to = as_dtype(dtype)
    if to.name not in MX_DTYPES:
        raise ValueError(f"dtype={dtype!r} must be one of {', '.join(MX_DTYPES)}")
    view = as_view(x, "x", 0)
    if view.dtype.name not in ("bfloat16", "float16", "float32"):
        raise ValueError(f"x has dtype {view.dtype.name}; it must be bfloat16, float16 or float32")
    if not view.shape or view.shape[-1] % MX_BLOCK:
        raise ValueError(
            f"x has shape {view.shape}; its last axis must be a multiple of {MX_BLOCK}"
        )
    on_device = x if isinstance(x, DeviceArray) else asarray(x) if view.on_device else None
    host = on_device.numpy() if on_device is not None else view.array
    assert host is not None
    wide = host.astype(np.float32).reshape(*view.shape[:-1], -1, MX_BLOCK)
    element = to.numpy()
    values = np.arange(2**to.bits, dtype=np.uint8).view(element).astype(np.float32)
    greatest = float(values[np.isfinite(values)].max())
    most = np.abs(wide).max(axis=-1)
    usable = np.isfinite(most) & (most > 0)
    exponents = np.frexp(np.where(usable, most, 1))[1] - np.frexp(greatest)[1]
    exponents = np.clip(np.where(most == 0, -_BIAS, exponents), -_BIAS, _MOST - _BIAS)
    scale = np.where(np.isfinite(most), exponents + _BIAS, _NO_NUMBER).astype(np.uint8)
    # In float64 the quotient is exact.
    quotients = wide.astype(np.float64) * np.exp2(-exponents.astype(np.float64))[..., None]
    quotients = np.where(np.isfinite(wide), np.clip(quotients, -greatest, greatest), 0)
    y: NDArray[Any] = quotients.reshape(view.shape).astype(np.float32).astype(element)
    if to.name in _NAMES:
        y = packed(y)
    if on_device is None:
        return to_library_of(x, y), to_library_of(x, scale)
    return tuple(to_library_of(x, asarray(one, device=view.ordinal)) for one in (y, scale))


def packed(elements: NDArray[Any]) -> NDArray[np.uint8]:
    """Pack elements of ml_dtypes with less than 8 bits, which have a byte each."""
    import numpy as np

    bits, codes = as_dtype(elements.dtype).bits, elements.view(np.uint8)
    if codes.shape[-1] * bits % 8:
        raise ValueError(
            f"an array has shape {codes.shape}; rows of {elements.dtype} must be whole bytes"
        )
    single = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(single.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def unpacked(rows: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The elements that were given to `packed`; those of 8 bits are returned as they are."""
    import numpy as np

    if dtype not in _NAMES:
        return rows
    bits = as_dtype(dtype).bits
    single = np.unpackbits(rows, axis=-1, bitorder="little").reshape(*rows.shape[:-1], -1, bits)
    codes = np.packbits(single, axis=-1, bitorder="little")[..., 0]
    return codes.view(as_dtype(dtype).numpy())


def values(rows: NDArray[Any], scale: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """The values of an operand with its scales."""
    import numpy as np

    exponents = scale.view(np.uint8).astype(np.float64) - _BIAS
    factors = np.where(exponents == _NO_NUMBER - _BIAS, np.nan, np.exp2(exponents))
    wide: NDArray[np.float64] = unpacked(rows, dtype).astype(np.float64)
    return wide * factors.repeat(MX_BLOCK, axis=-1)


def as_packed(x: Any) -> tuple[Any, str]:
    """Pack an array of ml_dtypes' elements of less than 8 bits, and name their type, or ""."""
    name = getattr(getattr(x, "dtype", None), "name", "")
    if name not in _NAMES or isinstance(x, DeviceArray):
        return x, ""
    return packed(x), name
