"""When is a result right: an oracle that takes its tolerance from the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Of the error that a plain bfloat16 pipeline makes on the same data.
ERROR_RATIO = 2.0
BFLOAT16_EPSILON = 2.0**-8
FLOAT32_EPSILON = 2.0**-23


@dataclass(frozen=True, slots=True)
class Comparison:
    """Outcome of a comparison; true if it holds.

    Attributes
    ----------
    max_error : float
        Largest absolute difference over the finite elements.
    tolerance : float
        What is allowed for it.
    rounded_error : float
        Largest absolute error of the plain bfloat16 pipeline, 0 where none was given.
    worst : tuple of int
        Coordinate of the worst element (of the first misplaced NaN or infinity, if any).
    reason : str
        Why it does not hold; "" if it does.
    """

    ok: bool
    max_error: float
    tolerance: float
    rounded_error: float
    worst: tuple[int, ...]
    reason: str

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if not self.ok:
            return self.reason
        return f"max error {self.max_error:.3g} <= {self.tolerance:.3g} (worst at {self.worst})"


def compare(actual: NDArray[Any], expected: NDArray[Any], rounded: NDArray[Any]) -> Comparison:
    """Compare a bfloat16 result with the float64 reference.

    The largest error may be twice that of `rounded`, the plain bfloat16 pipeline on the same data,
    plus one rounding of the largest expected value to bfloat16.

    Parameters
    ----------
    actual, expected, rounded : arrays of one shape
    """
    floor = BFLOAT16_EPSILON / 2 * _largest(expected)
    error, _ = _worst(rounded, expected)
    return _judge(actual, expected, ERROR_RATIO * error + floor, error)


def compare_lse(actual: NDArray[Any], expected: NDArray[Any], head_dim: int) -> Comparison:
    """Compare a float32 log-sum-exp with the float64 reference.

    The allowed error is that of a float32 dot product of `head_dim` terms as large as the largest
    expected value.
    """
    tolerance = FLOAT32_EPSILON * head_dim * max(1.0, _largest(expected))
    return _judge(actual, expected, tolerance, 0.0)


def _judge(
    actual: NDArray[Any], expected: NDArray[Any], tolerance: float, rounded_error: float
) -> Comparison:
    if actual.shape != expected.shape:
        reason = f"shape {actual.shape} is not {expected.shape}"
        return Comparison(False, np.nan, tolerance, rounded_error, (), reason)
    x = actual.astype(np.float64)
    for kind, same in (
        ("NaN", np.isnan(x) == np.isnan(expected)),
        ("+inf", (x == np.inf) == (expected == np.inf)),
        ("-inf", (x == -np.inf) == (expected == -np.inf)),
    ):
        if not same.all():
            at = _coordinate(int(np.argmin(same)), x.shape)
            reason = (
                f"{kind} at the wrong places, first at {at}: "
                f"{x[at]:.6g} instead of {expected[at]:.6g} "
                f"({np.count_nonzero(~same)} of {x.size} elements)"
            )
            return Comparison(False, np.nan, tolerance, rounded_error, at, reason)
    error, at = _worst(x, expected)
    if error <= tolerance:
        return Comparison(True, error, tolerance, rounded_error, at, "")
    reason = (
        f"error {error:.4g} > {tolerance:.4g} at {at}: {x[at]:.6g} instead of {expected[at]:.6g}"
    )
    return Comparison(False, error, tolerance, rounded_error, at, reason)


def _worst(actual: NDArray[Any], expected: NDArray[Any]) -> tuple[float, tuple[int, ...]]:
    x = actual.astype(np.float64)
    difference = np.zeros(x.shape)
    np.subtract(x, expected, out=difference, where=np.isfinite(expected) & np.isfinite(x))
    flat = int(np.argmax(np.abs(difference)))
    at = _coordinate(flat, x.shape)
    return float(abs(difference[at])), at


def _largest(x: NDArray[Any]) -> float:
    finite = x[np.isfinite(x)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _coordinate(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))
