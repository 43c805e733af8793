"""Attention of chunks of several lengths over a cache in pages."""

from __future__ import annotations

from typing import Any

from amdattn.errors import UnsupportedProblem
from amdattn.ops.attention import empty
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import VARLEN_LAYOUT
from amdattn.ops.cache_attention.calls import CacheArguments, CacheCall, check_axes, declared
from amdattn.ops.cache_attention.planned import planned_for


def attend_pages(
    asked: CacheArguments, options: Options, longest: tuple[int, int], max_total_k: int | None
) -> Any:
    """Attention of chunks of several lengths over a cache in pages.

    `asked` has all but `options`; no length of queries or keys is above `longest`.
    """
    if (asked.cu_seqlens_kv is None) == (asked.cache_seqlens is None):
        which = "neither" if asked.cache_seqlens is None else "both"
        raise ValueError(
            f"{which} of cu_seqlens_k and seqused_k were given; with block_table one of them says "
            "how many keys sequences have"
        )
    named = options.read()._asdict()
    for name, have in (("round_mode", "rtne"), ("top_left", False), ("dropout_p", 0.0)):
        if (value := named.pop(name)) != have:
            raise UnsupportedProblem(f"{name}={value} with block_table is not built (have {have})")
    asked = asked._replace(**named)
    call = CacheCall(asked, longest[1], max(1, longest[0]), declared("max_total_k", max_total_k))
    check_axes(call.key)
    if call.views["q"].shape[0]:
        plan = planned_for(call.ordinal, call.key)
        call.complete(plan.specs(), plan.problem)
        return call.run(plan, asked)
    views = dict(zip("qkv", call.views.values(), strict=True))
    given, with_lse = (asked.out, asked.lse), call.key.return_lse
    found = empty.results(asked.q, views, given, with_lse, VARLEN_LAYOUT, call.stream)
    return found if with_lse else found[0]
