"""Attention on arrays of one sequence length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.interchange import Part, as_view
from amdattn.arrays.views import View
from amdattn.device import manifest, runtime
from amdattn.op.signatures import rest_as
from amdattn.op.support import Support
from amdattn.ops.attention import select
from amdattn.ops.attention.call import run
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.options import Arguments
from amdattn.ops.attention.plans import planned
from amdattn.ops.attention.problem import AttentionProblem


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
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """Compute attention: ``softmax(softmax_scale * q @ k^T) @ v`` for every batch entry and head.

    Names, order and meaning of the positional parameters are flash-attn's.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        A numpy array (with ml_dtypes), a `DeviceArray`, or an array of any library with
        ``__dlpack__``, ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the
        host strides are arbitrary; on the device the last one must be 1, others multiples of 8
        elements, and addresses multiples of 16 bytes. Nothing is transposed or made contiguous on
        the device, except k or v whose rows are 2**25 elements or more apart or at descending
        addresses: these rows are copied to memory of the call first. From empty arrays, results are
        empty, or those of rows that see no key.
    k : array, (batch, seqlen_kv, num_heads_kv, head_dim)
        `num_heads_kv` divides `num_heads_q`: each KV head serves a group of query heads.
    v : array, (batch, seqlen_kv, num_heads_kv, head_dim_v)
    dropout_p : float
        Must be 0.
    softmax_scale : float, optional
        Default: ``1 / sqrt(head_dim)``. This and all other numbers and flags may be arrays without
        axes, which are read at every call.
    causal : bool
        Query i sees keys up to ``i + seqlen_kv - seqlen_q`` (the last query sees all), as in
        flash-attn since 2.1; with `top_left`, up to i.
    window_size : (int or None, int or None)
        Query i sees `left` keys before and `right` keys after the last key of `causal`; -1 or None:
        all.
    softcap : float
        Every score s is replaced by ``softcap * tanh(s / softcap)``; 0: no cap.
    alibi_slopes
        Must be None.
    deterministic : bool
        No effect: the same call always gives the same bits.
    return_attn_probs : bool
        Return ``(out, lse, None)``, as flash-attn does without dropout.
    return_lse : bool
        Return ``(out, lse)``.
    sinks : array, float32, (num_heads_q,), optional
        For every head the score of a key without a value, in units of the scaled scores: it takes
        part in the softmax only. A host array is copied to the device of q in every call.
    top_left : bool
        See `causal`; matters only if seqlen_q and seqlen_kv differ.
    round_mode : {"rtne", "rtna", "rtz"}
        Rounding of the result: to nearest even, to nearest with ties away from zero, or toward
        zero. In ``p @ v`` p has the type of the arrays. All take about the same time. float16, and
        architectures with an instruction that converts (gfx950), support only "rtne".
    num_splits : int
        0: the plan splits the KV range if that saves time. 1: never. Otherwise every tile is
        computed in this many parts. With 1 and more, the bits of a row's result do not depend on
        other rows of the call, neither on their contents nor on the batch. They may depend on the
        sequence lengths of the call.
    layout : {"bshd", "bhsd"}
        Order of the axes of q, k, v and the result.
    out, lse : array, optional
        Written instead of new arrays; they have the shapes of the results and must not share memory
        with the inputs. `lse` implies `return_lse`.
    stream : hipStream_t, optional
        An int or a hip-python stream; default: the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like q, (batch, seqlen_q, num_heads_q, head_dim_v)
        An array of the library of `q`. Rows that see no key are 0.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials; -inf for rows that see no key.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel supports this; the message says what is
        supported.
    ValueError, TypeError, BufferError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device has another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    views = as_view(q, "q", handle), as_view(k, "k", handle), as_view(v, "v", handle)
    asked = Arguments(
        *(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic),
        *(return_attn_probs, return_lse, sinks, top_left, round_mode, num_splits, out, lse, stream),
    )
    return run(q, views, layout, asked, handle)


@rest_as(flash_attn_func, "k", "v", "layout")
def flash_attn_kvpacked_func(q: Any, kv: Any, *rest: Any, **options: Any) -> Any:
    """`flash_attn_func` with k and v in one array, which are not copied.

    Parameters
    ----------
    kv : array, (batch, seqlen_kv, 2, num_heads_kv, head_dim)
    """
    return flash_attn_func(q, *parts("kv", kv, 5, options), *rest, **options)


@rest_as(flash_attn_func, "q", "k", "v", "layout")
def flash_attn_qkvpacked_func(qkv: Any, *rest: Any, **options: Any) -> Any:
    """`flash_attn_func` with q, k and v in one array, which are not copied.

    Parameters
    ----------
    qkv : array, (batch, seqlen, 3, num_heads, head_dim)
    """
    q, k, v = parts("qkv", qkv, 5, options)
    return flash_attn_func(Part(q, qkv), k, v, *rest, **options)


def parts(name: str, packed: Any, ndim: int, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of an array that has one per letter of its name along its third last axis."""
    view = as_view(packed, name, runtime.stream_handle(options.get("stream")))
    count = len(name)
    if len(view.shape) != ndim or view.shape[-3] != count:
        leading = "batch, seqlen" if ndim == 5 else "total"
        raise ValueError(
            f"{name} has shape {view.shape}; it must be ({leading}, {count}, num_heads, head_dim)"
        )
    step = view.strides[-3] * view.dtype.itemsize
    shape = view.shape[:-3] + view.shape[-2:]
    strides = view.strides[:-3] + view.strides[-2:]
    return tuple(
        [
            View(
                *(view.address + i * step, shape, strides, view.dtype, view.read_only, view.owner),
                None if view.array is None else view.array[..., i, :, :],
                view.ordinal,
            )
            for i in range(count)
        ]
    )


# -- planning --------------------------------------------------------------------------------------


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
        With `total_q` and `total_kv`: the number of sequences and the greatest lengths.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        head_dim_v, dtype, softmax_scale, causal, window_size, softcap, dropout_p, round_mode,
        num_splits, return_lse, top_left, sinks, total_q, total_kv, gather,
        gaps: see `AttentionProblem`.

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
    return planned(problem, as_device_props(device))


@overload
def supports(*, device: DeviceProps | str) -> tuple[select.Member, ...]: ...


@overload
def supports(*sizes: int, device: DeviceProps | str, **options: Any) -> Support: ...


def supports(*sizes: int, device: DeviceProps | str, **options: Any) -> Any:
    """Whether a kernel exists for a well-formed problem; parameters are those of `plan_attention`.

    Returns
    -------
    Support
        True as a condition if `ok`. Otherwise `reason` says why, and `nearest` which arguments to
        change.
    tuple of Member
        Without a problem: every kernel for the device, with the arguments that it supports.
    """
    props = as_device_props(device)
    if not sizes and not options:
        return select.members(manifest.kernels(), props)
    problem = AttentionProblem(*sizes, **options)  # type: ignore[arg-type]
    return select.support(manifest.kernels(), problem, props)


def explain(*args: Any, **kwargs: Any) -> str:
    """The text of `plan_attention(...).explain()`."""
    return plan_attention(*args, **kwargs).explain()
