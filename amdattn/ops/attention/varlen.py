"""Attention on sequences of several lengths that are packed without padding."""

from __future__ import annotations

from typing import Any

from amdattn import scalars
from amdattn.arrays.interchange import Part, as_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.op.signatures import rest_as
from amdattn.ops.attention.call import run
from amdattn.ops.attention.dense import parts
from amdattn.ops.attention.lengths import SumsOfLengths
from amdattn.ops.attention.options import Arguments
from amdattn.ops.attention.problem import VARLEN_LAYOUT, operand_axes
from amdattn.ops.cache_attention.calls import CacheArguments
from amdattn.ops.cache_attention.ragged import attend_pages
from amdattn.scalars import INT32_MAX


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
    block_table: Any = None,
    *,
    return_lse: bool = False,
    sinks: Any = None,
    top_left: bool = False,
    round_mode: str = "rtne",
    num_splits: int = 0,
    kv_layout: str = "NHD",
    k_descale: Any = None,
    v_descale: Any = None,
    seqused_k: Any = None,
    max_total_k: int | None = None,
    out: Any = None,
    lse: Any = None,
    stream: Any = None,
) -> Any:
    """Compute attention on sequences of several lengths that are packed without padding.

    Parameters that are not listed here are those of `flash_attn_func`.

    Parameters
    ----------
    q : array, (total_q, num_heads_q, head_dim)
        The rows of all sequences.
    k, v : array, (total_kv, num_heads_kv, head_dim or head_dim_v)
        With `block_table`, caches in pages, (num_pages, page_size, num_heads_kv, head_dim or
        head_dim_v), where page_size is a multiple of 16.
    cu_seqlens_q, cu_seqlens_k : array or list, int32 or int64, (num_sequences + 1,)
        The rows before each sequence, and the total. Sequences may be empty. Lists, and arrays of
        any integers on the host, are checked, and copied to the device if q is there. On the
        device, a wrong 32-bit sum makes kernels read or write beyond the tensors, and a 64-bit sum
        beyond the rows counts as all rows. Compact int32 arrays are used directly.
    max_seqlen_q, max_seqlen_k : int
        The greatest lengths; rows beyond are not computed.
    block_table : array of int32 or int64, (num_sequences, pages of a sequence), optional
        Position p of sequence b is in page ``block_table[b, p // page_size]`` of k and v, and
        `cu_seqlens_k` or `seqused_k` determines the keys of sequences. Pages are copied to rows
        first, in memory for `max_seqlen_k` keys of each sequence.
    kv_layout, k_descale, v_descale
        As in `flash_attn_with_kvcache`, for caches in pages.
    seqused_k : array or list, int32 or int64, (num_sequences,), optional
        With `block_table`: the keys of each sequence; `cu_seqlens_k` must then be None.
    max_total_k : int, optional
        With `block_table`: the most keys of all sequences together, which saves memory.

    Returns
    -------
    out : array, like q, (total_q, num_heads_q, head_dim_v)
        Rows that belong to no sequence are not written, not even in an `out` on the host.
    lse : array, float32, (num_heads_q, total_q)
    """
    asked = Arguments(
        *(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic),
        *(return_attn_probs, return_lse, sinks, top_left, round_mode, num_splits, out, lse, stream),
    )
    longest = longest_of("max_seqlen_q", max_seqlen_q), longest_of("max_seqlen_k", max_seqlen_k)
    if block_table is not None:
        over_cache = CacheArguments(
            *(q, k, v),
            cache_seqlens=seqused_k,
            block_table=block_table,
            kv_layout=kv_layout,
            k_descale=k_descale,
            v_descale=v_descale,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_k,
        )
        return attend_pages(over_cache, asked, longest, max_total_k)
    for name, value, none in (
        ("kv_layout", kv_layout, "NHD"),
        ("k_descale", k_descale, None),
        ("v_descale", v_descale, None),
        ("seqused_k", seqused_k, None),
        ("max_total_k", max_total_k, None),
    ):
        if value is not none and (value != none):
            raise ValueError(f"{name}={value!r} without block_table; it must be {none!r} there")
    handle = runtime.stream_handle(stream)
    views = as_view(q, "q", handle), as_view(k, "k", handle), as_view(v, "v", handle)
    lengths = sums_of_lengths((cu_seqlens_q, cu_seqlens_k), longest, views, handle)
    return run(q, views, VARLEN_LAYOUT, asked, handle, lengths, at_least_one(longest))


# Arguments that only caches in pages have.
OF_PAGES = "block_table", "kv_layout", "k_descale", "v_descale", "seqused_k", "max_total_k"


@rest_as(flash_attn_varlen_func, "k", "v", *OF_PAGES)
def flash_attn_varlen_kvpacked_func(q: Any, kv: Any, *rest: Any, **options: Any) -> Any:
    """`flash_attn_varlen_func` with k and v in one array, which are not copied.

    Parameters
    ----------
    kv : array, (total_kv, 2, num_heads_kv, head_dim)
    """
    return flash_attn_varlen_func(q, *parts("kv", kv, 4, options), *rest, **options)


@rest_as(
    flash_attn_varlen_func,
    *("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", *OF_PAGES),
)
def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, *rest: Any, **options: Any
) -> Any:
    """`flash_attn_varlen_func` with q, k and v in one array, which are not copied.

    Parameters
    ----------
    qkv : array, (total, 3, num_heads, head_dim)
    cu_seqlens : array or list, int32 or int64, (num_sequences + 1,)
    max_seqlen : int
    """
    longest = longest_of("max_seqlen", max_seqlen)
    lengths: tuple[Any, ...] = cu_seqlens, cu_seqlens, longest, longest
    q, k, v = parts("qkv", qkv, 4, options)
    return flash_attn_varlen_func(Part(q, qkv), k, v, *lengths, *rest, **options)


def longest_of(name: str, value: Any) -> int:
    """The greatest length that a caller declares."""
    length = scalars.integer(name, value)
    if not 0 <= length <= INT32_MAX:
        raise ValueError(f"{name}={length} must be in 0..{INT32_MAX}")
    return length


def at_least_one(longest: tuple[int, int]) -> tuple[int, int]:
    """The greatest lengths, raised to 1, because a problem needs that even if all are empty."""
    return max(longest[0], 1), max(longest[1], 1)


def sums_of_lengths(
    sums: tuple[Any, Any], longest: tuple[int, int], views: tuple[View, ...], stream: int
) -> tuple[View, View]:
    """The cumulative lengths of q and of k as int32 views."""
    q, k, v = views
    of_q, of_k, _ = operand_axes(q.shape, k.shape, v.shape, VARLEN_LAYOUT)
    return (
        SumsOfLengths(of_q["seq"], longest[0])(sums[0], "cu_seqlens_q", q.ordinal, stream),
        SumsOfLengths(of_k["seq"], longest[1])(sums[1], "cu_seqlens_k", q.ordinal, stream),
    )
