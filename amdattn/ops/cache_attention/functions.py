"""Attention over a cache of keys and values: check, plan, run."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import View
from amdattn.device import manifest, runtime
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.mismatch import Support, all_allowed
from amdattn.ops.cache_attention import decode_planning as planning, no_work
from amdattn.ops.cache_attention.calls import CacheCall, CacheKey, CacheOptions, problem_of
from amdattn.ops.cache_attention.decode_plan import DecodePlan
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.ragged import planned as prefill_planned

_OPTIONS = CacheOptions._fields


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    kv_layout: str = "NHD",
    k_descale: Any = None,
    v_descale: Any = None,
    max_seqlen_k: int | None = None,
    sinks: Any = None,
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """Attention of queries of every sequence over a cache, to which keys may be appended.

    Names, order and meaning of the positional parameters are flash-attn's. Of up to 16 queries a
    sequence one launch appends, turns and attends; of more (chunks of prompts) one appends, turns
    and copies pages to rows, and others attend. The lengths are read on the device. With int32
    arrays in device memory a step plans and waits for nothing; results that are not given and
    scratch memory are of the cache.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        Of any kind that `flash_attn_func` takes. In device memory of q, the caches, k, v and out
        rows begin at multiples of 16 bytes.
    k_cache : array, like q, (batch_cache, seqlen_cache, num_heads_kv, head_dim)
        With `block_table` (num_pages, page_size, num_heads_kv, head_dim), page_size a multiple of
        16 up to 256. What lies behind the keys of a sequence is not looked at. Elements may be
        the device's 8-bit floats, too (float8_e4m3fnuz on gfx942, float8_e4m3fn on gfx950), or
        these as uint8.
    v_cache : array, like q, shaped like k_cache, of head_dim_v
    k, v : array, like q, (batch, seqlen_new, num_heads_kv, head_dim or head_dim_v), optional
        Written to the caches from position ``cache_seqlens[b]`` on, before the queries attend. The
        caches must be in device memory then.
    rotary_cos, rotary_sin : array, like q or float32, (positions, rotary_dim / 2), optional
        With them k and q are turned: row i of k by the angles of position ``cache_seqlens[b] + i``;
        of q, too, if `causal` or a window is given, else all by those of ``cache_seqlens[b]``.
    cache_seqlens : int, or array of int32 or int64, (batch,), optional
        Keys that the cache has of each sequence before; an int: of all. None: it is full. In device
        memory a sequence whose length is out of range has no keys: nothing is appended, out is 0.
    cache_batch_idx : array of int32 or int64, (batch,), optional
        Which sequence of the caches each of q's is. Without: the same. With k no two are. In device
        memory as `cache_seqlens` if out of range.
    cache_leftpad : array of int32 or int64, (batch,), optional
        Positions at the begin of each sequence that no query sees.
    block_table : array of int32 or int64, (batch, pages of a sequence), optional
        Position p of sequence b lies in page ``block_table[b, p // page_size]``. Entries of which
        no query sees a key are not looked at; several may name one page. In device memory what no
        page is, such as -1, is not written to, and queries that see a key of it are NaN.
    softmax_scale : float, optional
        Defaults to ``1 / sqrt(head_dim)``.
    causal : bool
        Query i sees keys up to ``i + L - seqlen_q`` of the L that there are, appended ones among
        them: the last query all.
    window_size : (int or None, int or None)
        Query i sees `left` keys before and `right` behind that one; -1 or None: all.
    softcap : float
        A score s counts as ``softcap * tanh(s / softcap)``; 0: as s.
    rotary_interleaved : bool
        Pairs are channels 2i and 2i + 1; else i and i + rotary_dim / 2.
    alibi_slopes
        Must be None.
    num_splits : int
        0: workgroups share the keys of all sequences evenly, by their true lengths. More: every
        tile of queries in as many parts, so that a sequence's result does not depend on the others
        of the call. 1: in one.
    return_softmax_lse : bool
        Return ``(out, lse)``.
    kv_layout : {"NHD", "packed", "shuffled"}
        How pages lie. "packed", as vLLM's: k_cache (num_pages, num_heads_kv, head_dim / x,
        page_size, x), x elements being 16 bytes, and v_cache (num_pages, num_heads_kv, head_dim_v,
        page_size). "shuffled", as AITER's: v_cache (num_pages, num_heads_kv, page_size / x,
        head_dim_v, x) instead. head_dim is a multiple of x then.
    k_descale, v_descale : float, or array of float32, (num_heads_kv,) or (1,), optional
        Or, as FlashAttention-3 has them, (batch, num_heads_kv) with equal rows: on the device of
        stride 0. What elements of a cache of 8-bit floats are to be multiplied by; of a row that is
        appended what it is divided by, in float32 by a product with its inverse. Quotients beyond
        the greatest number become it. None: 1. Arrays on the host are copied in every call.
    max_seqlen_k : int, optional
        No sequence has more keys, those of k among them: what memory for copies of pages is for,
        which more than 16 queries need. None: as many as the cache has room for.
    sinks : array, float32, (num_heads_q,), optional
        A score of every head of a key without a value, as `flash_attn_func` takes it.
    out, lse : array, optional
        Written instead of new arrays; `lse` implies `return_softmax_lse`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream.

    Returns
    -------
    out : array, like q, (batch, seqlen_q, num_heads_q, head_dim_v)
        Rows that see no key are 0.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials, the sink's among them; -inf where nothing is seen.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError, BufferError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    if alibi_slopes is not None:
        raise UnsupportedProblem("alibi_slopes is not built (have None)")
    with_lse = scalars.boolean("return_softmax_lse", return_softmax_lse) or lse is not None
    handle = runtime.stream_handle(stream)
    arrays = {
        **{"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v},
        **{"rotary_cos": rotary_cos, "rotary_sin": rotary_sin, "cache_seqlens": cache_seqlens},
        **{"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad},
        **{"block_table": block_table, "sinks": sinks},
    }
    options = (
        *(softmax_scale, causal, window_size, softcap, rotary_interleaved, num_splits),
        *(kv_layout, k_descale, v_descale),
    )
    call = CacheCall(arrays, options, with_lse, max_seqlen_k, handle)
    if no_work.has_none(call.key):
        again = functools.partial(
            flash_attn_with_kvcache,
            **arrays | dict(zip(_OPTIONS, options, strict=True)),
            return_softmax_lse=with_lse,
            max_seqlen_k=max_seqlen_k,
            stream=stream,
        )

        def planned_as(key: CacheKey) -> DecodeProblem:
            return _planned_for(call.ordinal, key).problem

        of_call = {"out": out, "lse": lse}
        return no_work.results(
            lambda **changed: again(**of_call | changed),
            *(call, arrays, (out, lse), planned_as, handle),
        )
    plan = _planned_for(call.ordinal, call.key)
    if isinstance(plan, PrefillPlan):
        copies = plan.to_copy(call.views)
        if copies != plan.problem.copies:
            plan = _planned_for(call.ordinal, call.key, copies)
    call.complete(plan.specs(), plan.problem)
    inputs: tuple[View, ...] = tuple([call.views[name] for name in plan.input_names])
    results = plan.execute(q, inputs, (out, lse), "", handle)
    return results if with_lse else results[0]


def plan_decode(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> DecodePlan:
    """Plan a call of `flash_attn_with_kvcache`. No device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
        `seqlen_kv` is the greatest length: rows of the cache, or of all pages of a sequence.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        The rest of `DecodeProblem`: head_dim_v, dtype, causal, seqlen_new, page_size, ...

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = DecodeProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    return planned(problem, as_device_props(device))


def supports_decode(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    **options: Any,
) -> Support:
    """Whether a kernel exists for a well-formed problem; parameters as `plan_decode`.

    Returns
    -------
    Support
        True in a condition if `ok`; else `reason`, and `nearest`: arguments to change.
    """
    problem = DecodeProblem(
        batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options
    )
    props = as_device_props(device)
    try:
        found = planning.choices(problem, props, manifest.kernels())
    except UnsupportedDeviceError as error:
        return Support(False, str(error))
    try:
        found.require(props)
    except UnsupportedProblem as error:
        wrong = all_allowed(found.rejected[0][1], [others for _, others in found.rejected])
        nearest = {mismatch.argument: mismatch.nearest for mismatch in wrong}
        return Support(False, str(error), MappingProxyType(nearest))
    return Support(True, f"kernel {planning.best(found.items).kernel.name}")


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, key: CacheKey, copies: str = "") -> DecodePlan:
    """Of more queries than decoding kernels take a `PrefillPlan`."""
    props = runtime.get(ordinal).props
    problem = problem_of(key, props.architecture.fp8, copies)
    if isinstance(problem, PrefillProblem):
        return prefill_planned(problem, props)
    return planned(problem, props)


@functools.lru_cache(maxsize=1024)
def planned(problem: DecodeProblem, props: DeviceProps) -> DecodePlan:
    """The plan of a problem on a device."""
    found = planning.choices(problem, props, manifest.kernels())
    found.require(props)
    return DecodePlan.of(planning.build(problem, props, planning.best(found.items), found))
