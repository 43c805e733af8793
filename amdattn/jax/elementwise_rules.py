"""Elementwise operations under JAX's transformations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.jax.primitive import called
from amdattn.jax.rules import Arrays, Axes, Rules, specs_of
from amdattn.op.head_norm import WEIGHTS
from amdattn.ops.embedding.problem import EmbeddingProblem
from amdattn.ops.gated.problem import GatedProblem
from amdattn.ops.rotary.problem import RotaryProblem

# -- activations -----------------------------------------------------------------------------------


def _gated_axes(problem: GatedProblem, variant: str) -> dict[str, Axes]:
    x: Axes = (*((f"rows{i}",) for i in range(len(problem.shape))), ("columns",))
    return dict.fromkeys(("gate", "up", "out"), x)


def _gated_lengths(problem: GatedProblem) -> dict[str, int]:
    rows = {f"rows{i}": length for i, length in enumerate(problem.shape)}
    return {**rows, "columns": problem.columns}


def _gated_resized(problem: GatedProblem, factors: Mapping[str, int]) -> GatedProblem:
    shape = tuple(factors.get(f"rows{i}", length) for i, length in enumerate(problem.shape))
    columns = factors.get("columns", problem.columns)
    return dataclasses.replace(problem, shape=shape, columns=columns)


def _activated(activation: str, x: jax.Array) -> jax.Array:
    if activation == "silu":
        return jax.nn.silu(x)
    return jax.nn.gelu(x, approximate=activation == "gelu_tanh")


def _gated_reference(problem: GatedProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    gate, up = (inputs[name].astype(jnp.float32) for name in ("gate", "up"))
    return {"out": (_activated(problem.activation, gate) * up).astype(inputs["gate"].dtype)}


def _gated_gradients(
    problem: GatedProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Gradients in float32, each rounded once; XLA fuses them to one pass."""
    gate, up = (inputs[name].astype(jnp.float32) for name in ("gate", "up"))
    factor, derivative = jax.vjp(lambda x: _activated(problem.activation, x), gate)
    of_out = of_results["out"].astype(jnp.float32)
    (of_gate,) = derivative(of_out * up)
    dtype = inputs["gate"].dtype
    return {"gate": of_gate.astype(dtype), "up": (of_out * factor).astype(dtype)}


# -- rotary embedding ------------------------------------------------------------------------------


def _rotary_axes(problem: RotaryProblem, variant: str) -> dict[str, Axes]:
    # Tokens are independent of each other if each has its own position.
    tokens: Axes = (("tokens" if problem.positions == "tokens" else "seq",),)
    if not problem.packed:
        tokens = (("batch",), *tokens)
    x: Axes = (*tokens, ("heads",), ("dim",))
    k: Axes = (*tokens, ("heads_k",), ("dim",))
    table: Axes = (("table",), ("half",))
    return {
        **{"x": x, "out": x, "k": k, "k_out": k, "cos": table, "sin": table},
        **{"positions": tokens, "seqlen_offsets": (("one" if problem.packed else "batch",),)},
        **dict.fromkeys(WEIGHTS, (("dim",),)),
    }


