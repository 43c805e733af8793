"""Products under JAX's transformations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.dtypes import FLOAT32
from amdattn.errors import UnsupportedProblem
from amdattn.jax.rules import Arrays, Axes, Rules, called
from amdattn.ops import registry
from amdattn.ops.gemm.problem import (
    ADDENDS,
    ALIGN_BYTES,
    BLOCKS,
    FACTORS,
    MX,
    WORD_BYTES,
    GemmProblem,
)

_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


def _axes(problem: GemmProblem, variant: str) -> dict[str, Axes]:
    # With factors, rows of b are of two kinds: a part of them is not the b of a part of the result.
    rows = ("rows",) if problem.has_factors else ("n",)
    a_by_k, b_by_k = problem.by_k
    # Rows of groups follow each other: a part of them is of other groups.
    m = ("rows_of_groups",) if problem.groups else ("m",)
    batch = (("batch",),) * bool(problem.batch)
    of_b = (("groups",),) if problem.groups else batch
    out = (*batch, m, ("columns",) if problem.has_factors else ("n",))
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
    known = {"rows_of_groups" if problem.groups else "m": problem.m, "k": problem.k}
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
    if problem.groups:
        sizes = inputs["group_sizes"]
        products = jax.lax.ragged_dot(a, b.swapaxes(1, 2), sizes, precision="highest")
        if biases is not None:
            ends, rows = jnp.cumsum(sizes), jnp.arange(problem.m)
            biases = biases[jnp.searchsorted(ends, rows, side="right").clip(max=len(biases) - 1)]
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


def _activated(problem: GemmProblem, x: jax.Array) -> jax.Array:
    """What is made of sums in float32."""
    if problem.activation is None:
        return x
    activate = _ACTIVATIONS[problem.activation.removesuffix(FACTORS)]
    n = problem.n
    return activate(x[..., :n]) * x[..., n:] if problem.has_factors else activate(x)


# -- gradients -------------------------------------------------------------------------------------


def _kept(problem: GemmProblem) -> frozenset[str]:
    # Under an activation sums are made again, by a third product.
    of_sums = {"bias", "c"} if problem.activation is not None else set()
    return frozenset({"a", "b"} | of_sums & {*problem.input_shapes})


def _gradients(
    problem: GemmProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Of a, b, bias and what is added: two products of what there is, as it is stored.

    What they multiply, the gradient of the sums, is float32 until it is rounded to the type of a.
    """
    if problem.groups:
        raise UnsupportedProblem(
            f"groups={problem.groups}: gradients of groups of rows are not built (have 0)"
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
    found |= {
        "a": _product(problem, "nn", rounded, b),
        "b": _product(problem, "tn", rounded, a),
    }
    if problem.adds == "c":
        found["c"] = (problem.beta * of_sums).astype(of_out.dtype)
    return found | ({"bias": of_sums.sum(axis=-2).astype(a.dtype)} if problem.bias else {})


def _product(of: GemmProblem, layout: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """``alpha * a @ b``, or of the transposed a, of the operands' type; of each of a batch."""
    *_, m, k = a.swapaxes(-1, -2).shape if layout == "tn" else a.shape
    aligned = all(x.shape[-1] * WORD_BYTES % ALIGN_BYTES == 0 for x in (a, b))
    problem = GemmProblem(
        *(m, b.shape[-1], k, of.dtype),
        alpha=of.alpha,
        aligned=aligned,
        layout=layout,
        batch=of.batch,
    )
    return called("gemm", problem, "", {"a": a, "b": b})["out"]


def _specs(problem: GemmProblem, variant: str) -> Any:
    return registry.operation("gemm").specs(problem, variant)


RULES = {
    "gemm": Rules(
        specs=_specs,
        axes=_axes,
        independent=("batch", "m", "n"),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
        kept=_kept,
        gradients=_gradients,
    ),
}
