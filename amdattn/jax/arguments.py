"""Checks arguments of callers: arrays of JAX or numpy, and Python options."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def as_arrays(**given: Any) -> tuple[Any, ...]:
    """Check that arguments are arrays of JAX, traced or not, or of numpy; return them in order.

    None is allowed for absent arguments.

    Raises
    ------
    TypeError
        One is an array of another library, a masked array, in foreign byte order, or a number.
    ValueError
        One was deleted, or has symbolic sizes.
    """
    for name, x in given.items():
        if x is None:
            continue
        if isinstance(x, jax.core.Tracer):
            if not all(isinstance(length, int) for length in getattr(x, "shape", ())):
                raise ValueError(
                    f"{name} has shape {x.shape}; plans are of numbers, not of symbols"
                )
        elif isinstance(x, jax.Array):
            if x.is_deleted():
                raise ValueError(f"{name} was donated or deleted; pass a live array")
        elif not isinstance(x, np.ndarray):
            raise TypeError(
                f"{name} must be an array of JAX or numpy, not {type(x).__module__}."
                f"{type(x).__qualname__}; jax.dlpack.from_dlpack makes one of another library's"
            )
        elif hasattr(x, "mask"):
            raise TypeError(
                f"{name} is a masked array, whose mask would be lost; pass {name}.filled()"
            )
        elif not x.dtype.isnative:
            raise TypeError(f"{name} has dtype {x.dtype.str}, which is not in native byte order")
    return tuple(given.values())


def private(x: Any) -> Any:
    """A private copy of indices on the host, so that the checked values are those that are used."""
    return x.copy() if isinstance(x, np.ndarray) else x


def is_at_hand(x: Any) -> bool:
    """Whether the elements of an array can be read without waiting for a GPU."""
    if isinstance(x, np.ndarray):
        return True
    if isinstance(x, jax.core.Tracer):
        return False
    return all(device.platform == "cpu" for device in x.devices())
