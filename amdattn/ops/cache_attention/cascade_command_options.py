"""Arguments of attention over a shared prefix as commands spell them."""

from __future__ import annotations

import dataclasses
from typing import Any

from amdattn.op.options import REQUIRED, Option
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_command_options import OPTIONS as OF_DECODE
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

OPTIONS = (
    *(
        dataclasses.replace(option, help="Own keys of a sequence, at most.")
        if option.name == "seqlen_kv"
        else option
        for option in OF_DECODE
        if option.name not in ("window_size", "kv_dtype")
    ),
    Option("prefix_len", int, REQUIRED, "Keys that all sequences have first."),
    Option("prefix_pages", int, 0, "Pages of the cache that have them; 0: arrays of their own."),
)


def problem(
    heads_q: int,
    heads_kv: int,
    prefix_len: int,
    prefix_pages: int,
    return_lse: bool,
    **options: Any,
) -> CascadeProblem:
    """The problem of these options; what is appended is so to lengths that are given."""
    kind = PrefillProblem if options["seqlen_q"] > MOST_QUERIES else DecodeProblem
    own = kind(
        num_heads_q=heads_q,
        num_heads_kv=heads_kv or heads_q,
        cache_seqlens=bool(options["seqlen_new"]),
        **options,
    )
    return CascadeProblem(own, prefix_len, prefix_pages, return_lse)
