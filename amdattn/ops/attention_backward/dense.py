"""Gradients of attention on arrays."""

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
    """Compute the gradients of q, k and v in `flash_attn_func` from the gradient of its result.

    Parameters that are not listed here are those of `flash_attn_func`; they must have the values
    with which the forward was called.

    Parameters
    ----------
    dout : array, like out
        The gradient of `out`.
    q, k, v : array, bfloat16 or float16
        The inputs of the forward. On the device rows may be up to 2**22 elements apart.
    out : array, (batch, seqlen_q, num_heads_q, head_dim_v)
    lse : array, float32, (batch, num_heads_q, seqlen_q)
        Results of the forward with `return_lse`.
    deterministic : bool
        Whether the same call gives the same bits: the contributions of blocks of keys to a row of
        dq are then added in the order of the blocks. Otherwise they are added as they arrive; dk
        and dv have the same bits in both cases.
    num_splits : int
        Workgroups that share a block of keys; their float32 sums are added in a fixed order. 0: the
        plan chooses by the grid. With another number, the bits of a batch entry do not depend on
        the size of the batch.
    sinks : array, float32, (num_heads_q,), optional
        The sinks of the forward; they then have a gradient.
    dlse : array, float32, like lse, optional
        The gradient of the forward's lse, if something depends on it.
    out_dtype : str or dtype, optional
        Element type of dq, dk and dv: that of q, which is the default, or float32, which saves the
        memory for the sums of dq.
    dq, dk, dv, dsinks : array, optional
        Written instead of new arrays; they have the shapes of q, k, v and sinks and must not share
        memory with the inputs.

    Returns
    -------
    dq, dk, dv : array, like q, k and v
        Arrays of the library of `q`. Rows that see no key, and keys that no row sees, have 0.
    dsinks : array, float32, (num_heads_q,)
        Only with `sinks`.

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
    given = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    views = tuple(as_view(x, name, handle) for name, x in given.items())
    asked = Arguments(
        *(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic),
        *(num_splits, sinks, dlse, top_left, out_dtype),
        *(dq, dk, dv, dsinks, stream),
    )
    return run(q, views, layout, asked, handle)
