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


@pytest.mark.parametrize("is_above", [False, True])
@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("log2_weight", [-100, -126, -148, -149.5, -170])
def test_parts_far_below_count_by_their_product_with_v(
    queries: int, log2_weight: float, is_above: bool
) -> None:
    """Also where the weight of the prefix, or of the keys behind it, is no float32."""
    q, k, v = (np.zeros((1, n, 1, DIM), ml_dtypes.bfloat16) for n in (queries, 2, 2))
    nats, far = log2_weight * np.log(2), int(is_above)
    q[..., :2] = 1
    k[0, far, 0, 0] = nats
    k[0, far, 0, 1] = nats - np.float64(k[0, far, 0, 0])
    given = np.float64(k[0, far, 0, 0]) + np.float64(k[0, far, 0, 1])
    v[0, far, 0] = 2.0**100
    v[0, far, 0, 1] = np.inf
    out = cascade_attention(
        *(q, k[0, :1], v[0, :1], k[:, 1:], v[:, 1:]), softmax_scale=1.0, num_splits=1
    )
    found = np.asarray(out, np.float64)[0, :, 0]
    np.testing.assert_allclose(found[:, 0], np.exp(given) * 2.0**100, rtol=2.0**-7)
    assert (found[:, 1] == np.inf).all()
