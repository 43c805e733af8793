"""Attention over a cache under JAX's transformations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from amdattn.jax.rules import Axes, Rules, specs_of
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

_BATCH, _KV_HEADS, _GROUP = "batch", "num_heads_kv", "group"
_PAGES, _TABLE = "pages", "pages_of_sequence"
_FIRST = "first_sequences"


def _axes(problem: DecodeProblem, variant: str) -> dict[str, Axes]:
    p = problem
    # Shardy does not accept a factor of 1 beside others.
    heads = (_KV_HEADS, _GROUP) if p.group > 1 else (_KV_HEADS,)
    batch, kv_heads = (_batch(p),), (_KV_HEADS,)
    rows, new = ("seqlen_q",), ("seqlen_new",)
    known = {"page": batch if _is_by_sequence(p) else (_PAGES,), "head": kv_heads}

    def cache(name: str) -> Axes:
        return tuple(
            known.get(axis, (f"{name}_{axis}",)) for axis in LAYOUTS[p.kv_layout][name].axes
        )

    angles: Axes = (("positions",), ("half",))
    sums: Axes = (("sums",),)
    of_rows: Axes = (("total_q",),) if p.is_ragged else (batch, rows)
    return {
        "cu_seqlens_q": sums,
        "cu_seqlens_kv": sums,
        "q": (*of_rows, heads, ("head_dim",)),
        "k_cache": cache("k_cache"),
        "v_cache": cache("v_cache"),
        "k": (batch, new, kv_heads, ("head_dim",)),
        "v": (batch, new, kv_heads, ("head_dim_v",)),
        "rotary_cos": angles,
        "rotary_sin": angles,
        "cache_seqlens": (batch,),
        "cache_batch_idx": (batch,),
        "cache_leftpad": (batch,),
        "block_table": (batch, (_TABLE,)),
        "k_descale": (kv_heads, ("one",)),
        "v_descale": (kv_heads, ("one",)),
        "sinks": (heads,),
        "out": (*of_rows, heads, ("head_dim_v",)),
        "lse": (heads, *of_rows) if p.is_ragged else (batch, heads, rows),
    }


def _is_by_sequence(problem: DecodeProblem) -> bool:
    """Whether sequence b of q is sequence b of the cache, and the cache has no others."""
    return not _is_looked_up(problem) and problem.num_pages == problem.batch


def _is_looked_up(problem: DecodeProblem) -> bool:
    return bool(problem.page_size) or problem.cache_batch_idx


def _batch(problem: DecodeProblem) -> str:
    """The factor of the sequences of q; ragged ones, or the first of a cache, cannot be cut."""
    is_whole = _is_looked_up(problem) or problem.num_pages == problem.batch
    return _BATCH if is_whole and not problem.is_ragged else _FIRST


def _lengths(problem: DecodeProblem) -> dict[str, int]:
    p = problem
    found = {_batch(p): p.batch, _KV_HEADS: p.num_heads_kv, _GROUP: p.group}
    found |= {} if _is_by_sequence(p) else {_PAGES: p.num_pages}
    found |= {_TABLE: p.pages_of_sequence, "one": 1}
    found |= {name: getattr(p, name) for name in ("seqlen_q", "seqlen_new")}
    found |= {name: getattr(p, name) for name in ("head_dim", "head_dim_v")}
    found |= {"positions": p.rotary_positions, "half": p.rotary_dim // 2}
    found |= {"total_q": p.total_q, "sums": p.batch + 1}
    for name, layout in LAYOUTS[p.kv_layout].items():
        sizes = zip(layout.axes, p.cache_shape(name), strict=True)
        found |= {f"{name}_{axis}": n for axis, n in sizes if axis not in ("page", "head")}
    return found


def _resized(problem: DecodeProblem, factors: Mapping[str, int]) -> DecodeProblem:
    """The problem with another batch, or other KV heads with the same query heads per KV head."""
    p = problem
    batch, kv_heads = factors.get(_BATCH, p.batch), factors.get(_KV_HEADS, p.num_heads_kv)
    more: dict[str, Any] = {}
    if isinstance(p, PrefillProblem):
        is_any = p.max_total_kv == p.batch * p.max_seqlen_kv
        more["max_total_kv"] = 0 if is_any else p.max_total_kv * max(1, batch // p.batch)
    return dataclasses.replace(
        p,
        **more,
        batch=batch,
        num_pages=batch if _is_by_sequence(p) else p.num_pages,
        num_heads_kv=kv_heads,
        num_heads_q=kv_heads * p.group,
    )


def _rules(operation: str) -> Rules:
    return Rules(
        specs=specs_of(operation),
        axes=_axes,
        independent=(_BATCH, _KV_HEADS),
        lengths=_lengths,
        resized=_resized,
    )


RULES = {name: _rules(name) for name in ("decode", "prefill")}
