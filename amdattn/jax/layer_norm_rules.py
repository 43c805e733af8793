"""Rows normalised with all options, and their gradients, under JAX's transformations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from amdattn.jax.norm_rules import groups_of
from amdattn.jax.primitive import called
from amdattn.jax.rules import Arrays, Axes, Rules, specs_of
from amdattn.ops.layer_norm.problem import LayerNormProblem
from amdattn.ops.layer_norm_backward.problem import LayerNormBackwardProblem

FORWARD, BACKWARD = "layer_norm", "layer_norm_backward"


def _axes(problem: LayerNormProblem, variant: str) -> dict[str, Axes]:
    rows: Axes = tuple((f"rows{i}",) for i in range(len(problem.shape)))
    x: Axes = (*rows, ("columns",))
    return {
        **dict.fromkeys(("x", "residual", "out", "residual_out"), x),
        **dict.fromkeys(("weight", "bias"), (("columns",),)),
        "scale": (("tensor",),) if problem.scale == "tensor" else rows,
        "out_scale": (*rows, ("one",)),
        "state": (("words",),),  # not by rows: what is dropped depends on the numbers of rows
    }


def _lengths(problem: LayerNormProblem) -> dict[str, int]:
    rows = {f"rows{i}": length for i, length in enumerate(problem.shape)}
    return {**rows, "columns": problem.columns, "words": 4, "one": 1, "tensor": 1}


def _resized(problem: LayerNormProblem, factors: Mapping[str, int]) -> LayerNormProblem:
    shape = tuple(factors.get(f"rows{i}", length) for i, length in enumerate(problem.shape))
    return dataclasses.replace(problem, shape=shape)


# -- in float32, by XLA ----------------------------------------------------------------------------


def _product(a: int, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The upper and the lower word of a product of two words."""
    low_a, high_a = jnp.uint32(a & 0xFFFF), jnp.uint32(a >> 16)
    low_b, high_b = b & 0xFFFF, b >> 16
    middle = high_a * low_b + (low_a * low_b >> 16)
    lower_middle = low_a * high_b + (middle & 0xFFFF)
    return high_a * high_b + (middle >> 16) + (lower_middle >> 16), jnp.uint32(a) * b


