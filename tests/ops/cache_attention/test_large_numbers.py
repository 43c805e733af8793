"""Sinks, sums and offsets of decoding at the ends of float32, where results are ordinary."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from tests.support.shipped import props

BF16 = ml_dtypes.bfloat16
HEAD_DIM = 128
DECODED, CHUNK = 16, 17  # most queries of decoding, and one more
SPLITS = (0, 1, 3)
ROUNDING = 2.0**-8  # of bfloat16


def attended(
    value: float,
    keys: int,
    score: float = 0,
    sink: float | None = None,
    queries: int = 1,
    **given: Any,
) -> tuple[float, float]:
    """An element and the lse of keys that all have this score and value."""
    q = np.zeros((1, queries, 1, HEAD_DIM), BF16)
    k, v = np.zeros((1, keys, 1, HEAD_DIM), BF16), np.full((1, keys, 1, HEAD_DIM), value, BF16)
    q[..., 0], k[..., 0] = 1, score
    if sink is not None:
        given["sinks"] = np.full(1, sink, np.float32)
    found, lse = amdattn.flash_attn_with_kvcache(
        q, k, v, softmax_scale=1.0, return_softmax_lse=True, **given
    )
    assert (found == found[0, 0, 0, 0]).all()
    return float(found[0, 0, 0, 0]), float(lse.ravel()[0])


@pytest.mark.parametrize("num_splits", SPLITS)
@pytest.mark.parametrize("queries", [DECODED, CHUNK])
@pytest.mark.parametrize(("value", "sink"), [(1e36, 88.0), (1e37, 10.0), (3e38, 0.0), (1e30, 95.0)])
def test_a_sink_is_one_of_the_scores(
    value: float, sink: float, queries: int, num_splits: int
) -> None:
    keys = 256
    found, lse = attended(value, keys, 0, sink, queries, num_splits=num_splits)
    total = keys + np.exp(sink)
    assert found == pytest.approx(float(BF16(value)) * keys / total, rel=2 * ROUNDING)
    assert lse == pytest.approx(np.log(total), rel=1e-6)


@pytest.mark.parametrize("num_splits", SPLITS)
@pytest.mark.parametrize(("value", "keys"), [(2e38, 2), (1e36, 4096), (3.3e38, 300)])
def test_sums_may_overflow_where_means_do_not(value: float, keys: int, num_splits: int) -> None:
    for sign in (1, -1):
        found, lse = attended(sign * value, keys, num_splits=num_splits)
        assert found == pytest.approx(sign * float(BF16(value)), rel=ROUNDING)
        assert lse == pytest.approx(np.log(keys), rel=1e-6)


@pytest.mark.parametrize("num_splits", SPLITS)
@pytest.mark.parametrize("exponent", [18, 19, 20])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_all_scores_have_in_common_is_not_rounded(
    sign: int, exponent: int, num_splits: int
) -> None:
    offset, keys = sign * 2.0**exponent, 100
    found, lse = attended(1, keys, offset, num_splits=num_splits)
    assert found == 1
    assert lse == np.float32(offset + np.log(keys))
    found, lse = attended(1, 1, offset, offset, num_splits=num_splits)  # and a sink has
    assert found == pytest.approx(0.5, rel=ROUNDING)
    assert lse == np.float32(offset + np.log(2))


@pytest.mark.parametrize("k_descale", [0.37, 1.9])
def test_the_same_cache_of_8_bits_by_either_way(k_descale: float) -> None:
    """By decoding, and in a chunk of queries: of scales that bfloat16 does not have."""
    rng = np.random.default_rng(31)
    dtype, keys = as_dtype(props().architecture.fp8).numpy(), 100
    k, v = (
        rng.standard_normal((1, keys, 1, HEAD_DIM)).astype(np.float32).astype(dtype) for _ in "kv"
    )
    q = (37 / k_descale * rng.standard_normal((1, CHUNK, 1, HEAD_DIM))).astype(BF16)
    given: dict[str, Any] = {"k_descale": k_descale, "v_descale": 0.123}
    chunk = amdattn.flash_attn_with_kvcache(q, k, v, **given)
    decoded = amdattn.flash_attn_with_kvcache(q[:, :DECODED], k, v, **given)
    difference = chunk[:, :DECODED].astype(np.float32) - decoded.astype(np.float32)
    assert np.abs(difference).max() <= 2 * ROUNDING * np.abs(decoded.astype(np.float32)).max()
