"""Attention over a cache of keys and values, also with a prefix that all sequences share."""

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
    """Compute attention of queries over a cache of each sequence, to which keys may be appended.

    Names, order and meaning of the positional parameters are those of flash-attn. Parameters that
    are not listed here, and errors, are those of `flash_attn_func`.

    With up to 16 queries per sequence, one launch appends, applies rotary embeddings and attends.
    With more (chunks of prompts), one launch appends, applies rotary embeddings and copies pages to
    rows, and others attend. Lengths are read on the device. With int32 arrays in device memory a
    step neither plans nor waits; results that are not given, and scratch memory, come from the
    memory cache.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        Any array that `flash_attn_func` accepts. In device memory the rows of q, the caches, k, v
        and out must begin at multiples of 16 bytes.
    k_cache : array, like q, (batch_cache, seqlen_cache, num_heads_kv, head_dim)
        With `block_table` (num_pages, page_size, num_heads_kv, head_dim), where page_size is a
        multiple of 16 up to 256. Rows beyond the keys of a sequence are not read. Elements may also
        be the device's 8-bit floats (float8_e4m3fnuz on gfx942, float8_e4m3fn on gfx950), also
        given as uint8.
    v_cache : array, like q, shaped like k_cache, with head_dim_v columns
    k, v : array, like q, (batch, seqlen_new, num_heads_kv, head_dim or head_dim_v), optional
        Written to the caches from position ``cache_seqlens[b]`` on before the queries attend. The
        caches must then be in device memory.
    rotary_cos, rotary_sin : array, like q or float32, (positions, rotary_dim / 2), optional
        Angles of rotary embeddings for k and q. Row i of k is rotated by the angles of position
        ``cache_seqlens[b] + i``. So is row i of q if `causal` or a window is given; otherwise all
        rows of q are rotated by those of ``cache_seqlens[b]``.
    cache_seqlens : int, or array of int32 or int64, (batch,), optional
        Keys of each sequence in the cache before the call; an int holds for all sequences. None:
        the cache is full. In device memory, a sequence whose length is out of range has no keys:
        nothing is appended, and out is 0.
    cache_batch_idx : array of int32 or int64, (batch,), optional
        The sequence of the caches for each sequence of q. None: the same one. With k they must all
        differ. In device memory, values out of range are treated like those of `cache_seqlens`.
    cache_leftpad : array of int32 or int64, (batch,), optional
        Positions at the beginning of each sequence that no query sees.
    block_table : array of int32 or int64, (batch, pages of a sequence), optional
        Position p of sequence b is in page ``block_table[b, p // page_size]``. Entries are not read
        if no query sees a key of them; several may name the same page. In device memory, an entry
        that is not a page, such as -1, is not written to, and queries that see a key of it are NaN.
    causal : bool
        Query i sees keys up to ``i + L - seqlen_q`` of the L keys, appended ones included, so the
        last query sees all keys.
    window_size : (int or None, int or None)
        Query i sees `left` keys before and `right` keys after that one; -1 or None: all.
    rotary_interleaved : bool
        Whether channels 2i and 2i + 1 form pairs; otherwise channels i and i + rotary_dim / 2.
    num_splits : int
        0: workgroups share the keys of all sequences evenly, by their true lengths. Otherwise every
        tile of queries is computed in this many parts, so that the result of a sequence does not
        depend on the other sequences of the call.
    return_softmax_lse : bool
        Return ``(out, lse)``, as with `lse`.
    kv_layout : {"NHD", "packed", "shuffled"}
        The layout of pages. "packed", as in vLLM: k_cache (num_pages, num_heads_kv, head_dim / x,
        page_size, x), where x elements are 16 bytes, and v_cache (num_pages, num_heads_kv,
        head_dim_v, page_size). "shuffled", as in AITER: the same, but v_cache (num_pages,
        num_heads_kv, page_size / x, head_dim_v, x). head_dim must then be a multiple of x.
    k_descale, v_descale : float, or array of float32, (num_heads_kv,) or (1,), optional
        The factor of the elements of a cache of 8-bit floats. Rows that are appended are divided by
        it, as a float32 product with its inverse; quotients beyond the greatest number become that
        number. As in FlashAttention-3, the shape may also be (batch, num_heads_kv) with equal rows,
        which must have stride 0 on the device. None: 1. Arrays on the host are copied in every
        call.
    max_seqlen_k : int, optional
        The most keys of a sequence, including those of k. It limits the memory for copies of pages,
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
    """Compute attention over a prefix that all sequences share, and a cache of their own keys.

    The result is that of `flash_attn_with_kvcache` on caches that all begin with the prefix, but
    keys and values of the prefix are read once for all sequences instead of once for each. Both
    parts are rounded before they are merged. Parameters that are not listed, results and errors are
    those of `flash_attn_with_kvcache` for the cache alone: lengths, pages and rows of angles count
    from the end of the prefix.

    Parameters
    ----------
    q : array, bfloat16 or float16, (batch, seqlen_q, num_heads_q, head_dim)
        Every query sees all of the prefix. With `causal` sequences must have at least seqlen_q keys
        after the prefix, including those of k.
    k_prefix, v_prefix : array, like q, (prefix_len, num_heads_kv, head_dim or head_dim_v)
        None with `prefix_table`.
    rotary_cos, rotary_sin : array, like q or float32, (positions, rotary_dim / 2), optional
        Row p belongs to the pth position after the prefix; from a table of all positions, pass
        ``rotary_cos[prefix_len:]``.
    block_table : array of int32 or int64, (batch, pages of a sequence), optional
        Pages of own keys; from a table whose rows begin with the prefix, pass the rest.
    window_size
        Must be (-1, -1).
    prefix_table : array of int32 or int64, (pages of the prefix,), optional
        The pages of the caches that hold the prefix. They are copied to rows in every call.
    prefix_len : int, optional
        With `prefix_table`: keys of the prefix; None: its pages are full.
    sinks : array, float32, (num_heads_q,), optional
        They count once, not per part.
    """
    asked = CacheArguments(q, k_cache, v_cache, *rest, **options)
    return _call(asked, Prefix(k_prefix, v_prefix, prefix_table, prefix_len))


class Prefix(NamedTuple):
    """The shared prefix: rows of arrays, or pages of the cache."""

    k: Any
    v: Any
    table: Any
    keys: int | None  # None: all of them

    def sizes(self, call: CacheCall) -> tuple[int, int]:
        """The keys and the pages of the prefix; adds views of its rows to those of the call."""
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
    """The number of pages in an array or a list."""
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