def _kept(problem: LayerNormProblem, state: jax.Array) -> jax.Array:
    """The mask of elements that dropout keeps, by Philox4x32-10: (*shape, columns) bool."""
    words = jax.lax.bitcast_convert_type(state, jnp.uint32)
    blocks = -(-problem.columns // 8)
    shape = problem.rows, blocks
    c = [
        jnp.broadcast_to(jnp.arange(blocks, dtype=jnp.uint32), shape),
        jnp.broadcast_to(jnp.arange(problem.rows, dtype=jnp.uint32)[:, None], shape),
        jnp.broadcast_to(words[2], shape),
        jnp.broadcast_to(words[3], shape),
    ]
    k0, k1 = words[0], words[1]
    for _ in range(10):
        (x_high, x_low), (y_high, y_low) = _product(0xD2511F53, c[0]), _product(0xCD9E8D57, c[2])
        c = [y_high ^ c[1] ^ k0, y_low, x_high ^ c[3] ^ k1, x_low]
        k0, k1 = k0 + jnp.uint32(0x9E3779B9), k1 + jnp.uint32(0xBB67AE85)
    halves = jnp.stack([half for word in c for half in (word & 0xFFFF, word >> 16)], -1)
    of_rows = halves.reshape(problem.rows, -1)[:, : problem.columns]
    return (of_rows >= problem.threshold).reshape(*problem.shape, problem.columns)


def _advanced(state: jax.Array) -> jax.Array:
    """The state with its offset incremented by 1."""
    words = jax.lax.bitcast_convert_type(state, jnp.uint32)
    low = words[2] + jnp.uint32(1)
    high = words[3] + (low == 0).astype(jnp.uint32)
    made = jnp.stack([words[0], words[1], low, high])
    return jax.lax.bitcast_convert_type(made, jnp.int32)


def _reference(problem: LayerNormProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    x, results = inputs["x"], {}
    h = x.astype(jnp.float32)
    if problem.draws:
        h = jnp.where(_kept(problem, inputs["state"]), h * jnp.float32(problem.kept), 0)
        results["state"] = _advanced(inputs["state"])
    if problem.residual:
        h = h + inputs["residual"].astype(jnp.float32)
    h = h.astype(x.dtype)
    if problem.residual:
        results["residual_out"] = h
    rows = h.astype(jnp.float32)
    if not problem.rms:
        rows = rows - jnp.mean(rows, axis=-1, keepdims=True)
    variance = jnp.mean(rows * rows, axis=-1, keepdims=True)
    out = rows * jax.lax.rsqrt(variance + problem.eps) * inputs["weight"].astype(jnp.float32)
    if problem.bias:
        out = out + inputs["bias"].astype(jnp.float32)
    return {"out": out.astype(x.dtype), **results}


# -- gradients -------------------------------------------------------------------------------------


def _saved(problem: LayerNormProblem) -> frozenset[str]:
    # With a residual the sum is enough. The state is that before the call, of which a copy is kept.
    return frozenset({"weight", "bias", "state", "residual_out" if problem.residual else "x"})


def _gradients(
    problem: LayerNormProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Gradients of x, weight, bias and residual."""
    groups = groups_of(problem.rows)
    backward = LayerNormBackwardProblem(
        *(groups, problem.rows // groups, problem.columns, problem.dtype, problem.bias),
        *(problem.residual, problem.eps, problem.weight_dtype, problem.dropout_p, problem.rms),
        behind=0,
    )
    x = results["residual_out"] if problem.residual else inputs["x"]
    rows = {"dout": of_results["out"], "x": x}
    rows |= {"dresidual_out": of_results["residual_out"]} if problem.residual else {}
    named = {name: y.reshape(-1, problem.columns) for name, y in rows.items()}
    named["weight"] = weight = inputs["weight"]
    if problem.draws:
        named["state"] = inputs["state"]
    found = called(BACKWARD, backward, variant, named)
    sums = found["dparameters"].sum(axis=0).astype(weight.dtype)
    dx = found["dx"].reshape(x.shape)
    gradients = {"x": dx, "weight": sums[0]}
    gradients |= {"bias": sums[1]} if problem.bias else {}
    if problem.residual:
        gradients["residual"] = found["dresidual"].reshape(x.shape) if backward.splits else dx
    return gradients


def _axes_of_gradients(problem: LayerNormBackwardProblem, variant: str) -> dict[str, Axes]:
    # With dropout rows cannot be cut, because what is dropped depends on their numbers.
    of_rows, groups = (
        (("all_rows",), "all_groups") if problem.draws else (("groups", "rows"), "groups")
    )
    rows: Axes = (of_rows, ("columns",))
    return {
        **dict.fromkeys(("dout", "x", "dresidual_out", "dx", "dresidual"), rows),
        "weight": (("columns",),),
        "state": (("words",),),
        "dparameters": ((groups,), ("parameters",), ("columns",)),
    }


def _lengths_of_gradients(problem: LayerNormBackwardProblem) -> dict[str, int]:
    found = {"columns": problem.columns, "words": 4, "parameters": 1 + problem.bias}
    if problem.draws:
        return {**found, "all_rows": problem.all_rows, "all_groups": problem.groups}
    return {**found, "groups": problem.groups, "rows": problem.rows}


def _resized_gradients(
    problem: LayerNormBackwardProblem, factors: Mapping[str, int]
) -> LayerNormBackwardProblem:
    return dataclasses.replace(problem, groups=factors.get("groups", problem.groups))


RULES: dict[str, Rules] = {
    FORWARD: Rules(
        specs=specs_of(FORWARD),
        axes=_axes,
        independent=tuple(f"rows{i}" for i in range(64)),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
        kept=_saved,
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
