"""Operations element by element in JAX: results, vmap, gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax as aj

BF16, F32 = jnp.bfloat16, jnp.float32
WAYS: dict[str, Any] = {
    "silu": (aj.silu_and_mul, amdattn.silu_and_mul, jax.nn.silu),
    "gelu": (aj.gelu_and_mul, amdattn.gelu_and_mul, lambda x: jax.nn.gelu(x, approximate=False)),
}


def normal(seed: int, *shape: int, dtype: Any = BF16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, F32).astype(dtype)


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(
        np.asarray(one).view(np.uint16), np.asarray(other).view(np.uint16)
    )


@pytest.mark.parametrize("name", WAYS)
def test_activations(name: str) -> None:
    """The results of `amdattn`, of one array and of two, mapped and not."""
    ours, host, _ = WAYS[name]
    x = normal(0, 3, 5, 2 * 33)
    gate, up = jnp.split(x, 2, axis=-1)
    must = host(np.asarray(x))
    for found in (ours(x), jax.jit(ours)(x), ours(gate, up), jax.vmap(ours)(gate, up)):
        same(found, must)
    same(jax.vmap(ours, (0, None))(gate, up[0]), ours(gate, jnp.broadcast_to(up[0], gate.shape)))
    assert ours(x[:0]).shape == (0, 5, 33)


@pytest.mark.parametrize("by", [None, "xla"])
@pytest.mark.parametrize("name", WAYS)
def test_gradients_of_activations(name: str, by: Any) -> None:
    ours, _, plain = WAYS[name]
    gate, up, of_out = (normal(seed, 4, 50) for seed in (1, 2, 3))

    def total(gate: Any, up: Any) -> Any:
        return (ours(gate, up, implementation_backward=by).astype(F32) * of_out).sum()

    def exact(gate: Any, up: Any) -> Any:
        return (plain(gate) * up * of_out.astype(F32)).sum()

    found = jax.grad(total, (0, 1))(gate, up)
    must = jax.grad(exact, (0, 1))(gate.astype(F32), up.astype(F32))
    for one, other in zip(found, must, strict=True):
        assert one.dtype == BF16
        np.testing.assert_allclose(one.astype(F32), other, rtol=2.0**-8, atol=1e-5)


def test_refusals() -> None:
    x = normal(0, 2, 7)
    with pytest.raises(ValueError, match="its last axis must be even"):
        aj.silu_and_mul(x)
    with pytest.raises(ValueError, match="up has shape"):
        aj.silu_and_mul(x, x[:1])
    with pytest.raises(ValueError, match="approximate='no' must be none or tanh"):
        aj.gelu_and_mul(x, x, approximate="no")
