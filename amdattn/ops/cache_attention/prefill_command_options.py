"""Arguments of attention of many queries over a cache as commands spell them."""

from __future__ import annotations

import dataclasses
from typing import Any

from amdattn.op.options import Option
from amdattn.ops.cache_attention.decode_command_options import OPTIONS as OF_DECODE
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

OPTIONS = (
    *(
        dataclasses.replace(option, default=2048) if option.name == "seqlen_q" else option
        for option in OF_DECODE
        if option.name != "num_splits"
    ),
    Option("num_splits", int, 0, "Splits of keys; 0: the plan chooses."),
    Option("total_q", int, 0, "Queries of all chunks, of several lengths; 0: all have seqlen-q."),
    Option("max_seqlen_kv", int, 0, "Keys of a sequence, at most; 0: seqlen-kv."),
    Option("max_total_kv", int, 0, "Keys of all sequences, at most; 0: of each max-seqlen-kv."),
    Option("copies", str, "", "q, kv or qkv: copied to rows in any case."),
)


def problem(heads_q: int, heads_kv: int, **options: Any) -> PrefillProblem:
    """The problem of these options; what is appended is so to lengths that are given."""
    return PrefillProblem(
        num_heads_q=heads_q,
        num_heads_kv=heads_kv or heads_q,
        cache_seqlens=bool(options["seqlen_new"]),
        **options,
    )
