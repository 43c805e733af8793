"""The attention kernels of ROCm/aiter for MI300X, as it ships them, match float64.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter; nothing of it is copied here.
"""

from __future__ import annotations

import os
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

import amdattn
from tests.support.peers.aiter_fmha import HEAD_DIM, ROUNDINGS, Forward, Variant
from tests.support.peers.peer_device import SEEDS, attention, normal, seeded

DIRECTORY = os.environ.get("AMDATTN_AITER_DIR")
pytestmark = pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_AITER_DIR names no aiter checkout")

# (batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv)
SHAPES = [(1, 1, 1, 1, 1), (1, 100, 77, 1, 1), (2, 300, 300, 2, 1), (1, 77, 300, 4, 2)]
VARIANTS = list(product(ROUNDINGS, (False, True)))
LARGE = (1, 512, 1024, 2, 2)
# Probabilities and result are rounded to bfloat16. Rounding to nearest errs by 1.5e-3 rms of a
# value, 2.2e-3 for both; truncation errs by 2.8e-3 on average each time, always toward zero.
OUT_RMS = {"rtne": 2.5e-3, "rtna": 2.5e-3, "rtz": 7e-3}  # of the result's own rms
LSE_MAX = 2e-6


@pytest.fixture(scope="module")
def forward():
    """Kernels by variant, each loaded once."""
    loaded = {}

    def get(*variant):
        key = Variant(*variant)
        if key not in loaded:
            loaded[key] = Forward(Path(DIRECTORY), key)
        return loaded[key]

    return get


def make(shape):
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv = shape
    rng = np.random.default_rng(seqlen_q)
    return (
        normal(rng, batch, seqlen_q, num_heads_q, HEAD_DIM),
        normal(rng, batch, seqlen_kv, num_heads_kv, HEAD_DIM),
        normal(rng, batch, seqlen_kv, num_heads_kv, HEAD_DIM),
    )


def repeatable(run):
    """Result of the default order of waves, after checking that the others give the same bits."""
    results = []
    for seed in SEEDS:
        with seeded(seed):
            results.append(run())
    for first, second in pairwise(results):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return results[0]


def errors(out, lse, q, k, v, causal):
    """(rms error of out over its rms, greatest error of lse) of one sequence."""
    expected, expected_lse = attention(q, k, v, causal)
    seen = np.isfinite(expected_lse)
    np.testing.assert_array_equal(lse[~seen], -np.inf)
    rms = np.sqrt(((out - expected) ** 2).mean() / (expected**2).mean())
    return rms, np.abs(lse[seen] - expected_lse[seen]).max()


def check(rounding, *args):
    rms, lse_max = errors(*args)
    assert rms < OUT_RMS[rounding]
    assert lse_max < LSE_MAX


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("rounding", "causal"), VARIANTS)
def test_batch(forward, rounding, causal, shape):
    q, k, v = make(shape)
    out, lse = repeatable(lambda: forward(rounding, causal, False)(q, k, v))
    for b in range(len(q)):
        check(rounding, out[b], lse[b], q[b], k[b], v[b], causal)


@pytest.mark.parametrize(("rounding", "causal"), VARIANTS)
def test_varlen(forward, rounding, causal):
    q, k, v = (x[0] for x in make((1, 1 + 77 + 300, 1 + 100 + 300, 2, 1)))
    cu_q, cu_kv = (np.array(cu, np.int32) for cu in ([0, 1, 78, 378], [0, 1, 101, 401]))
    out, lse = repeatable(lambda: forward(rounding, causal, True)(q, k, v, cu_q, cu_kv))
    for q_range, kv_range in zip(pairwise(cu_q), pairwise(cu_kv), strict=True):
        rows, keys = slice(*q_range), slice(*kv_range)
        check(rounding, out[rows], lse[:, rows], q[rows], k[keys], v[keys], causal)


def test_large(forward):
    q, k, v = make(LARGE)
    out, lse = forward("rtz", False, False)(q, k, v)
    check("rtz", out[0], lse[0], q[0], k[0], v[0], False)


def test_amdattn_is_as_accurate(forward):
    """Ours rounds to nearest even, like their rtne; both errors are printed (pytest -s)."""
    q, k, v = make((1, 300, 300, 2, 1))
    results = {
        "amdattn": amdattn.flash_attn_func(q, k, v, return_lse=True),
        **{f"aiter {name}": forward(name, False, False)(q, k, v) for name in ROUNDINGS},
    }
    found = {
        name: errors(out[0], lse[0], q[0], k[0], v[0], False)
        for name, (out, lse) in results.items()
    }
    for name, (rms, lse_max) in found.items():
        print(f"{name:12} relative rms error of out {rms:.3e}, greatest error of lse {lse_max:.2e}")
    assert found["amdattn"][0] < 1.05 * found["aiter rtne"][0]
    assert found["amdattn"][1] < LSE_MAX
