"""All keys of waves, of turns of a wave or of parts far below others, by V large or infinite.

Kernels of every number of rows, whose sums are merged over turns, waves and parts; and chunks.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import amdattn
from tests.support.shipped import props

BF16 = ml_dtypes.bfloat16
KEYS = 512
# Sequences, queries, heads of a head of keys, columns; then rows of the kernel's tile (0: of a
# chunk), and in how many parts it is attended.
SHAPES: dict[tuple[int, int, int, int], tuple[int, tuple[int, ...]]] = {
    (1, 1, 1, 128): (16, (1, 2, 3, 0)),
    (4, 16, 8, 64): (64, (2, 0)),
    (4, 16, 8, 128): (64, (2, 0)),
    (4, 16, 8, 192): (32, (2, 0)),
    (1, 1, 1, 256): (32, (1, 2, 3, 0)),
    (1, 17, 1, 128): (0, (1, 2)),
}
RUNS = (16, 64, 400)
# By weights of less than 2^-134 of the greatest a bfloat16 is 0.
WEIGHTS = (-30.0, -92.0, -126.5, -133.5)


def rows_of(shape: tuple[int, int, int, int], splits: int) -> int:
    """Of the kernel that decodes it."""
    batch, queries, heads, dim = shape
    plan = amdattn.plan_decode(
        *(batch, queries, KEYS, heads, 1, dim), device=props(), num_splits=splits
    )
    found = re.search(r"_q(\d+)$", plan.explain().splitlines()[2])
    assert found, plan.explain()
    return int(found[1])


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("log2_weight", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_count(
    shape: tuple[int, int, int, int], log2_weight: float, comes_first: bool
) -> None:
    batch, queries, heads, dim = shape
    q = np.zeros((batch, queries, heads, dim), BF16)
    nats = log2_weight * np.log(2)
    first = np.float64(BF16(nats))
    second = np.float64(BF16(nats - first))
    q[..., :2] = 1
    for run in RUNS:
        k, v = (np.zeros((batch, KEYS, 1, dim), BF16) for _ in "kv")
        far = (np.arange(KEYS) // run % 2 == 0) == comes_first
        k[:, far, 0, :2] = first, second
        v[:, far] = 2.0**100
        v[:, far, 0, 1] = np.inf
        weight = np.exp(first + second) * far.sum() / (~far).sum()
        lengths = np.full(batch, KEYS, np.int32)
        for splits in SHAPES[shape][1]:
            out = amdattn.flash_attn_with_kvcache(
                q, k, v, cache_seqlens=lengths, softmax_scale=1.0, num_splits=splits
            )
            found = np.asarray(out, np.float64)
            np.testing.assert_allclose(found[..., 0], weight * 2.0**100, rtol=2.0**-7)
            assert (found[..., 1] == np.inf).all()


@pytest.mark.parametrize("shape", [x for x, (rows, _) in SHAPES.items() if rows], ids=str)
def test_of_kernels_of_so_many_rows(shape: tuple[int, int, int, int]) -> None:
    """Which kernels the test before this one runs."""
    rows, parts = SHAPES[shape]
    assert {rows_of(shape, splits) for splits in parts} == {rows}
