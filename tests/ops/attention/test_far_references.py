"""Scores beyond 2^22 in log2 units, of which float32 has no digits behind the point left."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn

SCORE = 4e6  # nats


def _zeros(rows: int, keys: int, dim: int, dtype: Any) -> tuple[Any, Any, Any]:
    """q, k, v of one head."""
    q, k, v = (np.zeros((1, n, 1, dim), dtype) for n in (rows, keys, keys))
    return q, k, v


@pytest.mark.parametrize("window", [(-1, -1), (55, 14), (55, -1), (-1, 14)])
@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "row"), [(1, 0), (33, 30), (130, 127)])
def test_a_row_has_the_value_of_its_only_key(
    rows: int, row: int, dtype: type, dim: int, window: tuple[int, int]
) -> None:
    """Also where the first keys of a tile are none of the row's."""
    keys = 472
    key = keys - rows + row - 15
    q, k, v = _zeros(rows, keys, dim, dtype)
    q[0, row, 0, 0], k[0, key, 0, 0], v[0, key] = 100, SCORE / 400, 1
    given = np.float64(k[0, key, 0, 0]) * 400
    out, lse = amdattn.flash_attn_func(
        *(q, k, v), softmax_scale=4.0, window_size=window, return_lse=True
    )
    assert (np.asarray(out, np.float64)[0, row] == 1).all()
    assert np.isfinite(np.asarray(out, np.float64)).all()
    np.testing.assert_allclose(lse[0, 0, row], given, rtol=2.0**-22)


@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize("dim", [64, 128, 192, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("lag", "below"), [(0, 120), (20, 131), (45, 110), (50, 133)])
def test_keys_far_below_count_times_what_they_hold(
    lag: int, below: int, causal: bool, dim: int, num_splits: int
) -> None:
    """Keys of bfloat16 that are far above a row's first ones, then one that is far above them."""
    middle, last = 70, 250
    q, k, v = _zeros(33, 300, dim, ml_dtypes.bfloat16)
    q[..., 0] = 1
    k[0, middle, 0, 0], k[0, last, 0, 0] = lag, lag + below
    v[0, middle, 0, 0], v[0, last, 0, 1] = 2.0**30, 1
    out = amdattn.flash_attn_func(
        *(q, k, v), softmax_scale=np.log(2), causal=causal, num_splits=num_splits
    )
    found = np.asarray(out, np.float64)[0, :, 0]
    np.testing.assert_allclose(found[:, 0], 2.0 ** (30 - below), rtol=2.0**-6)
    np.testing.assert_allclose(found[:, 1], 1, rtol=2.0**-7)
