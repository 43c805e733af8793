"""Results in `jax.shard_map` vary along the axes that operands do, as JAX's own types have it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import amdattn.jax as aj
from amdattn.jax.manual_axes import aligned

ROWS = P(None, "x")


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:2]), ("x",))


@pytest.fixture(scope="module")
def x() -> jax.Array:
    values = np.random.default_rng(0).standard_normal((1, 32, 2, 64), np.float32)
    return jnp.asarray(values).astype(jnp.bfloat16)


def test_what_differs_is_not_taken_for_the_same(mesh: Mesh, x: jax.Array) -> None:
    """An out_spec that says that all devices have the same result is refused, as JAX does."""

    def attention(x: jax.Array) -> Any:
        return aj.flash_attn_func(x, x, x)

    with pytest.raises(ValueError, match="replicated"):
        jax.jit(jax.shard_map(attention, mesh=mesh, in_specs=ROWS, out_specs=P()))(x)
    whole = jax.jit(jax.shard_map(attention, mesh=mesh, in_specs=P(), out_specs=P()))(x)
    np.testing.assert_array_equal(whole, attention(x))


@pytest.mark.parametrize("by", [None, "xla"])
def test_gradient_of_what_all_devices_have_is_summed(
    mesh: Mesh, x: jax.Array, by: str | None
) -> None:
    sinks = jnp.array([0.5, -1.0])

    def loss(q: jax.Array, sinks: jax.Array) -> Any:
        o = aj.flash_attn_func(q, x, x, sinks=sinks, implementation_backward=by)
        return (o.astype(jnp.float32) ** 2).sum()

    def of_shards(q: jax.Array, sinks: jax.Array) -> Any:
        return jax.grad(loss, argnums=(0, 1))(q, sinks)

    specs = (ROWS, P())
    found = jax.jit(jax.shard_map(of_shards, mesh=mesh, in_specs=specs, out_specs=specs))(x, sinks)
    for one, other in zip(found, of_shards(x, sinks), strict=True):
        np.testing.assert_allclose(
            np.asarray(one, np.float32), np.asarray(other, np.float32), rtol=2e-2, atol=2e-3
        )


def test_operands_that_vary_along_other_axes(x: jax.Array) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))

    def attention(q: jax.Array, k: jax.Array) -> Any:
        both = q + k[:, : q.shape[1]]
        assert jax.typeof(aligned(q, k)[0]) == jax.typeof(both) != jax.typeof(q)
        o = aj.flash_attn_func(q, k, k)
        assert jax.typeof(o) == jax.typeof(both)
        return o

    mapped = jax.shard_map(
        attention, mesh=mesh, in_specs=(ROWS, P(None, None, "y")), out_specs=P(None, "x", "y")
    )
    q = x[:, :, :1]
    found = jax.jit(mapped)(q, x)
    expected = [aj.flash_attn_func(q, x[:, :, i : i + 1], x[:, :, i : i + 1]) for i in (0, 1)]
    np.testing.assert_array_equal(found, np.concatenate(expected, axis=2))


def test_eager(mesh: Mesh, x: jax.Array) -> None:
    """Outside of jit `shard_map` runs operation by operation."""

    def attention(x: jax.Array) -> Any:
        return aj.flash_attn_func(x, x, x)

    found = jax.shard_map(attention, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(
        jnp.concatenate([x, x])
    )
    np.testing.assert_array_equal(found, np.concatenate([attention(x)] * 2))
