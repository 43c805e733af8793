"""Attention: check, plan, run."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, overload

from amdattn import call_options, manifest, no_work, runtime, scalars
from amdattn.buffers import View
from amdattn.device import DeviceProps, as_device_props
from amdattn.errors import UnsupportedProblem
from amdattn.execution import AttentionPlan, keep, output_view
from amdattn.interchange import as_view
from amdattn.manifest import KernelSpec
from amdattn.no_work import one_row
from amdattn.plan import attention as planning
from amdattn.plan.basis import basis
from amdattn.problem import (
    LAYOUTS,
    VARLEN_LAYOUT,
    AttentionProblem,
    attention_problem,
    operand_axes,
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
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """Attention forward: ``softmax(softmax_scale * q @ k^T) @ v`` for every batch and head.

    Names, order and meaning of the positional parameters are flash-attn's.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        numpy (with ml_dtypes), `DeviceArray`, or any DLPack array on the CPU or the bound device.
        Any strides that are multiples of 8 elements, the last one 1, addresses of 16 bytes; what
        is not aligned so must be on the host. Nothing is transposed or made contiguous on the
        device, except k or v whose rows lie 2**25 elements or more apart or in the order of falling
        addresses: their rows are copied to memory of the call first.
    k : array, (batch, seqlen_kv, num_heads_kv, head_dim)
        `num_heads_kv` divides `num_heads_q`: each KV head serves a group of query heads.
    v : array, (batch, seqlen_kv, num_heads_kv, head_dim_v)
    dropout_p : float
        Must be 0.
    softmax_scale : float, optional
        Defaults to ``1 / sqrt(head_dim)``.
    causal : bool
        Query i sees keys up to ``i + seqlen_kv - seqlen_q`` (the last query all), as flash-attn
        since 2.1; with `top_left` up to i.
    window_size : (int, int)
        Query i sees `left` keys before and `right` behind the one that `causal` ends with; -1: all.
    softcap : float
        A score s counts as ``softcap * tanh(s / softcap)``; 0: as s.
    alibi_slopes
        Must be None.
    deterministic : bool
        Results always are: the same call gives the same bits.
    return_attn_probs : bool
        Return ``(out, lse, None)``, as flash-attn without dropout does.
    return_lse : bool
        Return ``(out, lse)``.
    sinks : array, float32, (num_heads_q,), optional
        A score of every head, in units of the scaled scores, of a key without a value: it takes
        part in the softmax only.
    top_left : bool
        See `causal`; matters only if seqlen_q and seqlen_kv differ.
    round_mode : {"rtne", "rtna", "rtz"}
        Rounding of the result: to nearest even, to nearest with ties away from zero, or toward
        zero. In ``p @ v`` of bfloat16 arrays p and v are float16, unless a value of v is 4096 or
        more, and with "rtz" bfloat16. All cost about the same. float16: "rtne".
    num_splits : int
        0: the plan splits the KV range where that saves time. 1: never. More: every tile in as many
        parts, so that a row's result does not depend on the other rows of the call.
    layout : {"bshd", "bhsd"}
        Order of the axes of q, k, v and the result.
    out, lse : array, optional
        Written instead of new arrays; shaped like the results, sharing no memory with the inputs.
        `lse` implies `return_lse`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like q, (batch, seqlen_q, num_heads_q, head_dim_v)
        Of the kind of `q`. Rows that see no key are 0.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials; -inf where no key is seen.

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
    views = as_view(q, "q", handle), as_view(k, "k", handle), as_view(v, "v", handle)
    return run(
        q,
        views,
        (),
        layout,
        handle,
        (out, lse, return_lse, return_attn_probs),
        sinks,
        (alibi_slopes, deterministic),
        (softmax_scale, causal, window_size, softcap, dropout_p, round_mode, num_splits, top_left),
    )


def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
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
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """`flash_attn_func` with k and v in one array, which are not copied.

    Parameters
    ----------
    kv : array, (batch, seqlen_kv, 2, num_heads_kv, head_dim)
    """
    handle = runtime.stream_handle(stream)
    views = as_view(q, "q", handle), *unpacked(kv, "kv", "kv", 5, handle)
    return run(
        q,
        views,
        (),
        "bshd",
        handle,
        (out, lse, return_lse, return_attn_probs),
        sinks,
        (alibi_slopes, deterministic),
        (softmax_scale, causal, window_size, softcap, dropout_p, round_mode, num_splits, top_left),
    )


