"""Gradients of attention of sequences of several lengths, one after the other without padding."""

from __future__ import annotations

from typing import Any

from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.ops.attention.options import Options, refuse
from amdattn.ops.attention.problem import VARLEN_LAYOUT
from amdattn.ops.attention.varlen import at_least_one, longest_of, sums_of_lengths
from amdattn.ops.attention_backward.call import Gradients, run


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
    *,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: None = None,
    deterministic: bool = False,
    num_splits: int = 0,
    sinks: Any = None,
    dlse: Any = None,
    top_left: bool = False,
    out_dtype: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dsinks: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Gradients of `flash_attn_varlen_func`.

    What is not listed here is as in `flash_attn_backward` and `flash_attn_varlen_func`.

    Parameters
    ----------
    dout, out : array, (total_q, num_heads_q, head_dim_v)
    lse : array, float32, (num_heads_q, total_q)
    cu_seqlens_q, cu_seqlens_k : array or list, int32 or int64, (num_sequences + 1,)
    max_seqlen_q, max_seqlen_k : int

    Returns
    -------
    dq, dk, dv : array, like q, k and v
        Rows of no sequence are not written, also of arrays that are given.
    dsinks : array, float32, (num_heads_q,)
        With `sinks` only: of all sequences.
    """
    refuse("alibi_slopes", alibi_slopes)
    handle = runtime.stream_handle(stream)
    given = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    views = tuple(as_view(x, name, handle) for name, x in given.items())
    longest = longest_of("max_seqlen_q", max_seqlen_q), longest_of("max_seqlen_k", max_seqlen_k)
    lengths = sums_of_lengths((cu_seqlens_q, cu_seqlens_k), longest, views[1:4], handle)
    return run(
        q,
        views,
        VARLEN_LAYOUT,
        handle,
        Options(
            softmax_scale, causal, window_size, softcap, dropout_p, "rtne", num_splits, top_left
        ),
        Gradients(deterministic, out_dtype, (dq, dk, dv, dsinks)),
        sinks=sinks,
        dlse=dlse,
        lengths=lengths,
        longest=at_least_one(longest),
    )
