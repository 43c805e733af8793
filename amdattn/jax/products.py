"""Products in JAX: under jit and other transformations, or outside."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from amdattn import scalars
from amdattn.dtypes import as_dtype
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.ops.gemm.problem import ALIGN_BYTES, FACTORS, LAYOUTS, GemmProblem, by_k

_FEW = 8  # elements of k, all zero, that stand for an empty k
_STATIC = (
    *("layout", "alpha", "activation", "out_dtype", "split_k", "deterministic", "beta"),
    "implementation_backward",
)


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
        None: kernels compute the gradients of a and b as products; XLA computes the derivative of
        the activation and the gradient of the bias in float32. "xla": XLA computes everything in
        float32.
    """
    return _checked(
        *("nt", a, b, bias, activation, alpha, out_dtype, split_k, deterministic),
        *(None, 1.0, None, implementation_backward),
    )


@differentiable
def gemm(
    a: Any,
    b: Any,
    *,
    layout: str = "nt",
    bias: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    out_dtype: Any = None,
    split_k: int = 0,
    deterministic: bool = True,
    c: Any = None,
    beta: float = 1.0,
    residual: Any = None,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.gemm` in JAX; parameters as there.

    Parameters
    ----------
    a : array, bfloat16 or float16, (..., m, k), or (..., k, m) with layout="tn"
    b : array, like a, (n, k), or (k, n) with layout="nn" and "tn"
        With the leading axes of a, it is a batch of products in one launch. Without, leading axes
        of a are rows for "nt" and "nn".
    implementation_backward : {None, "xla"}
        As in `gemm_nt`.
    """
    layout = scalars.word("layout", layout)
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} must be one of {', '.join(map(repr, LAYOUTS))}")
    return _checked(
        *(layout, a, b, bias, activation, alpha, out_dtype, split_k, deterministic),
        *(c, beta, residual, implementation_backward),
    )


@differentiable
def grouped_gemm(
    a: Any,
    b: Any,
    group_sizes: Any,
    *,
    layout: str = "nt",
    bias: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    out_dtype: Any = None,
    residual: Any = None,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.grouped_gemm` in JAX, like `jax.lax.ragged_dot` but with b stored by rows.

    Parameters are those of `amdattn.grouped_gemm`. Rows beyond all groups are 0.

    Parameters
    ----------
    a : array, bfloat16 or float16, (m, k), or (k, m) with layout="tn"
    b : array, like a, (groups, n, k), (groups, k, n) with layout="nn", (k, n) with layout="tn"
    group_sizes : array, int32 or int64, (groups,)
    implementation_backward : {None, "xla"}
        As in `gemm_nt`; for layout="tn" only "xla" is supported.
    """
    layout = scalars.word("layout", layout)
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} must be one of {', '.join(map(repr, LAYOUTS))}")
    given = as_arrays(a=a, b=b, bias=bias, residual=residual, group_sizes=group_sizes)
    *arrays, sizes = given
    if sizes is None:
        raise TypeError("group_sizes is None; it must be an array of the rows of each group")
    if sizes.ndim != 1 or not sizes.shape[0] or not jnp.issubdtype(sizes.dtype, jnp.integer):
        raise ValueError(
            f"group_sizes has shape {sizes.shape} and dtype {sizes.dtype}; it must be int32 or "
            "int64 of shape (groups,), one of each group"
        )
    return _product(
        *(*arrays, None, jnp.asarray(sizes, jnp.int32)),
        layout=layout,
        alpha=scalars.number("alpha", alpha),
        activation=None if activation is None else scalars.word("activation", activation),
        out_dtype=None if out_dtype is None else as_dtype(out_dtype, "out_dtype").name,
        split_k=0,
        deterministic=True,
        beta=1.0,
        implementation_backward=check(implementation_backward),
    )


def _checked(
    layout: str,
    a: Any,
    b: Any,
    bias: Any,
    activation: str | None,
    alpha: float,
    out_dtype: Any,
    split_k: int,
    deterministic: bool,
    c: Any,
    beta: float,
    residual: Any,
    backward: str | None,
) -> Any:
    """Check the options, then compute the product."""
    if c is not None and residual is not None:
        raise ValueError("c and residual were given; only one of them may be")
    beta = scalars.number("beta", beta)
    if c is None and beta != 1:
        raise ValueError(f"beta={beta} is the factor of c, which was not given")
    a, b, bias, residual, c = as_arrays(a=a, b=b, bias=bias, residual=residual, c=c)
    return _product(
        *(a, b, bias, residual, c, None),
        layout=layout,
        alpha=scalars.number("alpha", alpha),
        activation=None if activation is None else scalars.word("activation", activation),
        out_dtype=None if out_dtype is None else as_dtype(out_dtype, "out_dtype").name,
        split_k=scalars.integer("split_k", split_k),
        deterministic=scalars.boolean("deterministic", deterministic),
        beta=beta,
        implementation_backward=check(backward),
    )


@functools.partial(jax.jit, static_argnames=_STATIC)
def _product(
    a: jax.Array,
    b: jax.Array,
    bias: jax.Array | None,
    residual: jax.Array | None,
    c: jax.Array | None,
    group_sizes: jax.Array | None,
    *,
    layout: str,
    alpha: float,
    activation: str | None,
    out_dtype: str | None,
    split_k: int,
    deterministic: bool,
    beta: float,
    implementation_backward: str | None,
) -> Any:
    groups = 0 if group_sizes is None else group_sizes.shape[0]
    is_gated = activation is not None and activation.endswith(FACTORS)
    front, m, n = _lengths(a, b, layout, groups, is_gated)
    if not groups and b.ndim == 2 and a.ndim > 2:  # leading axes of a are rows
        a = a.reshape(-1, a.shape[-1])
    a, b = (x if groups or x.ndim == 2 else x.reshape(-1, *x.shape[-2:]) for x in (a, b))
    batch = a.shape[:-2]
    if bias is not None and batch:
        bias = jnp.broadcast_to(bias, (*front, bias.shape[-1])).reshape(*batch, -1)
    of_results = (groups,) if groups and layout == "tn" else batch
    a_by_k, b_by_k = by_k(layout)
    shape, of_kernel = (*front, m, n), (*of_results, a.shape[-1 if a_by_k else -2], n)
    addend = residual if c is None else c
    if addend is not None:
        if addend.shape != shape:
            name = "residual" if c is None else "c"
            raise ValueError(f"{name} has shape {addend.shape}; the result has {shape}")
        addend = addend.reshape(of_kernel)
    dtype = as_dtype(out_dtype or a.dtype, "out_dtype")
    if 0 in (*a.shape, *b.shape):  # empty rows become two rows, an empty k becomes a few zeros
        a, b = _with_elements(a, a_by_k), _with_elements(b, b_by_k)
    m_of_kernel, rows = a.shape[-1 if a_by_k else -2], b.shape[-1 if b_by_k else -2]
    n_of_kernel = rows // 2 if is_gated else rows
    if bias is not None and not bias.size:
        bias = jnp.zeros((*b.shape[:-2], rows), bias.dtype)
    if addend is not None and not addend.size:
        in_front = (max(1, x) for x in of_results)
        addend = jnp.zeros((*in_front, m_of_kernel, n_of_kernel), addend.dtype)
    problem = GemmProblem(
        m=m_of_kernel,
        n=n_of_kernel,
        k=a.shape[-2 if a_by_k else -1],
        dtype=as_dtype(a.dtype, "a.dtype").name,
        out_dtype=dtype.name,
        bias=bias is not None,
        alpha=alpha,
        activation=activation,
        split_k=split_k,
        aligned=all(x.shape[-1] * x.dtype.itemsize % ALIGN_BYTES == 0 for x in (a, b)),
        deterministic=deterministic,
        layout=layout,
        adds=None if addend is None else "residual" if c is None else "c",
        beta=beta,
        batch=math.prod(a.shape[:-2]) if a.ndim > 2 else 0,
        groups=groups,
    )
    if not problem.reaches_factors(b.shape[-1]):
        problem = dataclasses.replace(problem, aligned=False)
    inputs = [x for x in (a, b, bias, addend, group_sizes) if x is not None]
    (out,) = apply("gemm", problem, "", implementation_backward, *inputs)
    if group_sizes is not None and layout != "tn":
        in_groups = jnp.arange(problem.m) < jnp.maximum(group_sizes, 0).sum()
        out = jnp.where(in_groups[:, None], out, jnp.zeros((), out.dtype))
    return out[tuple(slice(x) for x in of_kernel)].reshape(shape)


_WANTED = {
    ("nt", False): "(..., m, k) and (n, k), or of both axes in front",
    ("nn", False): "(..., m, k) and (k, n), or of both axes in front",
    ("tn", False): "(k, m) and (k, n), or of both axes in front",
    ("nt", True): "(m, k) and (groups, n, k), of as many groups as group_sizes",
    ("nn", True): "(m, k) and (groups, k, n), of as many groups as group_sizes",
    ("tn", True): "(k, m) and (k, n)",
}


def _lengths(
    a: jax.Array, b: jax.Array, layout: str, groups: int, is_gated: bool
) -> tuple[tuple[int, ...], int, int]:
    """The leading axes of the result, its rows and its columns."""
    in_front = (groups,) if groups and layout != "tn" else () if groups else a.shape[:-2]
    fits = a.ndim == 2 if groups else a.ndim >= 2
    fits = (
        fits
        and b.ndim >= 2
        and (b.shape[:-2] == in_front or (not groups and b.ndim == 2 and layout != "tn"))
    )
    a_by_k, b_by_k = by_k(layout)
    if not fits or a.shape[-2 if a_by_k else -1] != b.shape[-2 if b_by_k else -1]:
        raise ValueError(
            f"a and b have shapes {a.shape} and {b.shape}; they must be "
            f"{_WANTED[layout, bool(groups)]}"
        )
    m, rows = a.shape[-1 if a_by_k else -2], b.shape[-1 if b_by_k else -2]
    if is_gated and rows % 2:
        raise ValueError(
            f"b has shape {b.shape}; with an activation of factors it must be of an even number of "
            f"{'columns' if b_by_k else 'rows'}"
        )
    front = ((groups,) if layout == "tn" else ()) if groups else a.shape[:-2]
    return front, m, rows // 2 if is_gated else rows


def _with_elements(x: jax.Array, is_by_k: bool) -> jax.Array:
    """Replace an operand without elements by zeros."""
    *front, rows, columns = x.shape
    of_k = rows if is_by_k else columns
    others = columns if is_by_k else rows
    axes = (of_k or _FEW, others or 2) if is_by_k else (others or 2, of_k or _FEW)
    shape = (*(max(1, n) for n in front), *axes)
    return x if x.shape == shape else jnp.zeros(shape, x.dtype)
