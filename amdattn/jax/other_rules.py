"""Products, norms and merged results under JAX's transformations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.jax.rules import Arrays, Axes, Rules
from amdattn.ops import registry
from amdattn.ops.gemm.problem import FACTORS, GemmProblem
from amdattn.ops.merge.problem import MergeProblem
from amdattn.ops.norm.problem import NormProblem


def _specs_of(operation: str) -> Any:
    return lambda problem, variant: registry.operation(operation).specs(problem, variant)


# -- products --------------------------------------------------------------------------------------

_ACTIVATIONS = {
    "silu": jax.nn.silu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


def _gemm_axes(problem: GemmProblem, variant: str) -> dict[str, Axes]:
    # With factors, rows of b are of two kinds: a part of them is not the b of a part of the result.
    rows = ("rows",) if problem.has_factors else ("n",)
    return {
        "a": (("m",), ("k",)),
        "b": (rows, ("k",)),
        "bias": (rows,),
        "out": (("m",), ("columns",) if problem.has_factors else ("n",)),
    }


def _gemm_lengths(problem: GemmProblem) -> dict[str, int]:
    known = {"m": problem.m, "k": problem.k}
    if problem.has_factors:
        return {**known, "rows": problem.b_rows, "columns": problem.n}
    return {**known, "n": problem.n}


def _gemm_resized(problem: GemmProblem, factors: Mapping[str, int]) -> GemmProblem:
    return dataclasses.replace(
        problem, m=factors.get("m", problem.m), n=factors.get("n", problem.n)
    )


def _gemm(problem: GemmProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    a, b = (inputs[name].astype(jnp.float32) for name in ("a", "b"))
    x = problem.alpha * jnp.matmul(a, b.T, precision="highest")
    if problem.bias:
        x = x + inputs["bias"].astype(jnp.float32)[None, :]
    if problem.activation is not None:
        activate = _ACTIVATIONS[problem.activation.removesuffix(FACTORS)]
        n = problem.n
        x = activate(x[:, :n]) * x[:, n:] if problem.has_factors else activate(x)
    return {"out": x.astype(problem.out_dtype)}


# -- norms -----------------------------------------------------------------------------------------


def _norm_axes(problem: NormProblem, variant: str) -> dict[str, Axes]:
    x: Axes = (*((f"rows{i}",) for i in range(len(problem.shape))), ("columns",))
    return {name: x for name in ("x", "residual", "out", "residual_out")} | {
        "weight": (("columns",),)
    }


def _norm_lengths(problem: NormProblem) -> dict[str, int]:
    rows = {f"rows{i}": length for i, length in enumerate(problem.shape)}
    return {**rows, "columns": problem.columns}


def _norm_resized(problem: NormProblem, factors: Mapping[str, int]) -> NormProblem:
    shape = tuple(factors.get(f"rows{i}", length) for i, length in enumerate(problem.shape))
    return dataclasses.replace(problem, shape=shape)


def _norm(problem: NormProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
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


# -- partial results of attention ------------------------------------------------------------------


def _merge_axes(problem: MergeProblem, variant: str) -> dict[str, Axes]:
    batch, rows, heads = ("batch",), ("seqlen",), ("num_heads",)
    axes = (batch, heads, rows) if variant == "bhsd" else (batch, rows, heads)
    parts, dim = ("num_parts",), ("head_dim",)
    return {
        "o": (parts, *axes, dim),
        "lse": (parts, batch, heads, rows),
        "out": (*axes, dim),
        "lse_out": (batch, heads, rows),
    }


def _merge_lengths(problem: MergeProblem) -> dict[str, int]:
    names = ("num_parts", "batch", "seqlen", "num_heads", "head_dim")
    return {name: getattr(problem, name) for name in names}


def _merge_resized(problem: MergeProblem, factors: Mapping[str, int]) -> MergeProblem:
    sizes: dict[str, Any] = {**factors}
    return dataclasses.replace(problem, **sizes)


def _merge(problem: MergeProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
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
    "gemm": Rules(
        specs=_specs_of("gemm"),
        axes=_gemm_axes,
        independent=("m", "n"),
        lengths=_gemm_lengths,
        resized=_gemm_resized,
        reference=_gemm,
    ),
    "rms_norm": Rules(
        specs=_specs_of("rms_norm"),
        axes=_norm_axes,
        independent=tuple(f"rows{i}" for i in range(64)),
        lengths=_norm_lengths,
        resized=_norm_resized,
        reference=_norm,
    ),
    "merge_state": Rules(
        specs=_specs_of("merge_state"),
        axes=_merge_axes,
        independent=("batch", "num_heads", "seqlen"),
        lengths=_merge_lengths,
        resized=_merge_resized,
        reference=_merge,
    ),
}
