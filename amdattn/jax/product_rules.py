"""Products under JAX's transformations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from amdattn.dtypes import FLOAT32
from amdattn.errors import UnsupportedProblem
from amdattn.jax.primitive import called
from amdattn.jax.rules import Arrays, Axes, Rules, specs_of
from amdattn.ops.gemm.problem import (
    ADDENDS,
    ALIGN_BYTES,
    BLOCKS,
    FACTORS,
    MX,
    WORD_BYTES,
    GemmProblem,
    by_k,
)

_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


def _axes(problem: GemmProblem, variant: str) -> dict[str, Axes]:
    # With factors, rows of b are of two kinds, so a part of b does not yield a part of the result.
    rows = ("rows",) if problem.has_factors else ("n",)
    a_by_k, b_by_k = problem.by_k
    # Rows of groups follow each other, so a part of the rows has other groups.
    m = ("rows_of_groups",) if problem.groups and not problem.groups_share_k else ("m",)
    batch, groups = (("batch",),) * bool(problem.batch), (("groups",),)
    of_b = groups if problem.groups and not problem.groups_share_k else batch
    of_out = groups if problem.groups_share_k else batch
    out = (*of_out, m, ("columns",) if problem.has_factors else ("n",))
    of_scales: dict[str, Axes] = {"scale_a": (*batch, m), "scale_b": (*of_b, rows)}
    of_scales |= {name: ((),) for name in of_scales if getattr(problem, name) == "tensor"}
    k: tuple[str, ...] = ("k",)
    if problem.is_mx:  # rows of operands and of scales have parts of k: bytes, and 32 elements
        k = ()
        of_scales = {name: (*axes, ()) for name, axes in of_scales.items()}
    return {
        "a": (*batch, *((k, m) if a_by_k else (m, k))),
        "b": (*of_b, *((k, rows) if b_by_k else (rows, k))),
        "bias": (*of_b, rows),
        **of_scales,
        **dict.fromkeys((*ADDENDS, "out"), out),
        "group_sizes": (("groups",),),
    }


def _lengths(problem: GemmProblem) -> dict[str, int]:
    of_groups = problem.groups and not problem.groups_share_k
    known = {"rows_of_groups" if of_groups else "m": problem.m, "k": problem.k}
    known |= {name: x for name in ("batch", "groups") if (x := getattr(problem, name))}
    if problem.has_factors:
        return {**known, "rows": problem.b_rows, "columns": problem.n}
    return {**known, "n": problem.n}


def _resized(problem: GemmProblem, factors: Mapping[str, int]) -> GemmProblem:
    m, n, batch = (factors.get(name, getattr(problem, name)) for name in ("m", "n", "batch"))
    return dataclasses.replace(problem, m=m, n=n, batch=batch)


def _reference(problem: GemmProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    given = {name: x.astype(jnp.float32) for name, x in inputs.items() if name != "group_sizes"}
    a, b = (
        given[name].swapaxes(-1, -2) if is_by_k else given[name]
        for name, is_by_k in zip("ab", problem.by_k, strict=True)
    )
    for name, scale in (("scale_a", problem.scale_a), ("scale_b", problem.scale_b)):
        if scale in (BLOCKS, MX):
            raise UnsupportedProblem(f"{name}={scale!r}: XLA's form of it is not built")
    a = a * given["scale_a"][..., None] if problem.scale_a else a
    b = b * given["scale_b"][..., None] if problem.scale_b else b
    biases = given["bias"] if problem.bias else None
    if problem.groups_share_k:
        groups = _groups_of_rows(inputs["group_sizes"], problem.k)
        own = jax.nn.one_hot(groups, problem.groups)
        products = jnp.einsum("kg,mk,nk->gmn", own, a, b, precision="highest")
    elif problem.groups:
        sizes = inputs["group_sizes"]
        products = jax.lax.ragged_dot(a, b.swapaxes(1, 2), sizes, precision="highest")
        if biases is not None:
            biases = biases[_groups_of_rows(sizes, problem.m).clip(max=len(biases) - 1)]
    else:
        products = jnp.matmul(a, b.swapaxes(-1, -2), precision="highest")
        biases = biases if biases is None else biases[..., None, :]
    x = problem.alpha * products
    if biases is not None:
        x = x + biases
    if problem.adds == "c":
        x = x + problem.beta * given["c"]
    found = _activated(problem, x)
    if problem.adds == "residual":
        found = found + given["residual"]
    return {"out": found.astype(problem.out_dtype)}


def _groups_of_rows(sizes: jax.Array, rows: int) -> jax.Array:
    """The group of each row; rows beyond all groups get the number of groups."""
    ends = jnp.cumsum(jnp.maximum(sizes, 0))
    return jnp.searchsorted(ends, jnp.arange(rows), side="right")


def _activated(problem: GemmProblem, x: jax.Array) -> jax.Array:
    """Apply the activation to sums in float32."""
    if problem.activation is None:
        return x
    activate = _ACTIVATIONS[problem.activation.removesuffix(FACTORS)]
    n = problem.n
    return activate(x[..., :n]) * x[..., n:] if problem.has_factors else activate(x)


# -- gradients -------------------------------------------------------------------------------------


def _kept(problem: GemmProblem) -> frozenset[str]:
    # With an activation, a third product computes the sums again.
    of_sums = {"bias", "c"} if problem.activation is not None else set()
    return frozenset(({"a", "b", "group_sizes"} | of_sums) & {*problem.input_shapes})


def _gradients(
    problem: GemmProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Gradients of a, b, bias and the addend, by two products of the operands as they are stored.

    The gradient of the sums, which they multiply, is float32 until it is rounded to the type of a.
    """
    if problem.groups_share_k:
        raise UnsupportedProblem(
            f"layout='tn' with groups={problem.groups}: gradients of groups of rows of k are not "
            'built; implementation_backward="xla" makes them'
        )
    of_out = of_results["out"]
    a, b, of_sums = inputs["a"], inputs["b"], of_out.astype(jnp.float32)
    found = {"residual": of_out} if problem.adds == "residual" else {}
    if problem.activation is not None:
        sums = dataclasses.replace(
            problem,
            n=problem.b_rows,
            activation=None,
            out_dtype=FLOAT32.name,
            adds="c" if problem.adds == "c" else None,
        )
        given = {name: inputs[name] for name in sums.input_shapes}
        if problem.adds == "c":
            given["c"] = given["c"].astype(FLOAT32.name)
        again = called("gemm", sums, variant, given)["out"]
        (of_sums,) = jax.vjp(functools.partial(_activated, problem), again)[1](of_sums)
    rounded = of_sums.astype(a.dtype)
    sizes = inputs.get("group_sizes")
    operands = {"a": a, "b": b, "out": rounded}
    for name, (layout, first, second) in _FACTORS[problem.layout].items():
        found[name] = _product(problem, layout, operands[first], operands[second], sizes)
    if problem.adds == "c":
        found["c"] = (problem.beta * of_sums).astype(of_out.dtype)
    if sizes is not None:
        groups = _groups_of_rows(sizes, problem.m)
        is_of_one = (groups < problem.groups)[:, None]
        found["a"] = jnp.where(is_of_one, found["a"], jnp.zeros((), a.dtype))
        if "residual" in found:
            found["residual"] = jnp.where(is_of_one, of_out, jnp.zeros((), of_out.dtype))
    if problem.bias:
        if sizes is None:
            of_bias = of_sums.sum(axis=-2)
        else:
            of_bias = jax.ops.segment_sum(of_sums, groups, problem.groups)
        found["bias"] = of_bias.astype(a.dtype)
    return found


