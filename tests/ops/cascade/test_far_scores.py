"""Scores so large that a float32 has no room for the logarithm of a sum beside them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from amdattn import cascade_attention

PREFIX, OWN, DIM = 3, 1, 64


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("log2_score", [0, 20, 30, 35, 37, 42, 60, 119])
def test_equal_ones_weigh_the_same(queries: int, log2_score: int) -> None:
    """Keys of the prefix and those behind it, however many there are of each."""
    q, k, v = (
        np.zeros((1, n, 1, DIM), ml_dtypes.bfloat16) for n in (queries, PREFIX + OWN, PREFIX + OWN)
    )
    q[..., 0], k[..., 0] = 2.0 ** (log2_score // 2), 2.0 ** (log2_score - log2_score // 2)
    v[0, :, 0] = np.eye(PREFIX + OWN, DIM)
    out, lse = cascade_attention(
        *(q, k[0, :PREFIX], v[0, :PREFIX], k[:, PREFIX:], v[:, PREFIX:]),
        softmax_scale=1.0,
        return_softmax_lse=True,
    )
    weights = np.asarray(out, np.float32)[..., : PREFIX + OWN]
    np.testing.assert_allclose(weights, 1 / (PREFIX + OWN), rtol=2.0**-8)
    whole = np.float64(2.0) ** log2_score + np.log(PREFIX + OWN)
    np.testing.assert_allclose(np.asarray(lse, np.float64), whole, rtol=2.0**-22)
