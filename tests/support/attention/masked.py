"""Attention with masks and sinks in float64, from FlashAttention's definitions."""

import numpy as np


def mask(seqlen_q, seqlen_kv, causal=False, window_size=(-1, -1), top_left=False):
    """Which (query, key) are seen."""
    left, right = window_size
    if causal:
        right = 0
    diagonal = 0 if top_left else seqlen_kv - seqlen_q
    distance = np.arange(seqlen_kv) - np.arange(seqlen_q)[:, None] - diagonal
    return ((left < 0) | (distance >= -left)) & ((right < 0) | (distance <= right))


def _product(a, b):
    """Of matrices. A library of linear algebra may skip zeros, but 0 times infinity is NaN."""
    here, there = np.isfinite(a), np.isfinite(b)
    out = np.where(here, a, 0) @ np.where(there, b, 0)
    leading = tuple(range(a.ndim - 2))
    rows, columns = ~here.all((*leading, -1)), ~there.all((*leading, -2))
    if rows.any():
        out[..., rows, :] = np.einsum("...ij,...jk->...ik", a[..., rows, :], b)
    if columns.any():
        out[..., columns] = np.einsum("...ij,...jk->...ik", a, b[..., columns])
    return out


def attention(q, k, v, softmax_scale=None, sinks=None, softcap=0.0, **masking):
    """O and log-sum-exp of (batch, seqlen, heads, dim) arrays; rows that see nothing are 0."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = _product(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(mask(q.shape[1], k.shape[1], **masking), scores, -np.inf)
    extra = np.full((*scores.shape[:3], 1), -np.inf)
    if sinks is not None:
        extra[:] = np.asarray(sinks, np.float64)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), extra)
        top = np.where(np.isneginf(top), 0, top)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True) + np.exp(extra - top)
        lse = np.log(total) + top
        shares = weights / np.where(total == 0, 1, total)
        out = _product(shares, v.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    return out, lse[..., 0]


def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **options):
    """The same, a sequence at a time; lse is (heads, total_q)."""
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    lse = np.full((q.shape[1], q.shape[0]), np.nan)
    rows = zip(cu_seqlens_q[:-1], cu_seqlens_q[1:], strict=True)
    keys = zip(cu_seqlens_k[:-1], cu_seqlens_k[1:], strict=True)
    for (a, b), (c, d) in zip(rows, keys, strict=True):
        one = attention(q[None, a:b], k[None, c:d], v[None, c:d], **options)
        out[a:b], lse[:, a:b] = one[0][0], one[1][0]
    return out, lse
