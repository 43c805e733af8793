"""Inputs on which two attention kernels are compared, and what may differ between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.support.peers.peer_device import attention, normal

BFloat16 = NDArray[Any]
Inputs = tuple[BFloat16, BFloat16, BFloat16]
Edit = Callable[[BFloat16, BFloat16, BFloat16], None]

HEAD_DIM = 128
ROW, KEY, DIM = 70, 130, 5  # where the specials go: in no first or last tile of 32 keys
BFLOAT16_MAX = 2.0**127 * (2 - 2.0**-7)


def make(
    kind: str, batch: int, seqlen_q: int, seqlen_kv: int, heads_q: int, heads_kv: int
) -> Inputs:
    """Draw q, k and v, (batch, seqlen, heads, head_dim).

    Parameters
    ----------
    kind : {"normal", "log-normal", "large", "one-hot", "large values", "small values"}
        All start from the standard normal distribution. "log-normal": a factor exp(N(0, 1)) per
        key; "large": q times 8, k times 4; "one-hot": each query is twice some key; "large
        values", "small values": v times 1e4 or 1e-7.
    """
    rng = np.random.default_rng(seqlen_q + seqlen_kv)
    q = normal(rng, batch, seqlen_q, heads_q, HEAD_DIM)
    k, v = (normal(rng, batch, seqlen_kv, heads_kv, HEAD_DIM) for _ in range(2))
    if kind == "log-normal":
        k = scaled(k, np.exp(rng.standard_normal((batch, seqlen_kv, heads_kv, 1))))
    elif kind == "large":
        q, k = scaled(q, 8), scaled(k, 4)
    elif kind == "one-hot":
        chosen = rng.integers(0, seqlen_kv, seqlen_q)
        q = scaled(k[:, chosen].repeat(heads_q // heads_kv, axis=2), 2)
    elif kind.endswith("values"):
        v = scaled(v, {"large values": 1e4, "small values": 1e-7}[kind])
    elif kind != "normal":
        raise ValueError(f"kind={kind!r}")
    return q, k, v


def scaled(x: BFloat16, factor: Any) -> BFloat16:
    return (x.astype(np.float32) * factor).astype(ml_dtypes.bfloat16)


# -- specials --------------------------------------------------------------------------------------


def _bits(operand: int, index: int, pattern: int) -> Edit:
    """One element of q, k or v (operand 0, 1, 2) becomes a bit pattern."""

    def edit(*operands: BFloat16) -> None:
        operands[operand].view(np.uint16)[:, index, 0, DIM] = pattern

    return edit


def _lone_score(q_value: float, k_value: float, keys: Any = KEY) -> Edit:
    """q_value * k_value is added to the scores of one row with `keys`, to no others."""

    def edit(q: BFloat16, k: BFloat16, v: BFloat16) -> None:
        q[..., DIM] = k[..., DIM] = 0
        q[:, ROW, :, DIM] = q_value
        k[:, keys, :, DIM] = k_value

    return edit


def _peak(keys: Any, v_value: float) -> Edit:
    """Every row's probability lies on `keys`; v is not finite at another key."""

    def edit(q: BFloat16, k: BFloat16, v: BFloat16) -> None:
        q[...], k[...] = 1, 0
        k[:, keys] = 20  # 2**-3700 for the others
        v[:, 5, 0, DIM] = v_value

    return edit


def _both_infinities(q: BFloat16, k: BFloat16, v: BFloat16) -> None:
    v[:, KEY, 0, DIM], v[:, KEY + 1, 0, DIM] = np.inf, -np.inf


def _mean_of_largest(q: BFloat16, k: BFloat16, v: BFloat16) -> None:
    q[...], v[...] = 0, BFLOAT16_MAX


PATTERNS = {
    "nan": 0x7FC0,
    "-nan": 0xFFC0,
    "signalling nan": 0x7F81,
    "longest nan": 0x7FFF,
    "inf": 0x7F80,
    "-inf": 0xFF80,
}
SPECIALS: dict[str, Edit] = {
    **{
        f"{name} in {operand}": _bits("qkv".index(operand), index, pattern)
        for operand, index in (("q", ROW), ("k", KEY), ("v", KEY))
        for name, pattern in PATTERNS.items()
    },
    "score overflows": _lone_score(3e38, 3e38, 7),
    "score overflows in a later tile": _lone_score(3e38, 3e38, slice(40, 44)),
    "score overflows downward": _lone_score(3e38, -3e38, 7),
    "all scores of a row -inf": _lone_score(3e38, -3e38, slice(None)),
    "v inf under an underflown probability": _peak(2, np.inf),
    "v inf before a later peak": _peak(40, np.inf),
    "v nan under an underflown probability": _peak(2, np.nan),
    "v both infinities": _both_infinities,
    "sum of v overflows": _mean_of_largest,
}


# -- what may differ -------------------------------------------------------------------------------


def hidden(seqlen_q: int, seqlen_kv: int, causal: bool) -> NDArray[np.bool_]:
    """(seqlen_q, seqlen_kv): keys that a row does not see."""
    if not causal:
        return np.zeros((seqlen_q, seqlen_kv), bool)
    return np.logical_not(np.tri(seqlen_q, seqlen_kv, seqlen_kv - seqlen_q, bool))


def may_leak(v: BFloat16, mask: NDArray[np.bool_], heads_q: int) -> NDArray[np.bool_]:
    """(batch, seqlen_q, heads_q, head_dim): a hidden key's v is not finite there.

    Its probability is 0, and 0 * inf is NaN: a kernel that multiplies a whole tile of keys makes
    a NaN where the key is masked inside the tile, one that skips the tile does not.
    """
    wild = ~np.isfinite(v.astype(np.float32))
    count = np.einsum("ij,bjhd->bihd", mask.astype(np.int32), wild.astype(np.int32))
    return np.greater(count, 0).repeat(heads_q // v.shape[2], axis=2)


def exact(q: BFloat16, k: BFloat16, v: Any, causal: bool) -> tuple[NDArray[np.float64], ...]:
    """float64 attention of every batch entry: out like q, lse (batch, heads_q, seqlen_q)."""
    with np.errstate(invalid="ignore"):
        entries = [attention(*operands, causal) for operands in zip(q, k, v, strict=True)]
    return tuple(np.stack(x) for x in zip(*entries, strict=True))


def only_finite(v: BFloat16) -> NDArray[np.float32]:
    wide = v.astype(np.float32)
    return np.where(np.isfinite(wide), wide, 0)


def ulp(x: Any) -> NDArray[np.float64]:
    """bfloat16 spacing at x."""
    size = np.abs(np.nan_to_num(np.asarray(x, np.float64), posinf=0, neginf=0))
    return np.exp2(np.floor(np.log2(np.maximum(size, 2.0**-126))) - 7)


def ulp_of_terms(q: BFloat16, k: BFloat16, v: BFloat16, causal: bool) -> NDArray[np.float64]:
    """bfloat16 spacing at the size of the terms that a result is the sum of: sum of p * abs(v).

    A result that is small by cancellation carries the roundings of its terms, in any kernel.
    """
    return ulp(exact(q, k, np.abs(only_finite(v)), causal)[0])
