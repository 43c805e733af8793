"""Comparison of a result with what it must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        Largest absolute error of the same in plain rounded steps, 0 where none was given.
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


def judge(
    actual: NDArray[Any], expected: NDArray[Any], tolerance: float, rounded_error: float
) -> Comparison:
    """Hold a result against float64 values: NaN and infinities in place, errors small enough."""
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
    error, at = worst(x, expected)
    if error <= tolerance:
        return Comparison(True, error, tolerance, rounded_error, at, "")
    reason = (
        f"error {error:.4g} > {tolerance:.4g} at {at}: {x[at]:.6g} instead of {expected[at]:.6g}"
    )
    return Comparison(False, error, tolerance, rounded_error, at, reason)


def worst(actual: NDArray[Any], expected: NDArray[Any]) -> tuple[float, tuple[int, ...]]:
    """The greatest absolute difference of finite elements, and where it is."""
    x = actual.astype(np.float64)
    difference = np.zeros(x.shape)
    np.subtract(x, expected, out=difference, where=np.isfinite(expected) & np.isfinite(x))
    flat = int(np.argmax(np.abs(difference)))
    at = _coordinate(flat, x.shape)
    return float(abs(difference[at])), at


def largest(x: NDArray[Any]) -> float:
    """The greatest absolute value of finite elements."""
    finite = x[np.isfinite(x)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _coordinate(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))
