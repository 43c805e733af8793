"""Attention over a cache of keys and values, and over a prefix that sequences share, too."""

from __future__ import annotations

from typing import Any, NamedTuple

from amdattn import scalars
from amdattn.arrays.interchange import as_view
from amdattn.op.signatures import rest_as
from amdattn.ops.cache_attention import empty
from amdattn.ops.cache_attention.calls import CacheArguments, CacheCall, declared
from amdattn.ops.cache_attention.layouts import layouts_named
from amdattn.ops.cache_attention.planned import planned_for
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan


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

    Names, order and meaning of the positional parameters are flash-attn's. What is not listed here,
    and errors, are as of `flash_attn_func`.

    Of up to 16 queries a sequence one launch appends, turns and attends; of more (chunks of
    prompts) one appends, turns and copies pages to rows, and others attend. The lengths are read on
    the device. With int32 arrays in device memory a step plans and waits for nothing; results that
    are not given and scratch memory are of the cache.

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
    causal : bool
        Query i sees keys up to ``i + L - seqlen_q`` of the L that there are, appended ones among
        them: the last query all.
    window_size : (int or None, int or None)
        Query i sees `left` keys before and `right` behind that one; -1 or None: all.
    rotary_interleaved : bool
        Pairs are channels 2i and 2i + 1; else i and i + rotary_dim / 2.
    num_splits : int
        0: workgroups share the keys of all sequences evenly, by their true lengths. More: every
        tile of queries in as many parts, so that a sequence's result does not depend on the others
        of the call. 1: in one.
    return_softmax_lse : bool
        Return ``(out, lse)``, as with `lse`.
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

    Returns
    -------
    out : array, like q, (batch, seqlen_q, num_heads_q, head_dim_v)
        Rows that see no key are 0.
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Natural log of the sum of exponentials, the sink's among them; -inf where nothing is seen.
    """
    return _call(
        CacheArguments(
            *(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx),
            *(cache_leftpad, block_table, softmax_scale, causal, window_size, softcap),
            *(rotary_interleaved, alibi_slopes, num_splits, return_softmax_lse, kv_layout),
            *(k_descale, v_descale, max_seqlen_k, sinks, out, lse, stream),
        )
    )


@rest_as(flash_attn_with_kvcache)
def cascade_attention(
    q: Any,
    k_prefix: Any,
    v_prefix: Any,
    k_cache: Any,
    v_cache: Any,
    *rest: Any,
    prefix_table: Any = None,
    prefix_len: int | None = None,
    **options: Any,
) -> Any:
    """Attention over keys that all sequences have first, and over a cache of what each has then.

    As `flash_attn_with_kvcache` of caches that all begin with the prefix, of which the keys and
    values are read once for all sequences instead of once for each. Both parts are rounded before
    they are merged. Parameters that are not listed, results and errors are as those of
    `flash_attn_with_kvcache`, of the cache alone: lengths, pages and rows of angles count from
    behind the prefix.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        Every query sees all of the prefix. With `causal` sequences have at least seqlen_q keys
        behind it, those of k among them.
    k_prefix, v_prefix : array, like q, (prefix_len, num_heads_kv, head_dim or head_dim_v)
        None with `prefix_table`.
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
    """
    asked = CacheArguments(q, k_cache, v_cache, *rest, **options)
    return _call(asked, Prefix(k_prefix, v_prefix, prefix_table, prefix_len))


class Prefix(NamedTuple):
    """Keys that all sequences have first: rows of arrays, or pages of the cache."""

    k: Any
    v: Any
    table: Any
    keys: int | None  # None: all of them

    def sizes(self, call: CacheCall) -> tuple[int, int]:
        """Keys, and pages that they lie in; of rows the views are added to those of the call."""
        rows = {"k_prefix": self.k, "v_prefix": self.v}
        for name, x in rows.items():
            if (x is None) == (self.table is None):
                have = "both were given" if x is not None else "both are None"
                raise ValueError(
                    f"{name} and prefix_table: {have}; one of them says where the prefix is"
                )
        if self.table is None:
            call.views |= {name: as_view(x, name, call.stream) for name, x in rows.items()}
            found: int = (*call.views["k_prefix"].shape, 0)[0]
            if self.keys not in (None, found):
                raise ValueError(f"prefix_len={self.keys}, but k_prefix has {found} rows")
            return found, 0
        pages = _pages_of(self.table)
        layout = layouts_named(call.key.options.kv_layout, True)["k_cache"]
        whole = pages * layout.sizes(call.views["k_cache"].shape)["seq"]
        return whole if self.keys is None else scalars.integer("prefix_len", self.keys), pages


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


def _call(asked: CacheArguments, prefix: Prefix | None = None) -> Any:
    """Plan and run a call."""
    call = CacheCall(asked, declared("max_seqlen_k", asked.max_seqlen_k))
    of_prefix = None if prefix is None else prefix.sizes(call)
    if prefix is None and empty.has_none(call.key):
        return empty.results(asked, call, _call)
    plan = planned_for(call.ordinal, call.key, of_prefix)
    own = plan if prefix is None else plan.own
    copies = ""
    if isinstance(own, PrefillPlan):
        copies = own.to_copy(call.views)
        copies *= copies != own.problem.copies
    elif prefix is not None:
        copies = plan.to_copy(call.views["q"])
        copies *= copies != plan.problem.copies
    if copies:
        plan = planned_for(call.ordinal, call.key, of_prefix, copies)
    call.complete(plan.specs(), plan.problem.own)
    if prefix is not None and prefix.table is not None:
        read, on = plan.specs()["prefix_table"].host_check, call.views["q"].ordinal
        call.views["prefix_table"] = read(prefix.table, "prefix_table", on, call.stream)
    return call.run(plan, asked)
