"""Layer normalisation in JAX, and dropout for it and for RMS normalisation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.op.operands import refuse_number
from amdattn.ops.layer_norm.problem import LayerNormProblem


@differentiable
def layer_norm(
    x: Any,
    weight: Any,
    bias: Any = None,
    residual: Any = None,
    eps: float = 1e-5,
    *,
    dropout_p: float = 0.0,
    state: Any = None,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.layer_norm` in JAX; parameters and results as there.

    Parameters
    ----------
    state : array, int32, (4,)
        Required with dropout and refused without: a seed and an offset, two words each, the lower
        one first.
    implementation_backward : {None, "xla"}
        None: gradients by kernels. "xla": in float32, by XLA.

    Returns
    -------
    out : array, like x
    residual_out : array, like x
        Only with a residual.
    state : array, int32, (4,)
        Only with dropout: the state for the next call.
    """
    for name, array in (("bias", bias), ("residual", residual)):
        refuse_number(array, name, "fifth")
    arrays = as_arrays(x=x, weight=weight, bias=bias, residual=residual, state=state)
    return normalised(
        *arrays,
        eps=scalars.number("eps", eps),
        dropout_p=scalars.number("dropout_p", dropout_p),
        rms=False,
        implementation_backward=check(implementation_backward),
    )


@functools.partial(jax.jit, static_argnames=("eps", "dropout_p", "rms", "implementation_backward"))
def normalised(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    residual: jax.Array | None,
    state: jax.Array | None,
    *,
    eps: float,
    dropout_p: float,
    rms: bool,
    implementation_backward: str | None,
) -> Any:
    """`layer_norm`, or `rms_norm` with dropout."""
    if x.ndim == 0:
        raise ValueError("x has shape (); it must have at least 1 dimension")
    if residual is not None and residual.shape != x.shape:
        raise ValueError(f"residual has shape {residual.shape}; x has {x.shape}")
    if bias is not None and (bias.shape, bias.dtype) != (weight.shape, weight.dtype):
        raise ValueError(
            f"bias has shape {bias.shape} and dtype {bias.dtype}; weight has {weight.shape} and "
            f"{weight.dtype}"
        )
    if (state is not None) != (dropout_p > 0):
        raise ValueError(
            f"dropout_p={dropout_p} and state={'None' if state is None else 'an array'}: a state "
            "is given exactly with dropout"
        )
    given = {"x": x, "weight": weight, "bias": bias, "residual": residual, "state": state}
    if 0 in x.shape:  # empty axes get one element for the checks; nothing is run
        arrays = [
            None if y is None else jnp.zeros([max(1, n) for n in y.shape], y.dtype)
            for y in given.values()
        ]
        normalised(*arrays, eps=eps, dropout_p=dropout_p, rms=rms, implementation_backward=None)
        found = [y for y in (x, residual, state) if y is not None]
        return found[0] if len(found) == 1 else tuple(found)
    problem = LayerNormProblem(
        *(x.shape[:-1], x.shape[-1], as_dtype(x.dtype, "x.dtype").name),
        *(bias is not None, residual is not None, eps),
        weight_dtype=as_dtype(weight.dtype, "weight.dtype").name,
        dropout_p=dropout_p,
        rms=rms,
    )
    inputs = [y for y in given.values() if y is not None]
    results = apply("layer_norm", problem, "", implementation_backward, *inputs)
    return results[0] if len(results) == 1 else results
