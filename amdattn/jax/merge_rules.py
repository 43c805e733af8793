"""Merged partial results of attention under JAX's transformations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.jax.rules import Arrays, Axes, Rules, specs_of
from amdattn.ops.merge.problem import MergeProblem


def _axes(problem: MergeProblem, variant: str) -> dict[str, Axes]:
    batch, rows, heads = ("batch",), ("seqlen",), ("num_heads",)
    axes = (batch, heads, rows) if variant == "bhsd" else (batch, rows, heads)
    parts, dim = ("num_parts",), ("head_dim",)
    return {
        "o": (parts, *axes, dim),
        "lse": (parts, batch, heads, rows),
        "out": (*axes, dim),
        "lse_out": (batch, heads, rows),
    }


def _lengths(problem: MergeProblem) -> dict[str, int]:
    names = ("num_parts", "batch", "seqlen", "num_heads", "head_dim")
    return {name: getattr(problem, name) for name in names}


def _resized(problem: MergeProblem, factors: Mapping[str, int]) -> MergeProblem:
    sizes: dict[str, Any] = {**factors}
    return dataclasses.replace(problem, **sizes)


def _reference(problem: MergeProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    o, lse = inputs["o"], inputs["lse"]
    greatest = lse.max(axis=0)
    greatest = jax.lax.stop_gradient(jnp.where(greatest == -jnp.inf, 0.0, greatest))
    weights = jnp.exp(lse - greatest)
    total = weights.sum(axis=0)
    some = total != 0  # also of NaN
    total = jnp.where(some, total, 1.0)
    weights = weights / total
    if variant != "bhsd":
        weights = weights.swapaxes(2, 3)
    seen = weights[..., None] != 0
    parts = jnp.where(seen, weights[..., None] * jnp.where(seen, o.astype(jnp.float32), 0.0), 0.0)
    merged = jnp.where(some, jnp.log(total) + greatest, -jnp.inf)
    return {"out": parts.sum(axis=0).astype(o.dtype), "lse_out": merged}


RULES = {
    "merge_state": Rules(
        specs=specs_of("merge_state"),
        axes=_axes,
        independent=("batch", "num_heads", "seqlen"),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
    ),
}
