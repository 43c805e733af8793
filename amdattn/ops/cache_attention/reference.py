"""Attention over a cache in float64, including appended rows and rotary embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.dtypes import as_dtype
from amdattn.ops.attention.reference import attention
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.layouts import LAYOUTS

Arrays = Mapping[str, NDArray[Any]]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The expected results of a call.

    Attributes
    ----------
    out, lse : array
    weighted : array
        For each element of `out`, the sum of the absolute values of its terms; errors of rounded
        weights are a fraction of it.
    k_cache, v_cache : array
        After appending, before anything is rounded.
    turned : array of bool, like k_cache
        Elements that are results of rotations.
    """

    out: Float64
    lse: Float64
    weighted: Float64
    k_cache: Float64
    v_cache: Float64
    turned: NDArray[np.bool_]


def turn(rows: NDArray[Any], positions: NDArray[Any], inputs: Arrays, interleaved: bool) -> Float64:
    """Rows (seqlen, heads, head_dim) rotated by the angles of their positions."""
    cos, sin = (inputs[name].astype(np.float64)[positions] for name in ("rotary_cos", "rotary_sin"))
    half = cos.shape[-1]
    made = rows.astype(np.float64)
    first = np.arange(half) * 2 if interleaved else np.arange(half)
    second = first + (1 if interleaved else half)
    x, y = made[..., first], made[..., second]
    cos, sin = cos[:, None], sin[:, None]
    made[..., first], made[..., second] = x * cos - y * sin, x * sin + y * cos
    return made


def places(problem: DecodeProblem, inputs: Arrays, sequence: int, keys: int) -> tuple[Any, Any]:
    """The places of the first keys of a sequence: pages, or sequences of the cache, and rows."""
    p, position = problem, np.arange(keys)
    if p.page_size:
        table = inputs["block_table"][sequence]
        return table[position // p.page_size], position % p.page_size
    row = int(inputs["cache_batch_idx"][sequence]) if p.cache_batch_idx else sequence
    return np.full(keys, row), position


def decode(problem: DecodeProblem, inputs: Arrays) -> Found:
    """Every result in float64; rotated rows are rounded to their type before they are used."""
    p = problem
    layouts = LAYOUTS[p.kv_layout]
    caches = {name: layouts[name].rows(inputs[name]).astype(np.float64) for name in layouts}
    scales = {name: _scales(p, inputs, name) for name in ("k", "v")}
    turned = np.zeros(caches["k_cache"].shape, np.bool_)  # in rows
    lengths = inputs["cache_seqlens"] if p.cache_seqlens else np.full(p.batch, p.seqlen_kv)
    q = inputs["q"].astype(np.float64)
    element = inputs["q"].dtype
    for b in range(p.batch):
        before = int(lengths[b])
        if p.seqlen_new:
            pages, rows = places(p, inputs, b, before + p.seqlen_new)
            at = pages[before:], rows[before:]
            new, order = inputs["k"][b].astype(np.float64), np.arange(p.seqlen_new)
            if p.rotary_dim:
                new = turn(new, before + order, inputs, p.rotary_interleaved)
                turned[..., : p.rotary_dim][at] = True
            new = _stored(p, new.astype(element), scales["k"]) if p.is_quantized else new
            caches["k_cache"][at] = new
            caches["v_cache"][at] = _stored(p, inputs["v"][b], scales["v"])
        if p.rotary_dim:
            steps = np.arange(p.seqlen_q) if p.is_masked else np.zeros(p.seqlen_q, int)
            found = turn(q[b], before + steps, inputs, p.rotary_interleaved)
            q[b] = found.astype(element)
    values = {name: caches[f"{name}_cache"] * scales[name] for name in scales}
    made = [_sequence(p, inputs, values, q[b], b, int(lengths[b])) for b in range(p.batch)]
    out, lse, weighted = (np.stack(x) for x in zip(*made, strict=True))
    k, v = (layouts[name].of_rows(caches[name], p.chunk) for name in ("k_cache", "v_cache"))
    turned = layouts["k_cache"].of_rows(turned, p.chunk)
    return Found(out, lse, weighted, k, v, turned)


def _scales(p: DecodeProblem, inputs: Arrays, cache: str) -> Float64:
    """The scales of the heads, (heads, 1)."""
    if p.is_scaled(cache):
        return inputs[f"{cache}_descale"].astype(np.float64)
    return np.full((p.num_heads_kv, 1), p.k_descale if cache == "k" else p.v_descale)


def _stored(p: DecodeProblem, rows: NDArray[Any], scales: Float64) -> Float64:
    """Rows (seqlen, heads, columns) as the cache stores them."""
    if not p.is_quantized:
        return rows.astype(np.float64)
    element = as_dtype(p.kv_dtype).numpy()
    numbers = np.arange(2**8, dtype=np.uint8).view(element).astype(np.float64)
    most = numbers[np.isfinite(numbers)].max()
    quotients = (rows.astype(np.float64) / scales).astype(np.float32)
    return np.clip(quotients, -most, most).astype(element).astype(np.float64)


def _sequence(
    p: DecodeProblem, inputs: Arrays, caches: Arrays, q: Float64, b: int, before: int
) -> tuple[Float64, Float64, Float64]:
    keys = before + p.seqlen_new
    at = places(p, inputs, b, keys)
    # As in launches, appended keys are rounded first.
    k, v = (caches[name][at] for name in ("k", "v"))
    if not p.is_quantized:
        k, v = (x.astype(inputs["q"].dtype) for x in (k, v))
    # Keys that no query sees come first, so the last query remains aligned to the last key.
    first = min(int(inputs["cache_leftpad"][b]) if p.cache_leftpad else 0, keys)
    q, k, v = (x[None].astype(np.float64) for x in (q, k[first:], v[first:]))
    options: dict[str, Any] = {name: getattr(p, name) for name in ("causal", "window_size")}
    options |= {"softcap": p.softcap, "sinks": inputs["sinks"] if p.sinks else None}
    out, lse = attention(q, k, v, p.softmax_scale, **options)
    weighted, _ = attention(q, k, np.abs(v), p.softmax_scale, **options)
    return out[0], lse[0], weighted[0]
