"""flash-attn's functions in JAX: under jit and its transformations, or outside."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from amdattn import scalars
from amdattn.errors import UnsupportedProblem
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check
from amdattn.ops.attention.call import refuse
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import VARLEN_LAYOUT, attention_problem, axis_order

_STATIC = (
    *("dropout_p", "softmax_scale", "causal", "window_size", "softcap", "round_mode"),
    *("num_splits", "top_left", "return_lse", "layout", "implementation_backward"),
)


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_lse: bool = False,
    sinks: Any = None,
    top_left: bool = False,
    round_mode: str = "rtne",
    num_splits: int = 0,
    layout: str = "bshd",
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.flash_attn_func` in JAX; parameters and results as there.

    Parameters
    ----------
    q, k, v : array, bfloat16 or float16
        All other parameters but `sinks` are of Python, not traced.
    implementation_backward : {None, "xla"}
        None: differentiating raises UnsupportedProblem, there is no backward kernel yet. "xla":
        the gradient of the same computation in float32, by XLA, from q, k and v.
    """
    refuse("alibi_slopes", alibi_slopes)
    for name, value in (("deterministic", deterministic), ("return_attn_probs", return_attn_probs)):
        scalars.boolean(name, value)
    results = _dense(
        *as_arrays(q=q, k=k, v=v, sinks=sinks),
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=scalars.pair("window_size", window_size),
        softcap=softcap,
        round_mode=round_mode,
        num_splits=num_splits,
        top_left=top_left,
        return_lse=return_lse or return_attn_probs,
        layout=layout,
        implementation_backward=implementation_backward,
    )
    if return_attn_probs:
        return (*results, None)
    return results


@functools.partial(jax.jit, static_argnames=_STATIC)
def _dense(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    sinks: jax.Array | None,
    *,
    return_lse: bool,
    layout: str,
    implementation_backward: str | None,
    **options: Any,
) -> Any:
    backward = check(implementation_backward)
    return_lse = scalars.boolean("return_lse", return_lse)
    order = axis_order(layout)
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        return _of_nothing(q, k, v, sinks, order, layout, return_lse)
    problem = attention_problem(
        *(q.shape, k.shape, v.shape, layout),
        dtype=q.dtype,
        return_lse=return_lse,
        sinks=sinks is not None,
        **Options(**options).read()._asdict(),
    )
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    results = apply("attention", problem, layout, backward, *inputs)
    return results if return_lse else results[0]


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: None = None,
    *,
    return_lse: bool = False,
    sinks: Any = None,
    top_left: bool = False,
    round_mode: str = "rtne",
    num_splits: int = 0,
    implementation_backward: str | None = None,
) -> Any:
    """`amdattn.flash_attn_varlen_func` in JAX; parameters and results as there.

    Parameters
    ----------
    cu_seqlens_q, cu_seqlens_k : array, int32, (num_sequences + 1,)
        May be traced, and are then checked by nobody: a wrong sum reads or writes beyond the
        tensors. The last ones are `total_q` and `total_kv`, or rows behind them are not written.
    max_seqlen_q, max_seqlen_k : int
        Of Python.
    implementation_backward : {None, "xla"}
        See `flash_attn_func`.
    """
    refuse("block_table", block_table)
    refuse("alibi_slopes", alibi_slopes)
    for name, value in (("deterministic", deterministic), ("return_attn_probs", return_attn_probs)):
        scalars.boolean(name, value)
    results = _varlen(
        *as_arrays(
            q=q, k=k, v=v, sinks=sinks, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k
        ),
        longest=(max_seqlen_q, max_seqlen_k),
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=scalars.pair("window_size", window_size),
        softcap=softcap,
        round_mode=round_mode,
        num_splits=num_splits,
        top_left=top_left,
        return_lse=return_lse or return_attn_probs,
        implementation_backward=implementation_backward,
    )
    if return_attn_probs:
        return (*results, None)
    return results


@functools.partial(jax.jit, static_argnames=(*_STATIC, "longest"))
def _varlen(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    sinks: jax.Array | None,
    cu_seqlens_q: jax.Array,
    cu_seqlens_k: jax.Array,
    *,
    longest: tuple[int, int],
    return_lse: bool,
    implementation_backward: str | None,
    **options: Any,
) -> Any:
    backward = check(implementation_backward)
    return_lse = scalars.boolean("return_lse", return_lse)
    for name, sums in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if sums.dtype != jnp.int32 or sums.ndim != 1 or sums.shape != cu_seqlens_q.shape:
            raise ValueError(
                f"{name} has dtype {sums.dtype} and shape {sums.shape}; it must be int32, "
                "(num_sequences + 1,), as long as the other one"
            )
    order = axis_order(VARLEN_LAYOUT)
    num_sequences = cu_seqlens_q.shape[0] - 1
    if num_sequences < 1 or 0 in q.shape or 0 in k.shape or 0 in v.shape:
        return _of_nothing(q, k, v, sinks, order, VARLEN_LAYOUT, return_lse)
    problem = attention_problem(
        *(q.shape, k.shape, v.shape, VARLEN_LAYOUT),
        batch=num_sequences,
        seqlen_q=max(1, scalars.integer("max_seqlen_q", longest[0])),
        seqlen_kv=max(1, scalars.integer("max_seqlen_k", longest[1])),
        dtype=q.dtype,
        return_lse=return_lse,
        sinks=sinks is not None,
        **Options(**options).read()._asdict(),
    )
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    results = apply(
        *("attention", problem, VARLEN_LAYOUT, backward),
        *(*inputs, cu_seqlens_q, cu_seqlens_k),
    )
    return results if return_lse else results[0]


def _of_nothing(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    sinks: jax.Array | None,
    order: tuple[str, ...],
    layout: str,
    return_lse: bool,
) -> Any:
    """Results without elements, or of rows that see no key."""
    if q.ndim != len(order) + 1 or k.ndim != q.ndim or v.ndim != q.ndim:
        raise ValueError(
            f"q, k and v have shapes {q.shape}, {k.shape}, {v.shape}, not of {layout!r}"
        )
    if 0 in (q.shape[-1], v.shape[-1]):
        raise UnsupportedProblem(f"head_dim={q.shape[-1]} and head_dim_v={v.shape[-1]} must be > 0")
    o = jnp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    if not return_lse:
        return o
    axes = dict(zip(order, q.shape, strict=False))
    shape = [axes[axis] for axis in ("batch", "head", "seq") if axis in axes]
    lse = jnp.full(shape, -jnp.inf, jnp.float32)
    return o, lse if sinks is None else jnp.broadcast_to(sinks[:, None], shape)
