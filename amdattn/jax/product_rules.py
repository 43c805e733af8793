"""Products under JAX's transformations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.dtypes import FLOAT32
from amdattn.jax.rules import Arrays, Axes, Rules, called
from amdattn.ops import registry
from amdattn.ops.gemm.problem import ALIGN_BYTES, FACTORS, WORD_BYTES, GemmProblem

_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


def _axes(problem: GemmProblem, variant: str) -> dict[str, Axes]:
    # With factors, rows of b are of two kinds: a part of them is not the b of a part of the result.
    rows = ("rows",) if problem.has_factors else ("n",)
    a_by_k, b_by_k = problem.by_k
    return {
        "a": (("k",), ("m",)) if a_by_k else (("m",), ("k",)),
        "b": (("k",), rows) if b_by_k else (rows, ("k",)),
        "bias": (rows,),
        "out": (("m",), ("columns",) if problem.has_factors else ("n",)),
    }


def _lengths(problem: GemmProblem) -> dict[str, int]:
    known = {"m": problem.m, "k": problem.k}
    if problem.has_factors:
        return {**known, "rows": problem.b_rows, "columns": problem.n}
    return {**known, "n": problem.n}


def _resized(problem: GemmProblem, factors: Mapping[str, int]) -> GemmProblem:
    return dataclasses.replace(
        problem, m=factors.get("m", problem.m), n=factors.get("n", problem.n)
    )


def _reference(problem: GemmProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    a, b = (
        inputs[name].astype(jnp.float32).T if is_by_k else inputs[name].astype(jnp.float32)
        for name, is_by_k in zip("ab", problem.by_k, strict=True)
    )
    x = problem.alpha * jnp.matmul(a, b.T, precision="highest")
    if problem.bias:
        x = x + inputs["bias"].astype(jnp.float32)[None, :]
    return {"out": _activated(problem, x).astype(problem.out_dtype)}


def _activated(problem: GemmProblem, x: jax.Array) -> jax.Array:
    """What is made of sums in float32."""
    if problem.activation is None:
        return x
    activate = _ACTIVATIONS[problem.activation.removesuffix(FACTORS)]
    n = problem.n
    return activate(x[:, :n]) * x[:, n:] if problem.has_factors else activate(x)


# -- gradients -------------------------------------------------------------------------------------


def _kept(problem: GemmProblem) -> frozenset[str]:
    # Under an activation sums are made again, by a third product.
    return frozenset({"a", "b"} | ({"bias"} if problem.activation is not None else set()))


def _gradients(
    problem: GemmProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Of a, b and bias: two products of what there is, as it is stored.

    What they multiply, the gradient of the sums, is float32 until it is rounded to the type of a.
    """
    a, b, of_sums = inputs["a"], inputs["b"], of_results["out"].astype(jnp.float32)
    if problem.activation is not None:
        sums = dataclasses.replace(
            problem, n=problem.b_rows, activation=None, out_dtype=FLOAT32.name
        )
        given = {name: inputs[name] for name in problem.input_shapes}
        again = called("gemm", sums, variant, given)["out"]
        (of_sums,) = jax.vjp(functools.partial(_activated, problem), again)[1](of_sums)
    rounded = of_sums.astype(a.dtype)
    found = {
        "a": _product(problem, "nn", rounded, b),
        "b": _product(problem, "tn", rounded, a),
    }
    return found | ({"bias": of_sums.sum(axis=0).astype(a.dtype)} if problem.bias else {})


def _product(of: GemmProblem, layout: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """``alpha * a @ b``, or of the transposed a, of the operands' type."""
    (m, k), n = a.shape[::-1] if layout == "tn" else a.shape, b.shape[1]
    aligned = all(x.shape[1] * WORD_BYTES % ALIGN_BYTES == 0 for x in (a, b))
    problem = GemmProblem(m, n, k, of.dtype, alpha=of.alpha, aligned=aligned, layout=layout)
    return called("gemm", problem, "", {"a": a, "b": b})["out"]


def _specs(problem: GemmProblem, variant: str) -> Any:
    return registry.operation("gemm").specs(problem, variant)


RULES = {
    "gemm": Rules(
        specs=_specs,
        axes=_axes,
        independent=("m", "n"),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
        kept=_kept,
        gradients=_gradients,
    ),
}
