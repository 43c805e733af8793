"""Attention in float64, and the plain pipeline of an element type, of one definition.

Plain: scores in float32, softmax, P rounded to the type to nearest even, P V summed in float32,
divided by the sum of the unrounded P, rounded once more. What it loses is the price of the format.
Nothing here is shared with the kernels or their planner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_GREATEST = {"bfloat16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), "float16": 65504.0}
# Significant bits, least exponent of a normal number.
_FORMAT = {"bfloat16": (8, -126), "float16": (11, -14)}


@dataclass(frozen=True)
class Rules:
    """What is computed, but for the numbers."""

    dtype: str  # "bfloat16" or "float16"
    mode: str  # "rtne", "rtna" or "rtz"
    scale: float
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    top_left: bool = False
    softcap: float = 0.0

    @property
    def unit(self) -> float:
        """Unit roundoff of the type."""
        return float(2.0 ** -_FORMAT[self.dtype][0])

    @property
    def greatest(self) -> float:
        """Largest finite number of the type."""
        return _GREATEST[self.dtype]

    def ulp(self, x: Array) -> Array:
        """Spacing of the type at x, of its denormals too."""
        bits, least = _FORMAT[self.dtype]
        _, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
        exponent = np.where(x == 0, least, np.maximum(exponent - 1, least))
        return np.ldexp(1.0, exponent - (bits - 1))

    def seen(self, rows: int, keys: int) -> Array:
        """(rows, keys): which keys a row sees."""
        left, right = self.window[0], 0 if self.causal else self.window[1]
        diagonal = 0 if self.top_left else keys - rows
        offset = np.arange(keys)[None, :] - np.arange(rows)[:, None] - diagonal
        return ((left < 0) | (offset >= -left)) & ((right < 0) | (offset <= right))


@dataclass(frozen=True)
class Result:
    """Of heads one after the other: out (heads, rows, columns), lse (heads, rows)."""

    out: Array
    lse: Array
    p: Array  # (heads, rows, keys), relative to `base`
    total: Array  # of p and the sink, (heads, rows, 1)
    scores: Array


def exact(q: Array, k: Array, v: Array, sinks: Array | None, rules: Rules) -> Result:
    """In float64. q, k, v are (heads, rows or keys, columns), of as many heads each."""
    with np.errstate(all="ignore"):
        s, p, total, lse = _softmax(q, k, sinks, rules, np.float64)
        out = product(
            p / np.where(total == 0, 1, total), v.astype(np.float64), seen_of(q, k, rules)
        )
    return Result(out, lse, p, total, s)


def plain(q: Array, k: Array, v: Array, sinks: Array | None, rules: Rules) -> Result:
    """The plain pipeline; `out` holds numbers of the type as float32."""
    with np.errstate(all="ignore"):
        s, p, total, lse = _softmax(q, k, sinks, rules, np.float32)
        rounded = round_to(p, rules.dtype, "rtne")
        sums = product(rounded, v.astype(np.float32), seen_of(q, k, rules))
        out = sums / np.where(total == 0, np.float32(1), total)
        out = round_to(out, rules.dtype, rules.mode)
    return Result(out, lse, p, total, s)


def seen_of(q: Array, k: Array, rules: Rules) -> Array:
    return rules.seen(q.shape[1], k.shape[1])


def _softmax(
    q: Array, k: Array, sinks: Array | None, rules: Rules, wide: Any
) -> tuple[Array, Array, Array, Array]:
    """Scores, probabilities relative to the greatest score, their sum, its log."""
    scores = q.astype(wide) @ k.astype(wide).swapaxes(1, 2) * wide(rules.scale)
    if rules.softcap:
        scores = wide(rules.softcap) * np.tanh(scores / wide(rules.softcap))
    scores = np.where(seen_of(q, k, rules), scores, wide(-np.inf))
    extra = np.full((len(q), 1, 1), -np.inf, wide)
    if sinks is not None:
        extra[:, 0, 0] = sinks
    base = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), extra)  # NaN wins
    base = np.where(np.isneginf(base), wide(0), base)
    p = np.exp(scores - base)
    total = p.sum(-1, keepdims=True) + np.exp(extra - base)
    return scores, p, total, (base + np.log(total))[..., 0]


def product(p: Array, v: Array, seen: Array) -> Array:
    """P V over the keys that are seen: what is hidden has no part, not even as 0 times NaN."""
    finite = np.isfinite(v)
    out = p @ np.where(finite, v, v.dtype.type(0))
    if finite.all():
        return out
    has = np.where(seen, p, 0) > 0

    def some(which: Array, values: Array) -> Array:
        return which.astype(np.float32) @ values.astype(np.float32) > 0

    up, down = some(has, np.isposinf(v)), some(has, np.isneginf(v))
    nothing = some(seen & (p == 0), np.isinf(v)) | some(np.broadcast_to(seen, p.shape), np.isnan(v))
    out = np.where(up, out + np.inf, out)
    out = np.where(down, out - np.inf, out)
    return np.where(nothing, np.nan, out)


def round_to(x: Array, dtype: str, mode: str) -> Array:
    """A float32 array rounded to a type, still float32."""
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float32)
    if mode == "rtne":
        return x.astype(ml_dtypes.bfloat16).astype(np.float32)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    if mode == "rtna":
        bits = bits + np.uint32(0x8000)
    elif mode != "rtz":
        raise ValueError(f"mode={mode!r} is none of rtne, rtna, rtz")
    cut = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), x, cut)
