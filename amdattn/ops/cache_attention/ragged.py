"""Attention of chunks of several lengths over a cache in pages."""

from __future__ import annotations

from typing import Any

from amdattn.errors import UnsupportedProblem
from amdattn.ops.attention import empty
from amdattn.ops.attention.options import Arguments, Options
from amdattn.ops.attention.problem import VARLEN_LAYOUT
from amdattn.ops.cache_attention.calls import CacheArguments, CacheCall, check_axes, declared
from amdattn.ops.cache_attention.planned import planned_for


def attend_pages(
    over: CacheArguments, asked: Arguments, longest: tuple[int, int], max_total_k: int | None
) -> Any:
    """Compute attention of chunks of several lengths over a cache in pages.

    `over` has the arrays and their layout, `asked` all other arguments; `longest` limits the
    lengths of queries and of keys.
    """
    if (over.cu_seqlens_kv is None) == (over.cache_seqlens is None):
        which = "neither" if over.cache_seqlens is None else "both"
        raise ValueError(
            f"{which} of cu_seqlens_k and seqused_k were given; with block_table one of them says "
            "how many keys sequences have"
        )
    asked = asked.read_flags()
    named = asked.options.read()._asdict()
    for name, have in Options._field_defaults.items():
        if name not in CacheArguments._fields and (value := named.pop(name)) != have:
            raise UnsupportedProblem(f"{name}={value} with block_table is not built (have {have})")
    named |= {name: getattr(asked, name) for name in ("sinks", "out", "lse", "stream")}
    over = over._replace(return_softmax_lse=asked.with_lse, **named)
    call = CacheCall(over, longest[1], max(1, longest[0]), declared("max_total_k", max_total_k))
    check_axes(call.key)
    if call.views["q"].shape[0]:
        plan = planned_for(call.ordinal, call.key)
        call.complete(plan.specs(), plan.problem)
        found = call.run(plan, over)
    else:
        views = dict(zip("qkv", call.views.values(), strict=True))
        given, with_lse = (over.out, over.lse), asked.with_lse
        found = empty.results(over.q, views, given, with_lse, VARLEN_LAYOUT, call.stream)
        found = found if with_lse else found[0]
    return (*found, None) if asked.return_attn_probs else found
