"""Rotary embedding, rows of tables and drawn tokens in JAX: results, vmap, gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax as aj

BF16, F32 = jnp.bfloat16, jnp.float32


def normal(seed: int, *shape: int, dtype: Any = BF16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, F32).astype(dtype)


def same(one: Any, other: Any) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(x, np.float64), np.asarray(y, np.float64))


Q, K = normal(0, 2, 5, 4, 48), normal(1, 2, 5, 2, 48)
COS, SIN = (np.asarray(normal(seed, 9, 16, dtype=F32)) for seed in (2, 3))
POSITIONS = np.array([[8, 0, 3, 3, 1], [2, 4, 6, 8, 0]], np.int32)
TURNS: tuple[dict[str, Any], ...] = (
    {},
    {"seqlen_offsets": 4, "interleaved": True},
    {"seqlen_offsets": np.array([1, 4], np.int32)},
    {"positions": POSITIONS},
)


@pytest.mark.parametrize("options", TURNS, ids=lambda options: " ".join(options) or "plain")
def test_rotary(options: dict[str, Any]) -> None:
    """The results of `amdattn`, with and without k, mapped over heads and sequences."""

    def ours(x: Any, k: Any = None, **other: Any) -> Any:
        return aj.apply_rotary_emb(x, COS, SIN, k=k, **{**options, **other})

    must = amdattn.apply_rotary_emb(np.asarray(Q), COS, SIN, k=np.asarray(K), **options)
    same(ours(Q, K), must)
    same(jax.jit(ours)(Q, K), must)
    same(ours(Q), must[0])
    same(jax.vmap(ours, 2, 2)(Q[:, :, :, None]), must[0][:, :, :, None])
    arrays = {name: x for name, x in options.items() if isinstance(x, np.ndarray)}
    mapped = jax.vmap(lambda x, k, a: ours(x[None], k[None], **{n: y[None] for n, y in a.items()}))
    found = mapped(Q, K, arrays)
    same([x[:, 0] for x in found], must)
    if "positions" in options:
        packed = amdattn.apply_rotary_emb(np.asarray(Q[0]), COS, SIN, positions=POSITIONS[0])
        same(ours(Q[0], positions=POSITIONS[0]), packed)


def test_rotary_of_normalised_heads() -> None:
    """The results of `amdattn`; gradients of weights, too, those of plain jnp."""
    of_q, of_k = normal(6, 48), normal(7, 48)

    def ours(x: Any, k: Any, of_q: Any, of_k: Any) -> Any:
        given = {"q_norm_weight": of_q, "k_norm_weight": of_k, "norm_eps": 0.1}
        return aj.apply_rotary_emb(x, COS, SIN, k=k, **given)

    def plain(x: Any, k: Any, of_q: Any, of_k: Any) -> Any:
        def normed(x: Any, weight: Any) -> Any:
            wide = x.astype(F32)
            return wide / jnp.sqrt((wide**2).mean(-1, keepdims=True) + 0.1) * weight.astype(F32)

        def turned(x: Any) -> Any:
            cos, sin, (a, b, rest) = COS[:5, None], SIN[:5, None], jnp.split(x, [16, 32], -1)
            return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

        return turned(normed(x, of_q)), turned(normed(k, of_k))

    arrays = Q, K, of_q, of_k
    names = dict(zip(("q_norm_weight", "k_norm_weight"), map(np.asarray, arrays[2:]), strict=True))
    must = amdattn.apply_rotary_emb(np.asarray(Q), COS, SIN, k=np.asarray(K), norm_eps=0.1, **names)
    same(jax.jit(ours)(*arrays), must)

    def gradients(of: Any) -> Any:
        def total(*arrays: Any) -> Any:
            return sum((y.astype(F32) * w).sum() for y, w in zip(of(*arrays), by, strict=True))

        return jax.grad(total, argnums=(0, 1, 2, 3))(*arrays)

    by = normal(4, *Q.shape), normal(5, *K.shape)
    for found, expected in zip(gradients(ours), gradients(plain), strict=True):
        np.testing.assert_allclose(
            *(np.asarray(x, np.float64) for x in (found, expected)), rtol=0.02, atol=0.1
        )


@pytest.mark.parametrize(
    ("options", "by"),
    [
        *((options, None) for options in TURNS[1:]),
        (TURNS[1], "xla"),
        *(pytest.param(options, "xla", marks=pytest.mark.slow) for options in TURNS[2:]),
    ],
    ids=str,
)
def test_gradients_of_rotary(options: dict[str, Any], by: Any) -> None:
    """Turned back: of x and k; of the tables by XLA only."""
    weights = normal(4, *Q.shape), normal(5, *K.shape)

    def total(x: Any, k: Any, cos: Any) -> Any:
        found = aj.apply_rotary_emb(x, cos, SIN, k=k, implementation_backward=by, **options)
        return sum((y.astype(F32) * w).sum() for y, w in zip(found, weights, strict=True))

    of_q, of_k, of_cos = jax.grad(total, (0, 1, 2))(Q, K, jnp.asarray(COS))
    back = amdattn.apply_rotary_emb(
        np.asarray(weights[0]), COS, -SIN, k=np.asarray(weights[1]), **options
    )
    for found, must in zip((of_q, of_k), back, strict=True):
        assert found.dtype == BF16
        np.testing.assert_allclose(found.astype(F32), must.astype(np.float32), rtol=2.0**-7)
    assert bool(of_cos.any()) == (by == "xla")


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_embedding(dtype: Any) -> None:
    """Rows, mapped over either; the gradient is a sum where an index comes again."""
    table, indices = normal(0, 11, 40, dtype=dtype), np.array([[3, 10, 3], [0, 3, 7]], np.int32)
    must = np.asarray(table)[indices]
    same(aj.embedding(table, indices), must)
    same(jax.vmap(aj.embedding, (None, 0))(table, indices), must)
    tables = jnp.stack([table, -table])
    same(jax.vmap(aj.embedding, (0, None))(tables, indices), jnp.stack([must, -must]))
    assert aj.embedding(table, indices[:0]).shape == (0, 3, 40)
    of_out = normal(1, 2, 3, 40, dtype=dtype)
    for by in (None, "xla"):

        def total(x: Any, by: Any = by) -> Any:
            found = aj.embedding(x, indices, implementation_backward=by)
            return (found.astype(F32) * of_out).sum()

        exact = np.zeros((11, 40))
        np.add.at(exact, indices, np.asarray(of_out, np.float64))
        found = jax.jit(jax.grad(total))(table)
        bound = 2.0**-8 if by is None else 2.0**-6
        assert found.dtype == dtype
        np.testing.assert_allclose(np.asarray(found, np.float64), exact, rtol=bound, atol=bound)


def test_tokens() -> None:
    """Those of `amdattn`, whose states go on; by several launches, mapped, in a scan."""
    x = 3 * normal(0, 4, 3000, dtype=F32)
    host = np.asarray(x)
    same(aj.argmax(x), host.argmax(1))
    limits = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
    same(aj.sample(x, **limits, seed=5), amdattn.sample(host, **limits, seed=5))
    own = np.random.default_rng(1).integers(0, 2**40, (4, 2), np.int64).view(np.int32)
    state = amdattn.asarray(own)
    must = [amdattn.sample(amdattn.asarray(host), **limits, state=state).numpy() for _ in range(3)]
    later, found = jax.lax.scan(
        lambda s, _: aj.sample(x, **limits, state=s)[::-1], jnp.asarray(own), length=3
    )
    same((found, later), (np.stack(must), state.numpy()))
    rows = jax.vmap(lambda x, s: aj.sample(x[None], **limits, state=s[None])[0][0])(x, own)
    same(rows, must[0])
    penalties = {"tokens": host.argmax(1)[:, None].astype(np.int32), "repetition_penalty": 100.0}
    same(aj.sample(x, 0.0, **penalties), amdattn.sample(host, 0.0, **penalties))


def test_tokens_have_no_gradient() -> None:
    """A loss may be of what was drawn."""
    x = normal(0, 3, 50, dtype=F32)

    def chosen(x: Any) -> Any:
        return jnp.take_along_axis(x, aj.sample(x, seed=2)[:, None], 1).sum()

    found = jax.grad(chosen)(x)
    same(found, np.eye(50)[np.asarray(aj.sample(x, seed=2))])


def test_refusals() -> None:
    for error, message, wrong in (
        (ValueError, "cos and sin must be", lambda: aj.apply_rotary_emb(Q, COS, SIN[:1])),
        (ValueError, r"seqlen_offsets=5 must be in 0\.\.4", lambda: turned(seqlen_offsets=5)),
        (ValueError, "must be 0 with positions", lambda: turned(POSITIONS, seqlen_offsets=1)),
        (ValueError, "3 or 4 dimensions", lambda: aj.apply_rotary_emb(Q[0, 0], COS, SIN)),
        (ValueError, "must be integers", lambda: aj.embedding(COS, COS)),
        (ValueError, "neither 0", lambda: aj.argmax(COS[0])),
        (ValueError, "seed=3 and state", lambda: aj.sample(COS, seed=3, state=POSITIONS)),
        (ValueError, "tokens has shape", lambda: aj.sample(COS, tokens=POSITIONS)),
    ):
        with pytest.raises(error, match=message):
            wrong()


def turned(positions: Any = None, **options: Any) -> Any:
    return aj.apply_rotary_emb(Q, COS, SIN, positions=positions, **options)
