"""Products with what is added to them, and several of a launch, in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from amdattn.jax.differentiation import apply
from amdattn.ops.gemm.problem import GemmProblem


def some(*shape: int) -> Any:
    """Normally distributed, bfloat16."""
    return jnp.asarray(np.random.default_rng(shape).standard_normal(shape), jnp.bfloat16)


def hold_gradients(problem: GemmProblem, *inputs: Any) -> None:
    """Those of three inputs by kernels beside XLA's, of the sum of squares."""

    def loss(way: str | None, *given: Any) -> Any:
        (out,) = apply("gemm", problem, "", way, *given)
        return (out.astype(jnp.float32) ** 2).sum()

    ours, xla = (jax.grad(loss, (1, 2, 3))(way, *inputs) for way in (None, "xla"))
    for own, other in zip(ours, xla, strict=True):
        assert own.dtype == other.dtype and own.shape == other.shape
        found, wanted = (np.asarray(x, np.float64) for x in (own, other))
        assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize("adds", ["c", "residual"])
@pytest.mark.parametrize("activation", [None, "silu", "silu_and_mul"])
def test_gradients_of_what_is_added(adds: str, activation: str | None) -> None:
    """By kernels as by XLA, also where sums are made again."""
    if adds == "c" and activation == "silu_and_mul":
        pytest.skip("there is no c beside factors")
    beta = 0.5 if adds == "c" else 1.0
    problem = GemmProblem(24, 32, 64, adds=adds, beta=beta, activation=activation)
    inputs = some(24, 64), some(problem.b_rows, 64), some(24, 32)
    hold_gradients(problem, *inputs)


@pytest.mark.parametrize("activation", [None, "gelu", "silu_and_mul"])
def test_gradients_of_batches(activation: str | None) -> None:
    """Of each product by itself, by kernels as by XLA."""
    for m, n, k in ((24, 32, 64), (8, 48, 24)):
        problem = GemmProblem(m, n, k, batch=3, bias=True, activation=activation)
        inputs = some(3, m, k), some(3, problem.b_rows, k), some(3, problem.b_rows)
        hold_gradients(problem, *inputs)
