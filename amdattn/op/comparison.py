"""Comparison of a result with its reference."""

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
        The absolute difference of the finite element that is worst relative to its tolerance.
    tolerance : float
        The tolerance of that element.
    rounded_error : float
        The largest absolute error of a plain computation in rounded steps; 0 if none was given.
    worst : tuple of int
        The coordinates of the worst element (of the first misplaced NaN or infinity, if any).
    reason : str
        Why the comparison fails; "" if it holds.
    """

    ok: bool
    max_error: float
    tolerance: float
    rounded_error: float
    worst: tuple[int, ...]
    reason: str

    @property
    def share(self) -> float:
        """The error relative to the tolerance; infinite for misplaced elements."""
        if np.isnan(self.max_error):
            return float("inf")
        return self.max_error / self.tolerance if self.max_error else 0.0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if not self.ok:
            return self.reason
        return f"max error {self.max_error:.3g} <= {self.tolerance:.3g} (worst at {self.worst})"


def judge(
    actual: NDArray[Any],
    expected: NDArray[Any],
    tolerance: float | NDArray[Any],
    rounded_error: float,
) -> Comparison:
    """Compare a result with float64 values: NaN and infinities in place, errors in tolerance.

    Parameters
    ----------
    tolerance : float or array
        The allowed error, for all elements or for each.
    """
    most = float(np.nanmax(tolerance)) if np.size(tolerance) else 0.0
    if actual.shape != expected.shape:
        reason = f"shape {actual.shape} is not {expected.shape}"
        return Comparison(False, np.nan, most, rounded_error, (), reason)
    with np.errstate(invalid="ignore"):
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
            return Comparison(False, np.nan, most, rounded_error, at, reason)
    difference = _difference(x, expected)
    allowed = np.broadcast_to(tolerance, x.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(difference > 0, difference / allowed, 0.0)
    at = _coordinate(int(np.argmax(share)), x.shape)
    error, most = float(difference[at]), float(allowed[at])
    if share[at] <= 1:
        return Comparison(True, error, most, rounded_error, at, "")
    reason = f"error {error:.4g} > {most:.4g} at {at}: {x[at]:.6g} instead of {expected[at]:.6g}"
    return Comparison(False, error, most, rounded_error, at, reason)


def worst(actual: NDArray[Any], expected: NDArray[Any]) -> tuple[float, tuple[int, ...]]:
    """The greatest absolute difference of finite elements, and its coordinates."""
    difference = _difference(actual.astype(np.float64), expected)
    at = _coordinate(int(np.argmax(difference)), difference.shape)
    return float(difference[at]), at


def _difference(x: NDArray[Any], expected: NDArray[Any]) -> NDArray[Any]:
    """Absolute differences of finite elements."""
    found = np.zeros(x.shape)
    np.subtract(x, expected, out=found, where=np.isfinite(expected) & np.isfinite(x))
    return np.abs(found)


def largest(x: NDArray[Any]) -> float:
    """The greatest absolute value of finite elements."""
    finite = x[np.isfinite(x)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _coordinate(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))
