"""Attention over a cache in JAX, where arrays are immutable: caches are arguments and results."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from amdattn import scalars
from amdattn.jax.arguments import as_arrays, is_at_hand, private
from amdattn.jax.differentiation import apply
from amdattn.jax.rules import rules
from amdattn.op.signatures import rest_as
from amdattn.ops import registry
from amdattn.ops.cache_attention import functions
from amdattn.ops.cache_attention.calls import (
    INDICES,
    SCALES,
    CacheArguments,
    CacheKey,
    declared,
    problem_of,
)
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.indices import IndexCheck, check_pages
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.quantized import BYTES
from amdattn.scalars import INT32_MAX, INT32_MIN


@rest_as(functions.flash_attn_with_kvcache, "out", "lse", "stream")
def flash_attn_with_kvcache(*arrays: Any, **options: Any) -> Any:
    """`amdattn.flash_attn_with_kvcache` in JAX; parameters as there.

    Parameters
    ----------
    k_cache, v_cache : array
        They are not written; the caches with k and v appended are returned. Under `jit`, donated
        caches are written in place, and others are copied first.
    cache_seqlens, cache_batch_idx, cache_leftpad, block_table : array of integers, optional
        May be traced, so that they can change from step to step of one program. Indices whose
        values are known on the host are checked. Kernels treat others that are out of range as
        docs/decode.md says: they name nothing. cache_seqlens may be an int.

    Returns
    -------
    out, or a tuple
        ``(out, lse, k_cache, v_cache)``, without `lse` unless `return_softmax_lse`, and without the
        caches unless k and v are given.
    """
    asked = CacheArguments(*arrays, **options)
    lengths = asked.cache_seqlens
    if isinstance(lengths, int) and not isinstance(lengths, bool):
        asked = asked._replace(cache_seqlens=np.full(np.shape(asked.q)[:1], lengths))
    given = asked.arrays
    as_arrays(**given)
    if given["k_cache"].dtype == BYTES:
        raise TypeError(
            f"k_cache has dtype {BYTES}; JAX has types for 8-bit floats: bitcast it to one "
            "(jax.lax.bitcast_convert_type)"
        )
    with_lse = scalars.boolean("return_softmax_lse", asked.return_softmax_lse)
    longest = declared("max_seqlen_k", asked.max_seqlen_k)
    tensors = {name: x for name, x in given.items() if x is not None}
    problem = problem_of(CacheKey.of(tensors, given, asked.options.read(), with_lse, longest))
    given |= {name: private(given[name]) for name in INDICES}
    _check_indices(given, problem)
    results = _decode(
        tuple(x for x in given.values() if x is not None),
        names=tuple(name for name, x in given.items() if x is not None),
        problem=problem,
    )
    return results if len(results) > 1 else results[0]


def _check_indices(given: Mapping[str, Any], problem: DecodeProblem) -> None:
    """Check indices that can be read without waiting: sequences, rows and pages must exist."""
    specs = registry.operation(_operation(problem)).specs(problem)
    at_hand = {
        name: np.asarray(given[name])
        for name, spec in specs.items()
        if isinstance(spec.host_check, IndexCheck) and spec.present and is_at_hand(given[name])
    }
    for name, values in at_hand.items():
        check = specs[name].host_check
        assert check is not None
        check(values, name, None, 0)
    if "block_table" in at_hand:
        check_pages({**given, **at_hand}, problem)


@functools.partial(jax.jit, static_argnames=("names", "problem"))
def _decode(
    arrays: tuple[jax.Array, ...], *, names: tuple[str, ...], problem: DecodeProblem
) -> tuple[jax.Array, ...]:
    given = dict(zip(names, arrays, strict=True))
    for name in INDICES:
        if name in given:
            if not jnp.issubdtype(given[name].dtype, jnp.integer):
                raise ValueError(f"{name} has dtype {given[name].dtype}; it must be of integers")
            given[name] = _as_int32(given[name])
    for name in SCALES:
        if name in given:
            heads = problem.num_heads_kv
            if given[name].shape not in ((), (1,), (heads,), (heads, 1)):
                raise ValueError(
                    f"{name} has shape {given[name].shape}; it must be ({heads},), (1,) or ()"
                )
            given[name] = jnp.broadcast_to(given[name].reshape(-1, 1), (heads, 1))
    operation = _operation(problem)
    signature = rules(operation).signature(problem, "")
    return apply(operation, problem, "", None, *(given[spec.name] for spec in signature.inputs))


def _as_int32(x: jax.Array) -> jax.Array:
    """Convert to int32; values out of range become its limits, which are no other index."""
    least = max(int(jnp.iinfo(x.dtype).min), INT32_MIN)
    if jnp.iinfo(x.dtype).max > INT32_MAX:
        x = jnp.clip(x, jnp.asarray(least, x.dtype), jnp.asarray(INT32_MAX, x.dtype))
    return x.astype(jnp.int32)


def _operation(problem: DecodeProblem) -> str:
    return "prefill" if isinstance(problem, PrefillProblem) else "decode"
