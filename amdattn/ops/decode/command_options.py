"""Arguments of attention over a cache as commands spell them."""

from __future__ import annotations

from typing import Any

from amdattn.op.options import REQUIRED, Option
from amdattn.ops.decode.problem import DecodeProblem

OPTIONS = (
    Option("batch", int, 1, "Sequences.", ("--batch", "-b")),
    Option("seqlen_q", int, 1, "Queries of a sequence.", ("--seqlen-q", "-sq")),
    Option("seqlen_kv", int, REQUIRED, "Keys of a sequence, at most.", ("--seqlen-kv", "-skv")),
    Option("heads_q", int, 32, "Heads of q.", ("--heads-q", "-hq")),
    Option(
        *("heads_kv", int, 0, "Heads of the cache, a divisor; 0: as heads-q."),
        ("--heads-kv", "-hkv"),
    ),
    Option("head_dim", int, 128, "Channels of q and k.", ("--head-dim", "-d")),
    Option("head_dim_v", int, 0, "Of v; 0: as head-dim.", ("--head-dim-v", "-dv")),
    Option("dtype", str, "bfloat16", "bfloat16 or float16."),
    Option("softmax_scale", float | None, None, "Scale of scores; default: 1/sqrt(head_dim)."),
    Option(
        *("causal", bool, False, "The last query sees all keys, each before one less."),
        ("--causal",),
    ),
    Option(
        *("window_size", tuple[int, int], (-1, -1)),
        "Keys left and right of a query's own; -1: all.",
    ),
    Option("softcap", float, 0.0, "Bound of the scaled scores; 0: none."),
    Option("sinks", bool, False, "Every head has a sink: a logit without a value.", ("--sinks",)),
    Option("return_lse", bool, False, "Return the log of sums, too.", ("--return-lse",)),
    Option("seqlen_new", int, 0, "Keys of a sequence that are appended first."),
    Option("page_size", int, 0, "Keys of a page; 0: no pages."),
    Option("num_splits", int, 0, "Parts of every tile; 0: equal shares of all work."),
)


def problem(heads_q: int, heads_kv: int, **options: Any) -> DecodeProblem:
    """The problem of these options; what is appended is so to lengths that are given."""
    return DecodeProblem(
        num_heads_q=heads_q,
        num_heads_kv=heads_kv or heads_q,
        cache_seqlens=bool(options["seqlen_new"]),
        **options,
    )
