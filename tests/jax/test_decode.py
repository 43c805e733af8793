"""Attention over a cache in JAX: as the function on arrays in memory; in programs, over meshes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import amdattn
import amdattn.jax as aj
from amdattn.errors import UnsupportedProblem

BF16 = ml_dtypes.bfloat16
BATCH, HEADS, HEADS_KV, DIM, ROWS, PAGE = 2, 8, 4, 64, 96, 16
LENGTHS = np.array([70, 33], np.int32)


def normal(seed: int, *shape: int, dtype: Any = BF16) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


Q = normal(0, BATCH, 1, HEADS, DIM)
K, V = normal(1, BATCH, 1, HEADS_KV, DIM), normal(2, BATCH, 1, HEADS_KV, DIM)
ROW_CACHES = [normal(i, BATCH, ROWS, HEADS_KV, DIM) for i in (3, 4)]
PAGES = BATCH * ROWS // PAGE
PAGED_CACHES = [normal(i, PAGES, PAGE, HEADS_KV, DIM) for i in (5, 6)]
TABLE = np.random.default_rng(7).permutation(PAGES).reshape(BATCH, -1).astype(np.int32)
ANGLES = np.random.default_rng(8).uniform(0, 6, (ROWS + 8, 16))
COS, SIN = np.cos(ANGLES).astype(BF16), np.sin(ANGLES).astype(BF16)


def same(found: Any, expected: Any) -> None:
    trees = (map(np.asarray, jax.tree.leaves(tree)) for tree in (found, expected))
    for one, other in zip(*trees, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(one, other)


def in_memory(caches: list[Any], *arrays: Any, q: Any = Q, **options: Any) -> tuple[Any, ...]:
    """What the function on arrays in memory gives, the caches last if it writes them."""
    held = [amdattn.asarray(cache) for cache in caches]
    given = [amdattn.asarray(x) for x in arrays]
    options = {
        name: amdattn.asarray(x) if isinstance(x, np.ndarray) else x for name, x in options.items()
    }
    found = amdattn.flash_attn_with_kvcache(amdattn.asarray(q), *held, *given, **options)
    results = found if isinstance(found, tuple) else (found,)
    if arrays:
        results = (*results, *held)
    return tuple(result.numpy() for result in results)


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("appends", [False, True])
def test_as_in_memory(is_paged: bool, appends: bool) -> None:
    caches = PAGED_CACHES if is_paged else ROW_CACHES
    arrays = (K, V, COS, SIN) if appends else ()
    options: dict[str, Any] = {"cache_seqlens": LENGTHS, "causal": True}
    options |= {"return_softmax_lse": True, "sinks": normal(9, HEADS, dtype=np.float32)}
    if is_paged:
        options["block_table"] = TABLE
    expected = in_memory(caches, *arrays, **options)
    before = [cache.copy() for cache in caches]
    same(aj.flash_attn_with_kvcache(Q, *caches, *arrays, **options), expected)
    same(caches, before)
    traced = {
        name: options.pop(name) for name in ("cache_seqlens", "block_table") if name in options
    }
    step = jax.jit(
        lambda q, caches, arrays, traced: aj.flash_attn_with_kvcache(
            q, *caches, *arrays, **traced, **options
        ),
        donate_argnums=1 if appends else (),
    )
    given = [jnp.array(cache) for cache in caches]
    same(step(Q, given, arrays, traced), expected)
    assert all(cache.is_deleted() is appends for cache in given)


@pytest.mark.parametrize("is_paged", [False, True])
def test_chunks_of_a_prompt(is_paged: bool) -> None:
    """More queries than kernels of few take; those of a batch as one of longer batches."""
    caches = PAGED_CACHES if is_paged else ROW_CACHES
    q = normal(15, BATCH, 40, HEADS, DIM)
    new = normal(16, BATCH, 40, HEADS_KV, DIM), normal(17, BATCH, 40, HEADS_KV, DIM)
    cos, sin = (np.concatenate([x, x]) for x in (COS, SIN))
    options: dict[str, Any] = {"cache_seqlens": LENGTHS - 20, "causal": True, "max_seqlen_k": 90}
    options |= {"return_softmax_lse": True, "num_splits": 1}
    if is_paged:
        options["block_table"] = TABLE
    expected = in_memory(caches, *new, cos, sin, q=q, **options)
    step = jax.jit(functools.partial(aj.flash_attn_with_kvcache, **options))
    same(step(q, *caches, *new, cos, sin), expected)
    found = jax.vmap(lambda q: step(q, *caches, *new, cos, sin))(np.stack([q, -q]))
    each = [in_memory(caches, *new, cos, sin, q=x, **options) for x in (q, -q)]
    same(found, jax.tree.map(lambda *xs: np.stack(xs), *each))


@pytest.mark.parametrize("interleaved", [False, True])
def test_angles_of_float32(interleaved: bool) -> None:
    """As models keep them: not rounded, in a step and in a chunk."""
    cos, sin = (of(np.concatenate([ANGLES, ANGLES])).astype(np.float32) for of in (np.cos, np.sin))
    options: dict[str, Any] = {"cache_seqlens": LENGTHS - 20, "causal": True, "num_splits": 1}
    options |= {"rotary_interleaved": interleaved}
    for rows in (1, 20):
        q = normal(18, BATCH, rows, HEADS, DIM)
        new = normal(19, BATCH, rows, HEADS_KV, DIM), normal(20, BATCH, rows, HEADS_KV, DIM)
        expected = in_memory(ROW_CACHES, *new, cos, sin, q=q, **options)
        step = jax.jit(functools.partial(aj.flash_attn_with_kvcache, **options))
        same(step(q, *ROW_CACHES, *new, cos, sin), expected)
        rounded = in_memory(ROW_CACHES, *new, cos.astype(BF16), sin.astype(BF16), q=q, **options)
        assert (rounded[1] != expected[1]).any()  # the keys that were appended


def test_one_length_of_all_and_no_lengths() -> None:
    same(
        aj.flash_attn_with_kvcache(Q, *ROW_CACHES, cache_seqlens=50),
        in_memory(ROW_CACHES, cache_seqlens=np.array([50, 50], np.int32))[0],
    )
    same(aj.flash_attn_with_kvcache(Q, *ROW_CACHES), in_memory(ROW_CACHES)[0])
    same(
        aj.flash_attn_with_kvcache(Q, *ROW_CACHES, cache_seqlens=np.array([50, 50], np.int64)),
        aj.flash_attn_with_kvcache(Q, *ROW_CACHES, cache_seqlens=50),
    )


def test_other_sequences_and_paddings() -> None:
    options = {"cache_batch_idx": np.array([1, 0], np.int32), "cache_seqlens": LENGTHS}
    options |= {"cache_leftpad": np.array([3, 20], np.int32)}
    expected = in_memory(ROW_CACHES, K, V, **options)
    same(aj.flash_attn_with_kvcache(Q, *ROW_CACHES, K, V, **options), expected)


@pytest.mark.parametrize("is_by_head", [False, True])
def test_caches_of_8_bit_floats(is_by_head: bool) -> None:
    caches = [
        normal(i, BATCH, ROWS, HEADS_KV, DIM, dtype=ml_dtypes.float8_e4m3fnuz) for i in (3, 4)
    ]
    scale: Any = np.exp2(np.arange(-2, 2)).astype(np.float32) if is_by_head else 0.5
    options = {"cache_seqlens": LENGTHS, "k_descale": scale, "v_descale": scale}
    expected = in_memory(caches, K, V, **options)
    same(aj.flash_attn_with_kvcache(Q, *caches, K, V, **options), expected)


def test_generation_as_one_program() -> None:
    """Steps of a scan that carries caches and lengths, as steps one after the other."""
    rows = [normal(seed, 3, BATCH, 1, HEADS_KV, DIM) for seed in (10, 11)]

    def step(state: Any, new: Any) -> Any:
        k_cache, v_cache, lengths = state
        out, k_cache, v_cache = aj.flash_attn_with_kvcache(
            Q, k_cache, v_cache, *new, COS, SIN, lengths, block_table=TABLE, causal=True
        )
        return (k_cache, v_cache, lengths + 1), out

    state = (*map(jnp.array, PAGED_CACHES), jnp.array(LENGTHS))
    (*caches, lengths), outs = jax.jit(functools.partial(jax.lax.scan, step))(state, tuple(rows))
    held, expected = PAGED_CACHES, []
    for i in range(3):
        new = (each[i] for each in rows)
        out, *held = in_memory(
            held, *new, COS, SIN, cache_seqlens=LENGTHS + i, block_table=TABLE, causal=True
        )
        expected.append(out)
    same(outs, np.stack(expected))
    same(caches, held)
    same(lengths, LENGTHS + 3)


def test_vmap() -> None:
    """Rows of a batch become longer batches; of shared pages everyone has an own copy."""
    queries = normal(12, 3, *Q.shape)
    caches = [np.stack([cache, cache[::-1], -cache]) for cache in ROW_CACHES]
    lengths = np.stack([LENGTHS, LENGTHS - 5, LENGTHS + 1])
    one = functools.partial(aj.flash_attn_with_kvcache, num_splits=1)
    for new in ((), (K, V)):
        found = jax.vmap(lambda q, k, v, n, new=new: one(q, k, v, *new, cache_seqlens=n))(
            queries, *caches, lengths
        )
        each = [
            one(*(x[i] for x in (queries, *caches)), *new, cache_seqlens=lengths[i])
            for i in range(3)
        ]
        same(found, jax.tree.map(lambda *xs: np.stack(xs), *each))
    rows = normal(13, 3, *K.shape), normal(14, 3, *V.shape)
    paged = functools.partial(one, block_table=TABLE, cache_seqlens=LENGTHS)
    found = jax.vmap(lambda k, v: paged(Q, *PAGED_CACHES, k, v))(*rows)
    each = [paged(Q, *PAGED_CACHES, k, v) for k, v in zip(*rows, strict=True)]
    same(found, jax.tree.map(lambda *xs: np.stack(xs), *each))


def test_the_first_sequences_of_a_larger_cache() -> None:
    """Are those of the whole cache, also where only the other operands are mapped."""
    larger = [np.concatenate([cache, cache + 1]) for cache in map(np.asarray, ROW_CACHES)]
    one = functools.partial(aj.flash_attn_with_kvcache, num_splits=1, cache_seqlens=LENGTHS)
    same(one(Q, *larger), one(Q, *ROW_CACHES))
    found = jax.vmap(lambda q: one(q, *larger))(np.stack([Q, -Q]))
    same(found, np.stack([one(q, *larger) for q in (Q, -Q)]))


@pytest.mark.skipif(len(jax.devices("cpu")) < 8, reason="JAX has looked for devices before")
@pytest.mark.parametrize("is_paged", [False, True])
def test_meshes(is_paged: bool) -> None:
    """KV heads are cut, and the batch where each sequence has rows of its own."""
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("dp", "tp"))

    def put(x: Any, *spec: Any) -> Any:
        return jax.device_put(x, NamedSharding(mesh, P(*spec)))

    caches = PAGED_CACHES if is_paged else ROW_CACHES
    options = {"cache_seqlens": LENGTHS, "num_splits": 1, "causal": True}
    if is_paged:
        options["block_table"] = TABLE
    expected = in_memory(caches, K, V, **options)
    of_cache = (None if is_paged else "dp", None, "tp")
    step = jax.jit(functools.partial(aj.flash_attn_with_kvcache, **options))
    given = [put(x, "dp", None, "tp") for x in (Q, K, V)]
    held = [put(cache, *of_cache) for cache in caches]
    found = step(given[0], *held, *given[1:])
    same(found, expected)
    assert found[0].sharding.spec[2] == "tp" and found[1].sharding.spec[2] == "tp"
    if not is_paged:
        assert found[0].sharding.spec[0] == "dp" and found[1].sharding.spec[0] == "dp"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"cache_seqlens": np.array([70, 97])}, ValueError, r"cache_seqlens\[1\]=97 must be in"),
        ({"cache_seqlens": np.array([0.5, 1])}, ValueError, "cache_seqlens has .* float64"),
        ({"cache_seqlens": np.array([1])}, ValueError, r"cache_seqlens has shape \(1,\)"),
        ({"k": K}, ValueError, "k was given, but v=None"),
        ({"k": K, "v": V}, ValueError, "cache_seqlens=None says that the cache is full"),
        ({"rotary_cos": COS, "rotary_sin": SIN}, ValueError, "rotary_cos was given without k"),
        (
            {"k": K, "v": V, "rotary_cos": COS, "rotary_sin": SIN.astype(np.float32)}
            | {"cache_seqlens": LENGTHS},
            *(ValueError, "rotary_sin has .* dtype float32; .* bfloat16"),
        ),
        (
            {"k": K, "v": V, "rotary_cos": COS.astype(np.float16), "rotary_sin": SIN}
            | {"cache_seqlens": LENGTHS},
            *(ValueError, "rotary_cos has dtype float16; it must be bfloat16, that of q, or float"),
        ),
        ({"alibi_slopes": 1}, UnsupportedProblem, "alibi_slopes"),
        ({"kv_layout": "HND"}, ValueError, "kv_layout='HND' must be one of"),
        ({"k_descale": 2.0}, ValueError, "k_descale was given, but the cache has elements"),
        ({"k_cache": np.zeros((2, 96, 4, 64), np.uint8)}, TypeError, "k_cache has dtype uint8"),
        ({"causal": np.zeros(3)}, TypeError, "causal"),
    ],
)
def test_refusals(given: dict[str, Any], error: type[Exception], said: str) -> None:
    arrays = {"q": Q, "k_cache": ROW_CACHES[0], "v_cache": ROW_CACHES[1]}
    with pytest.raises(error, match=said):
        aj.flash_attn_with_kvcache(**{**arrays, **given})


def test_pages_and_gradients_are_refused() -> None:
    wrong = TABLE.copy()
    wrong[1, 0] = PAGES
    with pytest.raises(ValueError, match=rf"block_table\[1, 0\]={PAGES} must be in"):
        aj.flash_attn_with_kvcache(Q, *PAGED_CACHES, cache_seqlens=LENGTHS, block_table=wrong)
    with pytest.raises(UnsupportedProblem, match="decode cannot be differentiated"):
        jax.grad(lambda q: aj.flash_attn_with_kvcache(q, *ROW_CACHES).sum().astype(float))(
            jnp.array(Q)
        )
