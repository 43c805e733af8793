"""Attention on a sequence that is cut along a mesh axis, inside `jax.shard_map`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from amdattn import scalars
from amdattn.errors import UnsupportedProblem
from amdattn.jax.arguments import as_arrays
from amdattn.jax.attention import flash_attn_func
from amdattn.jax.context_parallel.blocks import Attention
from amdattn.jax.context_parallel.methods import METHODS
from amdattn.jax.context_parallel.order import ORDERS, zigzag_order
from amdattn.jax.differentiation import check, differentiable
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import AttentionProblem, attention_problem

__all__ = ["context_parallel_attention", "zigzag_order"]


@differentiable
def context_parallel_attention(
    q: Any,
    k: Any,
    v: Any,
    axis_name: Any,
    method: str = "ring",
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    order: str = "contiguous",
    return_lse: bool = False,
    implementation_backward: str | None = None,
) -> Any:
    """Attention on a sequence whose rows are distributed along a mesh axis, in `jax.shard_map`.

    `docs/context-parallelism.md` says which method to choose, and what each one transfers.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q / n, num_heads_q, head_dim)
        The rows of this device; there are n devices along the axis.
    k, v : array, like q, (batch, seqlen_kv / n, num_heads_kv, head_dim)
        With a mask they must have as many rows as q.
    axis_name : str or tuple of str
        The mesh axis, or axes, along which `shard_map` cuts the sequence.
    method : {"ring", "all_gather", "ulysses"}
        "ring": keys and values travel from neighbour to neighbour while each device computes
        attention on those that it has; `merge_state` merges partial results two at a time in
        float32, so that there is one running result for any number of devices. "all_gather": every
        device gets all keys and values. "ulysses": every device gets the whole sequence for its
        share of the heads; n must divide num_heads_q, and one of n and num_heads_kv the other. If
        there are fewer KV heads than devices, they are repeated before they are sent.
    causal, window_size, softmax_scale, softcap
        See `amdattn.flash_attn_func`; Python values that refer to the whole sequence.
    order : {"contiguous", "zigzag"}
        Which rows of q, k, v and the results a device has. "contiguous": device i has part i of n.
        "zigzag": device i has chunks i and 2 n - 1 - i of 2 n, see `zigzag_order`; a shard must
        then have an even number of rows. With a causal mask without a window "ring" and
        "all_gather" compute in zig-zag order, so that all devices have equal work: contiguous
        shards are exchanged first, and results exchanged back. Contiguous shards of odd length stay
        where they are, and the last device has the most work.
    return_lse : bool
        Return (o, lse).
    implementation_backward : {None, "xla"}
        See `amdattn.jax.flash_attn_func`; XLA differentiates the merges. Everything that the
        gradient of a step needs is kept, so "ring" takes as much memory as "all_gather".

    Returns
    -------
    o : array, like q
        This device's rows; its last axis is that of v.
    lse : array, float32, (batch, num_heads_q, seqlen_q / n)
        Only with `return_lse`.

    Raises
    ------
    UnsupportedProblem
        No kernel, or not this method, supports the problem; the message names the argument.
    ValueError, TypeError
        Malformed input, or `axis_name` is not an axis that `shard_map` maps over.
    """
    return _attention(
        *as_arrays(q=q, k=k, v=v),
        axis_name=_axes(axis_name),
        method=method,
        causal=causal,
        window_size=scalars.window("window_size", window_size),
        softmax_scale=softmax_scale,
        softcap=softcap,
        order=order,
        return_lse=return_lse,
        implementation_backward=implementation_backward,
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        *("axis_name", "method", "causal", "window_size", "softmax_scale", "softcap", "order"),
        *("return_lse", "implementation_backward"),
    ),
)
def _attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    axis_name: Any,
    method: str,
    order: str,
    return_lse: bool,
    implementation_backward: str | None,
    **options: Any,
) -> Any:
    num_devices = _num_devices(axis_name)
    for name, value, known in (("method", method, tuple(METHODS)), ("order", order, ORDERS)):
        if scalars.word(name, value) not in known:
            raise ValueError(f"{name}={value!r} must be one of {known}")
    return_lse = scalars.boolean("return_lse", return_lse)
    backward = check(implementation_backward)
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        # All shards have the same shape, so all of them are empty.
        return flash_attn_func(q, k, v, return_lse=return_lse)
    local = attention_problem(
        *(q.shape, k.shape, v.shape, "bshd"), dtype=q.dtype, **Options(**options).read()._asdict()
    )
    whole = dataclasses.replace(
        local, seqlen_q=local.seqlen_q * num_devices, seqlen_kv=local.seqlen_kv * num_devices
    )
    _check(local, whole.window != (-1, -1), order)
    assert whole.softmax_scale is not None
    attention = Attention(whole.window, whole.softmax_scale, whole.softcap, backward)
    o, lse = METHODS[method](q, k, v, attention, axis_name, order)
    return (o, lse) if return_lse else o


def _axes(axis_name: Any) -> str | tuple[str, ...]:
    if isinstance(axis_name, str):
        return axis_name
    if isinstance(axis_name, (tuple, list)) and all(isinstance(name, str) for name in axis_name):
        return tuple(axis_name)
    raise TypeError(f"axis_name={axis_name!r} must be a str, or a tuple of them")


def _num_devices(axis_name: Any) -> int:
    try:
        return int(jax.lax.axis_size(axis_name))
    except NameError:
        raise ValueError(
            f"axis_name={axis_name!r} is no axis that is mapped over here: call "
            "context_parallel_attention inside jax.shard_map, with the name of the mesh axis that "
            "cuts the sequence"
        ) from None


def _check(local: AttentionProblem, is_masked: bool, order: str) -> None:
    if is_masked and local.seqlen_q != local.seqlen_kv:
        raise UnsupportedProblem(
            f"q has {local.seqlen_q} rows on each device, k has {local.seqlen_kv}; with "
            f"causal={local.causal} and window_size={local.window_size} they must be equal"
        )
    for name, rows in (("q", local.seqlen_q), ("k", local.seqlen_kv)):
        if order == "zigzag" and rows % 2:
            raise ValueError(
                f"{name} has {rows} rows on each device; with order='zigzag' it must be an even "
                "number, of two chunks"
            )
