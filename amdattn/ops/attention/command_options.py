"""Options of commands for attention, with the abbreviations of AITER's benchmarks."""

from __future__ import annotations

from typing import Any

from amdattn.op.options import Option
from amdattn.ops.attention.problem import AttentionProblem

OPTIONS = (
    Option("batch", int, 1, "Sequences.", ("--batch", "-b")),
    Option("seqlen_q", int, 4096, "Rows of q per sequence.", ("--seqlen-q", "-sq")),
    Option(
        "seqlen_kv",
        int,
        0,
        "Rows of k and v per sequence; 0: as seqlen-q.",
        ("--seqlen-kv", "-skv"),
    ),
    Option("heads_q", int, 32, "Heads of q.", ("--heads-q", "-hq")),
    Option(
        *("heads_kv", int, 0, "Heads of k and v, a divisor of heads-q; 0: as heads-q."),
        ("--heads-kv", "-hkv"),
    ),
    Option("head_dim", int, 128, "Channels of q and k.", ("--head-dim", "-d")),
    Option("head_dim_v", int, 0, "Channels of v; 0: as head-dim.", ("--head-dim-v", "-dv")),
    Option("dtype", str, "bfloat16", "bfloat16 or float16."),
    Option("softmax_scale", float | None, None, "Scale of scores; default: 1/sqrt(head_dim)."),
    Option(
        *("causal", bool, False, "The last query sees all keys, each earlier one a key fewer."),
        ("--causal",),
    ),
    Option(
        *("window_size", tuple[int, int], (-1, -1)),
        "Keys before and after a query's own; -1: all.",
    ),
    Option(
        "top_left",
        bool,
        False,
        "Mask alignment: the diagonal begins at the first key.",
        ("--top-left",),
    ),
    Option("softcap", float, 0.0, "Cap of the scaled scores; 0: none."),
    Option("sinks", bool, False, "Every head has a sink: a logit without a value.", ("--sinks",)),
    Option("round_mode", str, "rtne", "Rounding of the result: rtne, rtna or rtz."),
    Option("num_splits", int, 0, "Splits of KV; 0: the plan chooses."),
    Option("lse", bool, False, "Also return the log-sum-exp.", ("--lse",)),
    Option("gather", str, "", "Copy the rows of k, v or kv first."),
)


def problem_of(
    *, seqlen_q: int, seqlen_kv: int, heads_q: int, heads_kv: int, lse: bool, **options: Any
) -> AttentionProblem:
    """The problem with these values of OPTIONS."""
    return AttentionProblem(
        seqlen_q=seqlen_q,
        seqlen_kv=seqlen_kv or seqlen_q,
        num_heads_q=heads_q,
        num_heads_kv=heads_kv or heads_q,
        return_lse=lse,
        **options,
    )
