"""Angles of float32 beside keys of 16 bits, as models keep them: none of them is rounded."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import asarray, cascade_attention, flash_attn_with_kvcache

BF16 = ml_dtypes.bfloat16
_KEYS, _DIM = 96, 64


def normal(seed: int, *shape: int, dtype: Any) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def angles(turned: int, dtype: Any = np.float32) -> dict[str, Any]:
    """Of every position of the cache, and of the queries behind it."""
    values = np.random.default_rng(8).uniform(0, 6, (_KEYS + 32, turned // 2))
    return {"rotary_cos": np.cos(values).astype(dtype), "rotary_sin": np.sin(values).astype(dtype)}


def turned_keys(k: Any, first: int, given: dict[str, Any], interleaved: bool) -> Any:
    """In float64, by the angles as they are given."""
    positions = first + np.arange(k.shape[1])
    cos, sin = (given[name].astype(np.float64)[positions, None] for name in given)
    wide = k.astype(np.float64)
    half = cos.shape[-1]
    one = np.arange(0, 2 * half, 2) if interleaved else np.arange(half)
    other = one + (1 if interleaved else half)
    a, b = wide[..., one], wide[..., other]
    wide[..., one], wide[..., other] = a * cos - b * sin, a * sin + b * cos
    return wide


def call(seqlen_q: int, dtype: Any, given: dict[str, Any], **options: Any) -> tuple[Any, Any, int]:
    """A call that appends 5 keys: they, the cache, and where they begin."""
    first = 40
    k, v = (normal(i, 2, 5, 2, _DIM, dtype=dtype) for i in (1, 2))
    caches = [asarray(np.zeros((2, _KEYS, 2, _DIM), dtype)) for _ in range(2)]
    q = normal(0, 2, seqlen_q, 4, _DIM, dtype=dtype)
    arrays = {name: asarray(x) for name, x in {"k": k, "v": v, **given}.items()}
    flash_attn_with_kvcache(asarray(q), *caches, **arrays, cache_seqlens=first, **options)
    return k, caches[0], first


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("seqlen_q", [1, 20])
@pytest.mark.parametrize("turned", [16, 64])
def test_keys_are_turned_in_float32_and_rounded_once(
    turned: int, seqlen_q: int, interleaved: bool, dtype: Any
) -> None:
    given = angles(turned)
    k, cache, first = call(seqlen_q, dtype, given, rotary_interleaved=interleaved)
    got = cache.numpy()[:, first : first + k.shape[1]].astype(np.float64)
    exact = turned_keys(k, first, given, interleaved)
    one_rounding = 2.0 ** (-8 if dtype == BF16 else -11)
    allowed = np.abs(exact) * one_rounding * 1.001 + 2.0**-20  # differences of products
    assert (np.abs(got - exact) <= allowed).all()
    # Keys by rounded angles would not be within this bar, even before they are rounded.
    coarse = {name: x.astype(dtype) for name, x in given.items()}
    other = turned_keys(k, first, coarse, interleaved)
    assert (np.abs(other - exact) > allowed).any()


@pytest.mark.parametrize("interleaved", [False, True])
def test_angles_that_16_bits_hold_give_the_same_bits(interleaved: bool) -> None:
    """Of either type, in steps, chunks of prompts and behind a prefix."""
    short = angles(32, BF16)
    wide = {name: x.astype(np.float32) for name, x in short.items()}
    for seqlen_q in (1, 3, 20):
        found = [
            call(seqlen_q, BF16, given, rotary_interleaved=interleaved)[1].numpy()
            for given in (short, wide)
        ]
        np.testing.assert_array_equal(*(x.view(np.uint16) for x in found))
    results = []
    for given in (short, wide):
        q, k, v = (normal(i, 2, 2, heads, _DIM, dtype=BF16) for i, heads in enumerate((4, 2, 2)))
        prefix = [normal(i, 33, 2, _DIM, dtype=BF16) for i in (3, 4)]
        caches = [normal(i, 2, 48, 2, _DIM, dtype=BF16) for i in (5, 6)]
        arrays = [asarray(x) for x in (q, *prefix, *caches, k, v)]
        results.append(
            cascade_attention(
                *arrays,
                **{name: asarray(x) for name, x in given.items()},
                cache_seqlens=asarray(np.array([3, 20], np.int32)),
                rotary_interleaved=interleaved,
            ).numpy()
        )
    np.testing.assert_array_equal(*(x.view(np.uint16) for x in results))


def test_no_finding_in_checked_mode() -> None:
    with amdattn.virtual.check():
        for seqlen_q in (1, 20):
            for interleaved in (False, True):
                call(seqlen_q, BF16, angles(32), rotary_interleaved=interleaved, causal=True)


def test_other_types_are_refused_by_name() -> None:
    for dtype, told in (
        (np.float16, "rotary_cos has dtype float16; it must be bfloat16, that of q, or float32"),
        (np.float64, "rotary_cos has dtype float64; it must be bfloat16, that of q, or float32"),
    ):
        with pytest.raises(ValueError, match=told):
            call(1, BF16, angles(32, dtype))
    given = angles(32)
    given["rotary_sin"] = given["rotary_sin"].astype(BF16)
    with pytest.raises(ValueError, match="rotary_sin has dtype bfloat16; this call needs float32"):
        call(1, BF16, given)
