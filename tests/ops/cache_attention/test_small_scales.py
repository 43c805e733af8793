"""Scales of V in a cache of 8 bits, so small that a sum of exponentials divides them to nothing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from tests.support.shipped import props


@pytest.mark.parametrize("rise", [10, 24, 30])
@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_a_power_of_two_changes_no_bits(dim: int, num_splits: int, rise: int) -> None:
    """Of scores that rise behind the first keys, which are a row's reference."""
    rng = np.random.default_rng(7)
    element = as_dtype(props().architecture.fp8).numpy()
    q = np.ones((1, 70, 1, dim), ml_dtypes.bfloat16)
    k = np.zeros((1, 150, 1, dim), np.float32)
    k[0, 64:, 0, 0] = rise
    v = rng.standard_normal((1, 150, 1, dim)).astype(np.float32).astype(element)
    given: dict[str, Any] = {
        "softmax_scale": 1.0,
        "num_splits": num_splits,
        "window_size": (111, 19),
    }
    given["k_descale"] = np.ones(1, np.float32)

    def out(v_descale: float) -> np.ndarray[Any, Any]:
        return np.asarray(
            amdattn.flash_attn_with_kvcache(
                *(q, k.astype(element), v),
                **given,
                v_descale=np.full(1, v_descale, np.float32),
            ),
            np.float64,
        )

    # But where a float32 of a part, beside the others' with a weight of its own, is denormal.
    small, must = out(2.0**-105), out(1.0) * 2.0**-105
    np.testing.assert_allclose(small, must, rtol=0, atol=2.0**-140)
    assert (small != must).mean() < 1e-3
