"""Log-sum-exp of few keys with scores near 0: three ULPs, by kernels of every number of rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn
from tests.ops.cache_attention.test_runs_far_below import KEYS, rows_of

ULP = 2.0**-23
# Sequences, queries, heads of a head of keys, columns; rows of the kernel's tile.
SHAPES: dict[tuple[int, int, int, int], int] = {
    (1, 1, 1, 128): 16,
    (4, 16, 8, 64): 64,
    (4, 16, 8, 128): 64,
    (4, 16, 8, 192): 32,
    (1, 1, 1, 256): 32,
}


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_log_sum_exp(shape: tuple[int, int, int, int], keys: int, dtype: type) -> None:
    batch, queries, heads, dim = shape
    assert rows_of(shape, 2) == SHAPES[shape]
    rng = np.random.default_rng(0)
    q = rng.standard_normal((batch, queries, heads, dim)).astype(dtype)
    v = rng.standard_normal((batch, KEYS, 1, dim)).astype(dtype)
    lengths = amdattn.asarray(np.full(batch, keys, np.int32))  # plans follow the cache
    for size in (1e-1, 1e-2, 1e-3):
        k = (size * rng.standard_normal((batch, KEYS, 1, dim)) / np.sqrt(dim)).astype(dtype)
        _, lse = amdattn.flash_attn_with_kvcache(
            *(amdattn.asarray(x) for x in (q, k, v)),
            cache_seqlens=lengths,
            num_splits=2,
            return_softmax_lse=True,
        )
        seen = k[:, :keys, 0].astype(float)
        scores = np.einsum("bihd,bjd->bhij", q.astype(float), seen) / np.sqrt(dim)
        exact = np.log(np.exp(scores).sum(-1))
        reach = np.linalg.norm(q.astype(float), axis=-1).max() * np.linalg.norm(seen, axis=-1).max()
        bound = 3 * ULP * np.maximum(1, np.abs(exact)) + 2 * ULP * reach / np.sqrt(dim)
        error = np.abs(lse.numpy().astype(float).reshape(exact.shape) - exact)
        assert (error <= bound).all(), f"{(error / bound).max():.3g} of what is allowed"
