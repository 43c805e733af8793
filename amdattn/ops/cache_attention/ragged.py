"""Attention of chunks of several lengths over a cache in pages."""

from __future__ import annotations

from typing import Any

from amdattn.errors import UnsupportedProblem
from amdattn.ops.attention import empty
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import VARLEN_LAYOUT
from amdattn.ops.cache_attention.calls import CacheArrays, CacheCall, check_axes, declared
from amdattn.ops.cache_attention.functions import planned_for


def attend_pages(
    q: Any,
    caches: tuple[Any, Any],
    sums: tuple[Any, Any],
    used: Any,
    longest: tuple[int, int],
    block_table: Any,
    options: Options,
    *,
    sinks: Any,
    kv_layout: str,
    descales: tuple[Any, Any],
    max_total_k: int | None,
    out: Any,
    lse: Any,
    return_lse: bool,
    stream: int,
) -> Any:
    """Attention of chunks of several lengths over a cache in pages.

    Parameters
    ----------
    sums, longest
        Of queries and of keys: rows before each sequence, and what no length is above.
    used
        How many keys sequences have (seqused_k), in place of sums; or None.
    """
    if (sums[1] is None) == (used is None):
        which = "neither" if used is None else "both"
        raise ValueError(
            f"{which} of cu_seqlens_k and seqused_k were given; with block_table one of them says "
            "how many keys sequences have"
        )
    options = options.read()
    for name, have in (("round_mode", "rtne"), ("top_left", False), ("dropout_p", 0.0)):
        value = getattr(options, name)
        if value != have:
            raise UnsupportedProblem(f"{name}={value} with block_table is not built (have {have})")
    arrays, asked = CacheArrays(
        *(q, *caches),
        cache_seqlens=used,
        block_table=block_table,
        k_descale=descales[0],
        v_descale=descales[1],
        sinks=sinks,
        cu_seqlens_q=sums[0],
        cu_seqlens_kv=sums[1],
    ).split(
        *(options.softmax_scale, options.causal, options.window_size, options.softcap),
        *(True, options.num_splits, kv_layout),
    )
    with_lse = return_lse or lse is not None
    bounds = max(1, longest[0]), declared("max_total_k", max_total_k)
    call = CacheCall(arrays, asked, with_lse, longest[1], stream, bounds)
    check_axes(call.key)
    given = out, lse
    if call.views["q"].shape[0] == 0:
        named = dict(zip("qkv", call.views.values(), strict=True))
        results = empty.results(q, named, given, with_lse, VARLEN_LAYOUT, stream)
    else:
        plan = planned_for(call.ordinal, call.key)
        call.complete(plan.specs(), plan.problem)
        inputs = tuple([call.views[name] for name in plan.input_names])
        results = plan.execute(q, inputs, given, "", stream)
    return results if with_lse else results[0]
