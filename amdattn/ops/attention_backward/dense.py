"""Gradients of attention: check, plan, run."""

from __future__ import annotations

from typing import Any

from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.ops.attention_backward.call import Arguments, run


def flash_attn_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
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
    layout: str = "bshd",
    out_dtype: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dsinks: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Gradients of `flash_attn_func`: of q, k and v, of that of its result.

    What is not listed here is as in `flash_attn_func`, and as the forward was called with.

    Parameters
    ----------
    dout : array, like out
        The gradient of `out`.
    q, k, v : array, bfloat16 or float16
        As the forward took them. On the device rows may lie up to 2**22 elements apart.
    out : array, (batch, seqlen_q, num_heads_q, head_dim_v)
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        What the forward returned with `return_lse`.
    deterministic : bool
        The same call gives the same bits: what blocks of keys add to a row of dq is added in their
        order. Otherwise it is added as it comes; dk and dv have the same bits anyway.
    num_splits : int
        Workgroups that share a block of keys, whose float32 sums are added in one order; 0 lets
        the plan choose, by the grid. With a number, the bits of an entry of a batch do not depend
        on how many there are.
    sinks : array, float32, (num_heads_q,), optional
        As the forward took them; there is a gradient of them then.
    dlse : array, float32, like lse, optional
        The gradient of the forward's lse, if something depends on it.
    out_dtype : str or dtype, optional
        Of dq, dk and dv: that of q, or float32, which saves memory for the sums of dq.
    dq, dk, dv, dsinks : array, optional
        Written instead of new arrays; shaped like q, k, v and sinks, sharing no memory with the
        inputs.

    Returns
    -------
    dq, dk, dv : array, like q, k and v
        Of the kind of `q`. Rows that see no key, and keys that no row sees, have 0.
    dsinks : array, float32, (num_heads_q,)
        With `sinks` only.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError, BufferError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    given = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    views = tuple(as_view(x, name, handle) for name, x in given.items())
    asked = Arguments(
        *(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic),
        *(num_splits, sinks, dlse, top_left, out_dtype),
        *(dq, dk, dv, dsinks, stream),
    )
    return run(q, views, layout, asked, handle)
