"""Attention: check, plan, run."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from amdattn import manifest, runtime
from amdattn.device import DeviceProps, as_device_props
from amdattn.execution import AttentionPlan
from amdattn.interchange import as_view
from amdattn.plan import attention as planning
from amdattn.problem import AttentionProblem, attention_problem


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    *,
    out: Any = None,
    return_lse: bool = False,
    layout: str = "bshd",
    round_mode: str = "rtne",
    num_splits: int = 0,
    stream: Any = None,
) -> Any:
    """Attention forward: ``softmax(softmax_scale * q @ k^T) @ v`` for every batch and head.

    Parameters
    ----------
    q : array, bfloat16, (batch, seqlen_q, num_heads_q, head_dim)
        numpy (with ml_dtypes), `DeviceArray`, or any DLPack array on the CPU or the bound device.
        Any strides, the last one 1; nothing is transposed or made contiguous on the device.
    k, v : array, bfloat16, (batch, seqlen_kv, num_heads_kv, head_dim)
        `num_heads_kv` divides `num_heads_q`: each KV head serves a group of query heads.
    dropout_p : float
        Must be 0.
    softmax_scale : float, optional
        Defaults to ``1 / sqrt(head_dim)``.
    causal, window_size, softcap
        Not built yet: only False, (-1, -1) and 0.
    out : array, optional
        Written instead of a new array; shaped like the result, sharing no memory with the inputs.
    return_lse : bool
        Return ``(out, lse)``.
    layout : {"bshd", "bhsd"}
        Order of the axes of q, k, v and the result.
    round_mode : {"rtne"}
        Rounding of the probabilities to bfloat16 before ``p @ v``.
    num_splits : int
        0 lets the plan choose; splits of the KV range are not built yet.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, bfloat16, (batch, seqlen_q, num_heads_q, head_dim_v)
        Of the kind of `q`.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials; only with `return_lse`.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    q_view, k_view, v_view = inputs = (
        as_view(q, "q", handle),
        as_view(k, "k", handle),
        as_view(v, "v", handle),
    )
    plan = _planned_for(
        q_view.shape,
        k_view.shape,
        v_view.shape,
        layout,
        q_view.dtype.name,
        softmax_scale,
        causal,
        tuple(window_size) if isinstance(window_size, list) else window_size,
        softcap,
        dropout_p,
        round_mode,
        num_splits,
        return_lse,
    )
    return plan.run_on_views(q, inputs, out, None, layout, handle)


# -- planning --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
    layout: str,
    *options: Any,
) -> AttentionPlan:
    """The plan of a call on the bound device; `options` are the values of _OPTIONS."""
    named = dict(zip(_OPTIONS, options, strict=True))
    problem = attention_problem(q_shape, k_shape, v_shape, layout, **named)
    return _planned(problem, runtime.device_props())


_OPTIONS = (
    *("dtype", "softmax_scale", "causal", "window_size", "softcap", "dropout_p", "round_mode"),
    *("num_splits", "return_lse"),
)


@functools.lru_cache(maxsize=1024)
def _planned(problem: AttentionProblem, props: DeviceProps) -> AttentionPlan:
    plan = planning.plan_attention(problem, props, manifest.kernels())
    return AttentionPlan(
        **{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    )


def plan_attention(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> AttentionPlan:
    """Plan an attention call. Pure: no device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        head_dim_v, dtype, softmax_scale, causal, window_size, softcap, dropout_p, round_mode,
        num_splits, return_lse: see `AttentionProblem`.

    Returns
    -------
    AttentionPlan

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = AttentionProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return _planned(problem, as_device_props(device))


def supports(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> manifest.Support:
    """Whether a kernel exists for a well-formed problem; parameters as `plan_attention`.

    Returns
    -------
    Support
        True in a condition if `ok`; else `reason`, and `nearest`: arguments to change.
    """
    problem = AttentionProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return manifest.support(manifest.kernels(), problem, as_device_props(device))


def explain(*args: Any, **kwargs: Any) -> str:
    """The text of `plan_attention(...).explain()`."""
    return plan_attention(*args, **kwargs).explain()