# For each layout: the layouts and operands of the products that yield the gradients of a and of b.
_FACTORS = {
    "nt": {"a": ("nn", "out", "b"), "b": ("tn", "out", "a")},
    "nn": {"a": ("nt", "out", "b"), "b": ("tn", "a", "out")},
    "tn": {"a": ("nt", "b", "out"), "b": ("nn", "a", "out")},
}


def _product(
    of: GemmProblem, layout: str, a: jax.Array, b: jax.Array, sizes: jax.Array | None
) -> jax.Array:
    """``alpha * a @ b`` in the operands' type, for a batch or for groups if there are some."""
    a_by_k, b_by_k = by_k(layout)
    m, n = a.shape[-1 if a_by_k else -2], b.shape[-1 if b_by_k else -2]
    if sizes is not None:  # kernels for groups do not accept all sizes
        a = _filled(a, *((1, 2) if a_by_k else (1, 8)))
        b = _filled(b, *((1, 8) if not b_by_k else (1, 2) if a_by_k else (8, 2)))
    problem = GemmProblem(
        m=a.shape[-1 if a_by_k else -2],
        n=b.shape[-1 if b_by_k else -2],
        k=a.shape[-2 if a_by_k else -1],
        dtype=of.dtype,
        alpha=of.alpha,
        aligned=all(x.shape[-1] * WORD_BYTES % ALIGN_BYTES == 0 for x in (a, b)),
        layout=layout,
        batch=of.batch,
        groups=of.groups,
    )
    given = {"a": a, "b": b} | ({} if sizes is None else {"group_sizes": sizes})
    return called("gemm", problem, "", given)["out"][..., :m, :n]


def _filled(x: jax.Array, rows: int, columns: int) -> jax.Array:
    """Pad with zeros to multiples of `rows` and `columns`."""
    *_, of_rows, of_columns = x.shape
    more = ((0, -of_rows % rows), (0, -of_columns % columns))
    return jnp.pad(x, (*((0, 0),) * (x.ndim - 2), *more)) if any(map(any, more)) else x


RULES = {
    "gemm": Rules(
        specs=specs_of("gemm"),
        axes=_axes,
        independent=("batch", "m", "n"),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
        kept=_kept,
        gradients=_gradients,
    ),
}
