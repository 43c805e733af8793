"""Calls whose masks and parts end at the edges of tiles and blocks: fixed, beside random ones."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import amdattn
from tests.support.attention.masked import attention


def arrays(rows, keys):
    """Keys that tell: one row more or less of any block shows."""
    rng = np.random.default_rng([rows, keys])
    q, k, v = (
        rng.standard_normal((1, n, 1, 128), np.float32).astype(ml_dtypes.bfloat16)
        for n in (rows, keys, keys)
    )
    return q, k, v


def check(q, k, v, num_splits, **masking):
    out, lse = amdattn.flash_attn_func(q, k, v, return_lse=True, num_splits=num_splits, **masking)
    expected, expected_lse = attention(q, k, v, **masking)
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=0.015, rtol=0.01)
    np.testing.assert_allclose(lse, expected_lse, atol=2e-3, rtol=1e-5)


@pytest.mark.parametrize("top_left", [False, True])
@pytest.mark.parametrize("keys", [31, 32, 33, 64, 127, 129])
def test_the_diagonal(keys, top_left):
    """Its ends in the first, in the last and in no row of a block, and beside it."""
    for rows in (1, 31, 32, 33, 64, 65):
        q, k, v = arrays(rows, keys)
        for window in ((-1, -1), (0, -1), (32, -1)):
            check(q, k, v, 1, causal=True, window_size=window, top_left=top_left)


@pytest.mark.parametrize("side", [0, 1, 31, 32, 33])
def test_sides_of_a_window(side):
    q, k, v = arrays(65, 97)
    for window in ((side, -1), (-1, side), (side, side)):
        check(q, k, v, 1, window_size=window)


@pytest.mark.parametrize("num_splits", [2, 3, 5, 16])
def test_parts(num_splits):
    """Blocks that divide evenly, one less and one more; fewer blocks than parts."""
    blocks = {num_splits - 1, num_splits, num_splits + 1, 2 * num_splits}
    for count, odd, causal in itertools.product(sorted(blocks), (-1, 0, 1), (False, True)):
        check(*arrays(33, 32 * count + odd), num_splits, causal=causal)


@pytest.mark.parametrize("rows", [383, 384, 385])
def test_tiles_of_queries(rows):
    for keys, causal in ((rows, True), (rows + 1, True), (65, False)):
        check(*arrays(rows, keys), 2, causal=causal)