def _rotary_lengths(problem: RotaryProblem) -> dict[str, int]:
    return {
        "one" if problem.packed else "batch": problem.batch,
        "tokens" if problem.positions == "tokens" else "seq": problem.seqlen,
        **{"heads": problem.heads, "heads_k": problem.heads_k, "dim": problem.head_dim},
        **{"table": problem.table_rows, "half": problem.rotary_dim // 2},
    }


def _rotary_resized(problem: RotaryProblem, factors: Mapping[str, int]) -> RotaryProblem:
    changed: dict[str, Any] = {"seqlen" if n == "tokens" else n: x for n, x in factors.items()}
    return dataclasses.replace(problem, **changed)


def _rotary_reference(problem: RotaryProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    at = jnp.arange(problem.seqlen)
    if problem.positions == "tokens":
        at = inputs["positions"]
    elif problem.positions == "offsets":
        at = inputs["seqlen_offsets"][:, None] + at
    cos, sin = (inputs[name].astype(jnp.float32)[at][..., None, :] for name in ("cos", "sin"))
    of_x, of_k = (inputs.get(name) for name in WEIGHTS)
    results = {"out": _turned(problem, inputs["x"], of_x, cos, sin)}
    if problem.heads_k:
        results["k_out"] = _turned(problem, inputs["k"], of_k, cos, sin)
    return results


def _turned(
    problem: RotaryProblem, x: jax.Array, weight: jax.Array | None, cos: jax.Array, sin: jax.Array
) -> jax.Array:
    wide = x.astype(jnp.float32)
    if weight is not None:
        mean = jnp.square(wide).mean(axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(mean + problem.norm_eps) * weight.astype(jnp.float32)
    turned, rest = jnp.split(wide, [problem.rotary_dim], axis=-1)
    if problem.interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = jnp.split(turned, 2, axis=-1)
    pairs = a * cos - b * sin, b * cos + a * sin
    if problem.interleaved:
        turned = jnp.stack(pairs, axis=-1).reshape(turned.shape)
    else:
        turned = jnp.concatenate(pairs, axis=-1)
    return jnp.concatenate((turned, rest), axis=-1).astype(x.dtype)


def _rotary_gradients(
    problem: RotaryProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Rotate back with the same kernel; if heads are normalised, use XLA in float32."""
    if problem.is_normed:
        of = {name: inputs[name] for name in ("x", "k", *WEIGHTS) if inputs.get(name) is not None}
        _, back = jax.vjp(lambda of: _rotary_reference(problem, variant, {**inputs, **of}), of)
        (gradients,) = back(
            {"out": of_results["out"]} | ({"k_out": of_results["k_out"]} if problem.heads_k else {})
        )
        return dict(gradients)
    kept = {name: x for name, x in inputs.items() if x is not None}
    named = {**kept, "x": of_results["out"], "sin": -inputs["sin"]}
    if problem.heads_k:
        named["k"] = of_results["k_out"]
    found = called("rotary", problem, variant, named)
    return {"x": found["out"]} | ({"k": found["k_out"]} if problem.heads_k else {})


# -- embedding -------------------------------------------------------------------------------------


def _embedding_axes(problem: EmbeddingProblem, variant: str) -> dict[str, Axes]:
    rows: Axes = tuple((f"rows{i}",) for i in range(len(problem.shape)))
    return {
        **{"table": (("table",), ("columns",)), "indices": rows},
        **{"out": (*rows, ("columns",))},
    }


def _embedding_lengths(problem: EmbeddingProblem) -> dict[str, int]:
    rows = {f"rows{i}": length for i, length in enumerate(problem.shape)}
    return {**rows, "table": problem.table_rows, "columns": problem.columns}


def _embedding_resized(problem: EmbeddingProblem, factors: Mapping[str, int]) -> EmbeddingProblem:
    shape = tuple(factors.get(f"rows{i}", length) for i, length in enumerate(problem.shape))
    columns = factors.get("columns", problem.columns)
    return dataclasses.replace(problem, shape=shape, columns=columns)


def _embedding_gradients(
    problem: EmbeddingProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Sum the rows by XLA in float32, and round once."""
    table = jnp.zeros((problem.table_rows, problem.columns), jnp.float32)
    added = table.at[inputs["indices"]].add(of_results["out"].astype(jnp.float32))
    return {"table": added.astype(of_results["out"].dtype)}


RULES: dict[str, Rules] = {
    "rotary": Rules(
        specs=specs_of("rotary"),
        axes=_rotary_axes,
        independent=("batch", "tokens", "heads"),
        lengths=_rotary_lengths,
        resized=_rotary_resized,
        reference=_rotary_reference,
        kept=lambda problem: frozenset(
            {"cos", "sin", "positions", "seqlen_offsets"}
            | ({"x", "k", *WEIGHTS} if problem.is_normed else set())
        ),
        gradients=_rotary_gradients,
    ),
    "embedding": Rules(
        specs=specs_of("embedding"),
        axes=_embedding_axes,
        independent=(*(f"rows{i}" for i in range(64)), "columns"),
        lengths=_embedding_lengths,
        resized=_embedding_resized,
        reference=lambda problem, variant, inputs: {"out": inputs["table"][inputs["indices"]]},
        kept=lambda problem: frozenset({"indices"}),
        gradients=_embedding_gradients,
    ),
    "gated_activation": Rules(
        specs=specs_of("gated_activation"),
        axes=_gated_axes,
        independent=(*(f"rows{i}" for i in range(64)), "columns"),
        lengths=_gated_lengths,
        resized=_gated_resized,
        reference=_gated_reference,
        kept=lambda problem: frozenset({"gate", "up"}),
        gradients=_gated_gradients,
    ),
}
