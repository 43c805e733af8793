"""Normalised rows, and their gradients, under JAX's transformations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from amdattn.jax.primitive import called
from amdattn.jax.rules import Arrays, Axes, Rules, specs_of
from amdattn.ops.norm.problem import NormProblem
from amdattn.ops.norm_backward.problem import NormBackwardProblem

BACKWARD = "rms_norm_backward"
# Rows are cut into groups, each with its own sum for the gradient of the weight. A mesh whose
# number of devices divides the number of groups then exchanges only the sums.
_GROUPS, _LEAST_ROWS = 64, 16  # most groups, and least rows per group


def _axes(problem: NormProblem, variant: str) -> dict[str, Axes]:
    x: Axes = (*((f"rows{i}",) for i in range(len(problem.shape))), ("columns",))
    return {name: x for name in ("x", "residual", "out", "residual_out")} | {
        "weight": (("columns",),)
    }


def _lengths(problem: NormProblem) -> dict[str, int]:
    rows = {f"rows{i}": length for i, length in enumerate(problem.shape)}
    return {**rows, "columns": problem.columns}


def _resized(problem: NormProblem, factors: Mapping[str, int]) -> NormProblem:
    shape = tuple(factors.get(f"rows{i}", length) for i, length in enumerate(problem.shape))
    return dataclasses.replace(problem, shape=shape)


def _reference(problem: NormProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    x, weight = inputs["x"], inputs["weight"].astype(jnp.float32)
    results = {}
    if problem.residual:
        added = x.astype(jnp.float32) + inputs["residual"].astype(jnp.float32)
        x = results["residual_out"] = added.astype(x.dtype)
    rows = x.astype(jnp.float32)
    mean = jnp.mean(rows * rows, axis=-1, keepdims=True)
    weight = weight.reshape((1,) * (x.ndim - 1) + weight.shape)
    out = rows * jax.lax.rsqrt(mean + problem.eps) * weight
    return {"out": out.astype(x.dtype), **results}


# -- gradients -------------------------------------------------------------------------------------


def _kept(problem: NormProblem) -> frozenset[str]:
    # With a residual the sum is enough.
    return frozenset({"weight", "residual_out" if problem.residual else "x"})


def groups_of(rows: int) -> int:
    """The number of groups into which rows are cut."""
    groups = math.gcd(rows, _GROUPS)
    while groups > 1 and rows // groups < _LEAST_ROWS:
        groups //= 2
    return groups


def _gradients(
    problem: NormProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Gradients of x, the weight and the residual; the last is that of x."""
    groups = groups_of(problem.rows)
    backward = NormBackwardProblem(
        *(groups, problem.rows // groups, problem.columns, problem.dtype, problem.residual),
        eps=problem.eps,
        weight_dtype=problem.weight_dtype,
    )
    x = results["residual_out"] if problem.residual else inputs["x"]
    rows = {"dout": of_results["out"], "x": x}
    rows |= {"dresidual_out": of_results["residual_out"]} if problem.residual else {}
    named = {name: y.reshape(-1, problem.columns) for name, y in rows.items()}
    weight = inputs["weight"]
    found = called(BACKWARD, backward, variant, {**named, "weight": weight})
    dx = found["dx"].reshape(x.shape)
    dweight = found["dweight"].sum(axis=0).astype(weight.dtype)
    return {"x": dx, "weight": dweight} | ({"residual": dx} if problem.residual else {})


def _axes_of_gradients(problem: NormBackwardProblem, variant: str) -> dict[str, Axes]:
    rows: Axes = (("groups", "rows"), ("columns",))
    return {
        **dict.fromkeys(("dout", "x", "dresidual_out", "dx"), rows),
        "weight": (("columns",),),
        "dweight": (("groups",), ("columns",)),
    }


def _lengths_of_gradients(problem: NormBackwardProblem) -> dict[str, int]:
    return {name: getattr(problem, name) for name in ("groups", "rows", "columns")}


def _resized_gradients(
    problem: NormBackwardProblem, factors: Mapping[str, int]
) -> NormBackwardProblem:
    return dataclasses.replace(problem, groups=factors.get("groups", problem.groups))


RULES: dict[str, Rules] = {
    "rms_norm": Rules(
        specs=specs_of("rms_norm"),
        axes=_axes,
        independent=tuple(f"rows{i}" for i in range(64)),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
        kept=_kept,
        gradients=_gradients,
    ),
    BACKWARD: Rules(
        specs=specs_of(BACKWARD),
        axes=_axes_of_gradients,
        independent=("groups",),
        lengths=_lengths_of_gradients,
        resized=_resized_gradients,
    ),
}
