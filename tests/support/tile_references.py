"""Host references of the kernels beside this file, in numpy: what each must write."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

LANES = 64
FRAG_ROWS = 16


def rounded(values: F32, element: np.dtype[Any], how: str) -> npt.NDArray[Any]:
    """Numbers to 16 bits. Not to nearest even: by the two neighbours in the type."""
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = values.astype(element)
    if how == "kNearestEven":
        return nearest
    with np.errstate(invalid="ignore"):
        error = nearest.astype(np.float64) - values
        beyond = np.sign(error) * np.sign(values) > 0  # in magnitude
    bits = nearest.view(np.uint16)
    if how == "kTowardZero":
        finite = np.isfinite(values)
        return np.where(beyond & finite, bits - 1, bits).astype(np.uint16).view(element)
    with np.errstate(invalid="ignore", over="ignore"):
        away = (bits + 1).astype(np.uint16).view(element).astype(np.float64)
        tie = ~beyond & (np.abs(away - values) == np.abs(error)) & (error != 0)
    return np.where(tie, bits + 1, bits).astype(np.uint16).view(element)


ROUNDINGS = ("kNearestEven", "kNearestAway", "kTowardZero")


def lane_reduce(values: F32) -> tuple[F32, F64]:
    """Maximum and (exact) sum over the lanes that are equal modulo 16; shape (64,) each."""
    groups = values.reshape(-1, FRAG_ROWS)
    repeat = LANES // FRAG_ROWS
    return np.tile(groups.max(0), repeat), np.tile(groups.sum(0, dtype=np.float64), repeat)


def mma(a: F64, b: F64, c: F64) -> F64:
    """a (16, 32), b (16, 32), c (16, 16), exact."""
    return a @ b.T + c
