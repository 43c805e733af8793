"""Attention under JAX's transformations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.jax import attention_gradients
from amdattn.jax.rules import Arrays, Axes, Rules, specs_of
from amdattn.ops.attention.problem import VARLEN_LAYOUT, AttentionProblem, axis_order

_BATCH, _QUERIES, _KEYS, _KV_HEADS, _GROUP = (
    "batch",
    "seqlen_q",
    "seqlen_kv",
    "num_heads_kv",
    "group",
)
_DIM, _DIM_V, _SUMS = "head_dim", "head_dim_v", "sums"


def _axes(problem: AttentionProblem, variant: str) -> dict[str, Axes]:
    layout = VARLEN_LAYOUT if problem.varlen else variant or "bshd"
    # Shardy does not accept a factor of 1 beside others.
    is_grouped = problem.num_heads_q > problem.num_heads_kv
    query_heads = (_KV_HEADS, _GROUP) if is_grouped else (_KV_HEADS,)

    def tensor(rows: str, heads: tuple[str, ...], dim: str) -> Axes:
        axes = {"batch": (_BATCH,), "seq": (rows,), "head": heads}
        return (*(axes[axis] for axis in axis_order(layout)), (dim,))

    of_lse: Axes = (
        (query_heads, (_QUERIES,)) if problem.varlen else ((_BATCH,), query_heads, (_QUERIES,))
    )
    return {
        "q": tensor(_QUERIES, query_heads, _DIM),
        "k": tensor(_KEYS, (_KV_HEADS,), _DIM),
        "v": tensor(_KEYS, (_KV_HEADS,), _DIM_V),
        "sinks": (query_heads,),
        "cu_seqlens_q": ((_SUMS,),),
        "cu_seqlens_kv": ((_SUMS,),),
        "o": tensor(_QUERIES, query_heads, _DIM_V),
        "lse": of_lse,
    }


def lengths(problem: AttentionProblem) -> dict[str, int]:
    """The lengths of the factors of a problem's axes."""
    return {
        _BATCH: problem.batch,
        _QUERIES: problem.total_q or problem.seqlen_q,
        _KEYS: problem.total_kv or problem.seqlen_kv,
        _KV_HEADS: problem.num_heads_kv,
        _GROUP: problem.num_heads_q // problem.num_heads_kv,
        _DIM: problem.head_dim,
        _DIM_V: problem.head_dim_v,
        _SUMS: problem.batch + 1,
    }


def resized(problem: AttentionProblem, factors: Mapping[str, int]) -> AttentionProblem:
    """The problem with another batch, or other KV heads with the same query heads per KV head."""
    group = problem.num_heads_q // problem.num_heads_kv
    kv_heads = factors.get(_KV_HEADS, problem.num_heads_kv)
    return dataclasses.replace(
        problem,
        batch=factors.get(_BATCH, problem.batch),
        num_heads_kv=kv_heads,
        num_heads_q=kv_heads * group,
    )


# -- in plain jnp ----------------------------------------------------------------------------------


def _reference(problem: AttentionProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    """Attention in float32. Packed sequences are treated as one with masked keys of the others."""
    q, k, v = (inputs[name].astype(jnp.float32) for name in "qkv")
    if problem.varlen:
        q, k, v = q[None], k[None], v[None]
    elif (variant or "bshd") == "bhsd":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    batch, rows, heads, dim = q.shape
    group = heads // k.shape[2]
    q = q.reshape(batch, rows, heads // group, group, dim)
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k, precision="highest") * problem.softmax_scale
    if problem.softcap:
        scores = problem.softcap * jnp.tanh(scores / problem.softcap)
    visible = _visible(problem, inputs, rows, k.shape[1])
    scores = jnp.where(visible[None, None, None], scores, -jnp.inf)
    sinks = None
    if problem.sinks:
        sinks = inputs["sinks"].astype(jnp.float32).reshape(1, heads // group, group, 1)
    lse, probabilities = _softmax(scores, sinks)
    o = jnp.einsum("bhgqk,bkhe->bqhge", probabilities, v, precision="highest")
    o = o.reshape(batch, rows, heads, v.shape[-1])
    lse = lse.reshape(batch, heads, rows)
    if problem.varlen:
        o, lse = o[0], lse[0]
    elif (variant or "bshd") == "bhsd":
        o = o.swapaxes(1, 2)
    return {"o": o.astype(inputs["q"].dtype), "lse": lse}


def _softmax(scores: jax.Array, sinks: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Log-sum-exp and probabilities; rows without keys have -inf, zeros, and finite gradients."""
    greatest = scores.max(axis=-1)
    if sinks is not None:
        greatest = jnp.maximum(greatest, sinks)
    greatest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(greatest), greatest, 0.0))
    exponentials = jnp.exp(scores - greatest[..., None])
    total = exponentials.sum(axis=-1)
    if sinks is not None:
        total = total + jnp.exp(sinks - greatest)
    some = total > 0
    total = jnp.where(some, total, 1.0)
    lse = jnp.where(some, jnp.log(total) + greatest, -jnp.inf)
    return lse, exponentials / total[..., None]


def _visible(problem: AttentionProblem, inputs: Arrays, rows: int, keys: int) -> jax.Array:
    row, key = jnp.arange(rows)[:, None], jnp.arange(keys)[None, :]
    left, right = problem.window_size
    if problem.causal:
        right = 0
    diagonal: Any = problem.diagonal
    visible = jnp.ones((rows, keys), bool)
    if problem.varlen:
        sums_q, sums_k = inputs["cu_seqlens_q"], inputs["cu_seqlens_kv"]
        of_row = jnp.searchsorted(sums_q, jnp.arange(rows), side="right") - 1
        of_key = jnp.searchsorted(sums_k, jnp.arange(keys), side="right") - 1
        visible = of_row[:, None] == of_key[None, :]
        inside = jnp.clip(of_row, 0, problem.batch - 1)
        diagonal = (sums_k[inside] - sums_q[inside])[:, None]  # rows and keys are packed
        if not problem.top_left:
            diagonal += (jnp.diff(sums_k) - jnp.diff(sums_q))[inside][:, None]
    if left >= 0:
        visible &= key >= row + diagonal - left
    if right >= 0:
        visible &= key <= row + diagonal + right
    return visible


RULES = {
    "attention": Rules(
        specs=specs_of("attention"),
        axes=_axes,
        independent=(_BATCH, _KV_HEADS),
        lengths=lengths,
        resized=resized,
        reference=_reference,
        saving=attention_gradients.saving,
        gradients=attention_gradients.gradients,
    )
}
