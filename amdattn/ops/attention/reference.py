"""Reference attention in numpy: float64, and a plain bfloat16 pipeline to compare errors with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn import scalars
from amdattn.dtypes import BFLOAT16
from amdattn.op.comparison import largest
from amdattn.op.signatures import rest_as
from amdattn.ops.attention.problem import axis_order

# Of the error that a plain bfloat16 pipeline makes on the same data.
ERROR_RATIO = 2.0
BFLOAT16_EPSILON = 2.0**-8
FLOAT32_EPSILON = 2.0**-23
_Q_ROWS = 256  # rows of Q taken at once: bounds the size of the score matrix
_TO_BSHD = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3)}


def attention(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    softmax_scale: float | None = None,
    layout: str = "bshd",
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    sinks: NDArray[Any] | None = None,
    softcap: float = 0.0,
    top_left: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Attention in float64.

    Parameters
    ----------
    q, k, v : array, (batch, seqlen, num_heads, head_dim) or as `layout` says
        Any real element type; `num_heads` of k and v divides that of q.
    causal, window_size, sinks, softcap, top_left
        As `flash_attn_func` takes them.

    Returns
    -------
    out : float64 array, shaped like q with v's head_dim
    lse : float64 array, (batch, num_heads_q, seqlen_q)
        Natural log. A row whose scores are all -inf has out 0 and lse -inf; a NaN or +inf score
        makes both NaN.
    """
    arrays = q, k, v, softmax_scale, layout
    return _attention(
        *(np.float64, lambda x: x, *arrays, causal, window_size, sinks, softcap, top_left)
    )


@rest_as(attention)
def attention_rounded(*arrays: Any, **options: Any) -> NDArray[np.float32]:
    """The same in float32, rounding scores, probabilities and result to bfloat16.

    This is what an unfused pipeline of bfloat16 array operations computes: an error of this size
    is the price of the format, not of a kernel.
    """
    found: NDArray[np.float32] = _attention(np.float32, _round_bfloat16, *arrays, **options)[0]
    return found


def tolerance(expected: NDArray[Any], plain_error: float, epsilon: float) -> float:
    """Allowed error of a result, of that of the plain pipeline on the same data."""
    return ERROR_RATIO * plain_error + epsilon / 2 * largest(expected)


def lse_tolerance(expected: NDArray[Any], head_dim: int) -> float:
    """That of a float32 dot product of so many terms as large as the largest expected value."""
    return FLOAT32_EPSILON * head_dim * max(1.0, largest(expected))


def _round_bfloat16(x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(BFLOAT16.numpy()).astype(np.float32)


def _attention(
    dtype: type[np.floating[Any]],
    rounded: Any,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    softmax_scale: float | None = None,
    layout: str = "bshd",
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    sinks: NDArray[Any] | None = None,
    softcap: float = 0.0,
    top_left: bool = False,
) -> tuple[NDArray[Any], NDArray[Any]]:
    window = (window_size[0], 0 if causal else window_size[1])
    axis_order(layout)  # refuses an unknown layout
    order = _TO_BSHD[layout]
    q, k, v = (np.asarray(x).transpose(order) for x in (q, k, v))
    scale = 1.0 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    scale = scalars.number("softmax_scale", scale)
    batch, seqlen_q, num_heads_q, _ = q.shape
    group = num_heads_q // k.shape[2]
    out = np.empty((batch, seqlen_q, num_heads_q, v.shape[-1]), dtype)
    lse = np.empty((batch, num_heads_q, seqlen_q), dtype)
    for b in range(batch):
        for h in range(num_heads_q):
            keys, values = (x[b, :, h // group].astype(dtype) for x in (k, v))
            for start in range(0, seqlen_q, _Q_ROWS):
                rows = slice(start, start + _Q_ROWS)
                scores = q[b, rows, h].astype(dtype) @ keys.T * dtype(scale)
                if softcap:
                    scores = softcap * np.tanh(scores / softcap)
                # The key on the diagonal.
                first = start + (0 if top_left else k.shape[1] - seqlen_q)
                scores[~seen(first, len(scores), len(keys), window)] = -np.inf
                sink = -np.inf if sinks is None else float(sinks[h])
                out[b, rows, h], lse[b, h, rows] = _softmax_rows(
                    rounded(scores), values, rounded, dtype(sink)
                )
    # Both permutations are their own inverse.
    return out.transpose(order), lse


def seen(first: int, rows: int, keys: int, window: tuple[int, int]) -> NDArray[np.bool_]:
    """Which keys each row sees, of the first of which key `first` is on the diagonal."""
    distance = np.arange(keys) - np.arange(rows)[:, None] - first
    left, right = window
    return ((left < 0) | (distance >= -left)) & ((right < 0) | (distance <= right))


def _softmax_rows(
    scores: NDArray[Any], values: NDArray[Any], rounded: Any, sink: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    with np.errstate(invalid="ignore", divide="ignore"):
        top = np.maximum(scores.max(axis=1, keepdims=True, initial=-np.inf), sink)  # NaN wins
        base = np.where(top == -np.inf, scores.dtype.type(0), top)
        weights = np.exp(scores - base)  # +inf - +inf is NaN: a +inf score poisons its row
        total = weights.sum(axis=1, keepdims=True) + np.exp(sink - base)
        masked = total == 0.0
        safe = np.where(masked, 1.0, total)
        out = rounded(rounded(weights / safe) @ values)
        lse = top + np.log(total)
    return out, lse[:, 0]
