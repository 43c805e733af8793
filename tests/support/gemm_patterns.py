"""Activations of every number that a 16-bit type has: `gemm_nt` beside float64.

    AMDATTN_DEVICE=virtual:gfx950 python -m tests.support.gemm_patterns

A row of b is one number and zeros, a is a one and zeros, so that sums are that number. Prints what
is wrong.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import amdattn
from amdattn.ops.gemm.problem import FACTORS

Array = npt.NDArray[Any]
ELEMENTS = (ml_dtypes.bfloat16, np.float16)
ACTIVATIONS = ("silu", "gelu_tanh", "gelu")
_SLOPE = 2 * math.sqrt(2 / math.pi)
_RELATIVE, _LEAST = 2.0**-15, 2.0**-149  # of float32 results: see test_activations_underflow


def numbers(element: Any) -> Array:
    """Every bit pattern, once."""
    return np.arange(2**16, dtype=np.uint16).view(element)


def definition(name: str, x: Array) -> Array:
    """In float64; at infinities the limits."""
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        if name == "gelu":
            weight = np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2)) / 2
        else:
            weight = 1 / (1 + np.exp(-(x if name == "silu" else _SLOPE * (x + 0.044715 * x**3))))
        return np.where((weight == 0) & (x < 0), -0.0, x * weight)


def activated(element: Any, name: str) -> Array:
    """Of every number, as float32; of a gate beside factors of 2 if the name says so."""
    rows = numbers(element)
    if name.endswith(FACTORS):
        rows = np.concatenate([rows, np.full_like(rows, 2)])
    a, b = np.zeros((1, 8), element), np.zeros((len(rows), 8), element)
    a[0, 0], b[:, 0] = 1, rows
    out: Array = amdattn.gemm_nt(a, b, activation=name, out_dtype="float32")[0]
    return out


def wrong(element: Any, name: str) -> Array:
    """Numbers whose result is not what float64 says: none."""
    best = definition(name.removesuffix(FACTORS), numbers(element))
    best = 2 * best if name.endswith(FACTORS) else best
    got = activated(element, name).astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(got - best) <= _RELATIVE * np.abs(best) + 1.02 * _LEAST
        near |= (got == best.astype(np.float32)) | (np.isnan(got) & np.isnan(best))
        sums_to_zero = numbers(element) == 0  # of either sign
    near &= np.isnan(best) | (np.signbit(got) == np.signbit(best)) | sums_to_zero
    found: Array = numbers(element)[~near]
    return found


def main() -> None:
    """All of it."""
    for element in ELEMENTS:
        for name in ACTIVATIONS:
            for suffix in ("", FACTORS):
                found = wrong(element, name + suffix)
                if len(found):
                    print(f"{name}{suffix}: {len(found)} of {np.dtype(element)}, {found[:3]}")


if __name__ == "__main__":
    main()
