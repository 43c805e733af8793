"""Kernels of others for attention over a cache in pages, as they come, match float64.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter, AMDATTN_VLLM_DIR a directory as
`benchmarks.peers.vllm_decode` wants it; nothing of either is copied here.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from amdattn import device_props
from amdattn.bench.kernels import Functions
from benchmarks.decode_peers import Shape, verify
from benchmarks.peers import aiter_pa, vllm_decode
from benchmarks.peers.paged import random_problem, result
from tests.support.peers.peer_device import SEEDS, seeded

AITER, VLLM = (os.environ.get(f"AMDATTN_{name}_DIR") for name in ("AITER", "VLLM"))
with_aiter = pytest.mark.skipif(not AITER, reason="AMDATTN_AITER_DIR names no aiter checkout")
with_vllm = pytest.mark.skipif(not VLLM, reason="AMDATTN_VLLM_DIR names no compiled kernels")
HEADS = ((64, 8), (32, 8), (16, 1), (20, 2))


@pytest.fixture(scope="module")
def functions():
    """Each code object is loaded once."""
    return Functions()


@with_aiter
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("queries", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_aiter(functions, dtype, queries, heads):
    """Every object that takes one to four queries a sequence, over every kind of cache."""
    every = aiter_pa.objects(Path(AITER), device_props().arch)
    shape = Shape(1, 1, *heads, queries, dtype)
    for kv_dtype in (dtype, "fp8", "int8"):
        found = [*aiter_pa.attempts(every, shape, kv_dtype)]
        assert found or queries * heads[0] // heads[1] > 16
        for attempt in found:
            print(attempt.name, verify(attempt, shape, functions))


@with_aiter
def test_aiter_repeats(functions):
    """The same bits, whatever the order of waves."""
    shape = Shape(2, 700, 16, 2)
    (attempt,) = aiter_pa.attempts(
        aiter_pa.objects(Path(AITER), device_props().arch), shape, "bfloat16"
    )
    problem = random_problem(shape, [700, 33], "bfloat16", attempt.page_size)
    results = []
    for seed in SEEDS:
        with seeded(seed):
            results.append(result(attempt, problem, functions).view(np.uint16))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@with_vllm
def test_vllm(functions):
    """Every number of splits, for every number of heads that there is."""
    every = vllm_decode.compiled(Path(VLLM))
    heads = {(one.heads_q, one.heads_kv) for one in every}
    for of, batch in product(sorted(heads), (1, 64)):
        for attempt in vllm_decode.attempts(every, Shape(batch, 1, *of), "bfloat16"):
            print(of, attempt.name, verify(attempt, Shape(batch, 1, *of), functions))
