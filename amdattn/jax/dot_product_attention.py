"""`jax.nn.dot_product_attention` with this package's kernels."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from amdattn import scalars
from amdattn.errors import UnsupportedProblem
from amdattn.jax.arguments import as_arrays
from amdattn.jax.differentiation import apply, check, differentiable
from amdattn.jax.padded_attention import PaddedProblem
from amdattn.ops.attention.problem import attention_problem

_IMPLEMENTATIONS = (None, "xla")
_WAY_OUT = 'implementation="xla" computes it without amdattn\'s kernels'
_HAS_RESIDUAL = "return_residual" in inspect.signature(jax.nn.dot_product_attention).parameters
_MASKED = -0.7 * float(jnp.finfo(jnp.float32).max)  # jax.nn's value of a masked score


@differentiable
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    implementation_backward: str | None = None,
) -> Any:
    """`jax.nn.dot_product_attention` by kernels, with the same names, defaults and results.

    Parameters
    ----------
    query : array, bfloat16 or float16, (B, T, N, H) or (T, N, H)
    key, value : array, like query, (B, S, K, H) or (S, K, H)
        K divides N.
    bias, mask
        Must be None: no kernel supports them.
    scale : float, optional
        A Python number; default: 1 / sqrt(H).
    is_causal : bool
        Query i sees keys up to i, even if T and S differ. (In `flash_attn_func` the last query sees
        the last key.)
    query_seq_lengths, key_value_seq_lengths : array, int32, (B,), optional
        Lengths of sequences. Results of queries beyond are 0. May be traced.
    local_window_size : int or (int, int), optional
        Keys that a query sees before and after its own position, each >= 0.
    implementation : {None, "xla"}
        "xla": call `jax.nn.dot_product_attention` itself.
    return_residual : bool
        Also return the log-sum-exp, (B, T, N), with the dtype of `key`; no gradient flows through
        it.
    implementation_backward : {None, "xla"}
        None: gradients by kernels. "xla": in float32, by XLA.

    Returns
    -------
    array, like query
        A query that sees no key gets the mean of all S values, as in jax.nn.

    Raises
    ------
    UnsupportedProblem
        No kernel supports this; the message names the argument.
    ValueError, TypeError
        Malformed input.
    """
    if implementation not in _IMPLEMENTATIONS:
        raise ValueError(f"implementation={implementation!r} must be one of {_IMPLEMENTATIONS}")
    check(implementation_backward)
    is_causal = scalars.boolean("is_causal", is_causal)
    return_residual = scalars.boolean("return_residual", return_residual)
    lengths = {
        name: jnp.asarray(x, jnp.int32) if isinstance(x, (list, tuple)) else x
        for name, x in (
            ("query_seq_lengths", query_seq_lengths),
            ("key_value_seq_lengths", key_value_seq_lengths),
        )
    }
    if implementation == "xla":
        residual = {"return_residual": True} if return_residual else {}
        if residual and not _HAS_RESIDUAL:
            raise UnsupportedProblem(
                f"return_residual=True: jax.nn of JAX {jax.__version__} has none; use JAX 0.8.3"
            )
        if local_window_size is not None and mask is None:
            # jax.nn of JAX 0.7 ignores a window without a mask.
            mask = jnp.ones((1, 1, 1, 1), bool)
        return jax.nn.dot_product_attention(
            *(query, key, value, bias, mask),
            scale=scale,
            is_causal=is_causal,
            local_window_size=local_window_size,
            implementation="xla",
            **lengths,
            **residual,
        )
    for name, array in (("bias", bias), ("mask", mask)):
        if array is not None:
            raise UnsupportedProblem(f"no kernel takes {name} (have None); {_WAY_OUT}")
    return _padded(
        *as_arrays(query=query, key=key, value=value, **lengths),
        scale=_scale(scale),
        is_causal=is_causal,
        window=_window(local_window_size),
        return_residual=return_residual,
        implementation_backward=implementation_backward,
    )


@functools.partial(
    jax.jit,
    static_argnames=("scale", "is_causal", "window", "return_residual", "implementation_backward"),
)
def _padded(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_lengths: jax.Array | None,
    key_lengths: jax.Array | None,
    *,
    scale: float | None,
    is_causal: bool,
    window: tuple[int, int],
    return_residual: bool,
    implementation_backward: str | None,
) -> Any:
    backward = implementation_backward
    shape = query.shape
    query, key, value = (
        _with_batch(x, name) for x, name in zip((query, key, value), _NAMES, strict=True)
    )
    left, right = window
    _check(query, key, value)
    if 0 in query.shape or 0 in key.shape:
        return _of_nothing(query, key, value, scale, is_causal, window, shape, return_residual)
    batch, rows = query.shape[:2]
    keys = key.shape[1]
    for name, lengths in (
        ("query_seq_lengths", query_lengths),
        ("key_value_seq_lengths", key_lengths),
    ):
        if lengths is not None and (lengths.shape != (batch,) or lengths.dtype != jnp.int32):
            raise ValueError(
                f"{name} has shape {lengths.shape} and dtype {lengths.dtype}; it must be "
                f"({batch},), int32"
            )
    problem = attention_problem(
        *(query.shape, key.shape, value.shape, "bshd"),
        dtype=query.dtype,
        softmax_scale=scale,
        causal=is_causal,
        window_size=(left, right),
        top_left=True,
        return_lse=return_residual,
    )
    lengths = [x for x in (query_lengths, key_lengths) if x is not None]
    if lengths:
        padded = PaddedProblem(problem, query_lengths is not None, key_lengths is not None)
        results = apply("padded_attention", padded, "", backward, query, key, value, *lengths)
    else:
        results = apply("attention", problem, "bshd", backward, query, key, value)
    out = results[0]
    # Only these queries may see no key; all others see at least that of their own position.
    empty = None
    if key_lengths is not None or 0 <= left < rows - keys:
        row = jnp.arange(rows)[None, :]
        given = keys if key_lengths is None else jnp.clip(key_lengths, 0, keys)
        ends = jnp.broadcast_to(given, batch)[:, None]
        empty = jnp.broadcast_to(ends <= 0, (batch, rows))
        if left >= 0:
            empty |= row - left >= ends
        mean = value.astype(jnp.float32).mean(axis=1, keepdims=True)
        mean = jnp.repeat(mean, query.shape[2] // value.shape[2], axis=2).astype(out.dtype)
        of_empty = mean
        if query_lengths is not None:
            is_query = row < query_lengths[:, None]
            of_empty = jnp.where(is_query[..., None, None], mean, 0)
        out = jnp.where(empty[..., None, None], of_empty, out)
    out = out.reshape(shape)
    if not return_residual:
        return out
    residual = jnp.where(results[1] == -jnp.inf, _MASKED, results[1])
    residual = jax.lax.stop_gradient(residual.swapaxes(1, 2)).astype(key.dtype)
    return out, residual.reshape(shape[:-1])


def _of_nothing(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    scale: float | None,
    is_causal: bool,
    window: tuple[int, int],
    shape: tuple[int, ...],
    return_residual: bool,
) -> Any:
    """Results without elements, or zeros as in jax.nn if there are no keys."""

    def lifted(x: jax.Array) -> tuple[int, ...]:
        return (*(max(1, n) for n in x.shape[:-1]), x.shape[-1])

    if (query.shape[2] == 0) != (key.shape[2] == 0):
        raise ValueError(f"num_heads_kv={key.shape[2]} must divide num_heads_q={query.shape[2]}")
    attention_problem(  # for its checks
        *(lifted(query), lifted(key), lifted(value), "bshd"),
        dtype=query.dtype,
        softmax_scale=scale,
        causal=is_causal,
        window_size=window,
        top_left=True,
        return_lse=return_residual,
    )
    out = jnp.zeros(shape, query.dtype)
    return (out, jnp.full(shape[:-1], -jnp.inf, key.dtype)) if return_residual else out


_NAMES = ("query", "key", "value")


def _with_batch(x: jax.Array, name: str) -> jax.Array:
    if x.ndim not in (3, 4):
        raise ValueError(f"{name} has shape {x.shape}; it must have 3 or 4 dimensions")
    return x[None] if x.ndim == 3 else x


def _scale(scale: Any) -> float | None:
    if isinstance(scale, jax.core.Tracer):
        raise UnsupportedProblem(f"scale is traced; kernels take a number of Python; {_WAY_OUT}")
    return scalars.optional_number("scale", scale)


def _window(window: Any) -> tuple[int, int]:
    if window is None:
        return -1, -1
    of_both = isinstance(window, int) and not isinstance(window, bool)
    pair = scalars.window("local_window_size", (window, window) if of_both else window)
    if min(pair) < 0:
        raise UnsupportedProblem(
            f"local_window_size={window}: kernels take widths >= 0 to both sides; {_WAY_OUT}"
        )
    return pair


def _check(query: jax.Array, key: jax.Array, value: jax.Array) -> None:
    if value.shape != key.shape:
        raise ValueError(f"value has shape {value.shape}; key has {key.shape}")
    if query.shape[0] != key.shape[0] or query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query and key have shapes {query.shape} and {key.shape}; B and H must be equal"
        )
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dtype != query.dtype:
            raise ValueError(f"{name} has dtype {x.dtype}; query has {query.dtype}")
        if x.dtype not in (jnp.bfloat16, jnp.float16):
            raise UnsupportedProblem(
                f"{name} has dtype {x.dtype}; kernels take bfloat16 and float16; {_WAY_OUT}"
            )
