"""Products, norms and merged results in JAX: under jit and its transformations, or outside."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.ops.attention.problem import axis_order
from amdattn.ops.gemm.problem import ALIGN_BYTES, FACTORS, GemmProblem
from amdattn.ops.merge.problem import MergeProblem
from amdattn.ops.norm.problem import NormProblem

_FEW = 8  # columns of zeros that stand for none


@differentiable
def gemm_nt(
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    alpha: float = 1.0,
    activation: str | None = None,
    out_dtype: Any = None,
    split_k: int = 0,
    deterministic: bool = True,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.gemm_nt` in JAX: ``activation(alpha * a @ b^T + bias)``; parameters as there.

    Parameters
    ----------
    a : array, bfloat16 or float16, (..., m, k)
    b : array, like a, (n, k)
    implementation_backward : {None, "xla"}
        None: gradients of a and b are products by kernels, of copies; the activation's derivative
        and the gradient of the bias are XLA's, in float32. "xla": all in float32, by XLA.
    """
    return _gemm(
        *as_arrays(a=a, b=b, bias=bias),
        alpha=scalars.number("alpha", alpha),
        activation=None if activation is None else scalars.word("activation", activation),
        out_dtype=None if out_dtype is None else as_dtype(out_dtype, "out_dtype").name,
        split_k=scalars.integer("split_k", split_k),
        deterministic=scalars.boolean("deterministic", deterministic),
        implementation_backward=check(implementation_backward),
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        *("alpha", "activation", "out_dtype", "split_k", "deterministic"),
        "implementation_backward",
    ),
)
def _gemm(
    a: jax.Array,
    b: jax.Array,
    bias: jax.Array | None,
    *,
    alpha: float,
    activation: str | None,
    out_dtype: str | None,
    split_k: int,
    deterministic: bool,
    implementation_backward: str | None,
) -> Any:
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"a and b have shapes {a.shape} and {b.shape}; they must be (..., m, k) and (n, k)"
        )
    rows, n, k = math.prod(a.shape[:-1]), b.shape[0], a.shape[-1]
    if activation is not None and activation.endswith(FACTORS):
        if n % 2:
            raise ValueError(
                f"b has shape {b.shape}; with activation={activation!r} it must be (2 n, k)"
            )
        n //= 2
    dtype = as_dtype(out_dtype or a.dtype, "out_dtype")
    shape = (*a.shape[:-1], n)
    if 0 in (rows, b.shape[0], k):  # what there is not is one row, or a few zeros
        a = jnp.zeros((max(1, rows), k or _FEW), a.dtype) if 0 in (rows, k) else a.reshape(rows, k)
        more = b.shape[0] == 0
        b = jnp.zeros((b.shape[0] or 2, k or _FEW), b.dtype) if more or k == 0 else b
        if bias is not None and more:
            bias = jnp.zeros(2, bias.dtype)
        found = _gemm(
            *(a, b, bias),
            alpha=alpha,
            activation=activation,
            out_dtype=out_dtype,
            split_k=split_k,
            deterministic=deterministic,
            implementation_backward=implementation_backward,
        )
        return found[:rows, :n].reshape(shape)
    problem = GemmProblem(
        m=rows,
        n=n,
        k=k,
        dtype=as_dtype(a.dtype, "a.dtype").name,
        out_dtype=dtype.name,
        bias=bias is not None,
        alpha=alpha,
        activation=activation,
        split_k=split_k,
        aligned=k * a.dtype.itemsize % ALIGN_BYTES == 0,
        deterministic=deterministic,
    )
    inputs = (a.reshape(rows, k), b) if bias is None else (a.reshape(rows, k), b, bias)
    (out,) = apply("gemm", problem, "", implementation_backward, *inputs)
    return out.reshape(shape)


@differentiable
def rms_norm(
    x: Any,
    weight: Any,
    residual: Any = None,
    eps: float = 1e-6,
    *,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.rms_norm` in JAX; parameters and results as there.

    Parameters
    ----------
    implementation_backward : {None, "xla"}
        Gradients: None: by kernels; "xla": in float32, by XLA.
    """
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
    if 0 in x.shape:  # one element where there is none, for the checks; nothing is run
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
        None: differentiating raises UnsupportedProblem; "xla": in float32, by XLA.
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
    axis_order(layout)  # refuses what is none
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
