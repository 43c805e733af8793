"""What callers give as arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def as_arrays(**given: Any) -> tuple[Any, ...]:
    """The same, once they are arrays of JAX, traced or not, or of numpy; None where nothing is.

    Raises
    ------
    TypeError
        One is an array of something else, or a number.
    ValueError
        One was deleted.
    """
    for name, x in given.items():
        if x is None or isinstance(x, np.ndarray):
            continue
        if not isinstance(x, jax.Array):
            raise TypeError(
                f"{name} must be an array of JAX or numpy, not {type(x).__module__}."
                f"{type(x).__qualname__}; jax.dlpack.from_dlpack makes one of another library's"
            )
    return tuple(given.values())
