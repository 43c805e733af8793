"""Arguments of attention over a cache as commands spell them."""

from __future__ import annotations

from typing import Any

from amdattn.op.options import REQUIRED, Option
from amdattn.ops.attention.command_options import OPTIONS as OF_FORWARD
from amdattn.ops.cache_attention.decode_problem import DecodeProblem

_AS_FORWARD = {option.name: option for option in OF_FORWARD}
OPTIONS = (
    _AS_FORWARD["batch"],
    Option("seqlen_q", int, 1, "Queries of a sequence.", ("--seqlen-q", "-sq")),
    Option("seqlen_kv", int, REQUIRED, "Keys of a sequence, at most.", ("--seqlen-kv", "-skv")),
    _AS_FORWARD["heads_q"],
    Option(
        *("heads_kv", int, 0, "Heads of the cache, a divisor; 0: as heads-q."),
        ("--heads-kv", "-hkv"),
    ),
    *(_AS_FORWARD[name] for name in ("head_dim", "head_dim_v", "dtype", "softmax_scale")),
    *(_AS_FORWARD[name] for name in ("causal", "window_size", "softcap", "sinks")),
    Option("return_lse", bool, False, "Return the log of sums, too.", ("--return-lse",)),
    Option("seqlen_new", int, 0, "Keys of a sequence that are appended first."),
    Option("page_size", int, 0, "Keys of a page; 0: no pages."),
    Option("kv_dtype", str, "", "Element type of the cache; default: dtype."),
    Option("kv_layout", str, "NHD", "NHD, packed or shuffled: how pages lie."),
    Option("num_splits", int, 0, "Parts of every tile; 0: as lengths are."),
)


def problem(heads_q: int, heads_kv: int, **options: Any) -> DecodeProblem:
    """The problem of these options; what is appended is so to lengths that are given."""
    return DecodeProblem(
        num_heads_q=heads_q,
        num_heads_kv=heads_kv or heads_q,
        cache_seqlens=bool(options["seqlen_new"]),
        **options,
    )
