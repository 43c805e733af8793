"""The reference of attention over a cache, against attention's and against rotations by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdattn.ops.attention.reference import attention
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.reference import decode, turn

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window_size": (9, 3)}, {"softcap": 2.0}, {"causal": True, "sinks": 1}],
)
def test_a_cache_is_attention_of_its_keys(options: dict[str, Any]) -> None:
    """Paged, of several lengths, in any order: each sequence is a call of attention."""
    sinks = options.pop("sinks", 0) > 0
    q, k, v = normal(3, 4, 6, 16), normal(9, 16, 2, 16), normal(9, 16, 2, 8)
    table = RNG.permutation(9).reshape(3, 3)
    lengths, logits = np.array([48, 5, 33]), normal(6)
    problem = DecodeProblem(
        *(3, 4, 48, 6, 2, 16, 8, "float32"),
        page_size=16,
        cache_seqlens=True,
        sinks=sinks,
        **options,
    )
    inputs = {"q": q, "k_cache": k, "v_cache": v, "cache_seqlens": lengths, "block_table": table}
    found = decode(problem, {**inputs, "sinks": logits})
    for b, length in enumerate(lengths):
        keys, values = (x[table[b]].reshape(48, 2, -1)[None, :length] for x in (k, v))
        given = {**options, "sinks": logits} if sinks else options
        out, lse = attention(q[b : b + 1], keys, values, **given)
        np.testing.assert_allclose(found.out[b], out[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found.lse[b], lse[0], rtol=1e-12, atol=1e-14)
    assert (found.weighted >= np.abs(found.out) - 1e-12).all()


def test_without_keys_rows_are_zeros() -> None:
    problem = DecodeProblem(1, 3, 8, 2, 1, 8, dtype="float32", cache_seqlens=True, causal=True)
    inputs = {"q": normal(1, 3, 2, 8), "k_cache": normal(1, 8, 1, 8), "v_cache": normal(1, 8, 1, 8)}
    found = decode(problem, {**inputs, "cache_seqlens": np.array([1])})
    assert (found.out[0, :2] == 0).all() and (found.lse[0, :, :2] == -np.inf).all()
    np.testing.assert_array_equal(found.out[0, 2, 0], inputs["v_cache"][0, 0, 0])


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotations(interleaved: bool) -> None:
    """As products of complex numbers; channels behind rotary_dim stay."""
    rows, angles = normal(5, 2, 12), normal(40, 4)
    inputs = {"rotary_cos": np.cos(angles), "rotary_sin": np.sin(angles)}
    positions = np.array([3, 39, 0, 7, 7])
    found = turn(rows, positions, inputs, interleaved)
    np.testing.assert_array_equal(found[..., 8:], rows[..., 8:])
    pairs = (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    x, y = (rows[..., one] for one in pairs)
    product = (x + 1j * y) * np.exp(1j * angles[positions].astype(np.float64))[:, None]
    np.testing.assert_allclose(found[..., pairs[0]], product.real, atol=1e-6)
    np.testing.assert_allclose(found[..., pairs[1]], product.imag, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_appended_is_turned_by_its_place(causal: bool) -> None:
    angles = normal(20, 8)
    problem = DecodeProblem(
        *(2, 2, 16, 1, 1, 16, 16, "float32"),
        causal=causal,
        seqlen_new=2,
        num_pages=3,
        rotary_dim=16,
        rotary_positions=20,
        cache_seqlens=True,
        cache_batch_idx=True,
        cache_leftpad=True,
    )
    inputs = {
        "q": normal(2, 2, 1, 16),
        "k_cache": normal(3, 16, 1, 16),
        "v_cache": normal(3, 16, 1, 16),
        "k": normal(2, 2, 1, 16),
        "v": normal(2, 2, 1, 16),
        "rotary_cos": np.cos(angles),
        "rotary_sin": np.sin(angles),
        "cache_seqlens": np.array([14, 0]),
        "cache_batch_idx": np.array([2, 0]),
        "cache_leftpad": np.array([5, 0]),
    }
    found = decode(problem, inputs)
    k, v = inputs["k_cache"].astype(np.float64), inputs["v_cache"].astype(np.float64)
    for b, (row, before) in enumerate(((2, 14), (0, 0))):
        at = slice(before, before + 2)
        k[row, at] = turn(inputs["k"][b], before + np.arange(2), inputs, True)
        v[row, at] = inputs["v"][b]
        places = before + np.arange(2) if causal else np.full(2, before)
        q = turn(inputs["q"][b], places, inputs, True)[None]
        keys = slice(inputs["cache_leftpad"][b], before + 2)
        out, lse = attention(q, k[row : row + 1, keys], v[row : row + 1, keys], causal=causal)
        np.testing.assert_allclose(found.out[b], out[0], atol=1e-6)
        np.testing.assert_allclose(found.lse[b], lse[0], atol=1e-6)
    np.testing.assert_allclose(found.k_cache, k)
    np.testing.assert_array_equal(found.v_cache, v)
    where = np.zeros(k.shape, np.bool_)
    where[2, 14:], where[0, :2] = True, True
    np.testing.assert_array_equal(found.turned, where)
