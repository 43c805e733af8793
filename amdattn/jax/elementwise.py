"""Elementwise operations in JAX: under jit and other transformations, or outside."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.dtypes import as_dtype
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.ops.gated.gated import activation_of
from amdattn.ops.gated.problem import GatedProblem


@differentiable
def silu_and_mul(x: Any, up: Any = None, *, implementation_backward: str | None = None) -> Any:
    """`amdattn.silu_and_mul` in JAX; parameters and result as there.

    Parameters
    ----------
    implementation_backward : {None, "xla"}
        Gradients are XLA's in float32 with either.
    """
    return _gated(
        *as_arrays(x=x, up=up),
        activation="silu",
        implementation_backward=check(implementation_backward),
    )


@differentiable
def gelu_and_mul(
    x: Any,
    up: Any = None,
    *,
    approximate: str = "none",
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.gelu_and_mul` in JAX; parameters and result as there.

    Parameters
    ----------
    implementation_backward : {None, "xla"}
        Gradients are XLA's in float32 with either.
    """
    return _gated(
        *as_arrays(x=x, up=up),
        activation=activation_of(approximate),
        implementation_backward=check(implementation_backward),
    )


@functools.partial(jax.jit, static_argnames=("activation", "implementation_backward"))
def _gated(
    x: jax.Array, up: jax.Array | None, *, activation: str, implementation_backward: str | None
) -> Any:
    if x.ndim == 0:
        raise ValueError("x has shape (); it must have at least 1 dimension")
    if up is None:
        if x.shape[-1] % 2:
            raise ValueError(
                f"x has shape {x.shape}; without up its last axis must be even: the gate and up"
            )
        gate, up = jnp.split(x, 2, axis=-1)
    elif up.shape != x.shape:
        raise ValueError(f"up has shape {up.shape}; x has {x.shape}")
    else:
        gate = x
    if 0 in gate.shape:
        return gate
    dtype = as_dtype(gate.dtype, "x.dtype").name
    problem = GatedProblem(gate.shape[:-1], gate.shape[-1], dtype, activation)
    (out,) = apply("gated_activation", problem, "", implementation_backward, gate, up)
    return out
