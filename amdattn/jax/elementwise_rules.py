"""Operations element by element under JAX's transformations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.jax.rules import Arrays, Axes, Rules
from amdattn.ops import registry
from amdattn.ops.gated.problem import GatedProblem


def _specs_of(operation: str) -> Any:
    return lambda problem, variant: registry.operation(operation).specs(problem, variant)


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
    """In float32, each rounded once; XLA makes one pass of it."""
    gate, up = (inputs[name].astype(jnp.float32) for name in ("gate", "up"))
    factor, derivative = jax.vjp(lambda x: _activated(problem.activation, x), gate)
    of_out = of_results["out"].astype(jnp.float32)
    (of_gate,) = derivative(of_out * up)
    dtype = inputs["gate"].dtype
    return {"gate": of_gate.astype(dtype), "up": (of_out * factor).astype(dtype)}


RULES: dict[str, Rules] = {
    "gated_activation": Rules(
        specs=_specs_of("gated_activation"),
        axes=_gated_axes,
        independent=(*(f"rows{i}" for i in range(64)), "columns"),
        lengths=_gated_lengths,
        resized=_gated_resized,
        reference=_gated_reference,
        kept=lambda problem: frozenset({"gate", "up"}),
        gradients=_gated_gradients,
    ),
}
