"""Decides whether a result is right, with a tolerance that follows from the data."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from amdattn.op.comparison import Comparison, judge, worst
from amdattn.ops.attention.reference import BFLOAT16_EPSILON, lse_tolerance, tolerance

__all__ = ["Comparison", "compare", "compare_lse"]


def compare(actual: NDArray[Any], expected: NDArray[Any], rounded: NDArray[Any]) -> Comparison:
    """Compare a bfloat16 result with the float64 reference.

    The largest error may be twice that of `rounded`, the plain bfloat16 pipeline on the same data,
    plus one rounding of the largest expected value to bfloat16.

    Parameters
    ----------
    actual, expected, rounded : arrays of one shape
    """
    error, _ = worst(rounded, expected)
    return judge(actual, expected, tolerance(expected, error, BFLOAT16_EPSILON), error)


def compare_lse(actual: NDArray[Any], expected: NDArray[Any], head_dim: int) -> Comparison:
    """Compare a float32 log-sum-exp with the float64 reference.

    The allowed error is that of a float32 dot product of `head_dim` terms as large as the largest
    expected value.
    """
    return judge(actual, expected, lse_tolerance(expected, head_dim), 0.0)