def flash_attn_qkvpacked_func(
    qkv: Any,
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
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """`flash_attn_func` with q, k and v in one array, which are not copied.

    Parameters
    ----------
    qkv : array, (batch, seqlen, 3, num_heads, head_dim)
    """
    handle = runtime.stream_handle(stream)
    views = unpacked(qkv, "qkv", "qkv", 5, handle)
    return run(
        qkv,
        views,
        (),
        "bshd",
        handle,
        (out, lse, return_lse, return_attn_probs),
        sinks,
        (alibi_slopes, deterministic),
        (softmax_scale, causal, window_size, softcap, dropout_p, round_mode, num_splits, top_left),
    )


def unpacked(packed: Any, name: str, parts: str, ndim: int, stream: int) -> tuple[View, ...]:
    """Views of the parts of an array that holds them along its third last axis."""
    view = as_view(packed, name, stream)
    count = len(parts)
    if len(view.shape) != ndim or view.shape[-3] != count:
        leading = "batch, seqlen" if ndim == 5 else "total"
        raise ValueError(
            f"{name} has shape {view.shape}; it must be ({leading}, {count}, num_heads, head_dim)"
        )
    step = view.strides[-3] * view.dtype.itemsize
    shape = view.shape[:-3] + view.shape[-2:]
    strides = view.strides[:-3] + view.strides[-2:]
    return tuple(
        View(
            *(view.address + i * step, shape, strides, view.dtype, view.read_only, view.owner),
            None if view.array is None else view.array[..., i, :, :],
        )
        for i in range(count)
    )


def refuse(argument: str, value: object) -> None:
    """Raise if an argument is given for which there is nothing."""
    if value is not None:
        raise UnsupportedProblem(f"{argument} is not built (have None)")


def run(
    kind: Any,
    views: tuple[View, ...],
    lengths: tuple[View, ...],
    layout: str,
    stream: int,
    results: tuple[Any, Any, bool, bool],
    sinks: Any,
    without_effect: tuple[object, object],
    options: tuple[Any, ...],
    longest: tuple[int, ...] = (),
) -> Any:
    """Plan and run a call; `options` and `longest` are the values of the last names in _OPTIONS."""
    out, lse, return_lse, return_attn_probs = results
    alibi_slopes, deterministic = without_effect
    if alibi_slopes is not None:
        refuse("alibi_slopes", alibi_slopes)
    if not (type(deterministic) is type(return_lse) is type(return_attn_probs) is bool):
        scalars.boolean("deterministic", deterministic)
        return_lse = scalars.boolean("return_lse", return_lse)
        return_attn_probs = scalars.boolean("return_attn_probs", return_attn_probs)
    with_lse = return_lse or return_attn_probs or lse is not None
    inputs = views
    if sinks is not None:
        inputs = *inputs, as_view(sinks, "sinks", stream)
    facts = (
        *(views[0].shape, views[1].shape, views[2].shape, layout, views[0].dtype.name),
        *(with_lse, sinks is not None, lengths[0].shape[0] - 1 if lengths else 0),
        *options,
        *longest,
    )
    is_window = call_options.is_window(options[call_options.WINDOW])
    try:
        if not is_window:
            raise TypeError
        plan = _planned_for("", *facts)
    except (TypeError, ValueError):
        results = out, lse, return_lse, return_attn_probs
        if not (is_window and call_options.are_plain((layout, *options))):
            layout, options = scalars.word("layout", layout), call_options.read(options)
        elif (
            layout == VARLEN_LAYOUT and views[0].shape[0] and facts[_BATCH] and 0 in views[1].shape
        ):
            views = views[0], one_row(views[1]), one_row(views[2])  # which are of no sequence
        elif 0 in views[0].shape or 0 in views[1].shape or (lengths and facts[_BATCH] == 0):
            found = _of_nothing(kind, inputs, lengths, facts, (out, lse), stream)
            return (*found, None) if return_attn_probs else found if with_lse else found[0]
        else:
            raise
        without_effect = alibi_slopes, deterministic
        return run(
            *(kind, views, lengths, layout, stream, results, sinks, without_effect, options),
            longest,
        )
    if gather := plan.to_gather(views[1], views[2], layout):
        plan = _planned_for(gather, *facts)
    result = plan.run_on_views(kind, inputs + lengths, out, lse, layout, stream)
    return (*result, None) if return_attn_probs else result


_SHAPES, _LAYOUT, _BATCH = 3, 3, 7  # places in the facts of a call


def _of_nothing(
    kind: Any,
    inputs: tuple[View, ...],
    lengths: tuple[View, ...],
    facts: tuple[Any, ...],
    given: tuple[Any, Any],
    stream: int,
) -> tuple[Any, Any]:
    """Results of a call without queries, or without keys; every check is made of it, too."""
    layout = facts[_LAYOUT]
    lifted = list(facts)
    lifted[:_SHAPES] = _lifted(facts[:_SHAPES], lengths, layout)
    if lengths:
        lifted[_BATCH] = max(1, lifted[_BATCH])
    plan = _planned_for("", *lifted)
    views = tuple(
        None if x is None else output_view(x, name, stream)
        for name, x in zip(("out", "lse"), given, strict=True)
    )
    named = dict(zip(("q", "k", "v", "sinks"), inputs, strict=False))
    return no_work.results(kind, named, given, views, plan.problem.return_lse, layout, stream)


def _lifted(
    shapes: tuple[tuple[int, ...], ...], lengths: tuple[View, ...], layout: str
) -> tuple[tuple[int, ...], ...]:
    """Shapes of q, k and v that have an axis without elements, one in its place, once they agree.

    The last axis is left: no kernel is for heads of no dimension.
    """
    q, k, v = shapes
    of_q, of_k, _ = operand_axes(q, k, v, layout)
    if (of_q["head"] == 0) != (of_k["head"] == 0):
        raise ValueError(f"num_heads_kv={of_k['head']} must divide num_heads_q={of_q['head']}")
    if lengths and lengths[0].shape != lengths[1].shape:
        raise ValueError(
            f"cu_seqlens_k has shape {lengths[1].shape}; this call needs {lengths[0].shape}"
        )
    return tuple((*(max(1, n) for n in shape[:-1]), shape[-1]) for shape in shapes)


# -- planning --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    gather: str,
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
    layout: str,
    *options: Any,
) -> AttentionPlan:
    """The plan of a call on the bound device; `options` are the values of _OPTIONS.

    Raises
    ------
    TypeError
        Also if a call must not be looked up by these values, which nobody looks up then.
    """
    if not call_options.are_plain((layout, *options)):
        raise TypeError("options must be read first")
    family = None
    if layout in LAYOUTS and len(k_shape) == len(v_shape) == 1 + len(LAYOUTS[layout]):
        seq = LAYOUTS[layout].index("seq")
        if k_shape[seq] == v_shape[seq]:
            rests = *k_shape[:seq], *k_shape[seq + 1 :], *v_shape[:seq], *v_shape[seq + 1 :]
            family = (gather, q_shape, rests, layout, options, tuple(map(type, options)))
            relative = _families.get(family)
            if relative is not None:
                problem, props = relative[0].with_keys(k_shape[seq]), runtime.device_props()
                return _planned_alike(problem, props, relative[1])[0] or _planned(problem, props)
    named = {"gather": gather, **dict(zip(_OPTIONS, options, strict=False))}
    if layout == VARLEN_LAYOUT:
        if "seqlen_q" not in named:
            raise ValueError(f"layout={layout!r} must be one of {tuple(LAYOUTS)}")
    else:
        del named["batch"]
    problem = attention_problem(q_shape, k_shape, v_shape, layout, **named)
    if family is not None:
        keep(_families, family, (problem, manifest.kernels()))
    return _planned(problem, runtime.device_props())


