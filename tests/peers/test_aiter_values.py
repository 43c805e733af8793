"""Ours against the attention kernels of ROCm/aiter, value by value.

For each rounding mode, both kernels get the same inputs. Where an infinity or NaN comes out must
agree, and so must the NaN's bits; finite results differ by at most one bfloat16 ulp of the terms
they are the sum of (rtz: three); and the errors against float64 are compared, and printed with
pytest -s. AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pytest

import amdattn
from tests.support.peers.aiter_fmha import ROUNDINGS, Forward, Variant
from tests.support.peers.value_inputs import (
    SPECIALS,
    exact,
    hidden,
    make,
    may_leak,
    only_finite,
    ulp,
    ulp_of_terms,
)

DIRECTORY = os.environ.get("AMDATTN_AITER_DIR")
pytestmark = pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_AITER_DIR names no aiter checkout")

KINDS = ("normal", "log-normal", "large", "one-hot", "large values", "small values")
# (batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv)
GROUPED = (1, 300, 520, 4, 2)
SINGLE = (2, 200, 200, 1, 1)
MASKED_ROWS = (1, 450, 300, 1, 1)  # the first 150 see no key when causal
SPECIAL = (1, 100, 200, 2, 1)
# Truncation errs by twice as much as rounding, p and out each; ours rounds p to nearest, so that it
# has not the bias that theirs has.
ULPS = {"rtne": 1, "rtna": 1, "rtz": 3}
# Of their error: root mean square, and greatest. A row's greatest probability is exactly 1 with
# them, whose reference is the maximum; with ours it is rounded like the others. That counts most
# where it counts most: few keys, one that dominates. With RTZ the bias of theirs is more.
RMS = {"rtne": 1.18, "rtna": 1.18, "rtz": 0.9}
GREATEST = {"rtne": 2.0, "rtna": 2.0, "rtz": 1.15}
LSE_MAX = 2e-6  # of the largest lse, at least of 1
SPLITS = pytest.mark.parametrize("num_splits", [1, 3])


@functools.cache
def forward(rounding, causal):
    return Forward(Path(DIRECTORY), Variant(rounding, causal, varlen=False))


def both(rounding, causal, num_splits, q, k, v):
    """(out, lse) of ours and of theirs."""
    options = {"causal": causal, "round_mode": rounding, "num_splits": num_splits}
    ours = amdattn.flash_attn_func(q, k, v, **options, return_lse=True)
    return ours, forward(rounding, causal)(q, k, v)


def kinds(x):
    """0 finite, 1 and -1 infinite, the bit pattern of a NaN."""
    wide = x.astype(np.float32)
    signs = np.where(np.isinf(wide), np.sign(wide), 0).astype(np.int32)
    return np.where(np.isnan(wide), x.view(np.uint16), signs)


def assert_same(rounding, ours, theirs, unit, where=True):
    """Infinities and NaNs alike, finite values within units; the differences in units."""
    np.testing.assert_array_equal(
        np.where(where, kinds(ours), 0), np.where(where, kinds(theirs), 0)
    )
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    difference = np.abs(a[finite] - b[finite]) / np.maximum(unit, ulp(b))[finite]
    assert difference.max(initial=0) <= ULPS[rounding]
    return difference


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(
    ("shape", "num_splits"), [(GROUPED, 1), (GROUPED, 3), (SINGLE, 1)], ids=str
)
def test_values(rounding, causal, kind, shape, num_splits):
    check_values(rounding, causal, num_splits, kind, *make(kind, *shape))


@SPLITS
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_rows_that_see_no_key(rounding, num_splits):
    q, k, v = make("normal", *MASKED_ROWS)
    (out, lse), (their_out, their_lse) = check_values(rounding, True, num_splits, "normal", q, k, v)
    empty = slice(0, q.shape[1] - k.shape[1])
    for o, log in ((out, lse), (their_out, their_lse)):
        assert not o[:, empty].view(np.uint16).any()  # no -0 either
        np.testing.assert_array_equal(log[..., empty], -np.inf)


def check_values(rounding, causal, num_splits, kind, q, k, v):
    results = both(rounding, causal, num_splits, q, k, v)
    (out, lse), (their_out, their_lse) = results
    difference = assert_same(rounding, out, their_out, ulp_of_terms(q, k, v, causal))
    expected, expected_lse = exact(q, k, v, causal)
    errors = [np.abs(x.astype(np.float64) - expected) for x in (out, their_out)]
    rms, greatest = ([f(e) for e in errors] for f in (lambda e: np.sqrt((e**2).mean()), np.max))
    print(
        f"{rounding} {kind}{' causal' * causal} {q.shape[1]}x{k.shape[1]}, {num_splits} parts: "
        f"rms error {rms[0]:.3e}, {rms[0] / rms[1]:.3f} of aiter's; "
        f"greatest {greatest[0]:.3e}, {greatest[0] / greatest[1]:.3f} of aiter's; "
        f"{(difference > 0).mean():.2%} of values differ, by {difference.max():.2f} ulp at most"
    )
    assert rms[0] <= RMS[rounding] * rms[1]
    assert greatest[0] <= GREATEST[rounding] * greatest[1]
    seen = np.isfinite(expected_lse)
    bound = LSE_MAX * max(1, np.abs(expected_lse[seen]).max())
    for log in (lse, their_lse):
        np.testing.assert_array_equal(log[~seen], -np.inf)
        assert np.abs(log[seen] - expected_lse[seen]).max() <= bound
    return results


@SPLITS
@pytest.mark.parametrize("special", SPECIALS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_specials(rounding, causal, special, num_splits):
    q, k, v = make("normal", *SPECIAL)
    SPECIALS[special](q, k, v)
    (out, lse), (their_out, their_lse) = both(rounding, causal, num_splits, q, k, v)
    leaks = may_leak(v, hidden(q.shape[1], k.shape[1], causal), q.shape[2])
    # Sums of products overflow with them where ours has smaller probabilities.
    leaks |= np.isinf(their_out) & np.isfinite(exact(q, k, v, causal)[0])
    unit = ulp_of_terms(q, k, v, causal)
    assert_same(rounding, out, their_out, unit, where=~leaks)
    clean = leaks & np.isfinite(out.astype(np.float32))
    error = np.abs(out.astype(np.float64) - exact(q, k, only_finite(v), causal)[0]) / unit
    assert error[clean].max(initial=0) <= ULPS[rounding]
    # A row with NaN or +inf among its scores: theirs says -inf, which is the lse of no key at all.
    lost = np.isnan(out).all(axis=-1).transpose(0, 2, 1) & (their_lse == -np.inf)
    assert np.isnan(lse[lost]).all()
    seen = np.isfinite(their_lse)
    np.testing.assert_array_equal(np.isfinite(lse), seen)
    np.testing.assert_array_equal(lse[~seen & ~lost], their_lse[~seen & ~lost])
    bound = 2 * LSE_MAX * max(1, np.abs(their_lse[seen]).max(initial=0))
    assert np.abs(lse[seen] - their_lse[seen]).max(initial=0) <= bound
