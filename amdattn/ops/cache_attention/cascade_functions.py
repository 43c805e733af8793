"""Attention of sequences that share a prefix: check, plan, run."""

from __future__ import annotations

import functools
from typing import Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.interchange import as_view
from amdattn.device import manifest, runtime
from amdattn.errors import UnsupportedProblem
from amdattn.ops.cache_attention import cascade_planning as planning
from amdattn.ops.cache_attention.calls import CacheCall, CacheKey, problem_of
from amdattn.ops.cache_attention.cascade_plan import CascadePlan
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.layouts import layouts_named
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem


def cascade_attention(
    q: Any,
    k_prefix: Any,
    v_prefix: Any,
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
    prefix_table: Any = None,
    prefix_len: int | None = None,
    kv_layout: str = "NHD",
    k_descale: Any = None,
    v_descale: Any = None,
    max_seqlen_k: int | None = None,
    sinks: Any = None,
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """Attention over keys that all sequences have first, and over a cache of what each has then.

    As `flash_attn_with_kvcache` of caches that all begin with the prefix, of which the keys and
    values are read once for all sequences instead of once for each. Both parts are rounded before
    they are merged. Parameters that are not listed are as `flash_attn_with_kvcache` takes them, of
    the cache alone: lengths, pages and rows of angles count from behind the prefix.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        Every query sees all of the prefix. With `causal` sequences have at least seqlen_q keys
        behind it, those of k among them.
    k_prefix, v_prefix : array, like q, (prefix_len, num_heads_kv, head_dim or head_dim_v)
        None with `prefix_table`.
    cache_seqlens : int, or array of int32 or int64, (batch,), optional
        Keys that the cache has of each sequence: those of the prefix are not among them.
    rotary_cos, rotary_sin : array, like q or float32, (positions, rotary_dim / 2), optional
        Row p is of the pth position behind the prefix: of a table of all positions
        ``rotary_cos[prefix_len:]``.
    block_table : array of int32 or int64, (batch, pages of a sequence), optional
        Of own keys: of a table whose rows begin with the prefix what is behind that.
    window_size
        Must be (-1, -1).
    prefix_table : array of int32 or int64, (pages of the prefix,), optional
        The prefix lies in these pages of the caches. They are copied to rows in every call.
    prefix_len : int, optional
        With `prefix_table`: keys of the prefix; None: its pages are full.
    sinks : array, float32, (num_heads_q,), optional
        Counts once.

    Returns
    -------
    out : array, like q, (batch, seqlen_q, num_heads_q, head_dim_v)
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Of all keys.

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
    rows = {"k_prefix": k_prefix, "v_prefix": v_prefix}
    for name, x in rows.items():
        if (x is None) == (prefix_table is None):
            have = "both were given" if x is not None else "both are None"
            raise ValueError(
                f"{name} and prefix_table: {have}; one of them says where the prefix is"
            )
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
    if prefix_table is None:
        call.views |= {name: as_view(x, name, handle) for name, x in rows.items()}
        shape = call.views["k_prefix"].shape
        of_prefix = (shape[0] if shape else 0), 0
        if prefix_len is not None and prefix_len != of_prefix[0]:
            raise ValueError(f"prefix_len={prefix_len}, but k_prefix has {of_prefix[0]} rows")
    else:
        pages = _pages_of(prefix_table)
        sizes = layouts_named(kv_layout)["k_cache"].sizes(call.views["k_cache"].shape)
        whole = pages * sizes["seq"]
        of_prefix = (
            whole if prefix_len is None else scalars.integer("prefix_len", prefix_len),
            pages,
        )
    plan = _planned_for(call.ordinal, call.key, of_prefix)
    if isinstance(plan.own, PrefillPlan):
        copies = plan.own.to_copy(call.views)
        if copies != plan.own.problem.copies:
            plan = _planned_for(call.ordinal, call.key, of_prefix, copies)
    elif plan.to_copy(call.views["q"]) != plan.problem.copies:
        plan = _planned_for(call.ordinal, call.key, of_prefix, "q")
    specs = plan.specs()
    call.complete(specs, plan.problem.own)
    if prefix_table is not None:
        read = specs["prefix_table"].host_check
        assert read is not None
        q_view = call.views["q"]
        call.views["prefix_table"] = read(prefix_table, "prefix_table", q_view.ordinal, handle)
    inputs = tuple([call.views[name] for name in plan.input_names])
    results = plan.execute(q, inputs, (out, lse), "", handle)
    return results if with_lse else results[0]


def plan_cascade(
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    head_dim: int,
    *,
    prefix_len: int,
    device: DeviceProps | str,
    prefix_pages: int = 0,
    return_lse: bool = False,
    **options: Any,
) -> CascadePlan:
    """Plan a call of `cascade_attention`. No device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
        `seqlen_kv` is the greatest length of own keys: rows of the cache, or of all pages of a
        sequence.
    prefix_len, prefix_pages : int
        Keys of the prefix, and the pages that it lies in; 0: it has arrays of its own.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        The rest of `DecodeProblem`, of more than 16 queries of `PrefillProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    kind = PrefillProblem if seqlen_q > MOST_QUERIES else DecodeProblem
    own = kind(batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, **options)
    problem = CascadeProblem(own, prefix_len, prefix_pages, return_lse)
    return planned(problem, as_device_props(device))


def _pages_of(table: Any) -> int:
    """Of an array, or of pages in a list."""
    if isinstance(table, (list, tuple, range)):
        return len(table)
    shape = getattr(table, "shape", None)
    if shape is None:
        raise TypeError(f"prefix_table={table!r} must be an array or a list of pages")
    if len(shape) != 1:
        raise ValueError(
            f"prefix_table has shape {tuple(shape)}; it must be (pages of the prefix,)"
        )
    return int(shape[0])


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    ordinal: int, key: CacheKey, of_prefix: tuple[int, int], copies: str = ""
) -> CascadePlan:
    props = runtime.get(ordinal).props
    own = problem_of(key, props.architecture.fp8, copies)
    of_prefix_q = "" if isinstance(own, PrefillProblem) else copies
    return planned(CascadeProblem(own, *of_prefix, key.return_lse, of_prefix_q), props)


@functools.lru_cache(maxsize=1024)
def planned(problem: CascadeProblem, props: DeviceProps) -> CascadePlan:
    """The plan of a problem on a device."""
    found = planning.choices(problem, props, manifest.kernels())
    found.require(props)
    return CascadePlan.of(planning.build(problem, props, planning.best(found.items), found))
