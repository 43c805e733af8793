"""Norms and merged results in JAX: under jit and other transformations, or outside."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.jax.layer_norm import normalised
from amdattn.op.operands import refuse_number
from amdattn.ops.attention.problem import axis_order
from amdattn.ops.merge.problem import MergeProblem
from amdattn.ops.norm.problem import NormProblem


@differentiable
def rms_norm(
    x: Any,
    weight: Any,
    residual: Any = None,
    eps: float = 1e-6,
    *,
    dropout_p: float = 0.0,
    state: Any = None,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.rms_norm` in JAX; parameters and results as there.

    Parameters
    ----------
    dropout_p, state
        As in `amdattn.jax.layer_norm`, which also describes the state as a result.
    implementation_backward : {None, "xla"}
        None: gradients by kernels. "xla": in float32, by XLA.
    """
    refuse_number(residual, "residual", "fourth")
    if dropout_p or state is not None:
        x, weight, residual, state = as_arrays(x=x, weight=weight, residual=residual, state=state)
        return normalised(
            *(x, weight, None, residual, state),
            eps=scalars.number("eps", eps),
            dropout_p=scalars.number("dropout_p", dropout_p),
            rms=True,
            implementation_backward=check(implementation_backward),
        )
    return _norm(
        *as_arrays(x=x, weight=weight, residual=residual),
        eps=scalars.number("eps", eps),
        implementation_backward=check(implementation_backward),
    )


@functools.partial(jax.jit, static_argnames=("eps", "implementation_backward"))
def _norm(
    x: jax.Array,
    weight: jax.Array,
    residual: jax.Array | None,
    *,
    eps: float,
    implementation_backward: str | None,
) -> Any:
    if x.ndim == 0:
        raise ValueError("x has shape (); it must have at least 1 dimension")
    if residual is not None and residual.shape != x.shape:
        raise ValueError(f"residual has shape {residual.shape}; x has {x.shape}")
    if 0 in x.shape:  # empty axes get one element for the checks; nothing is run
        arrays = [
            None if y is None else jnp.zeros([max(1, n) for n in y.shape], y.dtype)
            for y in (x, weight, residual)
        ]
        _norm(*arrays, eps=eps, implementation_backward=None)
        return x if residual is None else (x, residual)
    problem = NormProblem(
        x.shape[:-1],
        x.shape[-1],
        as_dtype(x.dtype, "x.dtype").name,
        residual is not None,
        eps,
        weight_dtype=as_dtype(weight.dtype, "weight.dtype").name,
    )
    inputs = (x, weight) if residual is None else (x, weight, residual)
    results = apply("rms_norm", problem, "", implementation_backward, *inputs)
    return results[0] if residual is None else results


@differentiable
def merge_state(
    o: Any, lse: Any, *, layout: str = "bshd", implementation_backward: str | None = None
) -> Any:
    """`amdattn.merge_state` in JAX; parameters and results as there.

    Parameters
    ----------
    implementation_backward : {None, "xla"}
        None: differentiation raises UnsupportedProblem. "xla": gradients in float32, by XLA.
    """
    return _merge(
        *as_arrays(o=o, lse=lse),
        layout=scalars.word("layout", layout),
        implementation_backward=check(implementation_backward),
    )


@functools.partial(jax.jit, static_argnames=("layout", "implementation_backward"))
def _merge(
    o: jax.Array, lse: jax.Array, *, layout: str, implementation_backward: str | None
) -> Any:
    axis_order(layout)  # raises for an unknown layout
    if o.ndim != 5:
        raise ValueError(f"o has shape {o.shape}; it must have 5 dimensions")
    parts, batch, *rest, dim = o.shape
    heads, rows = rest if layout == "bhsd" else rest[::-1]
    if 0 in o.shape[1:]:  # as above
        _merge(
            *(jnp.zeros([max(1, n) for n in y.shape], y.dtype) for y in (o, lse)),
            layout=layout,
            implementation_backward=None,
        )
        return jnp.zeros(o.shape[1:], o.dtype), jnp.zeros((batch, heads, rows), jnp.float32)
    problem = MergeProblem(parts, batch, rows, heads, dim, as_dtype(o.dtype, "o.dtype").name)
    return apply("merge_state", problem, layout, implementation_backward, o, lse)
