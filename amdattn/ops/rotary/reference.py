"""Heads normalised in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def normed(heads: NDArray[Any], weight: NDArray[Any], eps: float) -> NDArray[np.float64]:
    """Heads (..., head_dim) over the roots of their mean squares, times the weights."""
    wide = heads.astype(np.float64)
    mean = np.square(wide).mean(-1, keepdims=True)
    root = np.sqrt(mean + np.float64(np.float32(eps)))
    found: NDArray[np.float64] = wide * weight.astype(np.float64) / root
    return found
