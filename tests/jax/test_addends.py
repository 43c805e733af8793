"""Products with what is added to them, and several of a launch, in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn.jax as aj
from amdattn.errors import UnsupportedProblem
from amdattn.jax.differentiation import apply
from amdattn.ops.gemm.problem import GemmProblem


def some(*shape: int) -> Any:
    """Normally distributed, bfloat16."""
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape), jnp.bfloat16)


@pytest.mark.parametrize("adds", ["c", "residual"])
@pytest.mark.parametrize("activation", [None, "silu", "silu_and_mul"])
def test_gradients_of_what_is_added(adds: str, activation: str | None) -> None:
    """By kernels as by XLA, also where sums are made again."""
    if adds == "c" and activation == "silu_and_mul":
        pytest.skip("there is no c beside factors")
    beta = 0.5 if adds == "c" else 1.0
    problem = GemmProblem(24, 32, 64, adds=adds, beta=beta, activation=activation)
    inputs = some(24, 64), some(problem.b_rows, 64), some(24, 32)

    def loss(way: str | None, *given: Any) -> Any:
        (out,) = apply("gemm", problem, "", way, *given)
        return (out.astype(jnp.float32) ** 2).sum()

    ours, xla = (jax.grad(loss, (1, 2, 3))(way, *inputs) for way in (None, "xla"))
    for own, other in zip(ours, xla, strict=True):
        assert own.dtype == other.dtype and own.shape == other.shape
        found, wanted = (np.asarray(x, np.float64) for x in (own, other))
        assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()


def test_gradients_of_several_products_are_refused() -> None:
    """By name."""
    problem = GemmProblem(24, 32, 64, batch=2)
    inputs = some(2, 24, 64), some(2, 32, 64)
    (out,) = aj.call("gemm", problem, "", *inputs)
    wanted = jnp.matmul(*(inputs[0], inputs[1].swapaxes(1, 2)), preferred_element_type=jnp.float32)
    assert np.abs(np.asarray(out, np.float64) - np.asarray(wanted)).max() < 0.2
    with pytest.raises(
        UnsupportedProblem, match="batch=2, groups=0: gradients of several products"
    ):
        jax.grad(lambda a: apply("gemm", problem, "", None, a, inputs[1])[0].sum())(inputs[0])
