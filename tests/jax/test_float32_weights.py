"""Norms of 16 bits by float32 weights, as models keep them: in programs and their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax as aj


def normal(seed: int, *shape: int, dtype: Any) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(dtype)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_as_in_memory(dtype: Any, residual: bool) -> None:
    arrays = [normal(0, 3, 100, dtype=dtype), normal(1, 100, dtype=jnp.float32)]
    arrays += [normal(2, 3, 100, dtype=dtype)] if residual else []
    must = amdattn.rms_norm(*map(np.asarray, arrays))
    for run in (aj.rms_norm, jax.jit(aj.rms_norm)):
        for one, other in zip(jax.tree.leaves(run(*arrays)), jax.tree.leaves(must), strict=True):
            assert one.dtype == other.dtype == dtype
            np.testing.assert_array_equal(np.asarray(one), other)
    together = jnp.stack([arrays[1], -arrays[1]])
    found = jax.vmap(lambda weight: aj.rms_norm(arrays[0], weight))(together)
    np.testing.assert_array_equal(found[0], -found[1])


@pytest.mark.parametrize("by", [None, "xla"])
def test_gradients_have_the_type_of_the_weight(by: Any) -> None:
    x, weight = normal(0, 3, 100, dtype=jnp.bfloat16), normal(1, 100, dtype=jnp.float32)

    def total(x: Any, weight: Any) -> Any:
        return aj.rms_norm(x, weight, implementation_backward=by).astype(jnp.float32).sum()

    of_x, of_weight = jax.grad(total, (0, 1))(x, weight)
    assert of_x.dtype == jnp.bfloat16 and of_weight.dtype == jnp.float32
    rows = x.astype(jnp.float32)
    exact = (rows / jnp.sqrt(jnp.mean(rows * rows, -1, keepdims=True) + 1e-6)).sum(0)
    np.testing.assert_allclose(of_weight, exact, rtol=2e-2, atol=2e-2)


def test_other_types_are_refused_by_name() -> None:
    x = normal(0, 3, 100, dtype=jnp.bfloat16)
    with pytest.raises(ValueError, match="weight has dtype float16; with x of bfloat16 it must"):
        aj.rms_norm(x, normal(1, 100, dtype=jnp.float16))
