"""Gradients of attention on sequences of several lengths that are packed without padding."""

from __future__ import annotations

from typing import Any

from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.op.signatures import rest_as
from amdattn.ops.attention.problem import VARLEN_LAYOUT
from amdattn.ops.attention.varlen import at_least_one, longest_of, sums_of_lengths
from amdattn.ops.attention_backward.call import Arguments, run
from amdattn.ops.attention_backward.dense import flash_attn_backward


@rest_as(flash_attn_backward, "layout")
def flash_attn_varlen_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    **options: Any,
) -> tuple[Any, ...]:
    """Compute the gradients of `flash_attn_varlen_func`.

    Parameters that are not listed here are those of `flash_attn_backward` and
    `flash_attn_varlen_func`.

    Parameters
    ----------
    dout, out : array, (total_q, num_heads_q, head_dim_v)
    lse : array, float32, (num_heads_q, total_q)
    cu_seqlens_q, cu_seqlens_k : array or list, int32 or int64, (num_sequences + 1,)
    max_seqlen_q, max_seqlen_k : int

    Returns
    -------
    dq, dk, dv : array, like q, k and v
        Rows that belong to no sequence are not written, not even in given arrays.
    dsinks : array, float32, (num_heads_q,)
        Only with `sinks`: summed over all sequences.
    """
    asked = Arguments(**options)
    handle = runtime.stream_handle(asked.stream)
    given = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    views = tuple(as_view(x, name, handle) for name, x in given.items())
    longest = longest_of("max_seqlen_q", max_seqlen_q), longest_of("max_seqlen_k", max_seqlen_k)
    lengths = sums_of_lengths((cu_seqlens_q, cu_seqlens_k), longest, views[1:4], handle)
    return run(q, views, VARLEN_LAYOUT, asked, handle, lengths, at_least_one(longest))