# A problem of each kind of call, calls that differ in the number of keys alone being of one; and of
# problems that are planned alike the first plan.
_families: dict[object, tuple[AttentionProblem, tuple[KernelSpec, ...]]] = {}
_bases: dict[object, AttentionPlan] = {}


_OPTIONS = (
    *("dtype", "return_lse", "sinks", "batch", *call_options.NAMES, "seqlen_q", "seqlen_kv"),
)


@functools.lru_cache(maxsize=1024)
def _planned(problem: AttentionProblem, props: DeviceProps) -> AttentionPlan:
    rows = manifest.kernels()
    made, alike = _planned_alike(problem, props, rows)
    if made is None:
        plan = planning.plan_attention(problem, props, rows)
        made = AttentionPlan(
            **{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        )
        if alike is not None:
            keep(_bases, alike, made)
    return made


def _planned_alike(
    problem: AttentionProblem, props: DeviceProps, rows: tuple[KernelSpec, ...]
) -> tuple[AttentionPlan | None, object]:
    """The plan, if one is known that differs in the number of keys alone; and what is alike."""
    of_problem = basis(problem, rows)
    alike = None if of_problem is None else (of_problem, props)
    base = _bases.get(alike)
    return None if base is None else base.with_keys(problem), alike


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
        num_splits, return_lse, top_left, sinks, total_q, total_kv, gather: see `AttentionProblem`.

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


@overload
def supports(*, device: DeviceProps | str) -> tuple[manifest.Member, ...]: ...


@overload
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
) -> manifest.Support: ...


def supports(*sizes: int, device: DeviceProps | str, **options: Any) -> Any:
    """Whether a kernel exists for a well-formed problem; parameters as `plan_attention`.

    Returns
    -------
    Support
        True in a condition if `ok`; else `reason`, and `nearest`: arguments to change.
    tuple of Member
        Without a problem: every kernel for the device, with the arguments that it takes.
    """
    props = as_device_props(device)
    if not sizes and not options:
        return manifest.members(manifest.kernels(), props)
    problem = AttentionProblem(*sizes, **options)  # type: ignore[arg-type]
    return manifest.support(manifest.kernels(), problem, props)


def explain(*args: Any, **kwargs: Any) -> str:
    """The text of `plan_attention(...).explain()`."""
    return plan_attention(*args, **kwargs).explain()
