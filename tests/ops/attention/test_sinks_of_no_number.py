"""Sinks that are no finite number, of rows with keys and of rows without."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn

ROWS, KEYS = 70, 65  # causal: the first 5 rows see no key


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("head_dim", [72, 128])
@pytest.mark.parametrize("num_splits", [0, 1, 3])
@pytest.mark.parametrize(
    ("sink", "of_none", "of_some"),
    [(np.nan, np.nan, np.nan), (np.inf, np.nan, np.nan), (-np.inf, 0, None), (0, 0, None)],
)
def test_a_row_is_one_kind_of_number(
    dtype: Any, head_dim: int, num_splits: int, sink: float, of_none: float, of_some: float | None
) -> None:
    """O and its log-sum-exp alike, in however many parts: NaN, or what numbers give."""
    rng = np.random.default_rng(5)
    q = rng.standard_normal((2, ROWS, 4, head_dim)).astype(dtype)
    k, v = (rng.standard_normal((2, KEYS, 2, head_dim)).astype(dtype) for _ in "kv")
    sinks = np.full(4, sink, np.float32)
    out, lse = amdattn.flash_attn_func(
        q, k, v, causal=True, num_splits=num_splits, sinks=sinks, return_lse=True
    )
    none, some = out[:, : ROWS - KEYS].astype(np.float32), out[:, ROWS - KEYS :].astype(np.float32)
    np.testing.assert_array_equal(none, np.full_like(none, of_none))
    np.testing.assert_array_equal(
        lse[..., : ROWS - KEYS], np.float32(np.nan if np.isnan(of_none) else sink)
    )
    for x in (some, lse[..., ROWS - KEYS :]):
        assert np.isfinite(x).all() if of_some is None else np.isnan(x).all()
